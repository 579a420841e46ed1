"""Compare converted quantized models with their sources op by op, and print a table by kind of op.

Each op reads the tensors that the source model computes, so that errors do not add up.

    python tools/each_op.py                        the quantized models of the corpus, .onnx and .tflite
    python tools/each_op.py a.onnx b.tflite        these files (random inputs unless io.npz is next to them)
    python tools/each_op.py --kernels default      LiteRT with XNNPACK (.onnx only; default: builtin)

Differences are in quantization steps of the result. "exact" and "within 1" are the shares of results whose elements are
all equal, or at most one step off.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.harness.workers import Outcome, Worker
from tests.models import corpus
from tests.models.each_op import Job


@dataclass
class Kind:
    """One kind of op: the largest difference of each result in steps, and the models with one over a step."""

    steps: list[float] = field(default_factory=list)
    models: set[str] = field(default_factory=set)


def main() -> int:
    """Return exit code 1 if a result is more than one step off, or a model cannot be compared."""
    options = _options()
    kinds: dict[tuple[str, str], Kind] = defaultdict(Kind)
    failed = 0
    with Worker() as worker:
        for path in options.files or _corpus():
            outcome = _compared(worker, path, options.kernels, options.timeout)
            failed += outcome.kind != "done"
            _add(kinds, path, outcome)
    print(f"{'':6} {'results':>7} {'exact':>6} {'within 1':>8} {'largest':>9}  ops")
    for (direction, ops), kind in sorted(kinds.items(), key=lambda item: (item[0][0], -max(item[1].steps))):
        print(_row(direction, ops, kind))
    return int(failed > 0 or any(kind.models for kind in kinds.values()))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help=".onnx and .tflite files")
    parser.add_argument("--kernels", default="builtin", choices=["builtin", "default"])
    parser.add_argument("--timeout", type=float, default=corpus.TIMEOUT)
    return parser.parse_args()


def _corpus() -> Iterator[Path]:
    """The paths of the quantized models of the corpus, ONNX then TFLite."""
    for entry in json.loads((corpus.CORPUS / "onnx" / "index.json").read_text(encoding="utf-8")):
        if entry["kind"] == "quantized":
            yield corpus.CORPUS / "onnx" / entry["name"] / "model.onnx"
    for entry in json.loads((corpus.CORPUS / "tflite" / "index.json").read_text(encoding="utf-8")):
        if not entry["kind"].startswith("float"):
            yield corpus.CORPUS / "tflite" / entry["file"]


def _compared(worker: Worker, path: Path, kernels: str, timeout: float) -> Outcome:
    if path.suffix == ".tflite":
        return worker.run("tests.models.each_tflite_op:differences", path, timeout)
    return worker.run("tests.models.each_op:differences", Job(path, kernels), timeout)


def _add(kinds: dict[tuple[str, str], Kind], path: Path, outcome: Outcome) -> None:
    """Add the results of one model to `kinds`, and print its line."""
    name = path.parent.name if path.name == "model.onnx" else path.name
    if outcome.kind != "done":
        print(f"{name[:60]:60} {outcome.kind} in {outcome.stage}: {outcome.message[:120]}", flush=True)
        return
    direction = "-> onnx" if path.suffix == ".tflite" else "-> tfl"
    for found in outcome.value:
        ops = (found.op,) if path.suffix == ".tflite" else found.ops
        kind = kinds[direction, " ".join(dict.fromkeys(reversed(ops)))]
        kind.steps.append(found.steps)
        if found.steps > 1:
            kind.models.add(name)
    steps = [found.steps for found in outcome.value]
    print(f"{name[:60]:60} {len(steps):4} results, largest difference {max(steps, default=0):g}", flush=True)


def _row(direction: str, ops: str, kind: Kind) -> str:
    exact, near = (sum(s <= limit for s in kind.steps) / len(kind.steps) for limit in (0, 1))
    models = f"  [{', '.join(sorted(kind.models))}]" if kind.models else ""
    return f"{direction:7} {len(kind.steps):6} {exact:6.1%} {near:8.1%} {max(kind.steps):9.3g}  {ops}{models}"


if __name__ == "__main__":
    sys.exit(main())
