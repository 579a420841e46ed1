"""Writes .litertlm files: metadata, tokenizer and model as the sections of one file."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import BinaryIO

from onnxtfl.llm.builder import builder_package
from onnxtfl.llm.tokenizers import Tokenizer
from onnxtfl.temporary import Folder


def write_container(
    model: Path, tokenizer: Tokenizer, metadata: bytes, out: BinaryIO, embedder: Path | None = None
) -> None:
    """Write the model (a .tflite with signatures prefill_N and decode), its tokenizer and LlmMetadata to a seekable
    binary file; `embedder`: a .tflite that looks up the embeddings of tokens for the model.

    Raises RuntimeUnavailableError without litert-lm-builder.
    """
    package = builder_package()
    with Folder() as folder:
        (folder / "metadata.pb").write_bytes(metadata)
        builder = package.LitertLmFileBuilder()
        builder.add_llm_metadata(str(folder / "metadata.pb"))
        if tokenizer.kind == "Hugging Face":
            named = shutil.copyfile(tokenizer.path, folder / "tokenizer.json")  # the builder wants this suffix
            builder.add_hf_tokenizer(str(named))
        else:
            builder.add_sentencepiece_tokenizer(str(tokenizer.path))
        builder.add_tflite_model(str(model), package.TfLiteModelType.PREFILL_DECODE)
        if embedder is not None:
            builder.add_tflite_model(str(embedder), package.TfLiteModelType.EMBEDDER)
        builder.build(out)
