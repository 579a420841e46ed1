"""Random small ONNX models of all common ops, with several inputs and outputs, static and dynamic sizes.

A seed determines the model. Shapes are inferred while building, so the models are valid; values stay bounded, so that
the outputs of two runtimes can be compared.
"""

from __future__ import annotations

import onnx

from tests.fuzz import steps_arithmetic, steps_data_movement, steps_spatial
from tests.fuzz.building import BOOL, INT32, INT64, Builder, Shape

_SHAPES: tuple[Shape, ...] = (
    (1, 3, 8, 8), (2, 4, 6, 5), (1, 8, 4, 4), (1, 4, 9), (2, 6, 8), (3, 5), (1, 2, 3, 4, 5), (2, 3, 7), (7,),
    (1, 1, 6, 6), (2, 6, 1, 3), (1, 4, 5, 6, 4),
)  # fmt: skip
_STEPS = (*steps_arithmetic.STEPS, *steps_spatial.STEPS, *steps_data_movement.STEPS)
_OPSETS = (17, 17, 17, 13, 18, 21)


def random_model(seed: int, size: int = 12) -> onnx.ModelProto:
    """The model of a seed, with about ``size`` steps; a smaller size is a prefix of the same model."""
    return random_graph(seed, size).model()


def random_graph(seed: int, size: int = 12) -> Builder:
    """The builder of `random_model`; its ``types`` have the shapes of one run."""
    b = Builder(seed)
    b.opset = b.choose(_OPSETS)
    for _ in range(1 + b.below(2)):
        b.input(b.choose(_SHAPES))
    if not b.below(4):
        b.input(b.choose(_SHAPES[3:7]), b.choose([INT64, INT32, BOOL]))
    if not b.below(4):
        _make_dynamic(b)
    outputs = b.below(12)
    tries = 0
    while len(b.nodes) < size and tries < 20 * size:
        b.choose(_STEPS)(b)
        tries += 1
    _add_outputs(b, outputs)
    return b


def _make_dynamic(b: Builder) -> None:
    """Make the batch dynamic, or the spatial sizes, or both."""
    axes = b.choose([(0,), (0,), (2, 3, 4), (0, 2, 3, 4)])
    for name in b.inputs:
        for axis in range(len(b.shape(name))):
            if axis in axes:
                b.symbols[name, axis] = f"{name}_d{axis}"


def _add_outputs(b: Builder, kind: int) -> None:
    """Add outputs that are inputs, constants, or values with other uses."""
    if kind == 0:
        b.extra.append(b.inputs[0])
    if kind == 1:
        b.extra.append(b.weight(2, 3))
    if kind in (2, 3):
        inner = [name for name in b.types if name not in b.unused and name not in b.inputs]
        b.extra.extend({b.choose(inner): None, b.choose(inner): None} if inner else [])
    if not b.unused and not b.extra:
        b.add("Identity", [b.inputs[0]])
