"""Quantization in the neutral graph: types from Q/DQ ops, ops on quantized types, their storage, Q/DQ pairs.

:func:`summary` reports the result in a converted model.
"""

from onnxtfl.ir.quantized import has_quantized
from onnxtfl.passes.quantize.block_rows import gather_block_rows
from onnxtfl.passes.quantize.blocks import use_block_weights
from onnxtfl.passes.quantize.constants import STORED_CLAMPS, use_integer_constants
from onnxtfl.passes.quantize.dequantize import dequantize_all
from onnxtfl.passes.quantize.dynamic import multiply_whole_rows
from onnxtfl.passes.quantize.edges import QuantizedIo, count_steps_of_outputs, set_quantized_io
from onnxtfl.passes.quantize.feature_scales import FEATURE_SCALES
from onnxtfl.passes.quantize.fuse import fuse_quantized
from onnxtfl.passes.quantize.hybrid import (
    TOLERANCE,
    multiply_real,
    remark_dynamic_products,
    use_hybrid_weights,
)
from onnxtfl.passes.quantize.int8_as_uint8 import store_as_uint8
from onnxtfl.passes.quantize.real_constants import store_real_constants
from onnxtfl.passes.quantize.real_results import REAL_RESULTS
from onnxtfl.passes.quantize.saturate import saturate_quantized
from onnxtfl.passes.quantize.steps import write_steps
from onnxtfl.passes.quantize.summary import summary
from onnxtfl.passes.quantize.surround import surround_moves
from onnxtfl.passes.quantize.types import read_quantized_types
from onnxtfl.passes.quantize.uint8_as_int8 import store_as_int8

__all__ = [
    "FEATURE_SCALES",
    "REAL_RESULTS",
    "STORED_CLAMPS",
    "TOLERANCE",
    "QuantizedIo",
    "count_steps_of_outputs",
    "dequantize_all",
    "fuse_quantized",
    "gather_block_rows",
    "has_quantized",
    "multiply_real",
    "multiply_whole_rows",
    "read_quantized_types",
    "remark_dynamic_products",
    "saturate_quantized",
    "set_quantized_io",
    "store_as_int8",
    "store_as_uint8",
    "store_real_constants",
    "summary",
    "surround_moves",
    "use_block_weights",
    "use_hybrid_weights",
    "use_integer_constants",
    "write_steps",
]
