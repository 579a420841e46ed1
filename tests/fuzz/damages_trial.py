"""One damage: a model of a pair is broken at one node; does the check find it, and does `per_layer` name the node?

The models are those of the corpus (tests/models/corpus.py), without one those of tests/models/small_models.py. Brute
force judges first: a damage that changes no output beyond the tolerance on 200 varied inputs is "equal".
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import onnx

import onnxtfl
from onnxtfl.ir.record import Record
from tests.fuzz.soaking import Found
from tests.harness.child import stage
from tests.models.broken_models import Break
from tests.models.broken_onnx import OnnxBreaker
from tests.models.broken_tflite import TfliteBreaker
from tests.models.corpus import CORPUS
from tests.models.small_models import MODELS
from tests.models.varied_inputs import differ_somewhere

Breaker = OnnxBreaker | TfliteBreaker
Made = tuple[bytes | onnx.ModelProto, Break]
Choice = Callable[[Breaker], Made | None]
"""A function that damages a copy of the model of a breaker; None where it cannot."""
PAIRS = (
    "onnx-!tflite", "tflite-!onnx", "onnx-!tflite", "tflite-!tflite", "onnx-!tflite", "!onnx-tflite", "onnx-!tflite",
    "onnx-!converted", "onnx-!tflite", "tflite-!onnx", "onnx-!onnx", "foreign-!tflite",
)  # fmt: skip
"""The pair of a seed; the model after the exclamation mark is the broken one::

    onnx-!onnx        the source, and a broken copy
    onnx-!converted   the source, and the conversion of a broken copy
    onnx-!tflite      the source, and its conversion, broken
    !onnx-tflite      a broken copy, and the conversion of the source
    tflite-!onnx      a .tflite, and its conversion to ONNX, broken
    tflite-!tflite    a .tflite, and a broken copy
    foreign-!tflite   a pair made by another converter, its .tflite broken
"""
LARGEST = 12 << 20
"""Bytes of the largest model that is damaged."""


@dataclass(frozen=True)
class Damaged:
    """A pair of files, ``a`` and ``b``, after the damage ``what`` that made ``broken`` of ``good``.

    ``sources``: the nodes of ``a`` that the broken op computes, as far as the conversion's record says; of a wrong
    scale or zero point the tensors too.
    """

    a: Path
    b: Path
    good: Path
    broken: Path
    what: Break
    sources: Collection[str] = ()


def attempt(seed: int) -> Found:
    """The outcome of a seed: "equal", "named", "misnamed" or "survived"; "skipped" where there is no such pair."""
    stage("source")
    random, pair = np.random.default_rng((16, seed)), PAIRS[seed % len(PAIRS)]
    with tempfile.TemporaryDirectory() as name:
        try:
            folder, model = Path(name), _model(pair, random, Path(name))
            made = damaged(pair, folder, random, any_damage)
        except (onnxtfl.OnnxtflError, FileNotFoundError) as error:
            return Found("skipped", message=f"{pair}: {error}"[:200])
        if made is None:
            return Found("skipped", message=f"{pair} {model}: no way to break it")
        return _judged(pair, model, made)


def _judged(pair: str, model: str, made: Damaged) -> Found:
    what = made.what
    text = f"{pair} {model}: {what.kind} at {what.op} {what.node!r}"
    try:
        if not differ_somewhere(made.good, made.broken):
            return Found("equal", message=text)
    except Exception as error:  # the broken model does not run in its own runtime
        return Found("skipped", message=f"{text}; {error}"[:500])
    stage("check")
    report = onnxtfl.check(made.a, made.b, per_layer=True)
    if report.status != "failed":
        outcome, found = "survived", f"{report.status}: {report.reason}; {in_words(report)}"
    else:
        outcome = "named" if is_named(what, report, pair, made.sources) else "misnamed"
        found = str(report.first_difference)
    if outcome == "named":
        return Found(outcome, message=f"{text}; {found}")
    files = {path.name: path.read_bytes() for path in (made.a, made.b)}
    return Found(outcome, f"{what.kind} at {what.op}", f"{text}; {found}", text, files)


def is_named(what: Break, report: onnxtfl.CheckReport, pair: str, sources: Collection[str] = ()) -> bool:
    """Whether the node named is the broken one, or a node of the first model that the broken op computes."""
    first = report.first_difference
    if first is None:
        return False
    if first.b in what.results or what.node in {first.node_b, first.node} or {first.a, *first.nodes} & set(sources):
        return True
    of_first = "!onnx-" in pair or pair == "onnx-!converted"
    return of_first and (what.node in first.nodes or first.a in what.results)


def in_words(report: onnxtfl.CheckReport) -> str:
    """The errors of the outputs, and the largest own error of a layer."""
    outputs = [f"{out.name} {out.max_abs} ({out.steps} steps, {out.note})" for out in report.outputs]
    own = max((layer.own or 0.0 for layer in report.layers), default=0.0)
    return f"{'; '.join(outputs)}; largest own error {own:.2g}; {report.notes[:1]}"


def damaged(pair: str, folder: Path, random: np.random.Generator, choose: Choice) -> Damaged | None:
    """Break one model of a pair, whose source is a.onnx or a.tflite in the folder; None where it cannot be broken.

    ``choose``: which damage. The pair of another converter is a.onnx and good.tflite.
    """
    source, other = (folder / f"{name}.{'tflite' if pair.startswith('tflite') else 'onnx'}" for name in ("a", "b"))
    good, broken = folder / "good.tflite", folder / "b.tflite"
    if pair in ("onnx-!onnx", "tflite-!tflite"):
        return _damaged(source, other, source, other, random, choose)
    if pair == "tflite-!onnx":
        good, broken = folder / "good.onnx", folder / "b.onnx"
        record = onnxtfl.tflite_to_onnx(source, good, check=False).record
        return _with_sources(_damaged(source, broken, good, broken, random, choose), record)
    if pair == "!onnx-tflite":
        onnxtfl.onnx_to_tflite(source, good, check=False)
        return _damaged(other, good, source, other, random, choose)
    if pair == "onnx-!converted":
        made = _damaged(source, broken, source, other, random, choose)
        if made is not None:
            onnxtfl.onnx_to_tflite(other, broken, check=False)
        return made
    record = None if pair == "foreign-!tflite" else onnxtfl.onnx_to_tflite(source, good, check=False).record
    return _with_sources(_damaged(source, broken, good, broken, random, choose), record)


def _with_sources(made: Damaged | None, record: Record | None) -> Damaged | None:
    if made is None or record is None:
        return made
    names = {made.what.node, *made.what.results}
    sources = {s for op in record.ops if op.target in names for s in op.sources}
    if made.what.kind in ("scale", "zero point"):
        sources |= {entry.source for entry in record.tensors if entry.target in made.what.results}
    return replace(made, sources=sources)


def _damaged(a: Path, b: Path, good: Path, broken: Path, random: np.random.Generator, choose: Choice) -> Damaged | None:
    """Write ``broken``, a damaged copy of ``good``; None where it cannot be broken."""
    if good.suffix == ".onnx":
        made = choose(OnnxBreaker(onnx.load(good), random))
    else:
        made = choose(TfliteBreaker(good.read_bytes(), random))
    if made is None:
        return None
    model, what = made
    broken.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    return Damaged(a, b, good, broken, what)


def any_damage(breaker: Breaker) -> Made | None:
    """A random damage: choose the kind first, then the node."""
    ways: dict[str, list[int]] = {}
    for kind, index in breaker.ways():
        ways.setdefault(kind, []).append(index)
    for kind in breaker.random.permutation(sorted(ways)):
        made = breaker.broken(str(kind), int(breaker.random.choice(ways[kind])))
        if made is not None:
            return made
    return None


def _model(pair: str, random: np.random.Generator, folder: Path) -> str:
    """Write the models of a random pair to the folder (a, and good.tflite of another converter); returns its name."""
    kind = "foreign" if "foreign" in pair else "tflite" if pair.startswith("tflite") else "onnx"
    paths = _paths()[kind]
    if paths:
        path = paths[int(random.integers(len(paths)))]
        (folder / f"a{path.suffix}").write_bytes(path.read_bytes())
        if kind == "foreign":
            (folder / "good.tflite").write_bytes((path.parent / "b.tflite").read_bytes())
        return path.parent.name if path.stem in ("model", "a") else path.stem
    name = str(random.choice(sorted(MODELS)))
    onnx.save(MODELS[name], folder / "a.onnx")
    if kind != "onnx":
        target = folder / ("a.tflite" if kind == "tflite" else "good.tflite")
        onnxtfl.onnx_to_tflite(MODELS[name], target, check=False, record=False)
    return name


@cache
def _paths() -> dict[str, list[Path]]:
    """The files of the corpus, of each kind of pair; none where there is no corpus."""
    found = {
        "onnx": [*(CORPUS / "onnx").glob("*/model.onnx"), *(CORPUS / "onnx-real").glob("*.onnx")],
        "tflite": [*(CORPUS / "tflite").rglob("*.tflite")],
        "foreign": [p for p in (CORPUS / "foreign").glob("*/a.onnx") if not p.parent.name.endswith("-differs")],
    }
    return {kind: sorted(p for p in paths if p.stat().st_size < LARGEST) for kind, paths in found.items()}
