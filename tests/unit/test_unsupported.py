"""Ops without a conversion: all of them are named, and a model can be cut below them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, parser

import onnxtfl
from onnxtfl.cli.commands import onnx2tfl, tfl2onnx
from onnxtfl.errors import UnsupportedError, UsageError
from tests.harness.litert import run_tflite

TEXT = """<ir_version: 8, opset_import: ["" : 17, "my.domain" : 1]>
g (float[2, 3] x) => (float[2, 3] y) <%s> {
  a = my.domain.Decode (x)
  b = my.domain.Decode (a)
  c = my.domain.Smooth (b)
  d = Relu (c)
  y = Neg (d)
}"""


def model(value_info: str = "") -> bytes:
    parsed = parser.parse_model(TEXT.replace("<%s> ", f"<{value_info}> " if value_info else ""))
    for node in parsed.graph.node:
        node.name = f"n_{node.output[0]}"
    return bytes(parsed.SerializeToString())


def test_the_error_names_all_ops() -> None:
    with pytest.raises(UnsupportedError) as error:
        onnxtfl.onnx_to_tflite(model(), check=False)
    text = str(error.value)
    assert "my.domain::Decode-1 (2 nodes: 'n_a', 'n_b'); my.domain::Smooth-1 ('n_c')" in text
    assert "E-OP-002" in text


def test_ops_are_listed() -> None:
    found = onnxtfl.unsupported(model())
    assert [(row.op, row.version, row.nodes, row.code) for row in found] == [
        ("my.domain::Decode", 1, ("n_a", "n_b"), "E-OP-002"),
        ("my.domain::Smooth", 1, ("n_c",), "E-OP-002"),
    ]
    assert isinstance(found[0], onnxtfl.UnsupportedOp)


def test_ops_of_a_part_are_listed() -> None:
    assert onnxtfl.unsupported(model(), inputs=["c"], input_shapes={"c": (2, 3)}) == []


def test_a_refused_form_is_listed() -> None:
    head = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'
    text = f"{head} g (float[3, 4] x) => (float y) {{ y = com.microsoft.Inverse (x) }}"
    (found,) = onnxtfl.unsupported(parser.parse_model(text).SerializeToString())
    assert found.op == "com.microsoft::Inverse"
    assert "inverses" in found.reason


def test_the_command_lists_them() -> None:
    run = CliRunner()
    result = run.invoke(onnx2tfl, ["-", "--list-unsupported"], input=model(), standalone_mode=False)
    assert result.return_value == 1
    assert result.output.splitlines()[0].startswith("my.domain::Decode-1 (2 nodes: 'n_a', 'n_b'): there is no")
    result = run.invoke(onnx2tfl, ["-", "--list-unsupported", "--json"], input=model(), standalone_mode=False)
    assert [row["op"] for row in json.loads(result.output)] == ["my.domain::Decode", "my.domain::Smooth"]


def test_the_command_says_that_all_convert() -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Relu (x) }'
    data = onnxtfl.onnx_to_tflite(parser.parse_model(text).SerializeToString(), check=False).data or b""
    result = CliRunner().invoke(tfl2onnx, ["-", "--list-unsupported"], input=data, standalone_mode=False)
    assert (result.return_value, result.output) == (0, "all ops have a conversion\n")


@pytest.mark.parametrize("declared", [True, False])
def test_a_model_is_cut_below_an_op_without_conversion(declared: bool) -> None:
    """The type of the tensor is that of the file, else its sizes are given."""
    data = model("float[2, 3] c") if declared else model()
    shapes = {} if declared else {"c": (2, 3)}
    found = onnxtfl.onnx_to_tflite(data, inputs=["c"], input_shapes=shapes)
    x = np.asarray([[1, -2, 3], [-4, 5, -6]], np.float32)
    np.testing.assert_array_equal(run_tflite(found.data or b"", [x])[0][1], -np.maximum(x, 0))
    assert found.check is not None
    assert found.check.status == "passed", str(found.check)
    assert bool(found.report.assumptions) is not declared


def test_a_cut_at_an_unknown_type_or_name_is_an_error() -> None:
    with pytest.raises(UsageError, match="the type of the tensor 'c' is unknown"):
        onnxtfl.onnx_to_tflite(model(), inputs=["c"], check=False)
    with pytest.raises(UsageError, match="did you mean 'n_cc'"):
        node = helper.make_node("Relu", ["x"], ["n_cc"])
        info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("x", "n_cc")]
        renamed = helper.make_model(helper.make_graph([node], "g", info[:1], info[1:]))
        onnxtfl.onnx_to_tflite(renamed, inputs=["n_c"], check=False)
