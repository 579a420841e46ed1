"""The report of a check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from onnxtfl.checking.evidence import Judgment, Verdict
from onnxtfl.checking.float16_report import SimulatedRun
from onnxtfl.checking.localize.layers import FirstDifference, LayerError
from onnxtfl.inputs.goals import Goal
from onnxtfl.runtimes.profiles import ModelSummary, Profile, SpeedChange
from onnxtfl.tables import WIDTH, Row, as_html, as_text, shape

Status = Literal["passed", "failed", "not checked"]
SHOWN_BIAS = 0.005
"""Smaller mean errors, in steps, are not shown."""
BY_VALUE = ("", "tolerance", "quantization-steps")
"""Criteria that only compare the outputs with each other."""


@dataclass(frozen=True)
class InputUsed:
    """An input of both models, with a description of its ``values``.

    ``note``: what differs between the two (layout, dtype); ``ok`` is False where that counts as a mismatch;
    ``moved``: the second model has its axes in another order.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    values: str
    note: str = ""
    ok: bool = True
    moved: bool = False

    def in_words(self, verbose: bool) -> str:
        """One line: the name and how the models differ; ``verbose``: also type, shape and values."""
        used = f"{self.name}  {self.dtype} {shape(self.shape)}: {self.values}" if verbose else self.name
        return f"{used}  {self.note}".rstrip()


@dataclass(frozen=True)
class OutputCheck:
    """One output of both models. ``dtype`` and ``shape`` are the first model's.

    ``max_abs``: the largest ``|b - a|``. ``max_rel``: the largest ``|b - a| / max(|a|, 0.001 max|a|)``, whose lower
    bound keeps elements near zero from dominating. Both are 0.0 if all elements are equal, None if there is nothing to
    subtract (strings, different shapes). ``message`` says in one line why ``ok`` is False; ``note`` has further
    information.

    If the values are multiples of a quantization step: ``step`` (1.0 for integers); ``steps``: the largest difference
    in steps; ``share``: the share of the elements that differ by at most ``within`` steps, and ``bias``: the signed
    mean error in steps, of the channel with the largest one beyond chance; ``biased``: whether that alone is why ``ok``
    is False.

    ``run``: of several consecutive runs, the number of the one in which it differs; None for the first. ``compared``:
    False where nothing could be compared: no element, no finite value, or only random values. ``drawn``: whether it
    depends on random values. ``judgments``: the judgments of the criteria, in their order; ``accepted_by``: the
    criterion that accepts the output. ``metrics``: the requested ones, by name.
    """

    name: str
    ok: bool
    dtype: str
    shape: tuple[int, ...] | None
    max_abs: float | None = None
    max_rel: float | None = None
    message: str = ""
    note: str = ""
    step: float | None = None
    steps: float | None = None
    share: float | None = None
    within: float = 1.0
    bias: float | None = None
    biased: bool = False
    run: int | None = None
    compared: bool = True
    drawn: bool = False
    accepted_by: str = ""
    judgments: tuple[Judgment, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def problem(self) -> str:
        """Why ``ok`` is False, and in which run."""
        return f"in run {self.run}: {self.message}" if self.run is not None and self.message else self.message

    @property
    def is_empty(self) -> bool:
        """Whether it has no element."""
        return self.shape is not None and 0 in self.shape

    @property
    def is_float(self) -> bool:
        """Whether it is compared as floats."""
        return self.max_abs is not None and self.dtype.startswith("float")

    @property
    def rejected(self) -> bool:
        """Whether a criterion has evidence of a fault."""
        return any(judgment.rejects for judgment in self.judgments)

    def was_accepted_by(self, criterion: str) -> bool:
        """Whether this criterion accepts it, possibly as one of several."""
        return any(judgment.accepts and judgment.criterion == criterion for judgment in self.judgments)

    def judged(self, judgment: Judgment) -> OutputCheck:
        """The output after one more judgment; a rejection is final."""
        judgments = (*self.judgments, judgment)
        if self.rejected or judgment.verdict is Verdict.INCONCLUSIVE:
            return replace(self, judgments=judgments)
        if judgment.rejects:
            return replace(self, ok=False, accepted_by="", message=judgment.reason, judgments=judgments)
        if self.ok and self.compared:
            return replace(self, accepted_by=self.accepted_by or judgment.criterion, judgments=judgments)
        by, note = judgment.criterion, self.note if self.compared else ""
        return replace(self, ok=True, compared=True, message="", note=note, accepted_by=by, judgments=judgments)

    @property
    def acceptance(self) -> str:
        """The criterion that accepts the output beyond the tolerance, and its reason; "" for other outputs."""
        if self.accepted_by in BY_VALUE:
            return ""
        reason = next((j.reason for j in reversed(self.judgments) if j.criterion == self.accepted_by), "")
        return f"accepted by {self.accepted_by}: {reason}" if reason else f"accepted by {self.accepted_by}"

    @property
    def in_steps(self) -> str:
        """The difference in steps and the allowed one, as text; "" for outputs that are not quantized."""
        if self.step is None or self.steps is None or self.share is None:
            return ""
        of = "" if self.step == 1 else f" of {self.step:.3g}"
        bias = "" if self.bias is None or abs(self.bias) < SHOWN_BIAS else f", mean error {self.bias:.2g} steps"
        return f"{self.steps:.3g} steps{of}, {_percent(self.share)} of the elements within {self.within:.3g}{bias}"

    @property
    def in_words(self) -> str:
        """One line: the name, the errors, and why the output is refused."""
        parts = [self.name]
        if self.max_abs is not None:
            parts.append(f"largest error {self.max_abs:.3g} absolute, {self.max_rel:.3g} relative")
        parts += [f"{name} {value:.4g}" for name, value in self.metrics.items()]
        parts += [part for part in (self.in_steps, self.problem) if part]
        said = ", ".join(part for part in (self.note, self.acceptance) if part)
        return "  ".join([*parts, *([f"({said})"] if said else [])])


@dataclass(frozen=True)
class CheckReport:
    """The result of comparing two models on the same inputs.

    ``status``: "passed", "failed" or "not checked"; ``reason``: one line, "" for passed. ``runtimes``: those of the two
    models. ``runs``: the number of consecutive runs of the second model. ``seconds``: wall time. ``layers``: the errors
    of the tensors that both models compute, in the order of the second, if requested (``per_layer``);
    ``first_difference``: the first op whose result differs, None if there is none. ``models``: the two files.
    ``profiles``: time per op of each runtime, if requested (``profile``). ``speed``: bytes and time before and after
    quantizing, of a model that was just quantized. ``unreached``: the goals that no input reached, if that was
    measured. ``excluded``: sizes at which the models differ although they passed at all others, since few models are
    used at these; "" for none. ``float16``: both models simulated in float16, with sums in float32 and in float16, if
    requested (``precision="float16"``).
    """

    status: Status
    reason: str
    inputs: tuple[InputUsed, ...] = ()
    outputs: tuple[OutputCheck, ...] = ()
    notes: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()
    rtol: float = 1e-3
    atol: float = 1e-4
    seed: int = 0
    runs: int = 1
    cases: int = 1
    layers: tuple[LayerError, ...] = field(default=(), repr=False)
    first_difference: FirstDifference | None = None
    seconds: float = field(default=0.0, compare=False)
    models: tuple[ModelSummary, ...] = field(default=(), repr=False)
    profiles: tuple[Profile, ...] = field(default=(), compare=False, repr=False)
    unreached: tuple[Goal, ...] = field(default=(), repr=False)
    excluded: str = ""
    float16: tuple[SimulatedRun, ...] = field(default=(), repr=False)
    speed: SpeedChange | None = field(default=None, compare=False)

    @property
    def ok(self) -> bool:
        """Whether both models ran and agree."""
        return self.status == "passed"

    @property
    def max_abs(self) -> float | None:
        """Largest absolute error of all outputs."""
        return max((out.max_abs for out in self.outputs if out.max_abs is not None), default=None)

    @property
    def max_rel(self) -> float | None:
        """Largest relative error of all outputs."""
        return max((out.max_rel for out in self.outputs if out.max_rel is not None), default=None)

    def to_json(self, a: str = "", b: str = "") -> dict[str, Any]:
        """The report as JSON values, with the paths ``a`` and ``b`` of the models (`onnxtfl.checking.to_json`)."""
        from onnxtfl.checking.to_json import to_json

        return to_json(self, a, b)

    def rows(self, verbose: bool = False) -> list[Row]:
        """Return the report as rows of a table."""
        style = {"passed": "green", "failed": "red"}.get(self.status, "yellow")
        rows = [Row("check", self._verdict, style)]
        rows += [Row("", spec.in_words(verbose)) for spec in self.inputs if verbose or spec.note]
        rows += [Row("", out.in_words, "" if out.ok else "red") for out in self.outputs]
        first = str(self.first_difference) if self.first_difference else None
        rows += [Row("", first, "red")] if first is not None else []
        rows += [Row("", note) for note in self.notes if note != first]
        speed = self.speed
        return rows if speed is None else [*rows, Row("speed", str(speed), "yellow" if speed.is_slower else "")]

    @property
    def _verdict(self) -> str:
        if self.status == "not checked":
            return str(self)
        runs = f"{self.runs} runs; " if self.runs > 1 else ""
        runs = f"{self.cases} sets of inputs; {runs}" if self.cases > 1 else runs
        ran = f" ({', '.join(self.runtimes)}; {runs}{self.seconds:.2f} s)" if self.runtimes else ""
        return f"{self.status}{f' except {self.excluded}' if self.ok and self.excluded else ''}{ran}"

    def table(self, verbose: bool = False, width: int = WIDTH) -> str:
        """The rows as text, wrapped at spaces to ``width`` columns."""
        return as_text(self.rows(verbose), width)

    def _repr_html_(self) -> str:
        return as_html(self.rows())

    def __str__(self) -> str:
        return f"{self.status}: {self.reason}" if self.reason else self.status


def _percent(share: float) -> str:
    """Return a share in percent, rounded down."""
    return f"{int(share * 1000) / 10:g} %"


def with_notes(report: CheckReport, *notes: str) -> CheckReport:
    """The report with further notes."""
    return replace(report, notes=(*report.notes, *notes))


def worst(checks: Sequence[OutputCheck]) -> OutputCheck:
    """The check of an output in the run with the largest error. It counts as compared if it was compared in any run."""
    for number, check in enumerate(checks, 1):
        if not check.ok:
            return check if number == 1 else replace(check, run=number)
    return max(checks, key=lambda check: (check.compared, check.max_abs or 0.0, check.steps or 0.0))
