"""Tests a random model in a worker process: convert it, run both, compare; optionally convert the result back."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.fuzz.building import Builder
from tests.fuzz.graphs import random_graph
from tests.fuzz.recurrent_graphs import random_recurrent_graph
from tests.harness.child import stage
from tests.harness.compare import is_float, largest_error
from tests.harness.litert import Array, run_onnx, run_tflite

TIMEOUT = 60.0
_NOISE = 1e-6
_TINY = 1e-7
"""Absolute error that always passes."""
_MAX_TRIES = 200
"""Of a reduction."""
Inputs = dict[str, Array]

os.environ.setdefault("ONNXTFL_VERIFY", "1")  # the verifier runs after each pass


@dataclass(frozen=True)
class Trial:
    """A seed, the number of steps, whether the result is converted back as well, its layout, and the kind of ops."""

    seed: int
    size: int = 12
    back: bool = False
    io_layout: str = "source"
    recurrent: bool = False

    def graph(self) -> Builder:
        """The model under construction."""
        return (random_recurrent_graph if self.recurrent else random_graph)(self.seed, self.size)


@dataclass(frozen=True)
class Verdict:
    """The result of a trial.

    ``kind``: "passed", "refused" (an OnnxtflError), "wrong" (values, shapes), "bug" (any other exception), or "skipped"
    where ONNX Runtime cannot run the model. ``model``: the text of the part of the model that computes the first wrong
    output.
    """

    kind: str
    message: str = ""
    model: str = ""
    detail: str = ""


def attempt(trial: Trial) -> Verdict:
    """Test a random model, in the worker process."""
    graph = trial.graph()
    model = graph.model()
    sizes = {name: graph.types[name][1] for name in graph.inputs}
    feeds = [_inputs(model, sizes, trial.seed)]
    for grow in (1, 2, 5) if graph.symbols else ():
        other = {n: tuple(s + grow * ((n, i) in graph.symbols) for i, s in enumerate(d)) for n, d in sizes.items()}
        feeds.append(_inputs(model, other, trial.seed))
    return judge(model, feeds, trial)


def shrunk(trial: Trial) -> Verdict:
    """The verdict on a small model that fails in the same way, in the worker process."""
    first = attempt(trial)
    if first.kind in ("passed", "skipped"):
        return first
    for size in range(1, trial.size):
        if _same_failure(found := attempt(replace(trial, size=size)), first):
            trial, first = replace(trial, size=size), found
            break
    graph = trial.graph()
    feeds = _inputs(graph.model(), {name: graph.types[name][1] for name in graph.inputs}, trial.seed)
    return _reduced(graph.model(), feeds, trial, first)


def judge(model: onnx.ModelProto, feeds: Sequence[Inputs], trial: Trial) -> Verdict:
    """Convert and compare; models that ONNX Runtime cannot run on all the inputs are skipped."""
    import onnxtfl
    from onnxtfl.errors import InternalError, OnnxtflError

    stage("run source")
    runs: list[tuple[Inputs, dict[str, Array]]] = []
    for feed in feeds:
        try:
            runs.append((feed, run_onnx(model.SerializeToString(), feed)))
        except Exception as error:
            return Verdict("skipped", str(error))
        if not all(array.size for array in runs[-1][1].values()):
            return Verdict("skipped", "an output without elements")
    stage("convert")
    try:
        data = onnxtfl.onnx_to_tflite(model, check=False, io_layout=trial.io_layout).data
        assert isinstance(data, bytes)
        wrong = _check_tflite(model, data, runs, trial)
        return wrong or (_check_back(model, data, runs) if trial.back else Verdict("passed"))
    except OnnxtflError as error:
        kind = "bug" if isinstance(error, InternalError) else "refused"
        return Verdict(kind, str(error), text_of(model), traceback.format_exc())
    except Exception as error:
        return Verdict("bug", f"{type(error).__name__}: {error}", text_of(model), traceback.format_exc())


def _check_tflite(
    model: onnx.ModelProto, data: bytes, runs: Sequence[tuple[Inputs, dict[str, Array]]], trial: Trial
) -> Verdict | None:
    for inputs, expected in runs:
        for kernels in ("default", "builtin"):
            stage(f"run {kernels}")
            channels_last = trial.io_layout != "source"
            fed = _to_channels_last(data, inputs) if channels_last else inputs
            if fed is None:
                return None
            try:
                actual = dict(run_tflite(data, fed, kernels=kernels))
            except (RuntimeError, ValueError) as error:
                return Verdict("bug", f"LiteRT {kernels}: {str(error)[:300]}", text_of(model))
            if channels_last:
                actual = {n: _to_channels_first(a, expected[n]) for n, a in actual.items() if n in expected}
            if wrong := _difference(model, inputs, actual, expected):
                return Verdict("wrong", f"{kernels}: {wrong[1]}", ancestors(model, wrong[0]))
    return None


def _to_channels_last(data: bytes, inputs: Inputs) -> Inputs | None:
    """The inputs of a channels-last model; None where its shapes do not tell which ones are transposed."""
    from ai_edge_litert.interpreter import Interpreter

    details = Interpreter(model_content=data).get_signature_runner("serving_default").get_input_details()
    fed = {}
    for name, array in inputs.items():
        last = np.moveaxis(array, 1, -1) if array.ndim > 2 else array
        wanted = tuple(details[name]["shape_signature"])
        fits = [a for a in (array, last) if all(w in (-1, s) for w, s in zip(wanted, a.shape, strict=True))]
        if not fits or (len(fits) == 2 and last is not array and not np.array_equal(array.squeeze(), last.squeeze())):
            return None
        fed[name] = np.ascontiguousarray(fits[0])
    return fed


def _to_channels_first(actual: Array, expected: Array) -> Array:
    first = np.moveaxis(actual, -1, 1) if actual.ndim > 2 else actual
    fits = [a for a in (actual, first) if a.shape == expected.shape]
    return min(fits or [actual], key=lambda a: largest_error(a, expected))


def _check_back(model: onnx.ModelProto, data: bytes, runs: Sequence[tuple[Inputs, dict[str, Array]]]) -> Verdict:
    import onnxtfl

    stage("convert back")
    result = onnxtfl.tflite_to_onnx(data, check=False).data
    assert isinstance(result, bytes)
    onnx.checker.check_model(onnx.load_from_string(result), full_check=True)
    for inputs, expected in runs:
        stage("run back")
        names = {v.name for v in onnx.load_from_string(result).graph.input}
        actual = run_onnx(result, {name: array for name, array in inputs.items() if name in names})
        if wrong := _difference(model, inputs, actual, expected):
            return Verdict("wrong", "back: " + wrong[1], ancestors(model, wrong[0]))
    return Verdict("passed")


def _difference(
    model: onnx.ModelProto, inputs: Inputs, actual: dict[str, Array], expected: dict[str, Array]
) -> tuple[str, str] | None:
    """Name and description of the first output whose error is larger than the effect of noise on the inputs."""
    for name, wanted in expected.items():
        if name not in actual:
            return name, f"output {name} is missing"
        error = largest_error(actual[name], wanted)
        if not error <= 1 and not _is_noise(model, inputs, name, actual[name], wanted):
            shapes = f"{list(actual[name].shape)} and {list(wanted.shape)}"
            return name, f"output {name} has an error of {error:.3g} times the tolerance; shapes {shapes}"
    return None


def _is_noise(model: onnx.ModelProto, inputs: Inputs, name: str, actual: Array, expected: Array) -> bool:
    if actual.shape != expected.shape or not is_float(expected.dtype) or not np.isfinite(actual).all():
        return False
    effect = np.zeros(expected.shape)
    for seed in range(4):
        random = np.random.default_rng(seed)
        noisy = {n: _with_noise(random, a) for n, a in inputs.items()}
        effect = np.maximum(effect, np.abs(run_onnx(model.SerializeToString(), noisy)[name] - expected))
    return bool(np.abs(actual - expected).max() <= 20 * effect.max() + _TINY)


def _with_noise(random: np.random.Generator, array: Array) -> Array:
    if array.dtype.kind != "f":
        return array
    return (array * (1 + _NOISE * random.standard_normal(array.shape))).astype(array.dtype)


def _reduced(model: onnx.ModelProto, feeds: Inputs, trial: Trial, first: Verdict) -> Verdict:
    """Remove nodes (their results become inputs) and outputs while the model still fails in the same way."""
    best, tries = (model, feeds, first), 0
    progress = True
    while progress and tries < _MAX_TRIES:
        progress = False
        for smaller, fed in _smaller(best[0], best[1]):
            tries += 1
            verdict = judge(smaller, [fed], trial)
            if _same_failure(verdict, first):
                best, progress = (smaller, fed, verdict), True
                break
    return best[2]


def _same_failure(a: Verdict, b: Verdict) -> bool:
    return a.kind == b.kind and a.message.split()[:3] == b.message.split()[:3]


def _smaller(model: onnx.ModelProto, feeds: Inputs) -> list[tuple[onnx.ModelProto, Inputs]]:
    every = [name for node in model.graph.node for name in node.output if name]
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    del shown.graph.output[:]
    shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in every)
    try:
        values = run_onnx(shown.SerializeToString(), feeds)
    except Exception:
        return []
    found = []
    for output in model.graph.output if len(model.graph.output) > 1 else ():
        found.append(_part(model, feeds, values, set(), [output.name]))
    for node in model.graph.node:
        found.append(_part(model, feeds, values, set(node.output), [o.name for o in model.graph.output]))
    for node in model.graph.node:
        if not set(node.output) & {o.name for o in model.graph.output}:
            found.append(_part(model, feeds, values, set(), list(node.output)))
    return [
        (m, f)
        for m, f in found
        if 0 < len(m.graph.node) < len(model.graph.node) or len(m.graph.output) < len(model.graph.output)
    ]


def _part(
    model: onnx.ModelProto, feeds: Inputs, values: dict[str, Array], cut: set[str], outputs: list[str]
) -> tuple[onnx.ModelProto, Inputs]:
    known = {**feeds, **values}
    wanted, kept = set(outputs) - cut, []
    for node in reversed(model.graph.node):
        if wanted & set(node.output) - cut:
            wanted |= set(node.input)
            kept.append(node)
    weights = [t for t in model.graph.initializer if t.name in wanted]
    made = {name for node in kept for name in node.output} - cut
    fed = {name: known[name] for name in known if name in wanted - made - {t.name for t in weights}}
    declared = {v.name: v for v in model.graph.input}
    graph = helper.make_graph(
        list(reversed(kept)),
        "part",
        [declared.get(n) or _info(n, a) for n, a in fed.items()],
        [_info(n, known[n]) for n in outputs if n in made],
        weights,
    )
    part = helper.make_model(graph, opset_imports=model.opset_import, ir_version=8)
    return part, fed


def _info(name: str, array: Array) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def _inputs(model: onnx.ModelProto, sizes: dict[str, tuple[int, ...]], seed: int) -> Inputs:
    random = np.random.default_rng(seed)
    makers: dict[str, Callable[[tuple[int, ...]], Array]] = {
        "f": random.standard_normal,
        "i": lambda shape: random.integers(-3, 5, shape),
        "b": lambda shape: random.integers(0, 2, shape),
    }
    dtypes = {v.name: helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type) for v in model.graph.input}
    return {name: np.asarray(makers[dtypes[name].kind](shape)).astype(dtypes[name]) for name, shape in sizes.items()}


def text_of(model: onnx.ModelProto) -> str:
    """The text of a model."""
    names = [v.name for v in model.graph.output]
    return "\n".join([ancestors(model, *names), f"-> {', '.join(names)}"])


def ancestors(model: onnx.ModelProto, *outputs: str) -> str:
    """The text of the nodes that ``outputs`` depend on."""
    wanted, kept = set(outputs), []
    for node in reversed(model.graph.node):
        if wanted & set(node.output):
            wanted |= set(node.input)
            kept.append(node)
    lines = [onnx.printer.to_text(node) for node in reversed(kept)]
    lines += [_weight(t) for t in model.graph.initializer if t.name in wanted]
    opset = model.opset_import[0].version
    shown = [_declaration(v) for v in model.graph.input if v.name in wanted]
    return "\n".join([f"opset {opset}", *shown, *lines])


def _declaration(value: onnx.ValueInfoProto) -> str:
    tensor = value.type.tensor_type
    sizes = ", ".join(str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?" for d in tensor.shape.dim)
    return f"{helper.tensor_dtype_to_np_dtype(tensor.elem_type)}[{sizes}] {value.name}"


def _weight(tensor: onnx.TensorProto) -> str:
    array = numpy_helper.to_array(tensor)
    return f"{tensor.name} = {array.dtype}{list(array.shape)} {array.tolist() if array.size <= 8 else ''}"
