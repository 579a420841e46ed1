"""Parts of models: the ops between two tensors, as a file that computes what they compute in the whole model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, parser

from onnxtfl.checking.session import check_models
from onnxtfl.checking.settings import Settings
from onnxtfl.errors import UsageError
from onnxtfl.formats import files
from onnxtfl.runtimes import LITERT, ONNXRUNTIME
from onnxtfl.tracing.parts import prepare_source, save, write_part
from tests.harness.named import described, run_named
from tests.models.corpus import CORPUS
from tests.unit.tiny_models import onnx_model, saved, tflite_scale

FLOAT = TensorProto.FLOAT
X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
needs_corpus = pytest.mark.skipif(not CORPUS.exists(), reason=f"no corpus at {CORPUS} (ONNXTFL_CORPUS)")


Run = Callable[[Path, Any], dict[str, Any]]
"""Outputs by name of a file on inputs by name or in order."""


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with ONNXRUNTIME.worker() as onnx, LITERT.worker() as litert:
        running = {"onnx": (ONNXRUNTIME, onnx), "tflite": (LITERT, litert)}

        def one(path: Path, inputs: Any) -> dict[str, Any]:
            runtime, worker = running[files.sniff(path)]
            return run_named(runtime, path, inputs, worker=worker)

        yield one


def chain(tmp_path: Path) -> Path:
    """``y = -(2 relu(x))``, whose tensors inside have no types in the file."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Mul", ["a", "c"], ["b"]),
        helper.make_node("Neg", ["b"], ["y"]),
    ]
    spec = [("x", FLOAT, ["n", 3])], [("y", FLOAT, ["n", 3])]
    return saved(onnx_model(nodes, *spec, {"c": np.array(2, np.float32)}), tmp_path / "a.onnx")


def part_of(source: Path, inputs: list[str] | None, outputs: list[str] | None, **shapes: tuple[int, ...]) -> Path:
    target = source.with_name("part" + source.suffix)
    write_part(source, target, inputs, outputs, shapes)
    return target


def test_a_part_is_there_as_long_as_it_is_needed(tmp_path: Path) -> None:
    path = chain(tmp_path)
    with ExitStack() as stack:
        assert prepare_source(path, stack, None, None, {"x": (5, 3)}) == path
        part = prepare_source(path, stack, ["a"], ["b"], {})
        b = saved(tflite_scale(names=("a", "b")), tmp_path / "b.tflite")
        assert check_models(part, b, Settings(kernels=("default",))).ok
    assert not part.exists()


def test_a_part_takes_and_returns_what_is_asked_for(run: Run, tmp_path: Path) -> None:
    path = chain(tmp_path)
    np.testing.assert_array_equal(run(part_of(path, ["b"], ["y"]), [X])["y"], -X)
    assert list(run(part_of(path, None, ["y", "a"]), {"x": X})) == ["y", "a"]
    (spec,) = described(part_of(path, None, ["b"], x=(5, 3))).inputs
    assert spec.shape == (5, 3)
    (spec,) = described(part_of(path, ["b"], None, x=(5, 3))).inputs
    assert (spec.dtype, spec.shape) == ("float32", (5, 3))
    with pytest.raises(UsageError, match="no tensor 'q'"):
        part_of(path, ["q"], None)


def test_nothing_between(tmp_path: Path) -> None:
    scaled = saved(tflite_scale(names=("a", "b")), tmp_path / "m.tflite")
    assert [spec.name for spec in described(part_of(scaled, ["a"], ["a"])).outputs] == ["a"]


FUNCTIONS = """
<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
main (float[2, 3] x) => (float[2, 3] y) { [call] h = local.f (x) y = local.f (h) }
<domain: "local", opset_import: ["" : 21]>
f (a) => (c) { b = Neg (a) c = Exp (b) }
"""


def test_functions_are_inlined(run: Run, tmp_path: Path) -> None:
    path = saved(parser.parse_model(FUNCTIONS), tmp_path / "a.onnx")
    between = run(part_of(path, None, ["call/b"]), {"x": X})["call/b"]
    np.testing.assert_array_equal(between, -X)
    np.testing.assert_allclose(run(part_of(path, ["h"], None), [X])["y"], np.exp(-X), rtol=1e-6)


def test_a_model_in_memory(run: Run, tmp_path: Path) -> None:
    model = parser.parse_model(FUNCTIONS)
    path = save(model, tmp_path / "m.onnx")
    assert files.sniff(path) == "onnx"
    np.testing.assert_array_equal(run(path, [X])["y"], run(saved(model, tmp_path / "a.onnx"), [X])["y"])


@needs_corpus
@pytest.mark.parametrize("name", ["tflite2onnx/reshape-conv.float32", "coral/mobilenet_v1_0.25_128_quant"])
def test_two_halves_of_a_tflite_are_the_whole(run: Run, name: str, tmp_path: Path) -> None:
    whole, first, second = CORPUS / "tflite" / f"{name}.tflite", tmp_path / "first.tflite", tmp_path / "second.tflite"
    graph = files.read(whole).main
    assert graph.last is not None
    middle = [v.name or "" for v in graph.last.operands[:1] if v is not None]
    write_part(whole, first, None, middle, {})
    write_part(whole, second, middle, None, {})
    (spec,) = described(whole).inputs
    value = np.random.default_rng(0).integers(0, 99, graph.inputs[0].shape).astype(spec.dtype)
    (expected,), (got,) = run(whole, [value]).values(), run(second, run(first, [value])).values()
    np.testing.assert_array_equal(got, expected)


@needs_corpus
@pytest.mark.parametrize("name", ["resnet18_qdq_int8_sym_pertensor", "bert_tiny", "if_script", "t5_encoder_dynquant"])
def test_two_halves_of_an_onnx_model_are_the_whole(run: Run, name: str, tmp_path: Path) -> None:
    whole, first, second = CORPUS / "onnx" / name / "model.onnx", tmp_path / "first.onnx", tmp_path / "second.onnx"
    arrays = np.load(whole.with_name("io.npz"))
    inputs = {key[3:]: arrays[key] for key in arrays if key.startswith("in_")}
    last = files.read(whole).main.last
    assert last is not None
    middle = list(dict.fromkeys(v.name or "" for v in last.present_operands if not v.is_constant))
    end = last.results[0].name or ""
    write_part(whole, first, None, middle, {})
    write_part(whole, second, middle, [end], {})
    between = run(first, inputs)
    expected = run(whole, inputs)[end]
    np.testing.assert_allclose(run(second, between)[end], expected, rtol=1e-4, atol=1e-5)
