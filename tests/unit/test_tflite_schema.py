"""The written-out schema against the generated classes of the `tflite` package and of ai-edge-litert."""

from __future__ import annotations

import importlib
from types import ModuleType, SimpleNamespace

import pytest

from onnxtfl.formats.tflite import schema

TABLES = schema.tables()
NEWER_THAN_TFLITE_PACKAGE = {
    *(
        "BlockwiseQuantization",
        "MultiAxisQuantization",
        "StablehloCaseOptions",
        "ExternalBuffer",
        "ExternalBufferGroup",
    ),
    *(
        "FullyConnectedOptions.quant_spec",
        "Tensor.external_buffer",
        "Model.external_buffer_groups",
        "Model.external_buffers",
    ),
}
OF_METADATA = {
    *("AssociatedFileType", "ColorSpaceType", "BoundingBoxType", "CoordinateType", "ScoreTransformationType"),
    *("ContentProperties", "ProcessUnitOptions"),
}
"""Enums and unions of TFLite Metadata, which have no generated code here."""
OF_CONTAINERS = {"AnySectionDataType", "VData"}
"""Those of .litertlm, which test_litertlm.py compares."""
NAMES = [name for name in (*schema.enums(), *schema.unions()) if name not in OF_METADATA | OF_CONTAINERS]
CODES = {
    **{"Bool": "?", "Int8": "b", "Uint8": "B", "Int16": "h", "Uint16": "H", "Int32": "i", "Uint32": "I"},
    **{"Int64": "q", "Uint64": "Q", "Float32": "f", "Float64": "d", "Byte": "B"},
}


class Recorder:
    """Stands for a FlatBuffer builder: keeps what the generated functions call."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[object, ...]]] = []

    def __getattr__(self, name: str):
        return lambda *arguments: self.calls.append((name, arguments))


def camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def add_function(module: ModuleType, table: str, field: str):
    """The generated function that writes `field`; their names differ in case between generators."""
    wanted = f"{table}Add{camel(field)}".lower().replace("_", "")
    return next((f for n, f in vars(module).items() if n.lower().replace("_", "") == wanted), None)


@pytest.fixture(params=["tflite", "ai_edge_litert.schema_py_generated"])
def generated(request: pytest.FixtureRequest) -> ModuleType:
    return importlib.import_module(request.param)


@pytest.mark.parametrize("name", TABLES)
def test_fields_have_the_slots_and_defaults_of_the_generated_code(name: str, generated: ModuleType) -> None:
    may_lack = NEWER_THAN_TFLITE_PACKAGE if generated.__name__ == "tflite" else {"SubGraph.debug_metadata_index"}
    if name in may_lack:
        return
    table = schema.table(name)
    for field in table.fields:
        function = add_function(generated, name, field.name)
        if function is None:
            assert f"{name}.{field.name}" in may_lack or field.name == "debug_metadata_index"
            continue
        recorder = Recorder()
        function(recorder, 0)
        ((method, arguments),) = recorder.calls
        assert arguments[0] == field.slot, field
        if field.kind == "scalar":
            code = CODES[method.removeprefix("Prepend").removesuffix("Slot")]
            assert code == field.code or (field.is_graph and code == "I"), field
            assert arguments[2] == field.default, field
        else:
            assert method == "PrependUOffsetTRelativeSlot", field


def test_no_field_is_missing(generated: ModuleType) -> None:
    for name in TABLES:
        start = getattr(generated, f"{name}Start", None)
        if start is None:
            assert name in NEWER_THAN_TFLITE_PACKAGE
            continue
        recorder = Recorder()
        start(recorder)
        slots = [field.slot for field in schema.table(name).fields]
        ((_, (count,)),) = recorder.calls
        assert count <= max(slots, default=-1) + 1 + (name == "ReduceWindowOptions"), name


@pytest.mark.parametrize("name", NAMES)
def test_enums_have_the_numbers_of_the_generated_code(name: str, generated: ModuleType) -> None:
    members = vars(getattr(generated, name))
    theirs = {n: v for n, v in members.items() if isinstance(v, int) and not n.startswith("_") and n != "NONE"}
    if name in schema.unions():
        ours = {n: i + 1 for i, n in enumerate(schema.unions()[name])}
    else:
        ours = {n: i for i, n in enumerate(schema.enums()[name][1]) if n != "NONE"}
    assert theirs.items() <= ours.items()
    lacking = set(ours) - set(theirs)
    newer = {"INT2", "UINT4", "FLOAT8_E4M3FN", "FLOAT8_E5M2", "STABLEHLO_CASE", *NEWER_THAN_TFLITE_PACKAGE}
    assert lacking <= (newer if generated.__name__ == "tflite" else set())


def test_ops_and_their_options_stand_in_the_schema() -> None:
    assert schema.builtin_code("ADD") == 0
    assert schema.builtin_code("CONV_3D_TRANSPOSE") == 141
    for op in schema.builtin_ops():
        table = schema.options_table(op)
        if table is not None:
            field, number = schema.options_union(table.name)
            assert schema.unions()[schema.table("Operator").by_name[field].target][number - 1] == table.name
    assert SimpleNamespace(**schema.defaults(schema.table("Conv2DOptions"))).padding == "SAME"
