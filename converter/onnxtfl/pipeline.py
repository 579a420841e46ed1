"""The two pipelines: ONNX to TFLite, and TFLite to ONNX.

read -> lift -> simplify -> legalize -> layout -> cleanup -> lower -> write

`onnx_to_tflite` and `tflite_to_onnx` differ in the reader, the writer and a few passes that one target needs;
:func:`passes_for` lists the passes between reading and writing.
"""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from onnxtfl.errors import InternalError, InvalidModelError, OnnxtflError, UnsupportedError, UsageError, suggestion
from onnxtfl.formats import files
from onnxtfl.formats.bodies import body, is_defined
from onnxtfl.formats.metadata import carried
from onnxtfl.formats.onnx import reader as onnx_reader
from onnxtfl.formats.onnx import state_metadata
from onnxtfl.formats.onnx import writer as onnx_writer
from onnxtfl.formats.onnx.state_metadata import StateEntry
from onnxtfl.formats.source import counting_written
from onnxtfl.formats.tflite import reader as tflite_reader
from onnxtfl.formats.tflite import states as tflite_states
from onnxtfl.formats.tflite import writer as tflite_writer
from onnxtfl.formats.tflite.metadata import of_the_file
from onnxtfl.formats.tflite.schema import state_operands
from onnxtfl.ir import compact_record
from onnxtfl.ir.assumptions import Assumption, assumption_scope
from onnxtfl.ir.budget import Budget, budget_scope
from onnxtfl.ir.compact_record import tensor_names
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Graph, Value
from onnxtfl.ir.interpret import run as evaluate_graph
from onnxtfl.ir.metadata import RECORD, Late
from onnxtfl.ir.model import FormatName, Model
from onnxtfl.ir.quantization import dequantize
from onnxtfl.ir.record import Record, record_of
from onnxtfl.ir.shown_sizes import inputs_scope, remember_inputs, shown_type
from onnxtfl.ir.signatures import Description, described, of_unknown_rank
from onnxtfl.ir.summary import QuantizationSummary
from onnxtfl.ir.symbols import symbol_scope
from onnxtfl.ir.types import TensorType
from onnxtfl.options import Options
from onnxtfl.passes.boundary import cut, keep_names, separate_outputs, separate_region_outputs, set_input_shapes
from onnxtfl.passes.canonicalize import MOVES
from onnxtfl.passes.cleanup import remove_dead
from onnxtfl.passes.complex_numbers import split_complex, split_complex_in_region
from onnxtfl.passes.constant_names import Weights, constant_names, weights_of
from onnxtfl.passes.dimensions import Dimensions
from onnxtfl.passes.element_types import int64_passes, replaced_types
from onnxtfl.passes.fix_features import fix_features
from onnxtfl.passes.fixed_sizes import refuse_open_inputs, refuse_open_results
from onnxtfl.passes.floats import hold_few_bits, hold_two_bits
from onnxtfl.passes.fuse_activations import fuse_activations
from onnxtfl.passes.given_sizes import GivenSizes
from onnxtfl.passes.held_types import HeldType, as_property, held_types
from onnxtfl.passes.inline import inline_functions
from onnxtfl.passes.keep_states import keep_states
from onnxtfl.passes.layout import assign_layouts
from onnxtfl.passes.loop_invariants import LOOP_INVARIANTS
from onnxtfl.passes.loop_simplification import LOOP_SIMPLIFICATION
from onnxtfl.passes.native_float16 import float16_passes, in_words
from onnxtfl.passes.pass_through import pass_through
from onnxtfl.passes.prepared_outputs import copy_prepared
from onnxtfl.passes.quantize import (
    STORED_CLAMPS,
    TOLERANCE,
    count_steps_of_outputs,
    dequantize_all,
    fuse_quantized,
    multiply_real,
    read_quantized_types,
    remark_dynamic_products,
    saturate_quantized,
    set_quantized_io,
    store_as_int8,
    store_as_uint8,
    store_real_constants,
    summary,
    surround_moves,
    use_hybrid_weights,
    use_integer_constants,
)
from onnxtfl.passes.recognize import LAST_OUTPUTS, LAYERS_OF_SCANS, RECOGNIZE, RECOGNIZE_LAYERS
from onnxtfl.passes.rename import rename_boundary, renamed_metadata
from onnxtfl.passes.sequences import check_names, flatten_inputs, flatten_outputs
from onnxtfl.passes.shape_arithmetic import CONVERSIONS, SHAPE_ARITHMETIC
from onnxtfl.passes.shared_memory import copy_overwritten
from onnxtfl.passes.simplify import CLEANUP, SIMPLIFY
from onnxtfl.passes.state_tensors import own_state_tensors
from onnxtfl.passes.states import ExposedState, expose_states
from onnxtfl.passes.unit_axes import sink_reshapes
from onnxtfl.passes.used_parts import slice_used_parts
from onnxtfl.rewriting.custom import allowing_custom, custom_ops
from onnxtfl.rewriting.legalize import legalize, write_formulas
from onnxtfl.rewriting.lift import count_ops, lift, lift_where_possible
from onnxtfl.rewriting.lower import lower
from onnxtfl.rewriting.pass_manager import Fact, Group, Pass, PassManager, PassTiming
from onnxtfl.rewriting.patterns import Patterns
from onnxtfl.rewriting.plugins import load
from onnxtfl.rewriting.unsupported import UnsupportedOp, naming_all, unsupported_ops
from onnxtfl.targets import Target
from onnxtfl.targets.empty import assume_elements
from onnxtfl.targets.micro import MicroTarget
from onnxtfl.targets.onnx import OnnxTarget
from onnxtfl.targets.stored_types import check_declared_results, plain_integers
from onnxtfl.targets.tflite import TfliteTarget, lowest_runtime, refuse_unknown_versions

if TYPE_CHECKING:
    import onnx


TELL_EVERY = 0.5
"""Seconds between two calls of the user's callback while weights are written."""


@dataclass
class Report:
    """What a conversion read and wrote.

    `ops_before`, `ops_after`: nodes by op. `passes`: time and node count of each pass. `record`: the target tensor of
    each source tensor, and the origin of each target op. `quantization`: which ops compute on integers or not, and why;
    None if nothing is quantized. `states`: those that became inputs and outputs. `kept_states`: tensors that the next
    run begins with, None where not asked for. `other_signatures`: the entry points of the file that were not converted.
    `elements`: the tensors that each input and output of sequence or optional type became. `vectors`: inputs that
    replace maps. `unranked`: inputs of unknown rank. `complex_names`: complex inputs and outputs, as pairs.
    `source_size`: its bytes, None in memory. `dropped_metadata`: what of the source's metadata was too large.
    `source_files`: the source's files with external data. `assumptions`: what has to be true of sizes that only a run
    knows. `io_types`: see `HeldType`. `custom_ops`: those of users. `opset`: ONNX's and why, if not the default.
    `float16`: which ops compute in it. `input_shapes`: those of all inputs, where the options have `dims`.
    """

    inputs: list[Description] = field(default_factory=list)
    outputs: list[Description] = field(default_factory=list)
    ops_before: dict[str, int] = field(default_factory=dict)
    ops_after: dict[str, int] = field(default_factory=dict)
    passes: list[PassTiming] = field(default_factory=list)
    record: Record = field(default_factory=Record)
    quantization: QuantizationSummary | None = None
    states: list[StateEntry] = field(default_factory=list)
    kept_states: list[str] | None = None
    other_signatures: list[str] = field(default_factory=list)
    elements: dict[str, tuple[str, ...]] = field(default_factory=dict)
    vectors: list[str] = field(default_factory=list)
    complex_names: list[str] = field(default_factory=list)
    source_size: int | None = None
    dropped_metadata: list[str] = field(default_factory=list)
    assumptions: list[Assumption] = field(default_factory=list)
    unranked: list[str] = field(default_factory=list)
    io_types: list[HeldType] = field(default_factory=list)
    source_files: tuple[Path, ...] = ()
    custom_ops: list[str] = field(default_factory=list)
    input_shapes: dict[str, tuple[int | str, ...]] = field(default_factory=dict)
    opset: str = ""
    float16: str = ""


def onnx_to_tflite(model: str | os.PathLike[str] | bytes | onnx.ModelProto, out: BinaryIO, options: Options) -> Report:
    """Convert an ONNX model and write the .tflite to `out`, a seekable binary file.

    Raises OnnxtflError (InvalidModelError, UnsupportedError, ...); the content of `out` is then undefined.
    """
    with _Conversion.of(options, _tflite_target(options)) as conversion:
        source = onnx_reader.read(model)
        conversion.measure(model, source)
        graph = conversion.run(source)
        assume_elements(graph)
        written = conversion.model(source, graph)
        return conversion.finish(graph, tflite_writer.write(written, out, late=conversion.late(graph)))


def tflite_to_onnx(model: str | os.PathLike[str] | bytes, out: BinaryIO, options: Options) -> Report:
    """Convert a TFLite model and write the .onnx to `out`, a seekable binary file; errors as for `onnx_to_tflite`."""
    name = getattr(out, "name", None)  # the weights of a model of more than 2 GB go to a second file
    external = f"{os.fspath(name)}.data" if isinstance(name, str | os.PathLike) else None
    with _Conversion.of(options, target := _onnx_target(options)) as conversion:
        source = tflite_reader.read(model)
        conversion.measure(model, source)
        conversion.enter(source)
        refuse_unknown_versions(source.main)
        graph = conversion.run(source)
        written = conversion.model(source, graph)
        if conversion.states:
            conversion.report.states = [_entry(state, graph) for state in conversion.states]
            written.metadata.properties[state_metadata.KEY] = state_metadata.encode(conversion.report.states)
        names = onnx_writer.write(written, out, opset=target.opset, external=external, late=conversion.late(graph))
        return conversion.finish(graph, names)


def _entry(state: ExposedState, graph: Graph) -> StateEntry:
    """The names of the input and output of a state, and its initial value in the type and axis order of the input."""
    value = None if state.input is None else graph.inputs[state.input]
    output = None if state.output is None else graph.output_names[state.output]
    if value is None:
        return StateEntry(None, output, None)
    initial = None if state.initial is None else state.initial.numpy()
    if initial is not None and state.quantization is not None and not value.is_quantized:
        initial = dequantize(initial, state.quantization)
    permutation = value.origin.permutation if value.origin is not None else None
    if initial is not None and initial.ndim and permutation is not None:
        initial = initial.transpose(permutation)
    return StateEntry(value.name, output, initial)


def passes_for(target: Target, options: Options) -> list[Pass | Group]:
    """The passes from the graph of a file to the graph of the target, in order."""
    if not isinstance(target, TfliteTarget):
        dequantize = Pass("dequantize", dequantize_all, needs=_NEUTRAL)
        first = [*_lifting(options), *([dequantize] if options.quantized == "float" else [])]
        two_bits = Pass("few bits", hold_few_bits, hold_two_bits, needs=_NEUTRAL)
        split = Pass("complex numbers", split_complex, split_complex_in_region, needs=_NEUTRAL)
        return [*first, two_bits, split, RECOGNIZE, RECOGNIZE_LAYERS, *_common(target, options)]
    types = replaced_types(target, options.float64, options.io_dtype, options.float16)
    return [*_lifting(options), *types, *_common(target, options), *_tflite_last(target)]


def _tflite_target(options: Options) -> TfliteTarget:
    target = MicroTarget if options.target == "micro" else TfliteTarget
    return target(options.min_runtime, hybrid=options.dynamic_quant == "hybrid")


def _onnx_target(options: Options) -> OnnxTarget:
    return OnnxTarget(options.opset, integer_ops=options.quantized == "qoperator")


def lifted_where_possible(model: Model) -> Graph:
    """The main graph of `model`, functions inlined, states explicit; ops that cannot be lifted stay as they are."""
    inline_functions(model)
    explicit_states(model)
    lift_where_possible(model.main, body)
    return model.main


def unsupported(model: str | os.PathLike[str] | bytes | onnx.ModelProto, options: Options) -> list[UnsupportedOp]:
    """What of a model has no conversion to the other format; where all can be lifted, what a conversion says."""
    to_onnx = isinstance(model, str | os.PathLike | bytes) and files.sniff(model) == "tflite"
    target: Target = _onnx_target(options) if to_onnx else _tflite_target(options)
    with _Conversion.of(options, target) as conversion:
        found = unsupported_ops(conversion.part(files.read(model)), body)
    if found:
        return found
    try:
        with _Conversion.of(options, target) as conversion:
            conversion.run(files.read(model))
    except UnsupportedError as error:
        return [UnsupportedOp(error.op or "", error.version, (error.node or "",), error.message, error.code)]
    return []


def explicit_states(model: Model) -> None:
    """Make the states of a TFLite model's main graph explicit, and integers plain whose scale no kernel reads."""
    if model.format == "tflite":
        tflite_states.explicit_states(model, _evaluated)
        plain_integers(model.main)


def _evaluated(graph: Graph) -> list[Array]:
    """The outputs of a graph without inputs."""
    lift(graph, body)
    try:
        return evaluate_graph(graph, [])
    except NotImplementedError as error:
        message = "the initial values of variables cannot be computed before run time"
        raise UnsupportedError(message, code="E-OP-007") from error


_NEUTRAL: frozenset[Fact] = frozenset({"neutral"})
_LEGAL: frozenset[Fact] = frozenset({"legal"})
_LAID_OUT: frozenset[Fact] = frozenset({"laid out"})
_LOWERED: frozenset[Fact] = frozenset({"lowered"})


def _lifting(options: Options) -> tuple[Pass, ...]:
    """The passes from the ops of a file to neutral ones."""
    expand = allowing_custom(body) if options.allow_custom else body
    return (
        Pass("lift", partial(lift, expand=expand), Pass.idle, establishes=_NEUTRAL),
        Pass("sequences", flatten_outputs, Pass.idle),
        Pass("remove dead", remove_dead),
        Pass("fix features", fix_features, Pass.idle, needs=_NEUTRAL),
    )


def _common(target: Target, options: Options) -> list[Pass | Group]:
    """The passes of both directions, from neutral ops to the ops of the target."""
    moves = Patterns.of(MOVES, SHAPE_ARITHMETIC, *([] if target.name == "tfl" else [CONVERSIONS]))
    outputs = partial(separate_outputs, shares_inputs=target.shares_inputs)
    separate = Pass("separate outputs", outputs, separate_region_outputs)
    fold, merge_equal, dead = CLEANUP
    tidy = (fold, merge_equal, Pass("moves", moves.apply), dead, separate)
    layout = partial(assign_layouts, target=target)
    typed = partial(read_quantized_types, target=target)
    formulas = Pass("write formulas", partial(write_formulas, target=target))
    kept = Pass("keep states", partial(keep_states, target=target), Pass.idle, needs=_NEUTRAL)
    saturate = [Pass("saturate", partial(saturate_quantized, target=target), needs=_LEGAL)]
    real_constants = Group("real constants", (Pass("real constants", store_real_constants), *CLEANUP), dependent=True)
    constants = [] if target.has_hybrid_kernels else [real_constants]
    return [
        *_dynamic(target, options),
        Pass("quantized types", typed, partial(typed, is_region=True), needs=_NEUTRAL),
        SIMPLIFY,
        *([LAYERS_OF_SCANS] if target.name == "tfl" else []),
        *([Pass("last outputs", LAST_OUTPUTS.apply, needs=_NEUTRAL), *CLEANUP] if options.is_compact else []),
        *(_quantized(target, options)),
        *([kept] if options.lstm == "fused" and target.name == "tfl" else []),
        *([Pass("opset", target.raise_opset)] if isinstance(target, OnnxTarget) else []),
        *constants,
        Group("formulas", (formulas, SIMPLIFY), dependent=True, needs=_NEUTRAL),
        separate,
        *(float16_passes(target, options.float16)),
        Pass("legalize", partial(legalize, target=target), needs=_NEUTRAL, establishes=_LEGAL),
        *([] if target.saturated_steps is None else saturate),
        *constants,
        Group("tidy", (*tidy, Pass("parts", partial(slice_used_parts, when=options.is_quantized_later))), needs=_LEGAL),
        Pass("sink", sink_reshapes, needs=_LEGAL),
        Pass("layout", partial(layout, io_layout=options.io_layout), layout, needs=_LEGAL, establishes=_LAID_OUT),
        Pass("legalize late", partial(legalize, target=target, late=True), needs=_LAID_OUT),
        Pass("loop invariants", Patterns.of(LOOP_INVARIANTS, LOOP_SIMPLIFICATION).apply, needs=_LAID_OUT),
        Group("cleanup", tidy, needs=_LAID_OUT),
        *([] if target.name == "tfl" else [Pass("surround moves", surround_moves, needs=_LAID_OUT)]),
        Pass("lower", partial(lower, target=target), needs=_LAID_OUT, establishes=_LOWERED, breaks=_NEUTRAL),
    ]


def _dynamic(target: Target, options: Options) -> list[Pass]:
    """What is done with products of activations that are quantized at run time."""
    if options.dynamic_quant == "hybrid":
        return [Pass("real products", multiply_real, needs=_NEUTRAL)]
    helps = target.name == "tfl" and target.has_hybrid_kernels
    return [Pass("dynamic products", remark_dynamic_products, needs=_NEUTRAL)] if helps else []


def _quantized(target: Target, options: Options) -> list[Pass | Group]:
    """Passes that put ops on quantized types; TFLite's integer kernels want int8, ONNX Runtime's optimizer uint8."""
    fuse = Pass("fuse quantized", fuse_quantized, needs=_NEUTRAL)
    edges = Pass("quantized io", partial(set_quantized_io, kind=options.quantized_io), Pass.idle, needs=_NEUTRAL)
    int8 = Pass("int8 storage", partial(store_as_int8, always=not target.has_uint8_kernels), needs=_NEUTRAL)
    uint8 = Pass("uint8 storage", store_as_uint8, needs=_NEUTRAL)
    hybrid = [Pass("hybrid", use_hybrid_weights, needs=_NEUTRAL)] if options.dynamic_quant == "hybrid" else []
    if target.name == "onnx":
        counted = Pass("int32 outputs", count_steps_of_outputs, Pass.idle, needs=_NEUTRAL)
        return [fuse, *([] if target.has_integer_ops else [uint8]), edges, counted, SIMPLIFY]
    constants = Pass("integer constants", use_integer_constants, needs=_NEUTRAL)
    clamps = Pass("stored clamps", STORED_CLAMPS.apply, needs=_NEUTRAL)
    return [constants, fuse, clamps, int8, edges, *hybrid, SIMPLIFY, *int64_passes(target)]


def _tflite_last(target: TfliteTarget) -> list[Pass | Group]:
    """Passes over tfl ops."""
    fixed = Pass("fixed sizes", partial(refuse_open_results, title=target.title), Pass.idle, needs=_LOWERED)
    return [
        *([] if target.has_open_sizes else [fixed]),
        Pass("fuse activations", partial(fuse_activations, target=target), needs=_LOWERED),
        Pass("pass through", pass_through, needs=_LOWERED),
        Pass("state tensors", partial(own_state_tensors, target=target, operands=state_operands), needs=_LOWERED),
        Pass("memory", partial(copy_overwritten, target=target), needs=_LOWERED),
        Pass("prepared outputs", Pass.idle, partial(copy_prepared, target=target), needs=_LOWERED),
    ]


@contextlib.contextmanager
def _types_in_words() -> Iterator[None]:
    """Let the types in errors have the names of sizes that the user knows."""
    try:
        yield
    except OnnxtflError as error:
        error.type_ = shown_type(error.type_) if isinstance(error.type_, TensorType) else error.type_
        raise


class _Conversion:
    """One conversion: its options, its report, and the name of the running step."""

    def __init__(self, options: Options, target: Target) -> None:
        self.options, self.target = options, target
        self.report = Report()
        self.states: list[ExposedState] = []
        self.weights: Weights = {}
        self.step = ""
        given = [f"`{name}`" for name in ("input_shapes", "dims") if getattr(options, name)]
        self.sizes = GivenSizes(" and ".join(given))
        self._source_names: list[str] = []
        self._written, self._told = 0, 0.0

    @classmethod
    @contextlib.contextmanager
    def of(cls, options: Options, target: Target) -> Iterator[_Conversion]:
        """A conversion; an exception that is not one of :mod:`onnxtfl.errors` becomes an InternalError.

        Garbage collection is off: the graph lives until the end, so a collection would free nothing. NumPy does not
        warn: a model may divide by zero.
        """
        import numpy as np

        load(options.plugins)
        conversion = cls(options, target)
        collecting = gc.isenabled()
        gc.disable()
        try:
            conversion.observe("read")
            budget = Budget(options.max_memory * 2**20, options.time_limit, compact=options.compact)
            assumptions = conversion.report.assumptions
            with contextlib.ExitStack() as scopes:
                for scope in (budget_scope(budget), symbol_scope(), inputs_scope(), assumption_scope(assumptions)):
                    scopes.enter_context(scope)
                scopes.enter_context(_types_in_words())
                scopes.enter_context(counting_written(conversion.count_written))
                scopes.enter_context(np.errstate(all="ignore"))
                yield conversion
        except InvalidModelError as error:
            raise conversion.sizes.blamed(error) from error.__cause__
        except (OnnxtflError, OSError):
            raise
        except MemoryError as error:
            raise UnsupportedError(f"out of memory in {conversion.step}", code="E-RUN-005") from error
        except Exception as error:
            raise InternalError(conversion.step, error) from error
        finally:
            if collecting:
                gc.enable()

    def observe(self, step: str) -> None:
        """Remember the name of the step that begins, and call the user's callback."""
        self.step = step
        self._told = time.monotonic()
        if self.options.on_progress is not None:
            self.options.on_progress(step)

    def count_written(self, size: int) -> None:
        """Tell the user's callback how much of the weights is written, where that takes long."""
        self._written, now = self._written + size, time.monotonic()
        if self.options.on_progress is not None and now > self._told + TELL_EVERY:
            self._told = now
            self.options.on_progress(f"write {self._written / 1e6:.0f} MB")

    def measure(self, model: object, source: Model) -> None:
        """Note the size of the source, of which `model` is the path."""
        if isinstance(model, str | os.PathLike):
            self.report.source_size = files.bytes_on_disk(source, model)
            self.report.source_files = source.data_files

    def enter(self, source: Model) -> None:
        """Make the entry point that is asked for the main graph."""
        if self.options.signature is not None:
            source.enter(self.options.signature)
        self.report.other_signatures = [s.key for s in source.signatures if s.graph is not source.main]

    def run(self, source: Model, until: str | None = None) -> Graph:
        """The main graph of `source` after all passes, or after the one called `until`."""
        graph = self.part(source)
        if self.target.name == "onnx":
            check_declared_results(graph)
            self.states = expose_states(graph, self.options.state)
        passes = passes_for(self.target, self.options)
        manager = PassManager(passes, observe=self.observe, check=self.options.debug)
        with naming_all(graph, is_defined):
            manager.run(graph, until)
        self.report.passes = manager.timings
        if until is None:
            if self.options.debug:
                self.target.verify(graph)
            rename_boundary(graph, self.options.rename or {})
            keep_names(graph)
            self.observe("write")
        return graph

    def part(self, source: Model) -> Graph:
        """The main graph of `source`, or the part of it that is asked for, with ops of the file."""
        inline_functions(source)
        self._source_names = tensor_names(source.main)
        explicit_states(source)
        graph = source.main
        self.report.ops_before = count_ops(graph)
        self.weights = weights_of(graph)
        self._select_part(graph, source.dim_names)
        return graph

    def model(self, source: Model, graph: Graph) -> Model:
        """The result: `graph` with the metadata of the source, and names for its constants."""
        to_onnx = self.target.name == "onnx"
        source.metadata = renamed_metadata(source.metadata, self.options.rename or {})
        metadata, self.report.dropped_metadata = carried(source, graph, self.options.metadata, to_onnx=to_onnx)
        if not to_onnx:
            metadata.properties |= of_the_file(lowest_runtime(graph))
            metadata.properties |= as_property(graph)
        return Model(graph, metadata=metadata, constant_names=constant_names(graph, self.weights, self.target))

    def _select_part(self, graph: Graph, dim_names: Mapping[str, str]) -> None:
        """Apply `input_shapes`, `dims`, `inputs` and `outputs` of the options."""
        names = graph.output_names or [v.name or f"output_{i}" for i, v in enumerate(graph.outputs)]
        lengths, shapes = self.options.elements or {}, self.options.input_shapes or {}
        flatten_inputs(graph, lengths, strict=False)
        by_tensor = {v: shape for k, shape in shapes.items() for v in graph.elements.get(k, (k,))}
        self.sizes.note_declared(graph)
        set_input_shapes(graph, by_tensor, self.options.inputs)
        dimensions = Dimensions(self.options.dims or {}, dim_names)
        dimensions.set(graph)
        graph.output_names = cut(graph, self.options.inputs, self.options.outputs, body) or names
        self.report.input_shapes = dimensions.set(graph)
        dimensions.refuse_unknown()
        flatten_inputs(graph, lengths)
        check_names(graph, lengths)
        remember_inputs(graph.inputs)
        self.sizes.note_given(graph)
        if not self.target.has_open_sizes:
            refuse_open_inputs(graph, self.target.title)

    def late(self, graph: Graph) -> Late | None:
        """The record of the conversion as a property of the result."""
        written: Late = lambda names: {RECORD: compact_record.encode(graph, names, self._source_names)}  # noqa: E731
        return written if self.options.record else None

    def finish(self, graph: Graph, names: Mapping[Value, str]) -> Report:
        """The report; `names`: the written name of each value."""
        self.report.ops_after = count_ops(graph)
        self.report.custom_ops, self.report.opset = custom_ops(graph), self.target.raised
        self.report.inputs, self.report.outputs = (list(map(described, v)) for v in (graph.inputs, graph.outputs))
        self.report.unranked = of_unknown_rank(graph.inputs)
        self.report.elements, self.report.vectors = dict(graph.elements), list(graph.vectors)
        self.report.complex_names, self.report.io_types = list(graph.complex_names), held_types(graph)
        self.report.float16 = in_words(graph, self.options.float16)
        self.report.record = record_of(graph, names)
        if self.options.lstm == "fused":
            self.report.kept_states = [names[s.input] for s in graph.states if s.input.producer is None]
        found = summary(graph, names, self.target)
        if found is not None and found.hybrid_ops and self.options.dynamic_quant == "hybrid":
            found = replace(found, tolerance=TOLERANCE)
        self.report.quantization = found
        return self.report


def stages(source: FormatName, options: Options) -> list[str]:
    """The steps of a conversion from the format `source`, after which a graph can be looked at; "file": as read."""
    target: Target = _onnx_target(options) if source == "tflite" else _tflite_target(options)
    return ["file", "lifted", *dict.fromkeys(step.name for step in passes_for(target, options))]


def inspect(model: str | os.PathLike[str] | bytes, stage: str, options: Options) -> Graph:
    """The graph of a model (either format) after a stage of its conversion to the other format.

    `stage`: "file", "lifted", or the name of a pass; UsageError for another one.
    """
    target: Target = _onnx_target(options) if files.sniff(model) == "tflite" else _tflite_target(options)
    names = stages(files.sniff(model), options)
    if stage not in names:
        raise UsageError(f"there is no stage {stage!r}", hint=suggestion(stage, names, "the stages"))
    with _Conversion.of(options, target) as conversion:
        source = files.read(model)
        return source.main if stage == "file" else conversion.run(source, "remove dead" if stage == "lifted" else stage)
