"""Both models of a check simulated in float16, as GPUs and NPUs compute by default, on the inputs of the check."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np

from onnxtfl.checking.float16_report import SimulatedOutput, SimulatedRun, notes
from onnxtfl.checking.models.pair import Chosen, ModelPair
from onnxtfl.checking.pairing.interface import Pair, in_first_order, is_moved
from onnxtfl.checking.report import CheckReport, with_notes
from onnxtfl.errors import OnnxtflError
from onnxtfl.evaluation import Precision
from onnxtfl.inputs.description import MismatchError, TensorInfo
from onnxtfl.ir.data import Array
from onnxtfl.ir.half import Excess
from onnxtfl.ir.quantization import dequantize

SECONDS = 60.0
"""The most seconds for the simulation of a model."""
PRECISIONS: tuple[Precision, ...] = get_args(Precision)


def with_float16(
    report: CheckReport, models: ModelPair, values: Sequence[Any], expected: Sequence[Any], chosen: Chosen
) -> CheckReport:
    """The report with both models simulated in float16 on the inputs ``values``.

    ``expected``: the outputs of the first model in its runtime, the reference. A passed check fails if an output of the
    second model overflows in an arithmetic in which that of the first does not.
    """
    simulation = _Simulation(models, values, expected, chosen)
    runs = tuple(simulation.run(precision) for precision in PRECISIONS)
    report = with_notes(replace(report, float16=runs), *notes(runs))
    overflow = next((run.overflow for run in runs if run.overflow), "")
    return replace(report, status="failed", reason=overflow) if overflow and report.ok else report


@dataclass(frozen=True)
class _Simulation:
    models: ModelPair
    values: Sequence[Any]
    expected: Sequence[Any]
    chosen: Chosen

    def run(self, precision: Precision) -> SimulatedRun:
        """Both models in one arithmetic."""
        limit = min(SECONDS, self.models.settings.time_limit)
        a = _attempted(lambda: self.models.a.simulated(self.values, precision, limit))
        b = _attempted(
            lambda: self.models.b.simulated(self.models.fed_to_b(self.chosen, self.values), precision, limit)
        )
        which = (("source", a.problem), ("result", b.problem))
        note = ", ".join(f"the {name} was not simulated ({problem})" for name, problem in which if problem)
        outputs = () if b.problem else tuple(self._outputs(a, b))
        return SimulatedRun(precision, outputs, b.beyond, a.beyond, note)

    def _outputs(self, a: _Attempted, b: _Attempted) -> Iterator[SimulatedOutput]:
        for pair in self.models.outputs:
            info = self.models.a.info.outputs[pair.a]
            reference = _real(info, self.expected[pair.a])
            if reference is None or info.name in self.models.a.facts.drawn:
                continue
            source = None if a.problem else _real(info, a.outputs[pair.a])
            found = _real(self.models.b.info.outputs[pair.b], b.outputs[pair.b])
            ways = [] if found is None else list(self._in_the_layout_of(pair, reference, found))
            errors = (_error(reference, way) for way in ways)
            error = min((error for error in errors if error is not None), default=None)
            lost = None if source is None else _is_lost(reference, source)
            overflows = found is not None and _is_lost(reference, found)
            yield SimulatedOutput(
                info.name, error, None if source is None else _error(reference, source), overflows, lost
            )

    def _in_the_layout_of(self, pair: Pair, reference: Array, found: Array) -> Iterator[Array]:
        """Yield an output of the second model in each axis order in which it may match that of the first."""
        moved = any(map(is_moved, self.chosen))
        for way in self.models.tolerance.ways(pair, reference, found, moved):
            array = in_first_order(found, way)
            if array.shape == reference.shape:
                yield array


@dataclass(frozen=True)
class _Attempted:
    """The outputs of a simulation and the values beyond the range, or the reason why there are none."""

    outputs: Sequence[Any] = ()
    beyond: tuple[Excess, ...] = ()
    problem: str = ""


def _attempted(simulate: Callable[[], tuple[list[Any], tuple[Excess, ...]]]) -> _Attempted:
    try:
        return _Attempted(*simulate())
    except MemoryError:
        return _Attempted(problem="out of memory")
    except (OnnxtflError, MismatchError, TimeoutError) as error:
        return _Attempted(problem=str(error))


def _real(info: TensorInfo, value: Any) -> Array | None:
    """The real values of an output, in float64; None if it has none, or no element."""
    if not isinstance(value, np.ndarray) or not value.size:
        return None
    real = value if info.quantization is None else dequantize(value, info.quantization)
    return real.astype(np.float64) if real.dtype.kind == "f" or real.dtype.name == "bfloat16" else None


def _error(reference: Array, found: Array) -> float | None:
    """The largest error of finite elements, relative to the largest value; None if there are none."""
    finite = np.isfinite(reference) & np.isfinite(found)
    if not finite.any():
        return None
    largest = np.max(np.abs(reference), initial=0, where=np.isfinite(reference))
    error = np.max(np.abs(reference - found), initial=0, where=finite)
    return float(error / largest) if largest else float(error)


def _is_lost(reference: Array, found: Array) -> bool:
    """Whether more elements are infinite or NaN than in the reference."""
    return bool(np.isfinite(found).sum() < np.isfinite(reference).sum())
