"""The since-version of an op: the version of its definition that is valid in the model's opset."""

from __future__ import annotations

import functools

from onnx import defs

from onnxtfl.errors import InvalidModelError
from onnxtfl.formats.onnx.strings import name_of

_LATEST = (1 << 31) - 1


def normal_domain(domain: str | bytes) -> str:
    """`domain`, "" for ONNX's default domain, which has two names."""
    return "" if domain == "ai.onnx" else name_of(domain)


@functools.cache
def since_version(op: str, opset: int, domain: str) -> int:
    """The version of the newest definition of `op` up to `opset`; `opset` itself where ONNX defines none."""
    try:
        return int(defs.get_schema(op, min(opset, _LATEST), domain).since_version)
    except defs.SchemaError:
        return opset


class OpsetImports:
    """The opset of each domain that a model or a function imports."""

    def __init__(self, versions: dict[str, int]) -> None:
        self.versions = versions

    def since(self, op: str, domain: str, node: str) -> int:
        """The since-version of `op`; InvalidModelError where its domain is one of ONNX's and not imported."""
        opset = self.versions.get(domain)
        if opset is None:
            if domain in _ONNX_DOMAINS:
                raise InvalidModelError(f"no opset of domain {domain or 'ai.onnx'!r} is imported", node=node, op=op)
            return 1
        return since_version(op, opset, domain)


_ONNX_DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training", "ai.onnx.training")
