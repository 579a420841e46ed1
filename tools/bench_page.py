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

Written by `make bench` on one machine; on yours the times will differ, the ratios much less. Each figure has a limit,
so that `make bench` detects regressions.

{machine}

Figures are medians of {runs} runs. Compared commands ran alternately, so that other load on the machine
affects both. "import" is `python -c "import onnx, numpy, flatbuffers"`, "cp" a copy of the model file.

To repeat it: `make bench`, ten minutes on an idle machine. `python tools/bench.py` alone writes no page, and has
switches: `--only` some models, `--thorough` growth on larger models, `--large` a model of 2.88 GB there and back, and
`--others` other converters side by side.
"""
_BUSY = """\
**The machine was busy with other work during this run.** Memory is exact; times and ratios above their limit are not
meaningful. Run `make bench` on an idle machine to update this page.
"""
_RULES = {
    "growth": "CPU time of a conversion divided by that of a model with half as many outputs, operands, nodes, readers "
    "of a value or inputs: at most 2.2. `back`: the conversion of the result to ONNX.",
    "conversion": "Wall time of `onnx2tfl --no-check`: at most 4 imports and 6 copies of the file (chains of 5,000 "
    "and 10,000 nodes: 3 more imports for each 1,000 nodes). Peak memory of the process: at most that of the import "
    "and 100 MB. `growth`: the time for 10,000 nodes divided by that for 5,000.",
    "large model": "90 linear layers, 2.88 GB of weights in external data, to TFLite and back: at most 4 imports and 6 "
    "copies of the weights each, and the import's memory and 100 MB.",
    "side by side": "Wall time and peak memory of `onnx2tfl --no-check` divided by those of other converters that are "
    "installed (`--others`), and the latency of LiteRT on its result divided by that on theirs.",
    "check": "Peak memory of the process of `onnxtfl check`, without the two runtimes, which run in separate "
    "processes: at most that of the import and 100 MB.",
    "checked conversion": "Wall time of `onnx2tfl` with its check: at most that of `--no-check` plus 1.2 times the "
    "time in which the slower runtime loads and runs the model.",
    "start": "`onnx2tfl --help`: at most one import.",
    "latency, 2 threads": "Latency of LiteRT (XNNPACK) on the result divided by that of ONNX Runtime on the source: "
    "below 1, the result is faster. On Intel processors with AVX-512, ONNX Runtime's kernels for convolutions of 3 x 3 "
    "taps compute 147 GFLOP/s in one thread, XNNPACK's 105: ratios of convolutional networks are higher there than on "
    "other processors.",
    "latency, recurrent": "The same ratio, for an LSTM and a GRU over 25 steps.",
    "latency, rewrites": "The same ratio for models that rewrites change so that XNNPACK computes them, or faster.",
    "latency, quantized by ONNX Runtime": "The same ratio, for float networks that ONNX Runtime's quantizer quantizes.",
    "latency, quantized": "The same ratio for quantized networks; `float`: divided by the latency of LiteRT on "
    "the converted float original.",
}


@dataclass(frozen=True)
class Figure:
    """A measured value with its limit; `label`: its name in the section."""

    section: str
    label: str
    value: float
    limit: float
    unit: str


def page(figures: Sequence[Figure], runs: int) -> str:
    """Return the page as Markdown."""
    parts = [_INTRO.format(machine=_machine(), runs=runs)]
    if os.getloadavg()[1] > 1.5 * (os.cpu_count() or 1):
        parts.append(_BUSY)
    for section, found in groupby(figures, key=lambda figure: figure.section.strip()):
        parts.append(f"## {section[0].upper()}{section[1:]}\n\n{_RULES.get(section, '')}\n\n{_table(found)}")
    return "\n".join(parts)


def _table(figures: Iterable[Figure]) -> str:
    head = "| benchmark | measured | limit | measured over limit |\n| --- | ---: | ---: | ---: |\n"
    rows = (
        f"| {f.label} | {f.value:.2f} {f.unit} | {f.limit:.2f} {f.unit} | {f.value / f.limit:.0%} |\n" for f in figures
    )
    return head + "".join(rows)


def _machine() -> str:
    """A Markdown table of the hardware, the software and the load that the figures depend on."""
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
