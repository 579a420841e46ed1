"""TFLite Micro as a target: what converts, what is refused, the arena, and the C++ source."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxtfl
from onnxtfl.api import QuantizeMode
from onnxtfl.errors import UnsupportedError, UsageError
from onnxtfl.runtimes import MICRO, RunError, Worker
from onnxtfl.targets.tflite import TfliteTarget
from tests.unit.micro_models import cnn, keyword_spotter, recurrent
from tests.unit.tiny_models import onnx_model, onnx_scale, saved

needs_micro = pytest.mark.skipif(not MICRO.available(), reason="needs tflite-micro (pip install 'onnxtfl[micro]')")
F = TensorProto.FLOAT
MODELS = {
    "cnn": cnn(),
    "int8 cnn": cnn(quantized=True),
    "keyword spotter": keyword_spotter(),
    "int8 keyword spotter": keyword_spotter(quantized=True),
    "LSTM": recurrent("LSTM"),
    "GRU": recurrent("GRU"),
    "int8 LSTM": recurrent("LSTM", quantized=True),
    "int8 GRU": recurrent("GRU", quantized=True),
}


def micro(model: onnx.ModelProto, **options: object) -> onnxtfl.Conversion:
    """Convert for TFLite Micro."""
    return onnxtfl.onnx_to_tflite(model, target="micro", **options)  # type: ignore[arg-type]


@needs_micro
@pytest.mark.parametrize("name", MODELS)
def test_networks_of_microcontrollers_run_there(name: str) -> None:
    conversion = micro(MODELS[name], check="require")
    assert conversion.check is not None
    assert conversion.check.ok
    assert conversion.check.runtimes[-1].startswith("micro ")
    assert conversion.report.arena is not None
    assert 1000 < conversion.report.arena < 40_000
    assert "for TFLite Micro" in conversion.report.table()


@pytest.mark.parametrize("name", ["int8 cnn", "int8 keyword spotter"])
def test_quantized_networks_compute_on_integers(name: str) -> None:
    summary = micro(MODELS[name], check=False, load=False).report.quantization
    assert summary is not None
    assert not summary.islands


def test_missing_ops_are_decomposed() -> None:
    nodes = [
        helper.make_node("Gelu", ["x"], ["g"]),
        helper.make_node("Sign", ["x"], ["s"]),
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("Pow", ["e", "fraction"], ["p"]),
        helper.make_node("Pow", ["x", "three"], ["q"]),
        helper.make_node("Sum", ["g", "s", "p", "q"], ["sum"]),
        helper.make_node("Tile", ["sum", "times"], ["y"]),
    ]
    constants = {"fraction": np.float32(1.7), "three": np.float32(3), "times": np.array([2, 1, 3])}
    conversion = micro(onnx_model(nodes, [("x", F, (2, 3, 2))], [("y", F, (4, 3, 6))], constants, opset=20))
    assert conversion.check is not None
    assert conversion.check.ok
    assert not {"GELU", "SIGN", "POW", "TILE"} & conversion.report.ops_after.keys()


def test_concatenations_have_at_most_ten_operands() -> None:
    node = helper.make_node("Concat", ["x"] * 23, ["y"], axis=1)
    conversion = micro(onnx_model([node], [("x", F, (2, 3))], [("y", F, (2, 69))]))
    assert conversion.check is not None
    assert conversion.check.ok
    assert conversion.report.ops_after["CONCATENATION"] > 1


def test_float16_weights_are_widened() -> None:
    w = np.arange(12, dtype=np.float16).reshape(3, 4)
    nodes = [helper.make_node("Cast", ["w"], ["wide"], to=F), helper.make_node("MatMul", ["x", "wide"], ["y"])]
    conversion = micro(onnx_model(nodes, [("x", F, (2, 3))], [("y", F, (2, 4))], {"w": w}))
    assert conversion.check is not None
    assert conversion.check.ok


def test_uint8_becomes_int8() -> None:
    q = {"s": np.float32(0.05), "z": np.uint8(100)}
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["a"])]
    nodes += [helper.make_node("DequantizeLinear", ["a", "s", "z"], ["b"]), helper.make_node("Relu", ["b"], ["c"])]
    nodes += [helper.make_node("QuantizeLinear", ["c", "s", "z"], ["d"])]
    nodes += [helper.make_node("DequantizeLinear", ["d", "s", "z"], ["y"])]
    conversion = micro(onnx_model(nodes, [("x", F, (2, 3))], [("y", F, (2, 3))], q))
    assert conversion.check is not None
    assert conversion.check.ok
    assert conversion.report.quantization is not None
    assert not conversion.report.quantization.islands


@needs_micro
def test_real_values_are_stored_as_uint8() -> None:
    constants = {"s": np.float32(0.05), "z": np.uint8(100)}
    nodes = [helper.make_node("Tanh", ["x"], ["h"]), helper.make_node("QuantizeLinear", ["h", "s", "z"], ["y"])]
    conversion = micro(onnx_model(nodes, [("x", F, (2, 3))], [("y", TensorProto.UINT8, (2, 3))], constants))
    assert conversion.check is not None
    assert conversion.check.ok
    assert [t.dtype for t in conversion.report.outputs] == ["uint8"]


@needs_micro
def test_float16_becomes_float32() -> None:
    """TFLite Micro converts no float16, so inputs and outputs are float32 too."""
    nodes = [helper.make_node("Tanh", ["x"], ["h"]), helper.make_node("Mul", ["h", "x"], ["y"])]
    half = TensorProto.FLOAT16
    conversion = micro(onnx_model(nodes, [("x", half, (2, 3))], [("y", half, (2, 3))], {}), check="require")
    assert [t.dtype for t in (*conversion.report.inputs, *conversion.report.outputs)] == ["float32", "float32"]
    assert {t.name for t in conversion.report.io_types} == {"x", "y"}


@needs_micro
def test_rows_of_negative_infinity_are_known(tmp_path: Path) -> None:
    """The largest element of such a row is the lowest finite number in REDUCE_MAX of TFLite Micro."""
    x = np.array([[-np.inf, -np.inf], [0.0, -np.inf]], np.float32)
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["m"], axes=[1], keepdims=1),
        helper.make_node("Equal", ["m", "lowest"], ["y"]),
    ]
    constants = {"lowest": np.array([-np.inf], np.float32)}
    model = onnx_model(nodes, [("x", F, (2, 2))], [("y", TensorProto.BOOL, (2, 1))], constants, opset=13)
    with MICRO.worker() as worker:
        path = saved(micro(model).data, tmp_path / "m.tflite")
        np.testing.assert_array_equal(worker.run(path, [x])[0], [[True], [False]])


def test_open_sizes_are_refused() -> None:
    model = onnx_scale(shape=["n", 3])
    with pytest.raises(UnsupportedError, match=r"no open sizes, which the input 'x'.*input_shapes.*E-OP-009"):
        micro(model)
    assert micro(model, input_shapes={"x": (2, 3)}, check=False, load=False).report.inputs[0].shape == (2, 3)


def test_all_missing_ops_are_named() -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["places"], name="places"),
        helper.make_node("RandomUniformLike", ["x"], ["noise"], name="noise"),
    ]
    outputs = [("places", TensorProto.INT64, (2, None)), ("noise", F, (1, 3))]
    model = onnx_model(nodes, [("x", F, (1, 3))], outputs)
    message = (
        r"TFLite Micro cannot run \d ops: .*no op WHERE.*no op RANDOM_UNIFORM.*cut the model before it \(`?outputs"
    )
    with pytest.raises(UnsupportedError, match=message):
        micro(model)


@needs_micro
@pytest.mark.parametrize(
    ("kind", "advice"), [("memory", "use smaller inputs"), ("run", "it is a bug"), ("unavailable", None)]
)
def test_a_result_without_an_arena(kind: str, advice: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    def arena(*_: object) -> int:
        raise RunError(kind, "the model does not fit")

    monkeypatch.setattr(Worker, "arena", arena)
    if advice is None:
        assert micro(onnx_scale(shape=[2, 3])).report.arena is None
        return
    with pytest.raises(UnsupportedError, match=f"does not fit; {advice}"):
        micro(onnx_scale(shape=[2, 3]))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(("axis", "size"), [(0, 1), (1, 2), (-1, 9)])
@pytest.mark.parametrize("flags", [{}, {"exclusive": 1}, {"reverse": 1}, {"exclusive": 1, "reverse": 1}])
def test_integers_are_summed_by_doubling(dtype: type[np.generic], axis: int, size: int, flags: dict[str, int]) -> None:
    shape = (size, 3) if axis == 0 else (3, size)
    type_ = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    node = helper.make_node("CumSum", ["x", "axis"], ["y"], **flags)
    conversion = micro(onnx_model([node], [("x", type_, shape)], [("y", type_, shape)], {"axis": np.array(axis)}))
    assert conversion.check is not None
    assert conversion.check.ok


def test_a_result_of_unknown_size_is_refused() -> None:
    node = helper.make_node("NonZero", ["x"], ["y"], name="where")
    model = onnx_model([node], [("x", F, (2, 3))], [("y", TensorProto.INT64, (2, "n"))])
    with pytest.raises(UnsupportedError, match="TFLite Micro"):
        micro(model)


def test_forms_are_correct_in_micro_and_in_the_others() -> None:
    target = TfliteTarget(table="micro")
    assert target.runtimes == ("2.14", "litert", "micro")
    assert TfliteTarget("litert-2.3", table="micro").runtimes == ("litert", "micro")
    assert target.fuses("RELU", "CONV_2D")
    assert not target.fuses("RELU", "CONV_3D")


def test_the_c_source_has_the_bytes_the_ops_and_the_arena(tmp_path: Path) -> None:
    conversion = micro(cnn(), path=tmp_path / "person.tflite", check=False)
    made = conversion.c_source()
    numbers = re.findall(r"0x([0-9a-f]{2}),", made.source)
    assert bytes.fromhex("".join(numbers)) == (tmp_path / "person.tflite").read_bytes()
    adds = re.findall(r"resolver\.(Add\w+)\(\)", made.header)
    assert adds == sorted(adds)
    assert {"AddConv2D", "AddDepthwiseConv2D", "AddFullyConnected", "AddSoftmax"} <= set(adds)
    assert f"kOpCount = {len(conversion.report.ops_after)};" in made.header
    assert "tflite::MicroMutableOpResolver<kOpCount>" in made.header
    arena = conversion.report.arena
    assert (f"kArenaSize = {arena};" in made.header) == (arena is not None)
    assert [path.name for path in made.write(tmp_path / "out")] == ["person.h", "person.cc"]


_PROGRAM = """\
#include "digits.h"
#include <cstdint>
#include <cstdio>
struct Resolver {
  int added = 0;
%s
};
int main() {
  Resolver resolver;
  bool fits = digits_model::AddOps(resolver) && resolver.added == int(digits_model::kOpCount);
  bool aligned = reinterpret_cast<std::uintptr_t>(digits_model::kModel) %% 16 == 0;
  std::fwrite(digits_model::kModel, 1, digits_model::kModelSize, stdout);
  return fits && aligned ? 0 : 1;
}
"""


@pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")
def test_the_c_source_compiles_to_the_bytes_of_the_file(tmp_path: Path) -> None:
    conversion = micro(onnx_scale(), check=False)
    made = conversion.c_source("digits")
    _, source = made.write(tmp_path)
    methods = re.findall(r"resolver\.(Add\w+)\(\)", made.header)
    main = tmp_path / "main.cc"
    main.write_text(_PROGRAM % "\n".join(f"  int {name}() {{ ++added; return 0; }}" for name in methods))
    program = tmp_path / "program"
    subprocess.run(["c++", "-std=c++17", "-Wall", "-Werror", source, main, "-o", program], check=True, timeout=60)
    assert subprocess.run([program], capture_output=True, check=True, timeout=10).stdout == conversion.data


def test_c_source_of_a_model_that_micro_cannot_run() -> None:
    node = helper.make_node("Gelu", ["x"], ["y"])
    conversion = onnxtfl.onnx_to_tflite(onnx_model([node], [("x", F, (2,))], [("y", F, (2,))], opset=20), check=False)
    with pytest.raises(UnsupportedError, match=r"does not have these ops of the model: GELU.*target='micro'"):
        conversion.c_source()
    with pytest.raises(UsageError, match="letters and digits"):
        micro(onnx_scale(), check=False).c_source("...")


I64 = TensorProto.INT64


def test_int64_is_computed_as_int32() -> None:
    """Token ids, as exporters write them: the indices of a table, arithmetic, and the positions of the largest."""
    w = np.arange(20, dtype=np.float32).reshape(5, 4)
    nodes = [
        helper.make_node("Gather", ["w", "ids"], ["e"]),
        helper.make_node("ReduceMean", ["e"], ["m"], axes=[1], keepdims=0),
        helper.make_node("ArgMax", ["m"], ["best"], axis=1, keepdims=0),
        helper.make_node("Mul", ["ids", "minus"], ["negative"]),
        helper.make_node("Mod", ["negative", "three"], ["rest"]),
        helper.make_node("Transpose", ["rest"], ["turned"], perm=[1, 0]),
        helper.make_node("ReduceMax", ["turned"], ["most"], axes=[0], keepdims=0),
    ]
    constants = {"w": w, "minus": np.array(-1000003), "three": np.array(7)}
    outputs = [("best", I64, (2,)), ("turned", I64, (3, 2)), ("most", I64, (2,))]
    conversion = micro(onnx_model(nodes, [("ids", I64, (2, 3))], outputs, constants, opset=13), check=True)
    assert conversion.check is not None
    assert conversion.check.ok
    held = [(io.name, io.source, io.dtype) for io in conversion.report.io_types]
    assert held == [(name, "int64", "int32") for name in ("ids", "best", "turned", "most")]
    assert "int64 is computed as int32" in conversion.report.table()
    assert conversion.report.io_types[0].to_result(np.array([3])).dtype == np.int32
    with pytest.raises(ValueError, match="int32 cannot hold 4294967296"):
        conversion.report.io_types[0].to_result(np.array([1 << 32]))


def test_a_constant_that_int32_cannot_hold_is_refused() -> None:
    node = helper.make_node("Add", ["x", "large"], ["y"])
    model = onnx_model([node], [("x", I64, (2,))], [("y", I64, (2,))], {"large": np.array(1 << 40)})
    with pytest.raises(UnsupportedError, match="constant 'large' has 1099511627776, which int32 cannot hold"):
        micro(model)


def test_the_last_bound_of_a_slice_is_the_end() -> None:
    node = helper.make_node("Slice", ["x", "start", "end", "axis"], ["y"])
    bounds = {"start": np.array([1]), "end": np.array([2**63 - 1]), "axis": np.array([0])}
    conversion = micro(onnx_model([node], [("x", I64, (4,))], [("y", I64, (3,))], bounds))
    assert conversion.check is not None
    assert conversion.check.ok


def test_products_are_reduced_pairwise() -> None:
    node = helper.make_node("ReduceProd", ["x"], ["y"], axes=[1], keepdims=0)
    conversion = micro(onnx_model([node], [("x", F, (2, 7))], [("y", F, (2,))], opset=13))
    assert conversion.check is not None
    assert conversion.check.ok


def test_angles_are_polynomials() -> None:
    names = ("Atan", "Asin", "Acos")
    nodes = [helper.make_node(name, ["x"], [name]) for name in names]
    conversion = micro(onnx_model(nodes, [("x", F, (2, 30))], [(name, F, (2, 30)) for name in names], opset=13))
    assert conversion.check is not None
    assert conversion.check.ok


def test_dynamic_quantization_is_computed_in_int32() -> None:
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
        helper.make_node("MatMulInteger", ["q", "w", "zero"], ["sums"]),
        helper.make_node("Cast", ["sums"], ["real"], to=F),
        helper.make_node("Mul", ["real", "scale"], ["y"]),
    ]
    w = (np.arange(12, dtype=np.int8) - 5).reshape(4, 3)
    conversion = micro(onnx_model(nodes, [("x", F, (2, 4))], [("y", F, (2, 3))], {"w": w}, opset=13))
    assert conversion.check is not None
    assert conversion.check.ok


@pytest.mark.parametrize("mode", ["dynamic", "float16"])
def test_weights_that_micro_cannot_compute_with_are_refused(mode: QuantizeMode) -> None:
    with pytest.raises(UsageError, match="int8 or int16x8"):
        onnxtfl.onnx_to_tflite(cnn(), target="micro", quantize=mode)


@needs_micro
@pytest.mark.skipif(importlib.util.find_spec("litert_quantizer") is None, reason="needs litert-quantizer")
@pytest.mark.parametrize("mode", ["int8", "int16x8"])
@pytest.mark.parametrize("network", [cnn, keyword_spotter])
def test_networks_are_quantized(network: Callable[[], onnx.ModelProto], mode: QuantizeMode) -> None:
    conversion = micro(network(), quantize=mode, calibration="random", check="require")
    assert conversion.check is not None
    assert conversion.check.runtimes[-1].startswith("micro ")
    assert conversion.report.arena is not None
    assert conversion.report.arena < 12_000


@needs_micro
@pytest.mark.skipif(importlib.util.find_spec("litert_quantizer") is None, reason="needs litert-quantizer")
@pytest.mark.parametrize("mode", ["int8", "int16x8"])
@pytest.mark.parametrize("op", ["LSTM", "GRU"])
def test_recurrent_layers_are_quantized(op: str, mode: QuantizeMode) -> None:
    conversion = micro(recurrent(op), quantize=mode, calibration="random", check="require")
    assert conversion.check is not None
    assert conversion.check.runtimes[-1].startswith("micro ")
    assert conversion.report.quantization is not None
    floats = {op.op for op in conversion.report.quantization.float_ops}
    assert floats == ({"UNIDIRECTIONAL_SEQUENCE_LSTM"} if op == "LSTM" else {"WHILE", "GATHER"})


@needs_micro
@pytest.mark.skipif(importlib.util.find_spec("litert_quantizer") is None, reason="needs litert-quantizer")
def test_a_quantized_gru_is_a_loop() -> None:
    """Written out, 49 steps of 32 units took 176 KB of memory, and 182 KB in the file."""
    report = micro(
        recurrent("GRU", units=32, steps=49), quantize="int8", quantized_io="int8", calibration="random"
    ).report
    assert (report.ops_after["WHILE"], report.ops_after["FULLY_CONNECTED"]) == (1, 3)
    assert report.arena is not None and report.arena < 10_000
    assert report.size < 12_000


@needs_micro
@pytest.mark.skipif(importlib.util.find_spec("litert_quantizer") is None, reason="needs litert-quantizer")
def test_large_quantized_models_run() -> None:
    """litert-quantizer stores weights of 256 KB and more after the FlatBuffer, where TFLite Micro does not see them."""
    w = np.random.default_rng(0).standard_normal((600, 500)).astype(np.float32) / 20
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    model = onnx_model(nodes, [("x", F, (1, 600))], [("y", F, (1, 500))], {"w": w})
    conversion = micro(model, quantize="int8", calibration="random", check="require")
    assert conversion.check is not None
    assert conversion.check.runtimes[-1].startswith("micro ")


@pytest.mark.skipif(importlib.util.find_spec("litert_quantizer") is None, reason="needs litert-quantizer")
@pytest.mark.parametrize(
    ("units", "steps", "peepholes", "kernels"), [(16, 49, False, 1), (32, 49, False, 0), (6, 5, True, 0)]
)
def test_an_lstm_is_quantized_where_that_makes_it_smaller(
    units: int, steps: int, peepholes: bool, kernels: int
) -> None:
    """49 steps of 32 units take 22 KB as the kernel, whose weights are float, and 13 KB as a loop."""
    model = recurrent("LSTM", units=units, steps=steps)
    if peepholes:
        model.graph.node[0].input.extend(["", "", "", "p"])
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.full((1, 3 * units), 0.1, np.float32), "p"))
    conversion = micro(model, quantize="int8", calibration="random")
    assert conversion.check is not None
    assert conversion.check.ok
    assert conversion.report.ops_after.get("UNIDIRECTIONAL_SEQUENCE_LSTM", 0) == kernels
    assert not kernels or conversion.report.arena is None or conversion.report.arena < 12_000


@pytest.mark.skipif(importlib.util.find_spec("litert_quantizer") is None, reason="needs litert-quantizer")
def test_quantized_ops_that_micro_lacks_stay_float() -> None:
    """GATHER of int16, which LiteRT has."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Gather", ["h", "i"], ["y"], axis=0)]
    constants = {"w": np.eye(4, dtype=np.float32), "i": np.array([2, 0])}
    model = onnx_model(nodes, [("x", F, (3, 4))], [("y", F, (2, 4))], constants)
    conversion = micro(model, quantize="int16x8", calibration="random")
    assert conversion.check is not None
    assert conversion.check.ok
    assert conversion.report.quantization is not None
    assert [op.op for op in conversion.report.quantization.float_ops] == ["GATHER"]


@pytest.mark.parametrize(
    ("dtype", "zero", "reason"),
    [
        (np.int16, 0, ""),
        (np.int16, 700, "no int16 with this zero point"),
        (np.uint16, 32768, ""),
        (np.uint16, 0, "no uint16 with this zero point"),
        (np.uint16, 30000, "no uint16 with this zero point"),
    ],
)
def test_activations_of_16_bits(dtype: type[np.generic], zero: int, reason: str) -> None:
    """onnxruntime.quantization writes zero points of 16 bits unless it quantizes symmetrically."""
    constants: dict[str, object] = {"w": (np.arange(48).reshape(8, 6) % 11 - 5).astype(np.int8), "ws": np.float32(0.1)}
    constants |= {"wz": np.int8(0), "s": np.float32(2**-12), "z": dtype(zero), "t": np.float32(2**-11)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["a"]),
        helper.make_node("DequantizeLinear", ["a", "s", "z"], ["b"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["c"]),
        helper.make_node("MatMul", ["b", "c"], ["d"]),
        helper.make_node("Relu", ["d"], ["e"]),
        helper.make_node("QuantizeLinear", ["e", "t", "z"], ["f"]),
        helper.make_node("DequantizeLinear", ["f", "t", "z"], ["y"]),
    ]
    conversion = micro(onnx_model(nodes, [("x", F, (2, 8))], [("y", F, (2, 6))], constants, opset=21))
    assert conversion.check is not None
    assert conversion.check.ok
    summary = conversion.report.quantization
    assert summary is not None
    assert bool(summary.integer_ops) == (not reason)
    assert [reason] * len(summary.islands) == [
        op.reason.partition("has ")[2].partition(":")[0] for op in summary.islands
    ]


def test_weights_in_int8_of_a_float_product_take_no_memory() -> None:
    """TFLite Micro has no hybrid kernels: what DEQUANTIZE makes would be in the arena."""
    constants = {"w": np.arange(64 * 64).reshape(64, 64).astype(np.int8), "s": np.float32(0.01), "z": np.int8(3)}
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["r"]),
        helper.make_node("MatMul", ["x", "r"], ["y"]),
    ]
    conversion = micro(onnx_model(nodes, [("x", F, (1, 64))], [("y", F, (1, 64))], constants))
    assert conversion.check is not None
    assert conversion.check.ok
    assert conversion.report.ops_after == {"FULLY_CONNECTED": 1}
    assert conversion.report.arena is None or conversion.report.arena < 64 * 64


def test_an_lstm_with_quantized_weights_is_one_kernel() -> None:
    ops = micro(MODELS["int8 LSTM"], check=False, load=False).report.ops_after
    assert ops["UNIDIRECTIONAL_SEQUENCE_LSTM"] == 1
    assert "WHILE" not in ops


@needs_micro
@pytest.mark.parametrize("output", ["h", "s"])
def test_a_loop_holds_the_input_and_the_last_state(output: str) -> None:
    """Not the products of all steps, nor all states, each of which a loop holds several times: that is 80 KB here."""
    model = recurrent("GRU", units=32, steps=49, inputs=8)
    if output == "s":  # the last step of all outputs, as PyTorch models read it
        layer, squeeze = model.graph.node[:2]
        layer.output[:] = ["s", "h"]
        squeeze.input[0] = "picked"
        model.graph.node.insert(1, helper.make_node("Gather", ["s", "last_step"], ["picked"]))
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(-1), "last_step"))
    conversion = micro(model, check="require")
    assert conversion.report.arena is not None
    assert conversion.report.arena < 12_000
    assert conversion.report.ops_after["WHILE"] == 1


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("with_lengths", [False, True])
@pytest.mark.parametrize(("op", "gates"), [("GRU", 3), ("LSTM", 4), ("RNN", 1)])
def test_loops_of_one_step(op: str, gates: int, with_lengths: bool, direction: str) -> None:
    """The products of the input are in the loop where the input is smaller."""
    count, rng = 2 if direction == "bidirectional" else 1, np.random.default_rng(5)
    sizes = {"w": (count, gates * 6, 5), "r": (count, gates * 6, 6), "b": (count, 12 * gates)}
    constants = {name: (rng.standard_normal(size) / 2).astype(np.float32) for name, size in sizes.items()}
    inputs = [("x", F, (7, 3, 5))]
    names = ["x", "w", "r", "b"]
    if with_lengths:
        constants["lengths"] = np.array([7, 2, 4], np.int32)
        names.append("lengths")
    node = helper.make_node(op, names, ["y", "h"], hidden_size=6, direction=direction)
    conversion = micro(onnx_model([node], inputs, [("y", F, (7, count, 3, 6)), ("h", F, (count, 3, 6))], constants))
    assert conversion.check is not None
    assert conversion.check.ok


@pytest.mark.parametrize(("indices", "islands"), [(3, []), ([1, 2], []), ([[0]], []), ([2, 0], ["GATHER"])])
def test_consecutive_elements_of_int16_are_a_slice(indices: object, islands: list[str]) -> None:
    """TFLite Micro has no GATHER of int16; others are computed in float."""
    chosen = np.array(indices)
    constants = {"s": np.float32(2**-12), "z": np.int16(0), "i": chosen}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["a"]),
        helper.make_node("DequantizeLinear", ["a", "s", "z"], ["b"]),
        helper.make_node("Gather", ["b", "i"], ["c"], axis=1),
        helper.make_node("QuantizeLinear", ["c", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["d", "s", "z"], ["y"]),
    ]
    shape = (2, *chosen.shape, 3)
    conversion = micro(onnx_model(nodes, [("x", F, (2, 5, 3))], [("y", F, shape)], constants, opset=21))
    assert conversion.check is not None
    assert conversion.check.ok
    assert conversion.report.quantization is not None
    assert [op.op for op in conversion.report.quantization.islands] == islands
