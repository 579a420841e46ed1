"""The coverage tables: which op versions convert, and how, according to the registered mapping rules.

The table of the neutral ops is in :mod:`onnxtfl.op_tables.neutral_table`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onnx import defs

from onnxtfl.formats.bodies import DEFINED_BY_FILE
from onnxtfl.formats.onnx.functions import defined
from onnxtfl.formats.tflite.states import REPLACED
from onnxtfl.op_tables import neutral_table
from onnxtfl.rewriting.made_ops import ops_of
from onnxtfl.rewriting.registry import ANY_VERSION, Rules, all_rules
from onnxtfl.targets.table import entry, op_names

_HEAD = """# What converts

Generated from the mapping rules by `onnxtfl ops`; a test fails when it is stale.

- **ONNX to TFLite** — *rule*: a mapping rule; *upgrade*: rewritten to a newer version first; *definition*: expanded to
  the function by which ONNX defines it; *no*: an UnsupportedError. A rule may still refuse a form that no TFLite kernel
  computes correctly; the error names it.
- **TFLite to ONNX** — *rule*; *definition*: the subgraph by which the file defines it; *custom*: with `--allow-custom`,
  the op that it names; *no kernel anywhere*: the format has the op, but no runtime computes it; *no*; or *state*:
  variables, and tables with constant contents, become values (see [state](state.md)); then the runtimes with a kernel
  that was measured to compute at least one form correctly: onnx2tfl writes the op for these.
"""


def op_tables() -> str:
    """The two tables, in Markdown."""
    known = all_rules()
    onnx = "\n".join(f"| {name} | {_listed(ways)} |" for name, ways in _onnx_rows(known))
    tfl = "\n".join(_tfl_row(name, known) for name in op_names())
    return (
        f"{_HEAD}\n## ONNX\n\n| op | since-versions |\n| --- | --- |\n{onnx}\n\n"
        f"## TFLite\n\n| op | to ONNX | correct kernels in |\n| --- | --- | --- |\n{tfl}\n"
    )


def as_values() -> dict[str, Any]:
    """All tables, as values for JSON."""
    known = all_rules()
    tfl = {name: {"to_onnx": _read(name, known), "kernels": _runtimes(name)} for name in op_names()}
    return {
        "onnx": {name: {str(version): way for version, way in ways.items()} for name, ways in _onnx_rows(known)},
        "tflite": tfl,
        "neutral": neutral_table.as_values(),
    }


def neutral_ops() -> str:
    """The table of the neutral ops, in Markdown."""
    return neutral_table.table()


def _listed(ways: dict[int, str]) -> str:
    return ", ".join(f"{version} {_marked(way)}" for version, way in ways.items())


def _marked(way: str) -> str:
    return "**no**" if way == "no" else way


def _onnx_rows(known: Rules) -> Iterator[tuple[str, dict[int, str]]]:
    """(op, how each of its versions converts) for the default domain, and for ops of other domains with rules."""
    versions: dict[tuple[str, str], set[int]] = {}
    for schema in defs.get_all_schemas_with_history():
        if schema.domain == "":
            versions.setdefault(("", schema.name), set()).add(int(schema.since_version))
    for key in known.lift_onnx:
        versions.setdefault(key, set()).update(known.lift_onnx[key].keys() - {ANY_VERSION})
    for (domain, name), found in sorted((key, found) for key, found in versions.items() if found):
        ways = {version: _way(known, domain, name, version) for version in sorted(found)}
        yield (f"{domain}::{name}" if domain else name), ways


def _way(known: Rules, domain: str, name: str, version: int) -> str:
    found = known.lift_onnx.get((domain, name), {})
    rule = found.get(version) or found.get(ANY_VERSION)
    if rule is not None:
        return "no" if ops_of(rule, name) & {op.name for op in known.only_onnx} else "rule"
    if not found and defined(name, version, domain):
        return "definition"
    return "upgrade" if version in known.upgrades.get((domain, name), {}) else "no"


def _tfl_row(name: str, known: Rules) -> str:
    return f"| {name} | {_marked(_read(name, known))} | {', '.join(_runtimes(name)) or 'none'} |"


def _runtimes(name: str) -> list[str]:
    """The runtimes with a kernel that computes at least one form correctly."""
    return [runtime for runtime, forms in entry(name).kernels.items() if forms]


def _read(name: str, known: Rules) -> str:
    """How an op of TFLite is lifted."""
    if name in known.lift_tfl:
        return "rule"
    if name in REPLACED | DEFINED_BY_FILE:
        return "state" if name in REPLACED else "definition"
    if name in known.custom_calls:
        return "custom"
    return "no kernel anywhere" if name in known.refused_tfl else "no"
