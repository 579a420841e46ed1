"""Reports as an HTML page and as JUnit's XML."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxtfl
from onnxtfl import CheckReport, InputUsed, OutputCheck, UsageError, write_report
from onnxtfl.checking.localize.layers import FirstDifference, LayerError
from onnxtfl.ir.record import OpEntry
from onnxtfl.reporting.changes import changes, in_words
from onnxtfl.reporting.elements import Point, plot
from onnxtfl.runtimes.profiles import ModelSummary, OpTime, Profile
from tests.unit.test_cli import onnxtfl as run

HOSTILE = "</td><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\u202e\x00"


def report(count: int = 5, name: str = "t", status: str = "failed") -> CheckReport:
    """A report with `count` tensors, in which the one in the middle is the first that differs."""
    middle, ok = count // 2, status == "passed"
    layers = tuple(
        LayerError(f"{name}{k}", f"{name}{k}", f"n{k}", "CONV_2D", 0.5 if k >= middle and not ok else 1e-6, 1e-7)
        for k in range(count)
    )
    first = None if ok else FirstDifference(f"{name}{middle}", f"{name}{middle}", f"n{middle}", "CONV_2D", 0.5, 1e-6)
    return CheckReport(
        status,  # type: ignore[arg-type]
        "" if ok else f"output '{name}' differs",
        (InputUsed("x", "float32", (1, 3), "normal"),),
        (
            OutputCheck(name, ok, "float32", (1, 3), 0.5, 0.25, "" if ok else "3 of 3 elements differ"),
            OutputCheck("z", True, "int64", (2,), 0.0, 0.0),
        ),
        runtimes=("onnxruntime 1.0", "litert 2.0"),
        layers=layers,
        first_difference=first,
        seconds=1.5,
        models=(ModelSummary("m.onnx", "onnx", 100, {"Conv": 2}), ModelSummary("m.tflite", "tflite", 90, {"ADD": 3})),
        profiles=(
            Profile("onnxruntime 1.0", (OpTime(name, "Conv", 0.25),), 0.2),
            Profile("litert 2.0", (), 0.3, "no times", "XNNPACK", 1, 3),
        ),
    )


class Elements(HTMLParser):
    """The tags of a page, the text of its cells, and the attributes that could load or run something."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.active: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.active += [name for name, _ in attrs if name in ("src", "href", "srcset", "action") or name[:2] == "on"]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_page_has_what_the_check_found(tmp_path: Path) -> None:
    page = Elements(write_report(report(), tmp_path / "new" / "r.html").read_text())
    for wanted in ("The models differ", "The first op whose result differs", "3 of 3 elements differ", "CONV_2D"):
        assert wanted in page.text
    for wanted in ("XNNPACK takes 1 of the 3 ops", "Times per op: no times", "100 B → 90 B", "2 → 3", "seed 0"):
        assert wanted in page.text
    assert page.tags.count("script") == 1
    assert page.active == []  # nothing is loaded


def test_a_page_of_a_conversion_says_what_it_did(tmp_path: Path) -> None:
    weight = numpy_helper.from_array(np.ones((2, 3, 3, 3), np.float32), "w")
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], "conv"), helper.make_node("Relu", ["c"], ["y"], "relu")]
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, c, s, s])
        for name, c, s in [("x", 3, 8), ("y", 2, 6)]
    )
    graph = helper.make_graph(nodes, "g", [x], [y], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    conversion = onnxtfl.onnx_to_tflite(tmp_path / "m.onnx", tmp_path / "m.tflite", check=False)
    page = Elements(write_report(conversion, tmp_path / "r.html").read_text())
    for wanted in ("m.onnx became m.tflite", "Not checked", "several ops of the source became one", "conv, relu"):
        assert wanted in page.text
    assert "the kernel also computes the activation after it" in page.text


def test_names_cannot_inject_anything(tmp_path: Path) -> None:
    path = write_report(report(name=HOSTILE), tmp_path / "r.html", a=HOSTILE, b=HOSTILE)
    page = Elements(path.read_text())
    assert page.tags.count("script") == 1
    assert "img" not in page.tags
    assert page.active == []
    assert "alert(1)" in page.text  # shown as text
    assert "\u202e" not in page.text


def test_the_page_of_a_large_model_is_small(tmp_path: Path) -> None:
    path = write_report(report(500, "/model/encoder/layer.11/attention/self/query/MatMul_output_"), tmp_path / "r.html")
    assert path.stat().st_size < 3e6


def test_the_plot_bounds_what_cannot_be_drawn() -> None:
    points = [Point(error, None, "p") for error in (0.0, 1e-30, 1e-3, float("inf"), float("nan"))]
    drawn = plot(points, 1e-3, 1)
    assert drawn.count("<circle") == 5
    assert "nan" not in drawn
    assert "inf" not in drawn.replace("inputs", "")
    assert plot([], 1e-3, None).count("<circle") == 0
    assert plot([Point(1e-6, 1e-7, "p")] * 20_000, 1e-3, None).count("<circle") < 4000


def test_changes_are_told_in_words() -> None:
    found = changes(
        [
            OpEntry("c", "CONV_2D", ("conv", "relu"), ("convolution.conv", "layout", "fuse activations")),
            OpEntry("t", "TRANSPOSE", ("conv",), ("layout",)),
            OpEntry("a", "MUL", ("softplus",), ("activations.Softplus", "registry.expand")),
            OpEntry("b", "ADD", ("softplus",), ("activations.Softplus", "registry.expand")),
            OpEntry("q", "CAST", ("cast",), ("casts.cast",)),
            OpEntry("s", "SIN", ("sin",), ("elementwise.Sin",)),
        ]
    )
    assert [change.kind for change in found] == ["fused", "transposed", "decomposed", "decomposed", "cast", "kept"]
    assert found[2].why == "it was written as the formula that defines it"
    assert found[5].why == ""
    assert in_words(("a pass of tomorrow",)) == "a pass of tomorrow"


def test_junit_has_a_case_for_each_output(tmp_path: Path) -> None:
    root = ET.parse(write_report(report(), tmp_path / "r.xml", a="m.onnx", b="m.tflite")).getroot()
    assert (root.tag, root.attrib["tests"], root.attrib["failures"], root.attrib["errors"]) == (
        "testsuites",
        "2",
        "1",
        "0",
    )
    (suite,) = root
    assert suite.attrib["name"] == "m.onnx and m.tflite"
    first, second = suite.findall("testcase")
    assert (first.attrib["name"], first.attrib["classname"]) == ("output t", "m.tflite")
    (failure,) = first
    assert (failure.tag, failure.attrib["message"]) == ("failure", "3 of 3 elements differ")
    assert list(second) == []
    assert float(first.attrib["time"]) == pytest.approx(0.75)


def test_junit_of_several_checks_and_of_one_that_could_not_be_made(tmp_path: Path) -> None:
    broken = CheckReport("not checked", "no runtime \x00 <here>")
    root = ET.parse(write_report([report(status="passed"), broken], tmp_path / "r.xml")).getroot()
    assert (root.attrib["tests"], root.attrib["failures"], root.attrib["errors"]) == ("3", "0", "1")
    error = root.find(".//error")
    assert error is not None
    assert error.attrib["message"] == "no runtime ? <here>"


def test_junit_tells_sizes_that_are_excluded(tmp_path: Path) -> None:
    found = replace(report(0, status="passed"), excluded="at x:[3,1]")
    (suite,) = ET.parse(write_report(found, tmp_path / "r.xml")).getroot()
    assert (suite.attrib["tests"], suite.attrib["failures"], suite.attrib["skipped"]) == ("3", "0", "1")
    (skipped,) = suite.findall("testcase/skipped")
    assert suite.findall("testcase")[-1].attrib["name"] == "at x:[3,1]"
    assert (skipped.attrib["type"], skipped.attrib["message"]) == ("excluded from the verdict", "the models differ")


def test_the_suffix_says_what_is_written(tmp_path: Path) -> None:
    assert json.loads(write_report(report(), tmp_path / "r.json").read_text())["status"] == "failed"
    with pytest.raises(UsageError, match="no report has this suffix"):
        write_report(report(), tmp_path / "r.pdf")
    with pytest.raises(UsageError, match="2 results"):
        write_report([report(), report()], tmp_path / "r.html")


def test_reports_are_written_where_the_check_fails(tmp_path: Path) -> None:
    def scaled(factor: float) -> Path:
        x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xy")
        constant = numpy_helper.from_array(np.array(factor, np.float32), "c")
        graph = helper.make_graph([helper.make_node("Mul", ["x", "c"], ["y"], "scale")], "g", [x], [y], [constant])
        path = tmp_path / f"m{factor}.onnx"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
        return path

    page, xml = tmp_path / "r.html", tmp_path / "r.xml"
    assert run("check", scaled(1.0), scaled(2.0), "--report", page, "--junit", xml) == 3
    assert "The models differ" in page.read_text()
    assert ET.parse(xml).getroot().attrib["failures"] == "1"
    assert run("check", scaled(1.0), scaled(1.0), "--report", tmp_path / "r.pdf") == 2
