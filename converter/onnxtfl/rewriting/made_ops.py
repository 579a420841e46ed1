"""Which neutral ops the lift rules make, read from their code: the ops that a rule names, and those bound to it.

The code of helpers in modules with rules counts too, the names in helpers that it calls from
`onnxtfl.build` and `onnxtfl.ir.ops`, and what tables of the module have for the file's op.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any

from onnxtfl.ir.op import OPS, Op
from onnxtfl.rewriting.registry import Rules

_RULES, _HELPERS = "onnxtfl.mappings.", ("onnxtfl.build.", "onnxtfl.ir.ops.")
"""Packages whose functions rules call; the functions that these call in turn are not read."""

_MAKERS = {"concatenated": "Concatenate", "stacked_along": "Concatenate", "dot": "DotGeneral"}
"""The functions and methods of `onnxtfl.ir` that make one op, whose name code has in place of that of the op."""


def made_ops(known: Rules) -> dict[str, dict[str, tuple[str, ...]]]:
    """Return the file ops by neutral op, for each format ("tflite", "onnx"); rules that make few ops come first."""
    onnx = (
        (f"{domain}::{name}" if domain else name, rule)
        for (domain, name), versions in known.lift_onnx.items()
        for rule in versions.values()
    )
    return {"tflite": _by_op(known.lift_tfl.items()), "onnx": _by_op(onnx)}


def _by_op(rules: Iterable[tuple[str, Callable[..., Any]]]) -> dict[str, tuple[str, ...]]:
    made: dict[str, set[str]] = defaultdict(set)
    for name, rule in rules:
        made[name] |= ops_of(rule, name)
    readers: dict[str, list[str]] = defaultdict(list)
    for name in sorted(made, key=lambda name: (len(made[name]), name)):
        for op in made[name]:
            readers[op].append(name)
    return {op: tuple(names) for op, names in readers.items()}


def ops_of(rule: Callable[..., Any], name: str) -> set[str]:
    """Return the names of the neutral ops that the code of the rule for the file's op `name` names or has bound."""
    found, seen = set[str](), set[Any]()
    work: list[Any] = [rule]
    while work:
        one = work.pop()
        if isinstance(one, type) and issubclass(one, Op) and one.dialect == "neutral":
            found.add(one.name)
        elif isinstance(one, tuple):
            work += one
        elif isinstance(one, functools.partial):
            work += [one.func, *one.args, *one.keywords.values()]
        elif isinstance(one, MethodType):
            work += [one.__func__, getattr(one.__self__, "op", None)]
        elif isinstance(one, FunctionType) and one not in seen:
            seen.add(one)
            used = set(_names(one.__code__))
            found |= used & OPS.keys() | {_MAKERS[used_name] for used_name in used & _MAKERS.keys()}
            work += _bound(one)
            work += [] if one.__module__.startswith(_HELPERS) else _helpers(one, used)
            tables = (one.__globals__.get(global_name) for global_name in used)
            work += [table[name] for table in tables if isinstance(table, dict) and name in table]
    return found


def _names(code: CodeType) -> Iterator[str]:
    """Yield the global names and attributes that `code` and the functions in it use."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _bound(function: FunctionType) -> list[Any]:
    """Return the values in the closure and the defaults of a function, and the function that it wraps."""
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    return [*cells, *defaults, getattr(function, "__wrapped__", None)]


def _helpers(function: FunctionType, names: set[str]) -> list[Any]:
    """Return the functions of modules with rules, and of the packages of helpers, that a function names."""
    found = (function.__globals__.get(name) for name in names)
    return [f for f in found if isinstance(f, FunctionType) and f.__module__.startswith((_RULES, *_HELPERS))]
