"""Ops on maps. TFLite has no maps: a map with known keys becomes the tensor of its values.

========  =====================================================================================
ONNX      ZipMap 1, DictVectorizer 1, CastMap 1 (on inputs: :mod:`onnxtfl.formats.onnx.maps`)
========  ====================================================================================="""

from __future__ import annotations

import numpy as np
from onnxtfl.mappings.contrib.ml.scores import as_rows, check_feature_count, class_labels

from onnxtfl.build.attributes import ML
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.assumptions import assume
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value
from onnxtfl.rewriting.registry import lift_onnx


@lift_onnx("ZipMap", since=(1,), domain=ML)
def _zip_map(b: Builder, node: Node) -> Value:
    """The values of the maps as scores [n, classes], with the columns sorted by key, as in ONNX Runtime's maps."""
    rows, labels = as_rows(b, node.operand(0)), class_labels(node, "classlabels_int64s")
    check_feature_count(rows, len(labels))
    order = sorted(range(len(labels)), key=lambda i: labels[i])
    if len(set(labels.tolist())) < len(labels):
        raise ValueError("labels have to be unique: some occur twice")
    shown = ", ".join(str(labels[i]) for i in order[:8]) + (", ..." if len(order) > 8 else "")
    assume(f"{node.results[0].name!r} is a tensor, not a sequence of maps: its columns are the classes {shown}")
    if order == list(range(len(order))):
        return rows.value
    return b(ops.Gather, rows.value, np.asarray(order), axis=1)


@lift_onnx("DictVectorizer", since=(1,), domain=ML)
@lift_onnx("CastMap", since=(1,), domain=ML)
def _refuse_computed_map(b: Builder, node: Node) -> Value:
    """Raise UnsupportedError: the map is not a model input.

    For a map that is an input, the reader replaces the input and this op by the vector of the values.
    """
    raise UnsupportedError("only maps that are model inputs are supported", hint="cut the model after it (`inputs`)")
