"""Ops of the domain com.microsoft, each in several forms, compared with ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxtfl
from onnxtfl.errors import UnsupportedError
from tests.harness.litert import Array, run_onnx, run_tflite

RNG = np.random.default_rng(0)
FLOAT = TensorProto.FLOAT


def made(
    op: str,
    inputs: dict[str, Array],
    outputs: int = 1,
    constants: dict[str, Array] | None = None,
    operands: str = "",
    results: int = FLOAT,
    domain: str = "com.microsoft",
    open_: bool = False,
    **attributes: Any,
) -> bytes:
    """A model of one op; `operands`: their names in order ("" between commas for an absent one)."""
    names = operands.split(",") if operands else [*inputs, *(constants or {})]
    node = helper.make_node(op, names, [f"y{i}" for i in range(outputs)], domain=domain, **attributes)
    given = [
        helper.make_tensor_value_info(
            n, helper.np_dtype_to_tensor_dtype(a.dtype), [f"{n}{i}" if open_ else d for i, d in enumerate(a.shape)]
        )
        for n, a in inputs.items()
    ]
    wanted = [helper.make_tensor_value_info(f"y{i}", results, None) for i in range(outputs)]
    weights = [numpy_helper.from_array(a, n) for n, a in (constants or {}).items()]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "g", given, wanted, weights)
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def compare(model: bytes, inputs: dict[str, Array], atol: float = 1e-5) -> None:
    wanted = run_onnx(model, inputs)
    found = run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data or b"", inputs)
    for (name, value), (_, got) in zip(wanted.items(), found, strict=True):
        np.testing.assert_allclose(got, value, rtol=1e-4, atol=atol * max(1, np.abs(value).max()), err_msg=name)


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


B, S, H, N = 2, 4, 16, 2


@pytest.mark.parametrize("open_", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("length", [1, 2, 4, 12])
def test_words_that_would_repeat_a_run_are_banned(size: int, length: int, open_: bool) -> None:
    inputs = {"ids": np.random.default_rng(length).integers(0, 3, (2, length)), "scores": normal(2, 8)}
    model = made("NGramRepeatBlock", inputs, ngram_size=size, open_=open_)
    wanted = run_onnx(model, inputs)["y0"]
    ((_, found),) = run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data or b"", inputs)
    np.testing.assert_array_equal(found, wanted)


# --- products --------------------------------------------------------------------------------------------------------


GEMM_ACTIVATIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("Relu", "Tanh", "Sigmoid", "Softplus", "Softsign"), ()),
    **dict.fromkeys(("LeakyRelu", "Elu", "ThresholdedRelu"), ("alpha",)),
    **{"HardSigmoid": ("alpha", "beta"), "Selu": ("alpha", "gamma")},
}


@pytest.mark.parametrize("activation", GEMM_ACTIVATIONS)
def test_fused_gemm(activation: str) -> None:
    x = {"a": normal(3, 4)}
    values = {"alpha": 0.2, "beta": 0.4, "gamma": 1.3}
    attributes = {f"activation_{name}": values[name] for name in GEMM_ACTIVATIONS[activation]}
    model = made(
        "FusedGemm", x, constants={"w": normal(5, 4), "c": normal(5)}, transB=1, activation=activation, **attributes
    )
    compare(model, x)


@pytest.mark.parametrize("op", ["FusedMatMul", "TransposeMatMul"])
def test_fused_products(op: str) -> None:
    x = {"a": normal(2, 4, 3), "b": normal(2, 5, 4)}
    compare(made(op, x, transA=1, transB=1, alpha=0.5), x)


def test_products_with_the_batch_last() -> None:
    x = {"a": normal(3, 2, 4), "b": normal(2, 4, 5)}
    compare(made("FusedMatMul", x, transBatchA=1), x)


@pytest.mark.parametrize("open_", [False, True])
@pytest.mark.parametrize("right", [0, 1])
@pytest.mark.parametrize("shapes", [((2, 3), (1, 1)), ((1, 1), (2, 3)), ((2, 1), (1, 3)), ((2, 2, 3), (1, 1, 1))])
def test_transposed_products_of_batches_that_broadcast(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], right: int, open_: bool
) -> None:
    """2.14 computes BATCH_MATMUL with adj_x wrong there: a Transpose instead."""
    first, second = shapes
    x = {"a": normal(*first, 4, 3), "b": normal(*second, *((5, 4) if right else (4, 5)))}
    compare(made("FusedMatMul", x, transA=1, transB=right, open_=open_), x)


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_distances_of_rows(metric: str) -> None:
    x = {"a": normal(3, 4), "b": normal(5, 4)}
    compare(made("CDist", x, metric=metric), x)
    compare(made("CDist", x, metric=metric, open_=True), x)


@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (2, 4, 4)])
def test_inverse(shape: tuple[int, ...]) -> None:
    x = {"a": normal(*shape)}
    x["a"][..., 0, 0] = 0 if shape[-1] > 1 else 2  # the first pivot is not the first row
    compare(made("Inverse", x), x, 1e-4)


# --- convolution and pools -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("activation", "parameters"),
    [("Relu", []), ("HardSigmoid", [0.2, 0.4]), ("Clip", [-0.5, 0.5]), ("LeakyRelu", [0.3]), ("HardSwish", [])],
)
def test_fused_convolution(activation: str, parameters: list[float]) -> None:
    x = {"x": normal(1, 3, 6, 6)}
    given = {"activation_params": parameters} if parameters else {}
    model = made("FusedConv", x, constants={"w": normal(4, 3, 3, 3), "c": normal(4)}, activation=activation, **given)
    compare(model, x)


def test_fused_convolution_with_a_sum() -> None:
    x = {"x": normal(1, 3, 6, 6), "z": normal(1, 4, 4, 4)}
    model = made("FusedConv", x, 1, {"w": normal(4, 3, 3, 3), "c": normal(4)}, "x,w,c,z", activation="Relu")
    compare(model, x)


def test_channels_last_convolution() -> None:
    """ONNX Runtime's CPU has no kernel for it: compared with its definition."""
    x, w = normal(1, 6, 6, 3), normal(4, 3, 3, 3)
    found = onnxtfl.onnx_to_tflite(made("NhwcConv", {"x": x}, constants={"w": w}), check=False)
    plain = made("Conv", {"x": x.transpose(0, 3, 1, 2)}, constants={"w": w}, domain="")
    wanted = run_onnx(plain, {"x": x.transpose(0, 3, 1, 2)})["y0"].transpose(0, 2, 3, 1)
    np.testing.assert_allclose(run_tflite(found.data or b"", {"x": x})[0][1], wanted, atol=1e-5)
    assert "TRANSPOSE" not in found.report.ops_after


def test_channels_last_fused_convolution() -> None:
    """A sum and an activation after the convolution; against FusedConv of the transposed operands."""
    x, z, w = normal(1, 6, 6, 3), normal(1, 4, 4, 4), {"w": normal(4, 3, 3, 3), "c": normal(4)}
    attributes = {"activation": "LeakyRelu", "activation_params": [0.3]}
    model = made("NhwcFusedConv", {"x": x, "z": z}, 1, w, "x,w,c,z", **attributes)
    found = onnxtfl.onnx_to_tflite(model, check=False)
    first = {name: array.transpose(0, 3, 1, 2) for name, array in (("x", x), ("z", z))}
    wanted = run_onnx(made("FusedConv", first, 1, w, "x,w,c,z", **attributes), first)["y0"].transpose(0, 2, 3, 1)
    np.testing.assert_allclose(run_tflite(found.data or b"", {"x": x, "z": z})[0][1], wanted, atol=1e-5)
    assert "TRANSPOSE" not in found.report.ops_after


# --- ops that ONNX has too -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("upper", [0, 1])
def test_triangles(upper: int) -> None:
    x = {"x": normal(2, 3, 4)}
    compare(made("Trilu", x, upper=upper), x)
    compare(made("Trilu", x, constants={"k": np.asarray(-1)}, upper=upper), x)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
def test_padding(mode: str) -> None:
    x = {"x": normal(3, 4)}
    compare(made("Pad", x, constants={"pads": np.asarray([0, 1, 2, 1])}, mode=mode), x)
    compare(made("Pad", x, constants={"pads": np.asarray([[0, 1, 2, 1]])}, mode=mode), x)


def test_constant_padding_with_a_value() -> None:
    x = {"x": normal(3, 4)}
    constants = {"pads": np.asarray([0, 1, 2, 1]), "v": np.asarray([2.5], np.float32)}
    compare(made("Pad", x, constants=constants), x)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_sampling(mode: str) -> None:
    x = {"x": normal(1, 2, 5, 5), "grid": RNG.uniform(-1, 1, (1, 3, 3, 2)).astype(np.float32)}
    compare(made("GridSample", x, mode=mode, padding_mode="border", align_corners=1), x)


def test_unique() -> None:
    x = {"x": np.asarray([2, 1, 1, 3, 2], np.float32)}
    node = helper.make_node("Unique", ["x"], ["y", "i", "n"], domain="com.microsoft")
    kinds = {"y": FLOAT, "i": TensorProto.INT64, "n": TensorProto.INT64}
    outputs = [helper.make_tensor_value_info(name, kind, [None]) for name, kind in kinds.items()]
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", FLOAT, [5])], outputs)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    compare(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString(), x)


def test_gather_and_range() -> None:
    x = {"x": normal(3, 4)}
    compare(made("GatherND", x, constants={"i": np.asarray([[0, 1], [2, 3]])}), x)
    bounds = {"a": np.asarray(1, np.float32), "b": np.asarray(5, np.float32)}
    compare(made("Range", bounds), bounds)


# --- embeddings and biases -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("segments", [True, False])
@pytest.mark.parametrize("open_", [True, False])
def test_embeddings(segments: bool, open_: bool) -> None:
    tables = {"word": normal(20, H), "pos": normal(8, H), "seg": normal(2, H), "gamma": normal(H), "beta": normal(H)}
    x = {n: RNG.integers(0, 2, (B, S)).astype(np.int32) for n in ("ids", "kinds", "mask")}
    names = "ids,kinds,word,pos,seg,gamma,beta,mask" if segments else "ids,,word,pos,,gamma,beta,mask"
    used = {n: v for n, v in x.items() if segments or n != "kinds"}
    tables = {n: v for n, v in tables.items() if segments or n != "seg"}
    model = made("EmbedLayerNormalization", used, 1, tables, names, epsilon=1e-5, open_=open_)
    compare(with_outputs(model, {"y1": TensorProto.INT32, "y2": FLOAT}), used)


def with_outputs(model: bytes, more: dict[str, int]) -> bytes:
    """The model of one op with more results."""
    from onnx import load_model_from_string

    loaded = load_model_from_string(model)
    for name, kind in more.items():
        loaded.graph.node[0].output.append(name)
        loaded.graph.output.append(helper.make_tensor_value_info(name, kind, None))
    return bytes(loaded.SerializeToString())


def test_embeddings_at_given_positions() -> None:
    tables = {"word": normal(20, H), "pos": normal(8, H), "gamma": normal(H), "beta": normal(H)}
    x = {"ids": RNG.integers(0, 20, (B, S)).astype(np.int32), "at": np.asarray([[3, 1, 0, 2]], np.int32)}
    compare(with_outputs(made("EmbedLayerNormalization", x, 1, tables, "ids,,word,pos,,gamma,beta,,at"), {"y1": 6}), x)


def test_biases() -> None:
    """ONNX Runtime's CPU has no kernels for these: compared with their definitions."""
    x, bias, skip = normal(2, 3, 8), normal(8), normal(2, 3, 8)

    def run(op: str, inputs: dict[str, Array], **options: Any) -> Array:
        data = onnxtfl.onnx_to_tflite(made(op, inputs, constants={"b": bias}, **options), check=False).data or b""
        return run_tflite(data, inputs)[0][1]

    np.testing.assert_allclose(run("BiasAdd", {"x": x, "s": skip}, operands="x,b,s"), x + bias + skip, atol=1e-6)
    np.testing.assert_allclose(run("BiasDropout", {"x": x, "s": skip}, operands="x,b,s"), x + bias + skip, atol=1e-6)
    left, right = np.split(x + bias, 2, axis=2)
    gelu = run_onnx(made("Gelu", {"x": right}), {"x": right})["y0"]
    np.testing.assert_allclose(run("BiasSplitGelu", {"x": x}), left * gelu, atol=1e-5)


@pytest.mark.parametrize("size", [8, 7])
def test_fourier_transforms(size: int) -> None:
    """ONNX Runtime's CPU has no kernels for these: compared with NumPy."""
    x = normal(2, size)
    found = onnxtfl.onnx_to_tflite(made("Rfft", {"x": x}, onesided=1, signal_ndim=1, normalized=0), check=False)
    wanted = np.fft.rfft(x)
    parts = np.stack([wanted.real, wanted.imag], -1).astype(np.float32)
    np.testing.assert_allclose(run_tflite(found.data or b"", {"x": x})[0][1], parts, atol=1e-5)
    if size % 2 == 0:
        back = onnxtfl.onnx_to_tflite(made("Irfft", {"x": parts}, onesided=1, signal_ndim=1), check=False)
        np.testing.assert_allclose(run_tflite(back.data or b"", {"x": parts})[0][1], x, atol=1e-5)


@pytest.mark.parametrize("op", ["MurmurHash3", "Tokenizer", "PackedAttention"])
def test_ops_without_a_conversion_are_refused(op: str) -> None:
    with pytest.raises(UnsupportedError, match=op) as error:
        onnxtfl.onnx_to_tflite(made(op, {"x": normal(2, 3)}), check=False)
    assert error.value.code == "E-OP-002"


@pytest.mark.parametrize("kind", [0, 1], ids=["FP4", "NF4"])
def test_weights_of_4_bit_floats(kind: int) -> None:
    """Each code, in blocks along the rows one after the other."""
    x, codes = {"a": normal(3, 32)}, np.asarray([(i % 16) << 4 | (i * 7) % 16 for i in range(48)], np.uint8)
    constants = {"w": codes, "s": np.abs(normal(6)) + 1}
    compare(made("MatMulBnb4", x, 1, constants, K=32, N=3, block_size=16, quant_type=kind, transB=1), x)


# --- float16 ---------------------------------------------------------------------------------------------------------

_HALVES: list[tuple[str, dict[str, Array], dict[str, Array], dict[str, Any]]] = [
    ("FusedMatMul", {"a": normal(2, 4, 3), "b": normal(2, 5, 3)}, {}, {"transB": 1, "alpha": 0.5}),
    ("BiasGelu", {"x": normal(2, 8)}, {"c": normal(8)}, {}),
    ("SkipLayerNormalization", {"x": normal(2, 4, 8), "s": normal(2, 4, 8)}, {"g": normal(8), "c": normal(8)}, {}),
    ("MultiHeadAttention", {"q": normal(2, 4, 8), "k": normal(2, 4, 8), "v": normal(2, 4, 8)}, {}, {"num_heads": 2}),
    ("FusedConv", {"x": normal(1, 3, 6, 6)}, {"w": normal(4, 3, 3, 3)}, {"activation": "Relu"}),
]


@pytest.mark.parametrize("case", _HALVES, ids=lambda case: case[0])
def test_float16(case: tuple[str, dict[str, Array], dict[str, Array], dict[str, Any]]) -> None:
    """As ONNX Runtime computes it, and as the op on float32."""
    op, x, constants, attributes = case
    halves = {name: array.astype(np.float16) for name, array in x.items()}
    few = {name: array.astype(np.float16) for name, array in constants.items()}
    done = onnxtfl.onnx_to_tflite(made(op, halves, 1, few, results=TensorProto.FLOAT16, **attributes), check="require")
    found = run_tflite(done.data or b"", halves)[0][1]
    assert found.dtype == np.float16
    wide = {name: array.astype(np.float32) for name, array in halves.items()}
    more = {name: array.astype(np.float32) for name, array in few.items()}
    wanted = run_onnx(made(op, wide, 1, more, **attributes), wide)["y0"]
    np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=2e-3)
