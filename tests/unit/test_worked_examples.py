"""The examples in docs/architecture.md do what they say: each is added to the running package."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"<!-- test: file (.+?) -->\n```\w+\n(.*?)```", TEXT, re.DOTALL))
BUILTIN = """
from onnx import parser
import onnxtfl
from onnxtfl.ir import ops
from onnxtfl.build.rows import row
from onnxtfl.rewriting.registry import all_rules

known = all_rules()
del known.lift_tfl["FLOOR"], known.lower_tfl[ops.Floor]
model = parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Floor (x) }')
try:
    onnxtfl.onnx_to_tflite(model, check=False)
    raise AssertionError("FLOOR has a rule already")
except onnxtfl.UnsupportedError:
    pass
BLOCK
there = onnxtfl.onnx_to_tflite(model, check="require")
assert there.report.ops_after == {"FLOOR": 1}, there.report.ops_after
back = onnxtfl.tflite_to_onnx(there.data, check="require")
assert back.report.ops_after == {"Floor": 1}
print("passed")
"""
PASS = """
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.matching import made_by
from onnxtfl.passes.canonical.canonicalize import CANONICAL
from tests.passes.helpers import op_counts, transformed

TEST
try:
    test_abs_of_negative()
    raise RuntimeError("it is found already")
except AssertionError:
    pass
BLOCK
test_abs_of_negative()
print("passed")
"""
TARGET = """
import shutil, sys, tempfile
from pathlib import Path
from onnx import parser
from onnxtfl.schemas import sections

with tempfile.TemporaryDirectory() as name:
    folder = Path(name) / "schemas"
    shutil.copytree("schemas", folder)
    (folder / "targets" / "npu-demo.toml").write_text('''TABLE''', encoding="utf-8")
    sections.folder = lambda: folder

    import onnxtfl
    from onnxtfl.ir import ops
    from onnxtfl.ir.builder import Builder
    from onnxtfl.ir.graph import Node, Value
    from onnxtfl.option_table import kind_of
    from onnxtfl.rewriting.registry import all_rules, decompose

    def converted(text, target="npu-demo"):
        model = parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> g ' + text)
        return onnxtfl.onnx_to_tflite(model, target=target, check="require").report.ops_after

    def refused(text):
        try:
            return converted(text)
        except onnxtfl.UnsupportedError as error:
            return str(error)

    assert {"tflite", "micro", "npu-demo"} <= set(kind_of("target").words)
    all_rules()
    absolute = "(float[2] x) => (float[2] y) { y = Abs (x) }"
    assert "the demo NPU cannot run this: the demo NPU has no op ABS" in refused(absolute)
RULE
    assert converted(absolute) == {"MAXIMUM": 1, "NEG": 1}
    assert converted(absolute, "tflite") == {"ABS": 1}
    four = "(float[2] a, float[2] b, float[2] c, float[2] d) => (float[8] y) { y = Concat<axis = 0> (a, b, c, d) }"
    assert (converted(four), converted(four, "tflite")) == ({"CONCATENATION": 3}, {"CONCATENATION": 1})
    fused = "(float[2] a, float[2] b) => (float[2] y) { s = Add (a, b) y = OP (s) }"
    assert converted(fused.replace("OP", "Relu")) == {"ADD": 1}
    whole = "(int32[2] a, int32[2] b) => (int32[2] y) { y = Add (a, b) }"
    assert "ADD accepts" in refused(whole) and converted(whole, "tflite") == {"ADD": 1}
    many = "(float[2,3,2,3,2] a, float[2,3,2,3,2] b) => (float[2,3,2,3,2] y) { y = Add (a, b) }"
    assert converted(many)["ADD"] == 1 and converted(many)["RESHAPE"] == 3
print("passed")
"""


def run(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "passed\n", done.stderr[-2000:]


def test_a_builtin() -> None:
    run(BUILTIN.replace("BLOCK", BLOCKS["mappings/math/elementwise.py"]))


def test_a_pass() -> None:
    run(
        PASS.replace("BLOCK", BLOCKS["passes/canonical/canonicalize.py"]).replace(
            "TEST", BLOCKS["tests/passes/test_canonicalize.py"]
        )
    )


def test_a_target() -> None:
    rule = textwrap.indent(BLOCKS["mappings/math/elementwise.py (npu-demo)"], "    ")
    run(TARGET.replace("TABLE", BLOCKS["schemas/targets/npu-demo.toml"]).replace("RULE", rule))
