"""The tables of reports: printed, in notebooks, and within 80 columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxtfl
from onnxtfl import tables
from onnxtfl.tables import Row


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """x * W + b with W in a file of its own."""
    path = tmp_path_factory.mktemp("model") / "m.onnx"
    weight = np.arange(64 * 64, dtype=np.float32).reshape(64, 64) / 4096
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Relu", ["y"], ["z"])]
    x, z = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 64]) for name in "xz")
    graph = helper.make_graph(nodes, "g", [x], [z], [numpy_helper.from_array(weight, "w")])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, path, save_as_external_data=True, location="m.data", size_threshold=0)
    return path


@pytest.fixture(scope="module")
def conversion(model: Path) -> onnxtfl.Conversion:
    return onnxtfl.onnx_to_tflite(model)


def test_repr_of_a_conversion_is_one_line(conversion: onnxtfl.Conversion) -> None:
    assert repr(conversion).startswith("<Conversion ")
    assert "in memory, 2 ops became 1, check: passed>" in repr(conversion)
    assert len(repr(conversion)) < 200
    assert "\n" not in repr(conversion)


def test_a_report_prints_the_table_of_the_command_line(conversion: onnxtfl.Conversion) -> None:
    printed = str(conversion.report).splitlines()
    assert printed[0] == "inputs      x  float32 [1,64]"
    assert "ops before  2: 1 MatMul, 1 Relu" in printed
    assert "check       passed" in conversion.table()


def test_the_ratio_of_sizes_counts_external_data(conversion: onnxtfl.Conversion, model: Path) -> None:
    both = model.stat().st_size + (model.parent / "m.data").stat().st_size
    assert conversion.report.source_size == both
    assert conversion.report.size / both < 1.5


def test_notebooks_show_tables(conversion: onnxtfl.Conversion) -> None:
    assert conversion.check is not None
    for shown in (conversion, conversion.report, conversion.check):
        assert shown._repr_html_().startswith("<table>")


def test_names_cannot_inject_html() -> None:
    assert "<script>" not in tables.as_html([Row("<script>", "<script>alert(1)</script>")])


def test_lines_are_wrapped_at_spaces() -> None:
    text = tables.as_text([Row("title", "word " * 40), Row("", "x" * 100), Row("end", "a\x1bb")])
    lines = text.splitlines()
    assert max(len(line) for line in lines if "xx" not in line) <= 80
    assert any(line.endswith("x" * 100) for line in lines)  # paths are not broken
    assert lines[-1] == "end    a?b"


@pytest.mark.parametrize(("count", "end"), [(8, "n7"), (9, "n8"), (10, "n7, and 2 more"), (30, "n7, and 22 more")])
def test_lists_end_with_a_count_of_two_or_more(count: int, end: str) -> None:
    assert tables.some([f"n{k}" for k in range(count)]).endswith(end)
    assert tables.some([f"n{k}" for k in range(count)], verbose=True).endswith(f"n{count - 1}")
    counts = tables.ranked({f"n{k}": 1 for k in range(count)})
    assert "1 more" not in counts
    assert counts.endswith(f"and {count - 8} more ({count - 8} kinds)") == (count > 12)
