"""What is written for CPUs runs on GPUs too: no rewrite for XNNPACK brings in ops that GPUs refuse or compute wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from onnxtfl import onnx_to_tflite
from onnxtfl.placement import place
from tests.models.corpus import CORPUS

pytestmark = pytest.mark.skipif(not CORPUS.exists(), reason=f"no corpus at {CORPUS} (ONNXTFL_CORPUS)")
WHOLE = (
    "densenet",
    "espcn_pixelshuffle",
    "mobilenet_v1",
    "mobilenet_v2_qdq_int8_pc",
    "patchtst_forecast",
    "resize_half_pixel_dynamo",
    "ssd_blazeface",
    "tcn_wavenet",
    "torch_transformer_full_dynamo",
    "vit_tiny",
    "whisper_encoder",
)


@pytest.mark.parametrize("name", WHOLE)
def test_every_op_runs_on_the_accelerator(name: str, tmp_path: Path) -> None:
    assert_runs_on_the_accelerator(name, "tflite", tmp_path)


def test_steps_of_large_weights_are_no_calls_for_the_accelerator(tmp_path: Path) -> None:
    assert_runs_on_the_accelerator("lstm_h128_dynamo", "gpu", tmp_path)


def assert_runs_on_the_accelerator(name: str, target: Literal["tflite", "gpu"], folder: Path) -> None:
    source = CORPUS / "onnx" / name / "model.onnx"
    if not source.exists():
        pytest.skip(f"no {source}")
    onnx_to_tflite(source, folder / "m.tflite", target=target, check=False, load=False)
    found = place(folder / "m.tflite", "gpu")
    assert (found.elsewhere, found.faulty) == ((), ())
