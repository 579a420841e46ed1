"""Models of one op of the domain ai.onnx.ml: what the lifted graph computes, and what ONNX Runtime does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from onnxtfl.ir.interpret import run
from onnxtfl.options import Options
from onnxtfl.pipeline import inspect

Array = np.ndarray[Any, np.dtype[Any]]
DOMAIN = "ai.onnx.ml"


def ml_model(op: str, arrays: Sequence[Array], results: int = 1, version: int = 3, **attributes: Any) -> bytes:
    """A model of one node, whose first axes are open."""
    names, outputs = [f"x{i}" for i in range(len(arrays))], [f"y{i}" for i in range(results)]
    node = helper.make_node(op, names, outputs, domain=DOMAIN, **attributes)
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), [None, *a.shape[1:]])
        for n, a in zip(names, arrays, strict=True)
    ]
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name=name) for name in outputs])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, version)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    return bytes(model.SerializeToString())


def runtime_results(model: bytes, arrays: Sequence[Array]) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return [np.asarray(v) for v in session.run(None, {f"x{i}": a for i, a in enumerate(arrays)})]


def check_same(
    op: str, arrays: Sequence[Array], results: int = 1, version: int = 3, atol: float = 1e-6, **attributes: Any
) -> list[Array]:
    """The lifted op computes what ONNX Runtime does: integers and strings exactly. Returns the results."""
    model = ml_model(op, arrays, results, version, **attributes)
    wanted = runtime_results(model, arrays)
    with np.errstate(all="ignore"):
        found = run(inspect(model, "lifted", Options()), list(arrays))
    for a, b in zip(wanted, found, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if a.dtype.kind in "OiUb":
            assert a.tolist() == b.tolist()
        else:
            np.testing.assert_allclose(b, a, rtol=1e-5, atol=atol)
    return wanted


def features(rows: int = 9, count: int = 4, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((rows, count)).astype(np.float32)
