"""Every op of the converted quantized models computes what the source's op does, to one step of its quantization."""

from __future__ import annotations

import json

import pytest

from tests.harness.workers import Worker
from tests.models import corpus
from tests.models.each_op import Job

pytestmark = pytest.mark.skipif(not corpus.CORPUS.exists(), reason=f"no corpus at {corpus.CORPUS} (ONNXTFL_CORPUS)")


def _quantized() -> list[str]:
    if not corpus.CORPUS.exists():
        return []
    index = json.loads((corpus.CORPUS / "onnx" / "index.json").read_text(encoding="utf-8"))
    return [entry["name"] for entry in index if entry["kind"] == "quantized"]


@pytest.mark.parametrize("kernels", ["builtin", "default"])
@pytest.mark.parametrize("name", _quantized())
def test_each_op_is_within_one_step(worker: Worker, name: str, kernels: str) -> None:
    job = Job(corpus.CORPUS / "onnx" / name / "model.onnx", kernels)
    outcome = worker.run("tests.models.each_op:differences", job, corpus.TIMEOUT)
    assert outcome.kind == "done", f"{outcome.kind} in {outcome.stage}: {outcome.message}\n{outcome.detail}"
    assert outcome.value
    for found in outcome.value:
        assert found.steps <= 1, found
