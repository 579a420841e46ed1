"""What LiteRT would compute in place although it is read later is copied first, and nothing else is."""

from __future__ import annotations

import numpy as np
import pytest

from onnxtfl.ir.graph import Graph
from onnxtfl.ir.text import parse_graph
from onnxtfl.ir.verify import verify
from onnxtfl.passes.tfl.shared_memory import copy_overwritten
from onnxtfl.targets.tflite import TfliteTarget
from tests.fuzz.both_ways import assert_converts_both_ways
from tests.passes.helpers import only_node, op_counts

T = "tensor<2x3x6xfloat32>"
HEAD = f"""graph main(%x: {T}, %n: tensor<[n]x3x6xfloat32>) -> (%y, %z) {{
  %k = constant tensor<float32> [1.5]
  %s = constant tensor<2xint32> [6, 6]
  %a = tfl.SIN@1(%x) : {T}
"""


def apart(body: str) -> Graph:
    graph = parse_graph(f"{HEAD}{body}\n}}")
    copy_overwritten(graph, TfliteTarget())
    verify(graph, "after")
    return graph


OVERWRITTEN = f"""
  %t = tfl.ADD@1(%a, %k) : {T}
  %r = tfl.RESHAPE@1(%t, %s) : tensor<6x6xfloat32>
  %d = tfl.DIV@1(%k, %r) : tensor<6x6xfloat32>
  %y = tfl.SIN@1(%d) : tensor<6x6xfloat32>
  %z = tfl.SIN@1(%t) : {T}"""


def test_what_is_read_later_is_copied() -> None:
    graph = apart(OVERWRITTEN)
    assert op_counts(graph)["tfl.SLICE"] == 1
    copy = only_node(graph, "tfl.SLICE")
    assert [user.op.name for user in copy.result.users()] == ["tfl.DIV"]
    copy_overwritten(graph, TfliteTarget())
    assert op_counts(graph)["tfl.SLICE"] == 1


def test_seven_axes_are_copied_as_one() -> None:
    body = OVERWRITTEN.replace("6x6xfloat32", "1x1x1x1x1x6x6xfloat32")
    counts = op_counts(apart(body))
    assert (counts["tfl.SLICE"], counts["tfl.RESHAPE"]) == (1, 3)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tfl.ADD@1(%a, %k)", "tfl.SIN@1(%a)"),  # %t has memory of its own
        ("tfl.DIV@1(%k, %r)", "tfl.SIN@1(%r)"),  # never in place
        ("%y = tfl.SIN@1(%d)", "%y = tfl.ADD@1(%d, %r)"),  # %r is read twice
        ("%z = tfl.SIN@1(%t)", "%z = tfl.SIN@1(%x)"),  # nobody reads %t
        ("-> (%y, %z)", "-> (%y, %z, %t)"),  # outputs have memory of their own
        ("-> (%y, %z)", "-> (%y, %z, %a)"),  # %a is read outside
    ],
)
def test_the_rest_stays(old: str, new: str) -> None:
    text = f"{HEAD}{OVERWRITTEN}\n}}"
    assert old in text
    graph = parse_graph(text.replace(old, new))
    copy_overwritten(graph, TfliteTarget())
    assert "tfl.SLICE" not in op_counts(graph)


def test_litert_would_reuse_memory_that_is_read_later() -> None:
    assert_converts_both_ways(
        """g (float[2, 3, 6] x) => (float y, float z) {
            a = Sin (x)
            t = Add (a, k)
            r = Reshape (t, s)
            d = Reciprocal (r)
            y = Sin (d)
            z = Sin (t)
        }""",
        {"k": np.float32(1.5), "s": np.array([6, 6])},
    )
