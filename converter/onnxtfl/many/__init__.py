"""Conversion of several models into a folder, in worker processes; up-to-date results are skipped.

The processes are those of `concurrent.futures`, or the workers of a Dask cluster. A journal in the folder
records the options of each result, so that an interrupted run can be continued.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from onnxtfl import platform_calls
from onnxtfl.arguments import checked, current_names, of_command
from onnxtfl.errors import CheckFailedError, InternalError, OnnxtflError, RuntimeUnavailableError, UsageError
from onnxtfl.many.journal import Journal
from onnxtfl.many.sources import Pair, pairs_of
from onnxtfl.option_table import TO_ONNX, TO_TFLITE
from onnxtfl.temporary import end_with_parent, places, remove_all

PathLike = str | os.PathLike[str]
_STARTING, _SAFE_PATH = threading.Lock(), "PYTHONSAFEPATH"
Status = Literal["converted", "up to date", "failed"]


@dataclass(frozen=True)
class Outcome:
    """The outcome for one model.

    ``source``, ``target``: the model's path and that of its result. ``status``: "up to date" is a result of an earlier
    run. ``check``: "passed", "failed", "not checked", or "" without one. ``excluded``: sizes at which the models differ
    although the check passed, like "at x:[3,1]". ``error``: why there is no result, or why the check failed. ``size``:
    bytes of the result, None without one. ``seconds``: of this run.
    """

    source: Path
    target: Path
    status: Status
    check: str = ""
    error: OnnxtflError | None = None
    size: int | None = None
    seconds: float = 0.0
    excluded: str = ""

    @property
    def exit_code(self) -> int:
        """The exit code that the command has for this model alone."""
        return self.error.exit_code if self.error is not None else 0


def convert_many(
    models: PathLike | Iterable[PathLike],
    directory: PathLike,
    *,
    to: Literal["tflite", "onnx"] = "tflite",
    jobs: int | None = None,
    force: bool = False,
    executor: Literal["processes", "dask"] | Executor = "processes",
    address: str | None = None,
    on_outcome: Callable[[Outcome, int], None] | None = None,
    **options: Any,
) -> list[Outcome]:
    """Convert model files, and those in folders, into ``directory``, which is created; a failure does not stop the
    others.

    ``models``: paths of files and folders; the structure of a folder is kept. ``to``: the format of the results.
    ``jobs``: number of worker processes, by default half the number of processors. ``force``: convert also what is up
    to date: a result that is newer than its source and was made with the same options by this version. ``executor``:
    "processes" on this machine, "dask" with the ``address`` of its scheduler (its workers see the same files), or an
    executor of your own. ``on_outcome``: called with each outcome, as soon as it is known, and the number of models.
    ``options``: keyword arguments of `onnx_to_tflite` or `tflite_to_onnx`.

    Returns an outcome for each model, in the order of the sources. Raises `UsageError` for an argument that is not
    possible, for folders without models, and for two sources with the same target.
    """
    options = _checked_options(to, current_names(TO_TFLITE if to == "tflite" else TO_ONNX, options))
    checked(directory=directory, jobs=jobs, force=force, address=address, on_outcome=on_outcome)
    if not isinstance(executor, Executor):
        checked(executor=executor)
    pairs = pairs_of(checked(models=models)["models"], directory, to)
    journal = Journal(Path(directory), to, options)
    found: dict[Path, Outcome] = {}

    def add(outcome: Outcome) -> None:
        found[outcome.source] = outcome
        if on_outcome is not None:
            on_outcome(outcome, len(pairs))

    rest = pairs if force else _without_up_to_date(pairs, journal, add)
    if rest:
        with _opened(executor, address, jobs, len(rest)) as pool:
            _convert_all(pool, rest, journal, add, to, options)
    return [found[pair.source] for pair in pairs]


def _without_up_to_date(pairs: Sequence[Pair], journal: Journal, add: Callable[[Outcome], None]) -> list[Pair]:
    """The pairs that have to be converted; the outcomes of the others are added."""
    rest = list[Pair]()
    for pair in pairs:
        if journal.is_up_to_date(pair):
            add(Outcome(pair.source, pair.target, "up to date", size=pair.target.stat().st_size))
        else:
            rest.append(pair)
    return rest


def _convert_all(
    pool: Executor,
    pairs: Sequence[Pair],
    journal: Journal,
    add: Callable[[Outcome], None],
    to: str,
    options: Mapping[str, Any],
) -> None:
    """Convert the pairs; each outcome is noted in the journal and added as soon as it is known."""
    for pair, outcome in _run(pool, pairs, to, options):
        journal.write(pair, done=outcome.status == "converted" and outcome.error is None)
        add(outcome)


def _checked_options(to: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, checked. Raises UsageError for those that the conversion does not have, or that are not possible."""
    checked(to=to)
    options = {name: value for name, value in options.items() if name != "on_progress"}
    known = of_command(TO_TFLITE if to == "tflite" else TO_ONNX, options)
    unknown = next((name for name in options if name not in known), None)
    if unknown is not None:
        raise UsageError(f"the conversion to {to} has no parameter {unknown!r}")
    return known


def _run(pool: Executor, pairs: Sequence[Pair], to: str, options: Mapping[str, Any]) -> Iterator[tuple[Pair, Outcome]]:
    """Yield the outcome of each pair as soon as it is known."""
    futures: dict[Future[Outcome], Pair] = {pool.submit(convert_one, pair, to, dict(options)): pair for pair in pairs}
    for future in as_completed(futures):
        pair = futures[future]
        try:
            yield pair, future.result()
        except Exception as error:  # the worker died, or its result was lost
            lost = error if isinstance(error, OnnxtflError) else InternalError("a worker", error)
            yield pair, Outcome(pair.source, pair.target, "failed", error=lost)


def convert_one(pair: Pair, to: str, options: Mapping[str, Any]) -> Outcome:
    """Convert one model in this process; an error is in the outcome."""
    from onnxtfl.api import onnx_to_tflite, tflite_to_onnx

    started = time.perf_counter()
    convert = onnx_to_tflite if to == "tflite" else tflite_to_onnx
    outcome = Outcome(pair.source, pair.target, "failed")
    try:
        conversion = convert(pair.source, pair.target, **options)
        outcome = replace(outcome, status="converted", size=conversion.report.size)
        if (check := conversion.check) is not None:
            outcome = replace(outcome, check=check.status, excluded=check.excluded)
    except CheckFailedError as error:
        kept = error.conversion is not None and error.conversion.path is not None
        error.conversion = None  # the graph and its record need not go to another process
        outcome = replace(outcome, status="converted" if kept else "failed", check="failed", error=error)
    except OnnxtflError as error:
        outcome = replace(outcome, error=_portable(error))
    except MemoryError:
        outcome = replace(outcome, error=OnnxtflError(f"{pair.source}: out of memory", code="E-RUN-005"))
    except Exception as error:
        outcome = replace(outcome, error=InternalError("the conversion", error))
    return replace(outcome, seconds=time.perf_counter() - started)


def _portable(error: OnnxtflError) -> OnnxtflError:
    """The error without objects that another process may not have."""
    error.type_ = None if error.type_ is None else str(error.type_)
    return error


@contextlib.contextmanager
def _opened(executor: str | Executor, address: str | None, jobs: int | None, count: int) -> Iterator[Executor]:
    """Yield the executor for the models; one created here is closed afterwards, or terminated on an interrupt."""
    if isinstance(executor, Executor):
        yield executor
        return
    if executor == "dask":
        with _dask(address) as pool:
            yield pool
        return
    if address is not None:
        raise UsageError("`address` is that of a Dask scheduler", hint="use it with `executor=dask`")
    pool = OwnProcesses(min(jobs or max(1, (os.cpu_count() or 2) // 2), count))
    try:
        yield pool
    except BaseException:
        pool.end()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _dask(address: str | None) -> Iterator[Executor]:
    if address is None:
        raise UsageError("`executor=dask` needs the address of a scheduler", hint="name it with `address`")
    try:
        from distributed import Client
    except ImportError:
        hint = "pip install 'onnxtfl[dask]'"
        raise RuntimeUnavailableError("distributed, which runs Dask clusters, is not installed", hint=hint) from None
    try:
        client = Client(address, timeout=10, set_as_default=False)
    except (OSError, ValueError) as error:
        message, hint = f"there is no Dask scheduler at {address}: {error}", "start one, or correct `address`"
        raise RuntimeUnavailableError(message, hint=hint, code="E-RUN-006") from error
    with client, client.get_executor(pure=False, retries=1) as pool:
        yield pool


class OwnProcesses(ThreadPoolExecutor):
    """Threads that each own one worker process, which is replaced if it crashes: only its model is lost."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self._pools: list[ProcessPoolExecutor] = []
        self._pids = set[int]()
        self._idle: list[ProcessPoolExecutor] = []

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call `function` in a process."""
        return super().submit(self._call, function, *args, **kwargs)

    def end(self) -> None:
        """End the processes now; their temporary files are removed."""
        super().shutdown(wait=False, cancel_futures=True)
        for pid in self._pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGTERM)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for running conversions, then end the processes."""
        super().shutdown(wait, cancel_futures=cancel_futures)
        for pool in self._pools:
            pool.shutdown(wait)

    def _call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            pool = self._idle.pop() if self._idle else self._new_pool()
            result = pool.submit(function, *args, **kwargs).result()
        except BrokenProcessPool:
            raise OnnxtflError("the process of this conversion crashed", code="E-RUN-006") from None
        self._idle.append(pool)
        return result

    def _new_pool(self) -> ProcessPoolExecutor:
        pool = ProcessPoolExecutor(
            1, get_context("spawn"), initializer=_begin_worker, initargs=(os.environ.get(_SAFE_PATH), places())
        )
        self._pools.append(pool)
        with _bare_start():
            pid = pool.submit(os.getpid)
        self._pids.add(pid.result())
        return pool


@contextlib.contextmanager
def _bare_start() -> Iterator[None]:
    """A process that starts meanwhile does not run the user's script again, nor find modules in the current folder."""
    with _STARTING:
        script, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
        safe = os.environ.get(_SAFE_PATH)
        os.environ[_SAFE_PATH] = "1"
        try:
            yield
        finally:
            sys.modules["__main__"] = script
            _set_safe_path(safe)


def _set_safe_path(value: str | None) -> None:
    if value is None:
        os.environ.pop(_SAFE_PATH, None)
    else:
        os.environ[_SAFE_PATH] = value


def _begin_worker(safe_path: str | None, others: Sequence[str]) -> None:
    """Leave Ctrl-C to the parent, which ends this process with SIGTERM: that removes temporary files."""
    gc.enable()
    _set_safe_path(safe_path)
    for number in platform_calls.ending_signals():
        signal.signal(number, signal.SIG_IGN if number == signal.SIGINT else _leave)
    end_with_parent(others)


def _leave(number: int, frame: Any) -> None:
    """Remove the temporary files and exit: an exception could interrupt their creation or removal."""
    signal.signal(number, signal.SIG_IGN)
    remove_all()
    os._exit(130)
