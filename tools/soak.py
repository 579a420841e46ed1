"""Test random cases for a number of minutes, and print the failures, grouped by cause.

python tools/soak.py graphs --minutes 10 --resume build/graphs.json
python tools/soak.py mutants --count 2000 --jobs 2
python tools/soak.py damages --count 120 --seed 1000
python tools/soak.py graphs --case 1234

graphs: random models of all ops that convert, run in both runtimes. tflite: the same for TFLite models only. quantized:
QDQ models, compared op by op. mutants: corrupted files. damages: models with one wrong node, which the check has to
detect and `per_layer` to name (tests/fuzz/damages_trial.py). A case depends only on its seed; --case repeats one, and
reduces a failing graph. Files of failures are written to build/soak/; --resume FILE continues at the seed in FILE and
adds to its counts.
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

_FAILURES = ROOT / "build" / "soak"
_SAVE_INTERVAL = 20.0
"""The interval in seconds at which counts are printed and saved."""


def main() -> int:
    """Return exit code 1 if a case failed."""
    options = _options()
    if options.case is not None:
        return _repeat(options.kind, options.case)
    tally = Tally.read(options.resume, options.seed)
    count = options.count or None
    seeds = itertools.count(tally.next) if count is None else range(tally.next, options.seed + count)
    start = last_saved = time.monotonic()
    until = start + 60 * (options.minutes or (float("inf") if count else 1))
    earlier = tally.seconds
    with contextlib.suppress(KeyboardInterrupt):
        for seed, found in soak(options.kind, seeds, options.jobs, until):
            tally.add(seed, found)
            tally.next = seed + 1
            tally.seconds = earlier + time.monotonic() - start
            if found.kind not in ("agree", "skipped"):
                _save_files(options.kind, seed, found)
            if time.monotonic() - last_saved > _SAVE_INTERVAL:
                last_saved = time.monotonic()
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
    parser.add_argument("--case", type=int, metavar="SEED", help="repeat one case, and print its details")
    parser.add_argument("--groups", type=int, default=60, help="groups of failures shown")
    return parser.parse_args()


def _repeat(kind: str, seed: int) -> int:
    with Worker() as worker:
        found = attempt(worker, kind, seed)
        if kind in SMALLER and found.kind not in GOOD:
            outcome = worker.run(SMALLER[kind], seed, 10 * PATIENCE)
            found = outcome.value if outcome.kind == "done" else found
    print(f"{found.kind}: {found.group}\n{found.message}\n{found.text}")
    print("\n".join(map(str, _save_files(kind, seed, found))))
    return int(found.kind not in (*GOOD, "named"))


def _save_files(kind: str, seed: int, found: Found) -> list[Path]:
    """Write the files of a failure, and return their paths."""
    folder = _FAILURES / kind
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{seed}-{name}" for name in found.files]
    for path, data in zip(paths, found.files.values(), strict=True):
        path.write_bytes(data)
    return paths


if __name__ == "__main__":
    sys.exit(main())
