"""Quantize a float model as ONNX Runtime's quantizer does: to QDQ with int8 on random inputs, or at run time."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx

SAMPLES = 3


PRODUCTS = ["Conv", "Gemm", "MatMul"]


def quantized_twin(source: Path, target: Path, *, results: bool = True) -> None:
    """Write the model at `source`, whose inputs are floats of known sizes, with quantized weights and activations.

    `results`: of all ops; else only operands of products are quantized, and weights have a scale for each feature.
    """
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Samples(CalibrationDataReader):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            self.left = _samples(source)

        def get_next(self) -> dict[str, Any] | None:
            return next(self.left, None)

    logging.getLogger().setLevel(logging.ERROR)  # it recommends optimizations that change the model
    types = {"activation_type": QuantType.QInt8, "weight_type": QuantType.QInt8}
    others: dict[str, Any] = {} if results else {"per_channel": True, "op_types_to_quantize": PRODUCTS}
    options = {} if results else {"OpTypesToExcludeOutputQuantization": PRODUCTS}
    quantize_static(
        str(source), str(target), Samples(), quant_format=QuantFormat.QDQ, extra_options=options, **types, **others
    )


def dynamic_twin(source: Path, target: Path) -> None:
    """Write the model at `source` with quantized weights, and activations that are quantized at run time."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    logging.getLogger().setLevel(logging.ERROR)
    quantize_dynamic(str(source), str(target), op_types_to_quantize=PRODUCTS, weight_type=QuantType.QUInt8)


def _samples(model: Path) -> Iterator[dict[str, Any]]:
    inputs = onnx.load(str(model), load_external_data=False).graph.input
    random = np.random.default_rng(0)
    for _ in range(SAMPLES):
        sizes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in inputs}
        yield {name: random.standard_normal(shape).astype(np.float32) for name, shape in sizes.items()}
