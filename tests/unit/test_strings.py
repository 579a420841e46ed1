"""TfIdfVectorizer as ONNX Runtime computes it, on integers and strings; strings in LiteRT; ops that are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import onnxtfl
from onnxtfl.errors import InvalidModelError, UnsupportedError
from onnxtfl.ir.types import DType, TensorType
from onnxtfl.op_tables import op_tables
from tests.harness.litert import Array, run_onnx, run_tflite
from tests.unit.test_tflite_rare_ops import one_op
from tests.unit.tiny_models import onnx_model

_GRAMS = {"min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 1, "ngram_counts": [0, 3]}
_POOL = [5, 6, 7, 5, 7, 7, 8]


def tf_idf(x: Array, shape: list[Any], **attributes: Any) -> tuple[Array, Array]:
    """What ONNX Runtime and the converted model in LiteRT compute."""
    kind = TensorProto.STRING if x.dtype == object else helper.np_dtype_to_tensor_dtype(x.dtype)
    node = helper.make_node("TfIdfVectorizer", ["x"], ["y"], **{**_GRAMS, **attributes})
    rank_1 = [None] if len(shape) == 1 else [None, None]
    model = onnx_model([node], [("x", kind, shape)], [("y", TensorProto.FLOAT, rank_1)], opset=9).SerializeToString()
    wanted = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    found = run_tflite(bytes(onnxtfl.onnx_to_tflite(model, check=False).data), [x])[0][1]
    return wanted, found


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, object])
def test_tf_idf(mode: str, dtype: Any) -> None:
    """Columns in any order, some empty; a row of any length; n-grams with a token between."""
    row = np.asarray([5, 7, 5, 5, 6, 7, 8])
    strings = dtype is object
    x = np.asarray([f"w{i}" for i in row], object) if strings else row.astype(dtype)
    pool = {"pool_strings": [f"w{i}" for i in _POOL]} if strings else {"pool_int64s": _POOL}
    wanted, found = tf_idf(x, [None], mode=mode, ngram_indexes=[6, 0, 2, 1, 4], weights=[1.0, 2, 3, 4, 5], **pool)
    np.testing.assert_allclose(found, wanted)


def test_tf_idf_of_rows_shorter_than_an_n_gram() -> None:
    x = np.asarray([[5], [7]], np.int64)
    wanted, found = tf_idf(x, [None, None], mode="TF", ngram_indexes=[0, 1, 2, 3, 4], pool_int64s=_POOL)
    np.testing.assert_array_equal(found, wanted)
    assert found.tolist() == [[1, 0, 0, 0, 0], [0, 0, 1, 0, 0]]


def test_tf_idf_of_n_grams_that_share_a_column() -> None:
    x = np.asarray([5, 7, 5, 5, 6, 7, 8], np.int64)
    for mode in ("TF", "TFIDF"):
        indexes, weights = [0, 0, 1, 2, 1], [1.0, 2, 3, 4, 5]
        np.testing.assert_allclose(
            *tf_idf(x, [7], mode=mode, ngram_indexes=indexes, weights=weights, pool_int64s=_POOL)
        )


def test_tf_idf_with_a_pool_that_does_not_fit() -> None:
    with pytest.raises((InvalidModelError, onnxruntime.capi.onnxruntime_pybind11_state.Fail)):
        tf_idf(np.asarray([1], np.int64), [1], mode="TF", ngram_indexes=[0, 1], pool_int64s=_POOL)


_TEXTS = np.asarray([["a,b,,c", " two  words "], ["", ","]], object)
STRING_OPS = [
    ("StringConcat", {}, [_TEXTS, np.asarray(["1", "\u00e9"], object)]),
    ("RegexFullMatch", {"pattern": r"[a-z ]+"}, [_TEXTS]),
    ("StringSplit", {}, [_TEXTS]),
    ("StringSplit", {"delimiter": ",", "maxsplit": 1}, [_TEXTS]),
    ("StringSplit", {"maxsplit": 1}, [_TEXTS]),
]


def string_op(op: str, attributes: dict[str, Any], operands: list[Any]) -> bytes:
    names = [f"x{i}" for i in range(len(operands))]
    results = ["y", "counts"][: 1 + (op == "StringSplit")]
    node = helper.make_node(op, names, results, **attributes)
    inputs = [(n, TensorProto.STRING, list(a.shape)) for n, a in zip(names, operands, strict=True)]
    types = [TensorProto.BOOL if op == "RegexFullMatch" else TensorProto.STRING, TensorProto.INT64]
    outputs = [(n, t, None) for n, t in zip(results, types, strict=False)]
    return onnx_model([node], inputs, outputs, opset=20).SerializeToString()


@pytest.mark.parametrize(("op", "attributes", "operands"), STRING_OPS)
def test_ops_that_make_strings_are_evaluated(op: str, attributes: dict[str, Any], operands: list[Any]) -> None:
    model = string_op(op, attributes, operands)
    feed = {f"x{i}": array for i, array in enumerate(operands)}
    expected, found = run_onnx(model, feed), onnxtfl.run(model, feed)
    assert {n: a.tolist() for n, a in found.items()} == {n: a.tolist() for n, a in expected.items()}


@pytest.mark.parametrize(("op", "attributes", "operands"), STRING_OPS[:3])
def test_ops_that_make_strings_are_refused_with_what_to_do(
    op: str, attributes: dict[str, Any], operands: list[Any]
) -> None:
    model = string_op(op, attributes, operands)
    with pytest.raises(UnsupportedError, match=f"TFLite cannot run this.*{op}.*run it before the model and make its"):
        onnxtfl.onnx_to_tflite(model, check=False)
    assert [found.op for found in onnxtfl.unsupported(model)] == [op]
    assert f"| {op} | 20 **no** |" in op_tables()


def test_strings_are_compared_gathered_and_reshaped_in_litert() -> None:
    """(words == "no") and words[[1, 0]] as a column; the outputs are strings as the runtime returns them."""
    nodes = [
        helper.make_node("Equal", ["x", "word"], ["same"]),
        helper.make_node("Gather", ["x", "order"], ["swapped"]),
        helper.make_node("Reshape", ["swapped", "shape"], ["column"]),
    ]
    constants = [
        helper.make_tensor("word", TensorProto.STRING, [1], [b"no"]),
        helper.make_tensor("order", TensorProto.INT64, [2], [1, 0]),
        helper.make_tensor("shape", TensorProto.INT64, [2], [2, 1]),
    ]
    outputs = [("same", TensorProto.BOOL, [2]), ("column", TensorProto.STRING, [2, 1])]
    model = onnx_model(nodes, [("x", TensorProto.STRING, [2])], outputs, opset=19)
    model.graph.initializer.extend(constants)
    data = bytes(onnxtfl.onnx_to_tflite(model.SerializeToString(), check=False).data)
    found = dict(run_tflite(data, [np.asarray(["yes", "no"], object)]))
    assert found["same"].tolist() == [False, True]
    assert [[as_text(v) for v in row] for row in found["column"].tolist()] == [["no"], ["yes"]]


def as_text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def normalizer(shape: list[Any], **attributes: Any) -> bytes:
    node = helper.make_node("StringNormalizer", ["x"], ["y"], **attributes)
    inputs = [("x", TensorProto.STRING, shape)]
    return onnx_model([node], inputs, [("y", TensorProto.STRING, [None] * len(shape))]).SerializeToString()


@pytest.mark.parametrize(
    "row", [["mon", "a", "tue", "mon", "ü"], ["tue", "mon", "mon", "tue", "tue"]], ids=["some", "all"]
)
@pytest.mark.parametrize("shape", [[5], [None], [1, 5], [1, None]], ids=str)
def test_stopwords_are_removed(shape: list[Any], row: list[str]) -> None:
    """Of strings that are all removed one is left, which is empty."""
    x = np.asarray(row, object).reshape([1, 5][-len(shape) :])
    model = normalizer(shape, is_case_sensitive=1, stopwords=["mon", "tue"])
    wanted = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    found = run_tflite(bytes(onnxtfl.onnx_to_tflite(model, check=False).data), [x])[0][1]
    assert [[word.decode() for word in found.reshape(-1)]] == wanted.reshape(1, -1).tolist()
    assert found.shape == wanted.shape


def test_nothing_to_normalize() -> None:
    assert dict(onnxtfl.onnx_to_tflite(normalizer([4]), check=False).report.ops_after) == {"RESHAPE": 1}


@pytest.mark.parametrize(
    "attributes", [{"case_change_action": "LOWER"}, {"stopwords": ["Mon"]}], ids=["lower", "any case"]
)
def test_the_case_of_strings_is_refused(attributes: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError, match="case"):
        onnxtfl.onnx_to_tflite(normalizer([4], **attributes), check=False)


# --- SKIP_GRAM -------------------------------------------------------------------------------------------------------

TEXTS = (
    *("", " ", "  ", "\t", "one", " one", " one two", "  one two", "one two three four five", " one\ntwo\nthree"),
    *("one  two \t three ", "\n\none two\tthree\vfour\f five\r six", "ü é\u00a0k ß two three"),
)


def skip_gram(texts: Array, **options: Any) -> tuple[bytes, dict[str, Array]]:
    return one_op("SKIP_GRAM", [texts], [], [TensorType(DType.STRING, None)], **options)


@pytest.mark.parametrize("every", [False, True], ids=["longest", "all"])
@pytest.mark.parametrize("skipped", [-1, 0, 2])
@pytest.mark.parametrize("size", [0, 1, 2, 3])
def test_n_grams(size: int, skipped: int, every: bool) -> None:
    """In the order of the kernel, which takes one whitespace character at the start for a part of a word."""
    options = {"ngram_size": size, "max_skip_size": skipped, "include_all_ngrams": every}
    model, _ = skip_gram(np.asarray(["?"], object), **options)
    made = onnxtfl.tflite_to_onnx(model, check=False).data or b""
    for text in TEXTS:
        x = np.asarray([text], object)
        wanted = [gram.decode() for gram in run_tflite(model, [x])[0][1]]
        assert run_onnx(made, {"in0": x})["out0"].tolist() == wanted, text


def test_n_grams_are_of_the_first_string() -> None:
    texts = np.asarray([["one two", "three four"], ["five six", ""]], object)
    model, feed = skip_gram(texts, ngram_size=2)
    made = onnxtfl.tflite_to_onnx(model, check=False).data or b""
    assert run_onnx(made, feed)["out0"].tolist() == ["one two"]


def test_an_opset_without_ops_on_strings() -> None:
    model, _ = skip_gram(np.asarray(["one two"], object), ngram_size=1)
    with pytest.raises(UnsupportedError, match=r"opset 18 has no StringSplit.*ask for opset 20 or a newer one"):
        onnxtfl.tflite_to_onnx(model, check=False, opset=18)


def test_the_check_has_texts_of_several_words() -> None:
    """One word has no n-grams, so that nothing would be compared."""
    model, _ = skip_gram(np.asarray(["one two"], object), ngram_size=2, max_skip_size=1)
    made = onnxtfl.tflite_to_onnx(model).data
    assert made is not None
    result = onnxtfl.check(model, made)
    assert result.ok
