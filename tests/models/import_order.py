"""Conversions after the mapping modules were imported in another order, in a worker process."""

from __future__ import annotations

import hashlib
import importlib
import io
import pkgutil
from collections.abc import Iterator

import onnxtfl.mappings

from onnxtfl import pipeline
from onnxtfl.errors import OnnxtflError
from onnxtfl.options import Options
from tests.conformance.cases import load_cases


def digests(backwards: bool) -> dict[str, str]:
    """Name -> digest of the conversion of each model, after the mapping modules were imported in this order."""
    names = [module.name for module in pkgutil.walk_packages(onnxtfl.mappings.__path__, "onnxtfl.mappings.")]
    assert len(names) > 80
    for name in sorted(names, reverse=backwards):
        importlib.import_module(name)
    return {name: _digest(model) for name, model in _op_models()}


def _op_models() -> Iterator[tuple[str, bytes]]:
    """One or more of ONNX's test models for each of its ops."""
    seen: set[str] = set()
    for case in load_cases():
        if not seen.issuperset(case.ops):
            seen.update(case.ops)
            yield case.name, case.model


def _digest(model: bytes) -> str:
    """The digest of the converted file, and of its conversion back."""
    converted = _converted(model, False)
    return hashlib.sha256(converted + _converted(converted, True)).hexdigest()


def _converted(model: bytes, is_tflite: bool) -> bytes:
    out = io.BytesIO()
    try:
        (pipeline.tflite_to_onnx if is_tflite else pipeline.onnx_to_tflite)(model, out, Options())
    except OnnxtflError as error:
        return str(error).encode()
    return out.getvalue()
