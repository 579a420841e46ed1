"""Every op is in the module of its family: neutral ops in ir/ops, rules in mappings."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from onnx import defs

from onnxtfl.ir.op import OPS
from onnxtfl.rewriting.registry import all_rules
from onnxtfl.targets.table import op_names

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FAMILIES: dict[str, dict[str, list[str]]] = tomllib.loads((HERE / "families.toml").read_text(encoding="utf-8"))


SERVES = {
    "approximations": "elementwise",
    "axes_beside_open_sizes": "reshape",
    "box_assignment": "scattering",
    "division_of_bytes": "arithmetic",
    "mirrored_padding": "padding",
    "reductions_by_halving": "reductions",
    "repeated_elements": "resizing",
    "resizing_by_windows": "resizing",
    "single_positions": "pooling",
}
"""Modules with parts of another family's rules, which are in the same folder."""


def family_of(side: str) -> dict[str, str]:
    """The family of each op of one side; an op that is listed twice fails."""
    pairs = [(op, family) for family, sides in FAMILIES.items() for op in sides.get(side, ())]
    assert len(pairs) == len(dict(pairs)), f"{side}: an op has two families"
    return dict(pairs)


NEUTRAL, ONNX, TFL = (family_of(side) for side in ("neutral", "onnx", "tfl"))


def module_of(rule: Callable[..., Any]) -> str | None:
    """The last part of the name of the mapping module that registers `rule`; None for rules that families share."""
    if isinstance(rule, functools.partial):
        return module_of(rule.func)
    package, _, module = rule.__module__.rpartition(".")
    return SERVES.get(module, module) if "mappings" in package.split(".") else None


def full_name(domain: str, name: str) -> str:
    return f"{domain}::{name}" if domain else name


def misplaced(found: Iterable[tuple[str, str | None]], table: dict[str, str]) -> dict[str, tuple[str, str | None]]:
    """The ops whose rule, or class, is in another module than the family's."""
    return {op: (module, table.get(op)) for op, module in found if module not in (None, table.get(op))}


def test_neutral_ops_are_in_the_module_of_their_family() -> None:
    all_rules()
    assert misplaced(((name, op.__module__.rpartition(".")[2]) for name, op in OPS.items()), NEUTRAL) == {}
    assert set(NEUTRAL) == set(OPS)


def test_onnx_rules_are_in_the_module_of_their_family() -> None:
    known = all_rules()
    for table in (known.lift_onnx, known.upgrades):
        found = ((full_name(*key), module_of(r)) for key, versions in table.items() for r in versions.values())
        placed = list(found)
        assert misplaced(placed, ONNX) == {}
        assert len([module for _, module in placed if module is not None]) > 30


def test_tfl_rules_are_in_the_module_of_their_family() -> None:
    assert misplaced(((name, module_of(rule)) for name, rule in all_rules().lift_tfl.items()), TFL) == {}


def neutral_rules() -> Iterator[tuple[str, str | None]]:
    """Each neutral op with the module of each of its forms and decompositions."""
    known = all_rules()
    for table in (known.lower_tfl, known.lower_onnx):
        yield from ((op.name, module_of(rule)) for op, forms in table.items() for _, rule in forms)
    several = ((op, one) for op, found in known.decompose.items() for rules_ in found.values() for one in rules_)
    yield from ((op.name, module_of(one.rule)) for op, one in several)
    yield from ((op.name, module_of(late.func)) for op, found in known.late.items() for late in found.values())


def test_forms_and_decompositions_are_in_the_module_of_their_family() -> None:
    assert misplaced(neutral_rules(), NEUTRAL) == {}


def test_every_op_of_the_formats_has_a_family() -> None:
    found = {full_name(schema.domain, schema.name) for schema in defs.get_all_schemas_with_history()}
    missing = {op for op in found if not op.startswith(("ai.onnx.ml::", "ai.onnx.preview"))} - set(ONNX)
    assert missing == set()
    assert set(op_names()) == {op for op in TFL if not op.startswith("custom:")}


BESIDE = {
    *(
        "approximations",
        "axes_beside_open_sizes",
        "box_assignment",
        "comparators",
        "division_of_bytes",
        "fourier_matrices",
        "mirrored_padding",
        "reductions_by_halving",
        "repeated_elements",
        "single_positions",
        "resizing_by_windows",
        "unrolling",
        "loop_lowering",
    ),
    *("pair_probabilities", "pool_indices", "scores", "sequence_loops", "tree_scores", "trees"),
}
"""Modules that serve the mapping beside them."""


@pytest.mark.parametrize(("folder", "others"), [("converter/onnxtfl/ir/ops", set()), ("mappings", BESIDE)])
def test_every_module_is_a_family(folder: str, others: set[str]) -> None:
    found = {path.stem for path in (ROOT / folder).rglob("*.py")} - {"__init__"}
    assert len(found) > 40
    assert found - FAMILIES.keys() == others
