"""Ops that only a user knows: kept as custom ops, or converted by rules of a plugin."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from flatbuffers import flexbuffers
from onnx import ModelProto, load_model_from_string, numpy_helper, parser

import onnxtfl
from onnxtfl.cli.commands import onnx2tfl
from onnxtfl.errors import UnsupportedError, UsageError
from onnxtfl.ir.custom_attributes import from_options, to_options
from onnxtfl.ir.flexbuffer import FlexBufferError, decode, encode
from tests.harness.litert import run_tflite

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin" / "my_ops.py"
TEXT = """<ir_version: 8, opset_import: ["" : 17, "my.domain" : 3]>
g (float[2, 3] x, int64[2] n) => (float[4] y) <float[2, 3] a, float[4] b> {
  a = Relu (x)
  b = my.domain.Decode <size = 4, rate = 0.1, mode = "fast", steps = [1, 2], table = float[2] {1.0, 2.5}> (a, , n)
  y = Neg (b)
}"""


def model(text: str = TEXT) -> bytes:
    return bytes(parser.parse_model(text).SerializeToString())


def node_of(data: bytes, op: str) -> tuple[object, dict[str, object]]:
    loaded: ModelProto = load_model_from_string(data)
    node = next(n for n in loaded.graph.node if n.op_type == op)
    attributes = {a.name: [a.i, round(a.f, 7), a.s, list(a.ints)] for a in node.attribute}
    tables = {a.name: numpy_helper.to_array(a.t).tolist() for a in node.attribute if a.HasField("t")}
    imports = {i.domain: i.version for i in loaded.opset_import}
    return (node.domain, imports[node.domain], len(node.input), [bool(n) for n in node.input]), attributes | tables


def test_an_unknown_op_is_an_error_that_names_the_option() -> None:
    with pytest.raises(UnsupportedError, match=r"my.domain::Decode-3.*allow_custom") as error:
        onnxtfl.onnx_to_tflite(model(), check=False)
    assert "--allow-custom" in error.value.text("cli")


def test_a_round_trip_is_exact() -> None:
    there = onnxtfl.onnx_to_tflite(model(), allow_custom=True)
    assert there.report.ops_after["custom:my.domain::Decode"] == 1
    assert there.check is not None
    assert there.check.status == "not checked"
    back = onnxtfl.tflite_to_onnx(there.data or b"", allow_custom=True)
    assert node_of(back.data or b"", "Decode") == node_of(model(), "Decode")
    again = onnxtfl.onnx_to_tflite(back.data or b"", allow_custom=True, check=False)
    third = onnxtfl.tflite_to_onnx(again.data or b"", allow_custom=True, check=False)
    assert node_of(third.data or b"", "Decode") == node_of(model(), "Decode")


def test_a_type_that_the_model_does_not_say_is_an_error() -> None:
    with pytest.raises(UnsupportedError, match=r"the type of result 0 .*value_info"):
        onnxtfl.onnx_to_tflite(model(TEXT.replace(", float[4] b", "")), allow_custom=True, check=False)


OPTIONS = [
    b"",
    encode({"size": 4, "names": ["a", "b"]}),
    bytes(flexbuffers.Dumps({"size": 4, "scale": 0.5})),  # other bytes than ours
    bytes(flexbuffers.Dumps({"nested": {"a": [1, "x"]}, "size": 4})),  # no ONNX attribute can hold it
    b"\x01\x02\x03\x04 a C struct",
]


@pytest.mark.parametrize("options", OPTIONS, ids=["none", "ours", "others", "nested", "bytes"])
def test_options_are_the_same_bytes_again(options: bytes) -> None:
    assert to_options(from_options(options)) == options


def test_options_can_be_read_as_attributes() -> None:
    assert from_options(OPTIONS[1]) == {"size": 4, "names": ("a", "b")}
    assert from_options(OPTIONS[2])["scale"] == 0.5
    assert list(from_options(OPTIONS[4])) == ["custom_options"]


def test_flexbuffers_are_those_of_the_format() -> None:
    values = {"i": -5, "big": 1 << 40, "f": 0.5, "s": "hé", "b": b"\0\1", "l": [1, 2], "t": ["x"], "m": {"e": []}}
    assert flexbuffers.Loads(encode(values)) == values
    assert decode(encode(values)) == decode(bytes(flexbuffers.Dumps(values))) == values


@pytest.mark.parametrize("value", [{}, {"z": 1, "a": 2.0, "é": [0.5, 1e300], "n": [[], [-1, 1 << 62], ["a", 1]]}])
def test_flexbuffers_of_equal_maps_are_equal(value: dict[str, object]) -> None:
    assert encode(value) == encode(dict(reversed(value.items())))
    assert decode(encode(value)) == value


@pytest.mark.parametrize("value", [1 << 63, None, "\ud800", {"\0": 1}, {1, 2}])
def test_values_that_no_flexbuffer_holds(value: object) -> None:
    with pytest.raises(FlexBufferError):
        encode({"a": value})


def test_damaged_flexbuffers_are_no_traceback() -> None:
    whole, rng = encode({"a": [1, 2], "m": {"s": "text", "f": 1.5}}), np.random.default_rng(0)
    for _ in range(500):
        damaged = bytearray(whole)
        damaged[rng.integers(len(whole))] = rng.integers(256)
        from_options(bytes(damaged))


# --- plugins ---------------------------------------------------------------------------------------------------------

CLIPPED = """<ir_version: 8, opset_import: ["" : 17, "my.domain" : 1]>
g (float[3] x) => (float[3] y) { y = my.domain.SoftClip <limit = 2.0> (x) }"""


def test_the_example_converts_an_op_of_ones_own() -> None:
    found = onnxtfl.onnx_to_tflite(model(CLIPPED), plugins=[str(EXAMPLE)])
    assert found.check is not None
    assert found.check.status == "not checked"  # ONNX Runtime has no kernel for it
    x = np.asarray([-9, 0.5, 3], np.float32)
    np.testing.assert_allclose(run_tflite(found.data or b"", [x])[0][1], 2 * np.tanh(x / 2), atol=1e-6)


def test_the_command_loads_a_plugin(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(model(CLIPPED))
    arguments = [str(tmp_path / "m.onnx"), "--plugin", str(EXAMPLE), "-q"]
    assert CliRunner().invoke(onnx2tfl, arguments, standalone_mode=False).return_value == 0
    assert (tmp_path / "m.tflite").exists()


@pytest.mark.parametrize("plugin", ["no_such_module_here", "nowhere.py"])
def test_a_plugin_that_cannot_be_imported_is_one_line(plugin: str) -> None:
    with pytest.raises(UsageError, match="cannot be imported"):
        onnxtfl.onnx_to_tflite(model(CLIPPED), plugins=[plugin], check=False)


def installed(folder: Path, module: str) -> dict[str, str]:
    """The environment in which the distribution `made-ops` is found, whose entry point is `made_ops`."""
    facts = folder / "made_ops-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: made-ops\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[onnxtfl.mappings]\nclip = made_ops\n")
    (folder / "made_ops.py").write_text(module)
    (folder / "m.onnx").write_bytes(model(CLIPPED))
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}


def converted(folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    code = "from onnxtfl.cli import onnx2tfl; onnx2tfl()"
    arguments = [sys.executable, "-c", code, str(folder / "m.onnx"), "--no-check"]
    return subprocess.run(arguments, capture_output=True, text=True, env=environment, check=False, timeout=60)


def test_a_package_registers_its_rules_by_an_entry_point(tmp_path: Path) -> None:
    """No option is needed: the op that is unknown without the package converts."""
    environment = installed(tmp_path, EXAMPLE.read_text(encoding="utf-8"))
    found = converted(tmp_path, environment)
    assert found.returncode == 0, found.stderr
    x = np.asarray([-9, 0.5, 3], np.float32)
    np.testing.assert_allclose(
        run_tflite((tmp_path / "m.tflite").read_bytes(), [x])[0][1], 2 * np.tanh(x / 2), atol=1e-6
    )
    without = converted(tmp_path, dict(os.environ))
    assert without.returncode != 0
    assert "SoftClip" in without.stderr


def test_a_package_whose_rules_cannot_be_imported_is_one_line(tmp_path: Path) -> None:
    found = converted(tmp_path, installed(tmp_path, "import no_such_module_here"))
    assert found.returncode != 0
    assert "the rules made_ops of the installed package made-ops cannot be imported" in found.stderr
    assert "Traceback" not in found.stderr
