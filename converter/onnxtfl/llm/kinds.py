"""The kinds of decoders that are converted, told by the inputs of a file and by the files beside it."""

from __future__ import annotations

from typing import Any

from onnxtfl.formats import files
from onnxtfl.llm.decoders import Decoder, decoder_of
from onnxtfl.llm.encoder_decoders import EncoderDecoder, encoder_decoder_at
from onnxtfl.llm.fixed_decoders import FixedDecoder, fixed_decoder_at

Kind = Decoder | FixedDecoder | EncoderDecoder


def kind_of(model: Any) -> Kind:
    """What a model (a path, bytes, or a ModelProto) is. Raises UnsupportedError for one that is no decoder."""
    graph = files.read(model).main
    return fixed_decoder_at(model, graph) or encoder_decoder_at(model, graph) or decoder_of(graph)
