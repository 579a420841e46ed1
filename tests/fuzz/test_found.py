"""What random models found: the smallest form of each, so that it stays mended."""

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
class Found:
    """A graph in ONNX's text form, weights (random ones by their shape), the sizes of open dimensions in each run."""

    text: str
    weights: Mapping[str, Any] = field(default_factory=dict)
    sizes: Sequence[Mapping[str, int]] = ({},)
    opset: int = 17
    io_layout: str = "source"


FOUND: dict[str, Found] = {
    "auto_pad of a ConvTranspose whose stride is larger than its kernel": Found(
        'g (float[1, 4, 6, 5] x) => (float y) { y = ConvTranspose <auto_pad = "SAME_UPPER", strides = [3, 1]> (x, w) }',
        {"w": (4, 2, 2, 2)},
    ),
    "a constant of more axes than what a convolution gives": Found(
        "g (float[1, 1, 6, 6] x) => (float y, float z) { y = Conv (x, k) z = Mean (x, c) }",
        {"k": (1, 1, 2, 2), "c": (1, 1, 1, 1, 1)},
    ),
    "average over open sizes, the padding not counted": Found(
        "g (float[1, 2, h, w] x) => (float y) { y = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 0, 1]> (x) }",
        sizes=({"h": 5, "w": 6}, {"h": 3, "w": 8}),
    ),
    "ceil_mode over open sizes": Found(
        """g (float[1, 2, h, w] x) => (float y, float z) {
            y = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 0, 1, 0], ceil_mode = 1> (x)
            z = AveragePool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 0, 1, 0], ceil_mode = 1> (x)
        }""",
        sizes=({"h": 5, "w": 6}, {"h": 6, "w": 9}),
    ),
    "a transposed convolution over open sizes": Found(
        """g (float[1, 2, h, w] x) => (float y) {
            a = Conv <strides = [2, 1], pads = [0, 0, 1, 1]> (x, k)
            y = ConvTranspose <strides = [2, 2]> (a, k)
        }""",
        {"k": (2, 2, 1, 2)},
        sizes=({"h": 5, "w": 6}, {"h": 6, "w": 9}),
    ),
    "a matrix product along an open axis": Found(
        "g (float[1, 4, h, w] x) => (float y) { y = MatMul (x, k) }", {"k": (4, 2)}, sizes=({"h": 3, "w": 4},)
    ),
    "LiteRT would overwrite what is read later": Found(
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
    "an input that is an output": Found("g (float[2, 3] x) => (float[2, 3] x, float y) { y = Relu (x) }"),
}


def attempt(found: Found) -> Verdict:
    """Convert there and back, run, compare; in the child."""
    random = np.random.default_rng(0)
    graph = parser.parse_graph(found.text)
    for name, weight in found.weights.items():
        array = random.standard_normal(weight).astype(np.float32) if isinstance(weight, tuple) else np.asarray(weight)
        graph.initializer.append(numpy_helper.from_array(array, name))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", found.opset)], ir_version=8)
    feeds = [{v.name: _array(v, sizes, random) for v in graph.input} for sizes in found.sizes]
    return judge(model, feeds, Trial(0, back=True, io_layout=found.io_layout))


def _array(value: onnx.ValueInfoProto, sizes: Mapping[str, int], random: np.random.Generator) -> Any:
    tensor = value.type.tensor_type
    shape = [sizes[d.dim_param] if d.dim_param else d.dim_value for d in tensor.shape.dim]
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    return (random.standard_normal(shape) if dtype.kind == "f" else random.integers(0, 2, shape)).astype(dtype)


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as found:
        yield found


@pytest.mark.parametrize("name", FOUND)
def test_found(worker: Worker, name: str) -> None:
    outcome = worker.run("tests.fuzz.test_found:attempt", FOUND[name], TIMEOUT)
    assert outcome.kind == "done", f"{outcome.kind} in {outcome.stage}: {outcome.message}\n{outcome.detail}"
    verdict = outcome.value
    assert verdict.kind == "good", f"{verdict.kind}: {verdict.message}\n{verdict.model}\n{verdict.detail}"
