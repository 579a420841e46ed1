"""Vela, the compiler for Arm's Ethos-U NPUs, in a child process: which ops of a .tflite run on the NPU, and how fast.

Vela runs on any CPU. Its results are read from the files that it writes, the summary (CSV) and the database of ops
(XML); violated constraints are read from its output.
"""

from __future__ import annotations

import csv
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from onnxtfl.errors import one_line
from onnxtfl.runtimes.process import environment
from onnxtfl.runtimes.run_errors import RunError
from onnxtfl.temporary import Folder

DISTRIBUTION, INSTALL = "ethos-u-vela", "'onnxtfl[ethos-u]'"
_REASON = re.compile(r"Warning \(supported operators\) operator: (\S+), ofm: '(.*)'\nReason: ([^\n]*)\n([^\n]*)")
_ON_CPU = "Passthrough"
"""Vela's name of an op that it leaves in the file for the CPU."""
NPU_OP = "ethos-u"
"""The custom op of Vela's result that a part of the model became."""
_NOT_TAKEN = "Vela leaves it to the CPU without a reason"


@dataclass(frozen=True)
class CompiledOp:
    """Where an op of the main graph runs.

    ``reason``: the violated constraint in Vela's words, "" on the NPU. ``cycles``: Vela's estimate, of all NPU ops that
    the op became; 0 if it became part of another op.
    """

    on_npu: bool
    reason: str = ""
    cycles: int = 0


@dataclass(frozen=True)
class Compiled:
    """The result of Vela for a model: ``ops`` of the main graph in the order of the file, memory in bytes.

    ``accelerator``, ``system``, ``memory_mode``: the configuration of the estimates, in Vela's words. ``flash``: bytes
    of the read-only memory. ``cycles``: of one run. ``inferences_per_second``: None if nothing runs on the NPU.
    ``model``: the .tflite that runs on the NPU.
    """

    accelerator: str
    system: str
    memory_mode: str
    ops: tuple[CompiledOp, ...]
    sram: int
    flash: int
    cycles: int
    inferences_per_second: float | None
    model: bytes


def command() -> list[str] | None:
    """The command that runs Vela: that of this Python, else the one on the path; None if it is not installed."""
    with_vela = importlib.util.find_spec("ethosu") is not None and importlib.util.find_spec("ethosu.vela") is not None
    if with_vela:
        return [sys.executable, "-m", "ethosu.vela"]
    found = shutil.which("vela")
    return None if found is None else [found]


def compile_for(
    model: str | os.PathLike[str], accelerator: str, names: Sequence[str], time_limit: float = 300.0
) -> Compiled:
    """Compile the .tflite file ``model``, whose ops have these ``names`` of their first results, in order.

    ``accelerator``: Vela's name of the configuration ("ethos-u55-128"). Raises `RunError`: unavailable (Vela is not
    installed), timeout, crash, or unsupported with Vela's message.
    """
    vela = command()
    if vela is None:
        raise RunError("unavailable", f"Vela is not installed; pip install {INSTALL}")
    with Folder() as folder:
        arguments = [os.path.abspath(model), "--accelerator-config", accelerator, "--output-dir", "."]
        said = _run([*vela, *arguments, "--enable-debug-db"], folder, time_limit)
        made = {path.name.removeprefix(Path(model).stem): path for path in folder.iterdir()}
        summary = next((path for ending, path in made.items() if ending.startswith("_summary_")), None)
        if summary is None or not {"_vela.tflite", "_debug.xml"} <= made.keys():
            raise RunError("unsupported", f"Vela wrote no result: {one_line(said, 300)}")
        reasons = {match[2]: one_line(_reason(match), 300) for match in _REASON.finditer(said)}
        ops = _ops(_tables(made["_debug.xml"]), names, reasons)
        return _compiled(summary, ops, made["_vela.tflite"].read_bytes())


def _run(vela: Sequence[str], folder: Path, time_limit: float) -> str:
    """Run Vela in a folder and return what it printed."""
    try:
        done = subprocess.run(vela, capture_output=True, cwd=folder, timeout=time_limit, check=False, env=environment())
    except subprocess.TimeoutExpired:
        raise RunError("timeout", f"Vela took more than {time_limit:g} s") from None
    except OSError as error:
        raise RunError("unavailable", f"cannot start Vela: {error.strerror or error}") from error
    said = "\n".join(stream.decode("utf-8", "replace") for stream in (done.stdout, done.stderr))
    if done.returncode < 0:
        raise RunError("crash", f"Vela crashed (signal {-done.returncode})")
    if done.returncode:
        told = [line for line in said.splitlines() if line.strip() and not line.startswith("Warning")]
        raise RunError("unsupported", f"Vela: {one_line(' '.join(told[-3:]), 300)}")
    return said


def _reason(match: re.Match[str]) -> str:
    """The violation without the tensor's name, and the constraint where Vela prints it on the next line."""
    violation = re.sub(r"(DataType \w+) \(.*\)", r"\1", match[3])
    return ". ".join(part.strip().rstrip(".") for part in (violation, match[4]) if part.strip())


Rows = Sequence[Mapping[str, str]]


def _tables(file: Path) -> Mapping[str, Rows]:
    """The tables of Vela's database of ops, by name."""
    tables = ElementTree.parse(file).getroot().iter("table")
    return {table.get("name", ""): list(csv.DictReader((table.text or "").strip().splitlines())) for table in tables}


def _ops(tables: Mapping[str, Rows], names: Sequence[str], reasons: Mapping[str, str]) -> tuple[CompiledOp, ...]:
    """Where each op of the file runs; those that Vela removed are counted to the NPU."""
    places = dict(_main_places(tables.get("source", ())))
    on_cpu = {places.get(row["source_id"]) for row in tables.get("optimised", ()) if row["operator"] == _ON_CPU}
    cycles = [0] * len(names)
    for row in tables.get("perf", ()):
        place = places.get(row["source_id"])
        if place is not None and place < len(names):
            cycles[place] += int(float(row["op_cycles"] or 0))
    return tuple(
        CompiledOp(False, reasons.get(name, _NOT_TAKEN)) if k in on_cpu else CompiledOp(True, cycles=cycles[k])
        for k, name in enumerate(names)
    )


def _main_places(rows: Rows) -> Iterator[tuple[str, int]]:
    """The ids of the ops of the main graph, and their places in it: Vela counts from 0 again in each subgraph."""
    last = -1
    for row in (row for row in rows if row["ext_key"].isdigit()):
        place = int(row["ext_key"])
        if place <= last:
            return
        yield row["id"], place
        last = place


def _compiled(summary: Path, ops: tuple[CompiledOp, ...], model: bytes) -> Compiled:
    with summary.open(newline="", encoding="utf-8") as file:
        row = next(csv.DictReader(file))

    def kilobytes(*areas: str) -> int:
        return round(1024 * sum(float(row.get(f"{area}_memory_used") or 0) for area in areas))

    return Compiled(
        row["accelerator_configuration"],
        row["system_config"],
        row["memory_mode"],
        ops,
        kilobytes("sram"),
        kilobytes("dram", "on_chip_flash", "off_chip_flash"),
        int(float(row["cycles_total"])),
        float(row["inferences_per_second"]) if int(float(row["cycles_total"])) else None,
        model,
    )
