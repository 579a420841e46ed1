"""One run of a pipeline over a model: its options, its report, the name of the running step, and its limits.

What only one direction needs is imported where it is used.
"""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from onnxtfl.errors import InternalError, InvalidModelError, OnnxtflError, UnsupportedError
from onnxtfl.formats import files
from onnxtfl.formats.bodies import body, is_defined
from onnxtfl.formats.metadata import carried
from onnxtfl.formats.source import counting_written
from onnxtfl.formats.tflite.metadata import of_the_file
from onnxtfl.ir import compact_record
from onnxtfl.ir.assumptions import assume, assumption_scope
from onnxtfl.ir.budget import Budget, budget_scope, current_budget
from onnxtfl.ir.compact_record import tensor_names
from onnxtfl.ir.constant_facts import constant_facts_scope
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Graph, Value
from onnxtfl.ir.interpret import run as evaluate_graph
from onnxtfl.ir.metadata import RECORD, Late
from onnxtfl.ir.model import Model
from onnxtfl.ir.record import record_of
from onnxtfl.ir.shown_sizes import inputs_scope, remember_inputs, shown_type
from onnxtfl.ir.signatures import describe_value, of_unknown_rank
from onnxtfl.ir.symbols import symbol_scope
from onnxtfl.ir.types import TensorType
from onnxtfl.options import Options
from onnxtfl.passes.boundary.constant_names import Weights, constant_names, weights_of
from onnxtfl.passes.boundary.dimensions import Dimensions
from onnxtfl.passes.boundary.fixed_sizes import refuse_many_axes, refuse_open_inputs
from onnxtfl.passes.boundary.parts import cut, keep_names, set_input_shapes
from onnxtfl.passes.boundary.rename import rename_boundary, renamed_metadata
from onnxtfl.passes.boundary.sequences import check_names, elements_of, flatten_inputs
from onnxtfl.passes.boundary.user_sizes import GivenSizes
from onnxtfl.passes.canonical.inline import inline_functions
from onnxtfl.passes.quantize import TOLERANCE, summary
from onnxtfl.passes.types.float16 import in_words
from onnxtfl.passes.types.held_types import as_property, held_types
from onnxtfl.pipeline_report import Report
from onnxtfl.rewriting.custom import custom_ops
from onnxtfl.rewriting.lift import count_ops, lift
from onnxtfl.rewriting.pass_manager import Group, Pass, PassManager
from onnxtfl.rewriting.plugins import load
from onnxtfl.rewriting.sections import Section, sections_of
from onnxtfl.rewriting.unsupported import naming_all
from onnxtfl.targets import Target
from onnxtfl.targets.tflite import lowest_runtime

if TYPE_CHECKING:
    from onnxtfl.passes.states.exposed import ExposedState

GROWTH = 8
"""Which part of the bytes of its weights constants computed before run time may add to a model."""
TELL_EVERY = 0.5
"""Seconds between two calls of the user's callback while weights are written."""


@contextlib.contextmanager
def _types_in_words() -> Iterator[None]:
    """Print types in errors with the user's names of sizes."""
    try:
        yield
    except OnnxtflError as error:
        error.type_ = shown_type(error.type_) if isinstance(error.type_, TensorType) else error.type_
        raise


class PipelineRun:
    """One conversion: its options, its report, and the name of the running step."""

    def __init__(self, options: Options, target: Target, passes: Sequence[Pass | Group]) -> None:
        self.options, self.target, self.passes = options, target, passes
        self.report = Report()
        self.states: list[ExposedState] = []
        self.sections: list[Section] = []
        self.weights: Weights = {}
        self.step = ""
        given = [f"`{name}`" for name in ("input_shapes", "dims") if getattr(options, name)]
        self.sizes = GivenSizes(" and ".join(given))
        self._source_names: list[str] = []
        self._written, self._told = 0, 0.0

    @classmethod
    @contextlib.contextmanager
    def of(cls, options: Options, target: Target, passes: Sequence[Pass | Group]) -> Iterator[PipelineRun]:
        """A conversion; an exception that is not one of :mod:`onnxtfl.errors` becomes an InternalError.

        Garbage collection is off: the graph lives until the end, so a collection would free nothing. NumPy does not
        warn: a model may divide by zero.
        """
        load(options.plugins)
        conversion = cls(options, target, passes)
        collecting = gc.isenabled()
        gc.disable()
        try:
            conversion.observe("read")
            budget = Budget(options.max_memory * 2**20, options.time_limit, loops=options.loops)
            budget.folds_all = options.folds_all
            assumptions = conversion.report.assumptions
            with contextlib.ExitStack() as scopes:
                for scope in (budget_scope(budget), symbol_scope(), inputs_scope(), assumption_scope(assumptions)):
                    scopes.enter_context(scope)
                scopes.enter_context(constant_facts_scope())
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
        """Report the progress of writing large weights to the user's callback."""
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
        """Make the requested entry point the main graph."""
        if self.options.signature is not None:
            source.enter(self.options.signature)
        self.report.other_signatures = [s.key for s in source.signatures if s.graph is not source.main]

    def run(self, source: Model, until: str | None = None) -> Graph:
        """The main graph of `source` after all passes, or after the one called `until`."""
        graph = self.part(source)
        current_budget().growth = _bytes_of_constants(graph) // GROWTH
        if self.target.name == "onnx":
            from onnxtfl.passes.states.exposed import expose_states
            from onnxtfl.targets.stored_types import check_declared_results

            check_declared_results(graph)
            self.states = expose_states(graph, self.options.state)
        manager = PassManager(self.passes, observe=self.observe, check=self.options.debug)
        with naming_all(graph, is_defined):
            manager.run(graph, until)
        self.report.passes = manager.timings
        self.report.gains = current_budget().gains
        self.sections += manager.sections
        if until is None:
            if self.options.debug:
                self.target.verify(graph)
            names = self.options.rename or {}
            rename_boundary(graph, names)
            self.sections = [section.renamed(names) for section in self.sections]
            keep_names(graph)
            self.observe("write")
        return graph

    def part(self, source: Model) -> Graph:
        """The main graph of `source`, or the requested part of it, with ops of the file."""
        inline_functions(source)
        self._source_names = tensor_names(source.main)
        explicit_states(source)
        graph = source.main
        self.report.ops_before = count_ops(graph)
        self.weights = weights_of(graph)
        if self.options.caches is not None:
            self.options.caches.declare(graph)
        self._select_part(graph, source.dim_names)
        self.report.vectors = [v.name for v in graph.inputs if v.name is not None and v.name in source.map_columns]
        for name in self.report.vectors:
            assume(source.map_columns[name])
        return graph

    def model(self, source: Model, graph: Graph) -> Model:
        """The result: `graph` with the metadata of the source, and names for its constants."""
        to_onnx = self.target.name == "onnx"
        source.metadata = renamed_metadata(source.metadata, self.options.rename or {})
        metadata, self.report.dropped_metadata = carried(
            source, graph, self.options.metadata, elements=elements_of(self.sections), to_onnx=to_onnx
        )
        if not to_onnx:
            metadata.properties |= of_the_file(lowest_runtime(graph))
            metadata.properties |= as_property(held_types(self.sections))
        return Model(graph, metadata=metadata, constant_names=constant_names(graph, self.weights, self.target))

    def _select_part(self, graph: Graph, dim_names: Mapping[str, str]) -> None:
        """Apply `input_shapes`, `dims`, `inputs` and `outputs` of the options."""
        names = graph.output_names or [v.name or f"output_{i}" for i, v in enumerate(graph.outputs)]
        lengths, shapes = self.options.elements or {}, self.options.input_shapes or {}
        self.sections.append(flatten_inputs(graph, lengths, strict=False))
        elements = elements_of(self.sections)
        by_tensor = {v: shape for k, shape in shapes.items() for v in elements.get(k, (k,))}
        self.sizes.note_declared(graph)
        set_input_shapes(graph, by_tensor, self.options.inputs)
        dimensions = Dimensions(self.options.dims or {}, dim_names)
        dimensions.set(graph)
        graph.output_names = cut(graph, self.options.inputs, self.options.outputs, body) or names
        tensors = [name for names in elements.values() for name in names]
        self.report.input_shapes = dimensions.set(graph, tensors)
        dimensions.refuse_unknown()
        self.sections.append(flatten_inputs(graph, lengths))
        check_names(elements_of(self.sections), lengths)
        remember_inputs(graph.inputs)
        self.sizes.note_given(graph)
        if not self.target.has_open_sizes:
            refuse_open_inputs(graph, self.target.title)
            self.sizes.forget_outputs(graph)
        if self.target.most_axes is not None:
            refuse_many_axes(graph, self.target.title, self.target.most_axes)

    def late(self, graph: Graph) -> Late | None:
        """The record of the conversion as a property of the result."""
        written: Late = lambda names: {RECORD: compact_record.encode(graph, names, self._source_names)}  # noqa: E731
        return written if self.options.record else None

    def finish(self, graph: Graph, names: Mapping[Value, str]) -> Report:
        """The report; `names`: the written name of each value. The nodes of `graph`, which is written, are freed."""
        self.report.ops_after = count_ops(graph)
        self.report.custom_ops, self.report.opset = custom_ops(graph), self.target.raised
        self.report.inputs, self.report.outputs = (list(map(describe_value, v)) for v in (graph.inputs, graph.outputs))
        self.report.unranked = of_unknown_rank(graph.inputs)
        self.report.elements, self.report.io_types = elements_of(self.sections), held_types(self.sections)
        if self.target.name == "onnx":
            from onnxtfl.passes.types.complex_numbers import ComplexPairs

            self.report.complex_names = [n for pairs in sections_of(ComplexPairs, self.sections) for n in pairs.names]
        self.report.float16 = in_words(self.sections, self.options.float16)
        self.report.record = record_of(graph, names)
        if self.options.lstm == "fused":
            self.report.kept_states = [names[s.input] for s in graph.states if s.input.producer is None]
        found = summary(graph, names, self.target)
        if found is not None and found.hybrid_ops and self.options.dynamic_quant == "hybrid":
            found = replace(found, tolerance=TOLERANCE)
        self.report.quantization = found
        graph.clear()
        return self.report


def explicit_states(model: Model) -> None:
    """Make the states of a TFLite model's main graph explicit, and integers plain whose scale no kernel reads."""
    if model.format == "tflite":
        from onnxtfl.formats.tflite import states as tflite_states
        from onnxtfl.targets.stored_types import plain_integers

        tflite_states.explicit_states(model, _evaluated)
        plain_integers(model.main)


def _evaluated(graph: Graph) -> list[Array]:
    """The outputs of a graph without inputs; UnsupportedError if it is not pure."""
    lift(graph, body)
    if any(not node.is_pure for node in graph.nodes):
        raise UnsupportedError("the initial values of variables cannot be computed before run time", code="E-OP-007")
    return evaluate_graph(graph, [])


def _bytes_of_constants(graph: Graph) -> int:
    read = {v for node in graph.nodes for v in node.present_operands}
    return sum(v.data.nbytes for v in read if v.data is not None)
