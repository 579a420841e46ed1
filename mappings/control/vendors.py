"""Custom ops of files compiled for one vendor's hardware, which contain code for that hardware."""

from __future__ import annotations

from functools import partial
from typing import NoReturn

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node
from onnxtfl.rewriting.registry import lift_tfl

_VENDORS = {
    "edgetpu-custom-op": "Google Edge TPU",
    "ethos-u": "Arm Ethos-U",
    "DISPATCH_OP": "an NPU of LiteRT's compiler plugins (Qualcomm, MediaTek, Google Tensor)",
    "NeutronGraph": "NXP eIQ Neutron",
    "vsi-npu": "VeriSilicon",
}


def _refused(b: Builder, node: Node, vendor: str) -> NoReturn:
    raise UnsupportedError(
        f"it contains code compiled for {vendor}",
        hint="convert the model from before that compilation",
        code="E-OP-002",
    )


for _name, _vendor in _VENDORS.items():
    lift_tfl(f"custom:{_name}")(partial(_refused, vendor=_vendor))
