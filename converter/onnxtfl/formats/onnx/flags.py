"""The values of attributes: strings of a list, and flags as ONNX Runtime reads integers other than 0 and 1."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from onnxtfl.errors import InvalidModelError

_PADDING = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER", "")
_SCATTERED = ("none", "add", "mul", "max", "min")
_OF_LOSSES = ("none", "mean", "sum")
_ORDERS = ("DCR", "CRD")
_RESIZE_PLACES = (
    *("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"),
    *("tf_crop_and_resize", "tf_half_pixel_for_nn"),
)
_STRINGS: Mapping[str, Mapping[str, Collection[str]]] = {
    "approximate": {"Gelu": ("none", "tanh")},
    "auto_pad": dict.fromkeys(
        ("Conv", "ConvTranspose", "LpPool", "AveragePool", "QLinearConv", "MaxPool", "ConvInteger"), _PADDING
    ),
    "coordinate_transformation_mode": {"Resize": _RESIZE_PLACES, "RoiAlign": ("half_pixel", "output_half_pixel")},
    "direction": {
        "BitShift": ("LEFT", "RIGHT"),
        **dict.fromkeys(("GRU", "LSTM", "RNN", "DynamicQuantizeLSTM"), ("forward", "reverse", "bidirectional")),
    },
    "keep_aspect_ratio_policy": {"Resize": ("stretch", "not_larger", "not_smaller")},
    "mode": {
        "DepthToSpace": _ORDERS,
        "SpaceToDepth": _ORDERS,
        "GridSample": ("linear", "nearest", "cubic", "bilinear", "bicubic"),
        "Pad": ("constant", "reflect", "edge", "wrap"),
        "Resize": ("nearest", "linear", "cubic"),
        "RoiAlign": ("avg", "max"),
        "TensorScatter": ("linear", "circular"),
        "TfIdfVectorizer": ("TF", "IDF", "TFIDF"),
        "Upsample": ("nearest", "linear", "bilinear"),
    },
    "nearest_mode": {"Resize": ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")},
    "padding_mode": {"GridSample": ("zeros", "border", "reflection")},
    "reduction": {
        "ScatterElements": _SCATTERED,
        "ScatterND": _SCATTERED,
        "NegativeLogLikelihoodLoss": _OF_LOSSES,
        "SoftmaxCrossEntropyLoss": _OF_LOSSES,
    },
    "round_mode": {"Cast": ("up", "down", "nearest"), "CastLike": ("up", "down", "nearest")},
}
"""The allowed strings of attributes, by attribute and op."""
_CONVOLUTIONS = ("Conv", "ConvTranspose", "QLinearConv", "ConvInteger")
_LEAST: Mapping[str, Mapping[str, int]] = {
    "group": dict.fromkeys(_CONVOLUTIONS, 1),
    "num_outputs": {"Split": 1},
    "p": {"LpNormalization": 1},
    "pads": dict.fromkeys(_CONVOLUTIONS, 0),
}
"""The least integer of attributes, by attribute and op."""
_MOST: Mapping[str, Mapping[str, int]] = {"p": {"LpNormalization": 2}}
"""The largest integer of attributes."""
_TRUE_IF_ONE = frozenset(
    {"ceil_mode", "interleaved", "is_causal", "keepdims", "largest", "noop_with_empty_axes", "sorted"}
)
"""Flags that are set by 1 only (measured on ONNX Runtime)."""
_ZERO_OR_ONE = frozenset(
    {
        *("allowzero", "center_point_box", "exclusive", "fmod", "layout", "new_axis", "reverse", "storage_order"),
        "training_mode",
    }
)
"""Flags for which ONNX or ONNX Runtime refuse other integers."""
_OF_ATTENTION = ("do_rotary", "interleaved", "rotary_interleaved", "unidirectional")
_TRUE_UNLESS_ZERO = frozenset(
    {
        *("align_corners", "antialias", "count_include_pad", "detect_negative", "detect_positive", "exclude_outside"),
        *("input_forget", "inverse", "linear_before_reset", "onesided", "periodic", "saturate", "select_last_index"),
        *("transA", "transB", "upper"),
    }
)
"""Flags that are set by any integer except 0."""


def read_values(op: str, attributes: dict[str, Any], name: str) -> None:
    """Replace the flags of the node `name` by 0 or 1, as ONNX Runtime reads them.

    Raises InvalidModelError for a string or an integer that the op does not allow, and for a flag that ONNX Runtime
    refuses.
    """
    for key, value in attributes.items():
        _check_range(op, key, value, name)
        if key in _STRINGS and isinstance(value, (str, bytes)):
            allowed = _STRINGS[key].get(op)
            unused = key == "nearest_mode" and attributes.get("mode", "nearest") != "nearest"
            if allowed is not None and value not in allowed and not unused:
                choices = ", ".join(filter(None, allowed))
                raise _invalid(f"the attribute {key!r} is {value!r}, not one of {choices}", op, name)
        elif isinstance(value, int):
            attributes[key] = _flag(op, key, value, name)


def _check_range(op: str, key: str, value: Any, name: str) -> None:
    """Raise InvalidModelError for an integer that the op does not allow, also in a list."""
    least, most = (bounds.get(key, {}).get(op) for bounds in (_LEAST, _MOST))
    for number in value if isinstance(value, list | tuple) else [value]:
        if least is not None and isinstance(number, int) and number < least:
            raise _invalid(f"the attribute {key!r} is {value}, the least value is {least}", op, name)
        if most is not None and isinstance(number, int) and number > most:
            raise _invalid(f"the attribute {key!r} is {value}, the largest value is {most}", op, name)


def read_flags_of_attention(attributes: dict[str, Any]) -> None:
    """Replace the flags of com.microsoft's attention and its rotation by 0 or 1: 1 sets them (measured)."""
    for key in _OF_ATTENTION:
        if isinstance(value := attributes.get(key), int):
            attributes[key] = int(value == 1)


def _flag(op: str, key: str, value: int, name: str) -> int:
    if key in _TRUE_IF_ONE:
        return int(value == 1)
    if key in _ZERO_OR_ONE and value not in (0, 1):
        raise _invalid(f"the attribute {key!r} is {value}, not 0 or 1", op, name)
    return int(value != 0) if key in _TRUE_UNLESS_ZERO else value


def _invalid(message: str, op: str, name: str) -> InvalidModelError:
    return InvalidModelError(message, node=name, op=op, code="E-FILE-009")
