"""The public functions; ``import onnxtfl`` offers them under its own name."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from onnxtfl.errors import CheckFailedError, InvalidModelError, OutputError, UsageError
from onnxtfl.output import Output

if TYPE_CHECKING:
    import onnx

    from onnxtfl.checking import CheckReport
    from onnxtfl.ir.record import Record
    from onnxtfl.pipeline import Options, Report

PathLike = str | os.PathLike[str]
CheckMode = Literal["auto", "require"] | bool
IoLayout = Literal["source", "channels-last"]
Progress = Callable[[str], None]
OPSETS = range(13, 25)


@dataclass(frozen=True)
class TensorReport:
    """An input or output of the result: name, dtype (``float32``, ``int64``, ...) and shape (sizes and symbols)."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]


@dataclass(frozen=True)
class ConversionReport:
    """What a conversion did.

    ``ops_before``, ``ops_after``: how often each operator stands in the source and in the result. ``source_size`` (of
    the model file itself, None for a model in memory) and ``size``: bytes. ``seconds``: of the conversion, without
    the check. ``peak_memory``: bytes that this process had resident at most, None where the system does not tell.
    ``passes``: (name, seconds, nodes afterwards) of each pass, in order.
    """

    inputs: tuple[TensorReport, ...]
    outputs: tuple[TensorReport, ...]
    ops_before: Mapping[str, int]
    ops_after: Mapping[str, int]
    source_size: int | None
    size: int
    seconds: float
    peak_memory: int | None
    passes: tuple[tuple[str, float, int], ...] = ()


@dataclass(frozen=True)
class Conversion:
    """A converted model: the ``path`` where it was written, or its bytes in ``data``; the other one is None.

    ``report``: what was done. ``check``: the comparison of the two models, None where none was asked for. ``record``:
    which target tensor holds each tensor of the source, and what made each target op (`onnxtfl.ir.record.Record`).
    """

    path: Path | None
    data: bytes | None
    report: ConversionReport
    check: CheckReport | None
    record: Record | None = None


@dataclass(frozen=True)
class _Job:
    """A conversion with everything that the two directions share."""

    format: str  # of the source: "onnx" or "tflite"
    model: Any
    path: PathLike | None
    options: Options
    check: CheckMode
    rtol: float
    atol: float
    seed: int
    keep_failed: bool
    time_limit: float
    on_progress: Progress | None


def onnx_to_tflite(
    model: PathLike | bytes | onnx.ModelProto,
    path: PathLike | None = None,
    *,
    check: CheckMode = True,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    io_layout: IoLayout = "source",
    float64: Literal["narrow", "error"] = "narrow",
    min_runtime: str = "2.14",
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    rtol: float = 1e-3,
    atol: float = 1e-4,
    seed: int = 0,
    keep_failed: bool = False,
    time_limit: float = 300.0,
    on_progress: Progress | None = None,
) -> Conversion:
    """Convert an ONNX model to TFLite.

    ``model``: a path, the bytes of a file, or an ``onnx.ModelProto``. ``path``: where to write the .tflite; without
    it the result's bytes are in ``Conversion.data``. The result keeps the names, order, dtypes and shapes of the
    inputs and outputs.

    ``check``: True (or "auto") runs both models on the same made-up inputs and raises `CheckFailedError` where they
    differ; where one of them cannot be run (no such runtime, an operator that it lacks) the conversion goes through
    with ``conversion.check.status == "not checked"``. "require" raises then too; False does not check. ``rtol`` and
    ``atol``: ``|b - a| <= rtol |a| + atol max|a|`` for floats. ``seed``: of the inputs. ``time_limit``: seconds for
    each run. ``keep_failed``: write the result also where the check fails.

    ``input_shapes``: sizes by input name, for dimensions that the model leaves open or to change. ``io_layout``:
    "channels-last" moves the axes of inputs and outputs. ``float64``: "narrow" computes it in float32, "error" refuses
    it. ``min_runtime``: the oldest TFLite runtime that has to run the result. ``inputs``, ``outputs``: names of
    tensors at which to cut a part out. ``on_progress``: called with the name of each step.

    Raises `InvalidModelError` (a bad file), `UnsupportedError` (a good model that TFLite cannot express; names node,
    op, version and type), `UsageError` (options that make no sense), `OutputError`, `CheckFailedError`.
    """
    from onnxtfl.pipeline import Options

    _validate(check, io_layout, input_shapes)
    _one_of("float64", float64, ("narrow", "error"))
    _check_version(min_runtime)
    options = Options(input_shapes, io_layout, float64, min_runtime, inputs, outputs, on_progress=on_progress)
    return _convert(_Job("onnx", model, path, options, check, rtol, atol, seed, keep_failed, time_limit, on_progress))


def tflite_to_onnx(
    model: PathLike | bytes,
    path: PathLike | None = None,
    *,
    opset: int = 21,
    check: CheckMode = True,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    io_layout: IoLayout = "source",
    float64: Literal["narrow", "error"] = "narrow",
    min_runtime: str = "2.14",
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    rtol: float = 1e-3,
    atol: float = 1e-4,
    seed: int = 0,
    keep_failed: bool = False,
    time_limit: float = 300.0,
    on_progress: Progress | None = None,
) -> Conversion:
    """Convert a TFLite model (a path or its bytes) to ONNX of ``opset`` 13 to 24.

    The other parameters, the result and the errors are those of `onnx_to_tflite` (``min_runtime`` has no meaning in
    this direction). Past 2 GB the weights go to ``path`` + ".data".
    """
    from onnxtfl.pipeline import Options

    _validate(check, io_layout, input_shapes)
    _one_of("float64", float64, ("narrow", "error"))
    if opset not in OPSETS:
        raise UsageError(f"opset {opset} cannot be written", hint=f"use {OPSETS[0]} to {OPSETS[-1]}")
    options = Options(input_shapes, io_layout, float64, min_runtime, inputs, outputs, opset, on_progress)
    return _convert(_Job("tflite", model, path, options, check, rtol, atol, seed, keep_failed, time_limit, on_progress))


def check(
    a: PathLike | bytes | onnx.ModelProto,
    b: PathLike | bytes | onnx.ModelProto,
    *,
    rtol: float = 1e-3,
    atol: float = 1e-4,
    seed: int = 0,
    inputs: Mapping[str, Any] | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    time_limit: float = 300.0,
) -> CheckReport:
    """Run two models, each .onnx or .tflite, on the same inputs and compare; ``a`` is taken to be right.

    ``inputs``: arrays by ``a``'s input names, for some or all of them; the rest are made up from ``seed``: embedding
    ids inside their table, masks of 0 and 1, floats normal. Inputs and outputs are matched by name, then by position
    and shape; channels-last matches channels-first. A .tflite as ``b`` has to agree with XNNPACK and without it.

    Never raises for models that differ or do not run: see ``CheckReport.status``. Raises `InvalidModelError` for a
    file that cannot be read and `UsageError` for an unknown input name.
    """
    from onnxtfl.checking import Settings, check_models

    settings = Settings(rtol, atol, seed, time_limit, input_shapes=_shapes(input_shapes))
    with ExitStack() as stack:
        return check_models(_as_file(a, "a", stack), _as_file(b, "b", stack), settings, inputs)


def _convert(job: _Job) -> Conversion:
    """Convert into a file of its own, check that, and only then let it appear under its name."""
    _refuse_wrong_format(job)
    started = time.perf_counter()
    suffix = ".tflite" if job.format == "onnx" else ".onnx"
    with ExitStack() as stack:
        output = stack.enter_context(Output(job.path, "model" + suffix))
        result = _run_pipeline(job, output)
        report = _report(job, result, output, time.perf_counter() - started)
        compared = None if job.check is False else _check(job, result, output.file, stack)
        failed = compared is not None and (
            compared.status == "failed" or (job.check == "require" and compared.status != "passed")
        )
        if failed and not job.keep_failed:
            raise _check_error(compared, Conversion(None, None, report, compared, result.record))
        conversion = _finish(job, output, report, compared, result.record)
        if failed:
            raise _check_error(compared, conversion)
        return conversion


def _run_pipeline(job: _Job, output: Output) -> Report:
    from onnxtfl import pipeline

    step: Callable[[Any, BinaryIO, Options], Report]
    step = pipeline.onnx_to_tflite if job.format == "onnx" else pipeline.tflite_to_onnx
    try:
        with output.file.open("w+b") as out:
            return step(job.model, out, job.options)
    except OSError as error:
        raise OutputError(f"cannot write {output.target or 'the result'}: {error.strerror or error}") from error


def _finish(
    job: _Job, output: Output, report: ConversionReport, compared: CheckReport | None, record: Record
) -> Conversion:
    if output.target is None:
        return Conversion(None, output.data(), report, compared, record)
    output.commit()
    return Conversion(Path(os.fspath(job.path or output.target)), None, report, compared, record)


def _check(job: _Job, result: Report, converted: Path, stack: ExitStack) -> CheckReport:
    """Compare the source, or the part of it that was converted, with the result."""
    from onnxtfl.checking import Layout, Settings, check_models
    from onnxtfl.checking.part import prepare_source

    if job.on_progress is not None:
        job.on_progress("check")
    options = job.options
    part = options.inputs is not None or options.outputs is not None
    names = [[name for name, _, _ in specs] if part else None for specs in (result.inputs, result.outputs)]
    source = _as_file(job.model, "source", stack)
    source = prepare_source(source, stack, names[0], names[1], _shapes(options.input_shapes))
    layout: Layout = "source" if options.io_layout == "source" else "channels-last"
    shapes = {name: shape for name, shape in _shapes(options.input_shapes).items() if min(shape, default=1) > 0}
    settings = Settings(job.rtol, job.atol, job.seed, job.time_limit, layout, input_shapes=shapes)
    return check_models(source, converted, settings)


def _check_error(compared: CheckReport | None, conversion: Conversion) -> CheckFailedError:
    kept = f"the result is kept in {conversion.path}" if conversion.path else None
    return CheckFailedError(f"the check of the converted model {compared}", conversion=conversion, hint=kept)


def _report(job: _Job, result: Report, output: Output, seconds: float) -> ConversionReport:
    return ConversionReport(
        tuple(_tensor(*spec) for spec in result.inputs),
        tuple(_tensor(*spec) for spec in result.outputs),
        dict(result.ops_before),
        dict(result.ops_after),
        os.path.getsize(job.model) if isinstance(job.model, str | os.PathLike) else None,
        output.size(),
        seconds,
        peak_memory(),
        tuple((timing.name, timing.seconds, timing.nodes) for timing in result.passes),
    )


def _tensor(name: str, dtype: str, shape: Sequence[int | str]) -> TensorReport:
    return TensorReport(name, dtype, tuple(int(dim) if str(dim).isdecimal() else str(dim) for dim in shape))


def peak_memory() -> int | None:
    """Return the bytes that this process had resident at most, None where the system does not tell."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            return next((int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:")), None)
    except OSError:
        pass
    try:
        import resource
        import sys
    except ImportError:  # Windows
        return None
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest if sys.platform == "darwin" else largest * 1024


def _as_file(model: Any, name: str, stack: ExitStack) -> Path:
    """Return ``model`` as a file; one that lies in memory is written for as long as ``stack`` is open."""
    if isinstance(model, str | os.PathLike):
        return Path(model)
    import tempfile

    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="onnxtfl-", ignore_cleanup_errors=True)))
    if isinstance(model, bytes | bytearray | memoryview):
        data = bytes(model)
        path = directory / (name + (".tflite" if data[4:8] == b"TFL3" else ".onnx"))
        path.write_bytes(data)
        return path
    from onnxtfl.checking.part import save_onnx

    return save_onnx(model, directory / f"{name}.onnx")


def _refuse_wrong_format(job: _Job) -> None:
    """Say it when a .tflite is given as ONNX or the reverse, and never write over the source."""
    if isinstance(job.model, bytes | bytearray | memoryview):
        found, name = ("tflite" if bytes(job.model[4:8]) == b"TFL3" else "onnx"), "the model"
    elif isinstance(job.model, str | os.PathLike):
        from onnxtfl.runtimes.describe import sniff

        found, name = sniff(job.model), os.fspath(job.model)
        if job.path is not None and os.path.exists(job.path) and os.path.samefile(job.model, job.path):
            raise UsageError(f"{os.fspath(job.path)} is the source itself", hint="write the result to another file")
    elif job.format == "onnx" and type(job.model).__name__ == "ModelProto":
        return
    else:
        kinds = "a path, bytes or an onnx.ModelProto" if job.format == "onnx" else "a path or bytes"
        raise UsageError(f"a model is {kinds}, not {type(job.model).__name__}")
    if found != job.format and found == "tflite":
        raise InvalidModelError(f"{name} is a TFLite file, not an ONNX one", hint="tfl2onnx converts it")
    if found != job.format:
        raise InvalidModelError(f"{name} is no TFLite file", hint="onnx2tfl converts ONNX files")


def _validate(check: object, io_layout: str, input_shapes: Mapping[str, Sequence[int]] | None) -> None:
    _one_of("check", check, (True, False, "auto", "require"))
    _one_of("io_layout", io_layout, ("source", "channels-last"))
    for name, shape in _shapes(input_shapes).items():
        if any(size < -1 or size > 2**31 - 1 for size in shape):
            raise UsageError(f"the shape {list(shape)} of input {name!r} makes no sense")


def _shapes(input_shapes: Mapping[str, Sequence[int]] | None) -> dict[str, tuple[int, ...]]:
    return {name: tuple(int(size) for size in shape) for name, shape in (input_shapes or {}).items()}


def _one_of(name: str, value: object, allowed: Sequence[object]) -> None:
    if value not in allowed:
        raise UsageError(f"{name} cannot be {value!r}", hint=f"use {', '.join(map(repr, allowed))}")


def _check_version(version: str) -> None:
    if not all(part.isdecimal() for part in str(version).split(".")):
        raise UsageError(f"min_runtime cannot be {version!r}", hint="use a version like 2.14")


def inspect(model: PathLike | bytes, stage: str = "file") -> str:
    """Return the graph of a model in the text form after a step of its conversion; "file" is the graph as it stands.

    Raises `InvalidModelError`, `UnsupportedError`, and `UsageError` for a stage that does not exist.
    """
    from onnxtfl.ir.text_print import print_graph
    from onnxtfl.pipeline import Options
    from onnxtfl.pipeline import inspect as graph_after

    return print_graph(graph_after(model, stage, Options()))


def coverage() -> str:
    """Return which operators convert, as Markdown tables: each version of each ONNX operator, and each TFLite one."""
    from onnxtfl.op_tables import op_tables

    return op_tables()
