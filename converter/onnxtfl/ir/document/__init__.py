"""The document's forms of the ops, by family: importing this package declares them."""

from onnxtfl.ir.document import (  # noqa: F401 - declares the forms
    activations,
    arithmetic,
    clamping,
    comparison,
    concatenation,
    convolution,
    detection,
    gathering,
    logic,
    matrices,
    normalization,
    padding,
    pooling,
    reduce_window,
    reductions,
    regions,
    reshape,
    resizing,
    sampling,
    scattering,
    shape,
    slicing,
    softmax,
    space_to_depth,
)
from onnxtfl.ir.document.forms import FORMS as FORMS
from onnxtfl.ir.document.forms import Form as Form
from onnxtfl.ir.document.forms import Statement as Statement
from onnxtfl.ir.document.forms import built as built
from onnxtfl.ir.document.forms import printed as printed
from onnxtfl.ir.document.forms import read as read
