"""Judges the conversion of one random graph: it is fast, and its result computes what the source does at all sizes."""

from __future__ import annotations

import os
import re
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.fuzz.drawing import Values
from tests.fuzz.graphs_judge import Arrays, Noisy, Run, difference, finite
from tests.fuzz.soaking import EXCLUDED_SIZES, OTHER_SIZES, SECONDS, Found
from tests.harness.child import stage

os.environ.setdefault("ONNXTFL_VERIFY", "1")  # the verifier runs after each pass
Results = Callable[[bytes, Arrays], Iterator[tuple[str, Arrays]]]
"""The outputs of a converted file, by the runtime and kernels that computed them."""


@dataclass(frozen=True)
class Case:
    """A graph. ``text``: of all of it, or of what an output depends on. ``steps``: of values that are
    quantized or were, one step. ``values``: all values of a run.

    ``is_doubtful``: whether the runtime's outputs for these inputs are no reference, at unusual sizes.
    ``is_undefined``: whether they are none at any sizes.
    """

    graph: Values
    text: Callable[..., str]
    files: Mapping[str, bytes]
    noisy: Noisy
    is_doubtful: Callable[[Arrays, Arrays], bool] = lambda _, __: False
    is_undefined: Callable[[Arrays], bool] = lambda _: False
    steps: Mapping[str, float] = field(default_factory=dict)
    values: Run = dict


def runs_of(g: Values, run: Run, *, again: bool = False) -> Iterator[tuple[Arrays, Arrays]]:
    """Inputs and outputs of the source at several sizes: those at which it runs and all floats are finite.

    ``again``: also at the same sizes with other elements.
    """
    feeds = [({n: a for n, a in g.arrays.items() if n in g.feeds(g.sizes, 0)})]
    others = [g.varied(lambda _: 1), g.varied(lambda size: size + 1), g.varied(lambda _: 0)]
    others = [g.sizes] * again + (others if g.sizes else [])
    feeds += [g.feeds(sizes, i) for i, sizes in enumerate(others, 1)]
    for fed in feeds:
        try:
            found = run(fed)
        except Exception:
            if fed is feeds[0]:
                return
            continue
        if finite(found):
            yield fed, found


def judged(source: Case, convert: Callable[[], Any], results: Results, runs: list[tuple[Arrays, Arrays]]) -> Found:
    """The outcome of a conversion. ``convert`` returns a Conversion. ``runs``: inputs and outputs of the source."""
    stage("convert")
    start = time.process_time()
    made = _converted(source, convert)
    if isinstance(made, Found):
        return made
    seconds = time.process_time() - start
    if seconds > SECONDS:
        return Found("hang", "convert", f"{seconds:.1f} s", source.text(), dict(source.files))
    stated = made.report.assumptions
    excluded = [is_excluded(source.graph, fed, stated) or is_excluded_inside(source, fed, stated) for fed, _ in runs]
    for number in sorted(range(len(runs)), key=excluded.__getitem__):
        fed, expected = runs[number]
        way = EXCLUDED_SIZES if excluded[number] else OTHER_SIZES if number else "run"
        stage(f"{way} { {name: list(array.shape) for name, array in fed.items()} }")
        found = _compared(results(made.data, fed), fed, expected, source)
        if found.kind != "agree":
            explained = _explained(found, source, fed, expected, number)
            explained = replace(explained, kind="empty") if excluded[number] else explained
            return replace(explained, files={**source.files, "result": made.data})
    return Found("agree")


def is_excluded(graph: Values, fed: Arrays, assumptions: Collection[str]) -> bool:
    """Whether an open size is 0 of which the conversion's report says that it is at least 1, or that it is cut."""
    stated = [text for text in assumptions if "at least 1: " in text]
    cut = any("crops and pads has" in text for text in assumptions)
    zero = [
        dim
        for name, array in fed.items()
        for size, dim in zip(array.shape, graph.inputs[name].dims, strict=False)
        if size == 0 and isinstance(dim, str)
    ]
    named = [re.findall(r"[A-Za-z]\w*", text.partition(" at least ")[0]) for text in stated]
    return bool(zero and cut) or (
        bool(zero and stated)
        and (
            any("each size computed at run time" in text for text in stated)
            or any(dim.startswith("?") or dim in names for dim in zero for names in named)
        )
    )


def is_excluded_inside(source: Case, fed: Arrays, assumptions: Collection[str]) -> bool:
    """Whether a size that is computed is 0, or a size 1 which Squeeze removes, of which the report says it is not."""
    none = any("each size computed at run time" in text for text in assumptions)
    one = any("is 1 at Squeeze" in text for text in assumptions)
    if not none and not one:
        return False
    try:
        sizes = {size for array in source.values(fed).values() for size in array.shape}
    except Exception:  # what a runtime refuses with these outputs
        return False
    return (none and 0 in sizes) or (one and 1 in sizes)


def _converted(source: Case, convert: Callable[[], Any]) -> Any:
    """The conversion; a Found, why there is none."""
    from onnxtfl.errors import InternalError, OnnxtflError

    try:
        return convert()
    except OnnxtflError as error:
        kind = "internal" if isinstance(error, InternalError) else "refused"
        group = f"{getattr(error, 'code', '')} {_general(str(error))}"
        return Found(kind, group, _trace(error), source.text(), dict(source.files))
    except Exception as error:
        group = f"{type(error).__name__} {_general(str(error))}"
        return Found("internal", group, _trace(error), source.text(), dict(source.files))


def _explained(found: Found, source: Case, fed: Arrays, expected: Arrays, number: int) -> Found:
    """A failure, or "empty" or "doubtful" where no runtime is a reference."""
    if found.kind in ("disagree", "runtime") and source.is_undefined(fed):
        return replace(found, kind="doubtful")
    nothing = any(array.size == 0 for array in expected.values())
    inside = found.kind == "runtime" and "0" in re.findall(r"\d+", found.message)  # a size in the runtime's error
    unusual = number > 0 or nothing or inside or found.group.startswith("[0]")
    if unusual and source.is_doubtful(fed, expected):
        return replace(found, kind="doubtful")
    if found.kind == "runtime" and _has_empty_open_dim(source.graph, fed):
        return replace(found, kind="empty")
    return found


def _has_empty_open_dim(graph: Values, fed: Arrays) -> bool:
    return any(
        size == 0 and isinstance(dim, str)
        for name, array in fed.items()
        for size, dim in zip(array.shape, graph.inputs[name].dims, strict=False)
    )


def _compared(results: Iterator[tuple[str, Arrays]], fed: Arrays, expected: Arrays, source: Case) -> Found:
    sizes = {name: list(array.shape) for name, array in fed.items()}
    empty = "[0] " if any(0 in shape for shape in sizes.values()) else ""
    try:
        for way, actual in results:
            if wrong := difference(actual, expected, fed, source.noisy, source.steps):
                part = source.text(wrong[0])
                return Found("disagree", empty + _ops(part), f"{way}: {wrong[0]} {wrong[1]}; {sizes}", part)
    except Exception as error:
        return Found("runtime", empty + _general(str(error)), f"{str(error)[:300]}; {sizes}", source.text())
    return Found("agree")


def _ops(text: str) -> str:
    """The ops of a model's text."""
    return " ".join(sorted(set(re.findall(r"= ([A-Za-z0-9_.]+) ?[<(]", text))))


def _general(message: str) -> str:
    """A message without names and numbers."""
    message = re.sub(r"'[^']*'|\"[^\"]*\"|\[[^\]]*\]|\b[nvwc]?\d+(_\d+)?\b", "#", message.strip().split("\n")[0])
    return message[-110:] if len(message) > 110 and "ERROR" in message else message[:110]


def _trace(error: Exception) -> str:
    lines = traceback.format_exc().strip().splitlines()
    return f"{str(error)[:400]}\n" + "\n".join(lines[-6:])
