"""Measure which element types ONNX Runtime's CPU kernels lack, and write them to schemas/onnxruntime.toml.

python tools/probe_onnxruntime.py              every op of the default domain, every version in opsets 13 to 24
python tools/probe_onnxruntime.py Add Conv     tell these, write nothing
"""

from __future__ import annotations

import sys
from pathlib import Path

import onnx.defs

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.harness.workers import run_all

TABLE = Path(__file__).resolve().parents[1] / "schemas" / "onnxruntime.toml"
OPSETS = range(13, 25)
HEAD = """\
# Element types that an op's ONNX schema allows and for which ONNX Runtime {version} has no CPU kernel.
# Written by tools/probe_onnxruntime.py; never edit it by hand.
#   [OP]
#   SINCE.VARIABLE = element types, by the op's since-version and the schema's name of the type variable
"""


def main() -> int:
    """Exit code 0."""
    wanted = sys.argv[1:]
    jobs = [job for job in _versions() if not wanted or job[0] in wanted]
    found: dict[str, dict[int, dict[str, list[str]]]] = {}
    for (name, version), outcome in run_all("tools.probe.ort_child:gaps", jobs, timeout=120):
        if outcome.kind != "done":
            print(f"{name}-{version}: {outcome.kind}: {outcome.message}")
        elif outcome.value:
            found.setdefault(name, {})[version] = outcome.value
    text = "\n".join(_section(name, found[name]) for name in sorted(found))
    if wanted:
        print(text)
    else:
        import onnxruntime

        head = HEAD.format(version=onnxruntime.__version__)
        TABLE.write_text(f"{head}\n{text}", encoding="utf-8")
    return 0


def _versions() -> list[tuple[str, int]]:
    """Each op of the default domain, in each version that one of the opsets has."""
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


def _section(name: str, versions: dict[int, dict[str, list[str]]]) -> str:
    lines = [f"[{name}]"]
    for version, variables in sorted(versions.items()):
        for variable, types in sorted(variables.items()):
            plain = " ".join(t.removeprefix("tensor(").removesuffix(")") for t in types)
            lines.append(f'{version}.{variable} = "{plain}"')
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
