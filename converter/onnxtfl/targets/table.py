"""The table of tfl ops (``schemas/tflite_ops.toml``), read op by op, and those of targets (``schemas/targets/``)."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from onnxtfl.dataclass import dataclass
from onnxtfl.rewriting.readings import Reading, reading_of
from onnxtfl.schemas.sections import names, section
from onnxtfl.schemas.target_tables import target_tables

Release = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Parameter:
    """An operand or result of a signature: `variable` names its element type."""

    name: str
    variable: str
    optional: bool = False
    variadic: bool = False


@dataclass(frozen=True, slots=True)
class Version:
    """An op version: the first TensorFlow release that has it, and the conditions that need it (any of them).

    A condition is a list of terms (:mod:`onnxtfl.targets.terms`); the head of the table describes their language.
    """

    number: int
    since: Release
    conditions: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class CostRow:
    """Nanoseconds for each unit of work (see :mod:`work`).

    The row applies to an instance of the op if its operands `constant` are constants, its axis is the last one (`last`
    True), another one (False) or any (None), its options have the values `options`, and its amounts of work are within
    `ranges` (lowest, highest).
    """

    constant: frozenset[str]
    last: bool | None
    rates: Mapping[str, float]
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    options: Mapping[str, bool] = field(default_factory=dict)

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> CostRow:
        """Read a row of a table."""
        ranges = {name: _range(text) for name, text in table.items() if isinstance(text, str) and name != "constant"}
        options = {name: value for name, value in table.items() if isinstance(value, bool) and name != "last"}
        rates = {name: float(r) for name, r in table.items() if name not in ("constant", "last", *ranges, *options)}
        return cls(frozenset(table.get("constant", "").split()), table.get("last"), rates, ranges, options)


def _range(text: str) -> tuple[float, float]:
    """The bounds of "3-8", "3" or "3-", which has no upper one."""
    low, dash, high = text.partition("-")
    return float(low), float(high) if high else math.inf if dash else float(low)


Costs = Mapping[str, tuple[CostRow, ...]]
"""The rows of an op by kind of machine."""


def costs_of(table: Mapping[str, Any]) -> Costs:
    """Read the rows of a table of costs."""
    return {machine: tuple(map(CostRow.of, rows)) for machine, rows in table.items()}


@dataclass(frozen=True, slots=True)
class OpEntry:
    """The entry of one op.

    `fuses_as`: this op as a fused_activation_function. `activations`: those that may be fused into this op.
    `matrix_rank`: how many trailing axes do not broadcast. `symmetric`: the operand whose signed elements need the zero
    point 0. `fixed_results`: scale and zero point that a quantized result has to have, by its type. `in_place`: the
    operands in whose memory the result may be written. `same_memory`: whether the result is the first operand's memory
    read in another way. `saturated_bits`: how many bits the integers may have that are saturated to the type of a
    quantized result (None: any). `factor_bits`: how many bits after the point the factor from one scale to another has
    (None: as many as results need). `scales`: the conditions on scales. `reads`: how
    kernels read quantized operands. `kernels`: forms by runtime ("2.14" and
    "litert"). `hybrid`: likewise, of quantized weights and float activations. `inexact`: the quantized forms whose
    results are not the nearest steps. `interpolated`: types of quantized results that are computed in float instead.
    `drops_axes`: types of quantized results that a delegate may return without the leading axes of a constant.
    """

    name: str
    operands: tuple[Parameter, ...]
    results: tuple[Parameter, ...]
    versions: tuple[Version, ...]
    fuses_as: str | None
    activations: frozenset[str]
    matrix_rank: int
    fixed_results: Mapping[str, tuple[float, int]]
    symmetric: str
    scales: tuple[str, ...]
    reads: Reading
    kernels: Mapping[str, tuple[Mapping[str, Any], ...]]
    costs: Costs = field(default_factory=dict)
    in_place: tuple[int, ...] = ()
    same_memory: bool = False
    hybrid: Mapping[str, tuple[Mapping[str, Any], ...]] = field(default_factory=dict)
    saturated_bits: int | None = None
    inexact: tuple[Mapping[str, Any], ...] = ()
    factor_bits: int | None = None
    interpolated: frozenset[str] = frozenset()
    drops_axes: frozenset[str] = frozenset()
    unread_zero: Mapping[str, str] = field(default_factory=dict)
    stored: Mapping[str, str] = field(default_factory=dict)


MEASURED = ("2.14", "litert")
"""The runtimes in the table of ops; each target has a table of its own."""


@dataclass(frozen=True, slots=True)
class Narrowed:
    """The entry of an op in the table of a target; ``schemas/targets/tflite.toml`` describes the keys.

    `is_missing`: whether the target has no such op. `kernels`, `hybrid`, `activations`: as in `OpEntry`; None: those of
    the target's parent. `faster_in_float`: types of quantized results. `faults`, `unusual`: the rows of these tables.
    `resolver`: the method of MicroMutableOpResolver that adds the op.
    """

    is_missing: bool = False
    most_values: int | None = None
    needed: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    only: Mapping[str, Any] = field(default_factory=dict)
    limits: tuple[str, ...] = ()
    correct: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()
    safe: tuple[str, ...] = ()
    kernels: tuple[Mapping[str, Any], ...] | None = None
    hybrid: tuple[Mapping[str, Any], ...] | None = None
    activations: frozenset[str] | None = None
    faster_in_float: frozenset[str] = frozenset()
    inexact: tuple[Mapping[str, Any], ...] = ()
    faults: tuple[Mapping[str, Any], ...] = ()
    unusual: tuple[Mapping[str, Any], ...] = ()
    resolver: str = ""


@functools.cache
def narrowed(target: str, op: str) -> Narrowed:
    """The entry of `op` in the table of a target; an empty one if the table lists only exceptions and `op` is none of
    them.
    """
    known = target_tables()[target]
    missing: dict[str, Any] = {"is_missing": not known.has_other_ops}
    table = section(op, known.file) if op in names(known.file) else missing
    kernels, hybrid = section(f"{op}.kernels", known.file), section(f"{op}.hybrid", known.file)
    is_whole = bool(kernels) or not known.has_other_ops
    is_unfused = bool(kernels) and "activations" not in kernels
    return Narrowed(
        table.get("is_missing", False),
        table.get("most_values"),
        tuple(table.get("needed", "").split()),
        tuple(table.get("absent", "").split()),
        table.get("only", {}),
        tuple(table.get("limits", ())),
        tuple(table.get("correct", ())),
        tuple(table.get("preferred", ())),
        tuple(table.get("safe", ())),
        tuple(kernels.get(target, ())) if is_whole else None,
        tuple(hybrid.get(target, ())) if is_whole else None,
        frozenset(kernels.get("activations", "").split()) if is_whole and not is_unfused else None,
        frozenset(table.get("faster_in_float", "").split()),
        tuple(section(f"{op}.inexact", known.file).get("rows", ())),
        tuple(section(f"{op}.faults", known.file).get("rows", ())),
        tuple(section(f"{op}.unusual", known.file).get("rows", ())),
        table.get("resolver", ""),
    )


def op_names() -> tuple[str, ...]:
    """The names of all ops, by number."""
    return names()


@functools.cache
def entry(op: str) -> OpEntry:
    """The entry of `op`. Raises KeyError if TFLite has no such op, ValueError if the entry has no `reads`."""
    reads = reading_of(op)
    table = section(op)
    operands, results = parse_signature(table["signature"])
    versions = tuple(_version(text) for text in table.get("versions", ()))
    kernels, costs = section(f"{op}.kernels"), section(f"{op}.costs")
    return OpEntry(
        name=op,
        operands=operands,
        results=results,
        versions=versions,
        fuses_as=table.get("fuses_as"),
        activations=frozenset(kernels.get("activations", "").split()),
        matrix_rank=table.get("matrix_rank", 0),
        symmetric=table.get("symmetric", ""),
        scales=tuple(table.get("scales", ())),
        reads=reads,
        fixed_results={kind: (float(scale), zero) for kind, (scale, zero) in table.get("fixed_results", {}).items()},
        kernels=_by_runtime(kernels),
        costs=costs_of(costs),
        in_place=tuple(table.get("in_place", ())),
        same_memory=table.get("same_memory", False),
        hybrid=_by_runtime(section(f"{op}.hybrid")),
        saturated_bits=table.get("saturated_bits"),
        inexact=tuple(section(f"{op}.inexact").get("rows", ())),
        factor_bits=table.get("factor_bits"),
        interpolated=frozenset(table.get("interpolated", "").split()),
        drops_axes=frozenset(table.get("drops_axes", "").split()),
        unread_zero=table.get("unread_zero", {}),
        stored=table.get("stored", {}),
    )


@functools.cache
def failures_at_zero(op: str) -> Mapping[str, str]:
    """The verdicts on `op` with an axis of size 0 in its first operand, by the place of the axis.

    Places: "first", "inner" or "last" if the result is empty too; "filled" if it has elements. Verdicts: "abort" or
    "wrong" of any kernel set of LiteRT, or of the default one of tflite-runtime 2.14; "refused" by all. A place without
    a verdict is correct, or refused by some.
    """
    rows = [row for row in section(f"{op}.empty").get("rows", ()) if row["kernels"] != "2.14 builtin"]
    return {row["axis"]: row["verdict"] for row in rows if row["verdict"] != "refused" or row["kernels"] == "all"}


@functools.cache
def fails_without_rows(op: str) -> bool:
    """Whether a kernel of `op` fails at run time where the first axis of its first operand has size 0, and the result
    is empty: also if it is XNNPACK's in LiteRT that refuses, since the builtin kernel does not step in then.
    """
    refusing = {row["axis"] for row in section(f"{op}.empty").get("rows", ()) if "litert xnnpack" in row["kernels"]}
    return "first" in refusing or failures_at_zero(op).get("first", "refused") != "refused"


def _by_runtime(table: Mapping[str, Any]) -> dict[str, tuple[Mapping[str, Any], ...]]:
    return {runtime: tuple(table.get("both", table.get(runtime, ()))) for runtime in MEASURED}


def parse_signature(text: str) -> tuple[tuple[Parameter, ...], tuple[Parameter, ...]]:
    """The operands and results of a signature: ``input:T bias?:B -> output:T``."""
    left, _, right = text.partition("->")
    return tuple(map(_parameter, left.split())), tuple(map(_parameter, right.split()))


def parse_release(text: str) -> Release:
    """``"2.14.1"`` as a tuple. Raises ValueError for other text."""
    return tuple(int(part) for part in text.split("."))


def _parameter(text: str) -> Parameter:
    name, _, variable = text.partition(":")
    return Parameter(name.rstrip("?*"), variable, "?" in name, "*" in name)


def _version(text: str) -> Version:
    match = re.fullmatch(r"(\d+) \(([\d.]+)\)(?:: (.+))?", text)
    if match is None:
        raise ValueError(f"tflite_ops.toml: no op version: {text!r}")
    conditions = tuple(tuple(c.split(", ")) for c in match[3].split(" or ")) if match[3] else ()
    return Version(int(match[1]), parse_release(match[2]), conditions)
