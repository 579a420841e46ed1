"""Convert random models both ways, and print a reduced form of each that fails.

python tools/fuzz.py --seeds 0:500
python tools/fuzz.py --seeds 17 --no-shrink
python tools/fuzz.py --seeds 0:100 --size 5 --recurrent
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.fuzz.run import TIMEOUT, Trial, Verdict
from tests.harness.workers import Outcome, Worker, run_all

_JOB = "tests.fuzz.run:attempt"


def main() -> int:
    """Return exit code 1 if a model fails."""
    options = _options()
    first, _, last = options.seeds.partition(":")
    seeds = range(int(first), int(last or int(first) + 1))
    trials = [Trial(seed, options.size, not options.no_back, options.io_layout, options.recurrent) for seed in seeds]
    counts: Counter[str] = Counter()
    with Worker() as worker:
        for trial, outcome in run_all(_JOB, trials, TIMEOUT, options.jobs):
            verdict = _verdict(outcome)
            counts[verdict.kind] += 1
            if verdict.kind not in ("passed", "skipped") and _failed(counts) <= options.show:
                _show(*((trial, verdict) if options.no_shrink else _shrunk(worker, trial, verdict)))
    print(", ".join(f"{count} {kind}" for kind, count in counts.most_common()))
    return int(_failed(counts) > 0)


def _failed(counts: Counter[str]) -> int:
    return counts.total() - counts["passed"] - counts["skipped"]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0:200", metavar="FIRST:LAST")
    parser.add_argument("--size", type=int, default=12, help="steps in each model")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--io-layout", default="source", choices=["source", "channels-last"])
    parser.add_argument("--recurrent", action="store_true", help="recurrent layers, Scan, Loop and If")
    parser.add_argument("--no-back", action="store_true", help="do not convert the results back")
    parser.add_argument("--no-shrink", action="store_true", help="do not reduce the models that fail")
    parser.add_argument("--show", type=int, default=10, help="failures shown")
    return parser.parse_args()


def _verdict(outcome: Outcome) -> Verdict:
    if outcome.kind == "done":
        verdict: Verdict = outcome.value
        return verdict
    return Verdict(outcome.kind, f"in {outcome.stage}: {outcome.message}", detail=outcome.detail)


def _shrunk(worker: Worker, trial: Trial, verdict: Verdict) -> tuple[Trial, Verdict]:
    """A small part of the model that fails in the same way.

    Where the reduction crashes: the shortest failing prefix of the model.
    """
    outcome = worker.run("tests.fuzz.run:shrunk", trial, 10 * TIMEOUT)
    if outcome.kind == "done":
        return trial, outcome.value
    for size in range(1, trial.size):
        smaller = replace(trial, size=size)
        found = _verdict(worker.run(_JOB, smaller, TIMEOUT))
        if found.kind == verdict.kind:
            return smaller, found
    return trial, verdict


def _show(trial: Trial, verdict: Verdict) -> None:
    print(f"--- seed {trial.seed}, {trial.size} steps: {verdict.kind}: {verdict.message}")
    print(verdict.model)
    if verdict.detail:
        print("\n".join(verdict.detail.splitlines()[-6:]))


if __name__ == "__main__":
    sys.exit(main())
