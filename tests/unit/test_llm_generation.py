"""Decoders in the forms that exporters write decode the same tokens in LiteRT as in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from ai_edge_litert.interpreter import Interpreter
from onnx import numpy_helper

import onnxtfl
from onnxtfl.checking.report import CheckReport
from onnxtfl.checking.settings import Settings
from onnxtfl.cli.check import check_command
from onnxtfl.cli.running import exit_code
from onnxtfl.errors import UnsupportedError
from onnxtfl.llm import generation
from onnxtfl.llm.entries import Entries
from onnxtfl.llm.generation import check_generation
from onnxtfl.runtimes import Workers
from onnxtfl.runtimes.generation_script import Fixed, decode_tflite
from tests.unit.decoder_forms import PLACES, VOCABULARY, TinyDecoder, converted, saved


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers() as found:
        yield found


def checked(source: Path, result: Path, workers: Workers, **settings: Any) -> CheckReport:
    return check_generation(source, result, Settings(**settings), workers)


FORMS: dict[str, dict[str, Any]] = {
    "grouped heads, rotary": {},
    "one head of keys": {"groups": 1},
    "as many heads of keys": {"groups": 4},
    "sliding window": {"window": 6},
    "masked by infinity": {"window": 6, "masked": float("-inf")},
    "learned positions": {"positions": "learned"},
    "positions without a batch": {"positions": "flat"},
    "positions that are part of a table": {"positions": "sliced"},
    "positions from the attention mask": {"positions": "counted"},
    "positions from the length of caches": {"positions": "ranged", "has_mask": False},
    "group-query attention": {"attention": "group-query"},
    "group-query attention, window": {"attention": "group-query", "window": 6},
    "group-query attention, cache of a window": {"attention": "group-query", "window": 6, "windowed": True},
    "attention of ONNX": {"attention": "attention"},
    "attention of ONNX, window": {"attention": "attention", "window": 6, "groups": 1},
    "attention-24": {"attention": "attention", "opset": 24},
    "a sink after the scores": {"weights": "sink last"},
    "a sink before the scores": {"weights": "sink first"},
    "a mask of new tokens": {"masks_new": True},
    "a softmax of separate ops": {"weights": "sum", "masks_new": True},
    "relu in place of the softmax": {"weights": "relu", "masks_new": True, "masked": -1e4},
    "experts": {"experts": 4},
    "embeddings of tokens": {"embedded": True},
}


@pytest.mark.parametrize("form", FORMS)
def test_tokens_are_the_same(form: str, tmp_path: Path, workers: Workers) -> None:
    source = saved(TinyDecoder(**FORMS[form]).model(), tmp_path)
    report = checked(source, converted(source, (8,), 64), workers, kernels=("default",))
    assert report.ok, report.table(True)
    assert all("the same 32 tokens" in out.note for out in report.outputs), report.table(True)


@pytest.mark.parametrize(
    ("form", "rows"),
    [
        ("learned positions", PLACES + 2),
        ("positions from the length of caches", PLACES + 2),
        ("positions that are part of a table", PLACES + 2),
        ("group-query attention", PLACES),
    ],
)
def test_more_places_than_positions(form: str, rows: int, tmp_path: Path) -> None:
    """LiteRT would read beyond the table."""
    source = saved(TinyDecoder(**FORMS[form]).model(), tmp_path)
    converted(source, (8,), rows)
    with pytest.raises(UnsupportedError, match=f"a table of {rows} positions"):
        converted(source, (8,), rows + 1)


def test_a_branch_for_many_tokens(tmp_path: Path, workers: Workers) -> None:
    """In caches of few places only one branch is taken; in others a padded prompt would take the wrong one."""
    source = saved(TinyDecoder(positions="learned", short=40).model(), tmp_path)
    report = checked(source, converted(source, (8,), 40), workers, kernels=("default",))
    assert report.ok, report.table(True)
    with pytest.raises(UnsupportedError, match="a smaller context"):
        converted(source, (8,), 41)


def test_float16(tmp_path: Path, workers: Workers) -> None:
    """The source rounds after each op, and caches are rounded."""
    source = saved(TinyDecoder(half=True, window=6, masked=float("-inf")).model(), tmp_path)
    report = checked(source, converted(source, (8,), 64), workers, kernels=("default",))
    assert report.ok and len(report.outputs) == 5, report.table(True)


@pytest.mark.parametrize("accuracy", [0, 4])
def test_4_bit_weights(accuracy: int, tmp_path: Path, workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """LiteRT's kernels round activations to int8; so do those of ONNX Runtime at level 4.

    Relu is an op of its own: the builtin kernel of products with scales of blocks ignores a fused one.
    """
    monkeypatch.setattr(generation, "TOLERANCE", 0.0)
    monkeypatch.setattr(generation, "ROUNDED_ACTIVATIONS", 0.0)
    source = saved(TinyDecoder(accuracy=accuracy).model(), tmp_path)
    result = converted(source, (8,), 64)
    report = checked(source, result, workers)
    assert report.ok and any("of the source rounded to int8" in out.acceptance for out in report.outputs), (
        report.table()
    )
    strict = checked(source, result, workers, accept=frozenset({"tolerance"}))
    assert strict.status == "failed"
    model = TinyDecoder(accuracy=accuracy).model()
    last = [node for node in model.graph.node if node.op_type == "MatMulNBits"][-1]
    scales = next(w for w in model.graph.initializer if w.name == last.input[2])
    scales.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(scales) * np.float32(2), scales.name))
    onnx.save(model, source)
    assert checked(source, result, workers).status == "failed"


SPLITS = {
    "one by one": [],
    "smallest pieces": [("prefill_4", 4, 4)] * 9,
    "a padded piece first": [
        ("prefill_16", 16, 3),
        ("prefill_4", 4, 4),
        ("prefill_16", 16, 16),
        ("prefill_16", 16, 13),
    ],
    "the last piece is padded beyond the caches": [
        ("prefill_16", 16, 16),
        ("prefill_16", 16, 16),
        ("prefill_16", 16, 4),
    ],
    "pieces of one": [("prefill_16", 16, 1), ("prefill_4", 4, 1), ("prefill_16", 16, 16), ("prefill_4", 4, 3)],
}


@pytest.fixture(scope="module")
def windowed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A decoder with a context of 44 tokens, whose learned positions end there too."""
    source = saved(TinyDecoder(window=6, positions="ranged").model(), tmp_path_factory.mktemp("windowed"))
    return converted(source, (4, 16), 44, prefill_logits=True)


@pytest.mark.parametrize("split", SPLITS)
def test_any_split_of_a_prompt(split: str, windowed: Path) -> None:
    """Every way to fill the caches results in the same logits."""
    prompt = np.random.default_rng(3).integers(0, VOCABULARY, 37).tolist()
    plan = {"prompt": prompt, "steps": 7, "forced": None, "pieces": []}
    interpreter = Interpreter(str(windowed))
    tokens, logits = decode_tflite(interpreter, plan)
    again, others = decode_tflite(interpreter, {**plan, "pieces": SPLITS[split]})
    assert again == tokens
    np.testing.assert_allclose(others, logits, rtol=1e-4, atol=1e-4)


def test_logits_of_a_padded_prefill(windowed: Path) -> None:
    """They are in the order of the tokens, also where the rows had to move back."""
    prompt = np.random.default_rng(4).integers(0, VOCABULARY, 40).tolist()
    interpreter = Interpreter(str(windowed))
    _, expected = decode_tflite(interpreter, {"prompt": prompt, "steps": 1, "forced": None, "pieces": []})
    state = Fixed(interpreter)
    for first, count in ((0, 16), (16, 16), (32, 8)):
        logits = state.feed("prefill_16", prompt[first : first + count], 16)
    np.testing.assert_allclose(logits, expected[0], rtol=1e-4, atol=1e-4)


def with_changed(model: onnx.ModelProto, index: int, factor: float) -> onnx.ModelProto:
    """The model with other values of a matrix of weights."""
    matrices = [w for w in model.graph.initializer if len(w.dims) == 2 and w.data_type == onnx.TensorProto.FLOAT]
    array = numpy_helper.to_array(matrices[index]) * np.float32(factor)
    matrices[index].CopyFrom(numpy_helper.from_array(array, matrices[index].name))
    return model


def test_another_model(tmp_path: Path, workers: Workers) -> None:
    source = saved(TinyDecoder().model(), tmp_path)
    result = converted(source, (8,), 64)
    onnx.save(with_changed(TinyDecoder().model(), 3, 1.02), source)
    report = checked(source, result, workers)
    assert report.status == "failed"
    assert report.reason.startswith("logits after 1 token") and "elements differ" in report.reason


def test_another_window(tmp_path: Path, workers: Workers) -> None:
    """Short prompts do not show it: 33 tokens in all are fewer than the window."""
    source = saved(TinyDecoder(window=34).model(), tmp_path)
    result = converted(source, (40,), 80)
    onnx.save(TinyDecoder(window=35).model(), source)
    report = checked(source, result, workers, kernels=("default",))
    assert [out.ok for out in report.outputs] == [True, False, False, False, False], report.table(True)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = saved(TinyDecoder().model(), tmp_path)
    words = [str(source), str(converted(source, (8,), 64))]
    assert exit_code(check_command, words) == 0
    assert "32 tokens each, decoded greedily after prompts of" in capsys.readouterr().out
    onnx.save(with_changed(TinyDecoder().model(), 3, 2), source)
    assert exit_code(check_command, words) == 3
    assert "whose logit is larger by" in " ".join(capsys.readouterr().out.split())


def test_other_models_are_compared_as_ever(tmp_path: Path) -> None:
    """A .tflite without the signatures of a decoder."""
    source = saved(TinyDecoder().model(), tmp_path)
    made = onnxtfl.onnx_to_tflite(source, check=False, dims={"batch": 1, "new": 1, "past": 5})
    assert made.data is not None
    report = onnxtfl.check(source, made.data)
    assert report.ok and not any("decoded" in note for note in report.notes), report.table()
    (tmp_path / "other.tflite").write_bytes(made.data)
    with pytest.raises(UnsupportedError, match="no signature decode with tokens, input_pos and mask"):
        check_generation(source, tmp_path / "other.tflite", Settings())


def test_time_is_limited(tmp_path: Path, workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "BUDGET", 0.0)
    source = saved(TinyDecoder().model(), tmp_path)
    report = checked(source, converted(source, (8,), 64), workers)
    assert report.ok and "no time for prompts of 8, 9, 10, 32 tokens" in report.notes
    report = checked(source, source.with_suffix(".tflite"), workers, patience=None)
    assert report.ok and len(report.outputs) == 5


def test_a_large_result(tmp_path: Path, workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "HEAVY", 1 << 10)
    source = saved(TinyDecoder().model(), tmp_path)
    report = checked(source, converted(source, (8,), 32), workers)
    assert report.ok and any(note.startswith("builtin kernels not compared") for note in report.notes)
    assert not any("builtin" in out.name for out in report.outputs)


ENTRIES = Entries((8, 32), 128, VOCABULARY, {}, False)


def test_pieces_of_a_prompt() -> None:
    assert ENTRIES.pieces(0) == []
    assert ENTRIES.pieces(7) == [("prefill_8", 8, 7)]
    assert ENTRIES.pieces(20) == [("prefill_32", 32, 20)]
    assert ENTRIES.pieces(70) == [("prefill_32", 32, 32), ("prefill_32", 32, 32), ("prefill_8", 8, 6)]
    assert ENTRIES.small_pieces(20) == [("prefill_8", 8, 8)] * 2
    assert replace(ENTRIES, prefill=()).pieces(20) == replace(ENTRIES, prefill=()).small_pieces(20) == []


def test_lengths_of_prompts() -> None:
    """Their last token is decoded, and 32 tokens follow."""
    assert ENTRIES.lengths([]) == [1, 8, 9, 10, 32, 33, 34, 96]
    assert ENTRIES.lengths([50, 1000]) == [1, 8, 9, 10, 32, 33, 34, 51, 96]
    assert replace(ENTRIES, context=40).lengths([]) == [1, 8]
