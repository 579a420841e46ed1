"""Random small ONNX models of all common ops, with several inputs and outputs, fixed and open sizes.

A seed gives a model. Shapes are tracked while building, so the models are valid; values stay bounded, so that two
runtimes can be compared.
"""

from __future__ import annotations

import onnx

from tests.fuzz import steps_arithmetic, steps_moving, steps_spatial
from tests.fuzz.building import BOOL, INT32, INT64, Builder, Shape

_SHAPES: tuple[Shape, ...] = (
    (1, 3, 8, 8), (2, 4, 6, 5), (1, 8, 4, 4), (1, 4, 9), (2, 6, 8), (3, 5), (1, 2, 3, 4, 5), (2, 3, 7), (7,),
    (1, 1, 6, 6), (2, 6, 1, 3), (1, 4, 5, 6, 4),
)  # fmt: skip
_STEPS = (*steps_arithmetic.STEPS, *steps_spatial.STEPS, *steps_moving.STEPS)
_OPSETS = (17, 17, 17, 13, 18, 21)


def random_model(seed: int, size: int = 12) -> onnx.ModelProto:
    """The model of a seed, with about ``size`` steps; a smaller size gives the beginning of the same model."""
    return random_graph(seed, size).model()


def random_graph(seed: int, size: int = 12) -> Builder:
    """What `random_model` builds; its ``types`` know the shapes of one run where sizes are open."""
    b = Builder(seed)
    b.opset = b.choose(_OPSETS)
    for _ in range(1 + b.below(2)):
        b.input(b.choose(_SHAPES))
    if not b.below(4):
        b.input(b.choose(_SHAPES[3:7]), b.choose([INT64, INT32, BOOL]))
    if not b.below(4):
        _open_sizes(b)
    outputs = b.below(12)
    tries = 0
    while len(b.nodes) < size and tries < 20 * size:
        b.choose(_STEPS)(b)
        tries += 1
    _odd_outputs(b, outputs)
    return b


def _open_sizes(b: Builder) -> None:
    """Leave the batch open, or the spatial sizes, or both."""
    axes = b.choose([(0,), (0,), (2, 3, 4), (0, 2, 3, 4)])
    for name in b.inputs:
        for axis in range(len(b.shape(name))):
            if axis in axes:
                b.symbols[name, axis] = f"{name}_d{axis}"


def _odd_outputs(b: Builder, kind: int) -> None:
    """Outputs that are inputs, constants, or values that others read as well."""
    if kind == 0:
        b.extra.append(b.inputs[0])
    if kind == 1:
        b.extra.append(b.weight(2, 3))
    if kind in (2, 3):
        inner = [name for name in b.types if name not in b.open and name not in b.inputs]
        b.extra.extend({b.choose(inner): None, b.choose(inner): None} if inner else [])
    if not b.open and not b.extra:
        b.add("Identity", [b.inputs[0]])
