"""The states of a converted model in the metadata of an ONNX file.

Entry "onnxtfl.states" of `metadata_props`: a JSON list of objects with "input" and "output" (names of an input and an
output of the model, or null), and "initial": the input of the first run. It is a number if all elements are equal, or
nested lists, or {"base64": bytes of the elements, little-endian, "shape": [...]}; null if it is unknown.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.errors import InvalidModelError
from onnxtfl.ir.data import Array, TensorData
from onnxtfl.ir.metadata import STATES

KEY = STATES
_LISTED = 256
"""The most elements that are written as text."""


@dataclass(frozen=True, slots=True)
class StateEntry:
    """Names of the input and output of a state (None if absent), and the initial value.

    `initial`: an array of the input's shape, or of rank 0, the value of all elements; None if it is unknown.
    """

    input: str | None
    output: str | None
    initial: Array | None


def encode(states: Sequence[StateEntry]) -> str:
    """The text of the metadata entry."""
    return json.dumps([{"input": s.input, "output": s.output, "initial": _text(s.initial)} for s in states])


def decode(properties: Mapping[str, Any], types: Mapping[str, np.dtype[Any]] | None) -> list[StateEntry]:
    """The states of a model with this metadata, whose inputs have these `types` (None: without initial values).

    InvalidModelError if malformed.
    """
    text = properties.get(KEY)
    if text is None:
        return []
    if isinstance(text, TensorData):
        text = text.numpy().tobytes()
    try:
        return [_entry(found, types) for found in json.loads(text)]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidModelError(f"malformed metadata {KEY}: {error}", code="E-FILE-005") from error


def _entry(found: Mapping[str, Any], types: Mapping[str, np.dtype[Any]] | None) -> StateEntry:
    name, initial = found["input"], found["initial"]
    if types is None:
        return StateEntry(name, found["output"], None)
    dtype = types.get(name, np.dtype(object))
    if isinstance(initial, dict):
        array: Array | None = np.frombuffer(base64.b64decode(initial["base64"]), dtype).reshape(initial["shape"])
    else:
        array = None if initial is None else np.asarray(initial, dtype)
    return StateEntry(name, found["output"], array)


def _text(initial: Array | None) -> Any:
    """The JSON value of an initial value."""
    if initial is None:
        return None
    if initial.size and initial.dtype.kind in "biufO" and (initial == initial.reshape(-1)[0]).all():
        initial = initial.reshape(-1)[:1].reshape(())
    if initial.size > _LISTED or initial.dtype.kind not in "biufO" or not _is_finite(initial):
        return {"base64": base64.b64encode(initial.tobytes()).decode(), "shape": list(initial.shape)}
    return initial.tolist()


def _is_finite(array: Array) -> bool:
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())
