"""The TFLite writer: what it writes runs in both runtimes and gives the right numbers."""

from __future__ import annotations

import io
import time
import tracemalloc
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from onnxtfl.errors import InvalidModelError
from onnxtfl.formats.tflite.reader import read as read_model
from onnxtfl.formats.tflite.writer import write
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array, ArrayData, TensorData
from onnxtfl.ir.graph import Graph, State, Value, constant
from onnxtfl.ir.model import Model
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.types import DType, SequenceType, TensorType, tensor
from onnxtfl.runtimes import LITERT, TFLITE_RUNTIME, RunOptions, Runtime
from tests.harness.named import run_named

NO_FUSED = {"fused_activation_function": "NONE"}
X = np.arange(4, dtype=np.float32).reshape(1, 4)


@pytest.fixture(params=[LITERT, TFLITE_RUNTIME], ids=lambda runtime: runtime.name)
def runtime(request: pytest.FixtureRequest) -> Runtime:
    if not request.param.available():
        pytest.skip(f"{request.param.distribution} is not installed (ONNXTFL_TFLITE_RUNTIME_PYTHON)")
    return request.param


def read(data: bytes) -> Graph:
    return read_model(data).main


def written(graph: Graph, **options: Any) -> bytes:
    out = io.BytesIO()
    write(Model(graph), out, **options)
    return out.getvalue()


def run(runtime: Runtime, graph: Graph, path: Path, inputs: Sequence[Any], **options: Any) -> dict[str, Any]:
    (path / "m.tflite").write_bytes(written(graph, **options))
    return run_named(runtime, path / "m.tflite", list(inputs), RunOptions(time_limit=60))


def op(builder: Builder, name: str, operands: Sequence[Any], *types: Any, version: int = 1, **attributes: Any) -> Any:
    results = builder.foreign("tfl", name, operands, types, version, **attributes)
    return results[0] if len(types) == 1 else results


def plus(builder: Builder, value: Value, number: float, name: str | None = None) -> Value:
    result = op(builder, "ADD", [value, constant(np.float32(number))], value.type, **NO_FUSED)
    result.name = name
    return result


def vector_graph() -> tuple[Graph, Value, Builder]:
    graph = Graph()
    return graph, graph.add_input(tensor("float32", 1, 4), "x"), Builder(graph)


def conv_graph(batch: int | str = "n") -> Graph:
    graph, random = Graph(), np.random.default_rng(0)
    x = graph.add_input(tensor("float32", batch, 8, 8, 3), "x.0")
    build = Builder(graph)
    weight = constant(random.random((4, 1, 1, 3), np.float32), name="weight")
    bias = constant(random.random(4, np.float32) - 2)
    convolved = op(
        build,
        "CONV_2D",
        [x, weight, bias],
        tensor("float32", batch, 4, 4, 4),
        padding="VALID",
        stride_w=2,
        stride_h=2,
        fused_activation_function="RELU",
    )
    graph.outputs = [plus(build, convolved, 2, "out/0")]
    return graph


def conv_expected(x: Array) -> Array:
    random = np.random.default_rng(0)
    weight, bias = random.random((4, 3), np.float32), random.random(4, np.float32) - 2
    return np.maximum(x[:, ::2, ::2] @ weight.T + bias, 0) + 2


@pytest.mark.parametrize("limit", [0, 1 << 30], ids=["outside", "inside"])
def test_convolution_with_open_batch_and_names_of_the_source(runtime: Runtime, tmp_path: Path, limit: int) -> None:
    x = np.random.default_rng(1).random((3, 8, 8, 3), np.float32)
    results = run(runtime, conv_graph(), tmp_path, [x], limit=limit)
    assert list(results) == ["out/0"]
    np.testing.assert_allclose(results["out/0"], conv_expected(x), rtol=1e-5)


def test_weights_are_aligned_and_the_same_graph_gives_the_same_bytes() -> None:
    content = written(conv_graph())
    assert content == written(conv_graph())
    weight = np.random.default_rng(0).random((4, 1, 1, 3), np.float32)
    assert content[4:8] == b"TFL3"
    assert content.index(weight.tobytes()) % 16 == 0


NUMBERS = [d for d in DType if d.bits >= 8 and d not in (DType.UINT16, DType.BFLOAT16) and "float8" not in d.value]


@pytest.mark.parametrize("dtype", NUMBERS, ids=lambda d: d.value)
def test_constants_of_each_type(runtime: Runtime, tmp_path: Path, dtype: DType) -> None:
    graph = Graph()
    numbers = np.array([[0, 1, 0], [1, 1, 0]]).astype(dtype.numpy)
    graph.outputs = [constant(numbers, name="c")]
    result = run(runtime, graph, tmp_path, [])["c"]
    assert result.dtype == dtype.numpy
    np.testing.assert_array_equal(result, numbers)


@pytest.mark.parametrize("dtype", ["int2", "int4", "uint4", "bfloat16", "float8e4m3fn", "float8e5m2", "uint16"])
def test_types_that_runtimes_do_not_hand_out_read_back(dtype: str) -> None:
    graph = Graph()
    numbers = np.array([[0, 1, 1], [1, 0, 1]]).astype(DType(dtype).numpy)
    graph.outputs = [constant(numbers, name="c")]
    (output,) = read(written(graph)).outputs
    assert output.dtype is DType(dtype)
    np.testing.assert_array_equal(output.numpy(), numbers)


def test_string_constants(runtime: Runtime, tmp_path: Path) -> None:
    graph = Graph()
    strings = np.array([["a", ""], ["Größe", "dd"]], object)
    graph.outputs = [constant(strings, name="s")]
    result = run(runtime, graph, tmp_path, [])["s"]
    assert [s.decode() if isinstance(s, bytes) else s for s in result.reshape(-1)] == strings.reshape(-1).tolist()


def outputs_input(graph: Graph, x: Value, build: Builder) -> list[Value]:
    return [plus(build, x, 1, "y"), x]


def outputs_constant(graph: Graph, x: Value, build: Builder) -> list[Value]:
    return [plus(build, x, 1, "y"), constant(X + 7, name="c")]


def outputs_inner(graph: Graph, x: Value, build: Builder) -> list[Value]:
    inner = plus(build, x, 1, "y")
    return [inner, plus(build, inner, 2, "z")]


def outputs_twice(graph: Graph, x: Value, build: Builder) -> list[Value]:
    inner = plus(build, x, 1, "y")
    graph.output_names = ["y", "again"]
    return [inner, inner]


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (outputs_input, {"y": X + 1, "x": X}),
        (outputs_constant, {"y": X + 1, "c": X + 7}),
        (outputs_inner, {"y": X + 1, "z": X + 3}),
        (outputs_twice, {"y": X + 1, "again": X + 1}),
    ],
)
def test_unusual_outputs(
    runtime: Runtime,
    tmp_path: Path,
    make: Callable[[Graph, Value, Builder], list[Value]],
    expected: dict[str, Array],
) -> None:
    graph, x, build = vector_graph()
    graph.outputs = make(graph, x, build)
    results = run(runtime, graph, tmp_path, [X])
    for result, array in zip(results.values(), expected.values(), strict=True):
        np.testing.assert_array_equal(result, array)
    assert [str(name) for name in read(written(graph)).output_names] == list(expected)


def test_unused_input_stays(runtime: Runtime, tmp_path: Path) -> None:
    graph, x, build = vector_graph()
    graph.add_input(tensor("int32", 2), "unused")
    graph.outputs = [plus(build, x, 1, "y")]
    np.testing.assert_array_equal(run(runtime, graph, tmp_path, [X, np.zeros(2, np.int32)])["y"], X + 1)


def branch(number: float) -> Graph:
    graph, x, build = vector_graph()
    graph.outputs = [plus(build, x, number)]
    return graph


def test_if_and_its_branches(runtime: Runtime, tmp_path: Path) -> None:
    graph = Graph()
    condition, x = graph.add_input(tensor("bool", 1), "condition"), graph.add_input(tensor("float32", 1, 4), "x")
    result = op(
        Builder(graph), "IF", [condition, x], x.type, then_subgraph_index=branch(1), else_subgraph_index=branch(2)
    )
    result.name = "y"
    graph.outputs = [result]
    np.testing.assert_array_equal(run(runtime, graph, tmp_path, [np.array([True]), X])["y"], X + 1)
    np.testing.assert_array_equal(run(runtime, graph, tmp_path, [np.array([False]), X])["y"], X + 2)


def test_while_loop(runtime: Runtime, tmp_path: Path) -> None:
    counter = tensor("int32", 1)

    def part(make: Callable[[Builder, Value, Value], list[Value]]) -> Graph:
        graph = Graph()
        values = graph.add_input(counter, "i"), graph.add_input(tensor("float32", 1, 4), "v")
        graph.outputs = make(Builder(graph), *values)
        return graph

    less = part(lambda b, i, v: [op(b, "LESS", [i, constant(np.int32([3]))], tensor("bool", 1))])
    step = part(lambda b, i, v: [op(b, "ADD", [i, constant(np.int32([1]))], counter, **NO_FUSED), plus(b, v, 1)])
    graph, x, build = vector_graph()
    start = constant(np.int32([0]))
    _, y = op(build, "WHILE", [start, x], counter, x.type, cond_subgraph_index=less, body_subgraph_index=step)
    y.name = "y"
    graph.outputs = [y]
    np.testing.assert_array_equal(run(runtime, graph, tmp_path, [X])["y"], X + 3)


def test_states_are_variables_and_their_new_values_no_outputs(runtime: Runtime, tmp_path: Path) -> None:
    graph, x, build = vector_graph()
    state = State(Value(tensor("float32", 1, 2), "h"), Value(None))
    weights = [constant(np.full(shape, 0.5, np.float32)) for shape in ((2, 4), (2, 2), (2,))]
    types = tensor("float32", 1, 2), tensor("float32", 1, 2)
    y, state.output = op(build, "RNN", [x, *weights, state.input], *types, fused_activation_function="NONE")
    y.name = "y"
    graph.outputs, graph.states = [y], [state]
    assert run(runtime, graph, tmp_path, [X])["y"].tolist() == [[3.5, 3.5]]
    again = read(written(graph))
    assert [s.input.name for s in again.states] == ["h"]
    assert again.states[0].input is again.states[0].output


def test_equal_constants_share_a_buffer_and_unnamed_ones_a_tensor() -> None:
    def size(second: float) -> int:
        graph, x, build = vector_graph()
        first = constant(np.full((1, 100, 4), 1, np.float32), name="a")
        other = constant(np.full((1, 100, 4), second, np.float32), name="b")
        both = [op(build, "ADD", [x, v], tensor("float32", 1, 100, 4), **NO_FUSED) for v in (first, other)]
        graph.outputs = both
        return len(written(graph))

    assert size(2) - size(1) >= 1600
    graph, x, build = vector_graph()
    graph.outputs = [plus(build, plus(build, x, 1), 1)]
    first, second = (node.operands[1] for node in read(written(graph)).nodes)
    assert first is second or (first and second and first.name == second.name)


def test_names_are_unique_and_inputs_and_outputs_come_first() -> None:
    graph, x, build = vector_graph()
    inner = plus(build, plus(build, x, 1, "y"), 1, "x")
    graph.outputs = [plus(build, inner, 1, "y"), plus(build, inner, 1)]
    again = read(written(graph))
    assert [v.name for v in [*again.inputs, *again.outputs]] == ["x", "y", "output"]
    names = [result.name for node in again.nodes for result in node.results]
    assert len(set(names)) == len(names)


def test_quantization_and_open_dims_read_back() -> None:
    graph = Graph()
    scales = tuple(float(s) for s in np.array([0.1, 0.2], np.float32))
    per_axis = TensorType(DType.FLOAT32, (3, 2), Quantization("int8", scales, (0, 0), 1))
    per_tensor = TensorType(
        DType.FLOAT32, tensor("float32", "n", 4, "h").shape, Quantization("uint8", scales[:1], (7,))
    )
    x = graph.add_input(per_tensor, "x")
    weight = constant(np.zeros((3, 2), np.int8), name="w")
    weight.type = per_axis
    graph.outputs = [x, weight]
    again = read(written(graph))
    assert again.inputs[0].tensor_type.quantization == per_tensor.quantization
    assert [str(d) for d in again.inputs[0].shape] == ["x_d0", "4", "x_d2"]
    assert again.outputs[1].type == per_axis


def test_unknown_rank_and_rank_zero_are_told_apart() -> None:
    graph = Graph()
    graph.outputs = [graph.add_input(tensor("int32"), "scalar"), graph.add_input(TensorType(DType.INT32, None), "any")]
    assert [v.tensor_type.shape for v in read(written(graph)).outputs] == [(), None]


class Endless(TensorData):
    """Zeros that exist a megabyte at a time."""

    def __init__(self, megabytes: int) -> None:
        self.dtype, self.shape = DType.UINT8, (megabytes, 1 << 20)

    @property
    def key(self) -> Hashable:
        return self.shape

    def slab(self, axis: int, start: int, stop: int) -> Array:
        raise AssertionError("a weight was read as a whole")

    def chunks(self) -> Iterator[Array]:
        buffer = np.zeros(1 << 20, np.uint8)
        return (buffer for _ in range(self.shape[0]))


class Nowhere(io.RawIOBase):
    def __init__(self) -> None:
        self.size = 0

    def write(self, content: Any) -> int:
        self.size += (count := memoryview(content).nbytes)
        return count


@pytest.mark.parametrize("megabytes", [100, 3000])
def test_memory_does_not_depend_on_the_size_of_weights(megabytes: int) -> None:
    graph = Graph()
    graph.outputs = [constant(Endless(megabytes), name="w")]
    out = Nowhere()
    tracemalloc.start()
    try:
        write(Model(graph), out)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert out.size > megabytes << 20
    assert peak < 4 << 20


def test_ten_thousand_nodes_take_seconds() -> None:
    graph, value, build = vector_graph()
    for number in range(10_000):
        weight = constant(np.full((1, 4), number, np.float32), name=f"w{number}")
        value = op(build, "ADD", [value, weight], value.type, fused_activation_function="RELU")
    graph.outputs = [value]
    start = time.process_time()
    written(graph)
    assert time.process_time() - start < 4


def test_names_are_unique_over_all_subgraphs() -> None:
    """litert-quantizer holds the ranges of tensors by their names."""
    graph, x, build = vector_graph()
    branches = []
    for name in ("RELU", "TANH"):
        branch, operand, inside = vector_graph()
        branch.outputs = [op(inside, "ADD", [op(inside, name, [operand], x.type), constant(X)], x.type, **NO_FUSED)]
        branches.append(branch)
    options = {"then_subgraph_index": branches[0], "else_subgraph_index": branches[1]}
    graph.outputs = [op(build, "IF", [constant(np.array([True])), x], x.type, **options)]
    interpreter = Interpreter(model_content=written(graph))
    interpreter.allocate_tensors()
    names = [t["name"] for k in range(3) for t in interpreter.get_tensor_details(k) if t["name"]]
    assert {"x", "output", "constant"} <= set(names) and len(names) == 11
    assert len(set(names)) == len(names)


def broken(name: str = "ADD", result: Any = None, operand: Any = None, **attributes: Any) -> Graph:
    graph, x, build = vector_graph()
    graph.outputs = [op(build, name, [x, operand], result or x.type, **attributes)]
    return graph


class Short(ArrayData):
    def chunks(self) -> Iterator[Array]:
        return iter([np.zeros(1, np.uint8)])


def mistyped() -> Value:
    value = constant(X)
    value.type = tensor("int32", 1, 4)
    return value


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (broken("NO_SUCH_OP"), "not a TFLite op"),
        (broken(axis=1), "unknown option 'axis'"),
        (broken("RELU", alpha=1.0), "unknown option 'alpha'"),
        (broken(fused_activation_function="GELU"), "cannot be 'GELU'"),
        (broken("DEPTH_TO_SPACE", block_size=1 << 31), "'block_size' cannot be 2147483648"),
        (broken("LEAKY_RELU", alpha=1e39), "'alpha' cannot be 1e\\+39"),
        (broken("SQUEEZE", squeeze_dims=(0, 1 << 31)), "'squeeze_dims' cannot be"),
        (broken(result=tensor("float8e8m0", 1)), "no element type float8e8m0"),
        (broken(result=tensor("float32", 1 << 31)), "32 bits"),
        (broken(result=SequenceType(tensor("float32", 1))), "TFLite has no equivalent of this type"),
        (broken(operand=mistyped()), "float32 elements for a tensor of int32"),
        (broken(operand=constant(Short(X))), "1 bytes were read of a constant of 16"),
    ],
)
def test_what_the_format_cannot_hold_is_an_error(graph: Graph, message: str) -> None:
    with pytest.raises(InvalidModelError, match=message):
        written(graph)
