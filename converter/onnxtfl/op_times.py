"""The time of each op of a model file in its runtime, and the nodes of the source that it computes.

A delegate reports its own kernels, in the order of the ops that it computes: `matched` finds the op of each.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from onnxtfl.formats import files
from onnxtfl.formats.tflite.outline import FileOp, file_ops
from onnxtfl.inputs.description import TensorInfo, describe
from onnxtfl.inputs.generation import UnknownInputError, make_input
from onnxtfl.inputs.ranges import input_ranges
from onnxtfl.inputs.sizes import open_shapes, requested, shape_facts, sized_by_name
from onnxtfl.ir.data import PathLike
from onnxtfl.ir.dims import is_static
from onnxtfl.ir.model import Model
from onnxtfl.pipeline import lifted_where_possible
from onnxtfl.placement import sources_of
from onnxtfl.runtimes import LITERT, ONNXRUNTIME
from onnxtfl.runtimes.profiler import profile
from onnxtfl.runtimes.profiles import OpTime, Profile
from onnxtfl.schemas.sections import folder
from onnxtfl.tables import Row, counted, some

SHOWN = 20
"""The slowest ops, which are shown."""


@dataclass(frozen=True)
class TimedOp(OpTime):
    """An op of the file with its time, or a kernel of the runtime whose op is not known.

    ``name``: that of the first result, of an ONNX node its own; "" if it is not known. ``op``: the op in the file, else
    the runtime's kernel. ``kernels``: the kernels that compute it, where these have other names. ``sources``: the
    tensors of the source that it computes, where the file has the record of its conversion.
    """

    kernels: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class OpTimes(Profile):
    """The profile of a model on one thread, with its ops in the order in which they run."""

    ops: tuple[TimedOp, ...] = ()

    def rows(self, verbose: bool = False) -> list[Row]:
        """The lines of a table: the whole run, each kind of op, and the slowest ops (``verbose``: all, in order)."""
        run = "not measured" if self.milliseconds is None else f"{self.milliseconds:.3g} ms, one thread"
        rows = [Row("time", f"{run}, in {self.runtime}"), *([Row("note", self.note, "yellow")] if self.note else [])]
        if self.delegate:
            groups = counted(self.partitions, "partition")
            rows.append(Row("delegate", f"{self.delegate} computes {self.delegated} of {self.total} ops; {groups}"))
        kinds = _kinds(self.ops)
        rows += _measured("by op", ((spent, f"{count} {op}") for op, (count, spent) in kinds), self.total_time)
        slowest = self.ops if verbose else sorted(self.ops, key=lambda op: -op.milliseconds)[:SHOWN]
        return rows + _measured("ops" if verbose else "slowest", map(_described, slowest), self.total_time)

    @property
    def total_time(self) -> float:
        """The milliseconds of all ops."""
        return sum(op.milliseconds for op in self.ops)

    def to_json(self) -> dict[str, Any]:
        """The times as JSON values."""
        return asdict(self)


def _kinds(timed: Iterable[TimedOp]) -> list[tuple[str, tuple[int, float]]]:
    """The number of ops of each kind, and their milliseconds; the slowest kind first."""
    found: dict[str, tuple[int, float]] = {}
    for op in timed:
        count, spent = found.get(op.op, (0, 0.0))
        found[op.op] = count + 1, spent + op.milliseconds
    return sorted(found.items(), key=lambda entry: -entry[1][1])


def _measured(title: str, lines: Iterable[tuple[float, str]], total: float) -> list[Row]:
    """A row for each line, with its milliseconds and its share of the total."""
    texts = (f"{spent:9.4f} ms {100 * spent / (total or 1.0):5.1f} %  {text}" for spent, text in lines)
    return [Row("" if k else title, text) for k, text in enumerate(texts)]


def _described(op: TimedOp) -> tuple[float, str]:
    kernels = f" ({', '.join(kernel for kernel, _ in groupby(op.kernels))})" if op.kernels else ""
    sources = f" from {some(op.sources)}" if op.sources and op.sources != (op.name,) else ""
    return op.milliseconds, f"{op.op}{kernels} {op.name}{sources}".rstrip()


def op_times(
    model: PathLike,
    input_shapes: Mapping[str, Sequence[int | str]] | None = None,
    dims: Mapping[str, int] | None = None,
) -> OpTimes:
    """Measure the ops of a model file in ONNX Runtime or LiteRT, on plausible inputs from a seed.

    ``input_shapes``, ``dims``: dynamic sizes, by input or by name; others are chosen. Raises `InvalidModelError`, and
    `UsageError` for other inputs or names.
    """
    read = files.read(model)
    runtime = LITERT if read.format == "tflite" else ONNXRUNTIME
    if not runtime.available():
        return OpTimes(runtime.name, note=f"not measured: {runtime.name} is not installed")
    infos = sized_by_name(requested(describe(Path(model), read).inputs, input_shapes or {}, {}), dims or {})
    try:
        values = _inputs(Path(model), infos)
    except UnknownInputError as error:
        return OpTimes(runtime.name, note=f"not measured: {error}")
    found = profile(runtime, model, values)
    ops, replaced = found.pop("ops", ()), found.pop("replaced", ())
    named = _of_tflite(model, ops, replaced) if read.format == "tflite" else _of_onnx(read, ops)
    known = sources_of(read)
    ops = tuple(replace(op, sources=known.get(op.name, ())) for op in named)
    return OpTimes(f"{runtime.name} {runtime.version()}", ops, **found)


def _inputs(model: Path, infos: Sequence[TensorInfo]) -> list[Any]:
    """Plausible values of the inputs of a file, as the check generates them."""
    graph = lifted_where_possible(files.read(model))
    known = {info.name: info.shape for info in infos if is_static(info.shape)}
    ranges, shapes = input_ranges(graph), next(iter(open_shapes(infos, known, shape_facts(graph))))
    pairs = enumerate(zip(infos, shapes, strict=True))
    return [make_input(info, shape, ranges.get(info.name), (0, k))[0] for k, (info, shape) in pairs]


def _of_onnx(read: Model, measured: Iterable[Sequence[Any]]) -> list[TimedOp]:
    """The nodes that ONNX Runtime ran, under the name of their first result; a fused one has that of its last node."""
    results = {node.name: node.results[0].name or "" for node in read.main.nodes if node.name and node.results}
    return [TimedOp(results.get(name) or name, op, spent) for name, op, spent in measured]


def _of_tflite(model: PathLike, measured: Iterable[Sequence[Any]], replaced: Iterable[int]) -> list[TimedOp]:
    """The ops of the file that LiteRT ran; kernels whose op is not known under their own names."""
    ops, entries = file_ops(model), list(measured)
    delegated, places = list(replaced), dict[int, int]()
    kernels = [k for k, (_, op, _) in enumerate(entries) if op.startswith(_DELEGATED)]
    shown = [entries[k][1].removeprefix(_DELEGATED).partition(" (")[0] for k in kernels]
    if (found := matched(shown, [ops[i].op for i in delegated])) is not None:
        places = {k: delegated[place] for k, place in zip(kernels, found, strict=True)}
    timed, keys = list[TimedOp](), [places.get(k, -1 - k) for k in range(len(entries))]
    for place, group in groupby(range(len(entries)), key=keys.__getitem__):
        each = [entries[k] for k in group]
        if place >= 0:
            spent, names = sum(entry[2] for entry in each), tuple(entry[1] for entry in each)
            timed.append(TimedOp(ops[place].result, ops[place].op, spent, names))
        else:
            timed += [TimedOp(_result_of(name, op, ops), op, spent) for name, op, spent in each]
    return timed


def _result_of(name: str, op: str, ops: Sequence[FileOp]) -> str:
    """The first result of an op that LiteRT's own kernels compute, from its name "OP PLACE"; "" for other names."""
    number = name.rpartition(" ")[2]
    place = int(number) if number.isdecimal() and not op.startswith(_DELEGATED) else len(ops)
    return ops[place].result if place < len(ops) and ops[place].op == op else ""


_DELEGATED = "XNNPACK "
"""The beginning of the names of a delegate's kernels."""


@functools.cache
def kernel_names() -> dict[str, frozenset[str]]:
    """The ops that each kernel of XNNPACK computes, by the name that the profiler has for it."""
    found = tomllib.loads(folder().joinpath("xnnpack_kernels.toml").read_text(encoding="utf-8"))
    return {name: frozenset(ops.split()) for name, ops in found.items()}


def matched(kernels: Sequence[str], ops: Sequence[str]) -> list[int] | None:
    """The place in `ops` of the op that each kernel computes, in the same order; None if they do not fit.

    An op may have no kernel of its own (it is a part of the one after it), or several. Of all ways, the one with the
    fewest of both; a name that is not known fits every op.
    """
    if len(kernels) * len(ops) > _MOST_PAIRS:
        return None
    fits = kernel_names()
    costs, origins = [float(j) for j in range(len(ops))], list[list[int]]()
    for k, kernel in enumerate(kernels):
        known = fits.get(kernel)
        now, came = [_NEVER] * len(ops), [-1] * len(ops)
        best, source = (0.0, -1) if k == 0 else (_NEVER, -1)
        for j, op in enumerate(ops):
            step = (best + j if k == 0 else best + j - source - 1) if best < _NEVER else _NEVER
            again = costs[j] + 1.0 if k else _NEVER
            if known is None or op in known:
                now[j], came[j] = (again, j) if again <= step else (step, source)
            if k and costs[j] - j < best - source:
                best, source = costs[j], j
        costs, origins = now, [*origins, came]
    if not kernels or min(costs, default=_NEVER) >= _NEVER:
        return None
    place = min(range(len(ops)), key=lambda j: costs[j] + len(ops) - 1 - j)
    found = [place]
    for came in reversed(origins[1:]):
        place = came[place]
        found.append(place)
    return found[::-1]


_NEVER = float("inf")
_MOST_PAIRS = 1 << 22
"""The most pairs of a kernel and an op that are compared, in seconds."""
