"""The page docs/benchmarks.md, from the figures of tools/bench.py."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import groupby
from pathlib import Path

_INTRO = """# Benchmarks

Written by `make bench` on one machine; yours will have other seconds, and much the same ratios. Each figure has a
limit: a change that exceeds one is noticed.

{machine}

Figures are medians of {runs} runs. What is compared with each other ran in turns, so that other load on the machine
affects both. "import" is `python -c "import onnx, numpy, flatbuffers"`, "cp" a copy of the model file.
"""
_BUSY = """\
**The machine was busy with other work during this run.** Memory is exact; seconds and ratios above their limit
say little. `make bench` on an idle machine writes this page anew.
"""
_RULES = {
    "growth": "CPU time of a conversion over that with half as many outputs, operands, nodes, readers of a value or "
    "inputs: at most 2.2. `back`: of the result to ONNX.",
    "conversion": "Wall time of `onnx2tfl --no-check`: at most 4 imports and 6 copies of the file (chains of 5,000 "
    "and 10,000 nodes: 10 s). Peak memory of the process: at most that of the import and 100 MB. `growth`: the time of "
    "10,000 nodes over that of 5,000.",
    "check": "Peak memory of the process of `onnxtfl check`, without the two runtimes, which have processes of their "
    "own: at most that of the import and 100 MB.",
    "checked conversion": "Wall time of `onnx2tfl` with its check: at most that of `--no-check` and 1.2 times what "
    "the slower runtime needs to load and run the model by itself.",
    "start": "`onnx2tfl --help`: at most one import.",
    "latency, 2 threads": "LiteRT (XNNPACK) on the result over ONNX Runtime on the source: below 1, the result is "
    "faster.",
    "latency, recurrent": "The same ratio, for an LSTM and a GRU over 25 steps.",
    "latency, quantized": "The same ratio for quantized networks; `float`: over LiteRT on the float original, "
    "converted.",
}


@dataclass(frozen=True)
class Figure:
    """A measurement: its section, what was measured, and its limit."""

    section: str
    what: str
    value: float
    limit: float
    unit: str


def page(figures: Sequence[Figure], runs: int) -> str:
    """Return the page in Markdown."""
    parts = [_INTRO.format(machine=_machine(), runs=runs)]
    if os.getloadavg()[1] > 1.5 * (os.cpu_count() or 1):
        parts.append(_BUSY)
    for section, found in groupby(figures, key=lambda figure: figure.section.strip()):
        parts.append(f"## {section[0].upper()}{section[1:]}\n\n{_RULES.get(section, '')}\n\n{_table(found)}")
    return "\n".join(parts)


def _table(figures: Iterable[Figure]) -> str:
    head = "| what | measured | limit | measured over limit |\n| --- | ---: | ---: | ---: |\n"
    rows = (
        f"| {f.what} | {f.value:.2f} {f.unit} | {f.limit:.2f} {f.unit} | {f.value / f.limit:.0%} |\n" for f in figures
    )
    return head + "".join(rows)


def _machine() -> str:
    """The machine and the versions on which the figures depend, as a table."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    cpu = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    packages = ("onnxtfl", "onnx", "onnxruntime", "ai-edge-litert")
    rows = {
        "processor": f"{cpu}, {os.cpu_count()} cores",
        "memory": f"{memory:.0f} GB",
        "system": f"{platform.system()} {platform.release().partition('-')[0]}, Python {platform.python_version()}",
        "packages": ", ".join(f"{name} {version(name)}" for name in packages),
        "load at the end": f"{os.getloadavg()[1]:.1f} (average of 5 minutes; the benchmark itself is 1 to 2)",
    }
    return "| | |\n| --- | --- |\n" + "\n".join(f"| {name} | {value} |" for name, value in rows.items())
