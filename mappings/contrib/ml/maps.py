"""Maps, which TFLite does not have: the tensor of their values.

========  =====================================================================================
ONNX      ZipMap 1, DictVectorizer 1, CastMap 1 (of inputs, :mod:`onnxtfl.formats.onnx.maps`)
========  ====================================================================================="""

from __future__ import annotations

import numpy as np
from onnxtfl.mappings.contrib.ml.scores import class_labels, feature_count, rows_of

from onnxtfl.build.attributes import ML
from onnxtfl.errors import InvalidModelError, UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.assumptions import assume
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value
from onnxtfl.rewriting.registry import lift_onnx


@lift_onnx("ZipMap", since=(1,), domain=ML)
def _zip_map(b: Builder, node: Node) -> Value:
    """The scores [n, classes] in the maps, with the columns sorted by key, as in ONNX Runtime's maps."""
    rows, labels = rows_of(b, node.operand(0)), class_labels(node, "classlabels_int64s")
    feature_count(rows, len(labels))
    order = sorted(range(len(labels)), key=lambda i: labels[i])
    if len(set(labels.tolist())) < len(labels):
        raise InvalidModelError("labels that occur twice", code="E-FILE-009")
    shown = ", ".join(str(labels[i]) for i in order[:8]) + (", ..." if len(order) > 8 else "")
    assume(f"{node.results[0].name!r} is read as a tensor, not as maps: its columns are the classes {shown}")
    if order == list(range(len(order))):
        return rows.value
    return b(ops.Gather, rows.value, np.asarray(order), axis=1)


@lift_onnx("DictVectorizer", since=(1,), domain=ML)
@lift_onnx("CastMap", since=(1,), domain=ML)
def _of_no_input(b: Builder, node: Node) -> Value:
    """If the map is an input, the reader replaces it by the vector and creates no node; other maps are refused."""
    raise UnsupportedError("a map that is no input of the model", hint="cut the model after it (`inputs`)")
