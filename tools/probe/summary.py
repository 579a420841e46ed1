"""Summarize findings as the forms of a kernel table.

A form has element types, a maximum rank, a maximum rank for broadcasting, and options. It is in the table if all of its
cases are correct on every kernel set of the runtime. Only the reference set, which is used to debug the others, may
lack the op or its version (it has no CEIL, ELU and ROUND).
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tools.probe.measure import Finding
from tools.probe.registry import BOUNDS
from tools.probe.runtime import KERNELS, ONLY

Key = tuple[tuple[str, frozenset[Any]], ...]
RUNTIMES = ("2.14", "litert")
KERNEL_SETS = tuple(f"{runtime} {kernels}" for runtime in RUNTIMES for kernels in KERNELS)
UNCHECKED_RUNTIMES = ("micro",)
"""Runtimes whose kernels do not check operand types: they read unsupported types as another type."""
_LISTED = 12
"""The maximum number of type combinations in a note."""
_NARROWING = ("constant", "required")
_SHAPES = ("equal", "scalar", "broadcast")
_SPECIAL = ("nan",)
"""Modes that forms do not depend on."""
_BAD = ("wrong", "abort", "absent")
_DISTINCT = ("per_axis", "blocks")
"""What a form either needs or does not take."""


@dataclass(frozen=True)
class Form:
    """A form. `sets`: the accepted values of each type variable, option, and rank of another variable."""

    sets: Mapping[str, frozenset[Any]]
    low: int
    high: int
    broadcast: int | None
    scalar: int | None

    @property
    def limits(self) -> tuple[Any, ...]:
        """The rank limits; only forms with equal ones are merged."""
        return self.low, self.high, self.broadcast, self.scalar

    def covers(self, other: Form) -> bool:
        """Whether this form accepts all nodes that `other` accepts."""
        return (
            all(key in other.sets and other.sets[key] <= values for key, values in self.sets.items())
            and all(self.sets.get(key) == other.sets.get(key) for key in _DISTINCT)
            and self.low <= other.low
            and self.high >= other.high
            and (self.broadcast or 0) >= (other.broadcast or 0)
            and (self.scalar or 0) >= (other.scalar or 0)
        )


def summarize(
    findings: Sequence[Finding],
    noted: Collection[str] | None = None,
    runtimes: Sequence[str] = RUNTIMES,
    notes: bool = True,
) -> str:
    """The text of the kernel table of `runtimes`; `noted`: the constraints shown in notes (None: all).

    `notes`: whether it says which forms are wrong or end the process.
    """
    tried = domains(findings)
    lines = {runtime: _form_lines(findings, runtime, tried) for runtime in runtimes}
    first, *others = lines.values()
    if others == [first]:
        text = list_text("both", first)
    else:
        text = "".join(list_text(f'"{name}"' if "." in name else name, rows) for name, rows in lines.items())
    if any(finding.mode in BOUNDS for finding in findings):
        text += f'activations = "{" ".join(_activations(findings, runtimes))}"\n'
    for mode in _SPECIAL:
        if special := [finding for finding in findings if finding.mode == mode]:
            text += f"{mode} = {str(all(is_correct(f, r) for f in special for r in runtimes)).lower()}\n"
    known = [replace(f, extra={k: v for k, v in f.extra.items() if noted is None or k in noted}) for f in findings]
    for verdict in _BAD if notes else ():
        if lines_ := _notes(known, verdict):
            text += list_text(verdict, [f'"{line}"' for line in lines_])
    return text


def _activations(findings: Sequence[Finding], runtimes: Sequence[str]) -> list[str]:
    """The fused activations that all of `runtimes` compute correctly."""
    tried = {mode: [f for f in findings if f.mode == mode] for mode in BOUNDS}
    return [mode for mode, group in tried.items() if all(is_correct(f, r) for f in group for r in runtimes)]


def domains(findings: Sequence[Finding]) -> dict[str, frozenset[Any]]:
    """The values that were tried for each constraint other than types."""
    tried: defaultdict[str, set[Any]] = defaultdict(set)
    for finding in findings:
        for key, value in finding.extra.items():
            tried[key].add(value)
    always = {k: v for k, v in tried.items() if all(k in f.extra for f in findings)}
    return {key: frozenset(values) for key, values in always.items() if key not in _NARROWING}


def _form_lines(findings: Sequence[Finding], runtime: str, domains: Mapping[str, frozenset[Any]]) -> list[str]:
    groups = _groups(findings)
    forms = [form for key, group in groups.items() if (form := _form(dict(key), group, runtime)) is not None]
    tested = [f.rank for f in findings if f.mode == "equal"]
    lowest = min(tested, default=0)
    return [_text(form, domains, lowest) for form in merged(forms)]


def _groups(findings: Sequence[Finding]) -> dict[Key, list[Finding]]:
    """The findings of each form: types and options.

    A form that does not require an operand to be constant or present also includes the cases in which it is, since
    delegates treat constants differently.
    """
    groups: defaultdict[Key, list[Finding]] = defaultdict(list)
    for finding in findings:
        groups[_key({**finding.types, **finding.extra})].append(finding)
    for finding in findings:
        narrowing = [key for key in _NARROWING if key in finding.extra]
        for count in range(1, len(narrowing) + 1):
            for dropped in itertools.combinations(narrowing, count):
                free = _key({**finding.types, **finding.extra, **dict.fromkeys(dropped)})
                if free in groups:
                    groups[free].append(finding)
    return groups


def _key(sets: Mapping[str, Any]) -> Key:
    return tuple((key, frozenset({value})) for key, value in sets.items() if value is not None)


def _form(sets: Mapping[str, frozenset[Any]], group: Sequence[Finding], runtime: str) -> Form | None:
    cells: defaultdict[tuple[str, int], bool] = defaultdict(lambda: True)
    for finding in group:
        cells[finding.mode, finding.rank] &= is_correct(finding, runtime)
    equal = _longest({rank: _is_rank_correct(cells, rank) for mode, rank in cells if mode in _SHAPES})
    if equal is None or equal == (0, 0):  # a kernel that is correct for scalars only is so by chance
        return None
    if runtime in UNCHECKED_RUNTIMES and _is_by_chance(group, runtime, equal[1]):
        return None
    return Form(sets, *equal, _highest(cells, "broadcast"), _highest(cells, "scalar"))


def _is_rank_correct(cells: Mapping[tuple[str, int], bool], rank: int) -> bool:
    """Whether cases of equal shapes and this rank are correct; where there are none, all others."""
    others = (cells.get((mode, rank), True) for mode in _SHAPES)
    return cells["equal", rank] if ("equal", rank) in cells else all(others)


def _is_by_chance(group: Sequence[Finding], runtime: str, high: int) -> bool:
    """Whether correct results are coincidental: some cases of the form are wrong, or none has more than one axis."""
    tried = [f for f in group if f.mode in ("equal", "scalar", "broadcast")]
    wrong = any(v == "wrong" for f in tried for s, v in f.verdicts.items() if s.split()[0] == runtime)
    return wrong or high < 2 <= max(f.rank for f in tried)


def is_correct(finding: Finding, runtime: str) -> bool:
    """Whether all kernel sets of the runtime are correct; only the reference set may lack the op.

    That set is left out where there are scales of blocks, which it reads as 0.
    """
    sets = [kernel_set for kernel_set in finding.verdicts if kernel_set.split()[0] == runtime]
    read = [kernel_set for kernel_set in sets if "blocks" not in finding.extra or not kernel_set.endswith("reference")]
    verdicts = [finding.verdicts[kernel_set] for kernel_set in read]
    return verdicts in (["correct"] * len(verdicts), ["correct", "correct", "absent"])


def is_accepted(finding: Finding) -> bool:
    """Whether the finding is correct on some runtime."""
    return any(is_correct(finding, runtime) for runtime in RUNTIMES)


def _longest(ranks: Mapping[int, bool]) -> tuple[int, int] | None:
    """The longest range (low, high) of tested ranks that are all correct."""
    runs: list[list[int]] = [[]]
    for rank in sorted(ranks):
        if ranks[rank]:
            runs[-1].append(rank)
        else:
            runs.append([])
    best = max(runs, key=len)
    return (best[0], best[-1]) if best else None


def _highest(cells: Mapping[tuple[str, int], bool], mode: str) -> int | None:
    """The highest rank up to which all cases of a mode are correct; None if the mode has no cases."""
    tried = sorted((rank, correct) for (m, rank), correct in cells.items() if m == mode)
    if not tried:
        return None
    highest = 0
    for rank, correct in tried:
        if not correct:
            break
        highest = rank
    return highest


def merged(forms: list[Form]) -> list[Form]:
    """Merge forms that differ in only one set, and drop forms covered by others, until a fixed point is reached."""
    done = False
    while not done:
        forms = [
            f
            for f in forms
            if not any(
                g is not f and g.covers(f) and (not f.covers(g) or forms.index(g) < forms.index(f)) for g in forms
            )
        ]
        done = True
        for i, a in enumerate(forms):
            for b in forms[i + 1 :]:
                joined = _join(a, b)
                if joined is not None:
                    forms = [joined if f is a else f for f in forms if f is not b]
                    done = False
                    break
            if not done:
                break
    return forms


def _join(a: Form, b: Form) -> Form | None:
    if a.limits != b.limits or a.sets.keys() != b.sets.keys():
        return None
    different = [key for key in a.sets if a.sets[key] != b.sets[key]]
    if len(different) != 1:
        return None
    (key,) = different
    return replace(a, sets={**a.sets, key: a.sets[key] | b.sets[key]})


def _text(form: Form, domains: Mapping[str, frozenset[Any]], lowest: int) -> str:
    parts = set_texts(form, domains)
    parts.append(f"rank = {form.high}" if form.low <= lowest <= 1 else f'rank = "{form.low}-{form.high}"')
    if form.broadcast is not None:
        parts.append(f"broadcast = {form.broadcast}")
        if form.scalar is not None and form.scalar > form.broadcast:
            parts.append(f"scalar = {form.scalar}")
    return "{ " + ", ".join(parts) + " }"


def set_texts(form: Form, domains: Mapping[str, frozenset[Any]]) -> list[str]:
    """The element types and the constrained options as TOML entries."""
    return [_set_text(k, values) for k, values in form.sets.items() if k.isupper() or values != domains.get(k)]


def _set_text(key: str, values: frozenset[Any]) -> str:
    name = f'"{key}"' if "." in key else key
    if key.isupper():
        return f'{name} = "{" ".join(sorted(values, key=_type_order))}"'
    if key.endswith(".rank"):
        low, high = min(values), max(values)
        return f'{name} = "{low}-{high}"'
    if len(values) == 1:
        return f"{name} = {_literal(next(iter(values)))}"
    return f"{name} = [{', '.join(sorted(map(_literal, values)))}]"


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def _type_order(name: str) -> tuple[int, str]:
    kinds = ("float", "int", "uint", "bool")
    storage = name.removeprefix("q")
    kind = next((i for i, k in enumerate(kinds) if storage.startswith(k)), 9)
    digits = "".join(c for c in storage if c.isdigit())
    return (100 if name.startswith("q") else 0) + kind * 10, digits.zfill(3) if digits != "32" else "000"


def _notes(findings: Sequence[Finding], verdict: str) -> list[str]:
    """The kernel sets, types, modes and ranks with this verdict."""
    by_rank: defaultdict[tuple[Any, ...], set[int]] = defaultdict(set)
    for (types, mode, rank, extra), kernel_sets in _kernel_sets(findings, verdict).items():
        by_rank[tuple(sorted(kernel_sets)), mode, extra, types].add(rank)
    by_type: defaultdict[tuple[Any, Any, Any, Any], list[str]] = defaultdict(list)
    for (kernel_sets, mode, extra, types), ranks in by_rank.items():
        by_type[kernel_sets, mode, extra, tuple(sorted(ranks))].append("/".join(dict.fromkeys(types)))
    return [_note(*key, types) for key, types in by_type.items()]


def _kernel_sets(findings: Sequence[Finding], verdict: str) -> dict[tuple[Any, ...], set[str]]:
    """The kernel sets with this verdict by types, mode, rank and options (none if all of them have the verdict)."""
    tried: defaultdict[tuple[Any, ...], set[Any]] = defaultdict(set)
    bad: defaultdict[tuple[Any, ...], set[Any]] = defaultdict(set)
    for f in findings:
        extra = tuple(f"{k} {v}" for k, v in f.extra.items())
        for kernel_set, found in f.verdicts.items():
            cell = tuple(f.types.values()), f.mode, f.rank, kernel_set
            tried[cell].add(extra)
            if found == verdict and (verdict != "absent" or is_correct(f, kernel_set.split()[0])):
                bad[cell].add(extra)
    kernel_sets: defaultdict[tuple[Any, ...], set[str]] = defaultdict(set)
    for cell, extras in bad.items():
        *key, kernel_set = cell
        for extra in [()] if extras == tried[cell] else sorted(extras):
            kernel_sets[(*key, extra)].add(kernel_set)
    return kernel_sets


def _note(sets: Sequence[str], mode: str, extra: Sequence[str], ranks: Sequence[int], types: Sequence[str]) -> str:
    names = kernel_sets_text(sets)
    is_range = list(ranks) == list(range(ranks[0], ranks[-1] + 1))
    several = f"{ranks[0]}-{ranks[-1]}" if is_range else " ".join(map(str, ranks))
    shown = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {several}"
    what = {"equal": "", "scalar": " with a scalar"}.get(mode, f" {mode}")
    listed = " ".join(types[:_LISTED]) + (f" and {len(types) - _LISTED} more" if len(types) > _LISTED else "")
    return f"{names}: {listed}, {shown}{what}" + "".join(f", {e}" for e in extra)


def kernel_sets_text(sets: Sequence[str]) -> str:
    """Kernel sets by runtime: "2.14 all, litert builtin reference"."""
    runtimes: defaultdict[str, list[str]] = defaultdict(list)
    for kernel_set in sets:
        runtime, kernels = kernel_set.split()
        runtimes[runtime].append(kernels)
    return ", ".join(f"{r} {_kernels_text(k)}".rstrip() for r, k in runtimes.items())


def _kernels_text(kernels: Sequence[str]) -> str:
    """The text of a runtime's kernel sets; "" if it has only one."""
    if kernels == [ONLY]:
        return ""
    return "all" if len(kernels) == len(KERNELS) else " ".join(kernels)


def list_text(key: str, rows: Sequence[str]) -> str:
    """A list of rows in TOML, each on a line of its own."""
    if len(rows) == 1:
        return f"{key} = [{rows[0]}]\n"
    return f"{key} = [\n" + "".join(f"  {row},\n" for row in rows) + "]\n" if rows else f"{key} = []\n"
