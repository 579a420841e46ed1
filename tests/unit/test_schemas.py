"""schemas/tflite_ops.toml against the format's own lists: every op, its number, its options table, its versions."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from onnxtfl.schemas import sections
from onnxtfl.schemas.target_tables import target_tables
from tools.probe.tables import rewrite

from onnxtfl.formats.tflite import schema
from onnxtfl.rewriting.readings import Layers, Products, Scales, reading_of
from onnxtfl.targets import table
from onnxtfl.targets.forms import read_form
from onnxtfl.targets.properties import PROPERTIES

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "schemas" / "tflite_ops.toml"


def _options(op: str) -> set[str]:
    options = schema.options_table(op)
    return set(options.by_name) if options else set()


def _numbers(enum: type) -> dict[str, int]:
    return {name: value for name, value in vars(enum).items() if not name.startswith("_")}


def test_every_builtin_of_the_tflite_package_has_an_entry() -> None:
    from tflite.BuiltinOperator import BuiltinOperator

    known = {name: number for number, name in enumerate(table.op_names())}
    assert _numbers(BuiltinOperator).items() <= known.items()


def test_the_rest_comes_from_the_schema_that_litert_ships() -> None:
    litert = pytest.importorskip("ai_edge_litert.schema_py_generated")
    assert {name: number for number, name in enumerate(table.op_names())} == _numbers(litert.BuiltinOperator)


def test_ops_are_those_of_the_format() -> None:
    assert table.op_names() == schema.builtin_ops()


def test_the_file_is_toml_whose_sections_are_ops() -> None:
    whole = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    assert tuple(whole) == table.op_names()
    known = {"signature", "versions", "fuses_as", "matrix_rank", "fixed_results", "kernels"}
    known |= {"symmetric", "interpolated", "drops_axes", "unread_zero", "stored", "empty", "unusual", "reads"}
    known |= {"in_place", "same_memory", "hybrid", "saturated_bits", "scales", "costs", "inexact", "factor_bits"}
    for name, section in whole.items():
        assert section.keys() <= known, name


@pytest.mark.parametrize("name", table.op_names())
def test_what_kernels_read_is_about_operands(name: str) -> None:
    found = table.entry(name)
    match found.reads:
        case Products() as reading:
            places = [reading.x, reading.weights, reading.bias]
        case Layers() as reading:
            places = [*reading.weights, *reading.norms, *(place for bias in reading.biases for place in bias)]
        case Scales(weights=int() as place):
            places = [place]
        case _:
            places = []
    assert set(places) <= set(range(len(found.operands)))


@pytest.mark.parametrize("reads", ["", 'reads = "floats"', "reads = { scales = { sevral = true } }"])
def test_an_op_has_to_state_what_its_kernels_read(reads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = re.sub("^reads = .*$", reads, sections.texts(sections.OPS)["CONV_2D"], flags=re.MULTILINE)
    monkeypatch.setitem(sections.texts(sections.OPS), "CONV_2D", text)
    for read in (reading_of, table.entry):
        read.cache_clear()
        with pytest.raises(ValueError, match="CONV_2D"):
            read("CONV_2D")


def test_a_table_that_is_written_again_is_the_same(tmp_path: Path) -> None:
    """The probe writes the tables that it measures; all else in the file is kept, as `reads` is."""
    file, text = tmp_path / "ops.toml", TABLE.read_text(encoding="utf-8")
    file.write_text(text, encoding="utf-8")
    parts = re.findall(r"^\[(\w+)\.kernels\]\n(.*?\n)\n", text, flags=re.MULTILINE | re.DOTALL)
    assert len(parts) > 100
    rewrite(file, dict.fromkeys(("CONV_2D", "ADD"), 'activations = ""\n'), "kernels")
    assert file.read_text(encoding="utf-8") != text
    assert file.read_text(encoding="utf-8").count("\nreads = ") == len(table.op_names())
    rewrite(file, dict(parts), "kernels")
    assert file.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("name", table.op_names())
def test_versions_rise_and_forms_are_about_what_the_signature_names(name: str) -> None:
    entry = table.entry(name)
    numbers = list(dict.fromkeys(version.number for version in entry.versions))
    assert numbers == sorted(numbers)
    assert len({(v.number, v.since) for v in entry.versions}) == len(entry.versions)
    assert [v.since for v in entry.versions] == sorted(v.since for v in entry.versions)
    variables = {p.variable for p in (*entry.operands, *entry.results)}
    names = {p.name for p in (*entry.operands, *entry.results)}
    fields = _options(name)
    measured = [*entry.kernels.values(), *entry.hybrid.values()]
    measured += [known for target in target_tables() if (known := table.narrowed(target, name).kernels) is not None]
    for form in (read_form(row) for rows in measured for row in rows):
        assert set(form.types) <= variables
        assert set(form.ranks) <= variables | {"T"}
        assert set(form.constant) <= names
        assert set(form.options) <= fields | PROPERTIES.keys()


def test_the_table_of_tflite_micro_has_the_ops_of_its_resolver() -> None:
    conv = table.narrowed("micro", "CONV_2D")
    assert (conv.resolver, conv.is_missing) == ("AddConv2D", False)
    assert table.narrowed("micro", "GELU").is_missing
    assert conv.kernels is not None
    assert {"T": "qint8", "W": "qint8", "B": "qint32", "per_axis": "W B", "rank": "4-4"} in conv.kernels
    assert conv.activations == {"RELU", "RELU6", "RELU_N1_TO_1"}


def test_terms_are_about_what_the_op_has() -> None:
    words = {"broadcast", "rescale", "grouped", "rank", "not"}
    for name in table.op_names():
        entry = table.entry(name)
        known = {p.name for p in (*entry.operands, *entry.results)} | words
        known |= _options(name)
        for version in entry.versions:
            for condition in version.conditions:
                for term in condition:
                    assert term.split()[0] in known, (name, term)
                    assert not term.startswith("not ") or term.split()[1] in known, (name, term)


def test_signatures_read() -> None:
    operands, results = table.parse_signature("input:T bias?:B values*:T -> output:U")
    assert [(p.name, p.variable, p.optional, p.variadic) for p in operands] == [
        ("input", "T", False, False),
        ("bias", "B", True, False),
        ("values", "T", False, True),
    ]
    assert results[0].variable == "U"
