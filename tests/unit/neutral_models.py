"""Neutral graphs as models of both formats: converted by the stages of a conversion, and run in both runtimes."""

from __future__ import annotations

import io
from collections.abc import Sequence

from onnxtfl.formats.onnx import writer as onnx_writer
from onnxtfl.formats.tflite import writer as tflite_writer
from onnxtfl.ir.cloning import clone
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.model import Model
from onnxtfl.options import Options
from onnxtfl.pipeline import passes_for
from onnxtfl.pipeline_run import PipelineRun
from onnxtfl.targets.empty import assume_elements
from onnxtfl.targets.onnx import OnnxTarget
from onnxtfl.targets.tflite import TfliteTarget
from tests.harness.litert import run_onnx, run_tflite


def as_tflite(graph: Graph, options: Options | None = None) -> bytes:
    """The .tflite file of a neutral graph, which stays as it is."""
    options, target, out = options or Options(), TfliteTarget(), io.BytesIO()
    with PipelineRun.of(options, target, passes_for(target, options)) as conversion:
        source = Model(_named(graph), format="onnx")
        written = conversion.run(source)
        assume_elements(written)
        tflite_writer.write(conversion.model(source, written), out, late=conversion.late(written))
    return out.getvalue()


def as_onnx(graph: Graph, options: Options | None = None) -> bytes:
    """The .onnx file of a neutral graph, which stays as it is."""
    options, out = options or Options(), io.BytesIO()
    target = OnnxTarget(options.opset)
    with PipelineRun.of(options, target, passes_for(target, options)) as conversion:
        source = Model(_named(graph), format="tflite")
        written = conversion.run(source)
        onnx_writer.write(conversion.model(source, written), out, opset=target.opset, late=conversion.late(written))
    return out.getvalue()


def run_in_both(graph: Graph, inputs: Sequence[Array]) -> tuple[list[Array], list[Array]]:
    """The outputs of a neutral graph, computed by LiteRT and by ONNX Runtime."""
    tflite, onnx = as_tflite(graph), as_onnx(graph)
    named = {f"x{i}": x for i, x in enumerate(inputs)}
    return [array for _, array in run_tflite(tflite, named)], list(run_onnx(onnx, named).values())


def _named(graph: Graph) -> Graph:
    copy = clone(graph)
    for i, value in enumerate(copy.inputs):
        value.name = f"x{i}"
    copy.output_names = [f"y{i}" for i in range(len(copy.outputs))]
    return copy
