"""The example in CONTRIBUTING.md: its rule, added to the mappings, converts a model, and its test passes."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"<!-- test: file (\S+) -->\n```python\n(.*?)```", TEXT, re.DOTALL))
RUN = """
import importlib, sys
rule, test = {rule!r}, {test!r}
from onnxtfl.mappings.nn import activations
exec(compile(rule, "mappings/nn/activations.py", "exec"), vars(activations))
namespace = {{"__name__": "test_activations"}}
exec(compile(test, "test_activations.py", "exec"), namespace)
tests = [function for name, function in namespace.items() if name.startswith("test_")]
for function in tests:
    function()
print(len(tests), "passed")
"""


def test_the_example_converts_and_its_test_passes() -> None:
    rule, test = BLOCKS["mappings/nn/activations.py"], BLOCKS["tests/unit/test_activations.py"]
    command = [sys.executable, "-c", RUN.format(rule=rule, test=test)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "1 passed\n", done.stderr[-2000:]


def test_without_the_rule_the_op_is_unknown() -> None:
    families = tomllib.loads((ROOT / "tests" / "unit" / "families.toml").read_text())
    assert "org.example::Snake" not in families["activations"]["onnx"]


def test_files_that_it_names_exist() -> None:
    names = set(re.findall(r"`((?:converter|mappings|tests|tools|schemas|docs)/[\w/.]+)`", TEXT))
    assert names and not {name for name in names if not (ROOT / name).exists()}
