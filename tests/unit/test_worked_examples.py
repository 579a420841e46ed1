"""The examples in docs/architecture.md do what they say: each is added to the running package."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"<!-- test: file (\S+) -->\n```python\n(.*?)```", TEXT, re.DOTALL))
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
