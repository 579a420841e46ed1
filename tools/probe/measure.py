"""Runs cases on every runtime and kernel set, and keeps the verdicts."""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tools.probe.case import Case
from tools.probe.judge import judge
from tools.probe.runtime import KERNELS, Runtime

_ENOUGH = 2
"""A kernel that refuses, or dies of, the first cases of a group is not asked for the rest."""
Cell = tuple[Any, ...]


@dataclass(frozen=True)
class Finding:
    """The verdicts on one case: "litert xnnpack" -> right, wrong, refused, absent or abort."""

    types: Mapping[str, str]
    extra: Mapping[str, Any]
    rank: int
    mode: str
    verdicts: Mapping[str, str]


class Measurer:
    """The runtimes to ask, by name."""

    def __init__(self, runtimes: Mapping[str, Runtime], verbose: bool = False) -> None:
        self.runtimes = runtimes
        self.verbose = verbose

    def measure(self, cases: Iterable[Case]) -> list[Finding]:
        """The findings on `cases`, in order.

        What is known not to be right is not asked again: the rest of a cell (group, mode and rank) in which a case
        failed, higher ranks where a lower one made the process die, a group that was refused from the start.
        """
        memory = _Memory()
        return [self._one(case, memory) for case in cases]

    def _one(self, case: Case, memory: _Memory) -> Finding:
        model = functools.cache(case.model)
        verdicts = {}
        for name, runtime in self.runtimes.items():
            for kernels in KERNELS:
                where = f"{name} {kernels}"
                verdict = memory.verdict(case, where)
                if verdict is None:
                    ending, answer = runtime.run(kernels, model(), case.inputs())
                    verdict = judge(case, ending, answer)
                    memory.add(case, where, verdict)
                    if self.verbose and verdict != "right":
                        self._tell(case, where, verdict, answer)
                verdicts[where] = verdict
        return Finding(dict(case.types), dict(case.extra), case.rank, case.mode, verdicts)

    def _tell(self, case: Case, where: str, verdict: str, answer: Any) -> None:
        shapes = ", ".join("-" if a is None else f"{a.dtype}{list(a.shape)}" for a in case.operands)
        told = [a.reshape(-1)[:8] for a in answer] if verdict == "wrong" else answer
        wanted = f", right is {[a.reshape(-1)[:8] for a in case.expected]}" if verdict == "wrong" else ""
        print(
            f"{where}: {verdict}: {case.op}({shapes}) {dict(case.options)} const={set(case.constants)}: {told}{wanted}"
        )


class _Memory:
    """What is known already of the cases of one op."""

    def __init__(self) -> None:
        self.groups: Counter[Cell] = Counter()
        self.cells: dict[Cell, str] = {}
        self.deadly: dict[Cell, int] = {}

    def verdict(self, case: Case, where: str) -> str | None:
        """The verdict that follows from earlier ones, None where none does."""
        group = (case.group, where)
        if case.rank >= self.deadly.get((*group, case.mode), 99):
            return "abort"
        for bad in ("refused", "absent", "abort"):
            if self.groups[(*group, bad)] >= _ENOUGH and not self.groups[(*group, "ran")]:
                return bad
        return self.cells.get((*group, case.mode, case.rank))

    def add(self, case: Case, where: str, verdict: str) -> None:
        """Learn a verdict."""
        group = (case.group, where)
        ran = verdict in ("right", "wrong")
        self.groups[(*group, "ran" if ran else verdict)] += 1
        if verdict == "abort":
            self.deadly[(*group, case.mode)] = case.rank
        if verdict != "right":
            self.cells[(*group, case.mode, case.rank)] = verdict


def save(findings: Sequence[Finding], file: Path) -> None:
    """Keep findings, so that the table can be written again without measuring."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(json.dumps(asdict(f)) for f in findings), encoding="utf-8")


def load(file: Path) -> list[Finding]:
    """The findings that were kept."""
    return [Finding(**json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]
