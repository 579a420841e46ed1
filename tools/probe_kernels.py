"""Measure which forms of each op TFLite's CPU kernels compute correctly, and write them to schemas/tflite_ops.toml.

python tools/probe_kernels.py                        all ops with a probe
python tools/probe_kernels.py ADD SELECT_V2          these ops; the tables of others do not change
python tools/probe_kernels.py ADD --verbose --dry    print every case that is not correct, write nothing
python tools/probe_kernels.py --again                write the tables from the findings of the last run
python tools/probe_kernels.py --only inexact         write the errors of quantized forms only (or: hybrid, empty)
python tools/probe_kernels.py --micro                TFLite Micro instead, in schemas/targets/micro.toml
python tools/probe_kernels.py --gpu                  LiteRT's GPU accelerator instead, in schemas/targets/gpu.toml
python tools/probe_kernels.py --xnnpack              what LiteRT's delegate computes, in schemas/targets/xnnpack.toml
python tools/probe_kernels.py --vela ethos-u55       an NPU instead, in schemas/targets/ethos-u55.toml (or ethos-u85)
python tools/probe_kernels.py --costs                measure the times of ops that are alternative forms instead

Measures LiteRT (ai-edge-litert) in this Python and tflite-runtime 2.14 in --runtime-python (default: the environment
variable ONNXTFL_TFLITE_RUNTIME_PYTHON); with --micro, tflite-micro in this Python; with --gpu, LiteRT on the Vulkan
device of the driver that is installed (or named by VK_DRIVER_FILES); with --vela, what Vela (in this one) puts on the
NPU. All ops take half an hour, also those of the GPU, those of TFLite Micro ten minutes, the costs (on two kinds of
machine, which needs AVX-512, gcc and objdump) five minutes, those of an NPU one minute.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from onnxtfl.schemas.sections import names
from tools.probe import measure
from tools.probe.case import Case
from tools.probe.costs.measure import costs
from tools.probe.empty import empty_cases_of, empty_rows
from tools.probe.exactness import inexact
from tools.probe.faults import faults, narrow_cases
from tools.probe.npu import npu_cases
from tools.probe.properties import accelerated, cases_with_properties, deciding, delegated_cases
from tools.probe.registry import cases_of, hybrid_cases_of, probes
from tools.probe.runtime import ONLY, Runtime
from tools.probe.summary import is_accepted, is_correct, list_text, summarize
from tools.probe.tables import rewrite, rows_text
from tools.probe.unusual import unusual_cases_of, unusual_rows

from onnxtfl.ir.budget import MACHINES
from onnxtfl.targets.tflite import TfliteTarget

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "schemas" / "tflite_ops.toml"
TARGETS = ROOT / "schemas" / "targets"
MICRO_RANK = 6
"""The maximum rank of tflite::RuntimeShape (kMaxSmallSize), which release builds do not check."""
ACCELERATORS = {"ethos-u55": "ethos-u55-128", "ethos-u85": "ethos-u85-256"}
"""Vela's names of configurations, of which those of one NPU take the same ops."""
FINDINGS = ROOT / "build" / "probe"


def main() -> int:
    """Return exit code 0."""
    options = _options()
    if options.costs:
        return _costs(options)
    known = names(f"targets/{options.target}.toml") if options.target else probes()
    wanted = options.ops or sorted(set(probes()) & set(known))
    runtimes = _runtimes(options)
    measurer = measure.Measurer(runtimes, options.verbose, few=options.target == "gpu")
    for op in wanted:
        started = time.monotonic()
        tables = _tables(op, measurer, options)
        if not options.again or options.dry:
            print(f"# {op}: {time.monotonic() - started:.1f} s")
            print("".join(f"[{op}.{kind}]\n{text}" for kind, text in tables.items() if text), flush=True)
        for kind, text in tables.items() if not options.dry else ():
            rewrite(TARGETS / f"{options.target}.toml" if options.target else TABLE, {op: text}, kind)
    for runtime in runtimes.values():
        runtime.close()
    return 0


def _runtimes(options: argparse.Namespace) -> dict[str, Runtime]:
    """The runtimes to measure, by name."""
    if options.target in ACCELERATORS:
        return {options.target: Runtime(sys.executable, (ACCELERATORS[options.target],), "vela_child.py")}
    if options.target:
        return {options.target: Runtime(sys.executable, (ONLY,), f"{options.target}_child.py")}
    litert = {"litert": Runtime(sys.executable)}
    return litert if options.only == "unusual" else litert | {"2.14": Runtime(options.runtime_python)}


def _tables(op: str, measurer: measure.Measurer, options: argparse.Namespace) -> dict[str, str]:
    """The text of each table of an op, by kind; "" for tables that the op does not need."""
    if options.target == "gpu":
        return _accelerated(op, measurer, options)
    if options.target == "xnnpack":
        found = deciding(_findings(f"{op}.xnnpack", delegated_cases(op), measurer, options.again))
        computed = any(is_correct(finding, "xnnpack") for finding in found)
        return {"kernels": summarize(found, runtimes=("xnnpack",)) if computed else ""}
    if options.target in ACCELERATORS:
        cases = npu_cases(options.target, filter(_is_of_micro, cases_of(op)))
        found = _findings(f"{op}.{options.target}", cases, measurer, options.again)
        return {"kernels": summarize(found, runtimes=(options.target,))}
    if options.target:
        found = _findings(f"{op}.micro", filter(_is_of_micro, cases_of(op)), measurer, options.again)
        return {
            "kernels": summarize(found, runtimes=(options.target,)),
            "inexact": inexact(found, (f"{options.target} {ONLY}",)),
        }
    if options.only == "inexact":
        quantized = (case for case in cases_of(op) if case.quantizations)
        return {"inexact": inexact(_findings(f"{op}.quantized", quantized, measurer, options.again))}
    found = _findings(f"{op}.unusual", unusual_cases_of(op), measurer, options.again)
    tables = {"unusual": list_text("rows", rows) if (rows := unusual_rows(found)) else ""}
    if options.only == "unusual":
        return tables
    found = _findings(f"{op}.empty", empty_cases_of(op), measurer, options.again)
    tables |= {"empty": list_text("rows", rows) if (rows := empty_rows(op, found)) else ""}
    if options.only == "empty":
        return tables
    found = _findings(f"{op}.hybrid", hybrid_cases_of(op), measurer, options.again)
    tables |= {"hybrid": summarize(found, {"per_axis", "blocks"}) if any(map(is_accepted, found)) else ""}
    if options.only is None:
        found = _findings(op, cases_of(op), measurer, options.again)
        tables |= {"kernels": summarize(found), "inexact": inexact(found)}
    return tables


def _accelerated(op: str, measurer: measure.Measurer, options: argparse.Namespace) -> dict[str, str]:
    """The tables of an op for the GPU accelerator."""
    sets = (f"gpu {ONLY}",)
    unusual = _findings(f"{op}.gpu-unusual", accelerated(unusual_cases_of(op)), measurer, options.again)
    tables = {"unusual": list_text("rows", rows) if (rows := unusual_rows(unusual, sets)) else ""}
    if options.only == "unusual":
        return tables
    found = deciding(_findings(f"{op}.gpu", cases_with_properties(op), measurer, options.again))
    narrow = _findings(f"{op}.gpu-narrow", narrow_cases(op), measurer, options.again)
    if found and all(set(finding.verdicts.values()) == {"abort"} for finding in found):
        sys.exit(f"{op}: every case ended the process; is there a Vulkan device?")
    return tables | {
        "kernels": summarize(found, runtimes=("gpu",), notes=False),
        "faults": faults([*found, *narrow]),
        "inexact": inexact(found, sets),
    }


def _is_of_micro(case: Case) -> bool:
    """Whether all shapes are static and have at most MICRO_RANK axes: higher ranks overwrite other memory."""
    every = (*case.operands, *case.expected)
    return not case.dynamic and all(array is None or array.ndim <= MICRO_RANK for array in every)


def _findings(name: str, cases: Iterable[Case], measurer: measure.Measurer, again: bool) -> list[measure.Finding]:
    """The findings on `cases`: those saved by the last run if `again`, else measured and saved."""
    file = FINDINGS / f"{name}.jsonl"
    if not again or not file.exists():
        measure.save(measurer.measure(cases), file)
    return measure.load(file)


def _costs(options: argparse.Namespace) -> int:
    found = {machine: costs(TfliteTarget("litert-2.3"), options.ops, machine) for machine in MACHINES}
    tables = {op: rows_text({machine: found[machine][op] for machine in MACHINES}) for op in found[MACHINES[0]]}
    for op, text in tables.items():
        print(f"[{op}]\n{text}")
    if not options.dry:
        rewrite(TABLE, tables, "costs")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("ops", nargs="*", metavar="OP")
    parser.add_argument("--runtime-python", default=os.environ.get("ONNXTFL_TFLITE_RUNTIME_PYTHON", "python3.11"))
    target = parser.add_mutually_exclusive_group()
    target.add_argument("--micro", action="store_const", const="micro", dest="target", help="measure TFLite Micro")
    target.add_argument("--gpu", action="store_const", const="gpu", dest="target", help="measure the GPU accelerator")
    target.add_argument("--xnnpack", action="store_const", const="xnnpack", dest="target", help="ask LiteRT's delegate")
    target.add_argument("--vela", choices=ACCELERATORS, dest="target", help="ask Vela what runs on an NPU")
    parser.add_argument("--costs", action="store_true", help="measure the times of ops")
    parser.add_argument("--only", choices=["inexact", "hybrid", "empty", "unusual"], help="write these tables only")
    parser.add_argument("--again", action="store_true", help="use the findings of the last run")
    parser.add_argument("--dry", action="store_true", help="do not write the table")
    parser.add_argument("--verbose", action="store_true", help="print each case that is not correct")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
