"""RoiAlign with the document's names of modes."""

from onnxtfl.ir.document.forms import Spelling
from onnxtfl.ir.ops.regions import RoiAlign

_MODES = ("mode", "coordinate_transformation_mode")

Spelling(
    RoiAlign,
    values={name: {f"ROIALIGN_{mode.upper()}": mode for mode in RoiAlign.attributes[name].choices} for name in _MODES},
).register()
