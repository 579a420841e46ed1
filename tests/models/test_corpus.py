"""Round trips of whole models within the corpus' tolerances, and the sizes and ops of the results."""

from __future__ import annotations

import onnx
import pytest

import onnxtfl
from onnxtfl.passes.canonical.growth import SMALL_GROWTH
from tests.harness.workers import Worker
from tests.models import corpus
from tests.models.corpus import FLOAT_MODELS, PURE_CNNS, REAL_MODELS, RECURRENT, Job, Report

pytestmark = pytest.mark.skipif(not corpus.CORPUS.exists(), reason=f"no corpus at {corpus.CORPUS} (ONNXTFL_CORPUS)")

_LARGE = 1 << 20
_TFLITE_FLOAT = [job.name for job in corpus.find_tflite("tflite2onnx")] if corpus.CORPUS.exists() else []


def _try(worker: Worker, job: Job) -> Report:
    outcome = worker.run("tests.models.corpus:attempt", job, corpus.TIMEOUT)
    assert outcome.kind == "done", f"{outcome.kind} in {outcome.stage}: {outcome.message}\n{outcome.detail}"
    report: Report = outcome.value
    return report


@pytest.mark.parametrize("name", [*FLOAT_MODELS, *REAL_MODELS])
def test_round_trip(worker: Worker, name: str) -> None:
    (job,) = corpus.find([name])
    report = _try(worker, job)
    assert not report.error, f"{report.error}\n{report.detail}"
    assert not report.back_error, f"{report.back_error}\n{report.detail}"
    assert report.nodes_ratio <= 1.1
    size = job.path.stat().st_size
    assert report.size_ratio <= 1.02 + SMALL_GROWTH / size or size < _LARGE


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_models(worker: Worker, name: str) -> None:
    """There and back, with the weights as few times as in the source; kernels for pairs of rows are 4/3 as large."""
    (job,) = corpus.find([name])
    report = _try(worker, job)
    assert report.passed, f"{report.error}{report.back_error}\n{report.detail}"
    assert report.size_ratio <= {"convlstm_unrolled": 1.34}.get(name, 1.06)


@pytest.mark.parametrize(("batch", "samples"), [(1, 512), (1, 256), (2, 512), (3, 640), (-1, -1)])
def test_voice_activity_at_several_sizes(batch: int, samples: int) -> None:
    """A trained model with an LSTM in subgraphs, whose state is an input and an output."""
    (job,) = corpus.find(["silero_vad_16k_op15"])
    sizes = {"input": (batch, samples), "state": (2, batch, 128)}
    conversion = onnxtfl.onnx_to_tflite(job.path, check="require", input_shapes=sizes)
    assert conversion.check is not None
    assert conversion.check.ok


def test_voice_activity_keeps_its_layer() -> None:
    """There and back: the LSTM, of one step, is one op again."""
    (job,) = corpus.find(["silero_vad_16k_op15"])
    sizes = {"input": (1, 512), "state": (2, 1, 128)}
    tflite = onnxtfl.onnx_to_tflite(job.path, check=False, input_shapes=sizes).data
    assert tflite is not None
    back = onnxtfl.tflite_to_onnx(tflite, check="require").data
    assert back is not None
    assert [node.op_type for node in onnx.load_from_string(back).graph.node].count("LSTM") == 1


@pytest.mark.parametrize("name", PURE_CNNS)
def test_a_cnn_has_no_transpose_inside(worker: Worker, name: str) -> None:
    (job,) = corpus.find([name])
    report = _try(worker, Job(job.name, job.path, back=False))
    assert not report.error, f"{report.error}\n{report.detail}"
    assert report.ops["TRANSPOSE"] <= report.four_d
    (job,) = corpus.find([name], io_layout="channels-last")
    report = _try(worker, Job(job.name, job.path, job.options, back=False))
    assert not report.error, f"{report.error}\n{report.detail}"
    assert report.ops["TRANSPOSE"] == 0


@pytest.mark.parametrize("io_layout", ["source", "channels-last"])
def test_xnnpack_runs_mobilenet_as_one_partition(worker: Worker, io_layout: str) -> None:
    (job,) = corpus.find(["mobilenet_v1"], io_layout=io_layout)
    assert _try(worker, Job(job.name, job.path, job.options, back=False)).fully_delegated


@pytest.mark.parametrize("name", _TFLITE_FLOAT)
def test_tflite_file_to_onnx(worker: Worker, name: str) -> None:
    report = _try(worker, Job(name, corpus.CORPUS / "tflite" / name))
    assert report.passed, f"{report.error}{report.back_error}\n{report.detail}"


@pytest.mark.parametrize("name", ["densenet", "bert_tiny"])
def test_same_input_same_bytes(name: str) -> None:
    (job,) = corpus.find([name])
    digests = []
    for _ in range(2):
        with Worker() as one:
            outcome = one.run("tests.models.corpus:digest", job, corpus.TIMEOUT)
            assert outcome.kind == "done", outcome.message
            digests.append(outcome.value)
    assert digests[0] == digests[1]
