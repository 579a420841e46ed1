"""Concatenate with `dimension`."""

from onnxtfl.ir.document.forms import Spelling
from onnxtfl.ir.ops.concatenation import Concatenate

Spelling(Concatenate, {"dimension": "axis"}).register()
