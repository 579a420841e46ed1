"""An ONNX model as the source of a conversion: its results, what rounding does to them, and its other evaluators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx

from tests.harness.litert import Array, run_onnx

Arrays = Mapping[str, Array]
_FLOATS = (np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16))


class Source:
    """An ONNX model with float noise of one part in a million (of float16: in 2,000) in all that it computes."""

    def __init__(self, model: onnx.ModelProto) -> None:
        """``model``: without functions; in regions there is no noise but that of what they read."""
        self.model = model
        self._data = model.SerializeToString()

    def run(self, fed: Arrays) -> Arrays:
        """The outputs of ONNX Runtime."""
        return run_onnx(self._data, fed)

    def noisy(self, fed: Arrays, noise: float, seed: int) -> Arrays:
        """Outputs where each element of each input and value has noise of relative size ``noise``."""
        random = np.random.default_rng(seed)
        found = onnx.ModelProto.FromString(self._data)
        arrays, inputs = self.values(fed), dict[str, Array]()
        nodes = list(found.graph.node)
        del found.graph.node[:]
        for node in nodes:
            names = [name for name in node.output if name and arrays[name].dtype in _FLOATS]
            node.output[:] = [f"{name}.exact" if name in names else name for name in node.output]
            found.graph.node.append(node)
            for name in names:
                array = arrays[name]
                _disturb(found.graph, name, array.dtype)
                inputs[f"{name}.factors"] = _factors(random, array, noise)
                inputs[f"{name}.offsets"] = _offsets(random, array, noise)
        inputs |= {n: np.asarray(a * _factors(random, a, noise)) if a.dtype in _FLOATS else a for n, a in fed.items()}
        return run_onnx(found.SerializeToString(), inputs)

    def others(self, fed: Arrays) -> Iterator[Arrays]:
        """The outputs without optimizations; where something is empty, those of ONNX's own evaluator too."""
        yield run_onnx(self._data, fed, optimized=False)
        if any(array.size == 0 for array in self.values(fed).values()):
            from onnx.reference import ReferenceEvaluator

            names = [output.name for output in self.model.graph.output]
            try:
                found = ReferenceEvaluator(self.model).run(None, dict(fed))
            except Exception:  # it cannot evaluate everything
                return
            yield dict(zip(names, map(np.asarray, found), strict=True))

    def values(self, fed: Arrays) -> dict[str, Array]:
        """Each input, constant and value of a run."""
        shown = self.with_all_outputs()
        constants = {t.name: onnx.numpy_helper.to_array(t) for t in shown.graph.initializer}
        return {**fed, **constants, **run_onnx(shown.SerializeToString(), fed)}

    def evaluated(self, fed: Arrays) -> dict[str, Array]:
        """Each input and value, as ONNX's own evaluator computes it; raises its errors."""
        from onnx.reference import ReferenceEvaluator

        shown = self.with_all_outputs()
        found = ReferenceEvaluator(shown).run(None, dict(fed))
        return {**fed, **{output.name: np.asarray(a) for output, a in zip(shown.graph.output, found, strict=True)}}

    def with_all_outputs(self) -> onnx.ModelProto:
        """The model with each result of a node as an output."""
        shown = onnx.ModelProto.FromString(self._data)
        del shown.graph.output[:]
        names = [name for node in shown.graph.node for name in node.output if name]
        shown.graph.output.extend([onnx.ValueInfoProto(name=name) for name in names])
        return shown


def _factors(random: np.random.Generator, array: Array, noise: float) -> Any:
    return np.asarray(1 + noise * random.standard_normal(array.shape)).astype(array.dtype)


def _offsets(random: np.random.Generator, array: Array, noise: float) -> Any:
    """Noise of what has canceled out: relative to the largest element, and to 1 where all are smaller."""
    largest = max(1.0, float(np.abs(array.astype(np.float64)).max(initial=0)))
    return np.asarray(0.1 * noise * largest * random.standard_normal(array.shape)).astype(array.dtype)


def _disturb(graph: onnx.GraphProto, name: str, dtype: np.dtype[Any]) -> None:
    """Make a value of the one that is exact.

    The noise is an input without a shape: ONNX infers other sizes of some pools than ONNX Runtime computes.
    """
    element = onnx.helper.np_dtype_to_tensor_dtype(dtype)
    graph.input.extend(
        onnx.helper.make_tensor_value_info(f"{name}.{part}", element, None) for part in ("factors", "offsets")
    )
    graph.node.append(onnx.helper.make_node("Mul", [f"{name}.exact", f"{name}.factors"], [f"{name}.product"]))
    graph.node.append(onnx.helper.make_node("Add", [f"{name}.product", f"{name}.offsets"], [name]))
