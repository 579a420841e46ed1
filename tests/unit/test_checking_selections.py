"""Rows selected by nearly equal scores may be others; a model that selects wrongly is still found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from onnxtfl import onnx_to_tflite
from onnxtfl.checking.criteria.op_by_op import SELECTED
from onnxtfl.checking.report import CheckReport
from onnxtfl.checking.session import check_models
from tests.unit.tiny_models import onnx_model, saved

FLOAT = TensorProto.FLOAT
SCORES = [0.1, 0.5, 0.500001, -0.3, -0.300001, 0.9, 0.2, -2.0]


def head(
    scores: Any = SCORES, *, order: int = 1, shift: int = 0, columns: Any = (0, 1, 2, 3), sigmoid: str = "Sigmoid"
) -> ModelProto:
    """The boxes x[8, 4] of the 6 best ``scores``, and these: ``order`` 0 selects the worst, ``shift`` other boxes."""
    nodes = [
        helper.make_node("Mul", ["x", "zero"], ["z"]),
        helper.make_node("ReduceMax", ["z"], ["m"], axes=[1], keepdims=0),
        helper.make_node("Add", ["m", "scores"], ["logits"]),
        helper.make_node(sigmoid, ["logits"], ["s"]),
        helper.make_node("TopK", ["s", "k"], ["v", "i"], largest=order),
        helper.make_node("Add", ["i", "shift"], ["j"]),
        helper.make_node("Max", ["j", "first"], ["row"]),
        helper.make_node("Gather", ["x", "row"], ["rows"]),
        helper.make_node("Gather", ["rows", "columns"], ["y"], axis=1),
    ]
    whole = {"k": [6], "shift": [shift], "first": [0], "columns": columns}
    constants = {name: np.asarray(values, np.int64) for name, values in whole.items()}
    constants |= {"zero": np.float32(0), "scores": np.asarray(scores, np.float32)}
    return onnx_model(nodes, [("x", FLOAT, [8, 4])], [("y", FLOAT, [6, 4]), ("v", FLOAT, [6])], constants)


def compared(tmp_path: Path, second: ModelProto) -> CheckReport:
    return check_models(saved(head(), tmp_path / "a.onnx"), saved(second, tmp_path / "b.onnx"))


def other_order() -> list[float]:
    """Scores within rounding of `SCORES`, in another order."""
    return [SCORES[i] for i in (0, 2, 1, 4, 3, 5, 6, 7)]


def test_rows_of_nearly_equal_scores_are_exchanged(tmp_path: Path) -> None:
    report = compared(tmp_path, head(other_order()))
    assert report.ok, report
    assert [out.accepted_by for out in report.outputs] == ["op-by-op", "tolerance"]
    assert SELECTED in report.notes


@pytest.mark.parametrize(
    "wrong",
    [
        {"order": 0},
        {"shift": -1},
        {"columns": (1, 0, 2, 3)},
        {"sigmoid": "Identity"},
        {"scores": [*SCORES[:6], 0.21, -2.0]},
        {"scores": [SCORES[i] for i in (0, 1, 2, 3, 4, 6, 5, 7)]},
    ],
    ids=str,
)
def test_a_wrong_selection_is_found(tmp_path: Path, wrong: dict[str, Any]) -> None:
    assert compared(tmp_path, head(**wrong)).status == "failed"
    assert compared(tmp_path, head(**{"scores": other_order(), **wrong})).status == "failed"


def test_scores_below_the_accuracy_of_a_sigmoid_are_ties(tmp_path: Path) -> None:
    """ONNX Runtime's Sigmoid is 0 where LiteRT's is 1e-26: all scores are equal for the one, ordered for the other."""
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["s"]),
        helper.make_node("ReduceMax", ["s"], ["m"], axes=[2], keepdims=0),
        helper.make_node("TopK", ["m", "k"], ["v", "i"], axis=1),
        helper.make_node("Gather", ["x", "i"], ["rows"], axis=1),
    ]
    outputs = [("rows", FLOAT, [1, 1, 8, 4]), ("v", FLOAT, [1, 8])]
    model = onnx_model(nodes, [("x", FLOAT, [1, 64, 4])], outputs, {"k": np.array([8], np.int64)})
    path, target = saved(model, tmp_path / "a.onnx"), tmp_path / "a.tflite"
    onnx_to_tflite(path, target, check=False)
    x = np.random.default_rng(0).standard_normal((1, 64, 4)).astype(np.float32)
    for offset in (0, -20, -64):
        report = check_models(path, target, inputs={"x": x + np.float32(offset)})
        assert report.ok, report
    nodes[0] = helper.make_node("Identity", ["x"], ["s"])
    wrong = onnx_model(nodes, [("x", FLOAT, [1, 64, 4])], outputs, {"k": np.array([8], np.int64)})
    assert check_models(saved(wrong, tmp_path / "b.onnx"), target).status == "failed"


def router(table: Any, bits: Any, largest: int = 1) -> ModelProto:
    """Rows of ``table`` [8, 16] for the 2 best of 8 scores, whose operand ONNX Runtime rounds to int8 here."""
    nodes = [
        helper.make_node(
            "MatMulNBits", ["x", "bits", "scales"], ["s"], domain="com.microsoft", K=32, N=8, bits=4, block_size=32
        ),
        helper.make_node("TopK", ["s", "k"], ["v", "i"], largest=largest),
        helper.make_node("Gather", ["table", "i"], ["rows"]),
        helper.make_node("Unsqueeze", ["v", "last"], ["w"]),
        helper.make_node("Mul", ["rows", "w"], ["y"]),
    ]
    nodes[0].attribute.append(helper.make_attribute("accuracy_level", 4))
    constants = {"bits": bits, "table": table, "scales": np.full(8, 0.1, np.float32)}
    constants |= {"k": np.array([2], np.int64), "last": np.array([2], np.int64)}
    model = onnx_model(nodes, [("x", FLOAT, [512, 32])], [("y", FLOAT, [512, 2, 16])], constants)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model


def test_a_router_whose_operand_the_source_rounds(tmp_path: Path) -> None:
    """In float32 some rows are others: those are near-ties of the source in float32, from which it is converted."""
    random = np.random.default_rng(0)
    table = random.standard_normal((8, 16)).astype(np.float32)
    bits = random.integers(0, 256, (8, 1, 16)).astype(np.uint8)
    source, target = saved(router(table, bits), tmp_path / "a.onnx"), tmp_path / "a.tflite"
    for wrong in (None, router(np.roll(table, 1, 0), bits), router(table, np.roll(bits, 1, 0)), router(table, bits, 0)):
        onnx_to_tflite(source if wrong is None else wrong, target, check=False)
        report = check_models(source, target)
        assert (report.status == "passed") == (wrong is None), report
        assert wrong is not None or report.outputs[0].accepted_by == "float32-reference"
