"""Ops that LiteRT's GPU accelerator computes wrong without an error: the table, and the reports that name them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnxtfl.schemas import sections
from tools.probe.faults import faults, narrow_cases
from tools.probe.measure import Finding, Measurer
from tools.probe.runtime import ONLY, Runtime
from tools.probe.unusual import unusual_cases_of, unusual_rows

import onnxtfl
from onnxtfl.placement import Placement, known_faults, place
from onnxtfl.runtimes import GPU, LITERT
from onnxtfl.targets import table
from onnxtfl.targets.forms import read_form
from onnxtfl.targets.properties import PROPERTIES
from tests.unit.test_gpu import device, model_of  # noqa: F401
from tests.unit.tiny_models import saved, tflite_model

FILE = "targets/gpu.toml"
ROWS = [(op, row) for op in table.op_names() for row in table.narrowed("gpu", op).faults]
X = np.linspace(-1, 1, 12, dtype=np.float32)


def test_each_row_is_a_form_of_the_op() -> None:
    assert len(ROWS) > 100
    for op, row in ROWS:
        form = read_form({key: value for key, value in row.items() if key != "verdict"})
        known = table.entry(op)
        parameters = (*known.operands, *known.results)
        assert row["verdict"] in ("wrong", "abort")
        assert form.types.keys() <= {parameter.variable for parameter in parameters}, op
        assert form.constant | form.required <= {parameter.name for parameter in parameters}, op
        assert set(row).intersection(PROPERTIES) <= set(form.options), op


_MODELS: dict[str, tuple[list[onnx.NodeProto], tuple[int, ...], dict[str, Any]]] = {
    "channels of groups": ([helper.make_node("Conv", ["x", "c"], ["y"], group=2)], (1, 4, 4, 4),
        {"c": np.linspace(-1, 1, 144, dtype=np.float32).reshape(18, 2, 2, 2)}),
    "a batch of constants": ([helper.make_node("Mul", ["x", "c"], ["y"])], (3, 4), {"c": X.reshape(3, 4)}),
    "blocks of a batch": ([helper.make_node("SpaceToDepth", ["x"], ["y"], blocksize=2)], (2, 2, 4, 4), {}),
    "a mask": ([helper.make_node("Add", ["x", "c"], ["z"]), helper.make_node("Softmax", ["z"], ["y"])], (1, 2, 3, 6),
        {"c": np.float32([[-np.inf] * 4 + [0, 1]])}),
    "padding below 0": ([helper.make_node("Sub", ["x", "c"], ["z"]), helper.make_node("Pad", ["z", "p"], ["t"]),
        helper.make_node("MaxPool", ["t"], ["y"], kernel_shape=[3, 3])], (1, 132, 3, 3),  # many features
        {"c": np.float32([[[[2]]]]), "p": [0, 0, 1, 1, 0, 0, 1, 1]}),
    "parts of a split": ([helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_node("Split", ["z"], ["a", "b"],
        axis=1, num_outputs=2), helper.make_node("Sigmoid", ["a"], ["s"]), helper.make_node("Mul", ["b", "s"], ["y"])],
        (3, 8), {"w": np.sin(np.arange(128, dtype=np.float32)).reshape(8, 16)}),
    "a transposed convolution": ([helper.make_node("ConvTranspose", ["x", "c"], ["y"], auto_pad="SAME_UPPER",
        strides=[2, 2])], (1, 2, 3, 3), {"c": np.linspace(-1, 1, 36, dtype=np.float32).reshape(2, 2, 3, 3)}),
}  # fmt: skip
_WRONG = {
    "parts of a split": "SPLIT",
    "a transposed convolution": "TRANSPOSE_CONV",
    "channels of groups": "CONV_2D",
    "a batch of constants": "MUL",
    "blocks of a batch": "SPACE_TO_DEPTH",
    "a mask": "SOFTMAX",
    "padding below 0": "MAX_POOL_2D",
}
_RIGHT: dict[str, tuple[list[onnx.NodeProto], tuple[int, ...], dict[str, Any]]] = {
    "vectors of constants": ([helper.make_node("Mul", ["x", "c"], ["z"]), helper.make_node("Add", ["z", "d"], ["y"])],
        (2, 3, 4), {"c": X[:4], "d": X[4:8]}),
    "padding of nothing below 0": ([helper.make_node("Relu", ["x"], ["z"]), helper.make_node("Pad", ["z", "p"], ["t"]),
        helper.make_node("MaxPool", ["t"], ["y"], kernel_shape=[3, 3])], (1, 4, 3, 3), {"p": [0, 0, 1, 1, 0, 0, 1, 1]}),
    "a causal mask": ([helper.make_node("Add", ["x", "c"], ["z"]), helper.make_node("Softmax", ["z"], ["y"])],
        (1, 1, 6, 6), {"c": np.triu(np.full((6, 6), -np.inf, np.float32), 1)}),
    "padding by a number": ([helper.make_node("Pad", ["x", "p", "c"], ["y"])], (1, 2, 3, 3),
        {"p": [0, 0, 1, 1, 0, 0, 1, 1], "c": np.float32(-2)}),
    "a transposed convolution of even sizes": ([helper.make_node("ConvTranspose", ["x", "c"], ["y"],
        auto_pad="SAME_UPPER", strides=[2, 2])], (1, 1, 4, 4), {"c": X[:9].reshape(1, 1, 3, 3)}),
    "small slopes": ([helper.make_node("LeakyRelu", ["x"], ["y"], alpha=0.01)], (2, 3), {}),
}  # fmt: skip


def written(model: tuple[list[onnx.NodeProto], tuple[int, ...], dict[str, Any]], path: Path) -> onnxtfl.Conversion:
    """A conversion for the default target."""
    nodes, shape, constants = model
    return onnxtfl.onnx_to_tflite(model_of(nodes, shape, **constants), path, check=False)


@pytest.mark.parametrize("name", _MODELS)
def test_ops_that_are_computed_wrong_are_named(name: str, tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    (said,) = written(_MODELS[name], path).report.faults
    (found,) = place(path, "gpu").faulty
    assert (found.op, found.where, found.fault) == (_WRONG[name], "LiteRT's GPU accelerator", "computes wrong values")
    assert found.op in said and "computes wrong values" in said and "`target=gpu` writes another form" in said
    assert written_for_gpu(name, tmp_path).faulty == ()


def written_for_gpu(name: str, folder: Path) -> Placement:
    nodes, shape, constants = _MODELS[name]
    done = onnxtfl.onnx_to_tflite(model_of(nodes, shape, **constants), folder / "g.tflite", target="gpu", check=False)
    assert done.report.faults == ()
    return place(folder / "g.tflite", "gpu")


_BROADCAST = (((3, 1, 3, 4), (1, 2, 4, 2)), ((1, 3, 3, 4), (1, 1, 4, 2)), ((3, 3, 4), (1, 4, 2)))


@pytest.mark.parametrize(("left", "right"), _BROADCAST)
def test_what_the_accelerator_takes_does_not_fall_back_to_the_cpu(
    left: tuple[int, ...], right: tuple[int, ...], tmp_path: Path
) -> None:
    """It would compute a product of matrices that broadcasts, though wrongly; a batch of one matrix does as well."""
    node = helper.make_node("MatMul", ["x", "v"], ["y"])
    model = model_of([node], left)
    model.graph.input.append(helper.make_tensor_value_info("v", TensorProto.FLOAT, right))
    onnxtfl.onnx_to_tflite(model, tmp_path / "m.tflite", check=False)
    assert [op.op for op in place(tmp_path / "m.tflite", "gpu").faulty] == ["BATCH_MATMUL"]
    onnxtfl.onnx_to_tflite(model, tmp_path / "m.tflite", target="gpu", fallback="cpu", check=False)
    assert not place(tmp_path / "m.tflite", "gpu").faulty


@pytest.mark.parametrize("name", _RIGHT)
def test_ops_that_are_computed_correctly_are_not_named(name: str, tmp_path: Path) -> None:
    assert written(_RIGHT[name], tmp_path / "m.tflite").report.faults == ()
    placed = place(tmp_path / "m.tflite", "gpu")
    assert not placed.faulty and not placed.elsewhere


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("name", [*_MODELS, *_RIGHT])
def test_the_accelerator_computes_what_the_table_says(name: str, tmp_path: Path) -> None:
    model = (_MODELS | _RIGHT)[name]
    path = written(model, tmp_path / "m.tflite").path
    x = np.random.default_rng(0).uniform(-1, 1, model[1]).astype(np.float32)
    with GPU.worker() as gpu, LITERT.worker() as cpu:
        found, expected = gpu.run(path, [x])[0], cpu.run(path, [x])[0]
    assert np.allclose(found, expected, rtol=1e-3, atol=1e-3) == (name in _RIGHT)


@pytest.mark.parametrize(("value", "fault"), [(-2.0, ""), (-np.inf, "computes wrong values")])
def test_padding_by_minus_infinity_is_named(value: float, fault: str, tmp_path: Path) -> None:
    padding = np.array([[0, 0], [0, 0], [1, 1], [1, 1]], np.int32)
    operands = [("x", (1, 1, 2, 2), None), ("p", (4, 2), padding), ("c", (1,), np.array([value], np.float32))]
    path = saved(tflite_model("PADV2", operands, ("y", (1, 1, 4, 4))), tmp_path / "m.tflite")
    assert [op.fault for op in place(path, "gpu").ops] == [fault]


def test_ops_that_end_the_process_are_named(tmp_path: Path) -> None:
    """Sums of int8 are computed in int16 on the CPU; products with a constant of int16 end the process."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.INT8, [2, 3]) for name in "xy")
    node = helper.make_node("BitShift", ["u", "c"], ["v"], direction="LEFT")
    nodes = [helper.make_node("Cast", ["x"], ["u"], to=TensorProto.UINT8), node]
    nodes += [helper.make_node("Cast", ["v"], ["y"], to=TensorProto.INT8)]
    two = helper.make_tensor("c", TensorProto.UINT8, [1], [2])
    graph = helper.make_graph(nodes, "g", [x], [y], [two])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnxtfl.onnx_to_tflite(model, tmp_path / "m.tflite", check=False)
    placed = place(tmp_path / "m.tflite", "gpu")
    assert "ends the process" in {op.fault for op in placed.ops}


def test_the_check_of_a_file_names_them(tmp_path: Path) -> None:
    nodes, shape, constants = _MODELS["channels of groups"]
    source = model_of(nodes, shape, **constants).SerializeToString()
    path = written(_MODELS["channels of groups"], tmp_path / "m.tflite").path
    assert path is not None
    (said,) = known_faults(path)
    assert said in onnxtfl.check(source, path).notes


def test_models_with_dynamic_sizes_have_no_warning(tmp_path: Path) -> None:
    nodes, _, constants = _MODELS["a batch of constants"]
    model = model_of(nodes, (3, 4), **constants)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    assert onnxtfl.onnx_to_tflite(model, tmp_path / "m.tflite", check=False).report.faults == ()


def test_special_elements_are_named_if_all_ops_are_listed(tmp_path: Path) -> None:
    written(([helper.make_node("Relu", ["x"], ["y"])], (2, 3), {}), tmp_path / "m.tflite")
    placed = place(tmp_path / "m.tflite", "gpu")
    assert placed.ops[0].unusual == ("nan in x",)
    assert "other values than NumPy of nan in x" in placed.rows(verbose=True)[-1].text
    assert not any("nan" in row.text for row in placed.rows())


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    found = Runtime(sys.executable, (ONLY,), "gpu_child.py")
    yield found
    found.close()


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("op", ["RELU", "MAXIMUM", "NOT_EQUAL", "FLOOR_MOD", "REDUCE_MAX", "CAST", "ABS"])
def test_the_table_says_which_elements_are_computed_wrong(op: str, runtime: Runtime) -> None:
    found = measured(unusual_cases_of(op), runtime)
    stated = sections.section(f"{op}.unusual", FILE).get("rows", ())
    expected = [f'{{ operands = "{row["operands"]}", kernels = "{row["kernels"]}" }}' for row in stated]
    assert unusual_rows(found, [f"gpu {ONLY}"]) == expected


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("op", ["RELU", "MAX_POOL_2D"])
def test_the_cases_of_narrow_integers_repeat_what_the_table_says(op: str, runtime: Runtime) -> None:
    stated = [row for known, row in ROWS if known == op and "int8" in row["T"].split()]
    assert stated
    text = faults(measured(narrow_cases(op), runtime))
    assert all(f'verdict = "{row["verdict"]}", T = "{row["T"]}"' in text for row in stated)


def measured(cases: Iterator[Any], runtime: Runtime) -> Sequence[Finding]:
    return Measurer({"gpu": runtime}).measure(cases)
