"""The small core: lifting emits these ops only, so passes meet one form of each thing.

Each op class sets ``core = True`` in its family module; this list is what a reader (and a test) holds against them.
Signatures (operands; attributes). Vectors of sizes, starts and axes are integer operands, constant where known.

elementwise.py (unary)
    Abs Neg Sign Ceil Floor Round(half away) RoundNearestEven Exp Log Sqrt Rsqrt Sin Cos Tan Asin Acos Atan Sinh Cosh
    Asinh Acosh Atanh Erf Tanh IsNaN IsInf(detect_positive, detect_negative) Not(bool; bitwise on integers)
activations.py (unary)
    Relu Elu(alpha) LeakyRelu(alpha) Sigmoid, and those that both formats have as one op: Gelu(approximate) HardSwish
conversion.py
    Convert(x; dtype, saturate)   BitcastConvert(x; dtype)   Real Imag
    QuantizeLinear(x, scale, zero_point?; axis, dtype, block_size, saturate)
    DequantizeLinear(x, scale, zero_point?; axis, dtype, block_size)
binary.py (NumPy broadcasting)
    Add Sub Mul Div(integers truncate) Rem(sign of dividend) FloorMod(sign of divisor) FloorDiv Max Min Atan2
    Pow (exponents of any type)   PRelu(x, slope)   Clamp(x, min?, max?)
logic.py (NumPy broadcasting)
    And Or Xor (bool; bitwise on integers)   Compare(lhs, rhs; comparison_direction)   Select(pred, on_true, on_false)
    ShiftLeft ShiftRightLogical ShiftRightArithmetic(lhs, rhs; in_range)
reductions.py
    Reduce(x, axes?; kind = sum prod max min mean any all, keepdims)   (axes absent: all; empty: none)
    ArgMax ArgMin(x; axis, keepdims, select_last_index, dtype)
    CumSum(x, axis; exclusive, reverse)   Softmax LogSoftmax(x; axis)
randomness.py (random effects, no evaluation)
    RngNormal(mu, sigma, shape; seed)   RngUniform(a, b, shape; seed)   Multinomial(logits, count; seed, dtype)
shape.py
    Reshape(x, shape)   (one -1 allowed)   Transpose(x; permutation)   BroadcastTo(x, shape)   (the full shape)
    Concatenate(xs...; axis)   Split(x, sizes?; axis, count) -> n results (sizes absent: `count` equal ones)
    Shape(x; axes, dtype) -> sizes of all axes, or of `axes` in that order   Range(start, limit, delta)
slicing.py
    Slice(x, starts, limits, strides)   full rank, NumPy meaning   Tile(x, multiples)   Reverse(x; dimensions)
    Pad(x, padding [rank, 2], value?; mode = constant edge reflect symmetric wrap, flat)   flat: padding as ONNX has it
    ReverseSequence(x, lengths; seq_axis, batch_axis)   Trilu(x, k?; upper)
    DepthToSpace SpaceToDepth(x; block_size, mode = DCR CRD, depth_dim, space_dims)
indexing.py (indices in [0, n): negative ones are resolved when lifting)
    Gather(x, indices; axis, batch_dims)  GatherND(x, indices; batch_dims)  GatherElements(x, indices; axis)
    NonZero(x; rows) -> int64 [rank, n], or [n, rank]  TopK(x, k; axis, largest, sorted, dtype) -> values, indices
    OneHot(indices, depth, on, off; axis)  Unique(x; axis, sorted, dtype) -> values, indices, inverse, counts
scattering.py (kind = none add mul max min)
    ScatterND(x?, indices, updates, shape?; kind)   x absent: onto zeros of `shape`
    ScatterElements(x, indices, updates; axis, kind)  SegmentReduce(x, segment_ids, count; kind = sum prod max min)
contraction.py
    DotGeneral(lhs, rhs; {lhs,rhs}_batching_dimensions, {lhs,rhs}_contracting_dimensions, output_permutation)
convolution.py (dimension numbers input_*, kernel_*, output_*; window tuples by spatial axis, see spatial.py)
    Conv(input, kernel, bias?; window_strides, padding, rhs_dilation, feature_group_count, auto_pad)
    ConvTranspose(input, kernel, bias?, output_shape?; the same, output_padding)
structure.py
    Copy(x)
control.py (attributes are graphs, which take all captures or values as inputs)
    If(pred, captures...; then_branch, else_branch) -> n results   While(values...; cond, body) -> n results
window.py
    MaxPool(x; dims, kernel_shape, strides, padding, dilations, auto_pad, ceil_mode, return_indices, storage_order)
    AveragePool(x; dims, kernel_shape, strides, padding, dilations, auto_pad, ceil_mode, count_include_pad)
normalization.py (the others are written with Reduce and arithmetic)
    BatchNormInference(x, scale, bias, mean, variance; epsilon, feature_index)   LRN(x; axis, size, alpha, beta, bias)
image.py, sampling.py, detection.py
    Resize(x, sizes?, scales?, roi?; dims, mode, coordinate_transformation_mode, nearest_mode, ...)
    GridSample(x, grid; mode, padding_mode, align_corners)   RoiAlign(x, rois, batch_indices; mode, ...)
    NonMaxSuppression(boxes, scores, limit?, iou_threshold?, score_threshold?; center_point_box) -> int64 [n, 3]
"""
