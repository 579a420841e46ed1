"""The workers themselves: a crash, a hang and an exception end one job, not the run."""

from __future__ import annotations

import pytest

from tests.harness import workers
from tests.harness.workers import Worker, run_all


def test_what_a_job_can_do() -> None:
    with Worker() as worker:
        assert worker.run("builtins:eval", "1 + 1", 30).value == 2
        assert worker.run("builtins:eval", "1 / 0", 30).message.startswith("ZeroDivisionError")
        crash = worker.run("ctypes:string_at", 0, 30)
        assert (crash.kind, crash.message) == ("crashed", "the process was ended by SIGSEGV")
        assert worker.run("time:sleep", 60, 1).kind == "timeout"
        assert worker.run("builtins:print", "text on standard output", 30).kind == "done"
        assert worker.run("builtins:eval", "2 + 2", 30).value == 4


def test_jobs_are_spread_and_all_come_back() -> None:
    jobs = ["1", "__import__('os')._exit(3)", "3"]
    outcomes = dict(run_all("builtins:eval", jobs, 30, 2))
    assert [outcomes[job].kind for job in jobs] == ["done", "crashed", "done"]


def test_an_argument_that_cannot_be_pickled() -> None:
    """The job after it has its own result."""
    assert [outcome.kind for _, outcome in run_all("os:fspath", [lambda: None, "a"], 30)] == ["crashed", "done"]


def test_no_process_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("Resource temporarily unavailable")

    monkeypatch.setattr(workers.subprocess, "Popen", fail)
    assert [outcome.kind for _, outcome in run_all("os:fspath", ["a", "b"], 30)] == ["crashed", "crashed"]
