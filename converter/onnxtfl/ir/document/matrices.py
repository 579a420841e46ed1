"""Trilu with `k` as an attribute."""

from onnxtfl.ir.attributes import Integer
from onnxtfl.ir.document.forms import Spelling
from onnxtfl.ir.ops.matrices import Trilu

Spelling(Trilu, constants={"k": (1, Integer(0))}).register()
