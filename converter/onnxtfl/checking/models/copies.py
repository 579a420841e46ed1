"""Modified copies of models for the run: with a defined order of results, with exact products, or with weights in one
file.

A TopK that need not sort returns its elements in any order; conversions sort them, as TFLite's kernel does. Sums of
products of uint8 and int8 saturate in ONNX Runtime on some processors. LiteRT's interpreter does not read weights in
other files, and leaves these tensors unwritten.
"""

from __future__ import annotations

import functools
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np

from onnxtfl.checking.models.side import Side
from onnxtfl.formats import files
from onnxtfl.ir.model import Model
from onnxtfl.kernels.onnxruntime_products import EXACT_SUM, LARGEST_OPERANDS, saturating_model, use_unsigned_weights
from onnxtfl.rewriting.registry import rules_for
from onnxtfl.runtimes import ONNXRUNTIME, RunError
from onnxtfl.temporary import Folder
from onnxtfl.tracing.parts import temporary_directory

LARGEST = 1 << 30
"""Bytes of the largest model that is copied."""
EXACT_PRODUCTS = (
    "with its int8 weights stored as uint8: ONNX Runtime's sums of uint8 by int8 saturate on this processor"
)
"""How a model ran whose products would saturate."""


def use_sorted_copy(side: Side, stack: ExitStack) -> None:
    """Let `side` run a copy with sorted results, if an op of it has an undefined order of results."""
    if not side.facts.unsorted or side.info.format != "onnx" or side.summary.size > LARGEST:
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


def use_exact_copy(side: Side, stack: ExitStack) -> None:
    """Let `side` run a copy with uint8 weights, if its products of uint8 and int8 saturate on this processor."""
    if side.summary.size > LARGEST:
        return
    path = exact_copy(side.info.path, temporary_directory(stack))
    if path is not None:
        side.info = replace(side.info, path=path)
        side.way = "; ".join(filter(None, (side.way, EXACT_PRODUCTS)))


def exact_copy(source: Path | bytes, folder: Path) -> Path | None:
    """Write a copy of an ONNX model with uint8 weights to `folder`; None if it computes the same."""
    if files.sniff(source) != "onnx":
        return None
    model = files.read(source)
    if not use_unsigned_weights(model) or not products_saturate():
        return None
    return files.write(model, folder / "exact.onnx")


@functools.cache
def products_saturate() -> bool:
    """Whether ONNX Runtime's sums of products of uint8 and int8 saturate on this processor (measured)."""
    try:
        with ONNXRUNTIME.worker() as worker, Folder() as folder:
            path = files.write(saturating_model(), folder / "product.onnx")
            (found,) = worker.run(path, [np.asarray(LARGEST_OPERANDS, np.uint8)])
    except RunError:  # the run of the model itself will report why
        return False
    return bool(found.item() != EXACT_SUM)


def _sort_results(model: Model) -> bool:
    """Set the attributes that define the order of results (`ordered_onnx`); returns whether one changed."""
    changed = False
    for graph in model.graphs():
        for node in graph.walk():
            wanted = rules_for(node.op).ordered.get((node.op.domain, node.op.name_in_file), {})
            for key, value in wanted.items():
                if node.attributes.get(key, value) != value:
                    node.attributes[key] = value
                    changed = True
    return changed
