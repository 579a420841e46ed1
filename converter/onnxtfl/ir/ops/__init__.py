"""The neutral ops, one module a family; core.py lists the core."""

# ruff: noqa: F403 - this package is the one place where all families meet

from onnxtfl.ir.ops.activations import *
from onnxtfl.ir.ops.binary import *
from onnxtfl.ir.ops.composed import *
from onnxtfl.ir.ops.contraction import *
from onnxtfl.ir.ops.control import *
from onnxtfl.ir.ops.conversion import *
from onnxtfl.ir.ops.convolution import *
from onnxtfl.ir.ops.derived import *
from onnxtfl.ir.ops.detection import *
from onnxtfl.ir.ops.elementwise import *
from onnxtfl.ir.ops.image import *
from onnxtfl.ir.ops.indexing import *
from onnxtfl.ir.ops.layers import *
from onnxtfl.ir.ops.logic import *
from onnxtfl.ir.ops.normalization import *
from onnxtfl.ir.ops.randomness import *
from onnxtfl.ir.ops.reductions import *
from onnxtfl.ir.ops.sampling import *
from onnxtfl.ir.ops.shape import *
from onnxtfl.ir.ops.structure import *
from onnxtfl.ir.ops.window import *
