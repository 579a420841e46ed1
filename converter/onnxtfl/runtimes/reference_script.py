"""The reference evaluator of the package onnx in the child process: part of `worker`, and like it a script.

It is slow, and knows ops that ONNX Runtime does not have yet.
"""

from __future__ import annotations

from typing import Any


def run(path: str, runs: list[list[Any]]) -> list[list[Any]]:
    """Return the outputs of the model for the inputs of each run, in its own order.

    Random ops go on drawing from run to run, as in ONNX Runtime: with a seed, this evaluator would begin again.
    """
    import onnx
    from onnx.reference import ReferenceEvaluator

    model = onnx.load(path)
    for nodes in (model.graph.node, *(function.node for function in model.functions)):
        drop_seeds(nodes)
    evaluator = ReferenceEvaluator(model)
    types = [as_numpy(type_) for type_ in evaluator.input_types_]
    return [evaluator.run(None, dict(zip(evaluator.input_names, map(as_type, inputs, types)))) for inputs in runs]  # noqa: B905 (Python 3.9)


def drop_seeds(nodes: Any) -> None:
    """Remove the attributes `seed` of nodes, and of those in their regions."""
    for node in nodes:
        for attribute in [a for a in node.attribute if a.name == "seed"]:
            node.attribute.remove(attribute)
        for region in (g for a in node.attribute for g in (a.g, *a.graphs)):
            drop_seeds(region.node)


def as_numpy(type_: Any) -> Any:
    """Return the NumPy type of the elements of a tensor, None for other types."""
    from onnx.helper import tensor_dtype_to_np_dtype

    return tensor_dtype_to_np_dtype(type_.tensor_type.elem_type) if type_.HasField("tensor_type") else None


def as_type(value: Any, dtype: Any) -> Any:
    """Return the bits of a type that NumPy lacks as an array of that type, other values unchanged."""
    is_bits = dtype is not None and getattr(value, "dtype", None) is not None and value.dtype.kind == "u"
    return value.view(dtype) if is_bits and dtype.kind == "V" and dtype.itemsize == value.dtype.itemsize else value
