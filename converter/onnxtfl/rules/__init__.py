"""The names that mappings use: their modules do ```` and import nothing else of the package.

The classes of the graph, the decorators of the rule registry with Form, and helpers: shapes and sizes
(:mod:`onnxtfl.ir.reshape`, :mod:`sizes`), indices, windows and padding, convolutions, sampling of feature maps, fused
activations, dtypes, formulas (:mod:`onnxtfl.ir.formula`), and the arithmetic of kernels (:mod:`onnxtfl.kernels`).
"""

from onnxtfl.errors import InvalidModelError, UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.assumptions import assume
from onnxtfl.ir.budget import check_count, check_elements
from onnxtfl.ir.builder import Builder, Operand
from onnxtfl.ir.cloning import clone
from onnxtfl.ir.custom_attributes import to_options
from onnxtfl.ir.data import Array, ArrayData, RowsData, TensorData
from onnxtfl.ir.dims import (
    Dim,
    broadcast_dim,
    ceildiv,
    fresh,
    is_nonnegative,
    is_open,
    may_be_one,
    product,
    static,
    substitute,
    symbols,
)
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.matching import is_weight, scalar, single_use, uniform_scalar
from onnxtfl.ir.numeric import highest, lowest
from onnxtfl.ir.op import Op, attributes_of
from onnxtfl.ir.open_resampling import OpenAxis
from onnxtfl.ir.ops.control import ScanParts
from onnxtfl.ir.ops.padding import cut_within
from onnxtfl.ir.ops.sampling import FeatureMap, along_channels, size_in
from onnxtfl.ir.ops.space_to_depth import from_batch, into_batch
from onnxtfl.ir.packed import ByteData, FieldData, is_packed
from onnxtfl.ir.permutations import inverse
from onnxtfl.ir.quantization import Quantization, limits, product_quantization, quantize
from onnxtfl.ir.quantized import quantization_of, real_of_stored_zero
from onnxtfl.ir.ranges import exact_terms, fits_int32
from onnxtfl.ir.resampling import Sampling
from onnxtfl.ir.reshape import (
    as_int64,
    broadcast,
    dim_value,
    dim_vector,
    merged,
    positions,
    reshape,
    resized,
    transposed,
    unsqueezed,
    with_unit_axis,
)
from onnxtfl.ir.row_quantization import on_int8_grid
from onnxtfl.ir.shapes import (
    check_features,
    check_spreads,
    distinct_axes,
    known_dims,
    normalize_axes,
    normalize_axis,
    static_ints,
)
from onnxtfl.ir.shown_sizes import may_be_fed, shown_dim, shown_shape
from onnxtfl.ir.signs import never_negative
from onnxtfl.ir.source_names import shown_name
from onnxtfl.ir.spatial import LONGEST_STRIDE, Window, same_padding_of_pool
from onnxtfl.ir.symbols import next_number
from onnxtfl.ir.types import DType, TensorType, Type, tensor
from onnxtfl.kernels.batch_matmul import with_one_scale
from onnxtfl.kernels.comparisons import in_units_of_1_256
from onnxtfl.kernels.gelu_int16 import gelu_table
from onnxtfl.kernels.logistic_tanh_int16 import sigmoid_table, tanh_table
from onnxtfl.kernels.lookup_int16 import by_table, interpolated
from onnxtfl.kernels.onnxruntime_resize import integers_like_onnx
from onnxtfl.kernels.products_int16 import in_int32, remark_narrow_bias, zero_bias
from onnxtfl.kernels.resize_bilinear import bilinear_of_integers, fits_fixed_point, tfl_bilinear
from onnxtfl.kernels.resize_nearest_neighbor import tfl_nearest, tfl_nearest_of_bytes
from onnxtfl.kernels.softmax_int16 import int16_softmax
from onnxtfl.rewriting.custom import CUSTOM_DOMAIN
from onnxtfl.rewriting.declared import as_declared
from onnxtfl.rewriting.regions import bind_captures, condition_value, copied, size_of
from onnxtfl.rewriting.registry import (
    ANY_VERSION,
    Computed,
    Form,
    Inlined,
    Steps,
    append_operand,
    carried_by,
    decompose,
    decompose_late,
    expand,
    lift_onnx,
    lift_tfl,
    lower_onnx,
    lower_quantized,
    lower_tfl,
    ordered_onnx,
    refuse_onnx,
    refuse_tfl,
    regions_of,
    requires_opset,
    upgrade,
)
from onnxtfl.rewriting.stored_integers import integers_of
from onnxtfl.rules.approximations import erf, log1p, log1p_of_small
from onnxtfl.rules.convolutions import as_2d, first, fixed_kernel, kernel_sizes, last, sized_window, window_attributes
from onnxtfl.rules.custom_options import custom_integers, custom_options
from onnxtfl.rules.directions import form_onnx
from onnxtfl.rules.dtypes import dtype_from, number_of
from onnxtfl.rules.fourier import fourier, open_fourier, open_mel_matrix, transformed_at
from onnxtfl.rules.hybrid import is_hybrid
from onnxtfl.rules.indices import flat_positions, nonnegative, resolved_rows, strides_of
from onnxtfl.rules.layers import is_smaller_as_loop, most_steps
from onnxtfl.rules.lengths import with_steps
from onnxtfl.rules.loops import (
    MOST_CALLS,
    MOST_PACKED,
    Collected,
    as_while,
    called,
    goes_on,
    is_called,
    is_compact,
    is_unrolled,
    mask_steps,
    next_round,
    number_of_round,
    number_type,
    unrolled,
)
from onnxtfl.rules.nearest_resizing import assume_multiples, is_of_bytes, neighbors_like_tfl
from onnxtfl.rules.open_windows import (
    Amounts,
    bare,
    cropped,
    ends_at_run_time,
    fitted,
    grown,
    padding_at_run_time,
    same_padding_at_run_time,
    spatial_ones,
    without_skipped,
    without_unread,
)
from onnxtfl.rules.operands import (
    align_by_axis,
    finite_on_integers,
    flat_bias,
    formula,
    moved_last,
    on_permuted,
    on_terms,
    shifted,
    summed_in_float,
    to_operand,
    uniform,
)
from onnxtfl.rules.pair_probabilities import coupled
from onnxtfl.rules.pool_indices import in_fortran_order, pool_with_indices
from onnxtfl.rules.qlinear import (
    MICROSOFT,
    QLinearRow,
    Quantized,
    channels_second,
    channels_trailing,
    dequantized,
    dequantized_bias,
    lifted,
    qlinear,
    quantized,
    quantized_over_range,
)
from onnxtfl.rules.qoperator import bias_in_steps, linear_domain, parameters, qoperator, quantized_operand
from onnxtfl.rules.rows import Entries, Number, ResultType, Spelled, activated, row
from onnxtfl.rules.runtime_axes import MiddleAxis, named_factors, one_axis, reversed_at_run_time, transposed_at_run_time
from onnxtfl.rules.scores import (
    ML,
    chosen_label,
    class_labels,
    feature_count,
    floats,
    ints,
    labels_at,
    largest,
    linear,
    probit,
    rows_of,
    texts,
    texts_of,
    transform_of,
    transformed,
    two_columns,
)
from onnxtfl.rules.sequence_loops import SequenceOps, check_constant_shape, limit_rounds, loop_over_sequences
from onnxtfl.rules.sequences import (
    MOST_ELEMENTS,
    Outputs,
    either,
    elements_of,
    is_absent,
    is_list,
    listed,
    one_shape,
    stacked,
)
from onnxtfl.rules.sizes import (
    HUGE,
    INT32_MAX,
    as_int32,
    counted,
    frozen,
    int32,
    int32_operands,
    may_hold_zeros,
    merge_whole,
    narrow,
    on_fewer_axes,
    sliced,
    spread,
    vector_length,
    whole,
    wide,
    with_dtype,
    with_int32,
)
from onnxtfl.rules.stablehlo import combining_op, index_vectors, int_list
from onnxtfl.rules.stored import fields_of, stored_dequantized, unpacked, unpacked_rows
from onnxtfl.rules.tree_scores import Leaves, Trees
from onnxtfl.rules.trees import LEAF, MODES, Nodes, equal_lengths, forest_of, places_of
from onnxtfl.rules.uint64 import SMALLEST_INT64, on_signed, words
from onnxtfl.rules.windows import (
    empty_counts,
    interleaved,
    onnx_attributes,
    onnx_window,
    padded,
    padding_after,
    tfl_dilations,
    tfl_padding,
    tfl_strides,
    tfl_window,
    with_same_padding,
    without_negative_padding,
)
