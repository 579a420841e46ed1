"""Reshapes beside several dynamic sizes run in XNNPACK."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, parser
from onnxtfl.mappings.tensor.axes_beside_open_sizes import Regrouped

import onnxtfl
from onnxtfl.placement import place
from tests.harness.litert import run_onnx, run_tflite

Shape = tuple[int, ...]
RESHAPES = {
    "heads": "s = Constant <value_ints = [0, 0, 4, 64]> () r = Reshape (n, s) t = Transpose <perm = [0, 2, 1, 3]> (r)",
    "many heads": "s = Constant <value_ints = [0, 0, 8, 32]> () t = Reshape (n, s)",
    "heads and back": (
        "s = Constant <value_ints = [0, 0, 4, 64]> () r = Reshape (n, s)"
        "p, q, o, m = Split <axis = 2> (r) z = Add (r, q)"
        "w = Constant <value_ints = [0, 0, 256]> () t = Reshape (z, w)"
    ),
    "axis of size 1": (
        "a = Constant <value_ints = [1]> () u = Unsqueeze (n, a) m = Abs (n) w = Unsqueeze (m, a)"
        "t = Concat <axis = 1> (u, w, u)"
    ),
    "repeated rows": (
        "a = Constant <value_ints = [2]> () u = Unsqueeze (n, a) e = Constant <value_ints = [1, 1, 3, 1]> ()"
        "w = Expand (u, e) t = Concat <axis = 2> (u, w)"
    ),
    "repeated heads": (
        "s = Constant <value_ints = [0, 0, 4, 64]> () r = Reshape (n, s) p = Transpose <perm = [0, 2, 1, 3]> (r)"
        "a = Constant <value_ints = [2]> () u = Unsqueeze (p, a) e = Constant <value_ints = [1, 1, 3, 1, 1]> ()"
        "w = Expand (u, e) f = Constant <value_ints = [0, 12, -1, 64]> () t = Reshape (w, f)"
    ),
}


@pytest.mark.parametrize("body", RESHAPES.values(), ids=RESHAPES)
def test_reshapes_beside_open_sizes_run_in_xnnpack(body: str, tmp_path: Path) -> None:
    head = '<ir_version: 8, opset_import: ["" : 17]> g (float["b", "t", 256] x) => (float y)'
    model = parser.parse_model(f"{head} {{ n = Neg (x) {body} y = Neg (t) }}")
    data = onnxtfl.onnx_to_tflite(model).data
    assert data is not None
    (path := tmp_path / "m.tflite").write_bytes(data)
    placed = place(path, "cpu")
    assert placed.partitions == 1
    assert {op.op for op in placed.ops if op.where != "XNNPACK"} <= {"SHAPE", "GATHER", "CONCATENATION"}
    for sizes in ((2, 5), (1, 3), (1, 0)):
        x = np.random.default_rng(0).standard_normal((*sizes, 256)).astype(np.float32)
        assert _equal(model, data, x, "builtin")
        x[:1, :1, :4] = (
            0.0,
            np.inf,
            -np.inf,
            np.nan,
        )  # in products of builtin kernels, the largest number is for infinity
        assert _equal(model, data, x, "default")


def test_heads_that_are_repeated_in_turn() -> None:
    """A B A B, not A A B B."""
    body = """n = Neg (x) s = Constant <value_ints = [0, 0, 4, 64]> () r = Reshape (n, s)
      a = Constant <value_ints = [1]> ()
      p = Transpose <perm = [0, 2, 1, 3]> (r) u = Unsqueeze (p, a) e = Constant <value_ints = [1, 4, 1, 1, 1]> ()
      w = Expand (u, e) f = Constant <value_ints = [0, 16, -1, 64]> () t = Reshape (w, f) y = Neg (t)"""
    head = '<ir_version: 8, opset_import: ["" : 17]> g (float["b", "t", 256] x) => (float y)'
    model = parser.parse_model(f"{head} {{ {body} }}")
    data = onnxtfl.onnx_to_tflite(model, check=False).data
    assert data is not None
    assert _equal(model, data, np.random.default_rng(0).standard_normal((2, 3, 256)).astype(np.float32), "default")


@pytest.mark.parametrize(
    ("before", "after", "is_simple"),
    [
        ((8,), (2, 4), True),
        ((2, 4), (8,), True),
        ((8,), (2, 2), False),  # elements move along a dynamic size
        ((8,), (1, 8), False),
        ((64,), (32, 2), False),  # many parts
        ((8, 2), (4, 4), False),
    ],
)
def test_axes_of_known_sizes_that_are_split_or_merged(before: Shape, after: Shape, is_simple: bool) -> None:
    assert Regrouped(1, before, after).is_simple == is_simple


def _equal(model: ModelProto, data: bytes, x: np.ndarray, kernels: str) -> bool:
    """Whether the results of both runtimes are equal."""
    expected = run_onnx(model.SerializeToString(), {"x": x})["y"]
    return np.array_equal(run_tflite(data, {"x": x}, kernels=kernels)[0][1], expected, equal_nan=True)


def test_the_first_reshape_of_an_input_stays(tmp_path: Path) -> None:
    """Before other ops it ends no group of the delegate's."""
    head = '<ir_version: 8, opset_import: ["" : 17]> g (float["b", "t", 256] x) => (float y)'
    heads = "s = Constant <value_ints = [0, 0, 4, 64]> () r = Reshape (x, s)"
    body = f"{heads} t = Transpose <perm = [0, 2, 1, 3]> (r) y = Neg (t)"
    data = onnxtfl.onnx_to_tflite(parser.parse_model(f"{head} {{ {body} }}")).data
    assert data is not None
    (path := tmp_path / "m.tflite").write_bytes(data)
    placed = place(path, "cpu")
    assert placed.partitions == 1 and {"SPLIT", "MUL"}.isdisjoint(op.op for op in placed.ops)
