"""The ONNX writer: read, written and read again, a model is the same; onnx.checker and ONNX Runtime take it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from onnxtfl.errors import OutputError, UnsupportedError
from onnxtfl.formats.onnx.reader import read as read_model
from onnxtfl.formats.onnx.writer import write
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import ArrayData
from onnxtfl.ir.dims import fresh_symbol, symbol
from onnxtfl.ir.graph import Graph, State, Value, constant
from onnxtfl.ir.model import Model
from onnxtfl.ir.types import DType, ResourceType, TensorType, tensor
from onnxtfl.passes.canonical.inline import inline_functions
from tests.fuzz.onnx_samples import CONTROL_FLOW, FUNCTIONS, TYPES, sparse, with_weights
from tests.models.corpus import CORPUS

FLOAT = tensor("float32", 2)


def read(source: Any) -> Model:
    whole = read_model(source)
    inline_functions(whole)
    return whole


def written(model: Model | Graph, **options: Any) -> bytes:
    out = io.BytesIO()
    write(model if isinstance(model, Model) else Model(model), out, **options)
    return out.getvalue()


def run(model: bytes, **inputs: Any) -> dict[str, Any]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True))


@pytest.mark.parametrize("text", [FUNCTIONS, CONTROL_FLOW, TYPES])
def test_written_and_read_again(text: str) -> None:
    data = written(read(parser.parse_model(text)))
    onnx.checker.check_model(data, full_check=True)
    assert written(read(data)) == data


@pytest.mark.parametrize("model", [with_weights(), sparse()])
def test_tensors_written_and_read_again(model: onnx.ModelProto) -> None:
    data = written(read(model))
    assert written(read(data)) == data
    again = onnx.load_model_from_string(data)
    expected = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    for found in again.graph.initializer:
        if found.name in expected:
            assert found.data_type in (t.data_type for t in model.graph.initializer if t.name == found.name)
            same, array = expected[found.name], numpy_helper.to_array(found)
            assert array.tolist() == same.tolist() if array.dtype == object else array.tobytes() == same.tobytes()


def test_functions_give_the_same_numbers() -> None:
    actual = run(written(read(parser.parse_model(FUNCTIONS))), x=np.asarray([[1, -2, 3, -4]], np.float32))
    assert {k: v.tolist() for k, v in actual.items()} == {"y": [[-1, 1, -3, 2]], "same": [[1, -1, 3, -2]]}


@pytest.mark.parametrize("flag", [True, False])
def test_control_flow_gives_the_same_numbers(flag: bool) -> None:
    model = parser.parse_model(CONTROL_FLOW)
    inputs = {"x": np.asarray([1, 2], np.float32), "flag": np.asarray(flag), "trips": np.asarray(3)}
    expected, actual = run(model.SerializeToString(), **inputs), run(written(read(model)), **inputs)
    assert all(np.array_equal(actual[k], expected[k]) for k in expected)


@pytest.mark.skipif(not CORPUS.exists(), reason="no corpus (ONNXTFL_CORPUS)")
@pytest.mark.parametrize("name", ["if_script", "loop_script", "lstm_seqfirst", "bert_tiny_qdq", "dscnn_kws"])
def test_corpus(name: str) -> None:
    path = CORPUS / "onnx" / name / "model.onnx"
    data = written(read(path))
    onnx.checker.check_model(data)
    numbers = np.load(path.with_name("io.npz"))
    inputs = {k.removeprefix("in_"): numbers[k] for k in numbers if k.startswith("in_")}
    expected, actual = run(path.read_bytes(), **inputs), run(data, **inputs)
    assert list(actual) == list(expected)
    assert all(np.allclose(actual[k], expected[k], 1e-5, 1e-6) for k in expected)


def graph_of(*ops: str, version: int = 13) -> tuple[Graph, Builder, Value]:
    """x -> ops, one after the other."""
    graph = Graph()
    builder = Builder(graph)
    value = graph.add_input(FLOAT, "x")
    for op in ops:
        (value,) = builder.foreign("onnx", op, [value], [FLOAT], version)
    graph.outputs = [value]
    return graph, builder, value


def test_names_are_unique() -> None:
    graph, builder, value = graph_of("Abs", "Abs", "Abs")
    for node in graph.nodes:
        node.name = "n"
    value.name = "y"
    inner = [n.result for n in graph.nodes][:2]
    inner[0].name = inner[1].name = "y"
    graph.outputs.append(
        builder.foreign("onnx", "Add", [value, constant(np.ones(2, np.float32), name="x")], [FLOAT], 14)[0]
    )
    model = onnx.load_model_from_string(written(graph, opset=17))
    onnx.checker.check_model(model)
    assert model.graph.input[0].name == "x" and model.graph.output[0].name == "y"
    assert [n.name for n in model.graph.node] == ["n", "n_1", "n_2", "Add"]
    names = [n for node in model.graph.node for n in node.output] + [t.name for t in model.graph.initializer]
    assert len(set(names)) == len(names) == 5


def test_opsets_and_ir_version() -> None:
    graph, builder, value = graph_of("Relu")
    graph.outputs = builder.foreign("onnx", "Gelu", [value], [FLOAT], 1, "com.microsoft")
    for opset, ir in ((13, 7), (17, 8), (21, 10)):
        model = onnx.load_model_from_string(written(graph, opset=opset))
        assert {i.domain: i.version for i in model.opset_import} == {"": opset, "com.microsoft": 1}
        assert model.ir_version == ir and model.producer_name == "onnxtfl"
    old = onnx.load_model_from_string(written(graph_of("Relu")[0], opset=7))
    assert old.ir_version == 4


def test_dimensions() -> None:
    graph = Graph()
    unnamed, n = fresh_symbol(), symbol("n")
    x = graph.add_input(TensorType(DType.FLOAT32, (n, unnamed, 3, n * 2 + 1)), "x")
    y = graph.add_input(TensorType(DType.FLOAT32, (unnamed, fresh_symbol())), "y")
    z = graph.add_input(TensorType(DType.FLOAT32, None), "z")
    graph.outputs = [x, y, z]
    model = onnx.load_model_from_string(written(graph, opset=17))
    dims = [[d.dim_param or d.dim_value for d in i.type.tensor_type.shape.dim] for i in model.graph.input]
    assert dims[:2] == [["n", "unk_0", 3, "2*n + 1"], ["unk_0", "unk_1"]]
    assert not model.graph.input[2].type.tensor_type.HasField("shape")


def test_dimensions_get_their_names_back() -> None:
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch size", None])
    model = onnx.load_model_from_string(written(read(helper.make_model(helper.make_graph([], "g", [info], [info])))))
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch size"


def test_attributes_in_the_type_of_the_op() -> None:
    graph, builder, value = graph_of()
    a = builder.foreign("onnx", "LeakyRelu", [value], [FLOAT], 6, alpha=1)
    b = builder.foreign("onnx", "ReduceMax", a, [FLOAT], 13, axes=(), keepdims=True)
    c = builder.foreign("onnx", "Free", b, [FLOAT], 1, "far", f=(1, 2.5), s=["a"], t=np.ones(3, np.float32), n=None)
    graph.outputs = c
    first, second, third = onnx.load_model_from_string(written(graph, opset=13)).graph.node
    assert (
        helper.get_attribute_value(first.attribute[0]) == 1.0 and first.attribute[0].type == onnx.AttributeProto.FLOAT
    )
    assert {a.name: helper.get_attribute_value(a) for a in second.attribute} == {"axes": [], "keepdims": 1}
    kinds = {a.name: a.type for a in third.attribute}
    assert kinds == {"f": onnx.AttributeProto.FLOATS, "s": onnx.AttributeProto.STRINGS, "t": onnx.AttributeProto.TENSOR}


def test_absent_operands_and_unused_results() -> None:
    graph, builder, value = graph_of()
    low = constant(np.zeros((), np.float32))
    (clip,) = builder.foreign("onnx", "Clip", [value, low, None], [FLOAT], 13)
    (clip2,) = builder.foreign("onnx", "Clip", [clip, None, low], [FLOAT], 13)
    largest, where = builder.foreign("onnx", "TopK", [clip2, np.ones(1, np.int64)], [tensor("float32", 1)] * 2, 11)
    (pool, _) = builder.foreign("onnx", "MaxPool", [largest], [FLOAT, FLOAT], 12, kernel_shape=(1,))
    graph.outputs = [pool]
    nodes = onnx.load_model_from_string(written(graph, opset=13)).graph.node
    assert [len(n.input) for n in nodes] == [2, 3, 2, 1]
    assert nodes[1].input[1] == "" and all(nodes[2].output) and len(nodes[2].output) == 2
    assert len(nodes[3].output) == 1 and where.uses == {}


def test_equal_weights_are_stored_once() -> None:
    graph, builder, value = graph_of()
    for _ in range(3):
        (value,) = builder.foreign("onnx", "Add", [value, np.ones(2, np.float32)], [FLOAT], 14)
    graph.outputs = [value, constant(np.ones(2, np.float32), name="c")]
    model = onnx.load_model_from_string(written(graph, opset=14))
    assert [t.name for t in model.graph.initializer] == ["c"]
    assert run(written(graph, opset=14), x=np.zeros(2, np.float32))["c"].tolist() == [1, 1]


def test_subgraph_outputs_that_are_outer_values() -> None:
    """ONNX lets a subgraph give out only what it makes; so a copy is written."""
    text = """<ir_version: 8, opset_import: ["" : 16]>
    main (float[2] x, bool flag) => (float[2] y, float[2] z) <float[2] w = {3.0, 4.0}> {
        h = Neg (x)
        y, z = If (flag) <
            then_branch = then () => (float[2] a, float[2] b) { a = Abs (h) b = Neg (h) },
            else_branch = other () => (float[2] h, float[2] w) { }
        >
    }"""
    data = written(read(parser.parse_model(text)))
    onnx.checker.check_model(data)
    result = run(data, x=np.ones(2, np.float32), flag=np.asarray(False))
    assert result["y"].tolist() == [-1, -1] and result["z"].tolist() == [3, 4]


def weights_model(size: int = 5000) -> onnx.ModelProto:
    model = parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> main (float[{size}] x) => (float[{size}] y)'
        " { a = Add (x, v) b = Mul (a, w) y = Add (b, s) }"
    )
    arrays = {"v": np.arange(size, dtype=np.float32), "w": np.full(size, 2, np.float32), "s": np.ones(1, np.float32)}
    model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in arrays.items())
    return model


def test_external_data(tmp_path: Path) -> None:
    model = weights_model()
    with open(tmp_path / "m.onnx", "wb") as out:
        write(read(model), out, external=tmp_path / "m.onnx.data", limit=10_000)
    assert (tmp_path / "m.onnx.data").exists()
    assert (tmp_path / "m.onnx").stat().st_size < 2000
    onnx.checker.check_model(tmp_path / "m.onnx")
    x = np.ones(5000, np.float32)
    expected = run(model.SerializeToString(), x=x)["y"]
    assert np.array_equal(run(str(tmp_path / "m.onnx"), x=x)["y"], expected)
    again = written(read(tmp_path / "m.onnx"))
    assert np.array_equal(run(again, x=x)["y"], expected)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]


def test_external_data_only_where_needed(tmp_path: Path) -> None:
    out = io.BytesIO()
    write(read(weights_model()), out, external=tmp_path / "m.data")
    assert not (tmp_path / "m.data").exists()
    assert not list(tmp_path.iterdir())
    with pytest.raises(OutputError, match="an ONNX file can have"):
        write(read(weights_model()), io.BytesIO(), limit=10_000)
    with pytest.raises(OutputError, match="cannot be written"):
        write(read(weights_model()), io.BytesIO(), limit=10_000, external=tmp_path / "none" / "m.data")


class Zeros(ArrayData):
    """A weight that is too large to be held."""

    def __init__(self, count: int) -> None:
        super().__init__(np.zeros(1, np.float32))
        self.shape = (count,)

    def chunks(self) -> Any:
        block = np.zeros(1 << 22, np.uint8)
        for start in range(0, self.nbytes, len(block)):
            yield block[: self.nbytes - start]


class Counter(io.RawIOBase):
    """A file that only counts."""

    count = 0

    def write(self, data: Any) -> int:
        self.count += memoryview(data).nbytes
        return memoryview(data).nbytes


def test_past_two_gigabytes() -> None:
    graph, builder, value = graph_of()
    graph.outputs = builder.foreign("onnx", "Add", [value, constant(Zeros(600 << 20))], [FLOAT], 14)
    with pytest.raises(OutputError, match="an ONNX file can have"):
        write(Model(graph), io.BytesIO(), opset=17)
    out = Counter()
    write(Model(graph), out, opset=17, limit=1 << 40)  # type: ignore[arg-type]
    assert out.count > 600 << 22


def test_what_onnx_cannot_say() -> None:
    graph, builder, value = graph_of()
    graph.outputs = builder.foreign("tfl", "ADD", [value, value], [FLOAT])
    with pytest.raises(UnsupportedError, match="not an ONNX op"):
        written(graph, opset=17)
    graph, _, value = graph_of("Relu")
    value.type = ResourceType()
    with pytest.raises(UnsupportedError, match="ONNX has no equivalent of this type"):
        written(graph, opset=17)
    graph, _, value = graph_of("Relu")
    graph.states.append(State(graph.inputs[0], value))
    with pytest.raises(UnsupportedError, match="state"):
        written(graph, opset=17)


def test_same_graph_same_bytes() -> None:
    model = weights_model()
    assert written(read(model)) == written(read(model.SerializeToString()))
