"""The passes of each stage of a conversion, for a target and options; `pipeline` defines their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from onnxtfl.dataclass import dataclass
from onnxtfl.formats.bodies import body
from onnxtfl.formats.tflite.schema import state_operands
from onnxtfl.ir.graph import Graph
from onnxtfl.options import Options
from onnxtfl.passes import quantize
from onnxtfl.passes.boundary.fixed_sizes import refuse_open_results
from onnxtfl.passes.boundary.origins import note_origins_of_moved
from onnxtfl.passes.boundary.parts import separate_outputs, separate_region_outputs
from onnxtfl.passes.boundary.sequences import flatten_outputs
from onnxtfl.passes.canonical.canonicalize import MOVES
from onnxtfl.passes.canonical.columns import transpose_columns
from onnxtfl.passes.canonical.converted_weights import CONVERTED_WEIGHTS
from onnxtfl.passes.canonical.dead_code import remove_dead
from onnxtfl.passes.canonical.declared_sizes import lift_with_declared_sizes
from onnxtfl.passes.canonical.feature_sizes import fix_features
from onnxtfl.passes.canonical.few_axes import leave_out_unit_axes
from onnxtfl.passes.canonical.growth import Growth
from onnxtfl.passes.canonical.half_kernels import narrow_kernels, widen_kernels
from onnxtfl.passes.canonical.joined_convolutions import join_convolutions
from onnxtfl.passes.canonical.merged_columns import merge_columns
from onnxtfl.passes.canonical.merged_groups import merge_groups
from onnxtfl.passes.canonical.merged_pads import pad_rows
from onnxtfl.passes.canonical.parted_convolutions import FEATURES, READ_TAPS
from onnxtfl.passes.canonical.parted_pools import PARTED_POOLS
from onnxtfl.passes.canonical.phases import PHASES
from onnxtfl.passes.canonical.row_pairs import compute_pairs_of_rows
from onnxtfl.passes.canonical.shape_arithmetic import CONVERSIONS, SHAPE_ARITHMETIC
from onnxtfl.passes.canonical.shared_operands import share_operands
from onnxtfl.passes.canonical.simplify import CLEANUP, SIMPLIFY
from onnxtfl.passes.canonical.sizes_of_inputs import read_sizes_of_inputs
from onnxtfl.passes.canonical.slow_axes import SLOW_AXES, SOFTMAX_ROWS
from onnxtfl.passes.canonical.strided_slices import slice_runs
from onnxtfl.passes.canonical.taps import TAPS
from onnxtfl.passes.canonical.taps_as_features import TAPS_AS_FEATURES
from onnxtfl.passes.canonical.unit_axes import sink_reshapes
from onnxtfl.passes.canonical.used_parts import slice_used_parts
from onnxtfl.passes.canonical.used_positions import compute_used_positions
from onnxtfl.passes.gains import Gains
from onnxtfl.passes.layout import assign_layouts
from onnxtfl.passes.loops.invariants import LOOP_INVARIANTS
from onnxtfl.passes.loops.simplification import LOOP_SIMPLIFICATION
from onnxtfl.passes.states.kept import keep_states
from onnxtfl.passes.states.state_tensors import own_state_tensors
from onnxtfl.passes.tfl.constant_outputs import join_constant_outputs
from onnxtfl.passes.tfl.first_op import begin_with_builtin_op
from onnxtfl.passes.tfl.fuse_activations import fuse_activations
from onnxtfl.passes.tfl.pass_through import pass_through
from onnxtfl.passes.tfl.prepared_outputs import copy_prepared
from onnxtfl.passes.tfl.shared_memory import copy_overwritten
from onnxtfl.passes.types.element_types import int64_passes, replaced_types
from onnxtfl.passes.types.float16 import float16_passes
from onnxtfl.passes.types.floats import hold_few_bits, hold_two_bits
from onnxtfl.rewriting import legalize as legalization
from onnxtfl.rewriting.custom import allowing_custom
from onnxtfl.rewriting.lift import lift as lift_ops
from onnxtfl.rewriting.lower import lower as lower_ops
from onnxtfl.rewriting.pass_manager import EVERYWHERE, MAIN_ONLY, Fact, Group, Pass, idle
from onnxtfl.rewriting.patterns import Patterns
from onnxtfl.targets import Target
from onnxtfl.targets.tflite import TfliteTarget

Passes = Sequence[Pass | Group]
NEUTRAL: frozenset[Fact] = frozenset({"neutral"})
LEGAL: frozenset[Fact] = frozenset({"legal"})
LAID_OUT: frozenset[Fact] = frozenset({"laid out"})
LOWERED: frozenset[Fact] = frozenset({"lowered"})


def always(target: Target, options: Options) -> bool:
    """True for conversions in both directions."""
    return True


def to_tflite(target: Target, options: Options) -> bool:
    """Whether the conversion is to TFLite."""
    return isinstance(target, TfliteTarget)


def to_onnx(target: Target, options: Options) -> bool:
    """Whether the conversion is to ONNX."""
    return target.name == "onnx"


@dataclass(frozen=True)
class Stage:
    """Passes with one purpose; ``when``: the condition on conversions that run them."""

    name: str
    passes: Callable[[Target, Options], Passes]
    when: Callable[[Target, Options], bool] = always


def given(*passes: Pass | Group) -> Callable[[Target, Options], Passes]:
    """Passes that are the same for all targets and options."""
    return lambda target, options: passes


def lift(target: Target, options: Options) -> Passes:
    """Rewrite the ops of a file to neutral ones."""
    expand = allowing_custom(body) if options.allow_custom else body
    lifted = lift_ops if target.has_open_sizes else lift_with_declared_sizes
    return (
        Pass("lift", partial(lifted, expand=expand), MAIN_ONLY, establishes=NEUTRAL),
        Pass("sequences", flatten_outputs, MAIN_ONLY),
        Pass("remove dead", remove_dead, EVERYWHERE),
        Pass("fix features", fix_features, MAIN_ONLY, needs=NEUTRAL),
    )


def element_types(target: Target, options: Options) -> Passes:
    """Replace element types by those in which the target computes."""
    return replaced_types(target, options.float64, options.io_dtype, options.float16)


def small_types(target: Target, options: Options) -> Passes:
    """Return the passes for small integers and complex numbers, for which ONNX lacks ops."""
    from onnxtfl.passes.types.complex_numbers import split_complex, split_complex_in_region

    return (
        Pass("small types", hold_few_bits, hold_two_bits, needs=NEUTRAL),
        Pass("complex numbers", split_complex, split_complex_in_region, needs=NEUTRAL),
    )


def dequantized(target: Target, options: Options) -> Passes:
    """Return the passes that dequantize a model, by option."""
    wanted = options.quantized == "float"
    return [Pass("dequantize", quantize.dequantize_all, EVERYWHERE, needs=NEUTRAL)] if wanted else []


def real_arithmetic(target: Target, options: Options) -> Passes:
    """Return the passes that dequantize a model, by option or for a target without integer kernels."""
    made = Pass("real arithmetic", quantize.dequantize_all, EVERYWHERE, needs=NEUTRAL)
    return [made, SIMPLIFY] if target.is_real or options.quantized == "float" else []


def dynamic_products(target: Target, options: Options) -> Passes:
    """Products of activations that are quantized at run time, and rows of tables with scales of blocks."""
    rows = Pass("block rows", partial(quantize.gather_block_rows, target=target), EVERYWHERE, needs=NEUTRAL)
    return [*_products(target, options), *([rows] if to_tflite(target, options) else [])]


def _products(target: Target, options: Options) -> Passes:
    if options.dynamic_quant == "hybrid" or target.is_real or options.quantized == "float":
        real = Pass("real products", quantize.multiply_real, EVERYWHERE, needs=NEUTRAL)
        blocks = Pass("block weights", partial(quantize.use_block_weights, target=target), EVERYWHERE, needs=NEUTRAL)
        return [real, *([blocks] if isinstance(target, TfliteTarget) and target.hybrid else [])]
    helps = target.name == "tfl" and target.has_hybrid_kernels
    if not helps:
        return []
    return [
        Pass("dynamic products", quantize.multiply_whole_rows, EVERYWHERE, needs=NEUTRAL),
        Pass("remark dynamic products", quantize.remark_dynamic_products, EVERYWHERE, needs=NEUTRAL),
    ]


def quantized_types(target: Target, options: Options) -> Passes:
    """Tensors between QuantizeLinear and DequantizeLinear get quantized types."""
    typed = partial(quantize.read_quantized_types, target=target)
    return [Pass("quantized types", typed, partial(typed, is_region=True), needs=NEUTRAL)]


def fixed_caches(target: Target, options: Options) -> Passes:
    """Caches of a fixed length, in decoders."""
    if options.caches is None:
        return []
    decided = Pass("decide sizes", options.caches.decide, MAIN_ONLY, needs=NEUTRAL)
    fixed = Pass("fixed caches", options.caches.fix, MAIN_ONLY, needs=NEUTRAL)
    return [Group("decided sizes", (decided, SIMPLIFY), dependent=True, needs=NEUTRAL), fixed, SIMPLIFY]


def recognized(target: Target, options: Options) -> Passes:
    """Fuse several ops to the one that ONNX has for them."""
    from onnxtfl.passes.recognize import RECOGNIZE, RECOGNIZE_LAYERS

    return kernels_as_constants(RECOGNIZE, RECOGNIZE_LAYERS)


def kernels_as_constants(*passes: Pass | Group) -> Passes:
    """Run `passes` with the kernels of convolutions that are stored as float16 as constants."""
    widen = Pass("widen kernels", widen_kernels, EVERYWHERE)
    return [widen, *passes, Pass("narrow kernels", narrow_kernels, EVERYWHERE)]


def layers_of_scans(target: Target, options: Options) -> Passes:
    """Recognize recurrent layers in loops only; the patterns are imported for graphs with loops."""

    def recognize(graph: Graph) -> bool:
        from onnxtfl.passes.recognize import LAYERS_IN_SCANS

        return LAYERS_IN_SCANS.apply(graph)

    layers = Pass("layers of scans", recognize, EVERYWHERE, when=lambda graph: graph.holders > 0)
    return [Group("layers of scans", (layers, *CLEANUP), dependent=True, needs=NEUTRAL)]


def last_outputs(target: Target, options: Options) -> Passes:
    """Simplify loops of which only the last outputs are used."""
    if not options.has_small_loops:
        return []
    from onnxtfl.passes.recognize import LAST_OUTPUTS

    return [Pass("last outputs", LAST_OUTPUTS.apply, EVERYWHERE, needs=NEUTRAL), *CLEANUP]


def quantized_io(target: Target, options: Options) -> Pass:
    """The element types of quantized inputs and outputs."""
    edges = partial(quantize.set_quantized_io, kind=options.quantized_io)
    return Pass("quantized io", edges, MAIN_ONLY, needs=NEUTRAL)


FUSE_QUANTIZED = Pass("fuse quantized", quantize.fuse_quantized, EVERYWHERE, needs=NEUTRAL, when=quantize.has_quantized)


def quantized_for_onnx(target: Target, options: Options) -> Passes:
    """Ops on quantized types: ONNX Runtime's optimizer wants uint8."""
    uint8 = Pass("uint8 storage", quantize.store_as_uint8, EVERYWHERE, needs=NEUTRAL, when=quantize.has_quantized)
    counted = Pass("int32 outputs", quantize.count_steps_of_outputs, MAIN_ONLY, needs=NEUTRAL)
    edges = quantized_io(target, options)
    return [FUSE_QUANTIZED, *([] if target.has_integer_ops else [uint8]), edges, counted, SIMPLIFY]


def quantized_for_tflite(target: Target, options: Options) -> Passes:
    """Ops on quantized types: integer kernels want int8."""
    int8 = partial(quantize.store_as_int8, always=not target.has_uint8_kernels)
    rounded = options.dynamic_quant == "hybrid"
    hybrid = Pass("hybrid", partial(quantize.use_hybrid_weights, exactly=not rounded), EVERYWHERE, needs=NEUTRAL)
    real = Pass("real results", quantize.REAL_RESULTS.apply, EVERYWHERE, needs=NEUTRAL, when=quantize.has_quantized)
    return [
        Pass("feature scales", quantize.FEATURE_SCALES.apply, EVERYWHERE, needs=NEUTRAL, when=quantize.has_quantized),
        Pass(
            "integer constants", quantize.use_integer_constants, EVERYWHERE, needs=NEUTRAL, when=quantize.has_quantized
        ),
        FUSE_QUANTIZED,
        Pass("stored clamps", quantize.STORED_CLAMPS.apply, EVERYWHERE, needs=NEUTRAL, when=quantize.has_quantized),
        Pass("int8 storage", int8, EVERYWHERE, needs=NEUTRAL, when=quantize.has_quantized),
        quantized_io(target, options),
        *([real, hybrid] if rounded or target.has_hybrid_kernels else []),
        SIMPLIFY,
        *int64_passes(target),
    ]


def kept_states(target: Target, options: Options) -> Passes:
    """Layers whose states the runtime keeps."""
    kept = partial(keep_states, target=target)
    return [Pass("keep states", kept, MAIN_ONLY, needs=NEUTRAL)] if options.lstm == "fused" else []


def opset(target: Target, options: Options) -> Passes:
    """Raise the opset if ops need a newer one."""
    from onnxtfl.targets.onnx import OnnxTarget

    return [Pass("opset", target.raise_opset, EVERYWHERE)] if isinstance(target, OnnxTarget) else []


def real_constants(target: Target, options: Options) -> Passes:
    """Store quantized constants as real ones if only real arithmetic reads them."""
    stored = Pass("real constants", quantize.store_real_constants, EVERYWHERE)
    return [] if target.has_hybrid_kernels else [Group("real constants", (stored, *CLEANUP), dependent=True)]


def formulas(target: Target, options: Options) -> Passes:
    """Expand ops that are formulas of other ops, so that these can be simplified."""
    written = Pass("write formulas", partial(legalization.write_formulas, target=target), EVERYWHERE)
    return [Group("formulas", (written, SIMPLIFY), dependent=True, needs=NEUTRAL)]


def used_positions(target: Target, options: Options) -> Passes:
    """Products of which a part is read: compute this part only."""
    positions = Pass("used positions", compute_used_positions, EVERYWHERE)
    return [Group("used positions", (positions, *CLEANUP), dependent=True, needs=NEUTRAL)]


def delegate_forms(target: Target, options: Options) -> Passes:
    """Write convolutions, pools and concatenations as the delegate's kernels compute them fastest.

    A quantizer would round each part of a sum.
    """
    if not isinstance(target, TfliteTarget) or target.delegate is None:
        return []
    gains, growth, is_exact = Gains(target), Growth(), not options.is_quantized_later
    surely = partial(gains.pays, surely=True)
    forms = Patterns.of(PHASES, CONVERTED_WEIGHTS, PARTED_POOLS, *([TAPS, READ_TAPS] if is_exact else []))
    convolutions = Pass("convolutions", partial(forms.apply, pays=gains.pays), EVERYWHERE)
    features = Pass("features in parts", partial(FEATURES.apply, pays=gains.pays), EVERYWHERE)
    taps = Pass("taps as features", partial(TAPS_AS_FEATURES.apply, pays=surely), EVERYWHERE)
    sums = [features, taps] if is_exact else []
    joined = Pass("joined convolutions", partial(join_convolutions, pays=surely), EVERYWHERE)
    shared = Pass("shared operands", share_operands, EVERYWHERE)
    groups = Pass("merged groups", partial(merge_groups, growth=growth), EVERYWHERE)
    pairs = Pass("pairs of rows", partial(compute_pairs_of_rows, growth=growth), EVERYWHERE)
    in_pairs = [Group("pairs of rows", (pairs, *CLEANUP), dependent=True, needs=NEUTRAL)] if is_exact else []
    whole = Group("convolutions", (groups, convolutions, *sums, joined, shared, *CLEANUP), needs=NEUTRAL)
    return kernels_as_constants(whole, *in_pairs)


def integer_sums(target: Target, options: Options) -> Passes:
    """Sums of integers that wrap around in ONNX Runtime too."""
    from onnxtfl.passes.types.integer_sums import INTEGER_SUMS

    return [Pass("integer sums", INTEGER_SUMS.apply, EVERYWHERE, needs=NEUTRAL)]


def separate(target: Target, options: Options) -> Passes:
    """Separate outputs that are the same tensor."""
    outputs = partial(separate_outputs, shares_inputs=target.shares_inputs)
    return [Pass("separate outputs", outputs, separate_region_outputs)]


def float16(target: Target, options: Options) -> Passes:
    """Ops that compute in float16; masks and sums of squares that stay in its range."""
    passes = float16_passes(target, options.float16)
    if isinstance(target, TfliteTarget) and target.table.half:
        from onnxtfl.inputs.of_graph import inputs_of
        from onnxtfl.passes.types.masks import saturate_masks
        from onnxtfl.passes.types.squares import scale_squares

        scaled = partial(scale_squares, inputs=partial(inputs_of, given=options.check_data))
        passes += [
            Pass("masks", saturate_masks, EVERYWHERE, needs=NEUTRAL),
            Pass("squares", scaled, MAIN_ONLY, needs=NEUTRAL),
        ]
    return passes


def legalize(target: Target, options: Options) -> Passes:
    """Return the passes that legalize all ops for the target."""
    return [
        Pass("legalize", partial(legalization.legalize, target=target), EVERYWHERE, needs=NEUTRAL, establishes=LEGAL)
    ]


def saturate(target: Target, options: Options) -> Passes:
    """Clamp quantized values that kernels do not saturate."""
    saturated = Pass("saturate", partial(quantize.saturate_quantized, target=target), EVERYWHERE, needs=LEGAL)
    return [] if target.saturated_steps is None else [saturated]


def _tidied(target: Target, options: Options) -> Passes:
    moves = Patterns.of(MOVES, SHAPE_ARITHMETIC, *([] if target.name == "tfl" else [CONVERSIONS]))
    fold, merge_equal, dead = CLEANUP
    return (fold, merge_equal, Pass("moves", moves.apply, EVERYWHERE), dead, *separate(target, options))


def tidy(target: Target, options: Options) -> Passes:
    """Remove moves that cancel, and parts of tensors that no op reads."""
    parts = Pass("parts", slice_used_parts, EVERYWHERE)
    sizes = Pass("sizes of inputs", read_sizes_of_inputs, MAIN_ONLY, needs=LEGAL)
    return [
        *([sizes] if to_tflite(target, options) else []),
        Group("tidy", (*_tidied(target, options), parts), needs=LEGAL),
        Pass("sink", sink_reshapes, EVERYWHERE, needs=LEGAL),
    ]


def layout(target: Target, options: Options) -> Passes:
    """Assign the axis order of each value, and run the passes that depend on it."""
    assign = partial(assign_layouts, target=target)
    late = partial(legalization.legalize, target=target, late=True)
    loops = Patterns.of(LOOP_INVARIANTS, LOOP_SIMPLIFICATION)
    steps = Pass("steps", partial(quantize.write_steps, target=target), EVERYWHERE, needs=LAID_OUT)
    is_delegated = isinstance(target, TfliteTarget) and target.delegate is not None
    return [
        Pass("layout", partial(assign, io_layout=options.io_layout), assign, needs=LEGAL, establishes=LAID_OUT),
        *([steps] if _computes_integers_only(target) else []),
        Pass("legalize late", late, EVERYWHERE, needs=LAID_OUT),
        Pass("loop invariants", loops.apply, EVERYWHERE, needs=LAID_OUT),
        *(_moves_of_delegate(target, options) if is_delegated else []),
        Group("cleanup", _tidied(target, options), needs=LAID_OUT),
        Pass("legalize merged", late, EVERYWHERE, needs=LAID_OUT, when=legalization.has_repeated_operands),
    ]


def _moves_of_delegate(target: Target, options: Options) -> Passes:
    """Moves, and ops between them, as the delegate's kernels compute them fastest.

    A quantizer would round each part of a formula.
    """
    softmax = partial(SOFTMAX_ROWS.apply, pays=target.gains)
    steps: dict[str, Callable[[Graph], bool | None]] = {
        "merged columns": merge_columns,
        "columns": partial(transpose_columns, target=target),
        **({} if options.is_quantized_later else {"softmax rows": softmax}),
        "strided slices": slice_runs,
        "slow axes": partial(SLOW_AXES.apply, pays=target.gains),
        "rows": pad_rows,
        "few axes": leave_out_unit_axes,
    }
    return [Pass(name, step, EVERYWHERE, needs=LAID_OUT) for name, step in steps.items()]


def _computes_integers_only(target: Target) -> bool:
    """Whether the target is an NPU, on which no float op runs."""
    return isinstance(target, TfliteTarget) and target.table.own_arithmetic and target.has_integer_ops


def surround_moves(target: Target, options: Options) -> Passes:
    """Moves between quantized ops in the form that ONNX Runtime fuses."""
    return [Pass("surround moves", quantize.surround_moves, EVERYWHERE, needs=LAID_OUT)]


def lower(target: Target, options: Options) -> Passes:
    """Replace neutral ops by the ops of the target."""
    lowered = partial(lower_ops, target=target)
    noted = Pass("origins", note_origins_of_moved, EVERYWHERE, needs=LAID_OUT)
    return [noted, Pass("lower", lowered, EVERYWHERE, needs=LAID_OUT, establishes=LOWERED, breaks=NEUTRAL)]


def written_for_tflite(target: Target, options: Options) -> Passes:
    """Rewrite the tfl ops of the result."""
    assert isinstance(target, TfliteTarget)
    fixed = Pass("fixed sizes", partial(refuse_open_results, title=target.title), MAIN_ONLY, needs=LOWERED)
    owned = partial(own_state_tensors, target=target, operands=state_operands)
    first = Pass("first op", partial(begin_with_builtin_op, target=target), MAIN_ONLY, needs=LOWERED)
    joined = Pass("constant outputs", partial(join_constant_outputs, target=target), MAIN_ONLY, needs=LOWERED)
    return [
        *([] if target.has_open_sizes else [fixed]),
        *([joined] if target.table.folds_all else []),
        Pass("fuse activations", partial(fuse_activations, target=target), EVERYWHERE, needs=LOWERED),
        Pass("pass through", pass_through, EVERYWHERE, needs=LOWERED),
        Pass("state tensors", owned, EVERYWHERE, needs=LOWERED),
        *([first] if target.delegate is not None else []),
        Pass("memory", partial(copy_overwritten, target=target), EVERYWHERE, needs=LOWERED),
        Pass("prepared outputs", idle, partial(copy_prepared, target=target), needs=LOWERED),
    ]


SIMPLIFIED = given(SIMPLIFY)
