"""Decoders whose files have more than 2 GB, which no FlatBuffer offset reaches; with ONNXTFL_LARGE=1 (needs 7 GB)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tools.make_decoders import SIZES, Decoder

import onnxtfl

pytest.importorskip("litert_lm_builder")
pytestmark = pytest.mark.skipif(not os.environ.get("ONNXTFL_LARGE"), reason="takes minutes and 7 GB: ONNXTFL_LARGE=1")
SIZE = 2_200_000_000


def test_more_than_2_gb(tmp_path: Path) -> None:
    """The model runs in LiteRT, in the container in LiteRT-LM, and is read again."""
    source, result = tmp_path / "model.onnx", tmp_path / "model.litertlm"
    Decoder(SIZES["half"], bits=32).write(source)
    done = onnxtfl.llm.convert(source, result, prefill=[32], context=128)
    assert done.check is not None and done.check.ok and done.size > SIZE, done.table(True)
    assert any("LiteRT-LM" in note for note in done.check.notes), done.table(True)
    assert done.peak_memory is not None and done.peak_memory < 300 << 20
    source.unlink()
    source.with_suffix(".onnx.data").unlink()
    back = onnxtfl.tflite_to_onnx(result, tmp_path / "back.onnx", signature="decode", check=False)
    assert back.report.inputs[0].name == "tokens"
    assert sum(file.stat().st_size for file in tmp_path.glob("back.onnx*")) > SIZE
