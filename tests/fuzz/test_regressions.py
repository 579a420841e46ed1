"""Regression tests: reduced forms of random models that failed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

from tests.fuzz.run import TIMEOUT, Trial, Verdict, judge
from tests.harness.workers import Worker


@dataclass(frozen=True)
class Regression:
    """A graph in ONNX's text form, weights (random ones by their shape), the sizes of dynamic dimensions per run."""

    text: str
    weights: Mapping[str, Any] = field(default_factory=dict)
    sizes: Sequence[Mapping[str, int]] = ({},)
    opset: int = 17
    io_layout: str = "source"


REGRESSIONS: dict[str, Regression] = {
    "auto_pad of a ConvTranspose whose stride is larger than its kernel": Regression(
        'g (float[1, 4, 6, 5] x) => (float y) { y = ConvTranspose <auto_pad = "SAME_UPPER", strides = [3, 1]> (x, w) }',
        {"w": (4, 2, 2, 2)},
    ),
    "a constant of a higher rank than the result of a convolution": Regression(
        "g (float[1, 1, 6, 6] x) => (float y, float z) { y = Conv (x, k) z = Mean (x, c) }",
        {"k": (1, 1, 2, 2), "c": (1, 1, 1, 1, 1)},
    ),
    "an average pool over dynamic sizes that does not count padding": Regression(
        "g (float[1, 2, h, w] x) => (float y) { y = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 0, 1]> (x) }",
        sizes=({"h": 5, "w": 6}, {"h": 3, "w": 8}),
    ),
    "ceil_mode over dynamic sizes": Regression(
        """g (float[1, 2, h, w] x) => (float y, float z) {
            y = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 0, 1, 0], ceil_mode = 1> (x)
            z = AveragePool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 0, 1, 0], ceil_mode = 1> (x)
        }""",
        sizes=({"h": 5, "w": 6}, {"h": 6, "w": 9}),
    ),
    "a transposed convolution over dynamic sizes": Regression(
        """g (float[1, 2, h, w] x) => (float y) {
            a = Conv <strides = [2, 1], pads = [0, 0, 1, 1]> (x, k)
            y = ConvTranspose <strides = [2, 2]> (a, k)
        }""",
        {"k": (2, 2, 1, 2)},
        sizes=({"h": 5, "w": 6}, {"h": 6, "w": 9}),
    ),
    "a matrix product with a dynamic batch": Regression(
        "g (float[1, 4, h, w] x) => (float y) { y = MatMul (x, k) }", {"k": (4, 2)}, sizes=({"h": 3, "w": 4},)
    ),
    "LiteRT would reuse memory that is read later": Regression(
        """g (float[2, 3, 6] x) => (float y, float z) {
            a = Sin (x)
            t = Add (a, k)
            r = Reshape (t, s)
            d = Reciprocal (r)
            y = Sin (d)
            z = Sin (t)
        }""",
        {"k": np.float32(1.5), "s": np.array([6, 6])},
    ),
    "an input that is an output": Regression("g (float[2, 3] x) => (float[2, 3] x, float y) { y = Relu (x) }"),
}


def attempt(case: Regression) -> Verdict:
    """Convert both ways, run, compare; in the worker process."""
    random = np.random.default_rng(0)
    graph = parser.parse_graph(case.text)
    for name, weight in case.weights.items():
        array = random.standard_normal(weight).astype(np.float32) if isinstance(weight, tuple) else np.asarray(weight)
        graph.initializer.append(numpy_helper.from_array(array, name))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", case.opset)], ir_version=8)
    feeds = [{v.name: _array(v, sizes, random) for v in graph.input} for sizes in case.sizes]
    return judge(model, feeds, Trial(0, back=True, io_layout=case.io_layout))


def _array(value: onnx.ValueInfoProto, sizes: Mapping[str, int], random: np.random.Generator) -> Any:
    tensor = value.type.tensor_type
    shape = [sizes[d.dim_param] if d.dim_param else d.dim_value for d in tensor.shape.dim]
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    return (random.standard_normal(shape) if dtype.kind == "f" else random.integers(0, 2, shape)).astype(dtype)


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as found:
        yield found


@pytest.mark.parametrize("name", REGRESSIONS)
def test_regression(worker: Worker, name: str) -> None:
    outcome = worker.run("tests.fuzz.test_regressions:attempt", REGRESSIONS[name], TIMEOUT)
    assert outcome.kind == "done", f"{outcome.kind} in {outcome.stage}: {outcome.message}\n{outcome.detail}"
    verdict = outcome.value
    assert verdict.kind == "passed", f"{verdict.kind}: {verdict.message}\n{verdict.model}\n{verdict.detail}"
