"""Run the first model on the first sizes that it accepts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from onnxtfl.checking.inputs.making import InputMaker
from onnxtfl.checking.models.fallbacks import fallbacks
from onnxtfl.checking.models.pair import ModelPair
from onnxtfl.checking.models.side import Begun, FirstRun
from onnxtfl.checking.pairing.feeding import joined_infos
from onnxtfl.checking.pairing.interface import shape_text
from onnxtfl.checking.settings import Settings
from onnxtfl.inputs.description import TensorInfo
from onnxtfl.inputs.sizes import Shapes, check_fixed, requested, sized_by_name
from onnxtfl.runtimes import RunError


@dataclass
class Tried:
    """The sizes at which the first model did not run, with the errors; and runs with empty outputs."""

    shapes: list[Shapes] = field(default_factory=list)
    failures: list[RunError] = field(default_factory=list)
    empty: list[FirstRun] = field(default_factory=list)

    def in_words(self, infos: Sequence[TensorInfo], settings: Settings) -> str:
        """Describe the tried sizes, and how to set others; "" for static sizes."""
        is_conversion = bool(settings.tensors or settings.quantized_from)
        advice = f"give sizes that fit with {'--check-dim' if is_conversion else '--dim or --input-shape'}"
        asked = [f"{name}={size}" for name, size in settings.dims.items()]
        asked += [f"{name}:{shape_text(shape)}" for name, shape in settings.input_shapes.items()]
        if asked:
            return f"; it may not take the sizes that were asked for: {', '.join(asked)}; {advice}"
        if len(self.shapes) < 2:
            return ""
        first = "; ".join(f"{i.name}:{shape_text(s)}" for i, s in zip(infos, self.shapes[0], strict=True))
        return f" (tried {len(self.shapes)} times, first at {first}); {advice}"


def run_somehow(models: ModelPair, given: Mapping[str, Any], case: int, tried: Tried, stack: ExitStack) -> FirstRun:
    """Run the first model, with fallbacks if its runtime refuses it; ``case``: the number of the set of inputs.

    ``given``: the values of some inputs by name. Raises `RunError`, `MismatchError`, `UnknownInputError`.
    """
    try:
        return _run(models, given, case, tried)
    except RunError as error:
        for _ in fallbacks(models.a, error, stack):
            with suppress(RunError):
                return _run(models, given, case, Tried(tried.shapes))
        raise


def _run(models: ModelPair, given: Mapping[str, Any], case: int, tried: Tried) -> FirstRun:
    """Run the first model on the first sizes that it accepts, preferably such that no output is empty."""
    maker = _maker(models, case)
    tries = maker.shapes({name: array.shape for name, array in given.items()}, tried.failures)
    for shapes in tries:
        try:
            run = _run_at(models, partial(maker.make, shapes, given), is_first=not tried.failures and not tried.empty)
        except RunError as error:
            tried.failures.append(error)
            tried.shapes.append(shapes)
            if error.kind != "run":
                break
            continue
        if all(getattr(out, "size", 1) for out in run.outputs):
            elsewhere = maker.elsewhere(tries, run.values, given)
            return replace(run, elsewhere=elsewhere, units=maker.units(shapes, given))
        tried.empty.append(run)
    if not tried.empty:
        raise tried.failures[0]
    return tried.empty[0]


def _maker(models: ModelPair, case: int) -> InputMaker:
    a, b, settings = models.a.info, models.b.info, models.settings
    infos = joined_infos(a.inputs, b.inputs, models.inputs)
    names = {b.inputs[pair.b].name: infos[pair.a].name for pair in models.inputs}
    infos = sized_by_name(requested(infos, settings.input_shapes, names), settings.dims)
    if a.format == "onnx":
        check_fixed(a.inputs, settings.input_shapes, names)
    return InputMaker(models, infos, case)


def _run_at(models: ModelPair, again: Any, is_first: bool) -> FirstRun:
    """Run the first model on inputs from ``again``; in the first run, start the second model at the same time."""
    values, choices = again(0)
    later = [again(k)[0] for k in range(1, models.runs)]
    begun: dict[str, Begun] = {}
    keep = models.keep and not models.a.keeps_state
    first = models.a.begin([values, *later], replace(models.options, spare=models.spare, keep=keep))
    if models.together and is_first:
        begun = _begin_second(models, [values, *later])
    try:
        outputs, *others = first.result()
    except RunError:
        for unneeded in begun.values():
            unneeded.run.cancel()
        raise
    rest = list(zip(later, others, strict=False))  # fewer where the first run was slow
    return FirstRun(values, choices, outputs, again, rest, first.run.seconds, begun)


def _begin_second(models: ModelPair, values: Sequence[list[Any]]) -> dict[str, Begun]:
    """Start the second model on all kernel sets, if possible."""
    fed = [models.fed_to_b(models.chosen(0), one) for one in values]
    try:
        return {kernels: models.begin_b(kernels, fed) for kernels in models.kernels}
    except RunError:
        return {}
