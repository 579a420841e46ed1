"""What a worker does with a random model: convert it, run both, compare; there and, where asked for, back."""

from __future__ import annotations

import traceback
from dataclasses import dataclass

import numpy as np
import onnx

from tests.fuzz.graphs import random_model
from tests.harness.child import stage
from tests.harness.compare import largest_error
from tests.harness.litert import Array, run_onnx, run_tflite

TIMEOUT = 60.0


@dataclass(frozen=True)
class Trial:
    """A seed, the number of steps, and whether the result is converted back as well."""

    seed: int
    size: int = 12
    back: bool = False
    io_layout: str = "source"


@dataclass(frozen=True)
class Verdict:
    """``kind``: "good", "refused" (a clean error), "wrong" (numbers, shapes), "bug" (any other exception).

    ``model``: the text of the model, cut to what is above the first output that is wrong.
    """

    kind: str
    message: str = ""
    model: str = ""
    detail: str = ""


def attempt(trial: Trial) -> Verdict:
    """Try a random model; in the child."""
    import onnxtfl
    from onnxtfl.errors import OnnxtflError

    model = random_model(trial.seed, trial.size)
    inputs = _inputs(model, trial.seed)
    stage("run source")
    expected = run_onnx(model.SerializeToString(), inputs)
    stage("convert")
    try:
        data = onnxtfl.onnx_to_tflite(model, check=False, io_layout=trial.io_layout).data
        assert isinstance(data, bytes)
        stage("run")
        if trial.io_layout == "source":
            wrong = _difference(dict(run_tflite(data, inputs)), expected)
            if wrong:
                return Verdict("wrong", wrong[1], _above(model, wrong[0]))
        return _back(model, data, inputs, expected) if trial.back else Verdict("good")
    except OnnxtflError as error:
        return Verdict("refused", str(error), onnx.printer.to_text(model))
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        return Verdict("bug", message, onnx.printer.to_text(model), traceback.format_exc())


def _back(model: onnx.ModelProto, data: bytes, inputs: dict[str, Array], expected: dict[str, Array]) -> Verdict:
    import onnxtfl

    stage("convert back")
    result = onnxtfl.tflite_to_onnx(data, check=False).data
    assert isinstance(result, bytes)
    stage("run back")
    onnx.checker.check_model(onnx.load_from_string(result), full_check=True)
    wrong = _difference(run_onnx(result, inputs), expected)
    return Verdict("wrong", "back: " + wrong[1], _above(model, wrong[0])) if wrong else Verdict("good")


def _difference(actual: dict[str, Array], expected: dict[str, Array]) -> tuple[str, str] | None:
    """Name and description of the first output that is wrong."""
    for name, wanted in expected.items():
        if name not in actual:
            return name, f"output {name} is missing"
        error = largest_error(actual[name], wanted)
        if not error <= 1:
            shapes = f"{list(actual[name].shape)} and {list(wanted.shape)}"
            return name, f"output {name} is off by {error:.3g} times what is allowed; shapes {shapes}"
    return None


def _inputs(model: onnx.ModelProto, seed: int) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    return {v.name: random.standard_normal(_shape(v)).astype(np.float32) for v in model.graph.input}


def _shape(value: onnx.ValueInfoProto) -> tuple[int, ...]:
    return tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)


def _above(model: onnx.ModelProto, output: str) -> str:
    """The text of the nodes that ``output`` depends on."""
    wanted, kept = {output}, []
    for node in reversed(model.graph.node):
        if wanted & set(node.output):
            wanted |= set(node.input)
            kept.append(node)
    small = {t.name: t for t in model.graph.initializer if t.name in wanted and np.prod(t.dims) <= 8}
    lines = [onnx.printer.to_text(node) for node in reversed(kept)]
    lines += [f"{name} = {onnx.numpy_helper.to_array(t).tolist()}" for name, t in small.items()]
    return "\n".join([*(f"{v.name}: {list(_shape(v))}" for v in model.graph.input if v.name in wanted), *lines])
