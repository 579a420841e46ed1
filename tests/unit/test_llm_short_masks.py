"""Decoders whose causal mask has no columns for filled caches, as ONNX Runtime's generator writes those in float16."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxtfl.checking.settings import Settings
from onnxtfl.errors import UnsupportedError
from onnxtfl.llm.generation import check_generation
from onnxtfl.runtimes import Workers
from tests.unit.decoder_forms import TinyDecoder, converted, saved

LOW = -60000.0


def model(later: float = LOW, *, half: bool = True) -> onnx.ModelProto:
    """The mask is the sum of one [1, 1, 1, P + N] from `attention_mask` and a triangle [N, N].

    `later`: what the last token of the triangle has for the one before it.
    """
    made = TinyDecoder(half=half, masked=LOW).model()
    graph = made.graph
    for node in graph.node:
        node.output[:] = ["old_mask" if name == "mask" else name for name in node.output]
    real = TensorProto.FLOAT16 if half else TensorProto.FLOAT
    dtype = np.float16 if half else np.float32
    constants = {"zero": np.int64(0), "one": np.int64(1), "axis": np.array([1]), "axes": np.array([1, 2])}
    constants |= {"visible": dtype(0), "hidden": dtype(LOW), "unit": dtype(1), "odd": dtype(later)}
    graph.initializer.extend(numpy_helper.from_array(np.asarray(v), f"m_{n}") for n, v in constants.items())
    steps = [
        ("Shape", ["input_ids"], "shape", {}),
        ("Gather", ["m_shape", "m_one"], "count", {}),
        ("Range", ["m_zero", "m_count", "m_one"], "columns", {}),
        ("Unsqueeze", ["m_columns", "m_axis"], "rows", {}),
        ("LessOrEqual", ["m_columns", "m_rows"], "seen", {}),
        ("Where", ["m_seen", "m_visible", "m_odd"], "triangle", {}),
        ("Cast", ["attention_mask"], "valid", {"to": real}),
        ("Sub", ["m_unit", "m_valid"], "invalid", {}),
        ("Mul", ["m_invalid", "m_hidden"], "low", {}),
        ("Unsqueeze", ["m_low", "m_axes"], "wide", {}),
    ]
    nodes = [
        helper.make_node(op, [n if n.startswith("m_") or "_" in n else f"m_{n}" for n in names], [f"m_{out}"], **how)
        for op, names, out, how in steps
    ]
    triangle = "m_triangle"
    if later != LOW:
        nodes.append(helper.make_node("CumSum", [triangle, "m_one"], ["m_uneven"]))
        triangle = "m_uneven"
    nodes.append(helper.make_node("Add", ["m_wide", triangle], ["mask"]))
    rest = list(graph.node)
    del graph.node[:]
    graph.node.extend([*nodes, *rest])
    return made


@pytest.mark.parametrize("half", [True, False])
def test_several_tokens_after_others(half: bool, tmp_path: Path) -> None:
    """The source runs several tokens with empty caches, then one by one; the result in pieces of any size."""
    source = saved(model(half=half), tmp_path)
    result = converted(source, (4, 16), 64)
    with Workers() as workers:
        report = check_generation(source, result, Settings(kernels=("default",)), workers)
    assert report.ok and all("the same 32 tokens" in out.note for out in report.outputs), report.table(True)


def test_other_masks_of_new_tokens_only(tmp_path: Path) -> None:
    source = saved(model(-1.0, half=False), tmp_path)
    converted(source, (), 64)
    with pytest.raises(UnsupportedError, match=r"4 new tokens after others.*prefill"):
        converted(source, (4,), 64)
