"""Run conformance tests and print the failures, grouped by reason and by op.

The cases are ONNX's op tests, converted by onnx2tfl and run in LiteRT, or the one-op .tflite models of the corpus,
converted by tfl2onnx and run in ONNX Runtime.

python tools/conformance.py                                  all cases, both modes, summary by reason and by op
python tools/conformance.py --filter reduce --mode plain --show-errors
python tools/conformance.py --case test_add_bcast            one case, with the traceback
python tools/conformance.py --mode history                   op tests of older onnx releases, from the corpus
python tools/conformance.py --mode tflite                    one-op .tflite models to ONNX
python tools/conformance.py --update [--grow]                rewrite the ratchet lists
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.conformance import ratchet
from tests.conformance.cases import MODES, Case, load_cases
from tests.conformance.history_cases import load_history_cases
from tests.conformance.run_case import TIMEOUT, Result, result_of
from tests.conformance.tflite_cases import TfliteCase, load_tflite_cases
from tests.harness.runtimes import DEFAULT
from tests.harness.workers import run_all

_UNCOMMON = frozenset({8, 16, 17, 18, 19, 20})
"""TensorProto.DataType of string, bfloat16 and the float8 types."""
Results = dict[str, Result]
AnyCase = Case | TfliteCase


def _load(mode: str) -> Sequence[AnyCase]:
    if mode == "history":
        return load_history_cases()
    return load_tflite_cases() if mode == "tflite" else load_cases(mode, sequences=True)


def main() -> int:
    """Return exit code 1 if the results differ from the ratchet lists."""
    os.environ.setdefault("ONNXTFL_NO_LOAD", "1")  # no separate load: each result runs in a worker anyway
    options = _options()
    code = 0
    for mode in MODES if options.mode == "both" else (options.mode,):
        cases = [case for case in _load(mode) if _wanted(case, options)]
        started = time.monotonic()
        results = _run(cases, options)
        print(f"\n=== {mode}: {_summary(cases, results)}, {time.monotonic() - started:.0f} s ===")
        _report(cases, results, options)
        code |= _compare(mode, cases, results, options)
    return code


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--filter", metavar="REGEX", help="only cases whose name matches")
    parser.add_argument("--op", metavar="NAME", help="only cases of this ONNX op (its first node)")
    parser.add_argument("--case", metavar="NAME", help="one case, with its message and traceback")
    parser.add_argument("--mode", choices=[*MODES, "both", "history", "tflite"], default="both")
    parser.add_argument("--runtime", default=DEFAULT, help="litert:builtin, litert:reference, tflite-runtime, ...")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--show-errors", action="store_true", help="print each failing case with its message")
    parser.add_argument("--tracebacks", action="store_true", help="the same with tracebacks")
    parser.add_argument("--examples", type=int, default=3, help="case names printed for each reason")
    parser.add_argument("--reasons", type=int, default=40, help="reasons printed")
    parser.add_argument("--update", action="store_true", help="rewrite the ratchet lists (runs all cases)")
    parser.add_argument("--grow", action="store_true", help="let --update add cases that passed before")
    options = parser.parse_args()
    if options.update and (options.filter or options.op or options.case or options.runtime != DEFAULT):
        parser.error("--update needs a run of all cases on the default runtime")
    return options


def _wanted(case: AnyCase, options: argparse.Namespace) -> bool:
    if options.case:
        return bool(case.name == options.case)
    return (not options.filter or re.search(options.filter, case.name) is not None) and (
        not options.op or case.ops[:1] == (options.op,)
    )


def _run(cases: list[AnyCase], options: argparse.Namespace) -> Results:
    results: Results = {}
    jobs = [(case, options.runtime) for case in cases]
    function = "tflite_cases:attempt_to_onnx" if options.mode == "tflite" else "run_case:attempt_on"
    for (case, _), outcome in run_all(f"tests.conformance.{function}", jobs, TIMEOUT, options.jobs):
        results[case.name] = result_of(outcome)
        if sys.stderr.isatty():
            print(f"\r{len(results)}/{len(cases)}", end="", file=sys.stderr, flush=True)
    return results


def _summary(cases: list[AnyCase], results: Results) -> str:
    common = [case for case in cases if not case.types & _UNCOMMON]
    passed, common_passed = (sum(results[c.name].passed for c in some) for some in (cases, common))
    return f"{passed} of {len(cases)} pass ({common_passed} of {len(common)} without string, bfloat16, float8)"


def _report(cases: list[AnyCase], results: Results, options: argparse.Namespace) -> None:
    if options.case or options.show_errors or options.tracebacks:
        for case in cases:
            _show(case.name, results[case.name], bool(options.case or options.tracebacks))
    if options.case:
        return
    groups = ratchet.by_reason({name: result.reason for name, result in results.items() if not result.passed})
    print("\nby reason:")
    for reason, names in list(groups.items())[: options.reasons]:
        more = " ..." if len(names) > options.examples else ""
        print(f"{len(names):5}  {reason}\n         {' '.join(names[: options.examples])}{more}")
    rest = list(groups.values())[options.reasons :]
    if rest:
        print(f"{sum(map(len, rest)):5}  for {len(rest)} more reasons (--reasons N)")
    print("\nby op (failing/all): " + ", ".join(_by_op(cases, results)))


def _show(name: str, result: Result, details: bool) -> None:
    if result.passed:
        if details:
            print(f"pass  {name}")
        return
    print(f"FAIL  {name}: {result.reason}\n      {result.message}")
    if details and result.detail:
        print(result.detail)


def _by_op(cases: list[AnyCase], results: Results) -> list[str]:
    total = Counter(case.ops[0] for case in cases if case.ops)
    failing = Counter(case.ops[0] for case in cases if case.ops and not results[case.name].passed)
    return [f"{op} {count}/{total[op]}" for op, count in failing.most_common()]


def _compare(mode: str, cases: list[AnyCase], results: Results, options: argparse.Namespace) -> int:
    """Compare the results with the ratchet list, or rewrite it. Returns the exit code."""
    known = ratchet.load(mode)
    failing = {name: result.reason for name, result in results.items() if not result.passed}
    new = ratchet.unlisted(known, failing)
    repaired = sorted(name for name in known.known if name in results and results[name].passed)
    if not options.update:
        _print_list("cases pass now, but are in the list (--update removes them)", repaired)
        _print_list("cases fail, but are not in the list", new)
        return int(bool(new or repaired))
    if new and known.path.exists() and not options.grow:
        _print_list("cases would be added to the list: fix them, or use --grow", new)
        return 1
    ratchet.save(ratchet.Ratchet(mode, known=failing), len(cases))
    if mode == "plain":
        ratchet.save_names(case.name for case in cases)
    print(f"\n{known.path.name}: {len(known.known)} -> {len(failing)}")
    return 0


def _print_list(title: str, names: list[str], limit: int = 40) -> None:
    if names:
        print(f"\n{len(names)} {title}: {' '.join(names[:limit])}{' ...' if len(names) > limit else ''}")


if __name__ == "__main__":
    sys.exit(main())
