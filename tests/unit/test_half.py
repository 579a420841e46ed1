"""Float16 arithmetic, simulated: `onnxtfl run --precision` and `onnxtfl check --precision float16`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

import onnxtfl
from onnxtfl.cli.build import run_command
from onnxtfl.cli.check import check_command
from onnxtfl.cli.running import exit_code
from onnxtfl.errors import UsageError
from onnxtfl.evaluation import Precision
from onnxtfl.ir.data import Array
from onnxtfl.ir.half import as_float16

HEAD = '<ir_version: 9, opset_import: ["" : 18]>\n'
MEAN_OF_SQUARES = """g (float[1,1000] x) => (float[1,1] y) <int64[1] a = {1}> { s = Mul(x, x) y = ReduceMean(s, a) }"""
MEAN_BEFORE_SQUARE = """g (float[1,1000] x) => (float[1,1] y) <int64[1] a = {1}> {
  m = ReduceMean(x, a) d = Sub(x, m) s = Mul(d, d) y = ReduceMean(s, a) }"""
SQUARE_BEFORE_MEAN = """g (float[1,1000] x) => (float[1,1] y) <int64[1] a = {1}> {
  m = ReduceMean(x, a) q = Mul(m, m) s = Mul(x, x) t = ReduceMean(s, a) y = Sub(t, q) }"""
SPREAD = (300 + 100 * np.where(np.arange(1000) % 2, 1, -1)).astype(np.float32)[None]
"""A mean of 300 and a variance of 10,000; the largest square is 160,000."""


def model(text: str) -> onnx.ModelProto:
    return parser.parse_model(HEAD + text)


def run(source: onnx.ModelProto | bytes, precision: Precision | None, **inputs: Array) -> tuple[Array, list[str]]:
    """The first output, and the values that leave float16's range."""
    beyond: list[str] = []
    found = onnxtfl.run(source, inputs, precision, lambda excess: beyond.append(str(excess)))
    return next(iter(found.values())), beyond


def test_values_are_rounded_as_numpy_rounds_them() -> None:
    edges = np.float32([65504, 65519.9, 65520, -65520, 2**-25, 1.5 * 2**-25, 2**-24, -0.0, np.inf, -np.inf])
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    ties = (halves[1:] + halves[:-1]) / 2
    values = np.concatenate([edges, ties, np.nextafter(ties, 0), -np.nextafter(ties, np.float32(np.inf))])
    with np.errstate(over="ignore"):
        wanted = values.astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(as_float16(values).view(np.uint32), wanted.view(np.uint32))
    assert np.isnan(as_float16(np.float32([np.nan]))).all()


@pytest.mark.parametrize(
    ("text", "x", "precision", "beyond"),
    [
        (MEAN_OF_SQUARES, 300, "float16", ["'s' (Mul) reaches 90,000; float16 ends at 65,504"]),
        (MEAN_OF_SQUARES, 200, "float16", []),
        (
            MEAN_OF_SQUARES,
            200,
            "float16-sums",
            ["the sum in 'y' (ReduceMean) reaches 40,000,000; float16 ends at 65,504"],
        ),
        (SQUARE_BEFORE_MEAN, SPREAD, "float16", ["'q' (Mul) reaches 90,000", "'s' (Mul) reaches 160,000"]),
        (MEAN_BEFORE_SQUARE, SPREAD, "float16", []),
    ],
)
def test_values_beyond_the_range_are_named(text: str, x: object, precision: Precision, beyond: list[str]) -> None:
    inputs = np.broadcast_to(np.asarray(x, np.float32), (1, 1000))
    exact, _ = run(model(text), None, x=inputs)
    found, named = run(model(text), precision, x=inputs)
    assert [said[: len(wanted)] for said, wanted in zip(named, beyond, strict=True)] == beyond
    assert np.isfinite(found).all() == (not beyond)
    if not beyond:
        np.testing.assert_allclose(found, exact, rtol=1e-3)


N = 16384
SUMS = {
    "sum": (f"g (float[{N}] x) => (float[1] y) {{ y = ReduceSum(x) }}", N),
    "mean": (f"g (float[{N}] x) => (float[1] y) {{ y = ReduceMean(x) }}", 1),
    "product": (f"g (float[{N}] x) => (float y) {{ y = MatMul(x, x) }}", N),
    "convolution": (
        f"""g (float[{N}] x) => (float[1,1,1] y) <int64[3] s = {{1, {N // 2}, 2}}> {{
          r = Reshape(x, s) y = Conv(r, r) }}""",
        N,
    ),
    "transposed": (
        f"""g (float[{N}] x) => (float[1,1,1] y) <int64[3] s = {{1, {N}, 1}}, int64[3] w = {{{N}, 1, 1}}> {{
          r = Reshape(x, s) k = Reshape(x, w) y = ConvTranspose(r, k) }}""",
        N,
    ),
    "pool": (
        f"""g (float[{N}] x) => (float[1,1,1] y) <int64[3] s = {{1, 1, {N}}}> {{
          r = Reshape(x, s) y = AveragePool<kernel_shape = [{N}]>(r) }}""",
        1,
    ),
    "softmax": (f"g (float[{N}] x) => (float[{N}] y) {{ y = Softmax(x) }}", 1 / N),
}


@pytest.mark.parametrize("name", SUMS)
def test_sums_in_float16_stop_growing(name: str) -> None:
    """Four ones are less than half of the distance to the next float16 after 8,192."""
    text, wanted = SUMS[name]
    x = np.ones(N, np.float32)
    exact, _ = run(model(text), "float16", x=x)
    rounded, _ = run(model(text), "float16-sums", x=x)
    assert np.all(exact == wanted)
    assert np.all(rounded == (wanted * 2 if name == "softmax" else wanted / 2))


NORMALIZED = """g (float[1,2] x) => (float[1,2] y)
      <float[2] s = {1000, 1000}, float[2] b = {0, 0}, float[2] m = {0, 0}, float[2] v = {1000000, 1000000}> {
      y = BatchNormalization(x, s, b, m, v) }"""
PRODUCT_OF_CONSTANTS = b"""graph g(%x: tensor<1x2xfloat32>) -> (%y) {
  %a = constant tensor<1xfloat32, quant<int8 1000.0:0>> [100]
  %b = constant tensor<1xfloat32> [1e-05]
  %w = Mul(%a, %b) : tensor<1xfloat32>
  %y = Mul(%x, %w)
}"""


@pytest.mark.parametrize("source", [model(NORMALIZED), PRODUCT_OF_CONSTANTS], ids=["variance", "quantized"])
def test_what_depends_on_constants_is_computed_before_it_is_rounded(source: onnx.ModelProto | bytes) -> None:
    """A constant, 100,000 or more, is beyond float16, the factor that it becomes is not."""
    found, beyond = run(source, "float16", x=np.float32([[1, 2]]))
    np.testing.assert_allclose(found, [[1, 2]], rtol=1e-3)
    assert not beyond


BRANCHES = """{ m = ReduceMax<keepdims = 0>(x) c = Greater(m, n) y = If(c) <
  then_branch = t () => (float[2] z) { z = Mul(x, x) }, else_branch = e () => (float[2] w) { w = Add(x, x) }> }"""


@pytest.mark.parametrize(
    ("text", "x", "said"),
    [
        ("{ y = LayerNormalization<epsilon = 1e-12>(x, s) }", 1, "'y' (LayerNormalization) becomes infinite or NaN"),
        ("{ y = Mul(x, l) }", 1, "'l' (constant) reaches 1,000,000"),
        (BRANCHES, 1000, "'z' (Mul) reaches 1,000,000"),
    ],
)
def test_values_inside_of_ops_are_stored_in_float16(text: str, x: float, said: str) -> None:
    declared = "<float[2] s = {1, 1}, float[1] l = {1000000}, float n = {0}>"
    found, beyond = run(model(f"g (float[2] x) => (float[2] y) {declared} {text}"), "float16", x=np.full(2, x, "f4"))
    assert beyond[0].startswith(said)
    assert not np.isfinite(found).any()


def test_quantized_values_are_computed_with_as_reals() -> None:
    text = """graph g(%x: tensor<2xfloat32, quant<int8 1.0:0>>) -> (%y) {
      %y = Mul(%x, %x) : tensor<2xfloat32, quant<int8 1000.0:0>>
    }"""
    found = [run(text.encode(), precision, x=np.int8([100, 120]))[0].tolist() for precision in (None, "float16")]
    assert found == [[10, 14], [10, 14]]


def test_scales_are_not_rounded() -> None:
    """1e-8 would be 0."""
    scaled = model("g (int8[1] x) => (float[1] y) <float s = {1e-8}> { y = DequantizeLinear(x, s) }")
    assert run(scaled, "float16", x=np.int8([100]))[0] == np.float16(1e-6)


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(UsageError, match="float8"):
        onnxtfl.run(model(MEAN_OF_SQUARES), [SPREAD], "float8")  # type: ignore[arg-type]


def test_the_check_fails_only_for_an_overflow_that_the_source_does_not_have() -> None:
    safe, unsafe = model(MEAN_BEFORE_SQUARE), model(SQUARE_BEFORE_MEAN)
    passed = onnxtfl.check(unsafe, safe, data={"x": SPREAD}, precision="float16")
    failed = onnxtfl.check(safe, unsafe, data={"x": SPREAD}, precision="float16")
    assert passed.ok
    assert "(the source: " not in passed.table() and passed.float16[0].outputs[0].source_error is None
    assert passed.float16[0].outputs[0].error == pytest.approx(0, abs=1e-3)
    assert failed.status == "failed"
    assert failed.reason.startswith("output 'y' overflows in simulated float16, sums in float32, that of the source")
    assert any(note.startswith("'s' (Mul) reaches 160,000") for note in failed.notes)
    written = failed.to_json()["float16"]
    assert [run["precision"] for run in written] == ["float16", "float16-sums"]
    assert written[0]["beyond"][1] == {"tensor": "s", "op": "Mul", "largest": 160000.0, "in_sum": False}
    assert onnxtfl.check(unsafe, unsafe, data={"x": SPREAD}, precision="float16").ok
    assert onnxtfl.check(safe, unsafe, data={"x": SPREAD}).ok


def test_a_check_of_a_result_has_the_error_of_both(tmp_path: Path) -> None:
    """Sums of float16 cost as much in the source as in the .tflite."""
    source = model("g (float[2,512] x) => (float[2,2] y) { t = Transpose(x) y = MatMul(x, t) }")
    result = tmp_path / "m.tflite"
    onnxtfl.onnx_to_tflite(source, result, check=False)
    report = onnxtfl.check(source, result, precision="float16")
    stored, summed = (run.outputs[0] for run in report.float16)
    assert stored.error == stored.source_error and summed.error == summed.source_error
    assert 0 < stored.error < 1e-3 < summed.error < 1e-2  # type: ignore[operator]
    assert report.ok


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, data = tmp_path / "m.onnx", tmp_path / "x.npz"
    path.write_bytes(model(SQUARE_BEFORE_MEAN).SerializeToString())
    np.savez(data, x=SPREAD)
    out = str(tmp_path / "y.npz")
    assert exit_code(run_command, [str(path), "--inputs", str(data), "-o", out, "--precision", "float16"]) == 0
    assert "'s' (Mul) reaches 160,000; float16 ends at 65,504" in capsys.readouterr().out
    assert exit_code(check_command, [str(path), str(path), "--data", str(data), "--precision", "float16"]) == 0
    assert "simulated float16, sums in float16" in capsys.readouterr().out
