"""Equal inputs give equal bytes: in threads, and where one conversion starts another one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.workers import Worker


@pytest.fixture
def worker() -> Iterator[Worker]:
    """A fresh process."""
    with Worker() as found:
        yield found


@pytest.mark.parametrize("job", ["compare", "nested"])
def test_the_same_bytes(worker: Worker, job: str) -> None:
    outcome = worker.run(f"tests.models.concurrent:{job}", None, 300)
    assert outcome.kind == "done", f"{outcome.kind}: {outcome.message}\n{outcome.detail}"
    assert outcome.value == []
