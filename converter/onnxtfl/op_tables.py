"""Which op versions convert, and how: read from the mapping rules, so that the table cannot say anything else."""

from __future__ import annotations

from collections.abc import Iterator

from onnx import defs

from onnxtfl.formats.onnx.functions import defined
from onnxtfl.rewriting.registry import ANY_VERSION, Rules, rules
from onnxtfl.targets.table import entry, op_names

_HEAD = """# What converts

Made from the mapping rules by `onnxtfl ops`; a test fails when it is stale.

- **ONNX to TFLite** — *rule*: a mapping rule; *upgrade*: brought to a newer version first; *definition*: expanded into
  the ops by which ONNX defines it; *no*: refused by name. A rule may still refuse a form that no TFLite kernel computes
  rightly, and says which.
- **TFLite to ONNX** — *rule* or *no*; beside it the runtimes whose kernels were measured to compute some form rightly,
  which are the ones that onnx2tfl writes for.
"""


def op_tables() -> str:
    """The two tables, in Markdown."""
    known = rules()
    onnx = "\n".join(f"| {name} | {versions} |" for name, versions in _onnx_rows(known))
    tfl = "\n".join(_tfl_row(name, known) for name in op_names())
    return (
        f"{_HEAD}\n## ONNX\n\n| op | since-versions |\n| --- | --- |\n{onnx}\n\n"
        f"## TFLite\n\n| op | to ONNX | right kernels in |\n| --- | --- | --- |\n{tfl}\n"
    )


def _onnx_rows(known: Rules) -> Iterator[tuple[str, str]]:
    """Every op of ONNX's default domain, and those of other domains that have rules."""
    versions: dict[tuple[str, str], set[int]] = {}
    for schema in defs.get_all_schemas_with_history():
        if schema.domain == "":
            versions.setdefault(("", schema.name), set()).add(int(schema.since_version))
    for key in known.lift_onnx:
        versions.setdefault(key, set()).update(known.lift_onnx[key].keys() - {ANY_VERSION})
    for (domain, name), found in sorted(versions.items()):
        ways = [f"{version} {_way(known, domain, name, version)}" for version in sorted(found)]
        yield (f"{domain}::{name}" if domain else name), ", ".join(ways)


def _way(known: Rules, domain: str, name: str, version: int) -> str:
    found = known.lift_onnx.get((domain, name), {})
    if version in found or ANY_VERSION in found:
        return "rule"
    if version in known.upgrades.get((domain, name), {}):
        return "upgrade"
    return "definition" if not found and defined(name, version, domain) else "**no**"


def _tfl_row(name: str, known: Rules) -> str:
    runtimes = [runtime for runtime, forms in entry(name).kernels.items() if forms]
    read = "rule" if name in known.lift_tfl else "**no**"
    return f"| {name} | {read} | {', '.join(runtimes) or 'none right'} |"
