"""Decoders as TFLite models for LiteRT-LM: signatures prefill_N and decode, caches of a fixed length."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import BinaryIO

from onnxtfl.llm.decoders import Decoder
from onnxtfl.options import Options
from onnxtfl.passes.states.fixed_caches import FixedCaches
from onnxtfl.pipeline import onnx_to_tflite_entries
from onnxtfl.pipeline_report import Report

_FILLED = "filled"
_RUNTIME = "litert-2.3"
"""The oldest runtime with kernels for weights that have scales of blocks."""


def decoder_to_tflite(
    model: str | os.PathLike[str] | bytes,
    decoder: Decoder,
    out: BinaryIO,
    options: Options,
    *,
    prefill: Sequence[int],
    context: int,
    prefill_logits: bool = False,
    has_real_products: bool = False,
) -> dict[str, Report]:
    """Write the signatures of a model, whose inputs and outputs `decoder` names, to a seekable binary file.

    Products with quantized weights use LiteRT's kernels for these, which round the other operand to int8 row by row;
    `has_real_products`: its elements stay float, and the weights are dequantized in each run.
    """
    if not has_real_products:
        options = replace(options, dynamic_quant="hybrid", min_runtime=_RUNTIME)
    entries = {f"prefill_{n}": _entry(decoder, options, n, context, prefill_logits) for n in sorted(prefill)}
    entries["decode"] = _entry(decoder, options, 1, context, True)
    return onnx_to_tflite_entries(out, {key: (model, options) for key, options in entries.items()})


def _entry(decoder: Decoder, options: Options, new: int, context: int, has_logits: bool) -> Options:
    past = {cache.past: cache.axis for cache in decoder.caches}
    names = dict(_names(decoder))
    caches = FixedCaches(decoder.tokens, names, past, _FILLED, context, new, decoder.attention, decoder.positions)
    outputs = [decoder.logits] if has_logits else []
    return replace(options, caches=caches, outputs=[*outputs, *(c.present for c in decoder.caches)], record=False)


def _names(decoder: Decoder) -> Iterator[tuple[str, str]]:
    yield decoder.logits, "logits"
    for cache in decoder.caches:
        yield cache.past, cache.name
        yield cache.present, cache.name
