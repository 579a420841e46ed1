"""Slice with its limits as attributes."""

from onnxtfl.ir.attributes import Integers
from onnxtfl.ir.document.forms import Spelling
from onnxtfl.ir.ops.slicing import Slice

Spelling(
    Slice,
    constants={
        "start_indices": (1, Integers()),
        "limit_indices": (2, Integers()),
        "strides": (3, Integers()),
    },
).register()
