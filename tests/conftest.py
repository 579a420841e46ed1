"""Settings and fixtures of all tests: every conversion, also in worker processes, runs the verifier after each pass."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tools.probe.runtime import Runtime

    from tests.harness.workers import Worker

os.environ.setdefault("ONNXTFL_VERIFY", "1")
os.environ.setdefault("ONNXTFL_NO_LOAD", "1")  # a process for each unchecked conversion; tests of it delete this


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """A process for the conversions and runs of a module, which may crash."""
    from tests.harness.workers import Worker

    with Worker() as process:
        yield process


@pytest.fixture(scope="module")
def probed() -> Iterator[Runtime]:
    """LiteRT in the processes that measure its kernels."""
    from tools.probe.runtime import Runtime

    runtime = Runtime(sys.executable)
    yield runtime
    runtime.close()
