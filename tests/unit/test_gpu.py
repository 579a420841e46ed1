"""LiteRT's GPU accelerator as a target and as the runtime of a check."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxtfl
from onnxtfl.placement import place
from onnxtfl.runtimes import GPU, LITERT, RunError
from onnxtfl.runtimes.gpu_script import failure, refusals
from tests.unit.tiny_models import onnx_scale, saved, tflite_model, tflite_scale

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


@functools.cache
def has_device(folder: Path) -> bool:
    """Whether a Vulkan driver is installed."""
    if not GPU.available():
        return False
    with GPU.worker() as worker:
        try:
            worker.run(saved(tflite_scale(), folder / "device.tflite"), [X])
        except RunError as error:
            return error.kind != "unavailable"
    return True


@pytest.fixture
def device(tmp_path_factory: pytest.TempPathFactory) -> None:
    if not has_device(tmp_path_factory.getbasetemp()):
        pytest.skip("needs a Vulkan driver (docs/run-gpu.md)")


def model_of(
    nodes: Sequence[onnx.NodeProto], shape: Sequence[int], dtype: int = TensorProto.FLOAT, **constants: Any
) -> onnx.ModelProto:
    """A model of `nodes` from x, of `shape`, to y."""
    found = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    x, y = (helper.make_tensor_value_info(name, dtype, sizes) for name, sizes in (("x", shape), ("y", None)))
    graph = helper.make_graph(nodes, "g", [x], [y], found)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def converted(name: str, path: Path) -> Path:
    """The case of this name, converted for the accelerator and right on the CPU."""
    nodes, shape, constants, _ = _CASES[name]
    model = model_of(nodes, shape, **constants)
    onnxtfl.onnx_to_tflite(model, path, target="gpu", check=False)
    assert onnxtfl.check(model.SerializeToString(), path).ok
    return path


@pytest.mark.usefixtures("device")
def test_a_model_runs(tmp_path: Path) -> None:
    with GPU.worker() as worker:
        np.testing.assert_allclose(worker.run(saved(tflite_scale(), tmp_path / "m.tflite"), [X])[0], 2 * X, rtol=1e-6)


@pytest.mark.usefixtures("device")
def test_an_op_that_it_refuses_is_named(tmp_path: Path) -> None:
    model = saved(tflite_model("LOG_SOFTMAX", [("x", (2, 3), None)], ("y", (2, 3))), tmp_path / "m.tflite")
    with GPU.worker() as worker, pytest.raises(RunError, match="LOG_SOFTMAX: Operation is not supported") as error:
        worker.run(model, [X])
    assert error.value.kind == "unsupported"


def test_what_the_accelerator_prints() -> None:
    said = [
        "INFO: created",
        "ERROR: Following operations are not supported by GPU delegate:",
        "BROADCAST_TO: Operation is not supported.",
        'ADD: Tensor "x" has bad input dims size: 0.',
        "No operations will run on the GPU, and all 2 operations will run on the CPU.",
    ]
    assert refusals(said) == said[2:4]
    assert "BROADCAST_TO: Operation" in str(failure("Some ops are not accelerated", said, "load"))
    assert failure("kLiteRtStatusError", ["ERROR: INTERNAL: No adapters found"], "load").kind == "unavailable"


def branch(elements: list[float]) -> onnx.GraphProto:
    """A graph whose output is a constant vector."""
    value = numpy_helper.from_array(np.float32(elements), "v")
    node = helper.make_node("Constant", [], ["v"], value=value)
    return helper.make_graph([node], "branch", [], [helper.make_tensor_value_info("v", 1, [len(elements)])])


_CASES: dict[str, tuple[list[onnx.NodeProto], tuple[int, ...], dict[str, Any], set[str]]] = {
    "log softmax": ([helper.make_node("LogSoftmax", ["x"], ["y"], axis=1)], (2, 5), {}, {"LOG_SOFTMAX"}),
    "expand": ([helper.make_node("Expand", ["x", "s"], ["y"])], (1, 3, 1), {"s": [2, 3, 4]}, {"BROADCAST_TO"}),
    "a batch of constants": ([helper.make_node("Add", ["x", "c"], ["y"])], (2, 3), {"c": X}, set()),
    "a vector and a constant": ([helper.make_node("Mul", ["x", "c"], ["y"])], (3,), {"c": X[0]}, set()),
    "lookup": ([helper.make_node("Gather", ["x", "i"], ["y"])], (4, 3), {"i": [[0, 2], [3, 1]]}, set()),
    "backwards": ([helper.make_node("Slice", ["x", "a", "b", "n", "k"], ["y"])], (4, 5),
        {"a": [-1], "b": [-9], "n": [1], "k": [-2]}, {"REVERSE_V2"}),
    "argmax": (
        [helper.make_node("ArgMax", ["x"], ["i"], axis=1), helper.make_node("Cast", ["i"], ["y"], to=1)],
        (2, 3, 4),
        {},
        set(),
    ),
    "sums": ([helper.make_node("CumSum", ["x", "a"], ["y"])], (2, 5), {"a": 1}, {"CUMSUM"}),
    "blocks of a batch": ([helper.make_node("DepthToSpace", ["x"], ["y"], blocksize=2)], (2, 8, 2, 3), {}, set()),
    "padded mean": ([helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[3, 3], pads=[0, 1, 2, 0],
        count_include_pad=1)], (1, 4, 6, 6), {}, {"PAD"}),
    "a constant from the left": ([helper.make_node("MatMul", ["c", "x"], ["y"])], (3, 4), {"c": X}, set()),
    "batches that broadcast": ([helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 3, 2]),
        helper.make_node("MatMul", ["x", "t"], ["y"])], (3, 1, 2, 2), {}, set()),
    "groups of two channels": ([helper.make_node("Conv", ["x", "c"], ["y"], group=2)], (1, 4, 4, 4),
        {"c": np.linspace(-1, 1, 48, dtype=np.float32).reshape(6, 2, 2, 2)}, set()),
    "a small slope": ([helper.make_node("LeakyRelu", ["x"], ["y"], alpha=0.01)], (2, 3), {}, set()),
    "padding of a batch": ([helper.make_node("Pad", ["x", "p"], ["y"])], (2, 1, 3, 3),
        {"p": [0, 0, 1, 0, 0, 0, 0, 2]}, set()),
    "padding of a batch of rows": ([helper.make_node("Pad", ["x", "p"], ["y"])], (2, 3, 3),
        {"p": [0, 1, 0, 0, 0, 2]}, {"PADV2"}),
    "padding to a batch": ([helper.make_node("Pad", ["x", "p"], ["y"])], (1, 1, 3, 3),
        {"p": [1, 0, 1, 0, 0, 0, 0, 2]}, {"PAD", "PADV2"}),
    "a constant output": ([helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Cast", ["s"], ["y"], to=1)],
        (2, 3), {}, set()),
    "a computed kernel": ([helper.make_node("Reshape", ["x", "s"], ["w"]), helper.make_node("Conv", ["c", "w"], ["y"],
        pads=[1, 0, 0, 1], strides=[2, 1], group=2)], (4, 6),
        {"s": [2, 3, 2, 2], "c": np.linspace(-1, 1, 96, dtype=np.float32).reshape(1, 6, 4, 4)}, {"CONV_2D"}),
    "five axes": ([helper.make_node("Reshape", ["x", "s"], ["z"]), helper.make_node("Transpose", ["z"], ["t"],
        perm=[3, 1, 2, 0, 4]), helper.make_node("Reshape", ["t", "r"], ["y"])], (4, 6),
        {"s": [1, 4, 1, 3, 2], "r": [3, 8]}, set()),
    "argmax of negative rows": ([helper.make_node("Sub", ["x", "c"], ["z"]), helper.make_node("ArgMax", ["z"], ["i"],
        axis=1), helper.make_node("Cast", ["i"], ["y"], to=1)], (2, 3), {"c": np.float32([[2]])}, set()),
    "softmax of a mask": ([helper.make_node("Add", ["x", "c"], ["z"]), helper.make_node("Softmax", ["z"], ["y"])],
        (3, 6), {"c": np.float32([[-np.inf] * 4 + [0, 1]])}, set()),
    "maximum of padding": ([helper.make_node("Sub", ["x", "c"], ["z"]), helper.make_node("Pad", ["z", "p"], ["t"]),
        helper.make_node("MaxPool", ["t"], ["y"], kernel_shape=[3, 3])], (1, 4, 3, 3),
        {"c": np.float32([[[[2]]]]), "p": [0, 0, 1, 1, 0, 0, 1, 1]}, set()),
    "mean of padding": ([helper.make_node("Pad", ["x", "p"], ["t"]), helper.make_node("AveragePool", ["t"], ["y"],
        kernel_shape=[3, 3])], (1, 4, 3, 3), {"p": [0, 0, 1, 1, 0, 0, 1, 1]}, {"PAD"}),
    "powers": ([helper.make_node("Mul", ["x", "c"], ["z"]), helper.make_node("Round", ["z"], ["e"]),
        helper.make_node("Pow", ["x", "e"], ["y"])], (2, 8), {"c": np.float32([[4]])}, {"POW"}),
    "a constant minus integers": ([helper.make_node("Mul", ["x", "c"], ["z"]), helper.make_node("Cast", ["z"], ["i"],
        to=6), helper.make_node("Sub", ["k", "i"], ["d"]), helper.make_node("Cast", ["d"], ["y"], to=1)], (2, 3),
        {"c": np.float32([[4]]), "k": np.int32([[7, 8, 9]])}, {"SUB"}),
    "a difference of equals": ([helper.make_node("Relu", ["x"], ["z"]), helper.make_node("Sub", ["z", "z"], ["d"]),
        helper.make_node("Add", ["d", "x"], ["y"])], (2, 3), {}, set()),
    "gates": ([helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_node("Split", ["z"], ["a", "b", "c"], axis=1,
        num_outputs=3), helper.make_node("Sigmoid", ["a"], ["s"]), helper.make_node("Mul", ["c", "s"], ["m"]),
        helper.make_node("Tanh", ["m"], ["t"]), helper.make_node("Sigmoid", ["b"], ["o"]),
        helper.make_node("Mul", ["t", "o"], ["y"])], (3, 8),
        {"w": np.sin(np.arange(192, dtype=np.float32)).reshape(8, 24)}, {"SPLIT"}),
    "scattered sums": ([helper.make_node("Mul", ["x", "c"], ["z"]), helper.make_node("Cast", ["z"], ["i"], to=7),
        helper.make_node("ScatterElements", ["k", "i", "x"], ["y"], axis=0, reduction="add")], (6, 16),
        {"c": np.float32([[4]]), "k": np.zeros((6, 16), np.float32)}, {"SCATTER_ND"}),
    "scattered rows": ([helper.make_node("Mul", ["x", "c"], ["z"]), helper.make_node("Cast", ["z"], ["i"], to=7),
        helper.make_node("Slice", ["i", "b", "e", "o"], ["r"]), helper.make_node("ScatterND", ["k", "r", "x"], ["y"],
        reduction="add")], (40, 16), {"c": np.float32([[4]]), "k": np.zeros((40, 16), np.float32), "b": [0], "e": [1],
        "o": [1]}, {"SCATTER_ND"}),
    "transposed convolution": ([helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[4], pads=[2, 2],
        kernel_shape=[8])], (1, 4, 9), {"w": np.sin(np.arange(96, dtype=np.float32)).reshape(4, 3, 8)}, set()),
    "groups of three": ([helper.make_node("Conv", ["x", "w"], ["y"], group=3)], (1, 9, 4, 4),
        {"w": np.sin(np.arange(324, dtype=np.float32)).reshape(12, 3, 3, 3)}, set()),
    "products of batches": ([helper.make_node("MatMul", ["x", "w"], ["y"])], (2, 3, 4, 5),
        {"w": np.sin(np.arange(90, dtype=np.float32)).reshape(3, 5, 6)}, set()),
    "a softmax of a vector": ([helper.make_node("Softmax", ["x"], ["y"], axis=0)], (6,), {}, set()),
    "rows that are written": ([helper.make_node("Mul", ["x", "c"], ["z"]), helper.make_node("Cast", ["z"], ["i"], to=7),
        helper.make_node("ScatterElements", ["k", "i", "x"], ["y"], axis=1)], (3, 4),
        {"c": np.float32([[4]]), "k": np.zeros((3, 6), np.float32)}, {"SCATTER_ND"}),
    "products of equals": ([helper.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["x", "t"], ["y"])], (1, 3, 4), {}, set()),
    "remainders of infinity": ([helper.make_node("Div", ["c", "x"], ["z"]), helper.make_node("Mod", ["x", "z"], ["y"],
        fmod=1)], (2, 3), {"c": np.float32([[1, 0.5, np.inf]])}, set()),
    "branches of constants": ([helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0), helper.make_node("Cast", ["s"],
        ["b"], to=9), helper.make_node("If", ["b"], ["y"], then_branch=branch([1, 2]), else_branch=branch([3, 4]))],
        (2, 3), {}, {"IF"}),
}  # fmt: skip


@pytest.mark.parametrize("name", _CASES)
def test_results_have_forms_that_it_computes(name: str, tmp_path: Path) -> None:
    placed = place(converted(name, tmp_path / "m.tflite"), "gpu")
    assert not placed.elsewhere, [op.reason for op in placed.elsewhere]
    assert _CASES[name][3].isdisjoint(op.op for op in placed.ops)


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("name", _CASES)
def test_results_are_right_on_the_gpu(name: str, tmp_path: Path) -> None:
    path = converted(name, tmp_path / "m.tflite")
    x = np.random.default_rng(0).uniform(-1, 1, _CASES[name][1]).astype(np.float32)
    with GPU.worker() as gpu, LITERT.worker() as cpu:
        np.testing.assert_allclose(gpu.run(path, [x])[0], cpu.run(path, [x])[0], rtol=1e-4, atol=1e-5)


_NORMALIZED: dict[str, tuple[list[onnx.NodeProto], dict[str, Any]]] = {
    "layers": ([helper.make_node("LayerNormalization", ["x", "w"], ["y"], epsilon=1e-12)],
        {"w": np.ones(8, np.float32)}),
    "instances": ([helper.make_node("InstanceNormalization", ["x", "w", "b"], ["y"])],
        {"w": np.ones(3, np.float32), "b": np.zeros(3, np.float32)}),
    "roots of means": ([helper.make_node("Pow", ["x", "t"], ["p"]), helper.make_node("ReduceMean", ["p", "a"], ["m"]),
        helper.make_node("Add", ["m", "e"], ["s"]), helper.make_node("Sqrt", ["s"], ["r"]),
        helper.make_node("Div", ["x", "r"], ["y"])], {"t": np.float32(2), "a": [-1], "e": np.float32(1e-6)}),
    "lengths": ([helper.make_node("ReduceL2", ["x", "a"], ["y"], keepdims=0)], {"a": [1]}),
    "units": ([helper.make_node("LpNormalization", ["x"], ["y"], p=2)], {}),
}  # fmt: skip


def simulated(path: Path, *inputs: Any) -> list[list[Any]]:
    """The outputs of a .tflite in both simulations of float16."""
    return [list(onnxtfl.run(path, list(inputs), precision=how).values()) for how in ("float16", "float16-sums")]


@pytest.mark.parametrize("factor", [1e-4, 1, 3000])
@pytest.mark.parametrize("name", _NORMALIZED)
def test_squares_stay_in_the_range_of_float16(name: str, factor: float, tmp_path: Path) -> None:
    nodes, constants = _NORMALIZED[name]
    model, path = model_of(nodes, (2, 3, 8), **constants), tmp_path / "m.tflite"
    x = (factor * np.random.default_rng(0).standard_normal((2, 3, 8))).astype(np.float32)
    onnxtfl.onnx_to_tflite(model, path, target="gpu", check_data={"x": x})
    expected = onnx.reference.ReferenceEvaluator(model).run(None, {"x": x})[0]
    for (found,) in simulated(path, x):
        assert np.abs(found - expected).max() <= 1e-2 * np.abs(expected).max()


def test_squares_in_range_are_left_alone(tmp_path: Path) -> None:
    nodes, constants = _NORMALIZED["layers"]
    onnxtfl.onnx_to_tflite(model_of(nodes, (2, 3, 8), **constants), tmp_path / "m.tflite", target="gpu", check=False)
    assert "REDUCE_MAX" not in [op.op for op in place(tmp_path / "m.tflite", "gpu").ops]


def test_masks_stay_in_the_range_of_float16(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["m"], ["f"], to=1),
        helper.make_node("Sub", ["one", "f"], ["i"]),
        helper.make_node("Mul", ["i", "low"], ["a"]),
        helper.make_node("Add", ["x", "a"], ["s"]),
        helper.make_node("Softmax", ["s"], ["y"]),
    ]
    model = model_of(nodes, (2, 3, 4), one=np.float32(1), low=np.finfo(np.float32).min)
    model.graph.input.append(helper.make_tensor_value_info("m", TensorProto.INT64, (2, 1, 4)))
    path = tmp_path / "m.tflite"
    onnxtfl.onnx_to_tflite(model, path, target="gpu", check=False)
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    m = np.asarray([[[1, 1, 0, 1]], [[0, 0, 0, 0]]])
    expected = onnx.reference.ReferenceEvaluator(model).run(None, {"x": x, "m": m})[0]
    for (found,) in simulated(path, x, m.astype(np.int32)):
        np.testing.assert_allclose(found, expected, atol=2e-3)


@pytest.mark.parametrize(("shape", "axes"), [((1, 2, 80, 60), [2, 3]), ((2, 8000), [1]), ((2, 4099), [1])])
@pytest.mark.parametrize("op", ["ReduceMean", "ReduceSum"])
def test_long_sums_stay_in_the_range_of_float16(
    op: str, shape: tuple[int, ...], axes: list[int], tmp_path: Path
) -> None:
    model, path = model_of([helper.make_node(op, ["x", "a"], ["y"])], shape, a=axes), tmp_path / "m.tflite"
    onnxtfl.onnx_to_tflite(model, path, target="gpu", check=False)
    assert not place(path, "gpu").elsewhere
    x = np.full(shape, 20 if op == "ReduceMean" else 2, np.float32)
    expected = onnx.reference.ReferenceEvaluator(model).run(None, {"x": x})[0]
    for (found,) in simulated(path, x):
        np.testing.assert_allclose(found, expected, rtol=1e-2)


def normalization(path: Path) -> Path:
    """A layer normalization whose mean and deviation are outputs."""
    node = helper.make_node("LayerNormalization", ["x", "w"], ["y", "mean", "deviation"])
    model = model_of([node], (3, 4), w=np.ones(4, np.float32))
    model.graph.output.extend(helper.make_tensor_value_info(name, 1, None) for name in ("mean", "deviation"))
    onnxtfl.onnx_to_tflite(model, path, target="gpu", check=False)
    return path


def test_statistics_of_a_normalization_are_computed_apart(tmp_path: Path) -> None:
    placed = place(normalization(tmp_path / "m.tflite"), "gpu")
    assert not placed.elsewhere
    assert {"RSQRT"}.isdisjoint(op.op for op in placed.ops)


@pytest.mark.usefixtures("device")
def test_statistics_of_a_normalization_are_right_on_the_gpu(tmp_path: Path) -> None:
    path = normalization(tmp_path / "m.tflite")
    x = np.random.default_rng(0).uniform(-1, 1, (3, 4)).astype(np.float32)
    with GPU.worker() as gpu, LITERT.worker() as cpu:
        for found, expected in zip(gpu.run(path, [x]), cpu.run(path, [x]), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_placement_names_a_pool_of_padding(tmp_path: Path) -> None:
    nodes, _, constants, _ = _CASES["mean of padding"]  # rows of fewer features are padded
    onnxtfl.onnx_to_tflite(model_of(nodes, (1, 132, 3, 3), **constants), tmp_path / "m.tflite")
    placed = place(tmp_path / "m.tflite", "gpu")
    (found,) = placed.faulty
    assert (found.op, found.fault) == ("AVERAGE_POOL_2D", "computes wrong values")
    assert "input not of PAD" in found.reason and not placed.elsewhere


def test_the_default_target_reads_a_vector_of_indices(tmp_path: Path) -> None:
    nodes, shape, constants, _ = _CASES["lookup"]
    onnxtfl.onnx_to_tflite(model_of(nodes, shape, **constants), tmp_path / "m.tflite")
    assert not place(tmp_path / "m.tflite", "gpu").elsewhere


def computed(node: onnx.NodeProto, given: Sequence[int], shape: Sequence[int]) -> onnx.ModelProto:
    """`node` on x, of shape [3, 2, 2], and a computed vector, with a declared shape of the result."""
    x, y = (helper.make_tensor_value_info(name, 1, sizes) for name, sizes in (("x", (3, 2, 2)), ("y", shape)))
    vector = helper.make_tensor_value_info("v", TensorProto.INT64, [len(given)])
    graph = helper.make_graph([node], "g", [x, vector], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


_COMPUTED: dict[str, tuple[onnx.NodeProto, list[int], tuple[int, ...]]] = {
    "a shape": (helper.make_node("Reshape", ["x", "v"], ["y"]), [2, 6], (2, 6)),
    "a part of a shape": (helper.make_node("Reshape", ["x", "v"], ["y"]), [-1, 3], (4, 3)),
    "multiples": (helper.make_node("Tile", ["x", "v"], ["y"]), [1, 2, 3], (3, 4, 6)),
    "the only axis": (helper.make_node("ReduceSum", ["x", "v"], ["y"], keepdims=1), [-1], (3, 2, 1)),
    "one of two axes": (helper.make_node("ReduceMax", ["x", "v"], ["y"], keepdims=0), [1], (3, 2)),
    "the other of two axes": (helper.make_node("ReduceL1", ["x", "v"], ["y"], keepdims=0), [2], (3, 2)),
}


@pytest.mark.parametrize("name", _COMPUTED)
def test_declared_outputs_tell_sizes_that_are_computed(name: str, tmp_path: Path) -> None:
    node, given, shape = _COMPUTED[name]
    model, path = computed(node, given, shape), tmp_path / "m.tflite"
    report = onnxtfl.onnx_to_tflite(model, path, target="gpu", check=False).report
    assert any("sizes that the model declares: y" in line for line in report.assumptions)
    assert not place(path, "gpu").elsewhere
    x = np.random.default_rng(0).uniform(-1, 1, (3, 2, 2)).astype(np.float32)
    with LITERT.worker() as cpu:
        expected = onnx.reference.ReferenceEvaluator(model).run(None, {"x": x, "v": np.asarray(given)})[0]
        np.testing.assert_allclose(cpu.run(path, [x, np.asarray(given, np.int32)])[0], expected, rtol=1e-5)


def test_declared_outputs_tell_nothing_for_other_sizes_of_inputs(tmp_path: Path) -> None:
    model = computed(*_COMPUTED["a shape"])
    with pytest.raises(onnxtfl.UnsupportedError, match="shape constant"):
        onnxtfl.onnx_to_tflite(model, tmp_path / "m.tflite", target="gpu", check=False, input_shapes={"x": (3, 2, 4)})


def test_an_op_that_cannot_run_there_is_an_error_or_runs_on_the_cpu(tmp_path: Path) -> None:
    cast, back = (helper.make_node("Cast", [v], [w], to=to) for v, w, to in (("x", "i", 6), ("b", "y", 1)))
    model = model_of([cast, helper.make_node("BitwiseXor", ["i", "c"], ["b"]), back], (2, 3), c=np.int32([[3, 5, 9]]))
    with pytest.raises(onnxtfl.UnsupportedError, match="GPU accelerator"):
        onnxtfl.onnx_to_tflite(model, tmp_path / "m.tflite", target="gpu")
    onnxtfl.onnx_to_tflite(model, tmp_path / "m.tflite", target="gpu", fallback="cpu")
    assert [op.op for op in place(tmp_path / "m.tflite", "gpu").elsewhere] == ["BITWISE_XOR"]


@pytest.mark.usefixtures("device")
def test_quantized_sources_are_compared_in_float32(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("MatMul", ["d", "w"], ["y"]),
    ]
    weights = np.sin(np.arange(12, dtype=np.float32)).reshape(4, 3)
    model = model_of(nodes, (2, 4), s=np.float32(0.25), z=np.uint8(128), w=weights)
    checked = onnxtfl.onnx_to_tflite(model, tmp_path / "m.tflite", target="gpu").check
    assert checked is not None
    assert checked.ok
    assert any("the source in float32" in note for note in checked.notes)


def test_inputs_of_five_axes_are_refused(tmp_path: Path) -> None:
    model = model_of([helper.make_node("Neg", ["x"], ["y"])], (1, 2, 2, 2, 3))
    with pytest.raises(onnxtfl.UnsupportedError, match="more than 4 axes, and the input 'x' has 5"):
        onnxtfl.onnx_to_tflite(model, tmp_path / "m.tflite", target="gpu")


def test_empty_tensors_are_refused(tmp_path: Path) -> None:
    model = model_of([helper.make_node("Neg", ["x"], ["y"])], (0, 3))
    with pytest.raises(onnxtfl.UnsupportedError, match="empty input, 'x'"):
        onnxtfl.onnx_to_tflite(model, tmp_path / "m.tflite", target="gpu")


def test_constants_that_float32_does_not_hold_are_refused() -> None:
    nodes, large = [helper.make_node("Add", ["x", "c"], ["y"])], np.asarray([[1, (1 << 24) + 1]], np.int32)
    with pytest.raises(onnxtfl.UnsupportedError, match="integer constants up to 16777216, not 16777217"):
        onnxtfl.onnx_to_tflite(model_of(nodes, (1, 2), TensorProto.INT32, c=large), target="gpu")


def test_without_a_driver_the_check_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES"):
        monkeypatch.setenv(name, str(tmp_path / "none.json"))
    report = onnxtfl.check(saved(onnx_scale(), tmp_path / "m.onnx"), saved(tflite_scale(), tmp_path / "m.tflite"),
        runtime="gpu")  # fmt: skip
    assert report.status == "not checked"
    assert "no Vulkan device" in str(report)
