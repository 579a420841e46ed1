"""Recognition: several ops become the one ONNX op that computes the same.

Each pattern family is a module. Recognition runs for targets that have the ops.
"""

from __future__ import annotations

from onnxtfl.passes.canonical.canonicalize import MOVES
from onnxtfl.passes.canonical.shape_arithmetic import CONVERSIONS
from onnxtfl.passes.canonical.simplify import SIMPLIFY
from onnxtfl.passes.canonical.unit_axes import SINK
from onnxtfl.passes.recognize.blocks_of_groups import BLOCKS_OF_GROUPS
from onnxtfl.passes.recognize.clamping import CLAMP
from onnxtfl.passes.recognize.contractions import CONTRACTIONS
from onnxtfl.passes.recognize.convolution_parts import CONVOLUTION_PARTS
from onnxtfl.passes.recognize.convolutions import CONVOLUTIONS
from onnxtfl.passes.recognize.delegate_forms import DELEGATE_FORMS
from onnxtfl.passes.recognize.exact_quotients import EXACT_QUOTIENTS
from onnxtfl.passes.recognize.features_of_taps import FEATURES_OF_TAPS
from onnxtfl.passes.recognize.joined_slices import join_slices
from onnxtfl.passes.recognize.loops import LOOPS
from onnxtfl.passes.recognize.mirrored_ends import MIRRORED_ENDS
from onnxtfl.passes.recognize.normalization import NORMALIZATION
from onnxtfl.passes.recognize.recurrence import (
    LAST_OUTPUTS,
    LAYERS_IN_SCANS,
    RECURRENCE,
    join_directions,
    join_parts,
    recognize_layers,
)
from onnxtfl.passes.recognize.repeated_elements import REPEATED_ELEMENTS
from onnxtfl.passes.recognize.tfl_formulas import recognize_formulas
from onnxtfl.passes.recognize.whole_rows import WHOLE_ROWS
from onnxtfl.rewriting.pass_manager import EVERYWHERE, Fact, Group, Pass
from onnxtfl.rewriting.patterns import Patterns

_FORMS = Patterns.of(DELEGATE_FORMS, FEATURES_OF_TAPS, BLOCKS_OF_GROUPS, REPEATED_ELEMENTS, MIRRORED_ENDS)
_PATTERNS = Patterns.of(
    _FORMS,
    CONVOLUTION_PARTS,
    CONVOLUTIONS,
    NORMALIZATION,
    CLAMP,
    EXACT_QUOTIENTS,
    CONTRACTIONS,
    RECURRENCE,
    MOVES,
    SINK,
    CONVERSIONS,
    LOOPS,
    WHOLE_ROWS,
)
MAX_ROUNDS = 32

_NEUTRAL: frozenset[Fact] = frozenset({"neutral"})
RECOGNIZE = Group(
    "recognize",
    (
        Pass("joined slices", join_slices, EVERYWHERE),
        Pass("delegate forms", _FORMS.apply, EVERYWHERE),
        SIMPLIFY,
        Pass("formulas", recognize_formulas, EVERYWHERE),
        Pass("patterns", _PATTERNS.apply, EVERYWHERE),
        Pass("parts of sequences", join_parts, EVERYWHERE),
        Pass("directions", join_directions, EVERYWHERE),
    ),
    rounds=MAX_ROUNDS,
    needs=_NEUTRAL,
)
"""Replaces patterns that are one op in ONNX; idempotent."""
RECOGNIZE_LAYERS = Group(
    "recognize layers",
    (Pass("recurrent layers", recognize_layers, EVERYWHERE), RECOGNIZE),
    dependent=True,
    needs=_NEUTRAL,
)
"""Recognizes recurrent layers, also in the regions of loops; expects simplified steps."""

__all__ = ["LAST_OUTPUTS", "LAYERS_IN_SCANS", "RECOGNIZE", "RECOGNIZE_LAYERS"]
