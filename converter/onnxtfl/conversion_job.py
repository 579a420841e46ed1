"""The run of one conversion, in either direction: its options, the pipeline, the check, and the file that it writes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from onnxtfl import platform_calls
from onnxtfl.arguments import checked, conversion_options, model_kind, settings
from onnxtfl.conversion import Conversion, ConversionReport, ExpectedGain, IoType, StateReport, TensorReport
from onnxtfl.conversion_check import (
    Job,
    arena_size,
    check_loads,
    check_result,
    copied,
    faults_of,
    placed_ops,
    start_workers,
)
from onnxtfl.errors import CheckFailedError, OutputError, UsageError
from onnxtfl.ir.data import PathLike
from onnxtfl.option_table import TO_ONNX, TO_TFLITE
from onnxtfl.output import Output, placed
from onnxtfl.schemas.target_tables import target_tables

if TYPE_CHECKING:
    from onnxtfl.checking.report import CheckReport
    from onnxtfl.ir.model import FormatName
    from onnxtfl.ir.record import Record
    from onnxtfl.options import Options
    from onnxtfl.pipeline_report import Report
    from onnxtfl.quantizing import Quantizing


def job_of(model: Any, path: PathLike | None, given: Mapping[str, Any], quantizing: Quantizing | None = None) -> Job:
    """Return the conversion job for `given`, the keywords of a public function; only ONNX results have an opset."""
    format_: FormatName = "tflite" if "opset" in given else "onnx"
    options, comparison = conversion_options(given), settings(TO_TFLITE if format_ == "onnx" else TO_ONNX, given)
    path = placed(checked(path=path)["path"], model, ".tflite" if format_ == "onnx" else ".onnx")
    kept, load, data = given["keep_failed"], given["load"], given["check_data"]
    if given["check"] is False and data is not None:
        raise UsageError("`check_data` is for the check, which `check=False` leaves out", hint="leave out one of them")
    return Job(format_, model, path, options, given["check"], comparison, kept, quantizing, load, data)


def convert(job: Job) -> Conversion:
    """Convert into a temporary file, check it, then move it to its path."""
    started = time.perf_counter()
    name = "model.tflite" if job.format == "onnx" else "model.onnx"
    with ExitStack() as stack:
        workers = start_workers(job, stack)
        _check_model(job)
        output = stack.enter_context(Output(job.path, name))
        if workers is not None:
            stack.callback(workers.close)  # before the file is removed that they read
        result = _run_pipeline(job, output)
        output.keep_apart([*_files(job.model), *result.source_files])
        seconds = time.perf_counter() - started
        compared = check_result(job, result, output.file, stack, workers) if workers is not None else None
        failed = _has_failed(job, compared)
        if job.quantizing is not None and not failed:
            started = time.perf_counter()
            before = None if workers is None else copied(output.file, stack)
            sample = _quantize(job, job.quantizing, result, output.file)
            seconds += time.perf_counter() - started
            if workers is not None:
                compared = check_result(job, result, output.file, stack, workers, before, sample)
            failed = _has_failed(job, compared)
        if compared is None or compared.status == "not checked":
            check_loads(job, result, output.file, stack, workers)
        arena = None if failed else arena_size(job, output.file)
        placement = None if failed else placed_ops(job, output.file, result.record)
        faults = () if failed else faults_of(job, output.file)
        report = replace(_report(job, result, output, seconds), arena=arena, placement=placement, faults=faults)
        kept = None if failed and not job.keep_failed else output
        conversion = _finish(job, kept, report, compared, result.record)
        if failed:
            advice = job.quantizing.advice if job.quantizing and result.quantization else None
            raise _failure(conversion, advice)
        return conversion


def _failure(conversion: Conversion, advice: str | None) -> CheckFailedError:
    """The error for a conversion whose check failed; `advice`: what helps if nothing was written."""
    compared = conversion.check
    hint = f"the result is kept in {conversion.path}" if conversion.path else advice
    if not hint:  # None: how to find the op
        hint = None if compared is not None and compared.outputs and compared.first_difference is None else ""
    differs = compared is not None and compared.status == "failed"
    message = f"the {'check of the converted model' if differs else 'converted model was'} {compared}"
    return CheckFailedError(message, conversion=conversion, hint=hint, code="E-CHECK-001" if differs else "E-CHECK-002")


def _has_failed(job: Job, compared: CheckReport | None) -> bool:
    if compared is None:
        return False
    return compared.status == "failed" or (job.check == "require" and compared.status != "passed")


def quantizing_of(given: Mapping[str, Any]) -> Quantizing | None:
    """Return how to quantize, None without quantization. Raises `UsageError` and `RuntimeUnavailableError`.

    `given`: the keywords of `onnx_to_tflite`.
    """
    mode, calibration, quantized_io = given["quantize"], given["calibration"], given["quantized_io"]
    mean, std = given["mean"], given["std"]
    if mode is None and calibration is None and mean is None and std is None:
        return None
    if mode is None:
        raise UsageError("calibration data are for quantizing", hint="choose how to quantize (`quantize`)")
    from onnxtfl.quantizing import Quantizing

    if quantized_io in ("uint8", "int16") or (quantized_io == "int8" and mode != "int8"):
        raise UsageError(f"{mode} has no {quantized_io} inputs and outputs", hint="leave out `quantized_io`")
    target = target_tables()[given["target"]]
    if mode not in target.weights:
        raise UsageError(
            f"{target.title} has no kernels for {mode} weights", hint=f"quantize to {' or '.join(target.weights)}"
        )
    made = Quantizing(mode, calibration, quantized_io != "int8", ("litert", *target.narrowed), mean, std)
    made.validate()
    return made


def _quantize(job: Job, quantizing: Quantizing, result: Report, file: Path) -> Mapping[str, Any] | None:
    """Quantize the converted file and change `result` accordingly; returns inputs of the source that fit."""
    if job.options.on_progress is not None:
        job.options.on_progress("quantize")
    sample = quantizing.run(file, result, job.comparison["seed"])
    return sample if job.options.moves_to == "source" else None


def _run_pipeline(job: Job, output: Output) -> Report:
    from onnxtfl import pipeline

    step: Callable[[Any, BinaryIO, Options], Report]
    step = pipeline.onnx_to_tflite if job.format == "onnx" else pipeline.tflite_to_onnx
    options = replace(job.options, is_quantized_later=job.quantizing is not None, check_data=job.data)
    try:
        with output.file.open("w+b") as out:
            return step(job.model, out, options)
    except OSError as error:  # the source's files raise InvalidModelError
        raise OutputError(f"cannot write {output.shown}: {error.strerror or error}") from error


def _files(model: Any) -> list[PathLike]:
    return [model] if isinstance(model, str | os.PathLike) else []


def _finish(
    job: Job, output: Output | None, report: ConversionReport, compared: CheckReport | None, record: Record
) -> Conversion:
    """Move the result to its path; it is dropped if `output` is None."""
    path = data = None
    if output is not None and output.target is None:
        data = output.data()
    elif output is not None:
        output.commit()
        path = Path(os.fspath(job.path or output.target or ""))
    return Conversion(path, data, report, compared, record)


def _report(job: Job, result: Report, output: Output, seconds: float) -> ConversionReport:
    return ConversionReport(
        tuple(TensorReport(*spec) for spec in result.inputs),
        tuple(TensorReport(*spec) for spec in result.outputs),
        result.ops_before,
        result.ops_after,
        result.source_size,
        output.size(),
        seconds,
        platform_calls.peak_memory(),
        tuple((timing.name, timing.seconds, timing.nodes) for timing in result.passes),
        result.quantization,
        tuple(StateReport(state.input, state.output, state.initial) for state in result.states),
        None if result.kept_states is None else tuple(result.kept_states),
        tuple(result.other_signatures),
        result.elements,
        tuple(result.dropped_metadata),
        tuple(one.text for one in result.assumptions),
        tuple(result.complex_names),
        os.fspath(job.model) if isinstance(job.model, str | os.PathLike) else "",
        float16=result.float16,
        io_types=tuple(IoType(*entry) for entry in result.io_types),
        opset=result.opset,
        gains=tuple(ExpectedGain(*gain) for gain in result.expected_gains()),
        not_loaded=result.not_loaded,
        minor_assumptions=frozenset(one.text for one in result.assumptions if one.is_minor),
    )


def _check_model(job: Job) -> None:
    """Raise InvalidModelError for a model of the other format, UsageError if the result would replace the source."""
    from onnxtfl.formats.source import format_of, open_source

    if job.options.metadata:
        from onnxtfl.formats.metadata import check_added

        check_added(job.options.metadata)
    protos = ("an onnx.ModelProto",) if job.format == "onnx" else ()
    model_kind(job.model, "model", ("a path", "bytes", *protos))
    if isinstance(job.model, str | os.PathLike | bytes | bytearray | memoryview):
        with open_source(job.model) as opened:
            if format_of(opened) != "ir":
                format_of(opened, job.format)
    is_file = isinstance(job.model, str | os.PathLike)
    if is_file and job.path is not None and os.path.exists(job.path) and os.path.samefile(job.model, job.path):
        raise UsageError(
            f"{os.fspath(job.path)} is the source itself", hint="write the result to another file", code="E-USE-006"
        )
    if job.path is not None:
        _check_suffix(os.fspath(job.path), "tflite" if job.format == "onnx" else "onnx")


def _check_suffix(path: str, wanted: FormatName) -> None:
    """Raise UsageError for a path with the suffix of the other format."""
    suffixes = {".onnx": "onnx", ".tflite": "tflite", ".lite": "tflite", ".litertlm": "tflite"}
    stem, suffix = os.path.splitext(path)
    if suffixes.get(suffix.lower(), wanted) != wanted:
        titles = {"onnx": "an ONNX model", "tflite": "a TFLite model"}
        message = f"{path} is not a name for {titles[wanted]}, which the result is"
        raise UsageError(message, hint=f"name it {stem}.{wanted}", code="E-USE-006")
