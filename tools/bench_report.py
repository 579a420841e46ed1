"""Benchmark the HTML report of a model of 500 nodes: its size, and the time until Chromium has opened it.

python tools/bench_report.py                    a generated model
python tools/bench_report.py MODEL --strict     this model; exit code 1 if a limit is exceeded
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.harness.browser import open_browser

from make_models import MODELS

_NODES, _RUNS = 500, 5
_MAX_MB, _MAX_MS = 3.0, 2000.0


def main() -> int:
    """Return exit code 1 with --strict if a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--strict", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="onnxtfl-bench-") as folder:
        model = options.model or Path(folder) / "chain.onnx"
        if options.model is None:
            MODELS["chain"](_NODES).write(model)
        page = Path(folder) / "report.html"
        convert = "from onnxtfl.cli import onnx2tfl; onnx2tfl()"
        words = [str(model), "-o", f"{folder}/m.tflite", "--report", str(page)]
        subprocess.run([sys.executable, "-c", convert, *words], check=False, stdout=subprocess.DEVNULL)
        size, opening_ms = page.stat().st_size / 1e6, _opening_time(page)
    print(f"report of {model.name}: {size:.2f} MB (limit {_MAX_MB:g})", end="")
    print(f", opened in {opening_ms:.0f} ms (limit {_MAX_MS:g})" if opening_ms is not None else ", not opened")
    return int(options.strict and (size > _MAX_MB or (opening_ms or 0.0) > _MAX_MS))


def _opening_time(page: Path) -> float | None:
    """The median time in ms until the page is open; None if there is no browser."""
    with open_browser() as browser:
        if isinstance(browser, str):
            print(browser)
            return None
        found = []
        for _ in range(_RUNS):
            browser.get(page)
            found.append(browser.milliseconds())
        return statistics.median(found)


if __name__ == "__main__":
    sys.exit(main())
