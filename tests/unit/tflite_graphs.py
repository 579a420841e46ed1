"""TFLite graphs with operands of given elements, and the comparison of their conversion with LiteRT."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import onnxtfl
from tests.fuzz.drawing import Input
from tests.fuzz.tflite_drawing import TfliteDrawing
from tests.harness.compare import largest_error
from tests.harness.litert import run_onnx, run_tflite


class TfliteGraph(TfliteDrawing):
    """A graph with given operands. ``shapes``: those of its inputs in other runs."""

    shapes: Sequence[dict[str, tuple[int, ...]]] = ()

    def given(self, elements: Any, dtype: Any = "float32", *, open_axes: Sequence[int] = ()) -> str:
        """An input with these elements."""
        array = np.asarray(elements, dtype)
        name = f"in{len(self.inputs)}"
        dims = [f"{name}_{i}" if i in open_axes else n for i, n in enumerate(array.shape)]
        self.sizes |= {d: n for d, n in zip(dims, array.shape, strict=True) if isinstance(d, str)}
        self.inputs[name], self.arrays[name] = Input(str(array.dtype), tuple(dims), -4, 4), array
        return name


def assert_same_as_litert(build: Callable[[TfliteGraph], Any], *others: Sequence[tuple[int, ...]]) -> None:
    """Convert the graph that `build` makes; compare on its arrays, and on `others`: shapes of all inputs."""
    g = TfliteGraph(0)
    g.rankless = False
    assert build(g), "LiteRT refuses the graph"
    data = g.model()
    converted = onnxtfl.tflite_to_onnx(data, check=False).data
    assert isinstance(converted, bytes)
    feeds = [{n: g.arrays[n] for n in g.inputs}]
    feeds += [{n: g.inputs[n].draw(g.random, s) for n, s in zip(g.inputs, shapes, strict=True)} for shapes in others]
    for fed in feeds:
        actual, expected = run_onnx(converted, fed), dict(run_tflite(data, fed, kernels="builtin"))
        for name, array in expected.items():
            assert actual[name].shape == np.shape(array)
            assert largest_error(actual[name], np.asarray(array)) <= 1, f"{actual[name]} instead of {array}"


SAMPLE = np.random.default_rng(0).uniform(-3, 3, (2, 3, 4)).astype(np.float32)
