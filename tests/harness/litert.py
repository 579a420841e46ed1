"""Run a TFLite model in LiteRT, and an ONNX model in ONNX Runtime; one thread."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def run_tflite(
    model: bytes, inputs: Sequence[Array] | Mapping[str, Array], *, threads: int = 1, kernels: str = "default"
) -> list[tuple[str, Array]]:
    """Return (name, array) of each output, in the model's order; names are those of the signature where it has one.

    ``inputs``: in the model's order, or by name. ``kernels``: "default", "builtin" (without XNNPACK) or "reference".
    Raises ValueError if the inputs do not fit the model, RuntimeError if LiteRT cannot run it.
    """
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    resolver = {
        "default": OpResolverType.AUTO,
        "builtin": OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        "reference": OpResolverType.BUILTIN_REF,
    }[kernels]
    interpreter = Interpreter(model_content=model, num_threads=threads, experimental_op_resolver_type=resolver)
    found = invoke(interpreter, inputs, allocate=True)
    return list(zip(names_of(interpreter, interpreter.get_output_details(), "outputs"), found, strict=True))


def invoke(interpreter: Any, inputs: Mapping[str, Array] | Sequence[Array], *, allocate: bool) -> list[Array]:
    """The outputs of one run; `allocate`: first let the inputs have these shapes, which resets the state."""
    details = interpreter.get_input_details()
    arrays = _in_order(inputs, names_of(interpreter, details, "inputs"))
    if allocate:
        for detail, array in zip(details, arrays, strict=True):
            if tuple(detail["shape"]) != array.shape:
                interpreter.resize_tensor_input(detail["index"], list(array.shape))
        interpreter.allocate_tensors()
    for detail, array in zip(interpreter.get_input_details(), arrays, strict=True):
        if array.size:
            interpreter.set_tensor(detail["index"], array if detail["dtype"] is np.float64 else narrow(array))
    interpreter.invoke()
    return [_fetch(interpreter, detail) for detail in interpreter.get_output_details()]


def run_tflite_steps(model: bytes, steps: Sequence[Sequence[Array]], kernels: str) -> list[list[Array]]:
    """The outputs of each of several runs of one interpreter, which keeps the model's state."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    resolver = (
        OpResolverType.BUILTIN_REF if kernels == "reference" else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    )
    interpreter = Interpreter(model_content=model, num_threads=1, experimental_op_resolver_type=resolver)
    return [invoke(interpreter, arrays, allocate=i == 0) for i, arrays in enumerate(steps)]


def run_onnx(model: bytes, inputs: Mapping[str, Array], *, optimized: bool = True) -> dict[str, Array]:
    """Return the outputs by name, in the model's order. Exceptions of ONNX Runtime propagate."""
    import onnxruntime

    model = with_exact_products(model)

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def with_exact_products(model: bytes) -> bytes:
    """The ONNX model, or an equivalent one if ONNX Runtime's products saturate on this processor."""
    from onnxtfl.checking.models.copies import exact_copy, products_saturate

    if not products_saturate():
        return model
    with tempfile.TemporaryDirectory() as folder:
        path = exact_copy(model, Path(folder))
        return model if path is None else path.read_bytes()


def names_of(interpreter: Any, details: Sequence[Mapping[str, Any]], side: str) -> list[str]:
    """Names of the "inputs" or "outputs" in ``details``: the signature's, without one the tensors'."""
    signatures = interpreter._get_full_signature_list()
    key = "serving_default" if "serving_default" in signatures else next(iter(signatures), None)
    by_index: dict[int, list[str]] = {}
    for name, index in signatures[key][side].items() if key else ():
        by_index.setdefault(index, []).append(name)
    return [by_index[d["index"]].pop(0) if by_index.get(d["index"]) else d["name"] for d in details]


def narrow(array: Array) -> Array:
    """``array`` with float64 as float32, as in the inputs and outputs of converted models."""
    return array.astype(np.float32) if array.dtype == np.float64 else array


def _in_order(inputs: Sequence[Array] | Mapping[str, Array], names: list[str]) -> list[Array]:
    if isinstance(inputs, Mapping):
        if set(inputs) != set(names):
            raise ValueError(f"the model's inputs are {sorted(names)}, the arrays {sorted(inputs)}")
        return [inputs[name] for name in names]
    if len(inputs) != len(names):
        raise ValueError(f"the model has {len(names)} inputs, there are {len(inputs)} arrays")
    return list(inputs)


def _fetch(interpreter: Any, detail: Mapping[str, Any]) -> Array:
    shape = interpreter._interpreter.TensorSize(int(detail["index"]), 0)
    if 0 in shape:
        return np.zeros(shape, detail["dtype"])
    array: Array = interpreter.get_tensor(detail["index"])
    return array
