"""Writes .litertlm files: metadata, tokenizer and model as the sections of one file."""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from onnxtfl.llm.builder import builder_package
from onnxtfl.llm.tokenizers import Tokenizer
from onnxtfl.temporary import Folder

Result = TypeVar("Result")


def write_container(
    model: Path, tokenizer: Tokenizer, metadata: bytes, out: BinaryIO, embedder: Path | None = None
) -> None:
    """Write the model (a .tflite with signatures prefill_N and decode), its tokenizer and LlmMetadata to a seekable
    binary file; `embedder`: a .tflite that looks up the embeddings of tokens for the model.

    Raises RuntimeUnavailableError without litert-lm-builder.
    """
    with Folder() as folder:
        builder = _builder(model, tokenizer, metadata, folder)
        if embedder is not None:
            builder.add_tflite_model(str(embedder), builder_package().TfLiteModelType.EMBEDDER)
        builder.build(out)


def write_container_around(
    write: Callable[[BinaryIO], Result], tokenizer: Tokenizer, metadata: bytes, out: BinaryIO
) -> Result:
    """As `write_container`, for a model that `write` writes to its place in the file, and so once only. Returns what
    `write` does.
    """
    with Folder() as folder:
        model = folder / "model.tflite"
        model.write_bytes(b"0")
        whole = io.BytesIO()
        _builder(model, tokenizer, metadata, folder).build(whole)
    end = len(whole.getvalue())
    out.seek(end - 1)
    result = write(out)
    known, wanted = (n.to_bytes(8, "little") for n in (end, out.tell()))
    out.seek(0)
    out.write(whole.getvalue()[:-1].replace(known, wanted, 1))  # in the header; the builder would read the whole model
    out.seek(0, os.SEEK_END)
    return result


def _builder(model: Path, tokenizer: Tokenizer, metadata: bytes, folder: Path) -> Any:
    """The builder of a container whose last section is the model; `folder`: where the other sections are stored."""
    package = builder_package()
    (folder / "metadata.pb").write_bytes(metadata)
    builder = package.LitertLmFileBuilder()
    builder.add_llm_metadata(str(folder / "metadata.pb"))
    if tokenizer.kind == "Hugging Face":
        content = tokenizer.path.read_bytes()
        packed = folder / "tokenizer.zlib"  # the builder would compress a .json each time that it writes it
        packed.write_bytes(len(content).to_bytes(8, "little") + zlib.compress(content))
        builder.add_hf_tokenizer(str(packed))
    else:
        builder.add_sentencepiece_tokenizer(str(tokenizer.path))
    builder.add_tflite_model(str(model), package.TfLiteModelType.PREFILL_DECODE)
    return builder
