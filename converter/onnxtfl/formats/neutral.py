"""Files with a neutral graph as text (.ir): see :mod:`onnxtfl.ir.text`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from onnxtfl.errors import InvalidModelError, OnnxtflError, one_line
from onnxtfl.formats.source import Content, named, open_source
from onnxtfl.ir.data import PathLike
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.model import Model
from onnxtfl.ir.origin import Origin
from onnxtfl.ir.text import graph_lines, parse_graph
from onnxtfl.ir.verify import verify

MOST_BYTES = 1 << 30
"""The largest file that is read: its text is read into memory."""
_HINT = "correct the text (docs/neutral-graphs.md)"
SHORT = 64
"""Constants with more elements are written in base64."""


def read(source: PathLike | Content) -> Model:
    """The model in a text file. Raises InvalidModelError for invalid text, unknown ops and types that do not fit."""
    with named(source):
        opened = open_source(source)
        if opened.size > MOST_BYTES:
            raise InvalidModelError(f"the text has {opened.size} bytes, more than {MOST_BYTES}", code="E-RUN-005")
        text = opened.read(0, opened.size).decode("utf-8")
        try:
            graph = parse_graph(text)
            verify(graph, "as read")
        except OnnxtflError as error:
            raise InvalidModelError(one_line(error.message, 400), hint=_HINT, code="E-FILE-005") from error
        except (ValueError, TypeError, KeyError, IndexError, ArithmeticError, SyntaxError) as error:
            raise InvalidModelError(one_line(str(error), 400), hint=_HINT, code="E-FILE-005") from error
    _name_tensors(graph)
    return Model(graph, format="ir")


def _name_tensors(graph: Graph) -> None:
    """Make the named values of the text the tensors of the source."""
    for value in (v for node in graph.nodes for v in node.results):
        if value.name is not None and not value.origins:
            value.origin = Origin(value.name)
    graph.output_names = graph.output_names or [v.name or f"output_{i}" for i, v in enumerate(graph.outputs)]


def lines(graph: Graph) -> Iterator[str]:
    """The lines of the text of `graph`, with the elements of all constants."""
    return graph_lines(graph, SHORT, whole=True)


def write(model: Model, out: BinaryIO) -> None:
    """Write the main graph of `model` as text, UTF-8."""
    out.writelines(f"{line}\n".encode() for line in lines(model.main))
