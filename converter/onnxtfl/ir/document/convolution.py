"""Conv and ConvBias with `lhs_dilation`, `batch_group_count` and `auto_pad`."""

from __future__ import annotations

from typing import Any

from onnxtfl.ir.attributes import Attribute, Integer, Integers
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.document.forms import FORMS, Form
from onnxtfl.ir.document.windows import AUTO_PAD, resolved
from onnxtfl.ir.general_convolution import dilated, general_convolution
from onnxtfl.ir.graph import Value
from onnxtfl.ir.op import NUMERIC, Operand
from onnxtfl.ir.ops.convolution import DIMENSIONS, Conv
from onnxtfl.ir.spatial import Window

_ADDED: dict[str, Attribute] = {
    "window_strides": Integers(()),
    "padding": Integers(()),
    "lhs_dilation": Integers(()),
    "rhs_dilation": Integers(()),
    "feature_group_count": Integer(1),
    "batch_group_count": Integer(1),
    "auto_pad": AUTO_PAD,
}
_NUMBERS = {name: kind for name, kind in DIMENSIONS.items() if name not in _ADDED}


def _conv(b: Builder, x: Value, kernel: Value, bias: Value | None, **attributes: Any) -> Value:
    """A convolution of the operand with lhs_dilation[i] - 1 zeros between elements along spatial axis i.

    With `batch_group_count` g, group i of the batch is convolved with group i of the kernel's output features.
    `padding` (negative: crops) is that of the dilated operand; `auto_pad` as for AveragePool.
    """
    numbers = {name: attributes[name] for name in _NUMBERS}
    axes, spatial = numbers["input_spatial_dimensions"], numbers["kernel_spatial_dimensions"]
    x = dilated(b, x, axes, attributes["lhs_dilation"])
    shape = [kernel.size(a) for a in spatial]
    window = Window.filled(shape, *(attributes[name] for name in ("window_strides", "rhs_dilation", "padding")))
    found = resolved(b, x, axes, window, attributes["auto_pad"])
    groups = {"feature_groups": attributes["feature_group_count"], "batch_groups": attributes["batch_group_count"]}
    steps = {"strides": found.window.strides, "lhs_dilation": (), "rhs_dilation": found.window.dilations, **groups}
    return general_convolution(b, found.operand(b, x), kernel, bias, numbers, padding=found.window.padding, **steps)


_OPERANDS = (Operand("lhs", NUMERIC), Operand("rhs", NUMERIC), Operand("bias", NUMERIC, optional=True))
FORMS[Conv] = Form(Conv, _OPERANDS, {**_NUMBERS, **_ADDED}, _conv)
