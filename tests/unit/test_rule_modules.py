"""Only the modules with rules for the ops of a model are imported, and none of them is missed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from onnxtfl.ir import ops
from onnxtfl.ir.op import foreign_op
from onnxtfl.rewriting import rule_modules
from onnxtfl.rewriting.registry import all_rules, rules_for

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    rule_modules._table.cache_clear()
    yield
    rule_modules._table.cache_clear()


def test_the_table_is_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "tools" / "rule_modules.py")]
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert (ROOT / "mappings" / "rule_modules.txt").read_text() == made, "run `python tools/docs.py --pages`"


def test_modules_of_an_op() -> None:
    by_op, others = rule_modules._table()
    assert by_op[rule_modules.op_key(ops.Softmax)] == ["nn.softmax"]
    assert by_op[rule_modules.op_key(foreign_op("onnx", "Conv", 11))] == ["nn.convolution"]
    assert by_op[rule_modules.op_key(foreign_op("tfl", "CONV_2D", 1))] == ["nn.convolution"]
    assert by_op[rule_modules.op_key(foreign_op("onnx", "Inverse", 1, "com.microsoft"))] == ["math.matrices"]
    assert not others


def test_a_changed_module_is_imported_for_every_op(monkeypatch: pytest.MonkeyPatch) -> None:
    def edited(path: str) -> bytes | None:
        source = read(path)
        return source + b"# edited" if source and Path(path).name == "softmax.py" else source

    read = rule_modules.read
    monkeypatch.setattr(rule_modules, "read", edited)
    by_op, others = rule_modules._table()
    assert others == ["nn.softmax"]
    assert rule_modules.op_key(ops.Softmax) not in by_op


@pytest.mark.parametrize("missing", [".txt", ".py"])
def test_without_the_table_or_the_sources_all_modules_are_imported(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    read = rule_modules.read
    monkeypatch.setattr(rule_modules, "read", lambda path: None if path.endswith(missing) else read(path))
    assert rule_modules._table() == ({}, [name for name, _ in rule_modules.core_modules()])


def test_line_ends_do_not_count() -> None:
    assert rule_modules.checksum(b"a\r\nb\r\n") == rule_modules.checksum(b"a\nb\n") != rule_modules.checksum(b"a\nc\n")


def test_rules_for_an_op_are_all_rules_for_it() -> None:
    code = (
        "import sys\nfrom onnxtfl.ir import ops\nfrom onnxtfl.rewriting.registry import rules_for\n"
        "found = rules_for(ops.Softmax)\nname = 'onnxtfl.mappings.'\n"
        "tables = (found.lower_tfl, found.lower_onnx, found.decompose)\n"
        "print(*(len(table[ops.Softmax]) for table in tables))\n"
        "print(*(module for module in sys.modules if module.startswith(name) and module.count('.') == 3))"
    )
    counts, modules = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    known = all_rules()
    assert rules_for(ops.Softmax) is known
    tables = (known.lower_tfl, known.lower_onnx, known.decompose)
    assert counts.split() == [str(len(table[ops.Softmax])) for table in tables]
    assert modules == "onnxtfl.mappings.nn.softmax"
