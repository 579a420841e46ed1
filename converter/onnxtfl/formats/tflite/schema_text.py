"""The facts of the TFLite file format (schema version 3d), as text that `schema` reads.

Source: tensorflow/lite/schema/schema.fbs as LiteRT ships it. The order of the fields of a table, of the names of an
enum and of the members of a union is their number in the file. A field is `name:type=default`; `[type]` is a vector,
`@16` its alignment, `-` a slot that is no longer used; `graph` is the number of a subgraph. An indented line goes on
with the one before. Ops stand in the order of their builtin codes, each with its options table.
"""

from __future__ import annotations

ENUMS = """\
TensorType:byte FLOAT32 FLOAT16 INT32 UINT8 INT64 STRING BOOL INT16 COMPLEX64 INT8 FLOAT64 COMPLEX128 UINT64
    RESOURCE VARIANT UINT32 UINT16 INT4 BFLOAT16 INT2 UINT4 FLOAT8_E4M3FN FLOAT8_E5M2
DimensionType:byte DENSE SPARSE_CSR
StablehloPrecisionConfig:uint DEFAULT HIGH HIGHEST
StablehloComparisonDirection:uint STABLEHLO_COMPARISON_DIRECTION_EQ STABLEHLO_COMPARISON_DIRECTION_NE
    STABLEHLO_COMPARISON_DIRECTION_GE STABLEHLO_COMPARISON_DIRECTION_GT STABLEHLO_COMPARISON_DIRECTION_LE
    STABLEHLO_COMPARISON_DIRECTION_LT
StablehloComparisonType:uint STABLEHLO_COMPARISON_TYPE_NOTYPE STABLEHLO_COMPARISON_TYPE_FLOAT
    STABLEHLO_COMPARISON_TYPE_FLOAT_TOTAL_ORDER STABLEHLO_COMPARISON_TYPE_SIGNED
    STABLEHLO_COMPARISON_TYPE_UNSIGNED
RngAlgorithm:byte DEFAULT PHILOX THREEFRY
Padding:byte SAME VALID
ActivationFunctionType:byte NONE RELU RELU_N1_TO_1 RELU6 TANH SIGN_BIT
LSHProjectionType:byte UNKNOWN SPARSE DENSE
FullyConnectedOptionsWeightsFormat:byte DEFAULT SHUFFLED4x16INT8
LSTMKernelType:byte FULL BASIC
CombinerType:byte SUM MEAN SQRTN
MirrorPadMode:byte REFLECT SYMMETRIC
ReduceWindowFunction:int UNSUPPORTED ADD MUL MINIMUM MAXIMUM ALL ANY
CustomOptionsFormat:byte FLEXBUFFERS
"""

UNIONS = """\
QuantizationDetails CustomQuantization BlockwiseQuantization MultiAxisQuantization
SparseIndexVector Int32Vector Uint16Vector Uint8Vector
BuiltinOptions Conv2DOptions DepthwiseConv2DOptions ConcatEmbeddingsOptions LSHProjectionOptions Pool2DOptions
    SVDFOptions RNNOptions FullyConnectedOptions SoftmaxOptions ConcatenationOptions AddOptions L2NormOptions
    LocalResponseNormalizationOptions LSTMOptions ResizeBilinearOptions CallOptions ReshapeOptions
    SkipGramOptions SpaceToDepthOptions EmbeddingLookupSparseOptions MulOptions PadOptions GatherOptions
    BatchToSpaceNDOptions SpaceToBatchNDOptions TransposeOptions ReducerOptions SubOptions DivOptions
    SqueezeOptions SequenceRNNOptions StridedSliceOptions ExpOptions TopKV2Options SplitOptions
    LogSoftmaxOptions CastOptions DequantizeOptions MaximumMinimumOptions ArgMaxOptions LessOptions NegOptions
    PadV2Options GreaterOptions GreaterEqualOptions LessEqualOptions SelectOptions SliceOptions
    TransposeConvOptions SparseToDenseOptions TileOptions ExpandDimsOptions EqualOptions NotEqualOptions
    ShapeOptions PowOptions ArgMinOptions FakeQuantOptions PackOptions LogicalOrOptions OneHotOptions
    LogicalAndOptions LogicalNotOptions UnpackOptions FloorDivOptions SquareOptions ZerosLikeOptions FillOptions
    BidirectionalSequenceLSTMOptions BidirectionalSequenceRNNOptions UnidirectionalSequenceLSTMOptions
    FloorModOptions RangeOptions ResizeNearestNeighborOptions LeakyReluOptions SquaredDifferenceOptions
    MirrorPadOptions AbsOptions SplitVOptions UniqueOptions ReverseV2Options AddNOptions GatherNdOptions
    CosOptions WhereOptions RankOptions ReverseSequenceOptions MatrixDiagOptions QuantizeOptions
    MatrixSetDiagOptions HardSwishOptions IfOptions WhileOptions DepthToSpaceOptions NonMaxSuppressionV4Options
    NonMaxSuppressionV5Options ScatterNdOptions SelectV2Options DensifyOptions SegmentSumOptions
    BatchMatMulOptions CumsumOptions CallOnceOptions BroadcastToOptions Rfft2dOptions Conv3DOptions
    HashtableOptions HashtableFindOptions HashtableImportOptions HashtableSizeOptions VarHandleOptions
    ReadVariableOptions AssignVariableOptions RandomOptions BucketizeOptions GeluOptions
    DynamicUpdateSliceOptions UnsortedSegmentProdOptions UnsortedSegmentMaxOptions UnsortedSegmentMinOptions
    UnsortedSegmentSumOptions ATan2Options SignOptions BitcastOptions BitwiseXorOptions RightShiftOptions
BuiltinOptions2 StablehloConcatenateOptions StablehloBroadcastInDimOptions StablehloSliceOptions
    StablehloConvolutionOptions StablehloCustomCallOptions StablehloReduceOptions StablehloScatterOptions
    StablehloCompareOptions StablehloDynamicSliceOptions StablehloPadOptions StablehloIotaOptions
    StablehloDotGeneralOptions StablehloReduceWindowOptions StablehloSortOptions StablehloWhileOptions
    StablehloGatherOptions StablehloTransposeOptions DilateOptions StablehloRngBitGeneratorOptions
    ReduceWindowOptions StableHLOCompositeOptions StablehloShiftLeftOptions StablehloCaseOptions
"""

TABLES = """\
CustomQuantization custom:[ubyte]@16
BlockwiseQuantization scales:int zero_points:int block_size:int block_shape:[int]
MultiAxisQuantization scales:int zero_points:int block_size:int quantized_dimensions:[int]
QuantizationParameters min:[float] max:[float] scale:[float] zero_point:[long] details:QuantizationDetails
    quantized_dimension:int
Int32Vector values:[int]
Uint16Vector values:[ushort]@4
Uint8Vector values:[ubyte]@4
DimensionMetadata format:DimensionType dense_size:int array_segments:SparseIndexVector
    array_indices:SparseIndexVector
SparsityParameters traversal_order:[int] block_map:[int] dim_metadata:[DimensionMetadata]
VariantSubType shape:[int] type:TensorType has_rank:bool
Tensor shape:[int] type:TensorType buffer:uint name:string quantization:QuantizationParameters is_variable:bool
    sparsity:SparsityParameters shape_signature:[int] has_rank:bool variant_tensors:[VariantSubType]
    external_buffer:uint
StablehloGatherOptions offset_dims:[long] collapsed_slice_dims:[long] start_index_map:[long]
    index_vector_dim:long slice_sizes:[long] indices_are_sorted:bool
StablehloTransposeOptions permutation:[long]
StablehloDotGeneralOptions lhs_batching_dimensions:[long] rhs_batching_dimensions:[long]
    lhs_contracting_dimensions:[long] rhs_contracting_dimensions:[long]
    precision_config:[StablehloPrecisionConfig]
StablehloReduceWindowOptions window_dimensions:[long] window_strides:[long] base_dilations:[long]
    window_dilations:[long] padding:[long] body_subgraph_index:graph
StablehloWhileOptions cond_subgraph_index:graph body_subgraph_index:graph
StablehloSortOptions dimension:long is_stable:bool comparator_subgraph_index:graph
StablehloConcatenateOptions dimension:long
StablehloBroadcastInDimOptions broadcast_dimensions:[long]
StablehloCompareOptions comparison_direction:StablehloComparisonDirection compare_type:StablehloComparisonType
StablehloDynamicSliceOptions slice_sizes:[long]
StablehloPadOptions edge_padding_low:[long] edge_padding_high:[long] interior_padding:[long]
StablehloIotaOptions iota_dimension:long
StablehloCustomCallOptions call_target_name:string has_side_effect:bool backend_config:string api_version:int
    called_computations:[graph] custom_attributes:[ubyte]
StablehloReduceOptions dimensions:[long] body_subgraph_index:graph
StablehloSliceOptions start_indices:[long] limit_indices:[long] strides:[long]
StablehloConvolutionOptions window_strides:[long] padding:[long] lhs_dilation:[long] rhs_dilation:[long]
    window_reversal:[bool] input_batch_dimension:long input_feature_dimension:long
    input_spatial_dimensions:[long] kernel_input_feature_dimension:long kernel_output_feature_dimension:long
    kernel_spatial_dimensions:[long] output_batch_dimension:long output_feature_dimension:long
    output_spatial_dimensions:[long] feature_group_count:long batch_group_count:long
    precision_config:[StablehloPrecisionConfig]
StablehloScatterOptions indices_are_sorted:bool update_window_dims:[long] inserted_window_dims:[long]
    scatter_dims_to_operand_dims:[long] index_vector_dim:long unique_indices:bool
    update_computation_subgraph_index:graph
StablehloCaseOptions branch_subgraph_indices:[graph]
StablehloRngBitGeneratorOptions algorithm:RngAlgorithm
Conv2DOptions padding:Padding stride_w:int stride_h:int fused_activation_function:ActivationFunctionType
    dilation_w_factor:int=1 dilation_h_factor:int=1 quantized_bias_type:TensorType
Conv3DOptions padding:Padding stride_d:int stride_w:int stride_h:int
    fused_activation_function:ActivationFunctionType dilation_d_factor:int=1 dilation_w_factor:int=1
    dilation_h_factor:int=1
Pool2DOptions padding:Padding stride_w:int stride_h:int filter_width:int filter_height:int
    fused_activation_function:ActivationFunctionType
DepthwiseConv2DOptions padding:Padding stride_w:int stride_h:int depth_multiplier:int
    fused_activation_function:ActivationFunctionType dilation_w_factor:int=1 dilation_h_factor:int=1
ConcatEmbeddingsOptions num_channels:int num_columns_per_channel:[int] embedding_dim_per_channel:[int]
LSHProjectionOptions type:LSHProjectionType
SVDFOptions rank:int fused_activation_function:ActivationFunctionType asymmetric_quantize_inputs:bool
RNNOptions fused_activation_function:ActivationFunctionType asymmetric_quantize_inputs:bool
SequenceRNNOptions time_major:bool fused_activation_function:ActivationFunctionType
    asymmetric_quantize_inputs:bool
BidirectionalSequenceRNNOptions time_major:bool fused_activation_function:ActivationFunctionType
    merge_outputs:bool asymmetric_quantize_inputs:bool
FullyConnectedOptions fused_activation_function:ActivationFunctionType
    weights_format:FullyConnectedOptionsWeightsFormat keep_num_dims:bool asymmetric_quantize_inputs:bool
    quantized_bias_type:TensorType quant_spec:[ubyte]
SoftmaxOptions beta:float
ConcatenationOptions axis:int fused_activation_function:ActivationFunctionType
AddOptions fused_activation_function:ActivationFunctionType pot_scale_int16:bool=true
MulOptions fused_activation_function:ActivationFunctionType
L2NormOptions fused_activation_function:ActivationFunctionType
LocalResponseNormalizationOptions radius:int bias:float alpha:float beta:float
LSTMOptions fused_activation_function:ActivationFunctionType cell_clip:float proj_clip:float
    kernel_type:LSTMKernelType asymmetric_quantize_inputs:bool
UnidirectionalSequenceLSTMOptions fused_activation_function:ActivationFunctionType cell_clip:float
    proj_clip:float time_major:bool asymmetric_quantize_inputs:bool diagonal_recurrent_tensors:bool
BidirectionalSequenceLSTMOptions fused_activation_function:ActivationFunctionType cell_clip:float
    proj_clip:float merge_outputs:bool time_major:bool=true asymmetric_quantize_inputs:bool
ResizeBilinearOptions - - align_corners:bool half_pixel_centers:bool
ResizeNearestNeighborOptions align_corners:bool half_pixel_centers:bool
CallOptions subgraph:graph
PadOptions
PadV2Options
ReshapeOptions new_shape:[int]
SpaceToBatchNDOptions
BatchToSpaceNDOptions
SkipGramOptions ngram_size:int max_skip_size:int include_all_ngrams:bool
SpaceToDepthOptions block_size:int
DepthToSpaceOptions block_size:int
SubOptions fused_activation_function:ActivationFunctionType pot_scale_int16:bool=true
DivOptions fused_activation_function:ActivationFunctionType
TopKV2Options
EmbeddingLookupSparseOptions combiner:CombinerType
GatherOptions axis:int batch_dims:int
TransposeOptions
ExpOptions
CosOptions
ReducerOptions keep_dims:bool
SqueezeOptions squeeze_dims:[int]
SplitOptions num_splits:int
SplitVOptions num_splits:int
StridedSliceOptions begin_mask:int end_mask:int ellipsis_mask:int new_axis_mask:int shrink_axis_mask:int
    offset:bool
LogSoftmaxOptions
CastOptions in_data_type:TensorType out_data_type:TensorType
DequantizeOptions
MaximumMinimumOptions
TileOptions
ArgMaxOptions output_type:TensorType
ArgMinOptions output_type:TensorType
GreaterOptions
GreaterEqualOptions
LessOptions
LessEqualOptions
NegOptions
SelectOptions
SliceOptions
TransposeConvOptions padding:Padding stride_w:int stride_h:int
    fused_activation_function:ActivationFunctionType quantized_bias_type:TensorType
ExpandDimsOptions
SparseToDenseOptions validate_indices:bool
EqualOptions
NotEqualOptions
ShapeOptions out_type:TensorType
RankOptions
PowOptions
FakeQuantOptions min:float max:float num_bits:int narrow_range:bool
PackOptions values_count:int axis:int
LogicalOrOptions
OneHotOptions axis:int
AbsOptions
HardSwishOptions
LogicalAndOptions
LogicalNotOptions
UnpackOptions num:int axis:int
FloorDivOptions
SquareOptions
ZerosLikeOptions
FillOptions
FloorModOptions
RangeOptions
LeakyReluOptions alpha:float
SquaredDifferenceOptions
MirrorPadOptions mode:MirrorPadMode
UniqueOptions idx_out_type:TensorType=INT32
ReverseV2Options
AddNOptions
GatherNdOptions
WhereOptions
ReverseSequenceOptions seq_dim:int batch_dim:int
MatrixDiagOptions
QuantizeOptions
MatrixSetDiagOptions
IfOptions then_subgraph_index:graph else_subgraph_index:graph
CallOnceOptions init_subgraph_index:graph
WhileOptions cond_subgraph_index:graph body_subgraph_index:graph
NonMaxSuppressionV4Options
NonMaxSuppressionV5Options
ScatterNdOptions
SelectV2Options
DensifyOptions
SegmentSumOptions
BatchMatMulOptions adj_x:bool adj_y:bool asymmetric_quantize_inputs:bool
CumsumOptions exclusive:bool reverse:bool
BroadcastToOptions
Rfft2dOptions
HashtableOptions table_id:int key_dtype:TensorType value_dtype:TensorType
HashtableFindOptions
HashtableImportOptions
HashtableSizeOptions
VarHandleOptions container:string shared_name:string
ReadVariableOptions
AssignVariableOptions
RandomOptions seed:long seed2:long
BucketizeOptions boundaries:[float]
GeluOptions approximate:bool
DynamicUpdateSliceOptions
UnsortedSegmentProdOptions
UnsortedSegmentMaxOptions
UnsortedSegmentSumOptions
ATan2Options
UnsortedSegmentMinOptions
SignOptions
BitcastOptions
BitwiseXorOptions
RightShiftOptions
DilateOptions
ReduceWindowOptions reduce_function:ReduceWindowFunction
OperatorCode deprecated_builtin_code:byte custom_code:string version:int=1 builtin_code:BuiltinOperator
StableHLOCompositeOptions name:string decomposition_subgraph_index:graph composite_attributes:[ubyte]
    composite_attributes_format:CustomOptionsFormat version:int
StablehloShiftLeftOptions
Operator opcode_index:uint inputs:[int] outputs:[int] builtin_options:BuiltinOptions custom_options:[ubyte]
    custom_options_format:CustomOptionsFormat mutating_variable_inputs:[bool] intermediates:[int]
    large_custom_options_offset:ulong large_custom_options_size:ulong builtin_options_2:BuiltinOptions2
    debug_metadata_index:int=-1
SubGraph tensors:[Tensor] inputs:[int] outputs:[int] operators:[Operator] name:string
    debug_metadata_index:int=-1
Buffer data:[ubyte]@16 offset:ulong size:ulong
ExternalBufferGroup name:string
ExternalBuffer id:uint group:uint offset:ulong length:ulong packing:string
Metadata name:string buffer:uint
TensorMap name:string tensor_index:uint
SignatureDef inputs:[TensorMap] outputs:[TensorMap] signature_key:string - subgraph_index:uint
Model version:uint operator_codes:[OperatorCode] subgraphs:[SubGraph] description:string buffers:[Buffer]
    metadata_buffer:[int] metadata:[Metadata] signature_defs:[SignatureDef]
    external_buffer_groups:[ExternalBufferGroup] external_buffers:[ExternalBuffer]
"""

OPS = """\
ADD:AddOptions AVERAGE_POOL_2D:Pool2DOptions CONCATENATION:ConcatenationOptions CONV_2D:Conv2DOptions
DEPTHWISE_CONV_2D:DepthwiseConv2DOptions DEPTH_TO_SPACE:DepthToSpaceOptions DEQUANTIZE:DequantizeOptions
EMBEDDING_LOOKUP FLOOR FULLY_CONNECTED:FullyConnectedOptions HASHTABLE_LOOKUP L2_NORMALIZATION:L2NormOptions
L2_POOL_2D:Pool2DOptions LOCAL_RESPONSE_NORMALIZATION:LocalResponseNormalizationOptions LOGISTIC
LSH_PROJECTION:LSHProjectionOptions LSTM:LSTMOptions MAX_POOL_2D:Pool2DOptions MUL:MulOptions RELU RELU_N1_TO_1 RELU6
RESHAPE:ReshapeOptions RESIZE_BILINEAR:ResizeBilinearOptions RNN:RNNOptions SOFTMAX:SoftmaxOptions
SPACE_TO_DEPTH:SpaceToDepthOptions SVDF:SVDFOptions TANH CONCAT_EMBEDDINGS:ConcatEmbeddingsOptions
SKIP_GRAM:SkipGramOptions CALL:CallOptions CUSTOM EMBEDDING_LOOKUP_SPARSE:EmbeddingLookupSparseOptions PAD:PadOptions
UNIDIRECTIONAL_SEQUENCE_RNN:SequenceRNNOptions GATHER:GatherOptions BATCH_TO_SPACE_ND:BatchToSpaceNDOptions
SPACE_TO_BATCH_ND:SpaceToBatchNDOptions TRANSPOSE:TransposeOptions MEAN:ReducerOptions SUB:SubOptions DIV:DivOptions
SQUEEZE:SqueezeOptions UNIDIRECTIONAL_SEQUENCE_LSTM:UnidirectionalSequenceLSTMOptions
STRIDED_SLICE:StridedSliceOptions BIDIRECTIONAL_SEQUENCE_RNN:BidirectionalSequenceRNNOptions EXP:ExpOptions
TOPK_V2:TopKV2Options SPLIT:SplitOptions LOG_SOFTMAX:LogSoftmaxOptions DELEGATE
BIDIRECTIONAL_SEQUENCE_LSTM:BidirectionalSequenceLSTMOptions CAST:CastOptions PRELU MAXIMUM:MaximumMinimumOptions
ARG_MAX:ArgMaxOptions MINIMUM:MaximumMinimumOptions LESS:LessOptions NEG:NegOptions PADV2:PadV2Options
GREATER:GreaterOptions GREATER_EQUAL:GreaterEqualOptions LESS_EQUAL:LessEqualOptions SELECT:SelectOptions
SLICE:SliceOptions SIN TRANSPOSE_CONV:TransposeConvOptions SPARSE_TO_DENSE:SparseToDenseOptions TILE:TileOptions
EXPAND_DIMS:ExpandDimsOptions EQUAL:EqualOptions NOT_EQUAL:NotEqualOptions LOG SUM:ReducerOptions SQRT RSQRT
SHAPE:ShapeOptions POW:PowOptions ARG_MIN:ArgMinOptions FAKE_QUANT:FakeQuantOptions REDUCE_PROD:ReducerOptions
REDUCE_MAX:ReducerOptions PACK:PackOptions LOGICAL_OR:LogicalOrOptions ONE_HOT:OneHotOptions
LOGICAL_AND:LogicalAndOptions LOGICAL_NOT:LogicalNotOptions UNPACK:UnpackOptions REDUCE_MIN:ReducerOptions
FLOOR_DIV:FloorDivOptions REDUCE_ANY:ReducerOptions SQUARE:SquareOptions ZEROS_LIKE:ZerosLikeOptions FILL:FillOptions
FLOOR_MOD:FloorModOptions RANGE:RangeOptions RESIZE_NEAREST_NEIGHBOR:ResizeNearestNeighborOptions
LEAKY_RELU:LeakyReluOptions SQUARED_DIFFERENCE:SquaredDifferenceOptions MIRROR_PAD:MirrorPadOptions ABS:AbsOptions
SPLIT_V:SplitVOptions UNIQUE:UniqueOptions CEIL REVERSE_V2:ReverseV2Options ADD_N:AddNOptions
GATHER_ND:GatherNdOptions COS:CosOptions WHERE:WhereOptions RANK:RankOptions ELU
REVERSE_SEQUENCE:ReverseSequenceOptions MATRIX_DIAG:MatrixDiagOptions QUANTIZE:QuantizeOptions
MATRIX_SET_DIAG:MatrixSetDiagOptions ROUND HARD_SWISH:HardSwishOptions IF:IfOptions WHILE:WhileOptions
NON_MAX_SUPPRESSION_V4:NonMaxSuppressionV4Options NON_MAX_SUPPRESSION_V5:NonMaxSuppressionV5Options
SCATTER_ND:ScatterNdOptions SELECT_V2:SelectV2Options DENSIFY:DensifyOptions SEGMENT_SUM:SegmentSumOptions
BATCH_MATMUL:BatchMatMulOptions PLACEHOLDER_FOR_GREATER_OP_CODES CUMSUM:CumsumOptions CALL_ONCE:CallOnceOptions
BROADCAST_TO:BroadcastToOptions RFFT2D:Rfft2dOptions CONV_3D:Conv3DOptions IMAG REAL COMPLEX_ABS
HASHTABLE:HashtableOptions HASHTABLE_FIND:HashtableFindOptions HASHTABLE_IMPORT:HashtableImportOptions
HASHTABLE_SIZE:HashtableSizeOptions REDUCE_ALL:ReducerOptions CONV_3D_TRANSPOSE:Conv3DOptions
VAR_HANDLE:VarHandleOptions READ_VARIABLE:ReadVariableOptions ASSIGN_VARIABLE:AssignVariableOptions BROADCAST_ARGS
RANDOM_STANDARD_NORMAL:RandomOptions BUCKETIZE:BucketizeOptions RANDOM_UNIFORM:RandomOptions MULTINOMIAL:RandomOptions
GELU:GeluOptions DYNAMIC_UPDATE_SLICE:DynamicUpdateSliceOptions RELU_0_TO_1
UNSORTED_SEGMENT_PROD:UnsortedSegmentProdOptions UNSORTED_SEGMENT_MAX:UnsortedSegmentMaxOptions
UNSORTED_SEGMENT_SUM:UnsortedSegmentSumOptions ATAN2:ATan2Options UNSORTED_SEGMENT_MIN:UnsortedSegmentMinOptions
SIGN:SignOptions BITCAST:BitcastOptions BITWISE_XOR:BitwiseXorOptions RIGHT_SHIFT:RightShiftOptions STABLEHLO_LOGISTIC
STABLEHLO_ADD STABLEHLO_DIVIDE STABLEHLO_MULTIPLY STABLEHLO_MAXIMUM STABLEHLO_RESHAPE STABLEHLO_CLAMP
STABLEHLO_CONCATENATE:StablehloConcatenateOptions STABLEHLO_BROADCAST_IN_DIM:StablehloBroadcastInDimOptions
STABLEHLO_CONVOLUTION:StablehloConvolutionOptions STABLEHLO_SLICE:StablehloSliceOptions
STABLEHLO_CUSTOM_CALL:StablehloCustomCallOptions STABLEHLO_REDUCE:StablehloReduceOptions STABLEHLO_ABS STABLEHLO_AND
STABLEHLO_COSINE STABLEHLO_EXPONENTIAL STABLEHLO_FLOOR STABLEHLO_LOG STABLEHLO_MINIMUM STABLEHLO_NEGATE STABLEHLO_OR
STABLEHLO_POWER STABLEHLO_REMAINDER STABLEHLO_RSQRT STABLEHLO_SELECT STABLEHLO_SUBTRACT STABLEHLO_TANH
STABLEHLO_SCATTER:StablehloScatterOptions STABLEHLO_COMPARE:StablehloCompareOptions STABLEHLO_CONVERT
STABLEHLO_DYNAMIC_SLICE:StablehloDynamicSliceOptions STABLEHLO_DYNAMIC_UPDATE_SLICE STABLEHLO_PAD:StablehloPadOptions
STABLEHLO_IOTA:StablehloIotaOptions STABLEHLO_DOT_GENERAL:StablehloDotGeneralOptions
STABLEHLO_REDUCE_WINDOW:StablehloReduceWindowOptions STABLEHLO_SORT:StablehloSortOptions
STABLEHLO_WHILE:StablehloWhileOptions STABLEHLO_GATHER:StablehloGatherOptions
STABLEHLO_TRANSPOSE:StablehloTransposeOptions DILATE:DilateOptions
STABLEHLO_RNG_BIT_GENERATOR:StablehloRngBitGeneratorOptions REDUCE_WINDOW:ReduceWindowOptions
STABLEHLO_COMPOSITE:StableHLOCompositeOptions STABLEHLO_SHIFT_LEFT:StablehloShiftLeftOptions STABLEHLO_CBRT
STABLEHLO_CASE:StablehloCaseOptions
"""
