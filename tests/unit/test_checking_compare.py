"""The comparison of one output: what passes and, above all, what fails."""

from __future__ import annotations

import tracemalloc

import ml_dtypes
import numpy as np
import pytest

from onnxtfl.checking.metrics.comparison import Expectation, compare
from onnxtfl.checking.models.facts import SIGMOID_ERROR
from onnxtfl.ir.quantization import Quantization
from onnxtfl.metrics.errors import Allowed, measure_errors
from onnxtfl.metrics.noise import Noise
from onnxtfl.tracing.matches import relative_error

A = np.array([[1.0, -2.0], [0.0, 100.0]], np.float32)
NAN, INF = np.nan, np.inf


def judged(a, b, **expect):
    return compare("y", np.asarray(a), np.asarray(b), Expectation(**expect))


def changed(array: np.ndarray, value: float, at: tuple[int, ...] = (0, 0)) -> np.ndarray:
    copy = array.copy()
    copy[at] = value
    return copy


def test_equal_passes_with_no_error() -> None:
    result = judged(A, A)
    assert (result.ok, result.max_abs, result.max_rel) == (True, 0.0, 0.0)


def test_tolerance_is_relative_plus_a_share_of_the_largest() -> None:
    # at 1.0 allowed: 1e-3 * 1 + 1e-4 * 100 = 0.011
    assert judged(A, changed(A, 1.0105)).ok
    result = judged(A, changed(A, 1.0115))
    assert not result.ok
    assert result.message == "1 of 4 elements differ, worst at [0,0]: 1 became 1.0115"
    assert result.max_abs == pytest.approx(0.0115, rel=1e-3)
    assert result.max_rel == pytest.approx(0.0115, rel=1e-3)
    assert not judged(A, changed(A, 1.0105), rtol=1e-4, atol=0).ok


def test_relative_error_of_small_elements_is_against_a_thousandth_of_the_largest() -> None:
    assert judged(A, changed(A, 0.01, (1, 0))).max_rel == pytest.approx(0.01 / 0.1, rel=1e-3)


def test_large_outputs_are_compared_in_little_memory() -> None:
    a = np.ones((3, 1 << 20), np.float32)
    b = changed(changed(a, 2.0, (0, 5)), 4.0, (2, 7))
    tracemalloc.start()
    result = judged(a, b)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert result.message == "2 of 3145728 elements differ, worst at [2,7]: 1 became 4"
    assert (result.max_abs, result.max_rel) == (3.0, 3.0)
    assert peak < 3 * a.nbytes


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([NAN, 1.0], [1.0, 1.0]),
        ([1.0, 1.0], [NAN, 1.0]),
        ([INF, 1.0], [1e30, 1.0]),
        ([1.0, 1.0], [INF, 1.0]),
        ([INF, 1.0], [-INF, 1.0]),
        ([NAN, 1.0], [INF, 1.0]),
    ],
)
def test_nan_and_infinity_have_to_be_at_the_same_places(a: list[float], b: list[float]) -> None:
    result = judged(np.float32(a), np.float32(b))
    assert not result.ok
    assert "different places" in result.message


def test_the_largest_number_stands_for_infinity() -> None:
    """LiteRT's builtin kernels clip; another large number, or the other sign, does not pass."""
    most = np.finfo(np.float32).max
    clipped, whole = np.asarray([most, -most, 2.0], np.float32), np.asarray([INF, -INF, 2.0], np.float32)
    assert judged(whole, clipped).ok
    assert judged(clipped, whole).ok
    assert not judged(whole, -clipped).ok
    assert not judged(whole, clipped * np.float32(0.99)).ok
    assert not judged(whole, changed(clipped, 3.0, (2,))).ok


def test_equal_nan_and_infinity_pass_and_the_rest_still_counts() -> None:
    a = np.float32([NAN, INF, -INF, 1.0])
    assert judged(a, a).ok
    assert not judged(a, np.float32([NAN, INF, -INF, 1.1])).ok
    assert judged(np.float32([NAN]), np.float32([NAN])).note == "no finite value to compare"


def test_an_output_of_zeros_has_to_be_zero() -> None:
    zeros = np.zeros(4, np.float32)
    assert judged(zeros, zeros).ok
    assert not judged(zeros, changed(zeros, 1e-6, (1,))).ok


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "uint64", "bool"])
def test_integers_and_bools_are_equal_or_not(dtype: str) -> None:
    a = np.array([1, 0, 1], dtype)
    assert judged(a, a).ok
    assert not judged(a, np.array([1, 1, 1], dtype)).ok


def test_int64_beyond_float64() -> None:
    a = np.array([2**62, -(2**63)], np.int64)
    result = judged(a, np.array([2**62 + 1, 2**63 - 1], np.int64))
    assert not result.ok
    assert "2 of 2" in result.message


def test_shape_and_dtype_mismatch() -> None:
    assert judged(A, A.reshape(4)).message == "shape [2,2] became [4]"
    assert judged(A.astype(np.int64), A.astype(np.int32)).message == "dtype int64 became int32"
    assert judged(A, A.astype(np.float16)).message == "dtype float32 became float16"
    held = judged(A.astype(np.float16), A)  # --io-dtype float32
    assert held.ok and held.note == "float16 became float32"
    assert judged(A, A[:, :0]).message == "shape [2,2] became [2,0]"


def test_float64_may_be_narrowed_and_is_reported() -> None:
    result = judged(A.astype(np.float64), A)
    assert (result.ok, result.note) == (True, "float64 became float32")
    assert not judged(A.astype(np.float64), changed(A, 2.0)).ok


def rounded(count: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Values, and the same with one step up or down, in turn, at every tenth."""
    a, off = np.arange(count, dtype=np.float32), np.zeros(count, np.float32)
    off[::20], off[10::20] = 1, -1
    return a, a + off


def test_a_grid_allows_one_step_of_every_element_and_no_more() -> None:
    a, off = rounded()
    assert not judged(a, off, rtol=0).ok
    found = judged(a, off, rtol=0, step=1.0)
    assert found.ok and found.accepted_by == "quantization-steps"
    off[7] += 5
    assert not judged(a, off, rtol=0, step=1.0).ok


def test_quantized_values_have_no_mean_error() -> None:
    """A lost bias is off by less than a step in each element, and in one direction."""
    q = Quantization("int8", (0.5,), (3,))
    a = np.arange(-100, 100).astype(np.int8)
    found = judged(a, a + np.int8(1), quantization_a=q)
    assert not found.ok and found.biased and found.bias == pytest.approx(1.0)
    assert not judged(a, a + np.int8(2), quantization_a=q).ok
    assert not judged(a, a + np.int8(1)).ok


def test_a_mean_error_of_one_channel_shows() -> None:
    q = Quantization("int8", (0.5,), (0,))
    a = np.random.default_rng(0).integers(-100, 100, (1, 16, 16, 8)).astype(np.int8)
    b = a.copy()
    b[..., 3] += 1
    found = judged(a, b, quantization_a=q)
    assert not found.ok and found.biased and found.bias == pytest.approx(1.0)


def test_a_constant_channel_is_one_sample_of_the_mean_error() -> None:
    """All of its elements are rounded alike."""
    q = Quantization("int8", (0.5,), (0,))
    a = np.random.default_rng(0).integers(-100, 100, (1, 16, 16, 8)).astype(np.int8)
    a[..., 3] = 5
    b = a.copy()
    b[..., 3] += 1
    assert judged(a, b, quantization_a=q).ok


def test_a_quantized_model_may_be_farther_from_its_float_source() -> None:
    """`levels`: few elements up to four times as far, no element anywhere."""
    a, off = rounded(1000)
    off[7] += 3
    assert judged(a, off, rtol=0, step=1.0, levels=1000.0).ok
    off[7] += 3
    assert not judged(a, off, rtol=0, step=1.0, levels=1000.0).ok


def test_the_tolerance_follows_the_magnitude_of_slices() -> None:
    """Boxes in pixels and scores in one output: an error of the scores is not measured by the boxes."""
    random = np.random.default_rng(0)
    a = random.random((1, 8, 100)).astype(np.float32)
    a[:, :4] *= 640
    b = a.copy()
    b[:, 4:] += 0.05
    assert judged(a, b, per_slice=False).ok
    assert not judged(a, b, per_slice=True).ok
    assert judged(a, a + a * np.float32(5e-4), per_slice=True).ok


def test_one_side_quantized_the_other_float() -> None:
    q = Quantization("int8", (0.5,), (3,))
    real = np.float32([0.0, 0.5, -1.0])
    assert judged(real, np.int8([3, 4, 1]), quantization_b=q).ok
    assert judged(np.int8([3, 4, 1]), real, quantization_a=q).ok
    assert not judged(real, np.int8([3, 9, 1]), quantization_b=q).ok


def test_random_outputs_count_by_dtype_and_shape_only() -> None:
    found = judged(A, A + 5, drawn=True)
    assert found.ok and found.drawn and not found.compared
    assert not judged(A, A[:1], drawn=True).ok


def test_strings_and_sequences() -> None:
    a = np.array(["x", "y"], object)
    assert judged(a, a).ok
    assert not judged(a, np.array(["x", "z"], object)).ok
    assert compare("y", [A, A], [A, A], Expectation()).ok
    assert compare("y", [A, A], [A, A + 1], Expectation()).message.startswith("y[1]: 4 of 4")
    assert not compare("y", [A], [A, A], Expectation()).ok
    assert not compare("y", None, A, Expectation()).ok
    assert compare("y", None, None, Expectation()).ok


def test_complex_and_bfloat16() -> None:
    a = np.array([1 + 1j, 2], np.complex64)
    assert judged(a, a).ok
    assert not judged(a, a.conj()).ok
    low = np.array([1.0, 2.0], ml_dtypes.bfloat16)
    assert judged(low, np.array([1.0078125, 2.0], ml_dtypes.bfloat16)).ok
    assert not judged(low, np.array([1.05, 2.0], ml_dtypes.bfloat16)).ok


def test_empty_and_scalar() -> None:
    empty = np.zeros((0, 3), np.float32)
    assert judged(empty, empty).ok
    assert judged(np.float32(2), np.float32(2)).ok
    assert not judged(np.float32(2), np.float32(3)).ok


def test_an_error_that_is_always_allowed() -> None:
    a, b = np.asarray([5.8e-6], np.float32), np.asarray([5.85e-6], np.float32)
    assert not compare("y", a, b, Expectation()).ok
    assert compare("y", a, b, Expectation(least=SIGMOID_ERROR)).ok


def test_large_arrays_are_compared_in_blocks() -> None:
    """A copy in float64 is twice an array; arrays of 100 MB whose elements are noise took 2.7 GB."""
    x = np.linspace(1, 2, 8 << 20, dtype=np.float32)
    y, noise = x + np.float32(1e-3), Noise(np.full(x.shape, 1e-3, np.float32), 1e-3)
    tracemalloc.start()
    try:
        assert relative_error(x, y, None) == pytest.approx(5e-4, rel=1e-3)
        assert measure_errors(x, y, 2.0, Allowed(1e-4, 1e-4, None, noise)).bad == 0
        assert tracemalloc.get_traced_memory()[1] < x.nbytes
    finally:
        tracemalloc.stop()


def test_nan_where_a_number_is_expected_is_no_small_error() -> None:
    x = np.ones(1 << 19, np.float32)
    y = x.copy()
    y[5] = np.nan
    assert not relative_error(x, y, None) < 1.0
