"""Files that are read and written without conversion have the same outputs, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxtfl.checking.models.facts import Facts, analyze
from onnxtfl.formats import files
from onnxtfl.inputs.description import describe
from onnxtfl.inputs.generation import make_input
from onnxtfl.inputs.sizes import open_shapes
from onnxtfl.passes.canonical.inline import inline_functions
from onnxtfl.pipeline import lifted_where_possible
from onnxtfl.runtimes import LITERT, ONNXRUNTIME, RunError, RunOptions, Worker
from tests.models.corpus import CORPUS

pytestmark = pytest.mark.skipif(not CORPUS.exists(), reason=f"no corpus at {CORPUS} (ONNXTFL_CORPUS)")

MODELS = sorted([*CORPUS.glob("*/**/*.onnx"), *CORPUS.glob("*/**/*.tflite")])
OPTIONS = RunOptions(kernels="builtin", time_limit=60)
"""Without optimizers: that of ONNX Runtime does not fold initializers that are inputs too, so results may differ."""
INVALID = {"add_quantized", "add_quantized_int8"}
"""The float32 result of their uint8 ADD has scales, which only TFLite Micro accepts."""


@pytest.fixture(scope="module")
def workers() -> Iterator[dict[str, Worker]]:
    with ONNXRUNTIME.worker() as onnx, LITERT.worker() as litert:
        yield {"onnx": onnx, "tflite": litert}


def inputs_of(path: Path, facts: Facts) -> Iterator[list[Any]]:
    specs = describe(path, files.read(path)).inputs
    for shapes in open_shapes(specs, {}):
        yield [
            make_input(spec, shape, facts.ranges.get(spec.name), (0, k))[0]
            for k, (spec, shape) in enumerate(zip(specs, shapes, strict=True))
        ]


def first_run(worker: Worker, path: Path) -> tuple[list[Any], list[Any]]:
    """The first generated inputs on which the model runs, and its outputs."""
    for inputs in inputs_of(path, analyze(lifted_where_possible(files.read(path)))):
        try:
            return inputs, worker.run(path, inputs, OPTIONS)
        except RunError as error:
            reason = str(error)
    pytest.skip(f"the runtime does not run the file itself: {reason}")


@pytest.mark.parametrize("path", MODELS, ids=lambda path: str(path.relative_to(CORPUS)))
def test_the_same_outputs(path: Path, workers: dict[str, Worker], tmp_path: Path) -> None:
    if path.stem in INVALID:
        pytest.skip("an invalid file")
    model = files.read(path)
    before = describe(path, model)
    inline_functions(model)
    written = files.write(model, tmp_path / path.name)
    after = describe(path, files.read(written))
    assert after == before
    worker = workers[before.format]
    inputs, expected = first_run(worker, path)
    for a, b in zip(expected, worker.run(written, inputs, OPTIONS), strict=True):
        np.testing.assert_array_equal(a, b)
