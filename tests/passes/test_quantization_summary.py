"""What the report of a conversion says about quantization: a neutral graph in, the summary of the converted one out."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from onnxtfl.ir.summary import QuantizationSummary
from onnxtfl.ir.text import parse_graph
from onnxtfl.options import Options
from onnxtfl.passes.quantize import summary
from onnxtfl.pipeline import passes_for
from onnxtfl.rewriting.pass_manager import PassManager
from onnxtfl.targets import Target
from onnxtfl.targets.onnx import OnnxTarget
from onnxtfl.targets.tflite import TfliteTarget

Q = "quant<int8 0.5:0>"
FINE = "quant<int8 0.25:1>"
WEIGHTS = """%w = constant tensor<2x3xfloat32, quant<int8 axis=0 0.5:0 0.125:0>> [1, 2, 3, 4, 5, 6]
      %wf = Convert(%w) {dtype = !float32} : tensor<2x3xfloat32>"""
MATMUL = """lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1], lhs_batching_dimensions = [],
        rhs_batching_dimensions = []"""


def report(body: str, target: Target | None = None, shape: str = "4x3") -> QuantizationSummary:
    """The summary of a graph with the int8 input %x, dequantized as %xf, after conversion to `target` (TFLite)."""
    text = f"""graph main(%x: tensor<{shape}xfloat32, {Q}>) -> (%y) {{
      %xf = Convert(%x) {{dtype = !float32}} : tensor<{shape}xfloat32>
      {body}
    }}"""
    target = target or TfliteTarget()
    graph, passes = parse_graph(text), passes_for(target, Options())
    start = 1 + [step.name for step in passes].index("remove dead")
    PassManager(passes[start:], given=frozenset({"neutral"})).run(graph)
    found = summary(graph, {v: v.name or "" for node in graph.nodes for v in node.results}, target)
    assert found is not None
    return found


def quantized(value: str, shape: str = "4x3", how: str = FINE) -> str:
    return f"%y = Convert({value}) {{dtype = !float32}} : tensor<{shape}xfloat32, {how}>"


def test_ops_on_integers() -> None:
    found = report(f"%a = Add(%xf, %xf)\n{quantized('%a')}")
    assert (found.integer_ops, found.float_ops) == ({"ADD": 1}, ())
    assert (found.requantized, found.rescaled_biases) == ((), ())


def test_an_op_without_quantized_kernel_is_an_island_with_its_reason() -> None:
    first = f"%a = Add(%xf, %xf)\n{quantized('%a').replace('%y', '%q')}"
    second = f"%f = Convert(%q) {{dtype = !float32}} : tensor<4x3xfloat32>\n%b = Sin(%f)\n{quantized('%b')}"
    found = report(f"{first}\n{second}")
    (island,) = found.islands
    assert (island.op, island.source_op, island.reason) == ("SIN", "Sin", "SIN has no quantized kernel")
    assert (found.integer_ops, found.float_ops) == ({"ADD": 1}, (island,))


def test_a_formula_is_one_island_of_several_ops() -> None:
    found = report(f"%a = Erf(%xf)\n{quantized('%a')}")
    assert len(found.islands) > 1 and {op.source_op for op in found.islands} == {"Erf"}
    assert {op.reason for op in found.islands} == {"TFLite has no op like it"}


def test_float_ops_of_the_source_are_no_islands() -> None:
    found = report(f"%a = Add(%xf, %xf)\n%b = Cos(%a)\n{quantized('%b')}")
    assert [(op.op, op.reason) for op in found.float_ops] == [
        ("ADD", "its result is read in float"),
        ("COS", "it is float in the source"),
    ]
    assert not found.islands


def test_a_rescaled_bias() -> None:
    bias = "%b = constant tensor<2xfloat32, quant<int32 0.1:0>> [10, 20]\n%bf = Convert(%b) {dtype = !float32}"
    dot = f"%a = DotGeneralBias(%xf, %wf, %bf) {{{MATMUL}}}"
    found = report(f"{WEIGHTS}\n{bias} : tensor<2xfloat32>\n{dot}\n{quantized('%a', '4x2')}")
    assert found.integer_ops == {"FULLY_CONNECTED": 1}
    ((_, change),) = found.rescaled_biases
    assert change == "quant<int32 0.1:0> became quant<int32 axis=0 0.25:0 0.0625:0>"


def test_a_fixed_scale_is_a_requantized_tensor() -> None:
    found = report(f"%a = Sigmoid(%xf)\n{quantized('%a')}")
    assert found.integer_ops == {"LOGISTIC": 1}
    ((_, change),) = found.requantized
    assert change == "quant<int8 0.00390625:-128> became quant<int8 0.25:1>"


@pytest.mark.parametrize("last", ["%a", "%b"])
def test_in_onnx_ops_between_q_and_dq_compute_on_integers(last: str) -> None:
    found = report(f"%a = Add(%xf, %xf)\n%b = Relu6(%a)\n{quantized(last)}", OnnxTarget(21))
    assert (found.integer_ops, found.float_ops) == ({"Add": 1}, ())


def test_in_onnx_a_formula_is_an_island() -> None:
    found = report(f"%a = Rsqrt(%xf)\n{quantized('%a')}", OnnxTarget(21))
    assert {(op.source_op, op.reason) for op in found.islands} == {("Rsqrt", "ONNX opset 21 has no op like it")}


def test_a_model_without_quantized_tensors_has_no_summary() -> None:
    graph = parse_graph("graph main(%x: tensor<2xfloat32>) -> (%y) {\n%y = Abs(%x)\n}")
    assert summary(graph, {}, TfliteTarget()) is None


def test_the_summary_is_json() -> None:
    found = report(f"%a = Sin(%xf)\n{quantized('%a')}")
    (op,) = json.loads(json.dumps(asdict(found)))["float_ops"]
    assert (op["op"], op["island"], op["reason"]) == ("SIN", True, "SIN has no quantized kernel")


def test_no_kernel_reads_integers_and_makes_floats() -> None:
    found = report("%y = Tanh(%xf)")
    assert [(op.op, op.reason) for op in found.float_ops] == [("TANH", "its result is read in float")]


def test_a_pool_selects_integers_for_all_that_read_it() -> None:
    window = "kernel_shape = [2, 2], dilations = [1, 1], strides = [1, 1], padding = [0, 0, 0, 0]"
    pool = f"%p = MaxPool(%xf) {{dims = [2, 3], {window}}}"
    found = report(f"{pool}\n%a = Add(%p, %p)\n%b = Tanh(%p)\n%c = Mul(%a, %b)\n%y = Add(%c, %p)", shape="1x2x4x4")
    assert found.integer_ops == {"MAX_POOL_2D": 1}


def _int16(op: str, scale: str, columns: int = 3) -> QuantizationSummary:
    return report(f"""%s = Convert(%xf) {{dtype = !float32}} : tensor<4x3xfloat32, quant<int16 0.25:0>>
      %ax = constant tensor<1xint64> [1]
      %a = {op} : tensor<4x{columns}xfloat32, quant<int16 {scale}:0>>
      %y = Convert(%a) {{dtype = !float32}} : tensor<4x{columns}xfloat32>""")


def test_kernels_that_are_several_steps_off_are_named() -> None:
    found = _int16('Reduce(%s, %ax) {kind = "prod", keepdims = true}', "0.25", columns=1)
    assert found.coarse_ops.keys() == {"REDUCE_PROD"} and found.coarse_ops["REDUCE_PROD"] > 1


def test_an_op_whose_kernel_interpolates_is_an_island() -> None:
    found = _int16("Tanh(%s)", "0.000030517578125")
    assert [(op.op, op.reason) for op in found.islands] == [("TANH", "TANH of qint16 interpolates, several steps off")]
    found = _int16("Softmax(%s) {axis = 1}", "0.000030517578125")
    assert [op.op for op in found.islands] == ["SOFTMAX"]
