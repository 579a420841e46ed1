"""Custom ops of files that were compiled for one vendor's hardware: their meaning is in code for that hardware."""

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
        f"it has code compiled for {vendor}, which nothing else runs",
        hint="convert the model as it was before it was compiled",
        code="E-OP-002",
    )


for _name, _vendor in _VENDORS.items():
    lift_tfl(f"custom:{_name}")(partial(_refused, vendor=_vendor))
