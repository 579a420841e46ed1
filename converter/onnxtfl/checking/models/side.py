"""One model of a check: its inputs and outputs, facts from its graph, and the process that runs it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from onnxtfl.checking.models.facts import Facts, analyze
from onnxtfl.checking.models.sequences import Slots, joined, slots_of, split
from onnxtfl.checking.models.states import Hidden, hidden, states_of
from onnxtfl.formats import files
from onnxtfl.formats.onnx.state_metadata import StateEntry
from onnxtfl.inputs.description import ModelInfo, describe
from onnxtfl.inputs.goals import Goal, goals_of
from onnxtfl.ir.data import PathLike
from onnxtfl.runtimes import Run, RunError, RunOptions, Worker
from onnxtfl.runtimes.profiles import ModelSummary
from onnxtfl.tracing.trace import InnerModel

if TYPE_CHECKING:
    from onnxtfl.evaluation import Precision
    from onnxtfl.ir.half import Excess

_COMPLEX = {"float32": "complex64", "float64": "complex128"}

WITHOUT_OPTIMIZATIONS = "without graph optimizations, which drop a Relu before QuantizeLinear to 4 bits or float8"
"""How a model with `Facts.dropped` ran."""
_EXCUSES = frozenset({"unavailable", "unsupported", "timeout", "memory"})
"""Kinds of `RunError` that are no evidence against the second model."""


@dataclass
class Side:
    """One of the two models: its inputs and outputs, the facts of its graph, and the process that runs it.

    ``states``: of an ONNX model, by its metadata; ``hidden``: those that the other model does not have as inputs.
    ``keeps_state``: whether the model keeps values from run to run. ``info`` is without hidden states. ``slots``: the
    model's own inputs and outputs, whose tensors are in `info`; None if there are no sequences. ``summary``: for the
    report. ``fed``: the inputs of the model itself in its last run. ``run_options``: fields of `RunOptions` that differ
    from those of the check. ``refused``: why the model does not run by default; ``way``: how it ran instead (see
    `fallbacks`). ``has_data_files``: whether weights are in other files. ``goals``: the goals of coverage.
    """

    info: ModelInfo
    facts: Facts
    worker: Worker | None
    states: list[StateEntry]
    keeps_state: bool
    summary: ModelSummary
    hidden: Hidden = field(default_factory=Hidden)
    slots: Slots | None = None
    run_options: dict[str, Any] = field(default_factory=dict)
    refused: RunError | None = None
    way: str = ""
    fed: Sequence[Any] | None = None
    has_data_files: bool = False
    goals: tuple[Goal, ...] = ()

    @classmethod
    def read(cls, path: PathLike, worker: Worker | None) -> Side:
        """Read the graph; weights stay in the file. Raises `InvalidModelError` and `UnsupportedError`."""
        from onnxtfl.pipeline import lifted_where_possible  # imported while the workers import their runtimes
        from onnxtfl.rewriting.lift import count_ops

        model = files.read(path)
        info = describe(Path(path), model)  # before the graph is changed
        summary = ModelSummary(os.fspath(path), info.format, files.bytes_on_disk(model, path), count_ops(model.main))
        graph = lifted_where_possible(model)
        side = cls(info, analyze(graph), worker, states_of(model, info), bool(graph.states), summary)
        side.has_data_files, side.goals = bool(model.data_files), goals_of(graph)
        if side.facts.dropped and info.format == "onnx":
            side.run_options, side.way = {"kernels": "builtin"}, WITHOUT_OPTIMIZATIONS
        return side

    def hide(self, others: Collection[str]) -> None:
        """Hide the states that are not among the inputs `others` of the other model."""
        self.hidden = hidden(self.info, self.states, others)
        self.info, self.keeps_state = self.hidden.visible(self.info), self.keeps_state or bool(self.hidden.initial)

    def run(self, values: Sequence[Any], options: RunOptions) -> list[Any]:
        """The outputs of one run; raises `RunError` and `MismatchError`."""
        return self.begin([values], options).result()[0]

    def begin(self, steps: Sequence[Sequence[Any]], options: RunOptions, worker: Worker | None = None) -> Begun:
        """Begin several consecutive runs, in the side's process or in ``worker``. Raises `RunError`."""
        worker = worker or self.worker
        assert worker is not None
        options = replace(options, **self.run_options)
        given = [self.given(values) for values in steps]
        self.fed = given[0]
        return Begun(self, worker.submit(self.info.path, given, options, self.hidden.feedback))

    def evaluated(self, values: Sequence[Any], time_limit: float) -> list[Any]:
        """The outputs as the ops of the model mean them; raises `OnnxtflError`, `MismatchError` and TimeoutError."""
        return self.simulated(values, None, time_limit)[0]

    def simulated(
        self, values: Sequence[Any], precision: Precision | None, time_limit: float
    ) -> tuple[list[Any], tuple[Excess, ...]]:
        """The outputs in a simulated arithmetic (None: that of the model's types), and the values that leave its range;
        raises as `evaluated` does.
        """
        from onnxtfl.evaluation import Evaluator

        evaluator = Evaluator(self.info.path, precision)
        found = split(self.slots, [*map(_as_pairs, evaluator.run(self.given(values), time_limit))])
        return [found[i] for i in self.hidden.outputs], evaluator.beyond

    def traced(self, values: Sequence[Any], options: RunOptions, folder: Path) -> InnerModel:
        """The tensors inside of the model for the visible inputs ``values``; parts are written to ``folder``."""
        assert self.worker is not None
        return InnerModel(self.info.path, self.info.format, self.worker, self.given(values), options, folder)

    def given(self, values: Sequence[Any]) -> list[Any]:
        """Return the model's inputs for ``values`` of the visible ones."""
        return joined(self.slots, self.hidden.given(self._as_complex(values)))

    def _as_complex(self, values: Sequence[Any]) -> list[Any]:
        """Convert pairs to the model's complex inputs."""
        pairs = zip(self.info.inputs, values, strict=True)
        return [
            np.ascontiguousarray(v).view(_COMPLEX[info.dtype])[..., 0] if info.is_complex else v for info, v in pairs
        ]

    def flatten(self, other: ModelInfo) -> None:
        """Replace sequences and optionals by the tensors that `other` has instead."""
        if all(info.kind == "tensor" for info in (*self.info.inputs, *self.info.outputs)):
            return
        inputs, in_infos = slots_of(self.info.inputs, other.inputs)
        outputs, out_infos = slots_of(self.info.outputs, other.outputs)
        self.slots = inputs, outputs
        self.info = replace(self.info, inputs=in_infos, outputs=out_infos)


def _as_pairs(output: Any) -> Any:
    """Convert complex numbers to floats with a trailing axis of 2; other arrays are unchanged."""
    if not isinstance(output, np.ndarray) or output.dtype.kind != "c":
        return output
    return np.stack([output.real, output.imag], axis=-1)


@dataclass
class Begun:
    """Runs of a model that have begun."""

    side: Side
    run: Run

    def result(self, time_limit: float | None = None) -> list[list[Any]]:
        """Wait for the outputs of each run; raises `RunError` and `MismatchError`. ``time_limit``: see `Run.result`."""
        found = [split(self.side.slots, [*map(_as_pairs, outputs)]) for outputs in self.run.result(time_limit)]
        return [[outputs[i] for i in self.side.hidden.outputs] for outputs in found]


@dataclass(frozen=True)
class FirstRun:
    """A run of the first model: its inputs, how each was chosen, and its outputs.

    ``again``: makes inputs of the same shapes from another seed, and says how. ``later``: for a model with state,
    inputs and outputs of the runs after it. ``seconds``: of all runs and of loading. ``begun``: the runs of the second
    model on the same inputs that began at the same time, by kernel set. ``elsewhere``: inputs of other sizes, and how
    they were chosen, if there are dynamic sizes. ``units``: inputs with dynamic sizes of 1, and whether only the batch
    is 1.
    """

    values: list[Any]
    choices: list[str]
    outputs: list[Any]
    again: Callable[[int], tuple[list[Any], list[str]]]
    later: list[tuple[list[Any], list[Any]]]
    seconds: float = 0.0
    begun: Mapping[str, Begun] = field(default_factory=dict)
    elsewhere: Iterator[tuple[list[Any], list[str]]] = field(default_factory=lambda: iter(()))
    units: Iterator[tuple[bool, list[Any], list[str]]] = field(default_factory=lambda: iter(()))

    @property
    def all_values(self) -> list[list[Any]]:
        """The inputs of this run and of those after it."""
        return [self.values, *(values for values, _ in self.later)]

    @property
    def all_outputs(self) -> list[list[Any]]:
        """The outputs of this run and of those after it."""
        return [self.outputs, *(outputs for _, outputs in self.later)]


def judged_refusal(first: Side, second: Side, error: RunError) -> tuple[Literal["failed", "not checked"], str]:
    """Status and message of a check whose second model does not run; the first one may refuse the same inputs."""
    if first.refused is not None and first.refused.kind == error.kind == "run":
        advice = "give some that they take (onnxtfl check --data)"
        return "not checked", f"both models refuse these inputs (the second: {error.message}); {advice}"
    is_open = any(not isinstance(size, int) for tensor in second.info.inputs for size in tensor.shape or ())
    advice = "; convert with the sizes that you use (--input-shape)" if is_open and error.kind == "run" else ""
    return "not checked" if error.kind in _EXCUSES else "failed", f"the second model does not run: {error}{advice}"
