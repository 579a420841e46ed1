"""Modified copies of sources for the run: with a defined order of results, or with weights in one file.

A TopK that need not sort returns its elements in any order; conversions sort them, as TFLite's kernel does. LiteRT's
interpreter does not read weights in other files, and leaves these tensors unwritten.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

from onnxtfl.checking.models.side import Side
from onnxtfl.formats import files
from onnxtfl.ir.model import Model
from onnxtfl.rewriting.registry import rules_of
from onnxtfl.tracing.parts import temporary_directory

LARGEST = 1 << 30
"""Bytes of the largest model that is copied."""


def use_sorted_copy(side: Side, stack: ExitStack) -> None:
    """Let `side` run a copy with sorted results, if an op of it has an undefined order of results."""
    if not side.facts.unsorted or side.info.format != "onnx" or side.summary is None or side.summary.size > LARGEST:
        return
    model = files.read(side.info.path)
    if _sort_results(model):
        path = files.write(model, temporary_directory(stack) / "sorted.onnx")
        side.info = replace(side.info, path=path)


def use_copy_with_weights(side: Side, stack: ExitStack) -> None:
    """Let `side` run a copy with its weights, if it is a .tflite with weights in other files."""
    if side.info.format == "tflite" and side.has_data_files:
        path = files.write(files.read(side.info.path), temporary_directory(stack) / "weights.tflite")
        side.info = replace(side.info, path=path)


def _sort_results(model: Model) -> bool:
    """Set the attributes that define the order of results (`ordered_onnx`); returns whether one changed."""
    changed = False
    for graph in model.graphs():
        for node in graph.walk():
            wanted = rules_of(node.op.domain).ordered.get((node.op.domain, node.op.name.partition(".")[2]), {})
            for key, value in wanted.items():
                if node.attributes.get(key, value) != value:
                    node.attributes[key] = value
                    changed = True
    return changed
