"""Ops that pick by index: Gather, GatherND, GatherElements, OneHot, NonZero.

ONNX: Gather GatherND GatherElements OneHot NonZero Compress. TFLite: GATHER GATHER_ND EMBEDDING_LOOKUP ONE_HOT WHERE.
"""

from __future__ import annotations

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder, Operand
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.shapes import normalize_axis
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import Form, lift_onnx, lift_tfl, lower_onnx, lower_tfl
from onnxtfl.rewriting.sizes import narrow, nonnegative

# --- Gather ----------------------------------------------------------------------------------------------------------


@lift_onnx("Gather", since=(1, 11, 13))
def _gather(b: Builder, node: Node) -> Value:
    x, indices, axis = node.operand(0), node.operand(1), node.attr("axis", 0)
    if x.tensor_type.shape is None:
        raise UnsupportedError("the axis of a tensor of unknown rank cannot be found", hint="give --input-shape")
    axis = normalize_axis(axis, x.rank)
    return b(ops.Gather, x, nonnegative(b, indices, x.shape[axis], x), axis=axis)


@lower_tfl(ops.Gather)
def _to_tfl_gather(node: Node) -> Form:
    options = {"axis": node.attr("axis") % node.operand(0).rank, "batch_dims": node.attr("batch_dims")}
    return Form("GATHER", (node.operand(0), _indices(node.operand(1))), options)


def _indices(value: Value) -> Operand:
    """Constant indices as int32, of whatever rank."""
    return narrow(value) if value.is_constant and value.dtype is DType.INT64 else value


@lower_onnx(ops.Gather)
def _to_onnx_gather(node: Node, opset: int) -> Form | None:
    if node.attr("batch_dims"):
        return None
    return Form("Gather", (node.operand(0), node.operand(1)), {"axis": node.attr("axis")})


@lift_tfl("GATHER")
def _from_tfl_gather(b: Builder, node: Node) -> Value:
    x, indices = node.operand(0), node.operand(1)
    axis, batch = node.attr("axis", 0) or 0, node.attr("batch_dims", 0) or 0
    batch = batch + indices.rank if batch < 0 else batch
    return b(ops.Gather, x, indices, axis=normalize_axis(axis, x.rank), batch_dims=batch)
