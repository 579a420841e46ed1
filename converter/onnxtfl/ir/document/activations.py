"""Gelu and GeGlu with a flag `approximate`."""

from onnxtfl.ir.document.forms import Spelling
from onnxtfl.ir.ops.activations import GeGlu, Gelu

for _op in (Gelu, GeGlu):
    Spelling(_op, values={"approximate": {False: "none", True: "tanh"}}).register()
