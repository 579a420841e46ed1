"""Damaged models: a fixed part of the soak (`make soak`), and the judgement itself, which must be able to fail."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest

import onnxtfl
from tests.fuzz import mutants_trial
from tests.fuzz.mutants import mutant
from tests.fuzz.soaking import attempt
from tests.harness.workers import Worker

_SEEDS = range(1, 150)
_SECONDS = 20.0


def test_mutants_convert_or_are_refused(worker: Worker) -> None:
    counts: Counter[str] = Counter()
    start = time.monotonic()
    for seed in _SEEDS:
        found = attempt(worker, "mutants", seed)
        assert found.kind in ("agree", "refused"), f"seed {seed}: {found.kind}, {found.group}\n{found.message}"
        counts[found.kind] += 1
        if time.monotonic() > start + _SECONDS:
            break
    assert counts["agree"] and counts["refused"]


def test_a_mutant_depends_on_its_seed_only() -> None:
    assert mutant(7) == mutant(7) != mutant(8)
    kinds = {(found.format, found.level) for found in map(mutant, range(60))}
    assert kinds == {(f, level) for f in ("onnx", "tflite") for level in ("bytes", "messages", "graph")}


def raising(error: BaseException) -> Any:
    """A function that raises the error."""

    def function(*_: object, **__: object) -> None:
        raise error

    return function


def test_bugs_are_failures() -> None:
    bug = onnxtfl.InternalError("legalize", ValueError("7 is wrong"))
    bug.__cause__ = ValueError("7 is wrong")
    for error, kind in (
        (bug, "internal"),
        (KeyError("a"), "internal"),
        (onnxtfl.UnsupportedError("out of memory", code="E-RUN-005"), "memory"),
    ):
        failure, _ = mutants_trial._step("convert", raising(error))
        assert failure is not None and failure.kind == kind, error


def test_a_refusal_is_no_failure() -> None:
    assert mutants_trial._step("convert", raising(onnxtfl.UnsupportedError("no"))) == (None, None)


def test_hangs_are_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutants_trial, "SECONDS", 0.1)

    def hang() -> None:
        while True:
            pass

    failure, _ = mutants_trial._step("convert", hang)
    assert failure is not None and failure.kind == "hang"


def test_large_allocations_are_failures() -> None:
    failure, _ = mutants_trial._step("convert", lambda: bytearray(3 << 30))
    assert failure is not None and "MemoryError" in failure.group


def test_files_left_are_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(*_: object) -> mutants_trial.Found:
        (mutants_trial._folder() / "left").write_text("x", encoding="utf-8")
        return mutants_trial.Found("agree")

    monkeypatch.setattr(mutants_trial, "_judged", leave)
    assert mutants_trial.attempt(1).kind == "leftover"
    assert not (mutants_trial._folder() / "left").exists()
