"""The judgement of one mutant, in a worker process: it converts, or is refused in one line, quickly and in little
memory, and leaves no file.

One of `_BACK` results is converted back, one of `_CHECKED` is checked in both runtimes; one of `_VERIFIED` is
converted with the verifier after each pass.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from tests.fuzz.mutants import Mutant, mutant
from tests.fuzz.soaking import SECONDS, Found
from tests.harness.child import stage

_BACK = 6
_VERIFIED = 4
_CHECKED = 150
_CHECK_SECONDS = 20.0
_ADDRESSES = 2 << 30
"""Bytes of address space that a case may add; past it is a MemoryError."""
_LONGEST = 4000
"""Characters of a message."""
_OWN = re.compile(r"/(?:onnxtfl|mappings|schemas)/")
_NUMBERS = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|'[^']*'")
_OF_RUNTIMES = {".ses"}
"""Files of ONNX Runtime itself."""
_MEMORY_FOLDER = Path("/dev/shm")
_OUT_OF_MEMORY = "E-RUN-005"


class HangError(BaseException):
    """A step takes more than its seconds of processor time."""


def attempt(seed: int) -> Found:
    """The outcome of one mutant."""
    stage("source")
    os.environ["ONNXTFL_VERIFY"] = "1" if seed % _VERIFIED == 0 else ""
    found = mutant(seed)
    folder = _folder()
    outcome = _judged(found, seed)
    left = sorted(set(os.listdir(folder)) - _OF_RUNTIMES)
    for name in left:
        (shutil.rmtree if (folder / name).is_dir() else os.remove)(folder / name)
    if left and outcome.kind in ("agree", "refused"):
        outcome = Found("leftover", f"{found.format}: {_general(left[0])}", ", ".join(left))
    if outcome.kind in ("agree", "refused"):
        return outcome
    text = f"{found.format}, {found.level}, from {found.origin}, {len(found.data)} bytes"
    files = {f"model.{found.format}": found.data}
    return Found(outcome.kind, outcome.group, outcome.message, text, files)


def _judged(found: Mutant, seed: int) -> Found:
    import onnxtfl

    ways: dict[str, Callable[..., Any]] = {"onnx": onnxtfl.onnx_to_tflite, "tflite": onnxtfl.tflite_to_onnx}
    back = ways["tflite" if found.format == "onnx" else "onnx"]
    failure, result = _step(f"convert {found.format}", ways[found.format], found.data, check=False, load=False)
    if failure or result is None:
        return failure or Found("refused")
    if seed % _BACK == 0:
        failure, _ = _step(f"convert {found.format} back", back, result.data, check=False, load=False)
    if failure is None and seed % _CHECKED == 0:
        failure = _checked(found, ways[found.format])
    return failure or Found("agree")


def _step(name: str, function: Callable[..., Any], *given: Any, **how: Any) -> tuple[Found | None, Any]:
    """A failure, if any, and what the function returns; neither where it raises an error in one line."""
    import onnxtfl

    stage(name)
    started = time.process_time()
    try:
        with _limits():
            result = function(*given, **how)
    except HangError as error:
        return Found("hang", f"{name}: {_place(error)}", traceback.format_exc()), None
    except onnxtfl.InternalError as error:
        cause = _root(error)
        group = f"{name}: {type(cause).__name__} in {_place(cause)}: {_general(str(cause))}"
        return Found("internal", group, "".join(traceback.format_exception(cause))), None
    except onnxtfl.OnnxtflError as error:
        return _bad_refusal(name, error), None
    except BaseException as error:
        return Found("internal", f"{name}: {type(error).__name__} in {_place(error)}", traceback.format_exc()), None
    seconds = time.process_time() - started
    return (Found("hang", f"{name}: {seconds:.0f} s") if seconds > SECONDS else None), result


def _bad_refusal(name: str, error: Any) -> Found | None:
    """The failure that an error is, None for a clear line."""
    text = str(error)
    if error.code.startswith("E-INT"):  # of the verifier
        return Found("internal", f"{name}: {_general(text)}", "".join(traceback.format_exception(error)))
    if error.code == _OUT_OF_MEMORY:
        return Found("memory", f"{name}: {_place(_root(error))}", "".join(traceback.format_exception(error)))
    if "\n" in text or len(text) > _LONGEST:
        return Found("internal", f"{name}: a message of several lines or {_LONGEST} characters", text[:_LONGEST])
    return None


def _checked(found: Mutant, convert: Callable[..., Any]) -> Found | None:
    """The failure of a conversion with its check."""
    import onnxtfl

    stage(f"check {found.format}")
    try:
        convert(found.data, time_limit=_CHECK_SECONDS)
    except onnxtfl.InternalError as error:
        return Found("internal", f"check: {_place(_root(error))}", "".join(traceback.format_exception(error)))
    except onnxtfl.CheckFailedError as error:
        return Found("disagree", f"{found.format}: {_general(str(error))}", str(error))
    except onnxtfl.OnnxtflError:
        return None
    except Exception as error:
        return Found("internal", f"check: {type(error).__name__} in {_place(error)}", traceback.format_exc())
    return None


@contextmanager
def _limits() -> Iterator[None]:
    """Limit the address space, and raise HangError after `SECONDS` of processor time in Python code."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = _address_space() + _ADDRESSES
    resource.setrlimit(resource.RLIMIT_AS, (limit if hard < 0 else min(limit, hard), hard))
    before = signal.signal(signal.SIGVTALRM, _expired)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _expired(*_: object) -> None:
    raise HangError


def _address_space() -> int:
    """Bytes of address space that this process has."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGESIZE")


@cache
def _folder() -> Path:
    """The folder of temporary files, which is empty before each case."""
    where = _MEMORY_FOLDER if os.access(_MEMORY_FOLDER, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="mutants-", dir=where))
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder)
    import atexit

    atexit.register(shutil.rmtree, folder, True)
    return folder


def _root(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _place(error: BaseException) -> str:
    """The innermost function of the package that the error passed."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if _OWN.search(frame.filename)] or frames[-1:]
    return f"{Path(own[-1].filename).name}:{own[-1].name}" if own else "?"


def _general(text: str) -> str:
    """A message without names and values."""
    return _NUMBERS.sub("#", text)[:100]
