"""A graph in ONNX's text form, converted to TFLite and back, and compared with ONNX Runtime at several sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, parser

import onnxtfl
from tests.fuzz.graphs_judge import difference
from tests.fuzz.graphs_source import Source
from tests.harness.litert import run_onnx, run_tflite


def assert_converts_both_ways(
    text: str, weights: Mapping[str, Any] | None = None, sizes: Sequence[Mapping[str, int]] = ({},), opset: int = 17
) -> None:
    """Convert the graph ``text`` both ways and compare.

    ``weights``: initializers; a tuple is the shape of random ones. ``sizes``: of the open dimensions, for each run.
    """
    random = np.random.default_rng(0)
    graph = parser.parse_graph(text)
    for name, weight in (weights or {}).items():
        array = random.standard_normal(weight).astype(np.float32) if isinstance(weight, tuple) else np.asarray(weight)
        graph.initializer.append(numpy_helper.from_array(array, name))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    source = Source(model)
    converted = onnxtfl.onnx_to_tflite(model, check=False, load=False).data
    assert isinstance(converted, bytes)
    back = onnxtfl.tflite_to_onnx(converted, check=False, load=False).data
    assert isinstance(back, bytes)
    loaded = onnx.load_from_string(back)
    onnx.checker.check_model(loaded, full_check=True)
    for one in sizes:
        fed = {value.name: _array(value, one, random) for value in graph.input}
        read = {value.name: fed[value.name] for value in loaded.graph.input}
        results = {kernels: run_tflite(converted, fed, kernels=kernels) for kernels in ("default", "builtin")}
        for way, found in {**results, "back": run_onnx(back, read)}.items():
            wrong = difference(dict(found), source.run(fed), fed, source.noisy)
            assert wrong is None, f"{way}, {one}: {wrong}"


def _array(value: onnx.ValueInfoProto, sizes: Mapping[str, int], random: np.random.Generator) -> Any:
    tensor = value.type.tensor_type
    shape = [sizes[d.dim_param] if d.dim_param else d.dim_value for d in tensor.shape.dim]
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    return (random.standard_normal(shape) if dtype.kind == "f" else random.integers(0, 2, shape)).astype(dtype)
