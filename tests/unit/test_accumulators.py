"""Products of int16 activations are added up in int32 where the weights show that no sum overflows, else in int64."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import pytest

from onnxtfl.errors import UsageError
from onnxtfl.formats.tflite.writer import write
from onnxtfl.ir.graph import Node
from onnxtfl.ir.model import Model
from onnxtfl.ir.text import parse_graph
from onnxtfl.targets.tflite import TfliteTarget
from tests.harness.litert import run_tflite

_MOST = 2**31 // (127 * 32768)
"""The number of terms of weight 127 whose sum fits int32, for any int16 operand."""


def _dense(terms: int, activation: str = "", *, bias: bool = True, weights: Sequence[int] = (127,)) -> Node:
    """A dense layer of `terms` inputs and one result; `weights` are repeated."""
    numbers = ", ".join(str(weights[i % len(weights)]) for i in range(terms))
    operands, attributes = (
        "%x, %w" + ", %b" * bias,
        "lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]",
    )
    text = f"""graph main(%i: tensor<1x{terms}xfloat32, quant<int16 0.001:0>>) -> (%y) {{
      %x = {activation or "Copy"}(%i) : tensor<1x{terms}xfloat32, quant<int16 0.001:0>>
      %w = constant tensor<1x{terms}xfloat32, quant<int8 0.5:0>> [{numbers}]
      %b = constant tensor<1xfloat32, quant<int64 0.0005:0>> [-3]
      %y = DotGeneral{"Bias" * bias}({operands}) {{{attributes}}} : tensor<1x1xfloat32, quant<int16 0.5:0>>
    }}"""
    return list(parse_graph(text).nodes)[-1]


def _bias(node: Node, runtime: str = "2.14") -> tuple[str, str, int]:
    """Storage of the bias, the option that says so, and the op version."""
    target = TfliteTarget(runtime)
    form = target.accepted(node)
    assert form is not None and form.op == "FULLY_CONNECTED"
    storage = form.operands[2].tensor_type.storage.value
    return storage, form.attributes.get("quantized_bias_type", ""), target.version(node, form)


@pytest.mark.parametrize("bias", [True, False])
def test_sums_that_fit(bias: bool) -> None:
    assert _bias(_dense(_MOST - 1, bias=bias)) == ("int32", "INT32", 7)


@pytest.mark.parametrize("bias", [True, False])
def test_sums_that_may_overflow(bias: bool) -> None:
    """Without a bias as well: LiteRT's kernel adds up in int32 if there is none."""
    assert _bias(_dense(_MOST + 1, bias=bias)) == ("int64", "", 7)


@pytest.mark.parametrize(("activation", "storage"), [("", "int64"), ("Neg", "int64"), ("Relu", "int32")])
def test_nonnegative_operands_reach_half_the_sum_of_weights_of_both_signs(activation: str, storage: str) -> None:
    assert _bias(_dense(2 * _MOST - 2, activation, weights=(127, -127)))[0] == storage


@pytest.mark.parametrize("kernels", ["default", "builtin"])
def test_the_largest_sum_in_litert(kernels: str) -> None:
    """-32768 * -127 for each term, near 2**31, is half of the result's range."""
    count, scale = _MOST - 1, 0.001 * 0.5 / 2**-17
    text = f"""graph main(%x: tensor<1x{count}xfloat32, quant<int16 0.001:0>>) -> (%y) {{
      %w = constant tensor<1x{count}xfloat32, quant<int8 0.5:0>> [{", ".join(["-127"] * count)}]
      %b = constant tensor<1xfloat32, quant<int32 0.0005:0>> [5]
      %y = tfl.FULLY_CONNECTED@7(%x, %w, %b) {{fused_activation_function = "NONE", quantized_bias_type = "INT32"}} :
        tensor<1x1xfloat32, quant<int16 {scale}:0>>
    }}""".replace(" :\n       ", " :")
    file = io.BytesIO()
    write(Model(parse_graph(text)), file)
    ((_, found),) = run_tflite(file.getvalue(), [np.full((1, count), -32768, np.int16)], kernels=kernels)
    assert abs(int(found.item()) - round((count * 127 * 32768 + 5) / 2**17)) <= 1


def test_runtimes_whose_kernels_add_up_in_int64_only_are_older_than_what_can_be_asked_for() -> None:
    with pytest.raises(UsageError, match=r"2\.14 to"):
        TfliteTarget("2.13")
    assert _bias(_dense(3), "litert-2.3") == ("int32", "INT32", 7)
