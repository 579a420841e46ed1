"""Every decomposition, expansion and formula means what its op means, on operands drawn from the declarations.

::

    evaluate(op)(operands)  =  run(what the rule makes of the op)(operands)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pytest

from onnxtfl.errors import OnnxtflError, UnsupportedError
from onnxtfl.ir.builder import Builder, infer
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import fresh_symbol
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.interpret import evaluate_node, run
from onnxtfl.ir.op import OPS, Effect, Op
from onnxtfl.ir.types import TensorType, TupleType
from onnxtfl.rewriting.registry import all_rules, rule_name
from tests.unit.op_samples import Known, Open, Stored, dtype_of, samples, varied_samples

all_rules()
COUNT = 30
"""The samples of an op."""
NOT_DRAWN = {
    "Custom": "a user's op",
    "NonMaxSuppression": "becomes SelectBoxes",
    "If": "regions: tests/passes/test_control.py",
    "Loop": "regions",
    "Scan": "regions",
    "Tuple": "the result is no tensor: tests/unit/test_sequences.py",
    "GetTupleElement": "the operand is no tensor: tests/unit/test_sequences.py",
    "While": "regions",
    "RegexFullMatch": "strings: tests/unit/test_strings.py",
    "StringConcat": "strings",
    "StringSplit": "strings",
}


NEEDS_MORE = {
    "casts.by_int8": "a quantized result, which only passes make: tests/unit/test_micro_target.py",
    "casts.by_real_values": "a result of another quantized type, which only passes make",
    "contraction.rows_of_one_matrix": "quantized operands: tests/passes/test_quantize_corners.py",
    "convolution.integer_conv_by_taps": "windows with more products than float32 adds up exactly",
    "gathering.gathered_strings": "strings: tests/unit/test_strings.py",
    "pooling.pool_of_joined_padding": "a Pad before the pool: tests/unit/test_gpu.py",
    "reductions.chosen_axis": "the size of a result, with axes known only at run time: tests/unit/test_gpu.py",
    "recurrence.brought_to_kernel": "more steps than are written out",
    "reductions.sum_of_nothing": "axes known only at run time, of which there may be none",
    "stored.with_weights_in_bytes": "quantized operands: tests/unit/test_stored_weights.py",
}
"""The rules whose condition samples do not meet, and why; families' own tests reach them."""


class Built(NamedTuple):
    """A graph of one node, its inputs, and what the node evaluates to."""

    graph: Graph
    node: Node
    inputs: list[Array]
    results: list[Array]


def built(op: type[Op], operands: list[Any], attributes: dict[str, Any], graph: Graph | None = None) -> Built | None:
    """The node in a new graph, or as one more of `graph`; None where the declarations allow operands that do not fit
    together.
    """
    graph, inputs = Graph() if graph is None else graph, list[Array]()
    values: list[Value | None] = []
    for one in operands:
        if one is None or isinstance(one, Known):
            values.append(None if one is None else constant(one.array))
        elif isinstance(one, Stored) and one.is_constant:
            values.append(constant(one.array, type_=one.type))
        elif isinstance(one, Stored):
            inputs.append(one.array)
            values.append(graph.add_input(one.type, f"x{len(graph.inputs)}"))
        elif isinstance(one, Open):
            inputs.append(one.array)
            sizes = tuple(fresh_symbol() for _ in one.array.shape) if one.rank_is_known else None
            values.append(graph.add_input(TensorType(dtype_of(one.array), sizes), f"x{len(graph.inputs)}"))
        else:
            inputs.append(np.asarray(one))
            values.append(graph.add_input(TensorType(dtype_of(inputs[-1]), inputs[-1].shape), f"x{len(graph.inputs)}"))
    try:
        results = Builder(graph).many(op, *values, **attributes)
        node = results[0].producer
        if node is None:  # all was known
            return None
        fed = iter(inputs)
        arrays = [None if v is None else v.stored() if v.is_constant else next(fed) for v in node.operands]
        found = evaluate_node(node, arrays)
    except (OnnxtflError, ValueError, IndexError, TypeError, NotImplementedError):
        return None
    graph.outputs = [*graph.outputs, *results]
    return Built(graph, node, inputs, found)


def together(op: type[Op], given: Iterable[tuple[list[Any], dict[str, Any]]]) -> Built | None:
    """One graph of all samples that fit together; None if there are none."""
    graph, inputs, results = Graph(), list[Array](), list[Array]()
    node = None
    for operands, attributes in given:
        if built(op, operands, attributes) is not None and (one := built(op, operands, attributes, graph)) is not None:
            inputs, results, node = [*inputs, *one.inputs], [*results, *one.results], one.node
    return None if node is None else Built(graph, node, inputs, results)


def drawn(op: type[Op]) -> Iterator[Built]:
    for operands, attributes in samples(op, COUNT):
        if (found := built(op, operands, attributes)) is not None:
            yield found


def is_drawn(op: type[Op]) -> bool:
    return op.effect is Effect.PURE and op.name not in NOT_DRAWN


MADE_OF_OTHERS = [op for op in OPS.values() if is_drawn(op) and all_rules().decompositions(op, "tfl")]


@pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)
def test_inferred_types_are_those_of_what_is_computed(op: type[Op]) -> None:
    for one in drawn(op):
        for type_, array in zip(infer(one.node), one.results, strict=True):
            if isinstance(type_, TupleType):
                assert [t.dtype for t in type_.elements if isinstance(t, TensorType)] == [dtype_of(a) for a in array]
                continue
            assert isinstance(type_, TensorType)
            assert type_.dtype is dtype_of(array), one.node
            assert type_.shape is None or len(type_.shape) == array.ndim
            assert all(not isinstance(d, int) or d == n for d, n in zip(type_.shape or (), array.shape, strict=False))


@pytest.mark.parametrize("target", ["tfl", "onnx", "gpu"])
@pytest.mark.parametrize("op", MADE_OF_OTHERS, ids=lambda op: op.name)
def test_what_an_op_becomes_means_the_same(op: type[Op], target: Any) -> None:
    known, tried = all_rules().decompositions(op, target), set[str]()
    for operands, attributes in varied_samples(op, COUNT):
        sample = built(op, operands, attributes)
        for rule in [] if sample is None else applying(sample.node, target):
            one = built(op, operands, attributes)
            made = None if one is None else made_by(rule, one)
            if one is None or made is None:
                continue
            tried.add(rule_name(rule))
            one.graph.outputs = [made] if isinstance(made, Value) else list(made)
            for expected, got in zip(one.results, run(one.graph, one.inputs), strict=True):
                assert_same(expected, got, f"{rule_name(rule)} of {one.node} {attributes}")
    left = {rule_name(rule) for rule in known} - tried
    assert {rule for rule in left if rule not in NEEDS_MORE and f"{op.name}: {rule}" not in NEEDS_MORE} == set()
    assert not tried & NEEDS_MORE.keys()


def applying(node: Node, target: Any) -> list[Any]:
    """The rules whose conditions hold; none where one has to know a size, or a rank."""
    with suppress(UnsupportedError):
        return list(all_rules().decompositions_of(node, target))
    return []


def made_by(rule: Any, one: Built) -> Any:
    """What a rule makes; None where it declines, or has to know a size."""
    with suppress(UnsupportedError):
        return Builder(one.graph, one.node).tried(rule, one.node)
    return None


def assert_same(expected: Array, found: Array, where: str) -> None:
    assert expected.shape == found.shape and expected.dtype == found.dtype, where
    if expected.dtype.kind == "f":
        finite = np.abs(expected[np.isfinite(expected)])
        np.testing.assert_allclose(
            found, expected, rtol=2e-4, atol=2e-5 * max(1.0, finite.max(initial=0)), err_msg=where
        )
    else:
        np.testing.assert_array_equal(found, expected, err_msg=where)
