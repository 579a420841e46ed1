"""The check of a conversion's result against its source, whose processes start before the conversion."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from onnxtfl import temporary
from onnxtfl.dataclass import dataclass
from onnxtfl.errors import RuntimeUnavailableError, UnsupportedError
from onnxtfl.formats import TEXT_HEADS, files
from onnxtfl.ir.data import PathLike
from onnxtfl.options import of_signatures
from onnxtfl.schemas.target_tables import target_tables

if TYPE_CHECKING:
    from onnxtfl.checking.report import CheckReport
    from onnxtfl.checking.settings import Settings
    from onnxtfl.ir.model import FormatName
    from onnxtfl.ir.record import Record
    from onnxtfl.options import Options
    from onnxtfl.pipeline_report import Report
    from onnxtfl.placement import Placement
    from onnxtfl.quantizing import Quantizing
    from onnxtfl.runtimes import RunError, Workers

MANY = 2000
"""The fewest nodes of a source whose graph is removed from memory: garbage collection visits all objects of all
modules.
"""
HEAVY = 64 << 20
"""Bytes of a .tflite that runs on its default kernels only, unless the check is required: the others would take longer
than the conversion and both runtimes together.
"""
TfliteRuntime = str
"""The runtime of .tflite models in a check: "litert", the older "tflite-runtime", or that of a target's table."""
NO_LOAD = "ONNXTFL_NO_LOAD"
"""Environment variable: if it is set, results are not loaded before they are written."""
DEFAULT_OPSET, OLDEST = 21, "2.14"
"""The default opset, and the default of the oldest runtime that must run a result."""
LOAD_TIME, LOAD_SPEED = 60.0, 10 << 20
"""The time limit for loading in seconds, and the bytes of a model that extend it by one second."""
CheckMode = Literal["auto", "require"] | bool
"""How a result is checked. "auto" (or True) runs both models on the same generated inputs and raises
`CheckFailedError` where they differ; where one of them cannot be run (runtime not installed, operator without a kernel)
the conversion succeeds with ``conversion.check.status == "not checked"``. "require" raises then too, and waits for slow
kernels; False does not check. On the command line, "auto" is the default, "require" is --check, False is --no-check.

``rtol`` and ``atol``: ``|b - a| <= rtol |a| + atol max|a|`` for floats. ``seed``: seed of the inputs. ``time_limit``:
seconds for each run, and for the conversion. ``runs``: number of runs, one after the other, of models with state.
``keep_failed``: write the result also where the check fails. ``input_ranges``: lowest and highest value by input name.
``check_data``: inputs to run both models on, by name of the source's input, instead of generated ones. ``check_dims``:
the size of a dimension in the runs, by its name.
``runtime``: what runs the .tflite model (`TfliteRuntime`), by default the first that is installed.
``per_layer``: find the first op whose result differs, and the errors along the depth (``CheckReport.first_difference``
and ``layers``). ``profile``: measure the time of each op in both runtimes (``CheckReport.profiles``).
"""


@dataclass(frozen=True)
class Job:
    """The arguments of a conversion, in either direction."""

    format: FormatName  # of the source
    model: Any
    path: PathLike | None
    options: Options
    check: CheckMode
    comparison: Mapping[str, Any]  # of `onnxtfl.checking.Settings`
    keep_failed: bool
    quantizing: Quantizing | None = None
    load: bool = True
    data: Any = None  # the user's inputs for the check


def start_workers(job: Job, stack: ExitStack) -> Workers | None:
    """Start the processes of the check, which load a source that is a file during the conversion; None without one.

    A conversion does this first, before it reads the source.
    """
    is_file = isinstance(job.model, str | os.PathLike)
    if job.check is False or (is_file and not os.path.isfile(job.model)):
        return None
    from onnxtfl.runtimes import RunOptions, Workers, fit_together

    if job.path is not None and os.path.isdir(place := os.path.dirname(os.path.realpath(job.path))):
        temporary.add_place(place)  # the processes remove what is left there
    workers = stack.enter_context(Workers(job.comparison.get("runtime")))
    size = os.path.getsize(job.model) if is_file else len(job.model) if isinstance(job.model, bytes) else 0
    target = "tflite" if job.format == "onnx" else "onnx"
    workers.start(_source_format(job), target, 0 if _is_heavy(job, size) else size)
    whole = (
        not job.options.input_shapes
        and not job.options.dims
        and job.options.inputs is None
        and job.options.outputs is None
        and job.options.signature is None
    )
    if whole and is_file and fit_together((job.model, job.model)):
        workers.load_a(job.model, RunOptions(time_limit=job.comparison["time_limit"]))
    return workers


def _source_format(job: Job) -> FormatName:
    """The format of the source by its first bytes, read without the modules that read models."""
    head = job.model[: len(TEXT_HEADS[0])] if isinstance(job.model, bytes) else b""
    if isinstance(job.model, str | os.PathLike):
        with contextlib.suppress(OSError), open(job.model, "rb") as file:  # reading the model reports the error
            head = file.read(len(TEXT_HEADS[0]))
    return "ir" if head.startswith(TEXT_HEADS) else job.format


def check_result(
    job: Job,
    result: Report,
    converted: Path,
    stack: ExitStack,
    workers: Workers,
    quantized_from: Path | None = None,
    sample: Any = None,
) -> CheckReport:
    """Compare the source (the converted part of it) with the result.

    `quantized_from`: the float model, of a result that is quantized; `sample`: inputs to compare it on, instead of
    generated ones, where the user has none.
    """
    if job.options.signatures:
        return _check_signatures(job, result, converted, stack, workers)
    _begin_to_load(job, converted, workers)  # meanwhile the modules of the check are imported
    from onnxtfl.checking.session import check_models
    from onnxtfl.tracing.parts import prepare_source

    options, target = job.options, target_tables()[job.options.target]
    if options.on_progress is not None:
        options.on_progress("check")
    if not gc.isenabled() and sum(result.ops_before.values()) > MANY:
        gc.collect()  # the graph of the conversion, whose nodes and values are cycles
    part = options.inputs is not None or options.outputs is not None or bool(result.vectors)
    states = {name for state in result.states for name in (state.input, state.output)}
    owners = {new: old for old, new in (options.rename or {}).items()}
    owners |= {tensor: name for name, tensors in result.elements.items() for tensor in tensors}
    names = [
        list(dict.fromkeys(owners.get(name, name) for name, _, _ in specs if name not in states)) if part else None
        for specs in (result.inputs, result.outputs)
    ]
    source = as_file(job.model, "source", stack)
    shapes = {**(options.input_shapes or {}), **result.input_shapes}
    source = prepare_source(source, stack, names[0], names[1], shapes, options.signature)
    heavy = _is_heavy(job, converted.stat().st_size)
    settings = _settings(job, result, shapes, heavy, quantized_from)
    settings = replace(settings, in_float32="quantized" in target.lacks)
    sample = sample if job.data is None else job.data
    report = check_models(source, converted, settings, sample, workers)
    runs = target.runtime is not None and options.fallback == "none"
    if runs and report.status != "failed" and settings.runtime is None:
        report = _also_in_target(report, job, (source, converted), settings, sample)
    note = f"builtin kernels not compared: the model has more than {HEAVY >> 20} MB"
    return replace(report, notes=(*report.notes, note)) if heavy and report.ok else report


def _check_signatures(job: Job, result: Report, converted: Path, stack: ExitStack, workers: Workers) -> CheckReport:
    """The first report that does not pass, else that of the last entry point."""
    from onnxtfl.tracing.parts import prepare_source

    report: CheckReport | None = None
    for key, options in of_signatures(job.options).items():
        part = prepare_source(converted, stack, None, None, {}, key)
        report = check_result(replace(job, options=options), result, part, stack, workers)
        if not report.ok:
            return replace(report, notes=(f"of the signature {key}", *report.notes))
    assert report is not None
    return report


def _also_in_target(
    report: CheckReport, job: Job, models: tuple[Path, Path], settings: Settings, sample: Any
) -> CheckReport:
    """Return `report` if the target's own runtime agrees too, else its result; a note if it is not installed."""
    from onnxtfl.checking.session import check_models
    from onnxtfl.runtimes import runtime_for

    target = target_tables()[job.options.target]
    runtime = runtime_for("tflite", target.runtime)
    if not runtime.available():
        note = f"{target.title} did not run it: {runtime.distribution} is not installed (pip install {runtime.install})"
        return replace(report, notes=(*report.notes, note))
    once = replace(settings, runtime=target.runtime, per_layer=False, profile=False, quantized_from=None)
    other = check_models(*models, once, sample)
    if not other.ok or not report.ok:
        return other
    return replace(report, runtimes=(*report.runtimes, *other.runtimes[1:]), seconds=report.seconds + other.seconds)


def arena_size(job: Job, converted: Path) -> int | None:
    """The bytes of the arena that the result needs; None if its target has none, or the runtime is not installed.

    Raises UnsupportedError if it does not load.
    """
    name = target_tables()[job.options.target].runtime
    if name is None or not _may_load(job):
        return None
    from onnxtfl.runtimes import RunError, RunOptions, runtime_for
    from onnxtfl.runtimes.arenas import least_arena

    runtime = runtime_for("tflite", name)
    if not runtime.has_arena or not runtime.available():
        return None
    try:
        with runtime.worker() as worker:
            return least_arena(worker, converted, RunOptions(time_limit=_load_limit(job, converted)))
    except RunError as error:
        if error.kind == "unavailable":
            return None
        raise _does_not_load(error) from error


def placed_ops(job: Job, converted: Path, record: Record) -> Placement | None:
    """Where the ops of the result run: for targets with an NPU, with a fallback, and with times per op; else None.

    Also None if a compiler or runtime would have to load the result, and results are not loaded.
    """
    table = target_tables()[job.options.target]
    asks = table.accelerator is not None or job.comparison.get("profile")
    if job.format != "onnx" or not (_may_load(job) if asks else job.options.fallback == "cpu"):
        return None
    from onnxtfl.placement import CPU, place

    return place(converted, CPU if table.parent is None else table.name, record)


def with_faults(report: CheckReport, model: Path | str) -> CheckReport:
    """The report on a check with notes on the ops of the second model, a .tflite, that other runtimes compute wrong."""
    if report.status == "not checked" or files.sniff(model) != "tflite":
        return report
    from onnxtfl.placement import known_faults

    return replace(report, notes=(*report.notes, *known_faults(model)))


def faults_of(job: Job, converted: Path) -> tuple[str, ...]:
    """The ops of a result for the default target that runtimes with a target of their own compute wrong.

    Empty for a result that is neither checked nor loaded: it is not read again.
    """
    is_read = job.check is not False or job.load
    if job.format != "onnx" or not is_read or target_tables()[job.options.target].parent is not None:
        return ()
    from onnxtfl.placement import known_faults

    return tuple(known_faults(converted))


def _settings(
    job: Job, result: Report, shapes: Mapping[str, Any], heavy: bool, quantized_from: Path | None
) -> Settings:
    """The settings of the comparison; `shapes`: the requested ones, by input of the source."""
    from onnxtfl.checking.pairing.interface import Layout
    from onnxtfl.checking.settings import PATIENCE, Settings

    layout: Layout = job.options.moves_to
    given = {v: shape for k, shape in shapes.items() for v in result.elements.get(k, (k,))}
    comparison = dict(job.comparison)
    if job.options.state == "reset" or result.kept_states:
        comparison["runs"] = 1  # only one of the models keeps its state
    if result.quantization is not None:
        comparison["atol"] = max(comparison["atol"], result.quantization.tolerance)
    comparison["patience"] = None if job.check == "require" else PATIENCE
    if heavy:
        comparison["kernels"] = ("default",)
    if quantized_from is not None:
        return Settings(**comparison, layout=layout, input_shapes=given, quantized_from=quantized_from)
    return Settings(**comparison, layout=layout, input_shapes=given, tensors=result.record.tensors)


def _is_heavy(job: Job, size: int) -> bool:
    return job.format == "onnx" and job.check != "require" and size > HEAVY


def _may_load(job: Job) -> bool:
    """Whether the result is loaded in a runtime, by the check or without one."""
    return job.check is not False or (job.load and not os.environ.get(NO_LOAD))


def _does_not_load(error: RunError) -> UnsupportedError:
    hint = _LOAD_HINTS.get(error.kind, "it is a bug: please report it") + "; `load=False` writes it nevertheless"
    return UnsupportedError(f"the result does not load: {error.message}", hint=hint, code=error.code)


_LOAD_HINTS = {
    "timeout": "allow more time (`time_limit`)",
    "memory": "use smaller inputs (`input_shapes`), or a machine with more memory",
    "unsupported": "update the runtime; if it is the newest, it is a bug: please report it",
}


def check_loads(job: Job, result: Report, converted: Path, stack: ExitStack, workers: Workers | None) -> None:
    """Load the result in its runtime (if installed) without running it. UnsupportedError if it refuses the model.

    If there is too little memory for it, `result` says so. The memory of a .tflite with static sizes is allocated too.
    `workers`: the processes of a check that did not load it.
    """
    if not job.load or result.custom_ops or os.environ.get(NO_LOAD):
        return
    from onnxtfl.runtimes import RunError, RunOptions, runtime_for, shortage

    if missing := shortage((converted,)):
        result.not_loaded = missing
        return
    format_: FormatName = "tflite" if job.format == "onnx" else "onnx"
    try:
        worker = None if workers is None else workers.b
        if worker is None:
            worker = stack.enter_context(runtime_for(format_, job.comparison.get("runtime")).worker())
        for kernels in ("default", "builtin") if format_ == "tflite" else ("default",):
            worker.verify(converted, RunOptions(kernels, time_limit=_load_limit(job, converted)))
    except RunError as error:
        if error.kind == "unavailable" or _is_newer(job, format_, error.kind, worker.runtime if worker else ""):
            return
        if result.unranked:
            names = ", ".join(map(repr, result.unranked))
            raise UnsupportedError(
                f"TFLite does not load the model while the rank of its inputs is unknown ({names})", code="E-SHAPE-001"
            ) from error
        raise _does_not_load(error) from error
    except RuntimeUnavailableError:
        return


def _load_limit(job: Job, converted: Path) -> float:
    """The seconds that the result may take to load."""
    size = sum(path.stat().st_size for path in converted.parent.iterdir())
    limit: float = job.comparison["time_limit"]
    return min(limit, LOAD_TIME + size / LOAD_SPEED)


def _is_newer(job: Job, format_: FormatName, kind: str, runtime: str) -> bool:
    """Whether the result was asked to be for runtimes that are newer than the installed one."""
    options = job.options
    if format_ == "onnx":
        return kind == "unsupported" and (options.opset or 0) > DEFAULT_OPSET
    return runtime == "tflite_runtime" and options.min_runtime != OLDEST


def as_file(model: Any, name: str, stack: ExitStack) -> Path:
    """Return the path of ``model``; a model in memory is written to a file that exists while ``stack`` is open."""
    from onnxtfl.formats.files import sniff
    from onnxtfl.tracing.parts import save, temporary_directory

    if isinstance(model, str | os.PathLike):
        return Path(model)
    directory = temporary_directory(stack)
    if isinstance(model, bytes | bytearray | memoryview):
        path = directory / f"{name}.{sniff(model)}"
        path.write_bytes(model)
        return path
    return save(model, directory / f"{name}.onnx")


def loaded_file(model: Any, name: str, stack: ExitStack) -> Path:
    """Return the path of ``model`` as `as_file`; of a .litertlm, that of the .tflite in it."""
    from onnxtfl.tracing.parts import loadable

    return loadable(as_file(model, name, stack), stack)


def _begin_to_load(job: Job, converted: Path, workers: Workers) -> None:
    from onnxtfl.runtimes import RunOptions, fit_together

    models = [converted, job.model] if isinstance(job.model, str | os.PathLike) else [converted]
    if fit_together(models):
        workers.load_b(converted, RunOptions(time_limit=job.comparison["time_limit"]))


def copied(model: Path, stack: ExitStack) -> Path:
    """Return the path of a copy of the file, which exists while ``stack`` is open."""
    from onnxtfl.tracing.parts import temporary_directory

    return Path(shutil.copyfile(model, temporary_directory(stack) / model.name))
