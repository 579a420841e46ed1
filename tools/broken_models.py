"""Break models at one node and measure how often `check` finds it, and `--per-layer` names the right node.

    python tools/broken_models.py [--count 100] [--seed 0] [--models NAME,NAME] [--pairs onnx-onnx,onnx-tflite,...]

Models: those of the corpus (ONNXTFL_CORPUS). Pairs: the model that is broken is the one after the exclamation mark::

    onnx-!onnx        the source, and a broken copy
    onnx-!converted   the source, and what a broken copy converts to
    onnx-!tflite      the source, and what it converts to, broken
    !onnx-tflite      a broken copy, and what the source converts to
    tflite-!onnx      a .tflite, and the ONNX model that it converts to, broken
    tflite-!tflite    a .tflite, and a broken copy
    foreign-!tflite   a pair made by another converter, its .tflite broken
    !foreign-tflite   the same, its ONNX model broken

Of onnx-!tflite, a break that the check does not find is "equal" where no output changes beyond the tolerance on any of
200 varied inputs (tests/models/varied_inputs.py).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.models.broken_models import Break, OnnxBreaker, TfliteBreaker  # noqa: E402
from tests.models.varied_inputs import differ_somewhere  # noqa: E402

import onnxtfl  # noqa: E402
from onnxtfl.ir.record import Record  # noqa: E402

CORPUS = Path(os.environ.get("ONNXTFL_CORPUS", ROOT.parent / "shared" / "corpus"))
PAIRS = (
    "onnx-!onnx",
    "onnx-!converted",
    "onnx-!tflite",
    "!onnx-tflite",
    "tflite-!onnx",
    "tflite-!tflite",
    "foreign-!tflite",
    "!foreign-tflite",
)
LARGEST = 12 << 20


@dataclass
class Result:
    """A broken pair: whether it was found, and whether the node named is the right one."""

    pair: str
    model: str
    broken: Break
    status: str
    right: bool
    found: str
    seconds: float


class Maker:
    """Makes broken pairs of models."""

    def __init__(self, folder: Path, random: np.random.Generator, only: list[str]) -> None:
        self.folder, self.random = folder, random
        self.record: Record | None = None
        self.onnx = _fitting(sorted((CORPUS / "onnx").glob("*/model.onnx")), only)
        self.tflite = _fitting(sorted((CORPUS / "tflite").rglob("*.tflite")), only)
        self.foreign = _fitting(
            sorted(p for p in (CORPUS / "foreign").glob("*/a.onnx") if "differs" not in str(p)), only
        )

    def make(self, pair: str) -> tuple[Path, Path, Break, str] | None:
        """Files of a broken pair; None where the choice cannot be broken or converted."""
        is_foreign, is_tflite = "foreign" in pair, pair.startswith("tflite")
        source = self.random.choice(self.foreign if is_foreign else self.tflite if is_tflite else self.onnx)
        a, b = self.folder / f"a{source.suffix}", self.folder / "b.tflite"
        a.write_bytes(source.read_bytes())
        name = source.parent.name if source.stem in ("model", "a") else source.stem
        if is_foreign:
            b.write_bytes((source.parent / "b.tflite").read_bytes())
        broken = self._made(pair, a, b)
        if broken is None:
            return None
        if broken[1] == "onnx":
            b = self.folder / "b.onnx"
        return a, b, broken[0], name

    def sources(self, broken: Break) -> set[str]:
        """The nodes of the source that the broken op of a converted model computes."""
        ops = self.record.ops if self.record is not None else ()
        return {source for op in ops if op.target in broken.results for source in op.sources}

    def _made(self, pair: str, a: Path, b: Path) -> tuple[Break, str] | None:
        if pair == "onnx-!onnx":
            return _with(self._break_onnx(a, self.folder / "b.onnx"), "onnx")
        if pair == "onnx-!converted":
            middle = self.folder / "middle.onnx"
            found = self._break_onnx(a, middle)
            if found is not None:
                onnxtfl.onnx_to_tflite(middle, b, check=False)
            return _with(found, "tflite")
        if pair == "onnx-!tflite":
            self.record = onnxtfl.onnx_to_tflite(a, b, check=False).record
            (self.folder / "good.tflite").write_bytes(b.read_bytes())
        if pair in ("onnx-!tflite", "foreign-!tflite"):
            return _with(self._break_tflite(b, b), "tflite")
        if pair == "!onnx-tflite":
            onnxtfl.onnx_to_tflite(a, b, check=False)
        if pair in ("!onnx-tflite", "!foreign-tflite"):
            return _with(self._break_onnx(a, a), "tflite")
        if pair == "tflite-!onnx":
            middle = self.folder / "middle.onnx"
            onnxtfl.tflite_to_onnx(a, middle, check=False)
            return _with(self._break_onnx(middle, self.folder / "b.onnx"), "onnx")
        return _with(self._break_tflite(a, b), "tflite")

    def _break_onnx(self, source: Path, target: Path) -> Break | None:
        breaker = OnnxBreaker(onnx.load(source), self.random)
        return self._choose(breaker, lambda model: target.write_bytes(model.SerializeToString()))

    def _break_tflite(self, source: Path, target: Path) -> Break | None:
        return self._choose(TfliteBreaker(source.read_bytes(), self.random), target.write_bytes)

    def _choose(self, breaker: Any, write: Callable[[Any], object]) -> Break | None:
        """Break in a random way: first the kind, then the node."""
        ways: dict[str, list[int]] = {}
        for kind, index in breaker.ways():
            ways.setdefault(kind, []).append(index)
        for kind in self.random.permutation(sorted(ways)):
            made = breaker.broken(str(kind), int(self.random.choice(ways[kind])))
            if made is not None:
                write(made[0])
                return made[1]
        return None


def _with(found: Break | None, kind: str) -> tuple[Break, str] | None:
    return None if found is None else (found, kind)


def _fitting(paths: list[Path], only: list[str]) -> list[Path]:
    return [p for p in paths if p.stat().st_size < LARGEST and (not only or any(n in str(p) for n in only))]


def judge(broken: Break, found: onnxtfl.CheckReport, pair: str, sources: Collection[str]) -> bool:
    """Whether the node named is the broken one, or a node of the first model that the op named computes.

    `sources`: the nodes of the source that the broken op computes.
    """
    first = found.first_difference
    if first is None:
        return False
    if first.b in broken.results or broken.node in {first.node_b, first.node}:
        return True
    if pair == "onnx-!tflite":
        return first.node in sources
    if broken.node in first.nodes or first.a in broken.results:
        return "!onnx-" in pair or pair in ("onnx-!converted", "!foreign-tflite")
    return False


def in_words(report: onnxtfl.CheckReport) -> str:
    """The errors of the outputs, and the largest own error of a layer."""
    outputs = [f"{out.name} {out.max_abs} ({out.steps} steps, {out.note})" for out in report.outputs]
    own = max((layer.own or 0.0 for layer in report.layers), default=0.0)
    return f"{'; '.join(outputs)}; largest own error {own:.2g}; {report.notes[:1]}"


def results(count: int, seed: int, pairs: list[str], only: list[str]) -> Iterator[Result]:
    """Break and check `count` pairs."""
    for number in range(count):
        random = np.random.default_rng((seed, number))
        with tempfile.TemporaryDirectory() as folder:
            pair = pairs[number % len(pairs)]
            try:
                maker = Maker(Path(folder), random, only)
                made = maker.make(pair)
                if made is None:
                    continue
                a, b, broken, name = made
                sources = maker.sources(broken)
                started = time.perf_counter()
                report = onnxtfl.check(a, b, per_layer=True)
            except onnxtfl.OnnxtflError as error:
                print(f"{pair} {number}: {str(error)[:100]}", file=sys.stderr)
                continue
            seconds = time.perf_counter() - started
            first = report.first_difference
            text = str(first or report.reason or in_words(report))
            status, good = report.status, Path(folder) / "good.tflite"
            if report.ok and good.exists() and not differ_somewhere(good, b):
                status = "equal"
            yield Result(pair, name, broken, status, judge(broken, report, pair, sources), text, seconds)


def main() -> None:
    """Print each miss, and the shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--models", default="")
    parser.add_argument("--pairs", default=",".join(PAIRS))
    parser.add_argument("--all", action="store_true", help="print right ones too")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    only = [name for name in options.models.split(",") if name]
    counts, done = Counter[tuple[str, str]](), list[Result]()
    for result in results(options.count, options.seed, options.pairs.split(","), only):
        done.append(result)
        outcome = "right" if result.right else result.status if result.status != "failed" else "wrong"
        counts[result.pair, outcome] += 1
        if options.all or (not result.right and outcome != "equal"):
            broken = result.broken
            print(f"{outcome}: {result.pair} {result.model}: {broken.kind} at {broken.op} {broken.node!r}", flush=True)
            print(f"    {result.found}  [{result.seconds:.1f} s]", flush=True)
    for pair in dict.fromkeys(pair for pair, _ in counts):
        print(pair, {outcome: n for (p, outcome), n in counts.items() if p == pair})
    failed, changing = [r for r in done if r.status == "failed"], [r for r in done if r.status != "equal"]
    print(f"{len(failed)} of {len(changing)} that change an output found ({len(failed) / max(1, len(changing)):.1%})")
    print(f"{sum(r.right for r in failed)} of {len(failed)} right; {len(done) - len(failed)} pass or do not run")
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(r) for r in done], indent=1))


if __name__ == "__main__":
    main()
