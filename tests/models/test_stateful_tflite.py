"""The corpus' .tflite files with state, converted to ONNX and run three times in both runtimes."""

from __future__ import annotations

from pathlib import Path

import pytest

import onnxtfl
from tests.models.corpus import CORPUS

NAMES = (
    "litert_bin/call_once_mul",
    "litert_bin/converter__quantization__lite__lstm_quantized",
    "litert_bin/multi_subgraphs_while",
    "litert_bin/unidirectional_sequence_lstm",
    "tflm/keyword_scrambled",
    "tflm/micro_speech_lstm",
    "tflm/trained_lstm",
    "tflm/trained_lstm_int8",
)
FILES = [CORPUS / "tflite" / f"{name}.tflite" for name in NAMES]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_three_runs_agree(path: Path, tmp_path: Path) -> None:
    if not path.exists():
        pytest.skip(f"no corpus at {CORPUS} (ONNXTFL_CORPUS)")
    onnxtfl.tflite_to_onnx(path, tmp_path / "model.onnx", check="require", runs=3)
