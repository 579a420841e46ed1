"""What tests of op families share: ONNX's cases lifted and interpreted, ops brought to what TFLite takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Graph, Value
from onnxtfl.ir.interpret import evaluate_node, run
from onnxtfl.ir.op import Op
from onnxtfl.ir.types import TensorType, dtype_of
from onnxtfl.passes.floats import narrow_float64
from onnxtfl.pipeline import Options, inspect
from onnxtfl.rewriting.legalize import legalize
from onnxtfl.targets.onnx import OnnxTarget
from onnxtfl.targets.tflite import TfliteTarget
from tests.conformance.cases import Case, load_cases
from tests.harness.compare import difference
from tests.harness.litert import narrow

TFLITE = TfliteTarget()


def onnx_target(opset: int) -> OnnxTarget:
    """ONNX at one opset."""
    return OnnxTarget(opset)


def cases_of(names: str) -> list[Case]:
    """ONNX's cases of one node that are about one of the ops `names`, with comparable outputs."""
    wanted = set(names.split())
    return [c for c in load_cases() if len(c.ops) == 1 and c.ops[0] in wanted and not c.random]


def check_lifted(case: Case) -> None:
    """Lift and interpret a case; AssertionError where the outputs differ from those that come with it."""
    graph = inspect(case.model, "lifted", Options())
    narrow_float64(graph, "narrow")
    for inputs, outputs in case.data_sets:
        for have, want in zip(run(graph, [narrow(x) for x in inputs]), outputs, strict=True):
            message = difference(narrow(have), narrow(want), max(case.rtol, 1e-5), max(case.atol, 1e-7))
            assert not message, f"{case.name}: {message}"


def legalized(
    op: type[Op], operands: Sequence[Array | Value | None], target: Any = TFLITE, **attributes: Any
) -> tuple[Array, Array]:
    """What `op` gives, and what stands for it in the target gives; arrays are inputs, values constants."""
    graph = Graph()
    b = Builder(graph)
    values = [graph.add_input(_type(x)) if isinstance(x, np.ndarray) else x for x in operands]
    result = b(op, *values, **attributes)
    assert result.producer is not None
    arrays = [x.numpy() if isinstance(x, Value) else x for x in operands]
    (wanted,) = evaluate_node(result.producer, arrays)
    graph.outputs = [result]
    legalize(graph, target)
    (found,) = run(graph, [x for x in operands if isinstance(x, np.ndarray)])
    return wanted, found


def _type(array: Array) -> TensorType:
    return TensorType(dtype_of(array.dtype), array.shape)


def check_legalized(
    op: type[Op],
    operands: Sequence[Array | Value | None],
    rtol: float = 2e-6,
    target: Any = TFLITE,
    attributes: Mapping[str, Any] | None = None,
    atol: float = 1e-37,
) -> None:
    """Integers and bools have to be equal, floats within the tolerances; infinities and NaN where they belong."""
    with np.errstate(all="ignore"):
        wanted, found = legalized(op, operands, target, **(attributes or {}))
    assert wanted.dtype == found.dtype
    if wanted.dtype.kind in "biu":
        np.testing.assert_array_equal(found, wanted, err_msg=op.name)
    else:
        np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol, err_msg=op.name)
