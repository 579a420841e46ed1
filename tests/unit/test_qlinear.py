"""QLinear ops: what they are lifted to computes what ONNX Runtime does, to one step; and what is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import onnxtfl
from onnxtfl.ir.interpret import run
from onnxtfl.options import Options
from onnxtfl.pipeline import inspect
from tests.harness.litert import run_onnx
from tests.unit.tiny_models import Array, onnx_model

Operand = Any
MICROSOFT = "com.microsoft"


def integers(dtype: str, *shape: int, seed: int = 0) -> Array:
    """Stored integers over the whole range of `dtype`."""
    limits = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(limits.min, limits.max + 1, shape).astype(dtype)


def scale(*values: float) -> Array:
    """A scale, or one for each index of an axis."""
    return np.asarray(values[0] if len(values) == 1 else values, np.float32)


def zero(dtype: str, value: int, count: int = 0) -> Array:
    """A zero point, or one for each index of an axis."""
    return np.asarray([value] * count if count else value, dtype)


def model(
    op: str, operands: Sequence[Operand], constant_from: int, domain: str, attributes: Mapping[str, Any]
) -> tuple[bytes, dict[str, Array]]:
    """A model of one op and its inputs: arrays of more than one axis before `constant_from`; others are constants."""
    names = ["" if a is None else f"x{i}" for i, a in enumerate(operands)]
    fed = {f"x{i}": a for i, a in enumerate(operands) if a is not None and a.ndim > 1 and i < constant_from}
    constants = [numpy_helper.from_array(a, n) for n, a in zip(names, operands, strict=True) if n and n not in fed]
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in fed.items()
    ]
    kind = next(a for a in operands if a is not None and a.dtype.kind in "iu").dtype
    output = helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(kind), None)
    node = helper.make_node(op, names, ["y"], domain=domain)
    node.attribute.extend(helper.make_attribute(k, v) for k, v in attributes.items())
    graph = helper.make_graph([node], "g", inputs, [output], constants)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    return onnx.ModelProto.SerializeToString(helper.make_model(graph, opset_imports=imports, ir_version=8)), fed


def check(
    op: str, operands: Sequence[Operand], *, constant_from: int = 99, domain: str = MICROSOFT, **flags: Any
) -> None:
    """The lifted op and ONNX Runtime's agree to one step."""
    source, inputs = model(op, operands, constant_from, domain, flags)
    (wanted,) = run_onnx(source, inputs).values()
    (found,) = run(inspect(source, "lifted", Options(debug=True)), inputs)
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    assert np.abs(found.astype(int) - wanted.astype(int)).max() <= 1


TYPES = [("int8", -5), ("uint8", 120)]


@pytest.mark.parametrize(("dtype", "z"), TYPES)
@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_arithmetic(op: str, dtype: str, z: int) -> None:
    other = integers(dtype, 4, 1, 1, seed=1)
    first = [integers(dtype, 2, 4, 3, 3), scale(0.1), zero(dtype, z)]
    check(op, [*first, other, scale(0.03), zero(dtype, z + 3), scale(0.4), zero(dtype, z - 4)], constant_from=3)


@pytest.mark.parametrize(("dtype", "z"), TYPES)
def test_unary_ops(dtype: str, z: int) -> None:
    x, lowest = [integers(dtype, 2, 4, 3), scale(0.05), zero(dtype, z)], zero(dtype, int(np.iinfo(dtype).min))
    check("QLinearSigmoid", [*x, scale(1 / 256), lowest])
    check("QLinearLeakyRelu", [*x, scale(0.04), zero(dtype, z - 9)], alpha=0.2)
    check("QLinearSoftmax", [*x, scale(1 / 256), lowest], axis=-1, opset=13)
    check("QLinearSoftmax", [*x, scale(1 / 300), lowest], axis=1, opset=13)
    check("QLinearSoftmax", [*x, scale(1 / 900), lowest], axis=1, opset=12)


@pytest.mark.parametrize(("dtype", "z"), TYPES)
@pytest.mark.parametrize("step", [1 / 256, 1 / 255, 0.0039])
def test_softmax_in_steps_whose_inverse_onnx_runtime_rounds_down(dtype: str, z: int, step: float) -> None:
    """It is 254 for 1 / 255 in float32: the real values would be half a step above on average."""
    x = [integers(dtype, 512, 2), scale(0.01), zero(dtype, z), scale(step), zero(dtype, int(np.iinfo(dtype).min))]
    source, inputs = model("QLinearSoftmax", x, 99, MICROSOFT, {"axis": -1, "opset": 13})
    (wanted,) = run_onnx(source, inputs).values()
    (found,) = run(inspect(source, "lifted", Options(debug=True)), inputs)
    assert abs(np.mean(found.astype(int) - wanted.astype(int))) < 0.1


@pytest.mark.parametrize(("dtype", "z"), TYPES)
@pytest.mark.parametrize("padded", [0, 1])
def test_pools(dtype: str, z: int, padded: int) -> None:
    x = [integers(dtype, 2, 4, 5, 5), scale(0.1), zero(dtype, z), scale(0.05), zero(dtype, z - 3)]
    window = {"kernel_shape": [2, 2], "pads": [1, 0, 0, 1], "strides": [1, 2]}
    check("QLinearAveragePool", x, count_include_pad=padded, **window)
    check("QLinearGlobalAveragePool", x, channels_last=0)


@pytest.mark.parametrize(("dtype", "z"), TYPES)
def test_joined_and_chosen(dtype: str, z: int) -> None:
    a, b = integers(dtype, 2, 4, 3), integers(dtype, 2, 4, 3, seed=1)
    one, two = [scale(0.1), zero(dtype, z)], [scale(0.05), zero(dtype, z - 3)]
    check("QLinearConcat", [scale(0.2), zero(dtype, z + 1), a, *one, b, *two], axis=-1)
    mask = np.random.default_rng(0).integers(0, 2, (2, 4, 3)).astype(bool)
    check("QLinearWhere", [mask, a, *one, b, *two, scale(0.1), zero(dtype, z + 1)])


WEIGHTS = [("int8", -5, "int8", 0), ("int8", -5, "int8", 3), ("uint8", 120, "uint8", 77), ("uint8", 120, "int8", 0)]


@pytest.mark.parametrize(("dtype", "z", "stored", "w"), WEIGHTS)
@pytest.mark.parametrize("count", [0, 4])
def test_convolutions_and_matrices(dtype: str, z: int, stored: str, w: int, count: int) -> None:
    """With one scale, and with one for each output feature."""
    if count and stored == "uint8":
        pytest.skip("ONNX Runtime takes scales by output feature for int8 only")
    steps = [scale(0.01), scale(0.005, 0.01, 0.015, 0.02)][count > 0]
    result = [scale(0.5), zero(dtype, z)]
    kernel, bias = integers(stored, 4, 6, 3, 3, seed=1), np.asarray([100, -9000, 0, 9000], np.int32)
    x = [integers(dtype, 2, 6, 5, 5), scale(0.1), zero(dtype, z)]
    parameters = [steps, zero(stored, w, count)]
    check("QLinearConv", [*x, kernel, *parameters, *result, bias], constant_from=3, domain="", pads=[1, 1, 1, 1])
    a, matrix = [integers(dtype, 3, 7), scale(0.1), zero(dtype, z)], integers(stored, 7, 4, seed=1)
    check("QLinearMatMul", [*a, matrix, *parameters, *result], constant_from=3, domain="")
    check("QGemm", [*a, matrix, *parameters, bias, *result], constant_from=3)
    columns = np.ascontiguousarray(matrix.T)
    check("QGemm", [*a, columns, *parameters, None, *result], constant_from=3, transB=1, alpha=0.5)


@pytest.mark.parametrize(("dtype", "z"), TYPES)
def test_channels_last(dtype: str, z: int) -> None:
    """What ONNX Runtime's optimizer writes at level "all"; filters stay as they are."""
    x = [integers(dtype, 2, 5, 6, 4), scale(0.1), zero(dtype, z)]
    result = [scale(0.05), zero(dtype, z - 3)]
    check("QLinearGlobalAveragePool", [*x, *result], channels_last=1)
    window = {"kernel_shape": [2, 2], "pads": [1, 0, 0, 1], "strides": [1, 2]}
    check("QLinearAveragePool", [*x, *result], channels_last=1, **window)
    check("NhwcMaxPool", x[:1], **window)
    kernel, bias = [integers("int8", 6, 2, 3, 3), scale(0.01), zero("int8", 0)], np.asarray(range(6), np.int32)
    check("QLinearConv", [*x, *kernel, *result, bias], constant_from=3, channels_last=1, group=2, strides=[2, 1])


@pytest.mark.parametrize(
    ("z", "runtime", "warned"), [(14, "2.14", True), (14, "litert-2.3", False), (0, "2.14", False)]
)
def test_zero_points_of_weights_that_some_releases_leave_out(z: int, runtime: str, warned: bool) -> None:
    x, y = ("x", onnx.TensorProto.INT8, [4, 16]), ("y", onnx.TensorProto.INT8, [4, 8])
    constants = {"s": scale(0.02), "zx": zero("int8", 3), "w": integers("int8", 16, 8), "zw": zero("int8", z)}
    constants["b"] = np.arange(8, dtype=np.int32)
    node = helper.make_node("QGemm", ["x", "s", "zx", "w", "s", "zw", "b", "s", "zx"], ["y"], domain=MICROSOFT)
    found = onnx_model([node], [x], [y], constants)
    found.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    report = onnxtfl.onnx_to_tflite(found, check=False, min_runtime=runtime).report
    assert any("leaves out the zero point" in row.text for row in report.rows()) == warned
