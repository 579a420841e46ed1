"""The ops of the family resources: tables with constant contents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxtfl.formats.bodies import body
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Graph, constant
from onnxtfl.ir.interpret import run
from onnxtfl.ir.model import Model
from onnxtfl.ir.text import parse_graph
from onnxtfl.ir.types import tensor
from onnxtfl.pipeline import explicit_states
from onnxtfl.rewriting.legalize import legalize
from onnxtfl.rewriting.lift import lift
from onnxtfl.targets.onnx import OnnxTarget
from onnxtfl.targets.tflite import TfliteTarget
from tests.unit import tfl_states
from tests.unit.ml_models import check_same

KEYS, QUERY = np.asarray([7, 5, 7]), np.asarray([[5, 7], [9, 5]])


def table(values: Array, default: Any, query: str = "int64") -> Graph:
    """A graph that looks up its input [2, 2] among `KEYS`."""
    graph = Graph()
    b = Builder(graph)
    keys = constant(KEYS.astype(query))
    default = constant(np.asarray(default, values.dtype))
    graph.outputs = [b(ops.Lookup, graph.add_input(tensor(query, 2, 2)), keys, b.value(values), default)]
    return graph


def test_of_equal_keys_the_first_one_counts_and_missing_ones_get_the_default() -> None:
    assert run(table(np.asarray([1, 2, 3]), -1), [QUERY])[0].tolist() == [[2, 1], [-1, 2]]


def test_values_may_be_rows() -> None:
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    found = run(table(rows, [8, 9]), [QUERY])[0]
    assert found.tolist() == [[[2, 3], [0, 1]], [[8, 9], [2, 3]]]


def test_onnx_has_it_as_label_encoder() -> None:
    graph = table(np.asarray([1, 2, 3]), -1)
    (node,) = graph.nodes
    form = OnnxTarget().accepted(node)
    assert form is not None and form.op == "LabelEncoder"
    assert form.attributes == {"keys_int64s": (7, 5), "values_int64s": (1, 2), "default_int64": -1}


@pytest.mark.parametrize("target", [OnnxTarget(), TfliteTarget()], ids=["onnx", "tflite"])
@pytest.mark.parametrize("query", ["int32", "int64"])
def test_what_is_written_means_the_same(target: Any, query: str) -> None:
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    wanted = run(table(rows, [8, 9], query), [QUERY.astype(query)])[0]
    graph = table(rows, [8, 9], query)
    legalize(graph, target)
    np.testing.assert_array_equal(run(graph, [QUERY.astype(query)])[0], wanted)


def test_a_label_encoder_is_read() -> None:
    graph = Graph()
    table = {"keys_int64s": (7, 5, 7), "values_int64s": (1, 2, 3)}
    x = graph.add_input(tensor("int64", 2, 2))
    types = [tensor("int64", 2, 2)]
    graph.outputs = Builder(graph).foreign("onnx", "LabelEncoder", [x], types, 4, "ai.onnx.ml", **table)
    lift(graph, body)
    assert run(graph, [QUERY])[0].tolist() == [[2, 1], [-1, 2]]


def test_hashtable_find_takes_the_default_for_missing_keys() -> None:
    model = Model(parse_graph(tfl_states.TABLE), "tflite")
    explicit_states(model)
    lift(model.main, body)
    assert run(model.main, [np.asarray([7, 1, 5])])[0].tolist() == ["seven", "?", "five"]


TEXTS = np.asarray([["a", "b"], ["?", "ü"]], object)


@pytest.mark.parametrize("x", [TEXTS, np.asarray([[2, 0], [9, 1]])], ids=["strings", "integers"])
def test_tables_between_strings_and_integers(x: Array) -> None:
    check_same("LabelEncoder", [x], version=1, classes_strings=["b", "ü", "a"], default_int64=-7, default_string="none")
    check_same("CategoryMapper", [x], version=1, cats_strings=["b", "ü", "a"], cats_int64s=[9, 1, 2])


def test_of_equal_keys_the_first_one_counts_as_in_onnx_runtime() -> None:
    check_same("LabelEncoder", [QUERY], version=2, keys_int64s=[7, 5, 7], values_int64s=[1, 2, 3])
