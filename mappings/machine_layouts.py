"""Ops of ONNX Runtime whose tensors have the layout of the machine that optimized the model: refused.

com.microsoft.nchwc: Conv, MaxPool, AveragePool, GlobalMaxPool, GlobalAveragePool, Upsample, ReorderInput, ReorderOutput
"""

from __future__ import annotations

from typing import NoReturn

from onnxtfl.rules import *

_NCHWC = "com.microsoft.nchwc"


def _refused(b: Builder, node: Node) -> NoReturn:
    """Weights are stored in blocks of channels, of a size that the file does not say."""
    raise UnsupportedError(
        "ONNX Runtime optimized this model for one machine: its weights have the layout of that",
        hint="save it with graph_optimization_level = ORT_ENABLE_EXTENDED, or convert the model it was made from",
    )


for _name in ("Conv", "MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool", "Upsample"):
    lift_onnx(_name, since=(ANY_VERSION,), domain=_NCHWC)(_refused)
for _name in ("ReorderInput", "ReorderOutput"):
    lift_onnx(_name, since=(ANY_VERSION,), domain=_NCHWC)(_refused)
