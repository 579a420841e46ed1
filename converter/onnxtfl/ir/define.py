"""The names that op modules use: they do ``from onnxtfl.ir.define import *`` and import other ops by name.

Declarations and base classes of ops, values and types, helpers for shapes, axes and windows, the builder and formulas.
"""

from onnxtfl.ir import numeric
from onnxtfl.ir.attributes import (
    AUTO_PAD,
    Attribute,
    Axes,
    Axis,
    Body,
    Choice,
    ElementType,
    Flag,
    Float,
    Integer,
    Integers,
    Several,
    Text,
)
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, broadcast_dim, ceildiv, fresh, fresh_number, is_open, product, static, sum_of
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.formula import Derived, Formula, Number, Term, by_expansion, by_formula
from onnxtfl.ir.graph import KNOWN_LIMIT, Graph, Node, Value, constant
from onnxtfl.ir.op import (
    ANY,
    BOOLS,
    FLOATS,
    INDICES,
    INTEGERS,
    NUMERIC,
    Attributes,
    Effect,
    Elementwise,
    Op,
    Operand,
    Permutation,
    Permuted,
    Pick,
    SharedAxes,
    attributes_of,
    computed_by,
)
from onnxtfl.ir.permutations import compose, dropping, identity, inverse, rank_of, renumbered, unless_identity
from onnxtfl.ir.shapes import (
    broadcast_shapes,
    check_agree,
    check_features,
    check_positions,
    check_spreads,
    dim_array,
    dims_from,
    entry_of,
    known_dims,
    normalize_axes,
    normalize_axis,
    required_ints,
    static_ints,
    target_dims,
)
from onnxtfl.ir.spatial import LARGEST_WINDOW, Window, pad_spatial
from onnxtfl.ir.types import DType, TensorType, Type
