"""Inputs of a check that the user gives: which array is which input, and several sets of them."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import onnxtfl
from onnxtfl.checking.inputs.user_data import Case, asked_range, by_input, cases_of, split_cases
from onnxtfl.checking.pairing.interface import match
from onnxtfl.errors import UsageError
from onnxtfl.inputs.description import TensorInfo
from onnxtfl.inputs.ranges import Range
from onnxtfl.inputs.samples import samples_of
from tests.unit.tiny_models import onnx_model, onnx_scale, saved, tflite_scale

IMAGE = TensorInfo("image", "float32", (1, 3, 8, 9))
IMAGE_OF_B = TensorInfo("input_1", "float32", (1, 8, 9, 3))
PAIRS = match([IMAGE], [IMAGE_OF_B], "input", "auto")


@pytest.mark.parametrize(
    ("name", "shape"),
    [("image", (1, 3, 8, 9)), ("image", (1, 8, 9, 3)), ("input_1", (1, 8, 9, 3)), ("arr_0", (1, 3, 8, 9))],
)
def test_arrays_by_the_names_of_either_model_or_by_position(name: str, shape: tuple[int, ...]) -> None:
    value = np.arange(216, dtype=np.float64).reshape(shape)
    found = by_input({name: value}, [IMAGE], [IMAGE_OF_B], PAIRS)["image"]
    assert (found.shape, found.dtype) == ((1, 3, 8, 9), np.dtype(np.float32))
    np.testing.assert_array_equal(found, value if shape[1] == 3 else value.transpose(0, 3, 1, 2))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"imge": np.zeros((1, 3, 8, 9))}, "no input 'imge'.*did you mean 'image'"),
        ({"arr_1": np.zeros((1, 3, 8, 9))}, "no input 'arr_1'"),
        ({"image": np.zeros((1, 4, 8, 9))}, r"shape \[1,3,8,9\], the array for it \[1,4,8,9\]"),
        ({"image": np.array(["a"] * 216).reshape(1, 3, 8, 9)}, "float32, the array for it"),
    ],
)
def test_arrays_that_do_not_fit(given: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        by_input(given, [IMAGE], [IMAGE_OF_B], PAIRS)


def test_fractions_are_no_integers() -> None:
    ids = [TensorInfo("ids", "int64", (2,))]
    assert by_input({"ids": np.array([1.0, 2.0])}, ids, ids, [])["ids"].tolist() == [1, 2]
    with pytest.raises(UsageError, match="has fractions"):
        by_input({"ids": np.array([1.5, 2.0])}, ids, ids, [])


@pytest.mark.parametrize(
    ("dtype", "value", "message"),
    [
        ("uint8", np.array([1, 300]), "values that do not fit"),
        ("uint8", np.array([-1.0, 3.0]), "values that do not fit"),
        ("int32", np.array([2**40, 0]), "values that do not fit"),
        ("float16", np.array([1e6, 0], np.float32), "values that do not fit"),
        (
            "float32",
            np.array(["2020-01-01", "2020-01-02"], "datetime64[D]"),
            r"float32, the array for it datetime64\[D\]",
        ),
    ],
)
def test_values_that_do_not_fit_the_type(dtype: str, value: np.ndarray, message: str) -> None:
    """They became other values, and both models agreed on those."""
    infos = [TensorInfo("x", dtype, (2,))]
    with pytest.raises(UsageError, match=message):
        by_input({"x": value}, infos, infos, [])


def test_values_at_the_end_of_the_range() -> None:
    infos = [TensorInfo("x", dtype, (2,)) for dtype in ("uint8", "float16", "bool")]
    given = [np.array([0, 255]), np.array([65504, np.inf], np.float32), np.array([0, 2])]
    found = [by_input({"x": value}, [info], [info], [])["x"] for value, info in zip(given, infos, strict=True)]
    assert [array.tolist() for array in found] == [[0, 255], [65504, np.inf], [False, True]]


def test_a_range_of_whole_numbers_has_its_end() -> None:
    """`--input-range mask:0,1` generated zeros only."""
    assert asked_range(TensorInfo("x", "int64", (2,)), 0, 1) == Range("range", 0, 2)
    assert asked_range(TensorInfo("x", "bool", (2,)), 0, 1) == Range("range", 0, 2)
    assert asked_range(TensorInfo("x", "float32", (2,)), 0, 1) == Range("range", 0, 1)
    with pytest.raises(UsageError, match="uint8, which does not have all values from 0 to 256"):
        asked_range(TensorInfo("x", "uint8", (2,)), 0, 256)


def test_inputs_that_are_given_are_not_generated() -> None:
    with pytest.raises(UsageError, match="excludes data"):
        cases_of({"x": np.zeros(3)}, 3, 0)


def test_bfloat16_from_a_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.array([1, -2], ml_dtypes.bfloat16))
    infos = [TensorInfo("x", "bfloat16", (2,))]
    (case,) = cases_of(tmp_path / "x.npz", 1, 0)
    assert by_input(case.arrays(), infos, infos, [])["x"].astype(float).tolist() == [1, -2]


def test_a_file_without_arrays(tmp_path: Path) -> None:
    """A check with generated inputs instead would not be what was asked for."""
    np.savez(tmp_path / "none.npz")
    with pytest.raises(UsageError, match="has no arrays"):
        cases_of(tmp_path / "none.npz", 1, 0)[0].arrays()


@pytest.mark.parametrize("damage", ["compressed bytes", "no array", "a shape of 8 PB"])
def test_damaged_archives_of_arrays(damage: str, tmp_path: Path) -> None:
    path, array = tmp_path / "x.npz", io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": (10**15,)}
    np.lib.format.write_array_header_1_0(array, header)  # type: ignore[no-untyped-call]
    if damage == "compressed bytes":
        np.savez_compressed(path, x=np.arange(99.0))
        whole = path.read_bytes()
        path.write_bytes(whole[:100] + b"\xff" * 30 + whole[130:])
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x.npy", b"junk" if damage == "no array" else array.getvalue())
    with pytest.raises(UsageError, match=r"is not an \.npz file of numbers|do not fit into memory"):
        cases_of(path, 1, 0)[0].arrays()


def test_each_file_of_a_directory_is_a_set(tmp_path: Path) -> None:
    for name in ("b", "a"):
        np.savez(tmp_path / f"{name}.npz", x=np.zeros(3))
    assert [case.label for case in cases_of(tmp_path, 1, 0)] == ["inputs of a.npz", "inputs of b.npz"]
    with pytest.raises(UsageError, match=r"no \.npz files"):
        cases_of(saved_folder(tmp_path), 1, 0)
    (tmp_path / "junk.npz").write_bytes(b"junk")
    for bad in ("junk.npz", "none.npz"):
        with pytest.raises(UsageError, match=bad):
            cases_of(tmp_path / bad, 1, 0)[0].arrays()


def saved_folder(tmp_path: Path) -> Path:
    """An empty directory."""
    (tmp_path / "empty").mkdir()
    return tmp_path / "empty"


def test_the_set_on_which_models_differ_is_named(tmp_path: Path) -> None:
    """``max(x, 0)`` against ``x``: equal for positive inputs."""
    node = helper.make_node("Relu", ["x"], ["y"])
    relu = onnx_model([node], [("x", TensorProto.FLOAT, ["n"])], [("y", TensorProto.FLOAT, ["n"])])
    paths = saved(relu, tmp_path / "a.onnx"), saved(onnx_scale(1.0, ["n"]), tmp_path / "b.onnx")
    good, bad = {"x": np.array([1, 2], np.float32)}, {"x": np.array([-1, 2, 3], np.float32)}
    assert onnxtfl.check(*paths, data=[good, good]).cases == 2
    assert onnxtfl.check(*paths, input_ranges={"x": (0, 5)}, random=3).ok
    report = onnxtfl.check(*paths, data=[good, bad])
    assert report.status == "failed"
    assert report.reason.endswith("(on inputs 2 of 2)")
    assert onnxtfl.check(*paths, input_ranges={"x": (-5, -1)}).status == "failed"


def test_several_random_inputs_have_several_sizes(tmp_path: Path) -> None:
    a = saved(onnx_scale(2.0, ["n", "m"]), tmp_path / "a.onnx")
    b = saved(tflite_scale(open_shape=(-1, -1)), tmp_path / "b.tflite")
    report = onnxtfl.check(a, b, random=3)
    assert (report.status, report.cases) == ("passed", 3)


def test_a_runtime_for_tflite_needs_a_tflite(tmp_path: Path) -> None:
    path = saved(onnx_scale(), tmp_path / "a.onnx")
    with pytest.raises(UsageError, match=r"both models are \.onnx"):
        onnxtfl.check(path, path, runtime="micro")


@pytest.mark.parametrize("name", ["x", "arr_0"])
def test_an_axis_of_samples_is_a_set_of_inputs_for_each_as_in_calibration(tmp_path: Path, name: str) -> None:
    """``onnxtfl check --data`` refused the file that ``--calibration`` takes."""
    paths = [saved(onnx_scale(1.0, [1, 3]), tmp_path / f"{k}.onnx") for k in "ab"]
    np.savez(tmp_path / "x.npz", **{name: np.arange(12, dtype=np.float32).reshape(4, 1, 3)})
    assert onnxtfl.check(*paths, data=tmp_path / "x.npz").cases == 4
    infos = [TensorInfo("x", "float32", (1, 3))]
    found = split_cases(cases_of(tmp_path / "x.npz", 1, 0), infos, infos)
    assert [case.label for case in found[:2]] == ["inputs of x.npz, sample 1 of 4", "inputs of x.npz, sample 2 of 4"]
    assert found[1].arrays()[name].tolist() == [[3, 4, 5]]


def test_arrays_of_different_numbers_of_samples() -> None:
    infos = [TensorInfo("x", "float32", (1, 3)), TensorInfo("y", "float32", (2,))]
    for other in (np.zeros((3, 2)), np.zeros(2)):
        with pytest.raises(UsageError, match="different numbers of samples: 'x' 4, 'y'"):
            split_cases([Case(given={"x": np.zeros((4, 1, 3)), "y": other})], infos, infos)
    (case,) = split_cases([Case(given={"x": np.zeros((1, 3)), "y": np.zeros(2)})], infos, infos)
    assert case.label == ""


def test_an_array_of_no_samples() -> None:
    with pytest.raises(UsageError, match="the array for 'x' has no samples"):
        samples_of({"x": np.zeros((0, 2))}, {"x": 1})


def test_an_array_of_another_shape_says_what_fits() -> None:
    with pytest.raises(UsageError, match=r"give an array of this shape, or \[N,1,3,8,9\] for N sets of inputs"):
        by_input({"image": np.zeros((1, 4, 8, 9))}, [IMAGE], [IMAGE_OF_B], PAIRS)
