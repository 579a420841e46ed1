"""The ONNX reader on corrupt files: it returns a Model that can be written, or raises a one-line OnnxtflError."""

from __future__ import annotations

import io
import traceback
from dataclasses import dataclass

import numpy as np
import pytest

from tests.fuzz.onnx_samples import samples
from tests.harness.workers import Worker

_TIMEOUT = 60.0
_BATCH = 200
_MEMORY = 3 << 30


@dataclass(frozen=True)
class Batch:
    """Corruptions of one kind ("truncate", "flip", "splice") with seeds from `first`."""

    sample: str
    kind: str
    first: int = 0
    count: int = _BATCH


def corrupted(data: bytes, kind: str, seed: int, count: int) -> bytes:
    """`data` truncated at one of `count` positions, with a few bytes changed, or with a range removed or repeated."""
    random = np.random.default_rng(seed)
    if kind == "truncate":
        return data[: len(data) * (seed % count) // count]
    changed = bytearray(data)
    if kind == "flip":
        for position in random.integers(0, len(data), 1 + seed % 4):
            changed[position] = int(random.integers(256))
        return bytes(changed)
    start, stop = sorted(int(i) for i in random.integers(0, len(data), 2))
    stop = min(stop, start + 64)
    return data[:start] + data[start:stop] * (2 * (seed % 2)) + data[stop:]


def failures(batch: Batch) -> list[str]:
    """The exceptions other than OnnxtflError, in the worker process."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, hard))
    data = samples()[batch.sample]
    seeds = range(batch.first, batch.first + batch.count)
    return [f"{seed}: {text}" for seed in seeds if (text := _try(corrupted(data, batch.kind, seed, batch.count)))]


def _try(data: bytes) -> str:
    from onnxtfl.errors import OnnxtflError
    from onnxtfl.formats.onnx.reader import read
    from onnxtfl.formats.onnx.writer import write

    try:
        write(read(data), io.BytesIO())
    except OnnxtflError as error:
        return "several lines" if "\n" in str(error) else ""
    except BaseException:
        return traceback.format_exc(limit=-4)
    return ""


@pytest.mark.parametrize("kind", ["truncate", "flip", "splice"])
@pytest.mark.parametrize("sample", sorted(samples()))
def test_corrupt_file(worker: Worker, sample: str, kind: str) -> None:
    outcome = worker.run("tests.fuzz.test_onnx_fuzz:failures", Batch(sample, kind), _TIMEOUT)
    assert outcome.kind == "done", f"{outcome.kind}: {outcome.message}\n{outcome.detail}"
    assert not outcome.value, "\n".join(outcome.value[:5])
