"""Models that parse but are invalid: a conversion succeeds or raises an OnnxtflError other than InternalError."""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from dataclasses import dataclass

import onnx
import pytest

from tests.conformance.cases import Case, freeze, load_cases
from tests.fuzz.mutations import mutated
from tests.harness.child import stage
from tests.harness.workers import Worker

_SECONDS = 20.0
"""Limit for one batch; a conversion takes about 0.05 s."""
_MEMORY = 4 << 30
_BATCH = 20


@dataclass(frozen=True)
class Batch:
    """Models, each with the seeds of its mutations."""

    models: Sequence[bytes]
    seeds: range


def failures(batch: Batch) -> list[str]:
    """The exceptions other than OnnxtflError, in the worker process."""
    _limit_memory()
    found = []
    for k, data in enumerate(batch.models):
        model = onnx.load_from_string(data)
        for seed in batch.seeds:
            stage(f"model {k}, seed {seed}")
            if wrong := attempt(mutated(model, seed)):
                found.append(f"{model.graph.name}, model {k}, seed {seed}: {wrong}")
    return found


def attempt(model: onnx.ModelProto) -> str:
    """The failure of one model, "" for none."""
    import onnxtfl
    from onnxtfl.ir.verify import VerifyError

    try:
        onnxtfl.onnx_to_tflite(model, check=False)
    except (onnxtfl.InternalError, VerifyError):
        return traceback.format_exc()
    except onnxtfl.OnnxtflError as error:
        return "" if "\n" not in str(error) else f"more than a line: {error}"
    except Exception:
        return traceback.format_exc()
    return ""


def _limit_memory() -> None:
    import resource

    os.environ["ONNXTFL_VERIFY"] = "1"
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))


def models() -> list[bytes]:
    """For each op the first of ONNX's tests, unchanged and with all operands but the first as constants."""
    first: dict[str, Case] = {}
    for case in load_cases():
        first.setdefault(case.ops[0], case)
    frozen = [freeze(case) for case in first.values() if len(case.data_sets[0][0]) > 1]
    return [case.model for case in (*first.values(), *frozen)]


@pytest.mark.skipif(os.name != "posix", reason="memory cannot be limited here")
def test_mutated_models(worker: Worker) -> None:
    every = models()
    for first in range(0, len(every), _BATCH):
        outcome = worker.run(
            "tests.fuzz.test_semantic_fuzz:failures", Batch(every[first : first + _BATCH], range(2)), 60.0
        )
        assert outcome.kind == "done", (
            f"{outcome.kind} at {first}, {outcome.stage}: {outcome.message}\n{outcome.detail}"
        )
        assert not outcome.value, "\n".join(outcome.value)
