"""The tokenizer of a decoder: found beside it, recognized by its contents."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from onnxtfl.errors import UsageError
from onnxtfl.llm.model_files import TOKENIZER, ModelFiles

NAMES = (TOKENIZER, "tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "tokenizer.spm", "tokenizer.spiece")
"""The names of tokenizers' files, the preferred ones first: tokenizer.json has the tokens that were added later."""


@dataclass(frozen=True)
class Tokenizer:
    """A file with a tokenizer, and its kind."""

    path: Path
    kind: Literal["Hugging Face", "SentencePiece"]


def tokenizer_of(files: ModelFiles, given: str | os.PathLike[str] | None) -> Tokenizer:
    """The tokenizer that is given, else that beside the model. Raises UsageError if there is none of a known kind."""
    path = files.find(NAMES) if given is None else Path(given)
    if path is None:
        message = f"there is no tokenizer: looked for {', '.join(NAMES)} in {files.described()}"
        raise UsageError(message, hint="name its file with `tokenizer`")
    if path.exists() and not path.is_file():
        raise UsageError(f"{path}: not a file", hint="name a file")
    try:
        with path.open("rb") as file:
            head = file.read(64).lstrip()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}", hint="name a file") from error
    if head.startswith(b"{"):
        return Tokenizer(path, "Hugging Face")
    if head.startswith(b"\n") or path.read_bytes()[:1] == b"\n":
        return Tokenizer(path, "SentencePiece")
    raise UsageError(
        f"{path}: neither Hugging Face's tokenizer.json nor a SentencePiece model",
        hint="save the tokenizer with transformers (save_pretrained writes tokenizer.json)",
    )
