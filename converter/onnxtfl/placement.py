"""Where each op of a .tflite runs on a target: on the NPU or on the CPU beside it, in a delegate or not, or not at all.

`PLACEMENTS` has one function for each target that its tables alone do not describe; `by_table` is used for all others,
and where the compiler or runtime of a target is not installed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import starmap
from pathlib import Path
from typing import Any

import numpy as np

from onnxtfl.errors import UsageError
from onnxtfl.formats import files
from onnxtfl.formats.tflite.outline import FileOp, file_ops
from onnxtfl.inputs.generation import UnknownInputError, is_too_large
from onnxtfl.ir.compact_record import decode
from onnxtfl.ir.data import PathLike
from onnxtfl.ir.dims import size_or
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.metadata import RECORD, content_of
from onnxtfl.ir.model import Model
from onnxtfl.ir.record import Record
from onnxtfl.ir.types import TensorType
from onnxtfl.rewriting.target import Refusal
from onnxtfl.runtimes import LITERT, RunError, vela
from onnxtfl.runtimes.profiler import profile
from onnxtfl.schemas.target_tables import ROOT, chosen_targets, target_tables
from onnxtfl.tables import Row, byte_count, counted, some, titled
from onnxtfl.targets.target import as_form
from onnxtfl.targets.tflite import Fault, TfliteTarget, unusual_operands

_DELEGATE, _BUILTIN = "xnnpack", "builtin kernels"
CPU = "cpu"
"""The name of the placement on LiteRT's CPU kernels and its delegate."""


@dataclass(frozen=True)
class PlacedOp:
    """An op of the main graph, by its place in the file; ``name``: that of its first result.

    ``where``: the hardware or runtime, "" if the target cannot run it. ``reason``: the constraint that it violates, ""
    where it runs on the target itself and is computed correctly. ``fault``: "computes wrong values" (without an
    error) or "ends the process", "" if neither is known. ``unusual``: operands, like "nan in lhs", of which the target
    computes other values than NumPy. ``sources``: the nodes of the source, if known. ``rewrite``: what a conversion for
    the target does about it. ``cycles``: estimated by the target's compiler, None if unknown.
    """

    index: int
    op: str
    name: str
    where: str
    reason: str = ""
    fault: str = ""
    unusual: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    rewrite: str = ""
    cycles: int | None = None


@dataclass(frozen=True)
class Placement:
    """Where each op runs. ``target``: its name. ``by``: its source, a compiler, a runtime or the target's table.

    ``note``: why the compiler or runtime was not used. ``partitions``: the number of groups of ops on the target,
    between which other ops run; None if these run nowhere. ``sram``, ``flash``: bytes. ``compiled``: what the compiler
    wrote.
    """

    target: str
    by: str
    ops: tuple[PlacedOp, ...]
    note: str = ""
    partitions: int | None = None
    sram: int | None = None
    flash: int | None = None
    cycles: int | None = None
    inferences_per_second: float | None = None
    compiled: bytes | None = field(default=None, repr=False)

    @property
    def is_of_npu(self) -> bool:
        """Whether the target is an NPU, which computes on integers."""
        table = target_tables().get(self.target)
        return table is not None and table.accelerator is not None

    @property
    def elsewhere(self) -> tuple[PlacedOp, ...]:
        """The ops that do not run on the target itself."""
        return tuple(op for op in self.ops if op.reason and not op.fault)

    @property
    def faulty(self) -> tuple[PlacedOp, ...]:
        """The ops that the target takes, although it computes them wrong or ends the process."""
        return tuple(op for op in self.ops if op.fault)

    @property
    def counts(self) -> str:
        """The number of ops in each place, and of partitions, as text."""
        places = Counter(_place(op) for op in self.ops)
        counts = ", ".join(f"{count} {where}" for where, count in places.most_common())
        return "; ".join(filter(None, (counts or "no ops", self.parts)))

    @property
    def parts(self) -> str:
        """The number of partitions as text."""
        return counted(self.partitions, "partition") if self.partitions else ""

    def rows(self, verbose: bool = False) -> list[Row]:
        """The lines of a table: counts, memory and speed, and the ops elsewhere by reason (``verbose``: all ops)."""
        rows = [Row("note", f"not checked on {self.target}: {self.note}", "yellow")] if self.note else []
        rows.append(Row("placement", f"{self.target}: {self.counts} (by {self.by})"))
        if self.sram is not None and self.flash is not None:
            rows.append(Row("memory", f"{byte_count(self.sram)} SRAM, {byte_count(self.flash)} read-only"))
        if self.cycles:
            runs = self.inferences_per_second or 0.0
            speed = f"{runs:,.0f}" if runs >= 100 else f"{runs:.3g}"
            rows.append(Row("speed", f"{self.cycles:,} cycles, {speed} inferences per second (estimated)"))
        rows += titled("wrong", starmap(_summed, by_reason(self.faulty)), "red")
        lines = [_line(op) for op in self.ops] if verbose else list(starmap(_summed, by_reason(self.elsewhere)))
        return rows + titled("ops" if verbose else "elsewhere", lines, "" if verbose else "yellow")

    def to_json(self) -> dict[str, Any]:
        """The placement as JSON values, without the compiled model."""
        return {key: value for key, value in asdict(replace(self, compiled=None)).items() if key != "compiled"}


Reason = tuple[str, str, str, tuple[str, ...]]
"""The kind of some ops, why they do not run or are wrong, what a conversion does about it, and their names."""


def by_reason(ops: Sequence[PlacedOp]) -> list[Reason]:
    """Ops by kind, reason and rewrite, with their names; the most frequent first."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for op in ops:
        found.setdefault((op.op, ": ".join(filter(None, (op.fault, op.reason))), op.rewrite), []).append(op.name)
    ordered = sorted(found.items(), key=lambda entry: -len(entry[1]))
    return [(*key, tuple(names)) for key, names in ordered]


def _place(op: PlacedOp) -> str:
    place = f"on {op.where}" if op.where else "nowhere"
    return f"{place} ({op.fault})" if op.fault else place


def _line(op: PlacedOp) -> str:
    cycles = f", {op.cycles:,} cycles" if op.cycles else ""
    sources = f" from {', '.join(op.sources)}" if op.sources else ""
    unusual = f"other values than NumPy of {', '.join(op.unusual)}" if op.unusual else ""
    why = "".join(f"; {part}" for part in (op.fault, op.reason, op.rewrite, unusual) if part)
    return f"{op.index} {op.op} {op.name}{sources}: {op.where or 'nowhere'}{cycles}{why}"


def _summed(op: str, reason: str, rewrite: str, names: Sequence[str]) -> str:
    return f"{len(names)} {op} ({some(names)}): {'; '.join(part for part in (reason, rewrite) if part)}"


def place(model: PathLike, target: str, record: Record | None = None) -> Placement:
    """Where each op of a .tflite file runs on ``target`` ("cpu", or a target with a table).

    ``record``: of the conversion that wrote it. Raises `InvalidModelError`, and `UsageError` for another target.
    """
    if target not in placements():
        raise UsageError(f"there is no placement on {target!r}", hint=f"use {', '.join(placements())}")
    if files.sniff(model) != "tflite":
        raise UsageError("only .tflite files are placed", hint="convert the model first")
    read, ops = files.read(model), file_ops(model)
    found = PLACEMENTS.get(target, by_table)(Path(model), target, read, ops)
    sources = sources_of(read, record)
    return replace(found, ops=tuple(replace(op, sources=sources.get(op.name, ())) for op in found.ops))


def known_faults(model: PathLike) -> list[str]:
    """The ops of a file that runtimes which take any .tflite compute wrong without an error; a line for each kind.

    Empty for a model with dynamic sizes, which these runtimes refuse. Special elements, like NaN, are left out.
    """
    read = files.read(model)
    if not all(v.is_static for v in read.main.inputs):
        return []
    found = []
    for name, table in target_tables().items():
        faulty = [op for op in _placed_ops(_known(name), read) if op.fault] if table.measured else []
        named = _named(faulty, file_ops(model)) if faulty else ()
        for op, reason, rewrite, names in by_reason(named):
            found.append(f"{len(names)} {op} ({some(names)}): {table.title} {reason}; {rewrite}")
    return found


def placements() -> tuple[str, ...]:
    """The names of all placements."""
    return (CPU, *(name for name, table in chosen_targets().items() if table.parent is not None))


def sources_of(read: Model, record: Record | None = None) -> dict[str, tuple[str, ...]]:
    """The nodes of the source by the name of a result, or what the record in the file says: the tensor's source."""
    if record is not None:
        return {op.target: op.sources for op in record.ops}
    content = read.metadata.properties.get(RECORD)
    try:
        moved = () if content is None else decode(content_of(content)).moved
    except ValueError:
        return {}
    return {entry.target: (entry.source,) for entry in moved}


def by_table(model: Path, target: str, read: Model, ops: Sequence[FileOp]) -> Placement:
    """The placement according to the tables of the target."""
    known = _known(target)
    placed = _named(_placed_ops(known, read), ops)
    parts = None if known.fallback is None else _partitions(read.main, placed)
    measured = f", measured with {known.table.measured}" if known.table.measured else ""
    return Placement(target, f"the table schemas/{known.table.file}{measured}", placed, partitions=parts)


def _known(target: str) -> TfliteTarget:
    """The target by whose tables the ops of a file are placed."""
    known = TfliteTarget(table=target, on_cpu=target_tables()[target].shares_cpu)
    known.is_laid_out = target in chosen_targets()  # the tables of delegates do not cover each axis order
    return known


def _placed_ops(target: TfliteTarget, read: Model) -> list[PlacedOp]:
    """Where each op of the main graph runs, without the names that it has in the file."""
    seen: dict[Hashable, Verdict] = {}
    return [_placed(read.main, i, node, target, seen) for i, node in enumerate(read.main.nodes)]


def _named(placed: Iterable[PlacedOp], ops: Sequence[FileOp]) -> tuple[PlacedOp, ...]:
    return tuple(replace(op, op=ops[op.index].op, name=ops[op.index].result) for op in placed)


Verdict = tuple[Refusal | None, Fault | None, Refusal | None]
"""Why a target does not accept an op, what it does with it nevertheless, and why its fallback does not accept it."""


def _placed(graph: Graph, index: int, node: Node, target: TfliteTarget, seen: dict[Hashable, Verdict]) -> PlacedOp:
    """Where an op runs, without its name. `seen`: the verdicts on equal ops."""
    form = as_form(node)
    key = target.key_of(node, form)
    if key not in seen:
        refusal = target.own_refusal(form, node.results)
        fault = None if refusal is None else target.fault(form, node.results)
        left = None if refusal is None or fault is not None else target.refusal(form, node.results)
        seen[key] = refusal, fault, left
    (refusal, fault, left), unusual = seen[key], tuple(target.unusual(form.op))
    if refusal is None:
        return PlacedOp(index, form.op, "", target.title, unusual=unusual)
    if fault is not None:
        rewrite = f"`target={target.table.name}` writes another form"
        return PlacedOp(index, form.op, "", target.title, refusal.message, FAULTS[fault], rewrite=rewrite)
    rewrite = _rewrite(graph, node, refusal, target)
    return PlacedOp(index, form.op, "", "the CPU" if left is None else "", refusal.message, rewrite=rewrite)


FAULTS: Mapping[Fault, str] = {"abort": "ends the process", "wrong": "computes wrong values"}


def _partitions(graph: Graph, ops: Sequence[PlacedOp]) -> int | None:
    """The number of groups of ops on the target, None if ops run nowhere.

    As TFLite forms them: it takes ops of one place for as long as any of them has its operands, then those elsewhere.
    """
    if not all(op.where for op in ops):
        return None
    missing = {value for node in graph.nodes for value in node.results}
    left, groups = list(zip(graph.nodes, (not op.reason or bool(op.fault) for op in ops), strict=True)), []
    while left:
        groups.append(next(own for node, own in left if missing.isdisjoint(node.operands)))
        later = []
        for node, own in left:
            if own is groups[-1] and missing.isdisjoint(node.operands):
                missing.difference_update(node.results)
            else:
                later.append((node, own))
        left = later
    return sum(groups)


def _rewrite(graph: Graph, node: Node, refusal: Refusal, target: TfliteTarget) -> str:
    """Return how a conversion for the target would rewrite a refused op."""
    values = [v for v in (*node.operands, *node.results) if v is not None and isinstance(v.type, TensorType)]
    edge = any(not v.is_quantized and (v in graph.inputs or v in graph.outputs) for v in values)
    if edge and any(v.is_quantized for v in values):
        return "`quantized_io=int8` leaves it out"
    is_float = not any(v.is_quantized for v in values) and any(v.tensor_type.dtype.is_float for v in values)
    if is_float and target.has_integer_ops:
        return "float: quantize it in the source (op_types_to_quantize of onnxruntime.quantization), or `quantize=int8`"
    return _REWRITES.get(refusal.kind, "")


_REWRITES = {
    "rank": "`target` merges axes",
    "quantization": "`target` requantizes to the nearest type or scale that is accepted",
    "dtype": "`target` computes it in another type",
}


def by_vela(model: Path, target: str, read: Model, ops: Sequence[FileOp]) -> Placement:
    """The placement on an NPU by Vela; by the table if Vela cannot compile the model, with a note."""
    table, known = target_tables()[target], by_table(model, target, read, ops)
    assert table.accelerator is not None
    try:
        compiled = vela.compile_for(model, table.accelerator, [op.result for op in ops])
    except RunError as error:
        return replace(known, note=error.message)
    placed = tuple(
        replace(
            op,
            where=table.title if made.on_npu else "the CPU",
            reason=made.reason,
            rewrite="" if made.on_npu else op.rewrite,
            cycles=made.cycles,
        )
        for op, made in zip(known.ops, compiled.ops, strict=True)
    )
    return Placement(
        target,
        f"Vela for {compiled.accelerator}, {compiled.system}, {compiled.memory_mode}",
        placed,
        partitions=sum(op.op == vela.NPU_OP for op in file_ops(compiled.model)),
        sram=compiled.sram,
        flash=compiled.flash,
        cycles=compiled.cycles,
        inferences_per_second=compiled.inferences_per_second,
        compiled=compiled.model,
    )


def on_cpu(model: Path, target: str, read: Model, ops: Sequence[FileOp]) -> Placement:
    """The placement on LiteRT's CPU kernels: the ops that the delegate computes; others run in LiteRT's own kernels."""
    try:
        found = profile(LITERT, model, [_zeros(value) for value in read.main.inputs], ops=False)
    except UnknownInputError as error:
        found = {"note": str(error)}
    if "replaced" not in found:
        return replace(_by_delegate(model, read, ops), target=target, note=found.get("note", ""))
    delegate, replaced = found["delegate"], set(found["replaced"])
    reason = f"{delegate} has no kernel for it" if delegate else "no op is delegated"
    placed = tuple(
        PlacedOp(i, op.op, op.result, delegate, unusual=unusual_operands(op.op, _DELEGATE))
        if i in replaced
        else PlacedOp(i, op.op, op.result, _BUILTIN, reason, unusual=unusual_operands(op.op, "builtin"))
        for i, op in enumerate(ops)
    )
    return Placement(target, "LiteRT", placed, partitions=found["partitions"])


def _by_delegate(model: Path, read: Model, ops: Sequence[FileOp]) -> Placement:
    """The placement on LiteRT's CPU kernels by the table of its delegate."""
    delegate = target_tables()[ROOT].delegate
    assert delegate is not None
    known = by_table(model, delegate, read, ops)
    placed = tuple(
        replace(op, where=_BUILTIN, rewrite="", unusual=unusual_operands(op.op, "builtin"))
        if op.reason
        else replace(op, unusual=unusual_operands(op.op, _DELEGATE))
        for op in known.ops
    )
    return replace(known, ops=placed, partitions=_partitions(read.main, placed))


def _zeros(value: Value) -> np.ndarray[Any, Any]:
    """Zeros for an input; dynamic sizes are 1. Raises `UnknownInputError` for a resource, and for too many elements."""
    type_ = value.type
    if not isinstance(type_, TensorType):
        raise UnknownInputError(f"no values for the input {value.name!r} of type {type_}")
    sizes = [size_or(size, 1) for size in type_.shape or ()]
    if is_too_large(sizes, type_.storage.numpy):
        raise UnknownInputError(f"the input {value.name!r} of type {type_} is too large")
    return np.zeros(sizes, type_.storage.numpy)


PLACEMENTS: Mapping[str, Callable[[Path, str, Model, Sequence[FileOp]], Placement]] = {
    CPU: on_cpu,
    **{name: by_vela for name, table in target_tables().items() if table.accelerator is not None},
}
