"""Run two models on the same inputs and compare the outputs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from onnxtfl.checking.compare import Expectation, compare, flips
from onnxtfl.checking.describe import ModelInfo, TensorInfo, describe
from onnxtfl.checking.emulation import Distances, Run, alike, measure
from onnxtfl.checking.facts import SIGMOID_ERROR, Facts, analyze
from onnxtfl.checking.inputs import UnknownInputError, make_input, merge_user_inputs, numpy_type, open_shapes
from onnxtfl.checking.match import Layout, MismatchError, Pair, Permutation, is_moved, match, permutations
from onnxtfl.checking.op_by_op import OpCheck, RunnableModel, compare_ops, in_words
from onnxtfl.checking.report import CheckReport, InputUsed, OutputCheck
from onnxtfl.checking.sequences import Slots, flattened, joined, slots_of, split
from onnxtfl.checking.states import Hidden, hidden, states_of, worst
from onnxtfl.errors import OnnxtflError, RuntimeUnavailableError, UnsupportedError
from onnxtfl.formats import files
from onnxtfl.formats.onnx.state_metadata import StateEntry
from onnxtfl.ir.permutations import inverse
from onnxtfl.ir.quantization import UINT8_OFFSET, dequantize, quantize
from onnxtfl.ir.record import TensorEntry
from onnxtfl.passes.quantize import TOLERANCE
from onnxtfl.runtimes import RunError, RunOptions, Worker, runtime_for

T = TypeVar("T")
PathLike = str | os.PathLike[str]
_SHARE = 0.5
"""The time to measure distances on several inputs, over that of the check until then."""
EXCUSES = frozenset({"unavailable", "unsupported", "timeout", "memory"})
"""Kinds of `RunError` that say nothing about whether the second model is valid."""


@dataclass(frozen=True)
class Settings:
    """The options of a check.

    ``rtol``, ``atol``: ``|b - a| <= rtol |a| + atol max|a|`` for floats. ``seed``: of the inputs. ``time_limit``:
    seconds for each run. ``layout``: "auto" accepts channels-last against channels-first, "source" does not,
    "channels-last" expects it where the shapes leave a choice. ``input_shapes``: sizes for open dimensions.
    ``kernels``: the kernel sets on which a .tflite as the second model must agree; the first model runs on the first.
    ``tensors``: the record of the conversion of the first model to the second. ``levels``, ``within``: where only the
    second model is quantized, outputs may differ by ``within`` steps of their own, or of the largest value by
    ``levels``. ``steps``: how often models with state run, one run after the other (others: twice, where the second
    model is a .tflite; once with 1).
    """

    rtol: float = 1e-3
    atol: float = 1e-4
    seed: int = 0
    time_limit: float = 300.0
    layout: Layout = "auto"
    kernels: tuple[str, ...] = ("default", "builtin")
    input_shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    tensors: Sequence[TensorEntry] = ()
    levels: float | None = None
    within: float = 1.0
    steps: int = 3


def check_models(
    a: PathLike, b: PathLike, settings: Settings | None = None, inputs: Mapping[str, Any] | None = None
) -> CheckReport:
    """Compare the .onnx or .tflite model ``b`` with ``a``, the reference.

    ``inputs``: arrays by ``a``'s names, for some or all inputs; the rest are generated. Returns a report in any case
    where both files can be read; raises `InvalidModelError`, and `UsageError` for an unknown input name.
    """
    started = time.perf_counter()
    settings = settings or Settings()
    with ExitStack() as stack:
        try:
            report = _Check(a, b, settings, stack).report(inputs)
        except UnsupportedError as error:  # a kind of value, or an op, that the readers do not know
            report = CheckReport("not checked", str(error))
    seconds = time.perf_counter() - started
    return replace(report, rtol=settings.rtol, atol=settings.atol, seed=settings.seed, seconds=seconds)


@dataclass
class _Side:
    """One of the two models: its inputs and outputs, the facts of its graph, and the process that runs it.

    ``states``: of an ONNX model, by its metadata; ``hidden``: those that the other model does not have as inputs.
    ``keeps_state``: whether the model keeps values from run to run. ``info`` is without hidden states.
    ``slots``: the model's own inputs and outputs, of which those in `info` are the tensors; None while these are the
    same.
    """

    info: ModelInfo
    facts: Facts
    worker: Worker | None
    states: list[StateEntry]
    keeps_state: bool
    hidden: Hidden = field(default_factory=Hidden)
    slots: Slots | None = None

    @classmethod
    def read(cls, path: PathLike, worker: Worker | None) -> _Side:
        """Read the graph; weights stay in the file. Raises `InvalidModelError` and `UnsupportedError`."""
        from onnxtfl.pipeline import lifted_where_possible  # imported while the workers import their runtimes

        model = files.read(path)
        info = describe(Path(path), model)  # before the graph is changed
        graph = lifted_where_possible(model)
        return cls(info, analyze(graph), worker, states_of(model, info), bool(graph.states))

    def hide(self, others: Collection[str]) -> None:
        """Hide the states that are none of the inputs `others` of the other model."""
        self.hidden = hidden(self.info, self.states, others)
        self.info, self.keeps_state = self.hidden.visible(self.info), self.keeps_state or bool(self.hidden.initial)

    def run(self, values: Sequence[Any], options: RunOptions) -> list[Any]:
        """The outputs of one run; raises `RunError` and `MismatchError`."""
        return self.run_steps([values], options)[0]

    def run_steps(self, steps: Sequence[Sequence[Any]], options: RunOptions) -> list[list[Any]]:
        """The outputs of several runs, one after the other."""
        assert self.worker is not None
        given = [joined(self.slots, self.hidden.given(values)) for values in steps]
        runs = self.worker.run_steps(self.info.path, given, options, self.hidden.feedback)
        tensors = [split(self.slots, outputs) for outputs in runs]
        return [[outputs[i] for i in self.hidden.outputs] for outputs in tensors]

    def flatten(self, other: ModelInfo) -> None:
        """Replace sequences and optionals by the tensors that `other` has in their place."""
        if all(info.kind == "tensor" for info in (*self.info.inputs, *self.info.outputs)):
            return
        inputs, in_infos = slots_of(self.info.inputs, other.inputs)
        outputs, out_infos = slots_of(self.info.outputs, other.outputs)
        self.slots = inputs, outputs
        self.info = replace(self.info, inputs=in_infos, outputs=out_infos)


@dataclass
class _Run:
    """A run of the first model: its inputs, how each was chosen, and its outputs.

    ``again``: makes inputs, and says how, of the same shapes from another seed. ``later``: inputs and outputs of the
    runs after it, of a model with state.
    """

    values: list[Any]
    choices: list[str]
    outputs: list[Any]
    again: Callable[[int], tuple[list[Any], list[str]]]
    later: list[tuple[list[Any], list[Any]]]


class _Check:
    """`pairs`, `out_pairs`: inputs and outputs of both models; `done`: the run of the first model."""

    pairs: list[Pair]
    out_pairs: list[Pair]
    done: _Run

    def __init__(self, a: PathLike, b: PathLike, settings: Settings, stack: ExitStack) -> None:
        self.started = time.perf_counter()
        self.settings = settings
        self.options = RunOptions(settings.kernels[0], settings.time_limit)
        self.runtimes: list[str] = []
        self.problem = ""
        workers = [self._start(path, stack) for path in (a, b)]  # their imports run while the graphs are read
        self.a, self.b = _Side.read(a, workers[0]), _Side.read(b, workers[1])
        self.a.flatten(self.b.info)
        self.b.flatten(self.a.info)
        names = [{spec.name for spec in side.info.inputs} for side in (self.a, self.b)]
        self.a.hide(names[1])
        self.b.hide(names[0])

    def _start(self, path: PathLike, stack: ExitStack) -> Worker | None:
        try:
            runtime = runtime_for(files.sniff(path))
            worker = stack.enter_context(runtime.worker())
            worker.start()
        except RuntimeUnavailableError as error:
            self.problem = self.problem or str(error)
            return None
        self.runtimes.append(f"{runtime.name} {runtime.version()}")
        return worker

    def report(self, given: Mapping[str, Any] | None) -> CheckReport:
        """The report, without the settings; where the shapes leave the layout open, of each layout until one agrees."""
        given = flattened(self.a.slots, self.a.info.inputs, given or {})
        arrays = merge_user_inputs([info.name for info in self.a.info.inputs], given)
        if self.problem:
            return self._result("not checked", self.problem)
        try:
            self.pairs = self._match_inputs()
            self.out_pairs = match(self.a.info.outputs, self.b.info.outputs, "output", self.settings.layout)
            self.done = self._run_a(arrays)
        except MismatchError as error:
            return self._result("failed", str(error))
        except UnknownInputError as error:
            return self._result("not checked", str(error))
        except RunError as error:
            return self._result("not checked", f"the first model does not run: {error}")
        attempts = max((len(pair.permutations) for pair in self.pairs), default=1)
        return _first(map(self._run_b, range(attempts)), lambda report: report.status != "failed")

    def _match_inputs(self) -> list[Pair]:
        """Pair the inputs; where the shapes prove that one was permuted, permuted ones come first for all others."""
        a, b = self.a.info.inputs, self.b.info.inputs
        pairs = match(a, b, "input", self.settings.layout)
        if self.settings.layout == "auto" and any(pair.moved for pair in pairs):
            pairs = match(a, b, "input", "channels-last")
        return pairs

    def _run_a(self, given: Mapping[str, Any]) -> _Run:
        """Run the first model on the first sizes that it accepts, preferably such that no output is empty."""
        infos = _joined(self.a.info.inputs, self.b.info.inputs, self.pairs)
        fixed = {**self.settings.input_shapes, **{name: array.shape for name, array in given.items()}}
        failures, empty = list[RunError](), list[_Run]()
        for shapes in open_shapes(infos, fixed):
            again = partial(self._make_inputs, infos, shapes, given)
            values, choices = again(self.settings.seed)
            later = [
                again(self.settings.seed + k)[0] for k in range(1, self.settings.steps if self.a.keeps_state else 1)
            ]
            try:
                outputs, *others = self.a.run_steps([values, *later], self.options)
                run = _Run(values, choices, outputs, again, list(zip(later, others, strict=True)))
            except RunError as error:
                failures.append(error)
                if error.kind != "run":
                    break
                continue
            if all(getattr(out, "size", 1) for out in run.outputs):
                return run
            empty.append(run)
        if not empty:
            raise failures[0]
        return empty[0]

    def _make_inputs(
        self, infos: Sequence[TensorInfo], shapes: list[tuple[int, ...]], given: Mapping[str, Any], seed: int
    ) -> tuple[list[Any], list[str]]:
        values, choices = [], []
        for k, (info, shape) in enumerate(zip(infos, shapes, strict=True)):
            other = self.b.info.inputs[self.pairs[k].b]
            if info.name in given:
                value, choice = given[info.name].astype(numpy_type(info.dtype), copy=False), "given"
            else:
                known = self.a.facts.ranges.get(info.name) or self.b.facts.ranges.get(other.name)
                value, choice = make_input(info, shape, known, (seed, k))
                value = _agreeable(value, info, other)
            values.append(value)
            choices.append(choice)
        return values, choices

    def _run_b(self, attempt: int) -> CheckReport:
        """Run the second model on the inputs of the first and compare.

        Returns the report of the main kernel set, or of the first other one that disagrees.
        """
        chosen = [pair.permutations[min(attempt, len(pair.permutations) - 1)] for pair in self.pairs]
        used = tuple(map(self._used, self.pairs, chosen, self.done.values, self.done.choices))
        fed = self._inputs_of_b(chosen, self.done.values)
        first, *others = self.settings.kernels
        report = self._second_look(self._run_kernels(first, chosen, fed, used), first, chosen)
        if not report.ok or self.b.info.format != "tflite":
            return report
        for kernels in others:
            other = self._second_look(self._run_kernels(kernels, chosen, fed, used), kernels, chosen)
            if other.status == "failed":
                return replace(other, reason=f"with the {kernels} kernels: {other.reason}")
            if len(other.notes) > len(report.notes):
                report = replace(other, notes=tuple(f"with the {kernels} kernels: {note}" for note in other.notes))
            if not other.ok:
                report = replace(report, notes=(*report.notes, f"{kernels} kernels not checked: {other.reason}"))
        return report

    def _second_look(self, report: CheckReport, kernels: str, chosen: list[Permutation]) -> CheckReport:
        """Judge quantized models whose outputs differ op by op, and by how far they are from ONNX Runtime's emulation.

        They pass if all ops agree; where ops cannot be compared, if they are no further than its integer kernels are.
        """
        formats = [self.a.info.format, self.b.info.format]
        quantized = self.a.facts.quantized and self.b.facts.quantized and len(set(formats)) == 2
        comparable = all(spec.ok for spec in report.inputs) and all(out.max_abs is not None for out in report.outputs)
        if report.status != "failed" or not report.outputs or not quantized or not comparable:
            return report
        sides = (self.a, self.b) if formats[0] == "onnx" else (self.b, self.a)
        try:
            ops = self._op_by_op(sides, kernels, chosen)
            distances = self._distances(sides, kernels, chosen)
        except OnnxtflError as error:
            return replace(report, notes=(*report.notes, f"not compared op by op: {error}"))
        notes = ([in_words(ops)] if ops else []) + list(map(str, distances))
        checks = [op.check for op in ops] if ops else distances
        if not checks or not all(check.ok for check in checks):
            return replace(report, notes=(*report.notes, *notes))
        how = "each op agrees" if ops else "no further from ONNX Runtime's float emulation than its integer kernels"
        outputs = tuple(
            replace(out, ok=True, message="", note=out.note or "differences add up") for out in report.outputs
        )
        return replace(report, status="passed", reason="", outputs=outputs, notes=(f"accepted: {how}", *notes))

    def _op_by_op(self, sides: tuple[_Side, _Side], kernels: str, chosen: list[Permutation]) -> list[OpCheck] | None:
        values = {
            id(self.a): self.a.hidden.given(self.done.values),
            id(self.b): self.b.hidden.given(self._inputs_of_b(chosen, self.done.values)),
        }
        onnx, tflite = (RunnableModel(s.info.path, s.worker, values[id(s)]) for s in sides if s.worker is not None)
        expect, options = Expectation(self.settings.rtol, self._atol), replace(self.options, kernels=kernels)
        return compare_ops(onnx, tflite, self.settings.tensors, sides[0] is self.a, options, expect)

    def _distances(self, sides: tuple[_Side, _Side], kernels: str, chosen: list[Permutation]) -> list[Distances]:
        """How far the outputs are from the emulation; nothing if there are others than real and quantized ones."""
        onnx, tflite = sides
        if not all(info.dtype.startswith("float") or info.quantization for info in tflite.info.outputs):
            return []

        def run(number: int) -> Run:
            values, _ = self.done.again(self.settings.seed + number)
            fed = {id(self.a): values, id(self.b): self._inputs_of_b(chosen, values)}
            runs = ((onnx, "builtin"), (onnx, "default"), (tflite, kernels))
            return self._aligned(sides, [side.run(fed[id(side)], replace(self.options, kernels=k)) for side, k in runs])

        names = [self.a.info.outputs[pair.a].name for pair in self.out_pairs]
        return measure(names, run, _SHARE * (time.perf_counter() - self.started))

    def _aligned(self, sides: tuple[_Side, _Side], runs: list[list[Any]]) -> Run:
        """The outputs of emulation, integer kernels and TFLite as real numbers, in the order of the first model."""
        found: Run = []
        for pair in self.out_pairs:
            i, j = (pair.a, pair.b) if sides[0] is self.a else (pair.b, pair.a)
            emulated, integer, other = runs[0][i], runs[1][i], runs[2][j]
            q = sides[1].info.outputs[j].quantization if other.dtype.kind in "iu" else None
            stored = (emulated, integer, other)
            found.append(alike(*(dequantize(v, q) if q is not None and v.dtype == other.dtype else v for v in stored)))
        return found

    def _inputs_of_b(self, chosen: list[Permutation], values: Sequence[Any]) -> list[Any]:
        result: list[Any] = [None] * len(self.pairs)
        for pair, permutation, value in zip(self.pairs, chosen, values, strict=True):
            moved = value.transpose(permutation) if is_moved(permutation) else value
            result[pair.b] = _as_type(moved, self.a.info.inputs[pair.a], self.b.info.inputs[pair.b])
        return result

    def _used(self, pair: Pair, permutation: Permutation, value: Any, choice: str) -> InputUsed:
        """How an input is fed, and whether the second model has the expected type for it."""
        a, b = self.a.info.inputs[pair.a], self.b.info.inputs[pair.b]
        notes = [f"axes {list(permutation)}"] if is_moved(permutation) else []
        notes += [f"{a.dtype} became {b.dtype}"] if a.dtype != b.dtype else []
        kept, moved = _dtype_kept(a, b), is_moved(permutation)
        return InputUsed(a.name, a.dtype, tuple(value.shape), choice, ", ".join(notes), kept, moved)

    def _run_kernels(
        self, kernels: str, chosen: list[Permutation], fed: list[Any], used: tuple[InputUsed, ...]
    ) -> CheckReport:
        steps = [(fed, self.done.outputs)]
        steps += [(self._inputs_of_b(chosen, values), outputs) for values, outputs in self.done.later]
        if not self.done.later and self.b.info.format == "tflite":  # the results of all runs are the same
            steps *= min(self.settings.steps, max(2, self.settings.steps if self.b.keeps_state else 0))
        try:
            got = self.b.run_steps([values for values, _ in steps], replace(self.options, kernels=kernels))
        except RunError as error:
            status = "not checked" if error.kind in EXCUSES else "failed"
            return self._result(status, f"the second model does not run: {error}", used)
        except MismatchError as error:
            return self._result("failed", str(error), used)
        moved = any(spec.moved for spec in used)
        runs = [(expected, found) for (_, expected), found in zip(steps, got, strict=True)]
        outputs = tuple(
            worst([self._compare_output(pair, expected[pair.a], found[pair.b], moved) for expected, found in runs])
            for pair in self.out_pairs
        )
        wrong = [f"input {spec.name!r}: {spec.note}" for spec in used if not spec.ok]
        wrong += [f"output {out.name!r}: {out.message}" for out in outputs if not out.ok]
        report = self._result("failed" if wrong else "passed", wrong[0] if wrong else "", used, outputs)
        return replace(report, runs=len(runs))

    def _compare_output(self, pair: Pair, expected: Any, got: Any, moved: bool) -> OutputCheck:
        """Compare one output; another layout is allowed where the shape proves it or inputs are permuted too."""
        a, b = self.a.info.outputs[pair.a], self.b.info.outputs[pair.b]
        expect = self._expectation(a, b)
        if isinstance(expected, list) or isinstance(got, list) or expected is None or got is None:
            return compare(a.name, expected, got, expect)
        layout = self.settings.layout
        ways = permutations(tuple(expected.shape), tuple(got.shape), layout) or [tuple(range(expected.ndim))]
        if not moved and layout == "auto":
            ways = ways[:1]
        result = _first((_compare_moved(a.name, expected, got, expect, way) for way in ways), lambda result: result.ok)
        return result if result.ok else self._excuse(a, expected, got, result)

    def _excuse(self, a: TensorInfo, expected: Any, got: Any, result: OutputCheck) -> OutputCheck:
        """Accept positions chosen differently where the elements that they point to are nearly equal."""
        selection = self.a.facts.selections.get(a.name)
        if selection is None or expected.dtype != got.dtype or expected.dtype.kind not in "iu":
            return result
        from onnxtfl.checking.part import tensor_inside

        assert self.a.worker is not None
        try:
            given = self.a.hidden.given(self.done.values)
            data = tensor_inside(self.a.info.path, selection.data, self.a.worker, given, self.options)
        except OnnxtflError:
            return result
        count = flips(data, selection, expected, got, self.settings.rtol, self.settings.atol)
        note = f"{count} positions differ where elements are nearly equal"
        return result if count is None else replace(result, ok=True, message="", note=note)

    @property
    def _atol(self) -> float:
        """The absolute tolerance, at least that of kernels that quantize activations."""
        return max(self.settings.atol, TOLERANCE if self.a.info.hybrid or self.b.info.hybrid else 0.0)

    def _expectation(self, a: TensorInfo, b: TensorInfo) -> Expectation:
        step = self.a.facts.steps.get(a.name) or self.b.facts.steps.get(b.name)
        drawn = a.name in self.a.facts.drawn or b.name in self.b.facts.drawn
        tolerances = (self.settings.rtol, self._atol)
        quantizations = (a.quantization, b.quantization)
        least = SIGMOID_ERROR if a.name in self.a.facts.sigmoids or b.name in self.b.facts.sigmoids else 0.0
        return Expectation(*tolerances, step, drawn, *quantizations, self.settings.within, self.settings.levels, least)

    def _result(
        self, status: Any, reason: str, used: tuple[InputUsed, ...] = (), outputs: tuple[OutputCheck, ...] = ()
    ) -> CheckReport:
        return CheckReport(status, reason, used, outputs, runtimes=tuple(self.runtimes))


def _first(results: Iterable[T], good: Callable[[T], bool]) -> T:
    """The first good one of `results`, else the first one."""
    tried: list[T] = []
    for result in results:
        if good(result):
            return result
        tried.append(result)
    return tried[0]


def _compare_moved(name: str, expected: Any, got: Any, expect: Expectation, way: Permutation) -> OutputCheck:
    """Compare an output with the permuted one of the second model."""
    if not is_moved(way):
        return compare(name, expected, got, expect)
    result = compare(name, expected, got.transpose(inverse(way)), expect)
    return replace(result, note=", ".join(part for part in (result.note, f"axes {list(way)}") if part))


def _joined(a: Sequence[TensorInfo], b: Sequence[TensorInfo], pairs: Sequence[Pair]) -> list[TensorInfo]:
    """Return ``a`` with the sizes that only ``b`` knows; a symbol of ``a`` gets its size wherever it occurs."""
    symbols: dict[Any, int] = {}
    sized: dict[tuple[int, int], int] = {}
    for pair in pairs:
        dims_a, dims_b = a[pair.a].shape, b[pair.b].shape
        for k, axis in enumerate(pair.permutations[0] if dims_a and dims_b else ()):
            size = dims_b[k] if dims_b else None
            if isinstance(size, int) and dims_a and not isinstance(dims_a[axis], int):
                sized[pair.a, axis] = size
                if dims_a[axis] is not None:
                    symbols.setdefault(dims_a[axis], size)
    return [_sized(info, i, sized, symbols, b[pairs[i].b]) for i, info in enumerate(a)]


def _sized(
    info: TensorInfo, i: int, sized: Mapping[tuple[int, int], int], symbols: Mapping[Any, int], other: TensorInfo
) -> TensorInfo:
    if info.shape is None:
        return replace(info, shape=other.shape)
    dims = [sized.get((i, axis), symbols.get(dim, dim)) for axis, dim in enumerate(info.shape)]
    return replace(info, shape=tuple(dims))


def _agreeable(value: Any, a: TensorInfo, b: TensorInfo) -> Any:
    """Return generated values rounded to the narrower of the two float types, so that both models get the same."""
    if value.dtype.kind != "f" or a.dtype == b.dtype or not b.dtype.startswith("float"):
        return value
    return value.astype(numpy_type(b.dtype)).astype(value.dtype)


def _as_type(value: Any, a: TensorInfo, b: TensorInfo) -> Any:
    """Return an input of the first model in the element type of the second."""
    if a.dtype == b.dtype or "string" in (a.dtype, b.dtype):
        return value
    if b.quantization is not None and a.dtype.startswith("float"):
        return quantize(value, b.quantization)
    if {a.dtype, b.dtype} == {"int8", "uint8"}:  # the same real values
        offset = -UINT8_OFFSET if b.dtype == "int8" else UINT8_OFFSET
        return (value.astype("int16") + offset).astype(numpy_type(b.dtype))
    if a.quantization is not None and b.dtype.startswith("float"):
        return dequantize(value, a.quantization)
    return value.astype(numpy_type(b.dtype))


def _dtype_kept(a: TensorInfo, b: TensorInfo) -> bool:
    """Whether the dtype is the same, or float64 narrowed, or a float quantized, or 8 bits stored with another sign."""
    floats = {a.dtype, b.dtype} == {"float32", "float64"}
    quantized = (a.quantization is None) != (b.quantization is None) and "float32" in (a.dtype, b.dtype)
    shifted = {a.dtype, b.dtype} == {"int8", "uint8"} and (a.quantization or b.quantization) is not None
    return a.dtype == b.dtype or floats or quantized or shifted
