"""The two pipelines: ONNX to TFLite, and TFLite to ONNX.

read -> lift -> simplify, quantize -> legalize -> layout -> lower -> write

`STAGES` is what happens between reading and writing, in order, in both directions; :mod:`onnxtfl.stages` has the passes
of each, and :mod:`onnxtfl.pipeline_run` runs them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

from onnxtfl import stages as of
from onnxtfl.errors import UnsupportedError, UsageError, suggestion
from onnxtfl.formats import files
from onnxtfl.formats.bodies import body
from onnxtfl.formats.onnx import state_metadata
from onnxtfl.formats.onnx.state_metadata import StateEntry
from onnxtfl.formats.tflite import writer as tflite_writer
from onnxtfl.formats.tflite.model_tables import default_signature
from onnxtfl.ir.data import PathLike
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.model import FormatName, Model
from onnxtfl.ir.quantization import dequantize
from onnxtfl.options import Options, of_signatures
from onnxtfl.passes.canonical.inline import inline_functions
from onnxtfl.pipeline_report import Report, joined
from onnxtfl.pipeline_run import PipelineRun, explicit_states
from onnxtfl.rewriting.lift import lift_where_possible
from onnxtfl.rewriting.pass_manager import Group, Pass
from onnxtfl.rewriting.unsupported import UnsupportedOp, unsupported_ops
from onnxtfl.stages import Stage, to_onnx, to_tflite
from onnxtfl.targets import Target
from onnxtfl.targets.empty import assume_elements
from onnxtfl.targets.tflite import TfliteTarget, refuse_unknown_versions

if TYPE_CHECKING:
    import onnx

    from onnxtfl.passes.states.exposed import ExposedState
    from onnxtfl.targets.onnx import OnnxTarget

    OnnxSource: TypeAlias = PathLike | bytes | onnx.ModelProto

STAGES: tuple[Stage, ...] = (
    Stage("lift", of.lift),
    Stage("dequantize", of.dequantized, to_onnx),
    Stage("small types", of.small_types, to_onnx),
    Stage("recognize", of.recognized, to_onnx),
    Stage("element types", of.element_types, to_tflite),
    Stage("dynamic products", of.dynamic_products),
    Stage("quantized types", of.quantized_types),
    Stage("simplify", of.SIMPLIFIED),
    Stage("caches", of.fixed_caches, to_tflite),
    Stage("real arithmetic", of.real_arithmetic),
    Stage("layers of scans", of.layers_of_scans, to_tflite),
    Stage("last outputs", of.last_outputs),
    Stage("integer kernels", of.quantized_for_tflite, to_tflite),
    Stage("quantized ops", of.quantized_for_onnx, to_onnx),
    Stage("states", of.kept_states, to_tflite),
    Stage("opset", of.opset, to_onnx),
    Stage("real constants", of.real_constants),
    Stage("formulas", of.formulas),
    Stage("used positions", of.used_positions, to_tflite),
    Stage("delegate forms", of.delegate_forms, to_tflite),
    Stage("integer sums", of.integer_sums, to_onnx),
    Stage("outputs", of.separate),
    Stage("float16", of.float16),
    Stage("legalize", of.legalize),
    Stage("saturate", of.saturate),
    Stage("constants left", of.real_constants),
    Stage("tidy", of.tidy),
    Stage("layout", of.layout),
    Stage("surround moves", of.surround_moves, to_onnx),
    Stage("lower", of.lower),
    Stage("tfl to tfl", of.written_for_tflite, to_tflite),
)


def passes_for(target: Target, options: Options) -> list[Pass | Group]:
    """The passes from the graph of a file to the graph of the target, in order."""
    return [step for stage in STAGES if stage.when(target, options) for step in stage.passes(target, options)]


def _begun(target: Target, options: Options) -> AbstractContextManager[PipelineRun]:
    return PipelineRun.of(options, target, passes_for(target, options))


def onnx_to_tflite(model: OnnxSource, out: BinaryIO, options: Options) -> Report:
    """Convert an ONNX model and write the .tflite to `out`, a seekable binary file.

    Raises OnnxtflError (InvalidModelError, UnsupportedError, ...); the content of `out` is then undefined.
    """
    if options.signatures:
        return joined(onnx_to_tflite_entries(out, {key: (model, o) for key, o in of_signatures(options).items()}))
    with _begun(_tflite_target(options), options) as conversion:
        written = _converted(model, conversion)
        return conversion.finish(written.main, tflite_writer.write(written, out, late=conversion.late(written.main)))


def onnx_to_tflite_entries(out: BinaryIO, entries: Mapping[str, tuple[OnnxSource, Options]]) -> dict[str, Report]:
    """Convert ONNX models to the signatures of one .tflite, by key; equal weights are stored once.

    The first one is the main graph. Errors as for `onnx_to_tflite`.
    """
    with contextlib.ExitStack() as scopes:
        runs = {key: scopes.enter_context(_begun(_tflite_target(o), o)) for key, (_, o) in entries.items()}
        models = {key: _converted(entries[key][0], run) for key, run in runs.items()}
        main, *others = models.values()
        graphs = [m.main for m in models.values()]
        main.subgraphs = [m.main for m in others]
        main.signatures = [default_signature(m.main, key) for key, m in models.items()]
        main.constant_names = {v: name for m in models.values() for v, name in m.constant_names.items()}
        several = len({id(source) for source, _ in entries.values()}) > 1
        names = tflite_writer.write(main, out, by_content=several)
        return {key: run.finish(graph, names) for (key, run), graph in zip(runs.items(), graphs, strict=True)}


def _converted(model: OnnxSource, conversion: PipelineRun) -> Model:
    """The result of one run, not written yet."""
    source = files.read(model)
    conversion.measure(model, source)
    graph = conversion.run(source)
    assume_elements(graph)
    return conversion.model(source, graph)


def tflite_to_onnx(model: PathLike | bytes, out: BinaryIO, options: Options) -> Report:
    """Convert a TFLite model and write the .onnx to `out`, a seekable binary file; errors as for `onnx_to_tflite`."""
    from onnxtfl.formats.onnx import writer as onnx_writer

    name = getattr(out, "name", None)  # the weights of a model of more than 2 GB go to a second file
    external = f"{os.fspath(name)}.data" if isinstance(name, str | os.PathLike) else None
    with _begun(target := _onnx_target(options), options) as conversion:
        source = files.read(model)
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


def _tflite_target(options: Options) -> TfliteTarget:
    hybrid, on_cpu = options.dynamic_quant == "hybrid", options.fallback == "cpu"
    return TfliteTarget(options.min_runtime, hybrid=hybrid, table=options.target, on_cpu=on_cpu)


def _onnx_target(options: Options) -> OnnxTarget:
    from onnxtfl.targets.onnx import OnnxTarget

    return OnnxTarget(options.opset, integer_ops=options.quantized == "qoperator")


def lifted_where_possible(model: Model) -> Graph:
    """Return the main graph of `model` with functions inlined and explicit states; ops that cannot be lifted stay."""
    inline_functions(model)
    explicit_states(model)
    lift_where_possible(model.main, body)
    return model.main


def unsupported(model: PathLike | bytes | onnx.ModelProto, options: Options) -> list[UnsupportedOp]:
    """Return all unsupported ops of a model; if all can be lifted, the error of the conversion."""
    is_tflite = isinstance(model, str | os.PathLike | bytes) and files.sniff(model) == "tflite"
    target: Target = _onnx_target(options) if is_tflite else _tflite_target(options)
    with _begun(target, options) as conversion:
        found = unsupported_ops(conversion.part(files.read(model)), body)
    if found:
        return found
    try:
        with _begun(target, options) as conversion:
            conversion.run(files.read(model))
    except UnsupportedError as error:
        return [UnsupportedOp(error.op or "", error.version, (error.node or "",), error.message, error.code)]
    return []


def stages(source: FormatName, options: Options) -> list[str]:
    """The steps of a conversion from the format `source`, after which a graph can be inspected; "file": as read."""
    target: Target = _onnx_target(options) if source == "tflite" else _tflite_target(options)
    return ["file", "lifted", *dict.fromkeys(step.name for step in passes_for(target, options))]


def inspect(model: PathLike | bytes, stage: str, options: Options) -> Graph:
    """The graph of a model (either format) after a stage of its conversion to the other format.

    `stage`: "file", "lifted", or the name of a pass. Raises UsageError for another one.
    """
    names = stages(files.sniff(model), options)
    if stage not in names:
        raise UsageError(f"there is no stage {stage!r}", hint=suggestion(stage, names, "the stages"))
    target: Target = _onnx_target(options) if files.sniff(model) == "tflite" else _tflite_target(options)
    with _begun(target, options) as conversion:
        source = files.read(model)
        return source.main if stage == "file" else conversion.run(source, "remove dead" if stage == "lifted" else stage)
