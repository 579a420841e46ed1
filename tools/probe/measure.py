"""Run cases on every runtime and kernel set, and collect the verdicts."""

from __future__ import annotations

import functools
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tools.probe.case import Case
from tools.probe.judge import judge, steps_off
from tools.probe.runtime import Runtime

_SKIP_AFTER = 2
"""The number of failed cases of a group after which a kernel set skips the rest of the group."""
Cell = tuple[Any, ...]


@dataclass(frozen=True)
class Finding:
    """The verdicts on one case: "litert xnnpack" -> correct, wrong, refused, absent or abort.

    `steps`: the largest error of quantized results in steps, for kernel sets that are not exact.
    """

    types: Mapping[str, str]
    extra: Mapping[str, Any]
    rank: int
    mode: str
    verdicts: Mapping[str, str]
    steps: Mapping[str, int] = field(default_factory=dict)


class Measurer:
    """Runs cases on `runtimes`, by name; all cases of ranks that have not failed if they are `few`."""

    def __init__(self, runtimes: Mapping[str, Runtime], verbose: bool = False, few: bool = False) -> None:
        self.runtimes = runtimes
        self.verbose = verbose
        self.few = few

    def measure(self, cases: Iterable[Case]) -> list[Finding]:
        """The findings on `cases`, in order.

        Cases are skipped if earlier verdicts determine theirs: the rest of a cell (group, mode and rank) after a failed
        case, higher ranks after an abort, and cases of a group and mode whose first ones were all refused, unless they
        are `few`: an op may take high ranks only.
        """
        history = _History(math.inf if self.few else _SKIP_AFTER)
        return [self._one(case, history) for case in cases]

    def _one(self, case: Case, history: _History) -> Finding:
        model = functools.cache(case.model)
        verdicts, steps = {}, {}
        for name, runtime in self.runtimes.items():
            for kernels in runtime.kernels:
                kernel_set = f"{name} {kernels}"
                verdict = history.verdict(case, kernel_set)
                if verdict is None:
                    status, answer = runtime.run(kernels, model(), case.inputs())
                    verdict = judge(case, status, answer)
                    history.add(case, kernel_set, verdict)
                    if verdict == "correct" and (off := steps_off(case, answer)):
                        steps[kernel_set] = off
                    if self.verbose and verdict != "correct":
                        self._print(case, kernel_set, verdict, answer)
                verdicts[kernel_set] = verdict
        return Finding(dict(case.types), dict(case.extra), case.rank, case.mode, verdicts, steps)

    def _print(self, case: Case, kernel_set: str, verdict: str, answer: Any) -> None:
        shapes = ", ".join("-" if a is None else f"{a.dtype}{list(a.shape)}" for a in case.operands)
        actual = [a.reshape(-1)[:8] for a in answer] if verdict == "wrong" else answer
        expected = f", expected {[a.reshape(-1)[:8] for a in case.expected]}" if verdict == "wrong" else ""
        call = f"{case.op}({shapes}) {dict(case.options)} const={set(case.constants)}"
        print(f"{kernel_set}: {verdict}: {call}: {actual}{expected}")


class _History:
    """The verdicts on the earlier cases of one op."""

    def __init__(self, skip_after: float) -> None:
        self.skip_after = skip_after
        self.groups: Counter[Cell] = Counter()
        self.cells: dict[Cell, str] = {}
        self.aborted: dict[Cell, int] = {}

    def verdict(self, case: Case, kernel_set: str) -> str | None:
        """The verdict that earlier ones determine; None if the case has to be run."""
        group = (case.group, case.mode, kernel_set)
        if case.rank >= self.aborted.get(group, 99):
            return "abort"
        for bad in ("refused", "absent", "abort"):
            if self.groups[(*group, bad)] >= self.skip_after and not self.groups[(*group, "ran")]:
                return bad
        return self.cells.get((*group, case.rank))

    def add(self, case: Case, kernel_set: str, verdict: str) -> None:
        """Add a verdict."""
        group = (case.group, case.mode, kernel_set)
        ran = verdict in ("correct", "wrong")
        self.groups[(*group, "ran" if ran else verdict)] += 1
        if verdict == "abort":
            self.aborted[group] = case.rank
        if verdict != "correct":
            self.cells[(*group, case.rank)] = verdict


def save(findings: Sequence[Finding], file: Path) -> None:
    """Save findings to a file, from which tables can be rewritten without new measurements."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(json.dumps(asdict(f)) for f in findings), encoding="utf-8")


def load(file: Path) -> list[Finding]:
    """The findings that `save` wrote to a file."""
    return [Finding(**json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]
