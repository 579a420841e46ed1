"""The neutral ops, one module a family; mappings and tests have the same families.

A small core does the work, and every other op has one rule into it: most of them are formulas (:mod:`ir.formula`).
Lifting emits core ops and formulas. Each op class of the core sets ``core = True``; this list is what a reader (and a
test) compares with them. Signatures (operands; attributes). Vectors of sizes, starts and axes are integer operands,
constant where known.

elementwise (unary, but for Atan2)
    Abs Neg Sign Ceil Floor RoundNearestEven Exp Log Sqrt Rsqrt Sin Cos Tan Asin Acos Atan Sinh Cosh
    Asinh Acosh Atanh Erf Tanh Atan2(lhs, rhs)
activations (unary, but for the slope)
    Relu Elu(alpha) LeakyRelu(alpha) Sigmoid, and those that both formats have as one op: Gelu(approximate) HardSwish
    PRelu(x, slope)
arithmetic (NumPy broadcasting)
    Add Sub Mul Div(integers truncate) Rem(sign of dividend) FloorMod(sign of divisor) FloorDiv
    Pow (exponents of any type)
extremes, clamping (NumPy broadcasting)
    Max Min   Clamp(x, min?, max?)
logic (NumPy broadcasting)
    And Or Xor Not (bool; bitwise on integers)   ShiftLeft ShiftRightLogical ShiftRightArithmetic(lhs, rhs; in_range)
comparison, selection (NumPy broadcasting)
    Compare(lhs, rhs; comparison_direction)   IsNaN IsInf(detect_positive, detect_negative) (unary)
    Select(pred, on_true, on_false)
custom
    Custom(operands...; called, domain, version, types, attributes)   (a kernel of the user)
casts
    Convert(x; dtype, saturate, rounding)   BitcastConvert(x; dtype)
complex_numbers
    Real Imag
quantization
    QuantizeLinear(x, scale, zero_point?; axis, dtype, block_size, saturate)
    DequantizeLinear(x, scale, zero_point?; axis, dtype, block_size)
reductions, cumulative, softmax
    Reduce(x, axes?; kind = sum prod max min mean any all, keepdims)   (axes absent: all; empty: none)
    ArgMax ArgMin(x; axis, keepdims, select_last_index, dtype)
    CumSum(x, axis; exclusive, reverse)   Softmax LogSoftmax(x; axis)
randomness (random effects)
    RngNormal(mu, sigma, shape; seed)   RngUniform(a, b, shape; seed)   Multinomial(logits, count; seed, dtype)
reshape, transpose, broadcasting
    Reshape(x, shape)   (one -1 allowed)   Transpose(x; permutation)   BroadcastTo(x, shape)   (the full shape)
    Tile(x, multiples)
concatenation, splitting
    Concatenate(xs...; axis)   Split(x, sizes?; axis, count) -> n results (sizes absent: `count` equal ones)
shape, creation
    Shape(x; axes, dtype) -> sizes of all axes, or of `axes` in that order   Range(start, limit, delta)
slicing, padding, reversal
    Slice(x, starts, limits, strides)   full rank, NumPy meaning
    Pad(x, padding [rank, 2], value?; mode = constant edge reflect symmetric wrap)
    Reverse(x; dimensions)   ReverseSequence(x, lengths; time_axis, batch_axis)
space_to_depth
    DepthToSpace SpaceToDepth(x; block_size, mode = DCR CRD, depth_dim, space_dims)
matrices
    Trilu(x, k?; upper)
gathering, nonzero, one_hot, top_k, unique (indices in [0, n): negative ones are resolved when lifting)
    Gather(x, indices; axis, batch_dims)  GatherND(x, indices; batch_dims)  GatherElements(x, indices; axis)
    NonZero(x) -> int64 [rank, n]  OneHot(indices, depth, on, off; axis)
    TopK(x, k; axis, largest, sorted, dtype) -> values, indices
    Unique(x; axis, sorted, dtype) -> values, indices, inverse, counts
scattering, segments (kind = none add mul max min)
    ScatterND(x?, indices, updates, shape?; kind, unique_indices)   x absent: onto zeros of `shape`
    ScatterElements(x, indices, updates; axis, kind, unique_indices)
    SegmentReduce(x, segment_ids, count; kind = sum prod max min)
contraction
    DotGeneral(lhs, rhs; {lhs,rhs}_batching_dimensions, {lhs,rhs}_contracting_dimensions, output_permutation)
convolution, transposed_convolution (dimension numbers input_*, kernel_*, output_*; window tuples by spatial axis)
    Conv(input, kernel, bias?; window_strides, padding, rhs_dilation, feature_group_count)
    ConvTranspose(input, kernel, bias?; window_strides, padding, rhs_dilation, feature_group_count)
identity
    Copy(x)
branches, loops (attributes are graphs, which take all captures or values as inputs)
    If(pred, captures...; then_branch, else_branch) -> n results   While(values...; cond, body) -> n results
sequences (resolved while lifting)
    Tuple(elements...)   Unstack(x) -> its slices along axis 0   Absent(; type)
pooling
    MaxPool(x; dims, kernel_shape, strides, padding, dilations, return_indices)
    AveragePool(x; dims, kernel_shape, strides, padding, dilations, count_include_pad)
normalization (the others are written with Reduce and arithmetic)
    BatchNormInference(x, scale, bias, mean, variance; epsilon, feature_index)   LRN(x; axis, size, alpha, beta, bias)
resizing, sampling, regions, detection
    Resize(x, sizes?, scales?, roi?; dims, mode, coordinate_transformation_mode, nearest_mode, ...)
    RoiAlign(x, rois, batch_indices; mode, ...)
    NonMaxSuppression(boxes, scores, limit?, iou_threshold?, score_threshold?; center_point_box) -> int64 [n, 3]
strings
    StringSplit(x; delimiter) -> parts, counts   StringConcat(lhs, rhs)   RegexFullMatch(x; pattern)
"""

from onnxtfl.ir.op import OPS
from onnxtfl.ir.ops.activations import (
    Celu,
    Elu,
    GeGlu,
    Gelu,
    Glu,
    Gtu,
    HardSigmoid,
    HardSwish,
    LeakyRelu,
    Mish,
    PRelu,
    Relu,
    Relu6,
    ReluN1To1,
    Selu,
    Sigmoid,
    Silu,
    Softplus,
    Swish,
    ThresholdedRelu,
)
from onnxtfl.ir.ops.arithmetic import Add, Div, FloorDiv, FloorMod, Mul, Pow, Rem, SquaredDifference, Sub
from onnxtfl.ir.ops.bidirectional import Bidirectional, Direction, directions_of
from onnxtfl.ir.ops.branches import If
from onnxtfl.ir.ops.broadcasting import Broadcast, BroadcastInDim, BroadcastTo, DynamicBroadcastInDim, Tile
from onnxtfl.ir.ops.casts import BitcastConvert, Convert
from onnxtfl.ir.ops.clamping import Clamp
from onnxtfl.ir.ops.comparison import Compare, IsFinite, IsInf, IsNaN
from onnxtfl.ir.ops.complex_numbers import Complex, Imag, Real
from onnxtfl.ir.ops.concatenation import Concatenate
from onnxtfl.ir.ops.contraction import Contraction, Dot, DotGeneral, DotGeneralBias, DotRoles, Gemm
from onnxtfl.ir.ops.convolution import Conv, Convolution, is_depthwise
from onnxtfl.ir.ops.creation import DynamicIota, Iota, Range
from onnxtfl.ir.ops.cumulative import CumSum
from onnxtfl.ir.ops.custom import Custom
from onnxtfl.ir.ops.detection import NonMaxSuppression, SelectBoxes
from onnxtfl.ir.ops.elementwise import (
    Abs,
    Acos,
    Acosh,
    Asin,
    Asinh,
    Atan,
    Atan2,
    Atanh,
    Cbrt,
    Ceil,
    Cos,
    Cosh,
    Erf,
    Exp,
    Expm1,
    Floor,
    Log,
    Log1p,
    Neg,
    Round,
    RoundNearestEven,
    Rsqrt,
    Sign,
    Sin,
    Sinh,
    Sqrt,
    Tan,
    Tanh,
)
from onnxtfl.ir.ops.extremes import Max, Min
from onnxtfl.ir.ops.gathering import Gather, GatherElements, GatherND
from onnxtfl.ir.ops.hash_tables import Lookup
from onnxtfl.ir.ops.identity import Copy, Dropout
from onnxtfl.ir.ops.logic import And, Not, Or, PopulationCount, ShiftLeft, ShiftRightArithmetic, ShiftRightLogical, Xor
from onnxtfl.ir.ops.loops import Loop, Scan, While
from onnxtfl.ir.ops.losses import BCELoss, CTCLoss
from onnxtfl.ir.ops.map_computation import Map
from onnxtfl.ir.ops.matrices import Cholesky, Diagonal, Trilu
from onnxtfl.ir.ops.nonzero import NonZero
from onnxtfl.ir.ops.normalization import (
    LRN,
    BatchNormGrad,
    BatchNormInference,
    BatchNormTraining,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    standardized,
)
from onnxtfl.ir.ops.one_hot import OneHot
from onnxtfl.ir.ops.padding import DynamicPad, InteriorPad, Pad
from onnxtfl.ir.ops.pooling import (
    AveragePool,
    GlobalAveragePool,
    GlobalMaxPool,
    MaxPool,
    by_column,
    pool_attributes,
    pool_window,
)
from onnxtfl.ir.ops.precision import ReducePrecision
from onnxtfl.ir.ops.quantization import DequantizeLinear, QuantizeLinear
from onnxtfl.ir.ops.randomness import Multinomial, RngNormal, RngUniform
from onnxtfl.ir.ops.recurrence import INPUT_GATE, Grid, Gru, Lstm, Recurrent, Rnn, operands_of, states_of
from onnxtfl.ir.ops.reduce_window import (
    PartialReduce,
    ReduceWindow,
    SelectAndScatter,
    reduce_window_attributes,
    stacked_windows,
    window_taps,
)
from onnxtfl.ir.ops.reductions import ArgMax, ArgMin, FunctionReduce, Reduce, possible_axes, reduced_axes
from onnxtfl.ir.ops.regions import MaxRoiPool, RoiAlign
from onnxtfl.ir.ops.reshape import DynamicReshape, Reshape, Squeeze, Unsqueeze
from onnxtfl.ir.ops.resizing import Resize, scaled
from onnxtfl.ir.ops.reversal import Reverse, ReverseSequence
from onnxtfl.ir.ops.sampling import GridSample
from onnxtfl.ir.ops.scattering import ScatterElements, ScatterND
from onnxtfl.ir.ops.segments import SegmentReduce
from onnxtfl.ir.ops.selection import Select
from onnxtfl.ir.ops.sequences import Absent, GetTupleElement, Tuple, Unstack
from onnxtfl.ir.ops.shape import Shape, Size
from onnxtfl.ir.ops.slicing import (
    END,
    DynamicSlice,
    DynamicUpdateSlice,
    RealDynamicSlice,
    SetDimensionSize,
    Slice,
    SliceInDim,
)
from onnxtfl.ir.ops.softmax import LogSoftmax, Softmax
from onnxtfl.ir.ops.sorting import Sort
from onnxtfl.ir.ops.space_to_depth import BatchToSpace, DepthToSpace, SpaceToBatch, SpaceToDepth, block_amounts
from onnxtfl.ir.ops.splitting import GeneralSplit, Split
from onnxtfl.ir.ops.strings import RegexFullMatch, StringConcat, StringSplit
from onnxtfl.ir.ops.top_k import TopK
from onnxtfl.ir.ops.transpose import Transpose
from onnxtfl.ir.ops.transposed_convolution import ConvTranspose
from onnxtfl.ir.ops.unique import Unique

globals().update(OPS)  # where a family imports another thing under an op's name (dims.Shape), the op is meant
