"""ScatterND as exporters write `x[1:, :, 2:5] = updates`: without index kernels, and without its index tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxtfl
from onnxtfl.build.affine_indices import AffineIndices
from onnxtfl.formats.tflite.reader import read
from tests.harness.litert import run_onnx, run_tflite

SHAPE = (3, 4, 6)


def _assignment(vectors: Sequence[Sequence[int]], shape: Sequence[int] = SHAPE, *, folded: bool) -> onnx.ModelProto:
    """`updates` for the product of index vectors, whose index tensor is expanded in the model, or a constant."""
    grid = np.stack(np.meshgrid(*vectors, indexing="ij"), -1).astype(np.int64)
    sizes = grid.shape[:-1]
    nodes, constants = [], {"sizes": np.int64(sizes), "last": np.int64([-1]), "indices": grid}
    if not folded:
        del constants["indices"]
        for i, vector in enumerate(vectors):
            constants[f"v{i}"] = np.int64(vector).reshape(-1, *[1] * (len(vectors) - 1 - i))
            nodes.append(helper.make_node("Expand", [f"v{i}", "sizes"], [f"e{i}"]))
            nodes.append(helper.make_node("Unsqueeze", [f"e{i}", "last"], [f"u{i}"]))
        nodes.append(helper.make_node("Concat", [f"u{i}" for i in range(len(vectors))], ["indices"], axis=-1))
    nodes.append(helper.make_node("ScatterND", ["x", "indices", "updates"], ["y"]))
    inputs = {"x": shape, "updates": (*sizes, *shape[len(vectors) :])}
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in inputs.items()]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "g", given, [y], [numpy_helper.from_array(a, n) for n, a in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _ops_if_equal(model: onnx.ModelProto) -> set[str]:
    """The ops of the result, whose values are those of ONNX Runtime."""
    random = np.random.default_rng(0)
    sizes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in model.graph.input}
    given = {name: random.standard_normal(size).astype(np.float32) for name, size in sizes.items()}
    data = onnxtfl.onnx_to_tflite(model, check=False).data
    assert data is not None
    found = run_tflite(data, {n: v for n, v in given.items() if n in {i.name for i in model.graph.input}})
    np.testing.assert_array_equal(found[0][1], run_onnx(model.SerializeToString(), given)["y"])
    return {node.op.name.removeprefix("tfl.") for node in read(data).main.nodes}


@pytest.mark.parametrize("folded", [False, True], ids=["expanded", "constant"])
@pytest.mark.parametrize(
    "vectors",
    [
        ([1, 2],),
        ([0, 1, 2], [1, 2]),
        ([1], [0, 1, 2, 3], [2, 3, 4]),
        ([0, 1], [3], [5]),
        ([0, 1, 2], [0, 1, 2, 3], [0, 1]),
        ([2, 1], [0, 1]),
        ([0, 2], [1, 2], [4]),
        ([-1], [0, 1]),
    ],
    ids=str,
)
def test_assignments_to_slices(vectors: Sequence[Sequence[int]], folded: bool) -> None:
    """Steps and negative indices take other forms, with the same values."""
    found = _ops_if_equal(_assignment(vectors, folded=folded))
    if all(vector == list(range(max(0, vector[0]), vector[-1] + 1)) for vector in vectors):
        assert found <= {"CONCATENATION", "RESHAPE", "SLICE", "STRIDED_SLICE"}


def test_an_assignment_to_everything_is_the_updates() -> None:
    """784 x 784 scores of attention, whose index tensor would have 39 MB."""
    vectors = [range(n) for n in (1, 2, 784, 784)]
    model = _assignment([list(v) for v in vectors], (1, 2, 784, 784), folded=False)
    data = onnxtfl.onnx_to_tflite(model, check=False).data
    assert data is not None and len(data) < 20_000
    assert sum(1 for _ in read(data).main.nodes) <= 2


def test_affine_indices() -> None:
    found = AffineIndices.of(np.arange(12).reshape(3, 4) * 2 + 5)
    assert found is not None and (found.start, found.steps, found.last) == (5, (8, 2), 27)
    assert AffineIndices.of(np.asarray([0, 1, 3])) is None
    moved = found.reshaped((3, 1, 4))
    assert moved is not None and moved.steps == (8, 0, 2) and found.reshaped((4, 3)) is None
