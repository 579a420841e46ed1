"""The ONNX reader over damaged files: it gives a graph that can be written, or a one-line error of ours."""

from __future__ import annotations

import io
import traceback
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from tests.fuzz.onnx_samples import samples
from tests.harness.workers import Worker

_TIMEOUT = 60.0
_BATCH = 200
_MEMORY = 3 << 30


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as found:
        yield found


@dataclass(frozen=True)
class Batch:
    """Damages of one kind ("cut", "flip", "splice") with seeds from `first`."""

    sample: str
    kind: str
    first: int = 0
    count: int = _BATCH


def damaged(data: bytes, kind: str, seed: int, count: int) -> bytes:
    """`data` cut at one of `count` places, with a few bytes changed, or with a piece taken out or doubled."""
    random = np.random.default_rng(seed)
    if kind == "cut":
        return data[: len(data) * (seed % count) // count]
    changed = bytearray(data)
    if kind == "flip":
        for place in random.integers(0, len(data), 1 + seed % 4):
            changed[place] = int(random.integers(256))
        return bytes(changed)
    start, stop = sorted(int(i) for i in random.integers(0, len(data), 2))
    stop = min(stop, start + 64)
    return data[:start] + data[start:stop] * (2 * (seed % 2)) + data[stop:]


def attack(batch: Batch) -> list[str]:
    """What went wrong: anything but success or an error of ours; in the child."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, hard))
    data = samples()[batch.sample]
    seeds = range(batch.first, batch.first + batch.count)
    return [f"{seed}: {text}" for seed in seeds if (text := _try(damaged(data, batch.kind, seed, batch.count)))]


def _try(data: bytes) -> str:
    from onnxtfl.errors import OnnxtflError
    from onnxtfl.formats.onnx import read, write

    try:
        write(read(data), io.BytesIO())
    except OnnxtflError as error:
        return "several lines" if "\n" in str(error) else ""
    except BaseException:
        return traceback.format_exc(limit=-4)
    return ""


@pytest.mark.parametrize("kind", ["cut", "flip", "splice"])
@pytest.mark.parametrize("sample", sorted(samples()))
def test_damaged(worker: Worker, sample: str, kind: str) -> None:
    outcome = worker.run("tests.fuzz.test_onnx_fuzz:attack", Batch(sample, kind), _TIMEOUT)
    assert outcome.kind == "done", f"{outcome.kind}: {outcome.message}\n{outcome.detail}"
    assert not outcome.value, "\n".join(outcome.value[:5])
