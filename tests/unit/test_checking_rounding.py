"""Differences that the source's own rounding explains are accepted; others of the same size are not."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper, parser

from onnxtfl.checking.report import CheckReport
from onnxtfl.checking.session import check_models
from onnxtfl.checking.settings import Settings
from onnxtfl.metrics.noise import LIMIT, Noise, floor, measure
from tests.models.corpus import CORPUS
from tests.unit.tiny_models import onnx_model, saved

FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16
SIZE = 64


def compared(tmp_path: Path, a: ModelProto, b: ModelProto) -> CheckReport:
    return check_models(saved(a, tmp_path / "a.onnx"), saved(b, tmp_path / "b.onnx"), Settings())


def difference(size: float, wrong: float = 0.0) -> tuple[ModelProto, ModelProto]:
    """``y = x v - x w``, and ``y = x (v - w)``, where v and w differ by ``size``: what is left of two large values is
    mostly their rounding. The second is off by the part ``wrong``.
    """
    random = np.random.default_rng(0)
    v = random.standard_normal((SIZE, SIZE)).astype(np.float32)
    w = (v + size * random.standard_normal((SIZE, SIZE))).astype(np.float32)
    products = [helper.make_node("MatMul", ["x", name], [name + "x"]) for name in "vw"]
    both = [*products, helper.make_node("Sub", ["vx", "wx"], ["y"])]
    specs = [("x", FLOAT, (SIZE, SIZE))], [("y", FLOAT, (SIZE, SIZE))]
    one = helper.make_node("MatMul", ["x", "d"], ["y"])
    return onnx_model(both, *specs, {"v": v, "w": w}), onnx_model([one], *specs, {"d": (v - w) * np.float32(1 + wrong)})


def test_an_error_of_the_size_of_the_noise(tmp_path: Path) -> None:
    report = compared(tmp_path, *difference(6e-4))
    assert report.ok, report
    assert report.outputs[0].accepted_by == "rounding-noise"


def test_an_error_beyond_the_noise(tmp_path: Path) -> None:
    report = compared(tmp_path, *difference(6e-4, wrong=0.05))
    assert report.status == "failed"
    assert any("no noise explains" in judgment.reason for judgment in report.outputs[0].judgments)  # nor is it measured


def test_a_source_that_is_all_noise_excuses_nothing(tmp_path: Path) -> None:
    """Beyond ten times the tolerance no noise counts: such a net does not pass."""
    assert compared(tmp_path, *difference(2e-6)).status == "failed"


def test_noise_is_measured_on_the_source_alone() -> None:
    """One unit in the last place of 1 is 2**-23 or half of it; ten times the input has ten times the noise."""
    x = np.ones(100, np.float32)
    noise = measure(lambda values, kernels: [10 * values[0]], [x], [10 * x], None)[0]
    assert noise is not None
    assert noise.elements.max() == pytest.approx(10 * 2**-23, rel=0.3)
    assert measure(lambda values, kernels: [values[0]], [np.arange(3)], [np.arange(3)], None) == [None]


def test_the_noise_of_large_outputs_is_measured_in_little_memory() -> None:
    """One run of the source is in memory at a time, and what is computed of it is so in blocks."""
    x = np.ones(1 << 21, np.float32)
    tracemalloc.start()
    noise = measure(lambda values, kernels: [2 * values[0]], [x], [2 * x], None)[0]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert noise is not None and noise.typical > 0
    assert peak < 12 * x.nbytes


def explained(noise: Noise, error: float, allowed: Any) -> Any:
    """The error that noise explains where all elements are off by `error`."""
    return floor(noise.elements, noise.largest(error), allowed)


def test_few_elements_that_are_infinite_in_one_run_only() -> None:
    """They are judged by the tolerance's limit, all others by their own noise."""
    x = np.linspace(1, 2, 1000, dtype=np.float32)
    source = np.where(x > 1.999, np.float32(3e38), x)

    def run(values: Any, kernels: str) -> list[Any]:
        return [np.where(x > 1.999, np.float32(np.inf), x + np.float32(1e-6))]

    noise = measure(run, [x], [source], None)[0]
    assert noise is not None and 0 < noise.typical < 1e-5
    found = explained(noise, 1e-6, np.full(1000, 1e-3))
    assert found[-1] == pytest.approx(LIMIT * 1e-3) and found[0] < 1e-4
    assert measure(lambda values, kernels: [np.full(9, np.inf)], [x], [np.ones(9, np.float32)], None) == [None]


def test_few_large_errors_among_small_ones() -> None:
    """Where errors as a whole are of the size of the noise, any element may have the largest; else only its own."""
    noise = Noise(np.array([1e-6] * 99 + [1e-4]), 1e-5)
    allowed = np.full(100, 1.0)
    assert explained(noise, 1e-6, allowed).min() == pytest.approx(8e-4)
    assert explained(noise, 1e-3, allowed).min() == pytest.approx(8e-5)
    assert explained(noise, 1e-6, allowed * 1e-5).max() == pytest.approx(1e-4)


def of_ids(nodes: list[NodeProto], table: Any, constants: dict[str, Any] | None = None) -> ModelProto:
    """A model of token ids that looks up rows ``x`` of ``table`` for ``nodes``, which compute ``y``."""
    rows = helper.make_node("Gather", ["table", "ids"], ["x"])
    tensors = {"table": table, **(constants or {})}
    width = table.shape[1]
    return onnx_model([rows, *nodes], [("ids", TensorProto.INT64, (32,))], [("y", FLOAT, (32, width))], tensors)


@pytest.mark.parametrize("wrong", [0.0, 0.05])
def test_the_noise_of_a_model_of_token_ids(tmp_path: Path, wrong: float) -> None:
    """It has no float inputs: its tables and weights are changed by their rounding."""
    table = np.random.default_rng(1).standard_normal((SIZE, SIZE)).astype(np.float32)
    pair = difference(6e-4, wrong)
    constants = [{t.name: numpy_helper.to_array(t) for t in model.graph.initializer} for model in pair]
    models = [of_ids(list(model.graph.node), table, known) for model, known in zip(pair, constants, strict=True)]
    report = compared(tmp_path, *models)
    assert report.ok == (not wrong), report


def normalized(scale: float = 1.0, epsilon: float = 0.1, shift: float = 0.0) -> list[NodeProto]:
    """A LayerNormalization of ``x`` in ops that compute it accurately."""
    text = f"""{{
        m = ReduceMean <axes = [-1]> (x)
        d = Sub (x, m)
        again = ReduceMean <axes = [-1]> (d)
        e = Sub (d, again)
        s = Mul (e, e)
        v = ReduceMean <axes = [-1]> (s)
        eps = Constant <value_float = {epsilon}> ()
        ve = Add (v, eps)
        r = Sqrt (ve)
        n = Div (e, r)
        k = Constant <value_float = {scale}> ()
        nk = Mul (n, k)
        b = Constant <value_float = {shift}> ()
        y = Add (nk, b)
    }}"""
    head = '<ir_version: 8, opset_import: ["" : 17]> g (float[32, 768] x) => (float[32, 768] y)'
    return list(parser.parse_model(head + text).graph.node)


BROKEN = [{"scale": 1.02}, {"epsilon": 400.0}, {"shift": 0.05}]


@pytest.mark.parametrize("wrong", [{}, *BROKEN], ids=str)
def test_a_variance_that_is_the_difference_of_two_sums(tmp_path: Path, wrong: dict[str, float]) -> None:
    """ONNX Runtime takes it so, in float32: of a mean of 36,000 and a deviation of 82, 1 % of it is rounding."""
    random = np.random.default_rng(0)
    table = (36305 + 82 * random.standard_normal((SIZE, 768))).astype(np.float32)
    constants = {"one": np.ones(768, np.float32), "zeros": np.zeros((32, 768), np.float32)}
    names, domain = ["x", "zeros", "one"], "com.microsoft"
    layer = helper.make_node("SkipLayerNormalization", names, ["y"], domain=domain, epsilon=0.1)
    source = of_ids([layer], table, constants)
    source.opset_import.append(helper.make_opsetid(domain, 1))
    report = compared(tmp_path, source, of_ids(normalized(**wrong), table))
    assert report.ok == (not wrong), report
    assert wrong or report.outputs[0].accepted_by == "rounding-noise"


def shifted_in(type_: int, back: float = 100.0) -> ModelProto:
    """``y = (x + 100) - back``, the sum in ``type_``: in float16, x is rounded to multiples of 1/16."""
    nodes = [
        helper.make_node("Add", ["x", "a"], ["s"]),
        helper.make_node("Cast", ["s"], ["h"], to=type_),
        helper.make_node("Cast", ["h"], ["w"], to=FLOAT),
        helper.make_node("Sub", ["w", "b"], ["y"]),
    ]
    constants = {"a": np.array(100, np.float32), "b": np.array(back, np.float32)}
    return onnx_model(nodes, [("x", FLOAT, (SIZE, SIZE))], [("y", FLOAT, (SIZE, SIZE))], constants)


def test_a_source_in_float16_is_computed_in_float32(tmp_path: Path) -> None:
    report = compared(tmp_path, shifted_in(HALF), shifted_in(FLOAT))
    assert report.ok, report
    assert report.outputs[0].accepted_by == "float32-reference"


def test_an_error_that_is_smaller_than_the_rounding_of_float16(tmp_path: Path) -> None:
    """It is found all the same: the source is computed in float32 for the comparison."""
    assert compared(tmp_path, shifted_in(HALF), shifted_in(FLOAT, back=99.99)).status == "failed"


@pytest.mark.skipif(not CORPUS.exists(), reason=f"no corpus at {CORPUS} (ONNXTFL_CORPUS)")
def test_a_segmentation_model_in_float16() -> None:
    import onnxtfl

    conversion = onnxtfl.onnx_to_tflite(CORPUS / "onnx" / "segformer_b0_fp16" / "model.onnx", check="require")
    assert conversion.check is not None
    assert conversion.check.outputs[0].accepted_by == "float32-reference"
