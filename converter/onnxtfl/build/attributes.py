"""Reads attributes of a file's ops as arrays and strings; the domains of these ops."""

from __future__ import annotations

import numpy as np

from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Node

ML = "ai.onnx.ml"
"""The domain of the ops for models that are not neural networks."""


def floats(node: Node, name: str) -> Array:
    """A list of floats among the attributes, or the tensor NAME_as_tensor; empty if there is neither."""
    tensor = node.attr(f"{name}_as_tensor", None)
    found = tensor.numpy() if tensor is not None else np.asarray(node.attr(name, None) or (), np.float32)
    return np.asarray(found).reshape(-1)


def ints(node: Node, name: str) -> Array:
    """A list of integers among the attributes; empty if there is none."""
    return np.asarray(node.attr(name, None) or (), np.int64)


def texts(node: Node, name: str) -> list[str]:
    """A list of strings among the attributes; empty if there is none."""
    return [s.decode() if isinstance(s, bytes) else str(s) for s in node.attr(name, None) or ()]


def texts_of(value: object) -> str:
    """A string attribute as text."""
    return value.decode() if isinstance(value, bytes) else str(value)
