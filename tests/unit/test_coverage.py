"""The coverage table in the docs is what the rules say."""

import json
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


def test_the_tables_as_json() -> None:
    """They say what the tables say."""
    found = json.loads(coverage(as_json=True))
    text = rows(coverage().partition("## TFLite")[0])
    for name, ways in found["onnx"].items():
        listed = (f"{version} {'**no**' if way == 'no' else way}" for version, way in ways.items())
        assert text[name] == f"| {name} | {', '.join(listed)} |"
    assert set(found["tflite"]) == set(op_names())
    assert found["tflite"]["ADD"] == {"to_onnx": "rule", "kernels": ["2.14", "litert"]}
    assert found["neutral"] == json.loads(coverage(neutral=True, as_json=True))


def test_every_neutral_op_of_the_document_is_written_in_both_formats() -> None:
    found = json.loads(coverage(neutral=True, as_json=True))
    assert [row["number"] for row in found] == [*range(1, 142)]
    assert [row["name"] for row in found if not row["is_complete"]] == []
    assert {row["name"] for row in found if row["evaluated"] != "yes"} == {"CustomCall"}
    by_name = {row["name"]: row for row in found}
    assert by_name["Exp"]["to_tflite"] == {"how": "directly", "ops": ["EXP"], "why": ""}
    assert by_name["Exp"]["from_onnx"] == ["Exp"] and by_name["Exp"]["from_tflite"] == ["EXP", "STABLEHLO_EXPONENTIAL"]
    assert by_name["Expm1"]["to_onnx"]["how"] == "by decomposition"
    assert "| 49 | Exp | Exp | yes | EXP | Exp | EXP, STABLEHLO_EXPONENTIAL | Exp |" in coverage(neutral=True)
