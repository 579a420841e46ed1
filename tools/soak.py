"""Test random cases for any number of minutes, and print what failed, grouped by mechanism.

python tools/soak.py graphs --minutes 10 --resume build/graphs.json
python tools/soak.py mutants --count 2000 --jobs 2
python tools/soak.py damages --count 120 --seed 1000
python tools/soak.py graphs --case 1234

graphs: random models over all ops that convert, each judged by both runtimes. tflite: TFLite models only. quantized:
QDQ models, judged op by op. mutants: damaged files. damages: models that are wrong at one node, which the check has to
find and `per_layer` to name (tests/fuzz/damages_trial.py). A case depends on its seed only; --case reduces a failing
graph. The files of each failure are in build/soak/; --resume continues where that file says, and adds up.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.fuzz.soaking import CASES, GOOD, PATIENCE, SMALLER, Found, Tally, attempt, soak
from tests.harness.workers import ROOT, Worker

_KEPT = ROOT / "build" / "soak"
_EVERY = 20.0
"""Seconds after which counts are printed and kept."""


def main() -> int:
    """Return exit code 1 if a case failed."""
    options = _options()
    if options.case is not None:
        return _repeat(options.kind, options.case)
    tally = Tally.read(options.resume, options.seed)
    count = options.count or None
    seeds = itertools.count(tally.next) if count is None else range(tally.next, options.seed + count)
    start = shown = time.monotonic()
    until = start + 60 * (options.minutes or (float("inf") if count else 1))
    earlier = tally.seconds
    with contextlib.suppress(KeyboardInterrupt):
        for seed, found in soak(options.kind, seeds, options.jobs, until):
            tally.add(seed, found)
            tally.next = seed + 1
            tally.seconds = earlier + time.monotonic() - start
            if found.kind not in ("agree", "skipped"):
                _keep(options.kind, seed, found)
            if time.monotonic() - shown > _EVERY:
                shown = time.monotonic()
                tally.write(options.resume)
                print(f"{tally.next}: {dict(tally.counts)}", file=sys.stderr, flush=True)
    tally.write(options.resume)
    print("\n".join(tally.lines(options.groups)))
    return int(not tally.passed())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=list(CASES))
    parser.add_argument("--minutes", type=float, help="stop after this time (default: 1, or none with --count)")
    parser.add_argument("--count", type=int, help="stop after this many cases")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="continue, and keep counts in this file")
    parser.add_argument("--case", type=int, metavar="SEED", help="repeat one case, and print all about it")
    parser.add_argument("--groups", type=int, default=60, help="groups of failures shown")
    return parser.parse_args()


def _repeat(kind: str, seed: int) -> int:
    with Worker() as worker:
        found = attempt(worker, kind, seed)
        if kind in SMALLER and found.kind not in GOOD:
            outcome = worker.run(SMALLER[kind], seed, 10 * PATIENCE)
            found = outcome.value if outcome.kind == "done" else found
    print(f"{found.kind}: {found.group}\n{found.message}\n{found.text}")
    print("\n".join(map(str, _keep(kind, seed, found))))
    return int(found.kind not in (*GOOD, "named"))


def _keep(kind: str, seed: int, found: Found) -> list[Path]:
    """Write the files of a failure; returns their paths."""
    folder = _KEPT / kind
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{seed}-{name}" for name in found.files]
    for path, data in zip(paths, found.files.values(), strict=True):
        path.write_bytes(data)
    return paths


if __name__ == "__main__":
    sys.exit(main())
