"""Convert models of the corpus in both directions, each in a worker process, and print a table.

    python tools/corpus.py                           the float models that must pass
    python tools/corpus.py mobilenet_v1 bert_tiny    these models (or paths of .onnx files)
    python tools/corpus.py --all                     all models in onnx/ and onnx-real/
    python tools/corpus.py --tflite tflite2onnx      .tflite files whose path contains this text, to ONNX

An error is divided by the tolerance, 1e-3 |b| + 1e-4 max|b|, so the limit is 1.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.harness.runtimes import DEFAULT
from tests.harness.workers import Outcome, run_all
from tests.models import corpus
from tests.models.corpus import Job, Report

_HEAD = f"{'model':30} {'ok':4} {'error':>6} {'sec':>5} {'MB':>5} {'ops':>4} {'TRANSP':>6} {'XNN':3} {'size':>5}"
_BACK_HEAD = f"{'back':4} {'error':>6} {'nodes':>5}"


def main() -> int:
    """Return exit code 1 if a model fails."""
    options = _options()
    if not corpus.CORPUS.exists():
        print(f"no corpus at {corpus.CORPUS}: set ONNXTFL_CORPUS")
        return 2
    jobs = _jobs(options)
    print(f"{_HEAD}  {_BACK_HEAD}")
    reports = []
    for job in jobs:
        for _, outcome in run_all("tests.models.corpus:attempt", [job], options.timeout):
            reports.append(_report(job, outcome))
        _print(reports[-1], options)
    _totals(reports)
    return int(not all(report.passed for report in reports))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="model names, or paths of .onnx files")
    parser.add_argument("--all", action="store_true", help="all models of onnx/ and onnx-real/")
    parser.add_argument("--tflite", metavar="PATTERN", help=".tflite files to ONNX instead")
    parser.add_argument("--kind", action="append", help="kinds of .tflite files (default: float)")
    parser.add_argument("--io-layout", default="source", choices=["source", "channels-last"])
    parser.add_argument("--runtime", default=DEFAULT, help="litert:builtin, litert:reference, tflite-runtime, ...")
    parser.add_argument("--no-back", action="store_true", help="do not convert the results back")
    parser.add_argument("--ops", action="store_true", help="print the TFLite ops of each result")
    parser.add_argument("--tracebacks", action="store_true")
    parser.add_argument("--timeout", type=float, default=corpus.TIMEOUT)
    return parser.parse_args()


def _jobs(options: argparse.Namespace) -> list[Job]:
    if options.tflite is not None:
        return corpus.find_tflite(options.tflite, options.kind or ["float"])
    names = options.names or ([*corpus.names_of("onnx"), *corpus.names_of("onnx-real")] if options.all else [])
    settings = {} if options.io_layout == "source" else {"io_layout": options.io_layout}
    back = not options.no_back and not settings
    return [Job(job.name, job.path, settings, back, options.runtime) for job in corpus.find(names)]


def _report(job: Job, outcome: Outcome) -> Report:
    if outcome.kind == "done":
        report: Report = outcome.value
        return report
    return Report(job.name, error=f"{outcome.kind} in {outcome.stage}: {outcome.message}", detail=outcome.detail)


def _print(report: Report, options: argparse.Namespace) -> None:
    print(f"{_to_tflite(report)}  {_to_onnx(report, options)}".rstrip(), flush=True)
    for direction, error in (("to TFLite", report.error), ("to ONNX", report.back_error)):
        if error:
            print(f"    {direction}: {error.splitlines()[0][:240]}")
    if options.tracebacks and report.detail:
        print(report.detail)
    if options.ops and report.ops:
        print("    " + ", ".join(f"{name} {count}" for name, count in report.ops.most_common()))


def _to_tflite(report: Report) -> str:
    ok = "FAIL" if report.error else "ok"
    name = Path(report.name).name if "/" in report.name else report.name
    size = f"{report.size_ratio:.2f}" if not math.isnan(report.size_ratio) else "-"
    return (
        f"{name:30.30} {ok:4} {_number(report.largest_error):>6} {report.seconds:5.1f} {report.peak_memory >> 20:5} "
        f"{report.ops.total():4} {report.ops['TRANSPOSE']:6} {'all' if report.fully_delegated else '-':3} {size:>5}"
    )


def _to_onnx(report: Report, options: argparse.Namespace) -> str:
    if report.error or options.no_back or options.io_layout != "source":
        return ""
    ok = "FAIL" if report.back_error else "ok"
    return f"{ok:4} {_number(report.back_largest_error):>6} {_number(report.nodes_ratio):>5}"


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2g}"


def _totals(reports: Iterable[Report]) -> None:
    found = list(reports)
    to_tflite = sum(not report.error for report in found)
    to_onnx = sum(report.passed and not math.isnan(report.back_largest_error) for report in found)
    small = sum(report.nodes_ratio <= 1.1 for report in found)
    passed = f"{to_tflite} pass to TFLite, {to_onnx} to ONNX, {small} with <= 1.1 x the nodes"
    print(f"\n{len(found)} models: {passed}; {sum(report.ops['TRANSPOSE'] for report in found)} TRANSPOSE")


if __name__ == "__main__":
    sys.exit(main())
