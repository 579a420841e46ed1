"""The two ways through the house: ONNX to TFLite, and TFLite to ONNX.

read -> lift -> canonicalize, fold, fuse -> legalize -> layout -> cleanup -> lower -> write

`onnx_to_tflite` and `tflite_to_onnx` differ in their first and last step and in what the kernels want; :func:`steps`
lists what lies between.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, Literal

from onnxtfl.errors import InternalError, OnnxtflError, UnsupportedError, UsageError
from onnxtfl.formats.onnx import functions
from onnxtfl.formats.onnx import reader as onnx_reader
from onnxtfl.formats.onnx import writer as onnx_writer
from onnxtfl.formats.tflite import composites
from onnxtfl.formats.tflite import reader as tflite_reader
from onnxtfl.formats.tflite import writer as tflite_writer
from onnxtfl.ir.data import SourceFile
from onnxtfl.ir.graph import Graph, Node
from onnxtfl.ir.model import Model
from onnxtfl.ir.symbols import symbol_scope
from onnxtfl.ir.verify import verify
from onnxtfl.passes.boundary import cut, keep_names, separate_outputs, set_input_shapes
from onnxtfl.passes.canonicalize import MOVES
from onnxtfl.passes.cleanup import merge_equal, remove_dead
from onnxtfl.passes.floats import compute_in_float32, narrow_float64
from onnxtfl.passes.fold import fold
from onnxtfl.passes.fuse_activations import fuse_activations
from onnxtfl.passes.inline import inline_functions
from onnxtfl.passes.layout import assign_layouts
from onnxtfl.passes.recognize import recognize
from onnxtfl.passes.shared_memory import keep_memory_apart
from onnxtfl.passes.simplify import simplify
from onnxtfl.passes.unit_axes import sink_reshapes
from onnxtfl.passes.vectors import CONVERSIONS, VECTORS
from onnxtfl.rewriting.legalize import acceptable, legalize
from onnxtfl.rewriting.lift import lift, op_name
from onnxtfl.rewriting.lower import lower
from onnxtfl.rewriting.patterns import Patterns
from onnxtfl.targets import Target
from onnxtfl.targets.onnx import OnnxTarget
from onnxtfl.targets.tflite import TfliteTarget, refuse_unknown_versions

if TYPE_CHECKING:
    import onnx

Step = tuple[str, Callable[[Graph], None]]
"""A pass and its name."""
_MOVES = {"tfl": Patterns.of(MOVES, VECTORS), "onnx": Patterns.of(MOVES, VECTORS, CONVERSIONS)}
"""The rewrites of ops that only move data, which run after legalization."""
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """How to convert.

    `input_shapes`: input name -> sizes (-1 stays open). `io_layout`: whether inputs and outputs keep the source's
    axes. `float64`: "narrow" computes in float32, "error" refuses. `min_runtime`: the oldest runtime that has to run
    the result. `inputs`, `outputs`: names of tensors to cut the model at. `opset`: the ONNX opset to write.
    """

    input_shapes: Mapping[str, Sequence[int]] | None = None
    io_layout: Literal["source", "channels-last"] = "source"
    float64: Literal["narrow", "error"] = "narrow"
    min_runtime: str = "2.14"
    inputs: Sequence[str] | None = None
    outputs: Sequence[str] | None = None
    opset: int = 21
    on_progress: Progress | None = field(default=None, compare=False)
    debug: bool = bool(os.environ.get("ONNXTFL_VERIFY"))

    def step(self, name: str, graph: Graph | None = None) -> None:
        """Say what comes next; in debug runs hold the graph against the verifier."""
        if self.on_progress is not None:
            self.on_progress(name)
        if self.debug and graph is not None:
            verify(graph, f"before {name}")


@dataclass
class Report:
    """What a conversion read and wrote: (name, dtype, shape) of inputs and outputs, ops by name, before and after."""

    inputs: list[tuple[str, str, tuple[str, ...]]] = field(default_factory=list)
    outputs: list[tuple[str, str, tuple[str, ...]]] = field(default_factory=list)
    ops_before: dict[str, int] = field(default_factory=dict)
    ops_after: dict[str, int] = field(default_factory=dict)


def onnx_to_tflite(model: str | os.PathLike[str] | bytes | onnx.ModelProto, out: BinaryIO, options: Options) -> Report:
    """Convert an ONNX model and write the .tflite to `out`, a seekable binary file.

    Raises OnnxtflError (InvalidModelError, UnsupportedError, ...) naming the place; `out` is then worth nothing.
    """
    target = TfliteTarget(options.min_runtime)
    with _conversion(options) as told:
        source = onnx_reader.read(model)
        inline_functions(source)
        report = Report(ops_before=count_ops(source.main))
        graph = lifted(source.main, told)
        to_target(graph, target, told)
        return _finish(graph, report, told, lambda: tflite_writer.write(Model(graph), out))


def tflite_to_onnx(model: str | os.PathLike[str] | bytes, out: BinaryIO, options: Options) -> Report:
    """Convert a TFLite model and write the .onnx to `out`, a seekable binary file; errors as for the other way."""
    target = OnnxTarget(options.opset)
    name = getattr(out, "name", None)  # weights past 2 GB go beside a file that has a name
    external = f"{os.fspath(name)}.data" if isinstance(name, str | os.PathLike) else None
    with _conversion(options) as told:
        source = tflite_reader.read(model)
        refuse_unknown_versions(source.main)
        report = Report(ops_before=count_ops(source.main))
        graph = lifted(source.main, told)
        to_target(graph, target, told)
        write = partial(onnx_writer.write, Model(graph), out, opset=options.opset, external=external)
        return _finish(graph, report, told, write)


@contextlib.contextmanager
def _conversion(options: Options) -> Iterator[Options]:
    """What every conversion begins and ends with: an exception that is not an error of the user's is an InternalError.

    The graph lives until the end: collecting garbage would find nothing.
    """
    collecting = gc.isenabled()
    gc.disable()
    taken: list[str] = []
    try:
        told = replace(options, on_progress=partial(_take, taken, options.on_progress))
        told.step("read")
        with symbol_scope():
            yield told
    except (OnnxtflError, OSError):
        raise
    except MemoryError as error:
        raise UnsupportedError(f"out of memory in {taken[-1]}") from error
    except Exception as error:
        raise InternalError(taken[-1], error) from error
    finally:
        if collecting:
            gc.enable()


def _take(taken: list[str], on_progress: Progress | None, name: str) -> None:
    """Say what comes next, and remember it."""
    taken.append(name)
    if on_progress is not None:
        on_progress(name)


def lifted(graph: Graph, options: Options) -> Graph:
    """From a file's ops to neutral ones, cut and with shapes as the options say."""
    names = graph.output_names or [v.name or f"output_{i}" for i, v in enumerate(graph.outputs)]
    set_input_shapes(graph, options.input_shapes or {})
    cut_names = cut(graph, options.inputs, options.outputs, body)
    graph.output_names = cut_names or names
    options.step("lift")
    lift(graph, body)
    remove_dead(graph)
    return graph


def body(node: Node) -> Graph | None:
    """What an op is by the definition of its format or file; None where that is no graph."""
    return functions.body(node) if node.op.dialect == "onnx" else composites.body(node)


def to_target(graph: Graph, target: Target, options: Options, until: str | None = None) -> None:
    """From neutral ops to those of the target; `until` names the last step to take (see :func:`steps`)."""
    for name, step in steps(target, options):
        options.step(name, graph)
        step(graph)
        if name == until:
            return


def steps(target: Target, options: Options) -> list[Step]:
    """The steps between lifting and writing, by name."""

    def takes(node: Node) -> bool:
        return acceptable(node, target)

    def layout(graph: Graph) -> None:
        assign_layouts(graph, takes, channels_last=target.channels_last, io_layout=options.io_layout)

    def tidied(graph: Graph) -> None:
        tidy(graph, _MOVES[target.name])
        separate_outputs(graph, target.shares_inputs)

    first, last = _own_steps(target, options)
    return [
        *first,
        ("simplify", simplify),
        ("separate", lambda graph: separate_outputs(graph, target.shares_inputs)),
        ("legalize", lambda graph: legalize(graph, target)),
        ("tidy", tidied),
        ("sink", sink_reshapes),
        ("layout", layout),
        ("settle", lambda graph: legalize(graph, target, late=True)),
        ("cleanup", tidied),
        ("lower", lambda graph: lower(graph, target)),
        *last,
    ]


def _own_steps(target: Target, options: Options) -> tuple[list[Step], list[Step]]:
    """The steps that one target alone needs, before and after the common ones."""
    if not isinstance(target, TfliteTarget):
        return [("recognize", recognize)], []
    first: list[Step] = [
        ("narrow", partial(narrow_float64, mode=options.float64)),
        ("floats", compute_in_float32),
    ]
    last: list[Step] = [
        ("activations", partial(fuse_activations, target=target)),
        ("memory", partial(keep_memory_apart, target=target)),
    ]
    return first, last


def tidy(graph: Graph, moves: Patterns) -> None:
    """Fold what became constant, merge what became equal, drop what became useless; in subgraphs too."""
    fold(graph)
    merge_equal(graph)
    moves.apply(graph)
    remove_dead(graph)
    for node in graph.nodes:
        for inner in node.subgraphs():
            tidy(inner, moves)


@symbol_scope()
def inspect(model: str | os.PathLike[str] | bytes, stage: str, options: Options) -> Graph:
    """The graph of a model (either format) after a stage: "file", "lifted", or a step's name.

    A .tflite is taken towards ONNX, a .onnx towards TFLite. UsageError for an unknown stage.
    """
    is_tflite = _is_tflite(model)
    source = tflite_reader.read(model) if is_tflite else onnx_reader.read(model)
    graph = source.main
    target: Target = OnnxTarget(options.opset) if is_tflite else TfliteTarget(options.min_runtime)
    names = [name for name, _ in steps(target, options)]
    if stage not in ("file", "lifted", *names):
        raise UsageError(f"there is no stage {stage!r}", hint=f"the stages are file, lifted, {', '.join(names)}")
    if stage == "file":
        return graph
    inline_functions(source)
    graph = lifted(graph, options)
    if stage != "lifted":
        to_target(graph, target, options, until=stage)
    return graph


def _is_tflite(model: str | os.PathLike[str] | bytes) -> bool:
    """Whether this is a flatbuffer with TFLite's identifier."""
    if isinstance(model, bytes):
        return model[4:8] == b"TFL3"
    with SourceFile(model) as file:
        return file.size >= 8 and file.read(4, 4) == b"TFL3"


def _finish(graph: Graph, report: Report, options: Options, write: Callable[[], object]) -> Report:
    keep_names(graph)
    options.step("write")
    write()
    report.ops_after = count_ops(graph)
    report.inputs = [_describe(v.name, v.type) for v in graph.inputs]
    report.outputs = [_describe(v.name, v.type) for v in graph.outputs]
    return report


def _describe(name: str | None, type_: object) -> tuple[str, str, tuple[str, ...]]:
    from onnxtfl.ir.types import TensorType

    if isinstance(type_, TensorType):
        return name or "", type_.storage.value, tuple(str(d) for d in type_.shape or ())
    return name or "", str(type_), ()


def count_ops(graph: Graph) -> dict[str, int]:
    """How often each op stands in the graph and its subgraphs, the most frequent first."""
    return dict(Counter(op_name(node) for node in graph.walk()).most_common())


__all__ = ["Options", "Report", "count_ops", "inspect", "onnx_to_tflite", "tflite_to_onnx"]
