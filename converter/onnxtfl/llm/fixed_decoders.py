"""Decoders with caches of a fixed length, a file for each signature, as `tfl2onnx --signature all` writes them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from onnxtfl.errors import UnsupportedError
from onnxtfl.formats import files
from onnxtfl.ir.graph import Graph
from onnxtfl.options import Options
from onnxtfl.passes.states.fixed_caches import MASK, POSITIONS, TOKENS
from onnxtfl.passes.states.named_caches import NamedCaches
from onnxtfl.pipeline import onnx_to_tflite_entries
from onnxtfl.pipeline_report import Report

_FILE = re.compile(r"(prefill_(\d+)|decode)\.onnx")


@dataclass(frozen=True)
class FixedDecoder:
    """The files by signature, prefill first, and the places of the caches."""

    files: Mapping[str, Path]
    context: int

    @property
    def file(self) -> Path:
        """The file that reports and errors name."""
        return self.files["decode"]

    @property
    def prefill(self) -> tuple[int, ...]:
        """The new tokens of each prefill."""
        return tuple(int(key.rpartition("_")[2]) for key in self.files if key != "decode")


def fixed_decoder_at(model: object, graph: Graph) -> FixedDecoder | None:
    """The decoder of which a file, with this graph, is one signature; None for another model. Raises UnsupportedError
    where the one for `decode` is missing.
    """
    inputs = {str(v.name): v for v in graph.inputs}
    if not isinstance(model, str | os.PathLike) or not {TOKENS, POSITIONS, MASK} <= inputs.keys():
        return None
    matches = [(match, path) for path in Path(model).parent.iterdir() if (match := _FILE.fullmatch(path.name))]
    found = {match[1]: path for match, path in sorted(matches, key=lambda one: int(one[0][2] or 1 << 30))}
    if "decode" not in found:
        message = f"one signature of a decoder: looked beside it for decode.onnx, found {', '.join(found) or 'none'}"
        hint = "convert all of them (`--signature all|signatures_to_onnx`)"
        raise UnsupportedError(message, hint=hint, code="E-OP-009")
    return FixedDecoder(found, int(inputs[MASK].shape[-1]))


def fixed_decoder_to_tflite(decoder: FixedDecoder, out: BinaryIO, options: Options) -> dict[str, Report]:
    """Write the signatures of a decoder to a seekable binary file."""
    entries = {}
    for key, path in decoder.files.items():
        names = dict(cache_names(files.read(path).main))
        entries[key] = (path, replace(options, caches=NamedCaches(names), record=False))
    return onnx_to_tflite_entries(out, entries)


def cache_names(graph: Graph) -> Iterator[tuple[str, str]]:
    """The names of caches by those of the outputs, which end with a number more."""
    inputs = {str(v.name) for v in graph.inputs}
    for name in graph.names_of_outputs:
        if (cache := re.sub(r"_\d+$", "", name)) in inputs and name not in inputs:
            yield name, cache
