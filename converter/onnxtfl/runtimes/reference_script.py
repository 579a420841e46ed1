"""The reference evaluator of the package onnx in the child process: part of `worker`, and like it a script.

It is slow, and knows ops that ONNX Runtime does not have yet.
"""

from __future__ import annotations

from typing import Any


def run(path: str, runs: list[list[Any]]) -> list[list[Any]]:
    """Return the outputs of the model for the inputs of each run, in its own order."""
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(path)
    types = [as_numpy(type_) for type_ in evaluator.input_types_]
    return [evaluator.run(None, dict(zip(evaluator.input_names, map(as_type, inputs, types)))) for inputs in runs]  # noqa: B905 (Python 3.9)


def as_numpy(type_: Any) -> Any:
    """Return the NumPy type of the elements of a tensor, None for other types."""
    from onnx.helper import tensor_dtype_to_np_dtype

    return tensor_dtype_to_np_dtype(type_.tensor_type.elem_type) if type_.HasField("tensor_type") else None


def as_type(value: Any, dtype: Any) -> Any:
    """Return the bits of a type that NumPy lacks as an array of that type, other values unchanged."""
    is_bits = dtype is not None and getattr(value, "dtype", None) is not None and value.dtype.kind == "u"
    return value.view(dtype) if is_bits and dtype.kind == "V" and dtype.itemsize == value.dtype.itemsize else value
