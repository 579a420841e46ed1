"""The corpus' quantized .tflite files in ONNX: each op to one step, and integer kernels in ONNX Runtime."""

from __future__ import annotations

import json

import pytest

from tests.harness.workers import Worker
from tests.models import corpus

pytestmark = pytest.mark.skipif(not corpus.CORPUS.exists(), reason=f"no corpus at {corpus.CORPUS} (ONNXTFL_CORPUS)")
_OTHER = {
    "litert/matmul_quant.tflite": "int16 BATCH_MATMUL wraps around where its result saturates",
    "litert/single_rsqrt_default_a16w8_recipe_quantized.tflite": "RSQRT refuses 0, which is an input",
    "litert_bin/add_quantized.tflite": "the file calls a tensor float that LiteRT quantizes",
    "litert_bin/add_quantized_int8.tflite": "the file calls a tensor float that LiteRT quantizes",
}
"""Files whose ops cannot be compared: what LiteRT does with them."""
_RECURRENT = {"UNIDIRECTIONAL_SEQUENCE_LSTM": 3}
"""Steps that ops may differ by which round many times, one after the other."""
_CNNS = (
    "coral/mobilenet_v1_0.25_128_quant.tflite",
    "coral/mobilenet_v2_1.0_224_quant.tflite",
    "coral/deeplabv3_mnv2_pascal_quant.tflite",
    "coral/movenet_single_pose_lightning_ptq.tflite",
    "misc/tiny__kws_ref_model.tflite",
    "misc/tiny__model_ToyCar_quant_fullint_micro_intio.tflite",
)


def _files() -> list[str]:
    if not corpus.CORPUS.exists():
        return []
    index = json.loads((corpus.CORPUS / "tflite" / "index.json").read_text(encoding="utf-8"))
    return [e["file"] for e in index if not e["kind"].startswith("float") and e["file"] not in _OTHER]


@pytest.mark.parametrize("name", _files())
def test_each_op_is_within_one_step(worker: Worker, name: str) -> None:
    path = corpus.CORPUS / "tflite" / name
    outcome = worker.run("tests.models.each_tflite_op:differences", path, corpus.TIMEOUT)
    assert outcome.kind == "done", f"{outcome.kind} in {outcome.stage}: {outcome.message}\n{outcome.detail}"
    for found in outcome.value:
        assert found.steps <= _RECURRENT.get(found.op, 1), found


@pytest.mark.parametrize("name", _CNNS)
def test_products_run_on_integers(worker: Worker, name: str) -> None:
    path = corpus.CORPUS / "tflite" / name
    outcome = worker.run("tests.models.each_tflite_op:optimized_ops", path, corpus.TIMEOUT)
    assert outcome.kind == "done", f"{outcome.kind} in {outcome.stage}: {outcome.message}\n{outcome.detail}"
    assert outcome.value["QLinearConv"] + outcome.value["QGemm"] > 0
    assert not {"Conv", "FusedConv", "Gemm", "FusedGemm", "MatMul", "MatMulNBits"} & set(outcome.value), outcome.value
