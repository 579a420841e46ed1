"""The model that looks up the embeddings of tokens for a decoder with these as inputs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from onnxtfl.errors import UnsupportedError, UsageError
from onnxtfl.formats import files
from onnxtfl.llm.model_files import ModelFiles
from onnxtfl.options import Options
from onnxtfl.passes.states.first_caches import FirstCaches
from onnxtfl.passes.states.fixed_caches import EMBEDDINGS
from onnxtfl.pipeline import onnx_to_tflite_entries

NAMES = ("embed_tokens.onnx", "embeddings.onnx", "embedding.onnx", "text_embeddings.onnx")
"""The names that exporters give it."""


def embedder_of(found: ModelFiles) -> Path:
    """The model beside a decoder. Raises UsageError if there is none."""
    path = found.find(NAMES)
    if path is None:
        raise UsageError(
            f"LiteRT-LM looks up embeddings in a model of their own: looked for {', '.join(NAMES)} in "
            f"{found.described()}",
            hint="put it there, name the result *.tflite, or export the decoder with token ids",
            code="E-USE-006",
        )
    return path


def embedder_to_tflite(model: Path, out: BinaryIO, options: Options) -> None:
    """Write the signature of one token, as LiteRT-LM calls it: `tokens` (int32 [1, 1]) to `embeddings` (float32).

    Raises UnsupportedError for a model with other inputs or outputs.
    """
    graph = files.read(model).main
    inputs, outputs = [str(v.name) for v in graph.inputs], graph.names_of_outputs
    if len(inputs) != 1 or len(outputs) != 1 or not graph.inputs[0].dtype.is_integer:
        message = f"{model}: not a model from token ids to embeddings: its inputs are {', '.join(inputs)}"
        raise UnsupportedError(message, hint="name the result *.tflite", code="E-OP-010")
    caches = FirstCaches(inputs[0], {outputs[0]: EMBEDDINGS}, {}, 1, 1)
    onnx_to_tflite_entries(out, {"embed": (model, replace(options, caches=caches, record=False))})
