"""Measure for which element types ONNX Runtime has no CPU kernel, and write them to schemas/onnxruntime.toml.

python tools/probe_onnxruntime.py              all ops of the default domain, all versions in opsets 13 to 26
python tools/probe_onnxruntime.py Add Conv     print the tables of these ops, write nothing
python tools/probe_onnxruntime.py --costs      measure the times of ops that are alternative forms instead
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx.defs
import onnxruntime

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.harness.workers import run_all
from tools.probe.costs.fit import Row
from tools.probe.costs.measure import costs
from tools.probe.tables import rows_text

from onnxtfl.targets.onnx import OnnxTarget

TABLE = Path(__file__).resolve().parents[1] / "schemas" / "onnxruntime.toml"
OPSETS = range(13, 27)
HEAD = """\
# Element types that an op's ONNX schema allows and for which ONNX Runtime {version} has no CPU kernel; costs of ops.
# Written by tools/probe_onnxruntime.py; do not edit.
#   [OP]
#   SINCE.VARIABLE = element types, by the op's since-version and the schema's name of the type variable
#   [OP.costs]
#   rows as in tflite_ops.toml, measured with --costs
"""


def main() -> int:
    """Return exit code 0."""
    wanted = [argument for argument in sys.argv[1:] if argument != "--costs"]
    known = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    measured = {op: section.pop("costs")["rows"] for op, section in known.items() if "costs" in section}
    if "--costs" in sys.argv:
        measured = costs(OnnxTarget(OPSETS[-1]), wanted)
    else:
        known = _gaps(wanted)
    text = "\n".join(_section(op, known.get(op, {}), measured.get(op)) for op in sorted({**known, **measured}))
    if wanted:
        print(text)
    else:
        TABLE.write_text(f"{HEAD.format(version=onnxruntime.__version__)}\n{text}", encoding="utf-8")
    return 0


def _gaps(wanted: Sequence[str]) -> dict[str, dict[str, dict[str, str]]]:
    """The element types without a kernel, by op, since-version and type variable."""
    jobs = [job for job in _versions() if not wanted or job[0] in wanted]
    found: dict[str, dict[str, dict[str, str]]] = {}
    for (name, version), outcome in run_all("tools.probe.ort_child:gaps", jobs, timeout=120):
        if outcome.kind != "done":
            print(f"{name}-{version}: {outcome.kind}: {outcome.message}")
        elif outcome.value:
            found.setdefault(name, {})[str(version)] = {v: _dtypes(types) for v, types in outcome.value.items()}
    return found


def _dtypes(types: Sequence[str]) -> str:
    return " ".join(t.removeprefix("tensor(").removesuffix(")") for t in types)


def _versions() -> list[tuple[str, int]]:
    """All (op, since-version) of the default domain in OPSETS, without deprecated ones."""
    names = {schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""}
    found = set()
    for name in names:
        for opset in OPSETS:
            try:
                schema = onnx.defs.get_schema(name, max_inclusive_version=opset, domain="")
            except onnx.defs.SchemaError:
                continue
            if not schema.deprecated:
                found.add((name, schema.since_version))
    return sorted(found)


def _section(op: str, versions: Mapping[str, Mapping[str, str]], rows: Sequence[Row] | None) -> str:
    lines = [f"[{op}]\n"] if versions else []
    for version, variables in sorted(versions.items(), key=lambda item: int(item[0])):
        lines += [f'{version}.{variable} = "{types}"\n' for variable, types in sorted(variables.items())]
    if rows is not None:
        lines.append(f"{chr(10) if versions else ''}[{op}.costs]\n{rows_text({'rows': rows})}")
    return "".join(lines)


if __name__ == "__main__":
    sys.exit(main())
