"""A large node is evaluated in parts: with the same results, and without copies of all its operands."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from itertools import islice

import numpy as np
import pytest

from onnxtfl.ir import parts
from onnxtfl.ir.interpret import run
from onnxtfl.ir.op import OPS, Op
from onnxtfl.ir.text import parse_graph
from tests.harness.litert import Array
from tests.unit.op_samples import samples
from tests.unit.test_decompositions import Built, drawn, is_drawn

DIVISIBLE = [
    name
    for name, op in OPS.items()
    if is_drawn(op) and (op.shared_axes or op.divisions.__func__ is not Op.divisions.__func__)
]
Q = "quant<int8 0.5:3>"
LARGE = {
    "Add": f"graph g(%x: tensor<1024x1024xfloat32, {Q}>, %y: tensor<1024xfloat32, {Q}>) -> (%z) {{"
    f" %z = Add(%x, %y) : tensor<1024x1024xfloat32, {Q}> }}",
    "Conv": f"""graph g(%x: tensor<1x256x256x16xfloat32, {Q}>, %w: tensor<16x3x3x16xfloat32, {Q}>) -> (%z) {{
      %z = Conv(%x, %w) {{input_batch_dimension = 0, input_feature_dimension = 3, input_spatial_dimensions = [1, 2],
        kernel_input_feature_dimension = 3, kernel_output_feature_dimension = 0, kernel_spatial_dimensions = [1, 2],
        output_batch_dimension = 0, output_feature_dimension = 3, output_spatial_dimensions = [1, 2],
        window_strides = [1, 1], padding = "SAME", rhs_dilation = [1, 1], feature_group_count = 1}}
        : tensor<1x256x256x16xfloat32, {Q}> }}""",
    "DotGeneral": f"graph g(%x: tensor<8x1024xfloat32, {Q}>, %w: tensor<1024x1024xfloat32, {Q}>) -> (%z) {{"
    " %z = DotGeneral(%x, %w) {lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]}"
    f" : tensor<8x1024xfloat32, {Q}> }}",
    "Gelu": "graph g(%x: tensor<1024x2048xfloat16>) -> (%z) { %z = Gelu(%x) }",
    "ArgMax": f"graph g(%x: tensor<256x256x20xfloat32, {Q}>) -> (%z) {{ %z = ArgMax(%x) {{axis = 2}} }}",
}


def evaluated(one: Built, largest: int, monkeypatch: pytest.MonkeyPatch) -> list[Array]:
    monkeypatch.setattr(parts, "LARGEST", largest)
    return run(one.graph, one.inputs)


@pytest.mark.parametrize("name", DIVISIBLE)
def test_the_parts_of_an_op_are_those_of_the_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for one in islice(drawn(OPS[name]), 4):
        for whole, found in zip(evaluated(one, 1 << 16, monkeypatch), evaluated(one, 2, monkeypatch), strict=True):
            assert found.dtype == whole.dtype and found.shape == whole.shape
            if whole.dtype.kind in "fc":
                np.testing.assert_allclose(found, whole, rtol=1e-5, atol=1e-6)
            elif whole.dtype != object:
                np.testing.assert_array_equal(found, whole)


@pytest.mark.parametrize("name", LARGE)
def test_a_large_node_needs_at_most_twice_its_operands_and_results(name: str) -> None:
    graph = parse_graph(LARGE[name])
    random = np.random.default_rng(0)
    inputs = [random.integers(-9, 9, v.tensor_type.shape).astype(v.tensor_type.storage.numpy) for v in graph.inputs]
    tracemalloc.start()
    (result,) = run(graph, inputs)
    live = result.nbytes + sum(x.nbytes for x in inputs)
    needed = tracemalloc.get_traced_memory()[1] + sum(x.nbytes for x in inputs)
    tracemalloc.stop()
    assert needed <= 2 * live + (1 << 20)


@pytest.mark.parametrize("name", ["LayerNorm", "Lstm"])
def test_operands_of_a_derived_op_are_freed_at_once(name: str) -> None:
    """Not by garbage collection, which may leave the weights of many layers in memory."""
    operands, attributes = next(samples(OPS[name], 1))
    arrays = [None if x is None else np.array(getattr(x, "array", x)) for x in operands]
    freed = [weakref.ref(x) for x in arrays if x is not None]
    gc.disable()
    try:
        OPS[name].evaluate(attributes, *arrays)
        del arrays
        assert [ref() for ref in freed] == [None] * len(freed)
    finally:
        gc.enable()
