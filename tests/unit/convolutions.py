"""What tests of Conv and ConvTranspose share."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import infer
from onnxtfl.ir.graph import Node, constant
from onnxtfl.ir.interpret import evaluate_node
from onnxtfl.ir.op import Op
from onnxtfl.targets import layouts
from tests.unit.lifting import check_legalized, floats


def conv(x: int, **changed: Any) -> dict[str, Any]:
    """The attributes of a channels-first Conv over `x` axes."""
    spatial = tuple(range(2, x + 2))
    numbers = {f"{side}_spatial_dimensions": spatial for side in ("input", "kernel", "output")}
    window = {"window_strides": (1,) * x, "padding": (0,) * (2 * x), "rhs_dilation": (1,) * x}
    return {**numbers, **window, **changed}


def check_convolution(op: type[Op], x: Any, kernel: Any, attributes: Any, target: Any) -> None:
    """With and without a bias, the kernel constant, as the target takes it."""
    features = kernel[0] if op is ops.Conv else kernel[1] * attributes.get("feature_group_count", 1)
    bias = constant(floats(features, seed=2))
    for last in (None, bias):
        operands = [floats(*x), constant(floats(*kernel, seed=1)), last]
        check_legalized(op, operands, target=target, attributes=attributes, rtol=1e-5, atol=1e-5)


def check_preferred_layout(op: type[Op], x: Any, kernel: Any, attributes: Any, channels_last: bool) -> None:
    """The op in the preferred axis order means the same, and is then in that order."""
    arrays = [floats(*x), floats(*kernel, seed=1)]
    node = Node(op, [constant(a) for a in arrays], attributes)
    preferred = layouts.preferred(node, channels_last)
    assert preferred is not None
    moved = [a if p is None else a.transpose(p) for a, p in zip(arrays, preferred.operands, strict=False)]
    again = Node(op, [constant(a) for a in moved], {**attributes, **preferred.attributes})
    again.add_result(infer(again)[0])
    unchanged = layouts.preferred(again, channels_last)
    assert unchanged is not None and not any((*unchanged.operands, *unchanged.results))
    (wanted,), (found,) = evaluate_node(node, arrays), evaluate_node(again, moved)
    order = preferred.results[0]
    np.testing.assert_array_equal(found, wanted if order is None else wanted.transpose(order))
    assert again.result.shape == found.shape
