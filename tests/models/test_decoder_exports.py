"""Decoders of transformers, as exporters write them, decode the same tokens in LiteRT (and in LiteRT-LM's engine).

A few exported files are in tests/models/decoders. The others need ``pip install '.[llm-test]'``.
"""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import onnxtfl
from onnxtfl.llm import LlmConversion, entries
from tests.models import decoder_exports
from tests.models.decoder_exports import FOLDER, KEPT, PLACES, by_dynamo, by_optimum, save_tokenizer

pytest.importorskip("ai_edge_litert")
_MISSING = [
    name for name in ("torch", "transformers", "onnxscript", "optimum") if importlib.util.find_spec(name) is None
]
needs_exporters = pytest.mark.skipif(bool(_MISSING), reason=f"not installed: {', '.join(_MISSING)} (.[llm-test])")
_CONTEXTS = {"generator-phi3": 64}
"""Those of models that compute otherwise after more tokens."""
ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma2", "gemma3_text", "mistral", "phi", "gpt2", "gpt_neox", "opt")


def same_tokens(done: LlmConversion, count: int) -> bool:
    """Whether the result chose the source's tokens after all prompts, however these were split."""
    assert done.check is not None and done.check.ok, done.table(True)
    return all(f"the same {count} tokens" in out.note for out in done.check.outputs)


@pytest.mark.parametrize("name", KEPT)
def test_exported_files(name: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(FOLDER / f"{name}.zip") as packed:
        packed.extractall(tmp_path)
    how: dict[str, Any] = {"prefill": [4, 16], "context": _CONTEXTS.get(name, 96), "check": "require"}
    done = onnxtfl.llm.convert(tmp_path / "model.onnx", tmp_path / "model.tflite", **how)
    assert same_tokens(done, 32) or name.startswith("generator")  # activations are rounded with weights of 4 bits


def test_another_result_fails(tmp_path: Path) -> None:
    with zipfile.ZipFile(FOLDER / "optimum-gpt-oss.zip") as packed:
        packed.extractall(tmp_path)
    source, result = tmp_path / "model.onnx", tmp_path / "model.tflite"
    onnxtfl.llm.convert(source, result, prefill=[4], context=96, check=False)
    with zipfile.ZipFile(FOLDER / "optimum-gemma3.zip") as packed:
        packed.extractall(tmp_path)
    assert onnxtfl.check(source, result).status == "failed"


@needs_exporters
@pytest.mark.parametrize("export", [by_optimum, by_dynamo])
@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_exports(
    kind: str, export: Callable[[str, Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 tokens after prompts of many lengths, in LiteRT through the signatures and in the engine, if installed."""
    monkeypatch.setattr(entries, "STEPS", 64)
    export(kind, tmp_path)
    save_tokenizer(tmp_path)
    has_container = importlib.util.find_spec("litert_lm_builder") is not None
    target = tmp_path / ("model.litertlm" if has_container else "model.tflite")
    how: dict[str, Any] = {"prefill": [4, 16], "context": PLACES, "check": "require"}
    done = onnxtfl.llm.convert(tmp_path / "model.onnx", target, **how)
    assert same_tokens(done, 64)
    if has_container and importlib.util.find_spec("litert_lm") is not None:
        assert any("goes on as LiteRT" in note for note in done.check.notes), done.check.notes


def test_the_kept_files_are_those_of_the_script() -> None:
    assert {path.stem for path in FOLDER.glob("*.zip")} == set(decoder_exports.KEPT)
    assert all(path.stat().st_size < 60_000 for path in FOLDER.glob("*.zip"))
