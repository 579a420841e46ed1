"""The coverage table in the docs is what the rules say."""

from pathlib import Path

import onnx

from onnxtfl import coverage
from onnxtfl.rewriting.registry import all_rules
from onnxtfl.targets.table import entry, op_names

DOCS = Path(__file__).resolve().parents[2] / "docs" / "ops.md"


def rows(text: str) -> dict[str, str]:
    return {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("| ")}


def test_the_table_in_the_docs_is_not_stale() -> None:
    """Rows of ops that the installed onnx does not know (another release's) are left out of the comparison."""
    made, written = rows(coverage()), rows(DOCS.read_text(encoding="utf-8"))
    if onnx.__version__.rpartition(".")[0] == "1.23":
        assert made == written, "run `make docs`"
    else:
        shared = {name for name in made.keys() & written.keys() if made[name] == written[name]}
        assert len(shared) > 0.8 * len(written)


def test_every_common_op_version_converts() -> None:
    made = rows(coverage())
    for name in ("Add", "Conv", "Gemm", "MatMul", "Relu", "Reshape", "Resize", "Softmax", "Slice"):
        assert "**no**" not in made[name], name


def test_ops_of_tflite_convert_if_a_runtime_has_a_kernel() -> None:
    """Those that are read have a rule, a definition or a state; the other ones are refused with a reason."""
    known = all_rules()
    assert not [name for name, line in rows(coverage()).items() if name in op_names() and "**no**" in line]
    assert not [name for name in known.refused_tfl if entry(name).versions]
