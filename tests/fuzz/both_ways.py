"""A graph in ONNX's text form, converted to TFLite and back, and compared with ONNX Runtime at several sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, parser

from tests.fuzz.run import Trial, judge


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
    feeds = [{value.name: _array(value, one, random) for value in graph.input} for one in sizes]
    verdict = judge(model, feeds, Trial(0, back=True))
    assert verdict.kind == "passed", f"{verdict.kind}: {verdict.message}\n{verdict.model}\n{verdict.detail}"


def _array(value: onnx.ValueInfoProto, sizes: Mapping[str, int], random: np.random.Generator) -> Any:
    tensor = value.type.tensor_type
    shape = [sizes[d.dim_param] if d.dim_param else d.dim_value for d in tensor.shape.dim]
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    return (random.standard_normal(shape) if dtype.kind == "f" else random.integers(0, 2, shape)).astype(dtype)
