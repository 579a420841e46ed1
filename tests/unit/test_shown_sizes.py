"""Sizes in messages: the names of the user, and which assumptions the table lists."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnxtfl
from onnxtfl.ir.dims import Dim, fresh_symbol, parse_dim, symbol
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.shown_sizes import (
    inputs_scope,
    is_of_inputs,
    may_be_fed,
    remember_inputs,
    shown_dim,
    shown_shape,
    shown_type,
)
from onnxtfl.ir.types import DType, TensorType
from tests.unit.tiny_models import onnx_model

FLOAT = TensorProto.FLOAT
UNNAMED = fresh_symbol()


@pytest.fixture
def _inputs() -> Iterator[None]:
    """Inputs ids [batch, seq], x [3, unnamed], past [batch, kept]."""
    graph, batch = Graph("g"), symbol("batch")
    with inputs_scope():
        for name, shape in (("ids", (batch, symbol("seq"))), ("x", (3, UNNAMED)), ("past", (batch, symbol("kept")))):
            graph.add_input(TensorType(DType.FLOAT32, shape)).name = name
        remember_inputs(graph.inputs)
        yield


@pytest.mark.usefixtures("_inputs")
@pytest.mark.parametrize(
    ("dim", "sentence", "listed"),
    [
        (3, "3", "3"),
        (symbol("batch") * 2, "2*batch", "2*batch"),
        (UNNAMED + 1, "x[1] + 1", "x[1] + 1"),
        (fresh_symbol() * symbol("batch"), "a size computed at run time", "?"),
        (
            parse_dim("(((batch + 1)//2 + 3)//4 + seq*batch + 17)//5"),
            "a size that depends on batch and seq",
            "?(batch,seq)",
        ),
    ],
)
def test_sizes_have_the_names_of_the_inputs(dim: Dim, sentence: str, listed: str) -> None:
    assert shown_dim(dim) == sentence
    assert shown_shape((1, dim)) == f"[1,{listed}]"


@pytest.mark.usefixtures("_inputs")
def test_types_in_errors_have_these_names() -> None:
    assert shown_type(TensorType(DType.FLOAT32, (UNNAMED, fresh_symbol(), 3))) == "tensor<[x[1]]x[?]x3xfloat32>"
    assert shown_type(None) == "?"


def test_an_error_has_no_numbers_of_symbols() -> None:
    """`u?1`, the name of a size inside of the conversion, was in the types and shapes of errors."""
    nodes = [helper.make_node("NonZero", ["x"], ["p"]), helper.make_node("Reshape", ["p", "to"], ["y"])]
    model = onnx_model(
        nodes, [("x", FLOAT, [None, 3])], [("y", TensorProto.INT64, None)], {"to": np.array([3, -1, -1])}
    )
    with pytest.raises(onnxtfl.InvalidModelError) as found:
        onnxtfl.onnx_to_tflite(model, check=False)
    assert "tensor<2x[?]xint64>" in str(found.value)
    assert "u?" not in str(found.value)


@pytest.mark.usefixtures("_inputs")
def test_sizes_that_a_user_may_feed() -> None:
    """An empty cache beside tokens is fed, no batch of 0; a sum of sizes is fed as none."""
    assert may_be_fed(symbol("kept"), 0)
    assert may_be_fed(UNNAMED, 1)
    assert not may_be_fed(symbol("kept") + symbol("seq"), 0)
    assert not may_be_fed(fresh_symbol(), 1)
    assert is_of_inputs(UNNAMED // 2)
    assert not is_of_inputs(fresh_symbol())


def test_a_batch_of_all_inputs_is_not_fed_as_0() -> None:
    graph = Graph("g")
    with inputs_scope():
        for name in "ab":
            graph.add_input(TensorType(DType.FLOAT32, (symbol("batch"), 3))).name = name
        remember_inputs(graph.inputs)
        assert not may_be_fed(symbol("batch"), 0)
        assert may_be_fed(symbol("batch"), 1)


def softmax_of(others: list[tuple[str, int, list[str | int]]]) -> onnxtfl.Conversion:
    """Softmax over the open axis of x, beside other inputs that are added to a second output."""
    nodes = [
        helper.make_node("Softmax", ["x"], ["y"]),
        *(helper.make_node("Abs", [n], [f"{n}_"]) for n, _, _ in others),
    ]
    outputs = [("y", FLOAT, None), *((f"{name}_", FLOAT, None) for name, _, _ in others)]
    return onnxtfl.onnx_to_tflite(onnx_model(nodes, [("x", FLOAT, [2, "n"]), *others], outputs), check=False)


def test_the_table_lists_assumptions_about_sizes_that_are_fed() -> None:
    text = "n is at least 1: on empty tensors, SOFTMAX ends the process"
    for others, is_listed in (([], False), ([("z", FLOAT, [2, 3])], True)):
        report = softmax_of(others).report
        assert report.assumptions == (text,)
        assert ("assumed" in report.table()) is is_listed
        assert "assumed" in report.table(verbose=True)


def test_a_size_of_0_that_onnx_runtime_copies_is_reported() -> None:
    """Reshape(x [n, t], [t, -1]) at (2, 0) is [2, 0] in ONNX Runtime."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], start=1, end=2),
        helper.make_node("Concat", ["s", "rest"], ["to"], axis=0),
        helper.make_node("Reshape", ["x", "to"], ["y"]),
    ]
    for shape, texts in ((["n", "t"], 1), (["n", 3], 0), (["t", "t"], 0)):
        model = onnx_model(nodes, [("x", FLOAT, shape)], [("y", FLOAT, None)], {"rest": np.array([-1])}, opset=17)
        report = onnxtfl.onnx_to_tflite(model, check=False).report
        assert (
            len([text for text in report.assumptions if text.startswith("t, a size computed for a Reshape")]) == texts
        )
        assert "assumed" not in report.table()


def test_outputs_are_listed_without_numbers_of_symbols() -> None:
    node = helper.make_node("NonZero", ["x"], ["y"])
    model = onnx_model([node], [("x", FLOAT, [2, "n"])], [("y", TensorProto.INT64, None)])
    assert str(onnxtfl.onnx_to_tflite(model, check=False).report.outputs[0]) == "y  int64 [2,?]"
