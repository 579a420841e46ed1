"""Fallbacks for a model that its runtime refuses: an older form of the file, other kernels, another runtime.

The result is "not checked" only if none of them runs the model. The fallback is named in the report.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from onnxtfl.checking.models.side import Side
from onnxtfl.errors import OnnxtflError, RuntimeUnavailableError, one_line
from onnxtfl.formats import files
from onnxtfl.ir.model import Model
from onnxtfl.passes.canonical.inline import inline_functions
from onnxtfl.runtimes import NEUTRAL, REFERENCE, RunError
from onnxtfl.tracing.parts import temporary_directory

HOPELESS = frozenset({"unavailable", "timeout", "memory"})
"""Kinds of `RunError` for which fallbacks are not tried, since they would take as long."""
LIMIT = 60.0
"""The most seconds for a run of the reference evaluator."""
EVALUATED = "it was evaluated by the neutral ops, in NumPy"
CONVERTIBLE = 1 << 30
"""Bytes of the largest model that is converted to another opset in memory."""


def fallbacks(side: Side, error: RunError, stack: ExitStack) -> Iterator[str]:
    """Change how ``side`` runs, one fallback after the other, and yield its description (`Side.way`); afterwards,
    restore ``side``.

    ``error``: why it did not run. ``stack``: holds files and processes.
    """
    if error.kind in HOPELESS:
        return
    kept = side.info, side.way, side.worker, dict(side.run_options)
    side.refused = error
    for way in _WAYS[side.info.format](side, error, stack):
        side.way = way
        yield way
    side.info, side.way, side.worker, side.run_options = kept


def in_words(which: str, side: Side) -> str:
    """How the first or second model ran, and why not by default."""
    if side.refused is None:
        return f"the {which} model ran {side.way}"
    why = f" ({one_line(side.refused.message, 160)})"
    return f"the {which} model does not run by default, {side.way}{why}"


def _tflite_fallbacks(side: Side, error: RunError, stack: ExitStack) -> Iterator[str]:
    for kernels in ("builtin", "reference"):
        side.run_options = {"kernels": kernels}
        yield f"it ran on the {kernels} kernels"
    yield from _evaluated(side, stack)


def _evaluated(side: Side, stack: ExitStack) -> Iterator[str]:
    """Evaluate the model by the meaning of its ops, where no runtime has a kernel."""
    side.run_options, side.worker = {"time_limit": LIMIT}, stack.enter_context(NEUTRAL.worker())
    yield EVALUATED


def _onnx_fallbacks(side: Side, error: RunError, stack: ExitStack) -> Iterator[str]:
    source = side.info
    older = _older(source.path, error.message, stack)
    if older is not None:
        path, words = older
        side.info = replace(source, path=path)
        yield f"it was written with {words}"
    elif error.kind != "unsupported":
        side.run_options = {"kernels": "builtin"}
        yield "it ran without graph optimizations"
    side.info, side.run_options = source, {"time_limit": LIMIT}
    try:
        worker = stack.enter_context(REFERENCE.worker())
    except RuntimeUnavailableError:
        return
    side.worker = worker
    yield f"it ran in onnx.reference {REFERENCE.version()}"
    yield from _evaluated(side, stack)


def _no_fallbacks(side: Side, error: RunError, stack: ExitStack) -> Iterator[str]:
    yield from ()


_WAYS = {"onnx": _onnx_fallbacks, "tflite": _tflite_fallbacks, "ir": _no_fallbacks}


def _older(source: Path, told: str, stack: ExitStack) -> tuple[Path, str] | None:
    """The model for the opset and IR version in the runtime's error, and these as text; None if the error names none or
    the model cannot be converted to them.
    """
    newest = re.search(r"support for domain ai\.onnx is till opset (\d+)", told)
    if newest is None and "max supported IR version" not in told:
        return None
    try:
        model = files.read(source)
        opset = min(model.opsets.get("", 1), int(newest[1])) if newest else model.opsets.get("", 1)
        if not _is_valid(model, opset):
            model = _converted(source, opset)
        inline_functions(model)
        model.opsets = model.opsets | {"": opset}
        target = temporary_directory(stack) / f"opset{opset}.onnx"
        return files.write(model, target), f"opset {opset}"
    except (OnnxtflError, OSError):
        return None


def _is_valid(model: Model, opset: int) -> bool:
    """Whether no op has a definition newer than ``opset``, so that all keep their meaning."""
    nodes = (node for graph in model.graphs() for node in graph.walk())
    return all(node.op.domain or node.op.version <= opset for node in nodes)


def _converted(source: Path, opset: int) -> Model:
    """The model as onnx.version_converter writes it; raises `OnnxtflError` if that fails."""
    from onnx import load, version_converter

    if os.path.getsize(source) > CONVERTIBLE:
        raise OnnxtflError("too large to convert in memory", hint="", code="E-OP-008")
    try:
        return files.read(version_converter.convert_version(load(source), opset))
    except OnnxtflError:
        raise
    except Exception as error:  # ConvertError, RuntimeError, ... of the native library
        raise OnnxtflError(str(error), hint="", code="E-OP-003") from error
