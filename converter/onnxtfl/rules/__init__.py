"""What authors of mappings import, from one place: decorators, Form, and helpers.

The helpers are about shapes and sizes (:mod:`onnxtfl.ir.reshape`, :mod:`sizes`), indices, windows and padding,
convolutions, samples of feature maps, fused activations, dtypes, and formulas (:mod:`onnxtfl.ir.formula`).
"""

from onnxtfl.ir.formula import Term
from onnxtfl.ir.matching import scalar, single_use
from onnxtfl.ir.ranges import exact_terms, fits_int32, never_negative
from onnxtfl.ir.reshape import (
    as_int64,
    broadcast,
    dim_value,
    dim_vector,
    merged,
    reshape,
    resized,
    transposed,
    unsqueezed,
    with_unit_axis,
)
from onnxtfl.rewriting.regions import copied, hand_in, truth_of
from onnxtfl.rewriting.registry import (
    Form,
    Inlined,
    append_operand,
    decompose,
    decompose_late,
    lift_onnx,
    lift_tfl,
    lower_onnx,
    lower_tfl,
    regions_of,
    row,
    upgrade,
)
from onnxtfl.rules.approximations import erf, log1p, log1p_of_small
from onnxtfl.rules.convolutions import as_2d, first, fix_kernel, kernel_sizes, last, sized_window, window_attributes
from onnxtfl.rules.fused_activation import activated
from onnxtfl.rules.indices import flat_positions, nonnegative, resolved_rows, strides_of
from onnxtfl.rules.onnx_dtypes import dtype_from, number_of
from onnxtfl.rules.resizing import OpenAxis
from onnxtfl.rules.samples import FeatureMap, Size, along_channels, neighbours
from onnxtfl.rules.sizes import (
    HUGE,
    INT32_MAX,
    as_int32,
    int32,
    merge_whole,
    merged_shape,
    narrow,
    spread,
    with_int32,
)
from onnxtfl.rules.windows import (
    onnx_attributes,
    onnx_window,
    padded,
    padding_behind,
    tfl_dilations,
    tfl_padding,
    tfl_strides,
    tfl_window,
)

__all__ = [
    "HUGE",
    "INT32_MAX",
    "FeatureMap",
    "Form",
    "Inlined",
    "OpenAxis",
    "Size",
    "Term",
    "activated",
    "along_channels",
    "append_operand",
    "as_2d",
    "as_int32",
    "as_int64",
    "broadcast",
    "copied",
    "decompose",
    "decompose_late",
    "dim_value",
    "dim_vector",
    "dtype_from",
    "erf",
    "exact_terms",
    "first",
    "fits_int32",
    "fix_kernel",
    "flat_positions",
    "hand_in",
    "int32",
    "kernel_sizes",
    "last",
    "lift_onnx",
    "lift_tfl",
    "log1p",
    "log1p_of_small",
    "lower_onnx",
    "lower_tfl",
    "merge_whole",
    "merged",
    "merged_shape",
    "narrow",
    "neighbours",
    "never_negative",
    "nonnegative",
    "number_of",
    "onnx_attributes",
    "onnx_window",
    "padded",
    "padding_behind",
    "regions_of",
    "reshape",
    "resized",
    "resolved_rows",
    "row",
    "scalar",
    "single_use",
    "sized_window",
    "spread",
    "strides_of",
    "tfl_dilations",
    "tfl_padding",
    "tfl_strides",
    "tfl_window",
    "transposed",
    "truth_of",
    "unsqueezed",
    "upgrade",
    "window_attributes",
    "with_int32",
    "with_unit_axis",
]
