"""What the soak commands have in common: the outcome of a case, counts that a file keeps, and the limits of a case.

A kind of case is a function from a seed to a `Found`, which runs in a worker process; the stage that it sends last
("source", "convert", "run") says what a crash or a timeout is.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.harness.child import peak_memory
from tests.harness.workers import Outcome, Worker

CASES = {
    "graphs": "tests.fuzz.graphs_trial:attempt",
    "tflite": "tests.fuzz.tflite_trial:attempt",
    "quantized": "tests.fuzz.graphs_quantized:attempt",
    "mutants": "tests.fuzz.mutants_trial:attempt",
    "damages": "tests.fuzz.damages_trial:attempt",
}
"""Each kind of case: the function from a seed to a `Found`."""
DESCRIPTIONS = {
    "graphs": "tests.fuzz.graphs_trial:described",
    "tflite": "tests.fuzz.tflite_trial:described",
    "quantized": "tests.fuzz.graphs_quantized:described",
}
"""The function from a seed to the text and the files of a case that ended the process."""
SMALLER = {"graphs": "tests.fuzz.graphs_trial:smaller"}
"""The function from a seed to the outcome of a part that fails in the same way."""
GOOD = ("agree", "refused", "empty", "doubtful", "source", "skipped", "equal")
SHARES = {"found": 0.99, "named": 0.95}
"""The least share of the damages that change an output that the check finds, and of those found that are named."""
OTHER_SIZES = "run at other sizes"
"""The stage of a run at sizes of the open dims that are not those the graph was drawn with."""
EXCLUDED_SIZES = "run at excluded sizes"
"""The stage of a run at a size of 0 of which the conversion's report says that it is at least 1."""
SECONDS = 5.0
"""Most processor time of a conversion; longer ones are a "hang"."""
PATIENCE = 30.0
"""Seconds after which a case is ended, whatever it does."""
LONGER = {"damages": 240.0}
"""The same for kinds whose cases take longer: these run brute force on 200 inputs first."""
MEMORY = 1 << 30
"""Most bytes by which a case may let the process grow."""


@dataclass(frozen=True)
class Found:
    """The outcome of one case.

    ``kind``: "agree", "disagree", "refused" (by us), "runtime" (a runtime refuses or ends on the result), "internal"
    (an InternalError, or any exception that is no OnnxtflError), "crash", "hang", "memory", "empty" (the result agrees,
    but a runtime refuses or ends where an open dim is 0, or has other values where the report of the conversion says
    that the dim is at least 1), "doubtful" (a difference at sizes that ONNX's own evaluator
    refuses, or reads otherwise than ONNX Runtime; or rounding that a later op makes larger: each op agrees on the
    operands that the result computed), "source" (the result agrees with ONNX Runtime without its optimizations, or on
    empty arrays with ONNX's evaluator, and not with ONNX Runtime; of TFLite, with LiteRT's other kernels, or with its
    float32 kernel and not with its float16 one), or "skipped" where the source does not run in its own runtime.
    Of damages: "equal" (no output changes beyond the tolerance), "named" (found, and the node is named), "misnamed"
    (found, and another node is named) or "survived".
    ``group``: what failures of one mechanism have in common. ``text``: the model.
    ``files``: name and contents of the files that are kept of a failure.
    """

    kind: str
    group: str = ""
    message: str = ""
    text: str = ""
    files: dict[str, bytes] = field(default_factory=dict)


@dataclass
class Tally:
    """The state of a soak: the next seed, counts of outcomes, and the failures as (seed, kind, group, message)."""

    next: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, str, str, str]] = field(default_factory=list)
    seconds: float = 0.0

    @classmethod
    def read(cls, path: Path | None, first: int) -> Tally:
        """The state in a file; a new one that starts at seed ``first`` where there is no file."""
        if path is None or not path.exists():
            return cls(first)
        found = json.loads(path.read_text(encoding="utf-8"))
        failures = [(seed, kind, group, message) for seed, kind, group, message in found["failures"]]
        return cls(found["next"], Counter(found["counts"]), failures, found["seconds"])

    def write(self, path: Path | None) -> None:
        """Write the state, all or nothing."""
        if path is not None:
            text = json.dumps({**vars(self), "counts": dict(self.counts)}, indent=1)
            temporary = path.with_name(path.name + ".new")
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(path)

    def add(self, seed: int, found: Found) -> None:
        """Count an outcome; one without a group (a mutant that is refused) is no failure."""
        self.counts[found.kind] += 1
        if found.kind not in ("agree", "skipped") and found.group:
            self.failures.append((seed, found.kind, found.group, found.message[:500]))

    def shares(self) -> dict[str, float]:
        """The share of the damages that are found, and of those found that are named right; empty without damages."""
        found = self.counts["named"] + self.counts["misnamed"]
        changing = found + self.counts["survived"]
        return {"found": found / changing, "named": self.counts["named"] / max(found, 1)} if changing else {}

    def passed(self) -> bool:
        """Whether all outcomes are good, and the shares of the damages large enough."""
        good = (*GOOD, "named", "misnamed", "survived")
        shares = self.shares()
        return set(self.counts) <= set(good) and all(share >= SHARES[name] for name, share in shares.items())

    def lines(self, groups: int) -> Iterator[str]:
        """Counts, then the most frequent groups of failures, each with some of its seeds."""
        judged = self.counts.total() - self.counts["skipped"]
        rate = 3600 * self.counts.total() / max(self.seconds, 1e-9)
        yield f"{judged} judged, {self.counts['skipped']} skipped, {rate:.0f} cases an hour"
        for kind, count in self.counts.most_common():
            if kind != "skipped":
                yield f"  {count:6} {count / max(judged, 1):7.2%} {kind}"
        for name, share in self.shares().items():
            yield f"  {share:.1%} {name} (at least {SHARES[name]:.0%})"
        by_group: dict[tuple[str, str], list[int]] = {}
        for seed, kind, group, _ in self.failures:
            by_group.setdefault((kind, group), []).append(seed)
        for (kind, group), seeds in sorted(by_group.items(), key=lambda item: -len(item[1]))[:groups]:
            yield f"  {len(seeds):5} {kind:9} {group[:120]}  seeds {' '.join(map(str, seeds[:5]))}"


def soak(kind: str, seeds: Iterable[int], jobs: int, until: float) -> Iterator[tuple[int, Found]]:
    """The outcome of each seed, in the order of the seeds, until all are done or the clock (monotonic) shows ``until``.

    The workers stay alive between cases.
    """
    from concurrent.futures import ThreadPoolExecutor

    workers = [Worker() for _ in range(jobs)]
    todo = iter(seeds)
    try:
        with ThreadPoolExecutor(jobs) as pool:
            while time.monotonic() < until:
                batch = [seed for _, seed in zip(workers, todo, strict=False)]
                if not batch:
                    return
                yield from zip(batch, pool.map(attempt, workers, [kind] * len(batch), batch), strict=False)
    finally:
        for worker in workers:
            worker.close()


def attempt(worker: Worker, kind: str, seed: int) -> Found:
    """The outcome of one case, in a worker."""
    found = _judged(worker.run("tests.fuzz.soaking:limited", (CASES[kind], seed), LONGER.get(kind, PATIENCE)))
    if found.text or found.kind in ("agree", "skipped") or kind not in DESCRIPTIONS:
        return found
    described = worker.run(DESCRIPTIONS[kind], seed, PATIENCE)
    text, files = described.value or ("", {})
    return replace(found, text=text, files=files)


def _judged(outcome: Outcome) -> Found:
    if outcome.kind == "done":
        assert isinstance(outcome.value, Found)
        return outcome.value
    if outcome.stage in ("", "source"):
        return Found("skipped", message=outcome.message)
    lines = (outcome.detail.strip().splitlines() or [""])[-1]
    if outcome.kind == "raised":  # by the test itself
        return Found("internal", f"test: {outcome.message[:80]}", outcome.detail)
    kinds = {"crashed": "runtime" if outcome.stage.startswith("run") else "crash", "timeout": "hang"}
    empty = "[0] " if re.search(r"\b0\b", outcome.stage) else ""
    if empty and outcome.kind == "crashed" and outcome.stage.startswith((OTHER_SIZES, EXCLUDED_SIZES)):
        return Found("empty", f"[0] ended: {lines[-80:]}", f"{outcome.message}: {outcome.stage}")
    message = f"{outcome.message}: {outcome.stage}; {outcome.detail[-400:]}"
    return Found(kinds[outcome.kind], f"{empty}{outcome.stage[:7]}: {lines[-80:]}", message)


def limited(case: tuple[str, int]) -> Found:
    """The outcome of one case, in the worker process; "memory" where the process grew by more than `MEMORY`."""
    import importlib

    module, _, name = case[0].partition(":")
    function: Callable[[Any], Found] = getattr(importlib.import_module(module), name)
    before = _reset_peak()
    found = function(case[1])
    grown = peak_memory() - before
    if grown > MEMORY and found.kind != "skipped":
        return Found("memory", found.kind, f"{grown >> 20} MiB; {found.message}", found.text, found.files)
    return found


def _reset_peak() -> int:
    """Peak resident bytes, after it was set to the present size, where the system can."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    except OSError:
        return peak_memory()
    return peak_memory()
