"""Language models: decoders of ONNX as models of LiteRT-LM (:func:`convert`)."""

from __future__ import annotations

from onnxtfl.llm.conversion import LlmConversion, convert

__all__ = ["LlmConversion", "convert"]
