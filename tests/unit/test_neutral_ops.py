"""The neutral ops as a whole: the core's list, meanings, and what lifting leaves."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest

from onnxtfl.ir import ops
from onnxtfl.ir.formula import Formula
from onnxtfl.ir.op import OPS, Effect, Op
from onnxtfl.ir.types import tensor
from onnxtfl.options import Options
from onnxtfl.pipeline import inspect as stage
from onnxtfl.rewriting.registry import all_rules
from tests.models.corpus import CORPUS
from tests.unit.lifting import inferred

all_rules()
NOT_OPS = {"ONNX", "NumPy"}
MODELS = ("activations_zoo", "bert_tiny", "detr_slim", "if_script", "mobilenet_v1", "torch_transformer_encoder")


def listed() -> set[str]:
    """The names in the list: capitalized words after the first family's name, outside parentheses."""
    text = (ops.__doc__ or "").partition("\nelementwise")[2]
    while "(" in text:
        text, before = re.sub(r"\([^()]*\)", " ", text), text
        assert text != before, "parentheses do not pair up"
    return set(re.findall(r"\b[A-Z][A-Za-z0-9]*\b", text)) - NOT_OPS


def test_the_list_of_the_core_is_what_the_classes_say() -> None:
    assert listed() == {name for name, op in OPS.items() if op.core}


def is_inherited(op: type[Op], method: str) -> bool:
    own, base = getattr(op, method), getattr(Op, method)
    return getattr(own, "__func__", own) is getattr(base, "__func__", base)


@pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)
def test_an_op_has_a_meaning_or_says_why_not(op: type[Op]) -> None:
    if is_inherited(op, "compute") and is_inherited(op, "evaluate"):
        said = " ".join(c.__doc__ or "" for c in op.__mro__ if c is not Op and issubclass(c, Op))
        assert "evaluat" in said or "`compute`" in said
    assert inspect.getdoc(op)


@pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)
def test_shape_and_compute_take_what_the_op_declares(op: type[Op]) -> None:
    """All operands by position, and attributes by name."""
    for function in (op.shape, op.compute):
        if not inspect.isfunction(function) and not inspect.ismethod(function):
            continue  # one of NumPy's
        parameters = inspect.signature(function).parameters.values()
        assert {p.name for p in parameters if p.kind is p.KEYWORD_ONLY} <= set(op.defaults)
        given = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        if any(p.kind is p.VAR_POSITIONAL for p in parameters):
            assert len(given) <= len(op.operands)
        else:
            assert len(given) == len(op.operands)


@pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)
def test_an_op_reaches_the_core(op: type[Op]) -> None:
    """Every other op has a rule, or a form of its own in the one target for which it is made."""
    if not op.core:
        known = all_rules()
        assert (
            known.decompositions(op, "tfl") or op in known.decompose or op in known.lower_onnx or op in known.lower_tfl
        )


def test_effects_are_declared_where_there_are_any() -> None:
    assert {name for name, op in OPS.items() if op.effect is not Effect.PURE} >= {"RngNormal", "RngUniform"}


@pytest.mark.parametrize("name", MODELS)
def test_lifting_leaves_core_ops_and_formulas_only(name: str) -> None:
    path = CORPUS / "onnx" / name / "model.onnx"
    if not path.is_file():
        pytest.skip("the corpus is not here")
    graph = stage(path, "lifted", Options())
    assert {n.op.name for n in graph.walk() if not n.op.core and not issubclass(n.op, Formula)} == set()


def test_unknown_ranks() -> None:
    x = tensor("float32").with_shape(None)
    for op, rest, attributes in (
        (ops.Reshape, ([2, -1],), {}),
        (ops.Transpose, (), {"permutation": (1, 0)}),
        (ops.Slice, ([0], [1], [1]), {}),
        (ops.Pad, (np.zeros((2, 2), np.int64),), {}),
        (ops.Tile, ([1, 2],), {}),
    ):
        inferred(op, x, *rest, **attributes)  # no error is the point
