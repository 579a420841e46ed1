"""The document's operations: each is declared, and its worked example is what evaluation and both runtimes compute."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tools.neutral_page import markdown, neutral_page

from onnxtfl.ir import document
from onnxtfl.ir.data import Array
from onnxtfl.ir.interpret import run
from onnxtfl.ir.op import Effect
from onnxtfl.ir.text import parse_graph, print_graph
from onnxtfl.ir.types import TensorType
from onnxtfl.ir.verify import verify
from onnxtfl.op_tables.neutral_document import DocumentedOp, documented_ops
from onnxtfl.options import Options
from tests.harness.litert import run_onnx, run_tflite
from tests.unit.neutral_models import as_onnx, as_tflite

PAGE = Path(__file__).resolve().parents[2] / "docs" / "neutral-ops.md"
EXAMPLES = {entry.name: entry for entry in documented_ops()}
OPTIONS = Options(allow_custom=True)


def test_the_page_is_not_stale() -> None:
    assert neutral_page() == PAGE.read_text(encoding="utf-8"), "run `make docs`"


@pytest.mark.parametrize("entry", EXAMPLES.values(), ids=EXAMPLES)
def test_an_op_is_declared_as_the_one_of_its_section(entry: DocumentedOp) -> None:
    if entry.op is not None:
        assert re.search(rf"\b3\.{entry.number}\b", inspect.getdoc(entry.op) or "")
    graph = entry.graph()
    verify(graph)
    made = graph.outputs[0].producer
    assert entry.op is None or (made is not None and made.op is entry.op)
    again = parse_graph(print_graph(graph, documented=True))
    assert [v.type for v in again.outputs] == [v.type for v in graph.outputs]
    wanted = entry.results()
    for found, array in zip(run(again, entry.arrays()) if wanted else (), wanted or (), strict=True):
        np.testing.assert_equal(found.tolist(), array.tolist())


FORMS = {name: entry for name, entry in EXAMPLES.items() if entry.document}


@pytest.mark.parametrize("entry", FORMS.values(), ids=FORMS)
def test_the_form_of_the_document_has_the_same_meaning(entry: DocumentedOp) -> None:
    """Also what is printed in it; further results (LayerNorm's statistics) follow ours."""
    graph = entry.graph(documented=True)
    verify(graph)
    again = parse_graph(print_graph(graph, documented=True))
    for found in (graph, again):
        results = run(found, entry.arrays())
        for got, wanted in zip(results, entry.results() or (), strict=entry.name != "LayerNorm"):
            assert got.dtype == wanted.dtype
            np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_each_form_has_an_example() -> None:
    assert {op.documented or op.name for op in document.FORMS} <= {*FORMS, "Conv"}


def sections() -> dict[str, str]:
    """The example of each op in the page."""
    found = re.findall(r"^```text\n(graph (\w+)\(.*?)\n```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    return {name: text for text, name in found}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_of_the_page_evaluates_to_its_values(name: str) -> None:
    text, _, values = sections()[name].partition("\n\n")
    graph = parse_graph(text)
    given = dict(line.removeprefix("%").split(" = ", 1) for line in values.splitlines())
    arrays = [np.asarray(json.loads(given[v.name or ""]), v.dtype.numpy) for v in graph.inputs]
    if EXAMPLES[name].results() is None:
        assert len(given) == len(arrays)
        return
    for output, array in zip(graph.outputs, run(graph, arrays), strict=True):
        wanted = json.loads(given[output.name or ""])
        parts = zip(array, wanted, strict=True) if array.dtype == object else [(array, wanted)]
        for found, one in parts:
            np.testing.assert_allclose(found, np.asarray(one, found.dtype), rtol=1e-4)


def stored(array: Array, as_pairs: bool) -> Array:
    """The array; of complex numbers, in ONNX, pairs of floats."""
    if not as_pairs or array.dtype.kind != "c":
        return array
    return np.stack([array.real, array.imag], -1)


@pytest.mark.parametrize("name", EXAMPLES)
def test_both_runtimes_compute_the_example(name: str) -> None:
    entry = EXAMPLES[name]
    graph, results = entry.graph(), entry.results()
    files: dict[str, Any] = {"tflite": as_tflite(graph, OPTIONS), "onnx": as_onnx(graph, OPTIONS)}
    if results is None or any(node.op.effect is Effect.RANDOM for node in graph.nodes):
        return
    wanted = list(results[0]) if not isinstance(graph.outputs[0].type, TensorType) else results
    for kind, data in files.items():
        given = {f"x{i}": stored(array, kind == "onnx") for i, array in enumerate(entry.arrays())}
        found = [a for _, a in run_tflite(data, given)] if kind == "tflite" else [*run_onnx(data, given).values()]
        for got, expected in zip(found, [stored(array, kind == "onnx") for array in wanted], strict=True):
            assert got.dtype == expected.dtype and got.shape == expected.shape, kind
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5, err_msg=kind)


def test_docstrings_become_markdown() -> None:
    assert markdown("a * b of :mod:`x.y` and `p * q`, [n](m)\n\n    no block") == (
        "a \\* b of `x.y` and `p * q`, \\[n](m)\n\n    no block"
    )
    assert markdown("As::\n\n    a * b\n\nThen.") == "As:\n\n```text\na * b\n```\n\nThen."
