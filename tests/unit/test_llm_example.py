"""The example of a language model: its training, its conversion, and the text that it generates."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest

from onnxtfl import llm
from onnxtfl.formats import files
from onnxtfl.llm.decoders import decoder_of
from onnxtfl.runtimes import ONNXRUNTIME

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "llm"
DECODER = EXAMPLE / "decoder.onnx"
STEPS = 40


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLE / f"{name}.py")
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


TRAINING, GENERATION = module("train_decoder"), module("generate")


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("llm") / "decoder.tflite"
    report = llm.convert(DECODER, path, prefill=(8, 32))
    assert report.check is not None and report.check.ok, report.table()
    yield path


def in_onnxruntime(text: str) -> str:
    """The text with the most likely characters after it."""
    graph = files.read(DECODER).main
    decoder = decoder_of(graph)
    names = {kind: getattr(decoder, kind) for kind in ("tokens", "attention", "positions", "logits")}
    caches = [(c.past, c.present, [1, TRAINING.GROUPS, 0, TRAINING.SIZE], c.axis) for c in decoder.caches]
    prompt = [TRAINING.TOKENS.index("<s>"), *map(TRAINING.TOKENS.index, text)]
    with ONNXRUNTIME.worker() as worker:
        plan = {"prompt": prompt, "steps": STEPS, "forced": None, "names": names, "caches": caches}
        tokens, _ = worker.generate(DECODER, plan)
    return text + "".join(TRAINING.TOKENS[token] for token in tokens)


@pytest.mark.parametrize("text", ["the cat", "a", "we drink tea and eat bread. the m"])
def test_the_same_text(text: str, result: Path) -> None:
    """After prompts of one piece of prefill, of none, and of two."""
    found = GENERATION.generate(str(result), text, STEPS)
    assert found == in_onnxruntime(text) and len(found) == len(text) + STEPS
    words = {word for sentence in TRAINING.SENTENCES for word in sentence.split()}
    assert set(found.split()[:-1]) <= words, found


def test_gradients() -> None:
    """The largest element of each parameter's gradient, against a difference of losses."""
    rng = np.random.default_rng(0)
    weights, ids = TRAINING.parameters(rng), TRAINING.samples(rng)[:2, :12]

    def loss() -> float:
        return float(TRAINING.cross_entropy(TRAINING.logits_of(weights, ids[:, :-1]), ids[:, 1:]).value)

    TRAINING.cross_entropy(TRAINING.logits_of(weights, ids[:, :-1]), ids[:, 1:]).backward()
    for name, weight in weights.items():
        place = np.unravel_index(np.abs(weight.gradient).argmax(), weight.value.shape)
        kept, losses = weight.value[place], []
        for change in (1e-5, -1e-5):
            weight.value[place] = kept + change
            losses.append(loss())
        weight.value[place] = kept
        assert weight.gradient[place] == pytest.approx((losses[0] - losses[1]) / 2e-5, rel=1e-4, abs=1e-7), name


def test_training() -> None:
    """A few steps lower the loss, and the model of the example is what the script exports."""
    weights, losses = TRAINING.train(25)
    assert losses[-1] < 0.9 * losses[0]
    model = TRAINING.Export(weights).model()
    stored = onnx.load(DECODER)
    assert list(model.graph.node) == list(stored.graph.node)
    assert [w.name for w in model.graph.initializer] == [w.name for w in stored.graph.initializer]
    assert DECODER.stat().st_size < 100_000
