"""Versions of ONNX ops that no public op test has, each with a case of its own (see also test_first_versions).

`tests/conformance/test_onnx_op_versions.py` counts the versions that have one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx.defs
import onnx.parser
import pytest
from onnx import TensorProto, helper

import onnxtfl
from onnxtfl.ir.interpret import run
from onnxtfl.options import Options
from onnxtfl.pipeline import inspect
from tests.harness.litert import run_tflite
from tests.unit.lifting import Array, floats
from tests.unit.tiny_models import onnx_model

_X = floats(2, 4, 6)
_IMAGE = floats(1, 2, 6, 6)
_BYTES = np.asarray([[3, 250, 7, 128]], np.uint8)
_PLACES = np.asarray([[1, 0, 1]], np.int64)
_SQUARE = floats(3, 3)


@dataclass(frozen=True)
class Same:
    """Versions of an op that compute what its newer version `like`, which has public cases, does.

    The last `constants` operands are initializers.
    """

    op: str
    versions: Sequence[int]
    like: int
    operands: Sequence[Array]
    constants: int = 0
    attributes: Mapping[str, Any] = field(default_factory=dict)


def _reduced(op: str) -> Same:
    return Same(op, [11], 13, [np.abs(_X)], attributes={"axes": [0, 2], "keepdims": 0})


_SAME = [
    Same("ArgMax", [11], 12, [_X], attributes={"axis": 1}),
    Same("ArgMin", [11], 12, [_X], attributes={"axis": -1, "keepdims": 0}),
    Same("BatchNormalization", [7, 14], 15, [_IMAGE, *(np.abs(floats(2, seed=i)) for i in range(1, 5))]),
    Same("Cast", [19], 21, [_X], attributes={"to": TensorProto.INT32}),
    Same("Concat", [11], 13, [_X, _X], attributes={"axis": -1}),
    Same("DeformConv", [19], 22, [_IMAGE, floats(3, 2, 2, 2), floats(1, 8, 5, 5, seed=3)], 1),
    Same("DepthToSpace", [11], 13, [floats(1, 8, 2, 3)], attributes={"blocksize": 2, "mode": "CRD"}),
    Same("DequantizeLinear", [19, 23, 24, 25], 21, [_BYTES, np.float32(0.5), np.uint8(128)], 2),
    Same("Flatten", [11, 23, 24], 13, [_X], attributes={"axis": -1}),
    Same("GRU", [1, 3], 7, [floats(3, 1, 2), floats(1, 9, 2, seed=1), floats(1, 9, 3)], 2, {"hidden_size": 3}),
    Same("GatherND", [11], 12, [_SQUARE, _PLACES.T]),
    Same("Gemm", [11], 13, [_SQUARE, floats(3, 2), floats(2)], attributes={"alpha": 0.5, "transA": 1}),
    Same("GlobalLpPool", [2, 22], 22, [_IMAGE], attributes={"p": 3}),
    Same("Hardmax", [11], 1, [_X], attributes={"axis": 1}),
    Same("LogSoftmax", [11], 1, [_X], attributes={"axis": 1}),
    Same("LpPool", [2, 11, 18], 22, [_IMAGE], attributes={"kernel_shape": [2, 3], "p": 3, "pads": [1, 0, 0, 1]}),
    Same("LpPool", [18], 22, [_IMAGE], attributes={"kernel_shape": [3, 3], "dilations": [2, 1], "ceil_mode": 1}),
    Same("MaxPool", [11], 12, [_IMAGE], attributes={"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    Same("Mish", [18], 22, [_X]),
    Same("Pad", [11, 19, 23], 13, [_X, np.asarray([0, 1, 0, 0, 0, 2]), np.float32(1)], 2),
    Same("Pad", [19, 23], 13, [_X, np.asarray([0, 1, 0, 0, 0, 2])], 1, {"mode": "reflect"}),
    Same("QuantizeLinear", [19, 23, 24, 25], 21, [_X, np.float32(0.1), np.uint8(100)], 2),
    *(_reduced(f"Reduce{name}") for name in ("L1", "L2", "LogSum", "LogSumExp", "Prod", "SumSquare")),
    Same("Resize", [18], 19, [_IMAGE, np.float32([]), np.float32([1, 1, 2, 0.5])], 2, {"mode": "linear"}),
    Same("Scatter", [11], 9, [_SQUARE, _PLACES, _SQUARE[:1]]),
    Same("ScatterElements", [11], 18, [_SQUARE, _PLACES, _SQUARE[:1]], attributes={"axis": -1}),
    Same("ScatterND", [11], 18, [_SQUARE, _PLACES.T[1:], _SQUARE[1:]]),
    Same("Size", [24], 13, [_X]),
    Same("Softmax", [11], 1, [_X], attributes={"axis": 1}),
    Same("SpaceToDepth", [1], 13, [_IMAGE], attributes={"blocksize": 2}),
    Same("Upsample", [10], 9, [_IMAGE, np.float32([1, 1, 2, 3])], 1),
]


def _lifted(case: Same, opset: int) -> Array:
    names = [f"x{i}" for i in range(len(case.operands))]
    arrays = dict(zip(names, (np.asarray(a) for a in case.operands), strict=True))
    given = names[: len(names) - case.constants]
    inputs = [(n, helper.np_dtype_to_tensor_dtype(arrays[n].dtype), arrays[n].shape) for n in given]
    constants = {n: arrays[n] for n in names if n not in given}
    node = helper.make_node(case.op, ["" if arrays[n].shape == (0,) else n for n in names], ["y"], **case.attributes)
    model = onnx_model([node], inputs, [("y", TensorProto.FLOAT, None)], constants, opset)
    model.graph.output[0].ClearField("type")
    (result,) = run(inspect(model.SerializeToString(), "lifted", Options()), [arrays[n] for n in given])
    return result


@pytest.mark.parametrize("case", _SAME, ids=lambda case: case.op)
def test_versions_that_compute_what_a_newer_one_does(case: Same) -> None:
    wanted = _lifted(case, case.like)
    assert wanted.size
    for version in case.versions:
        found = _lifted(case, version)
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


@dataclass(frozen=True)
class Text:
    """A model as text at the opsets at which its ops have these versions."""

    ops: Sequence[str]
    versions: Sequence[int]
    text: str
    inputs: Sequence[Any]
    wanted: Sequence[Any]


_IF = """g (bool c, float[2] x) => (float[2] y) {
  y = If (c) <then_branch = t () => (float[2] a) { a = Neg (x) }, else_branch = e () => (float[2] b) { b = Abs (x) }>
}"""
_LOOP = """g (int64 n, bool c, float[2] x) => (float[2] y, float[K, 2] z) {
  y, z = Loop (n, c, x) <body = step (int64 i, bool go, float[2] a) => (bool on, float[2] b, float[2] s) {
    on = Identity (go)
    b = Add (a, a)
    s = Neg (a)
  }>
}"""
_SCAN = """g (float[2] h, float[3, 2] x) => (float[2] y, float[3, 2] z) {
  y, z = Scan <num_scan_inputs = 1, body = step (float[2] a, float[2] e) => (float[2] b, float[2] s) {
    b = Add (a, e)
    s = Identity (b)
  }> (h, x)
}"""
_PAIR = np.asarray([1, -2], np.float32)
_ROWS = np.asarray([[1, 2], [3, 4], [5, 6]], np.float32)
_ROI = "g (float[1,1,4,4] x, float[1,5] r) => (y) { y = MaxRoiPool <pooled_shape = [2, 2]> (x, r) }"
_GROUPS = "g (float[1,4,2] x, float[2] s, float[2] b) => (y) { y = GroupNormalization <num_groups = 2> (x, s, b) }"
_OPTIONAL = """g (float[3] x) => (float[3] y, bool h) {
  o = Optional (x)
  h = OptionalHasElement (o)
  y = OptionalGetElement (o)
}"""


def _normalized(x: Array) -> Array:
    groups = x.reshape(1, 2, 4)
    scaled = (groups - groups.mean(2, keepdims=True)) / np.sqrt(groups.var(2, keepdims=True) + 1e-5)
    return (scaled * np.asarray([2, 3])[:, None] + np.asarray([0, 1])[:, None]).reshape(x.shape)


_NORMALIZED = floats(1, 4, 2)
_TEXTS = [
    Text(["If"], [1, 21, 23, 24, 25], _IF, [np.asarray(True), _PAIR], [-_PAIR]),
    Text(["If"], [1, 21, 23, 24, 25], _IF, [np.asarray(False), _PAIR], [np.abs(_PAIR)]),
    Text(
        ["Loop"],
        [1, 19, 21, 23, 24],
        _LOOP,
        [np.asarray(3), np.asarray(True), _PAIR],
        [8 * _PAIR, [-_PAIR, -2 * _PAIR, -4 * _PAIR]],
    ),
    Text(["Scan"], [11, 16, 19, 21, 23, 24], _SCAN, [_PAIR, _ROWS], [[10, 10], [[2, 0], [5, 4], [10, 10]]]),
    Text(
        ["MaxRoiPool"],
        [1, 22],
        _ROI,
        [np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4), np.asarray([[0, 0, 0, 3, 3]], np.float32)],
        [[[[[5, 7], [13, 15]]]]],
    ),
    Text(
        ["GroupNormalization"],
        [18],
        _GROUPS,
        [_NORMALIZED, np.float32([2, 3]), np.float32([0, 1])],
        [_normalized(_NORMALIZED)],
    ),
    Text(["OptionalHasElement", "OptionalGetElement"], [15, 18], _OPTIONAL, [_ROWS[:, 0]], [[1, 3, 5], True]),
    Text(["Optional"], [15, 28], _OPTIONAL, [_ROWS[:, 0]], [[1, 3, 5], True]),
    Text(
        ["Split"],
        [1],
        "g (float[3,2] x) => (a, b) <float[2] n = {1, 2}> { a, b = Split <axis = 0> (x, n) }",
        [_ROWS],
        [_ROWS[:1], _ROWS[1:]],
    ),
    Text(
        ["Split"],
        [1],
        "g (float[3,2] x) => (a, b) { a, b = Split <axis = 0, split = [2, 1]> (x) }",
        [_ROWS],
        [_ROWS[:2], _ROWS[2:]],
    ),
    Text(
        ["Tile"],
        [1],
        "g (float[3,2] x) => (y) <float n = {2}, float axis = {1}> { y = Tile (x, n, axis) }",
        [_ROWS],
        [np.tile(_ROWS, (1, 2))],
    ),
    Text(
        ["Tile"],
        [1],
        "g (float[3,2] x, float n) => (y) <float axis = {-2}> { y = Tile (x, n, axis) }",
        [_ROWS, np.float32(3)],
        [np.tile(_ROWS, (3, 1))],
    ),
    Text(
        ["Tile"],
        [1],
        "g (float[3,2] x, float axis) => (y) <float n = {2}> { y = Tile (x, n, axis) }",
        [_ROWS, np.float32(-1)],
        [np.tile(_ROWS, (1, 2))],
    ),
    Text(["Dropout"], [1, 6], "g (float[3,2] x) => (y) { y = Dropout <is_test = 1> (x) }", [_ROWS], [_ROWS]),
]


def _model(text: str, opset: int) -> bytes:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> {text}')
    return bytes(model.SerializeToString())


def _run(text: str, opset: int, inputs: Sequence[Any]) -> list[Array]:
    return run(inspect(_model(text, opset), "lifted", Options()), [np.asarray(a) for a in inputs])


@pytest.mark.parametrize("case", _TEXTS, ids=lambda case: case.ops[0])
def test_versions_of_a_model(case: Text) -> None:
    for version in case.versions:
        for found, wanted in zip(_run(case.text, version, case.inputs), case.wanted, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6, err_msg=f"version {version}")


# --- random values: their type, shape and statistics -----------------------------------------------------------------

_RANDOM = {
    "RandomNormal": ("RandomNormal <shape = [50, 60], mean = 3.0, scale = 2.0> ()", 3.0, 2.0),
    "RandomNormalLike": ("RandomNormalLike <mean = -1.0, scale = 0.5> (x)", -1.0, 0.5),
    "RandomUniform": ("RandomUniform <shape = [50, 60], low = 1.0, high = 4.0> ()", 2.5, 3 / np.sqrt(12)),
    "RandomUniformLike": ("RandomUniformLike <low = -2.0, high = 0.0> (x)", -1.0, 2 / np.sqrt(12)),
    "Multinomial": ("Multinomial <sample_size = 60> (even)", 0.5, 0.5),
}
_RANDOM_OPSETS = (7, 22)
"""All of these ops but Multinomial, which is since 7, have the versions 1 and 22."""


@pytest.mark.parametrize("opset", _RANDOM_OPSETS)
def test_random_values_at_each_version(opset: int) -> None:
    nodes = " ".join(f"{op} = {node}" for op, (node, *_) in _RANDOM.items())
    results = ", ".join(f"{'int32' if op == 'Multinomial' else 'float'}[50, 60] {op}" for op in _RANDOM)
    text = f"g (float[50, 60] x, float[50, 2] even) => ({results}) {{ {nodes} }}"
    data = onnxtfl.onnx_to_tflite(_model(text, opset), check=False).data or b""
    found = dict(run_tflite(data, [np.zeros((50, 60), np.float32), np.zeros((50, 2), np.float32)]))
    for op, (_, mean, deviation) in _RANDOM.items():
        assert found[op].shape == (50, 60)
        assert found[op].dtype == (np.int32 if op == "Multinomial" else np.float32)
        assert abs(found[op].mean() - mean) < 0.1 * deviation, op
        assert abs(found[op].std() - deviation) < 0.1 * deviation, op


NAMED = (
    {(case.op, version) for case in _SAME for version in case.versions}
    | {(op, version) for case in _TEXTS for op in case.ops for version in case.versions}
    | {(op, onnx.defs.get_schema(op, opset).since_version) for op in _RANDOM for opset in _RANDOM_OPSETS}
)
"""The op versions that have a case here."""
