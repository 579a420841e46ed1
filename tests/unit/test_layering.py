"""The layering of the package: which parts may import which, read from the imports in the sources."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from onnx import defs

from onnxtfl.ir.op import OPS
from onnxtfl.targets.table import op_names

ROOT = Path(__file__).resolve().parents[2]
_API = "the public API"
_ALLOWED = {
    "kinds": set(),
    "option_table": {"kinds", "schemas"},
    "wording": {"option_table"},
    "error_codes": {"wording"},
    "errors": {"error_codes", "wording"},
    "platform_calls": set(),
    "dataclass": set(),
    "temporary": set(),
    "ir": set(),
    "formats": {"ir", "schemas"},
    "rewriting": {"ir", "schemas"},
    "kernels": {"ir", "rewriting"},
    "build": {"ir", "kernels", "rewriting"},
    "rules": {"build", "ir", "rewriting"},
    "runtimes": {"ir", "tables", "temporary"},
    "schemas": set(),
    "targets": {"ir", "rewriting", "schemas"},
    "passes": {"ir", "kernels", "rewriting", "targets"},
    "mappings": {"build", "ir", "kernels", "rewriting"},
    "options": {"passes", "schemas"},
    "pipeline_report": {"ir", "formats", "passes", "rewriting"},
    "stages": {"formats", "inputs", "ir", "options", "passes", "rewriting", "targets"},
    "pipeline_run": {"ir", "formats", "options", "passes", "pipeline_report", "rewriting", "targets"},
    "pipeline": {
        "ir",
        "formats",
        "options",
        "passes",
        "pipeline_report",
        "pipeline_run",
        "rewriting",
        "stages",
        "targets",
    },
    "evaluation": {"formats", "inputs", "ir", "passes", "pipeline_run", "rewriting"},
    "op_tables": {"formats", "ir", "options", "pipeline", "pipeline_run", "rewriting", "targets"},
    "tables": {"wording"},
    "inputs": {"formats", "ir"},
    "metrics": {"ir"},
    "tracing": {"formats", "ir", "options", "passes", "pipeline", "runtimes", "temporary"},
    "checking": {
        *("formats", "inputs", "ir", "passes", "pipeline", "rewriting", "runtimes", "tables", "targets", "temporary"),
        *("evaluation", "kernels", "metrics", "tracing"),
    },
    "quantizing": {
        *("formats", "inputs", "ir", "pipeline", "pipeline_report", "rewriting", "runtimes"),
        "targets",
    },
    "output": {"temporary"},
    "conversion": {"c_source", "ir", "checking", "placement", "schemas", "tables"},
    "c_source": {"formats", "targets"},
    "conversion_check": {
        *("checking", "formats", "ir", "options", "pipeline_report", "quantizing", "runtimes", "temporary", "tracing"),
        *("placement", "schemas"),
    },
    "arguments": {"kinds", "option_table", "options"},
    "conversion_job": {
        *("arguments", "checking", "conversion", "conversion_check", "formats", "ir", "option_table", "options"),
        *("output", "pipeline", "pipeline_report", "quantizing", "schemas"),
    },
    "api": {
        *("arguments", "checking", "conversion", "conversion_check", "conversion_job", "error_codes", "kinds", "llm"),
        *("metrics", "op_tables", "option_table", "pipeline", "quantizing", "rewriting"),
    },
    "signature_conversion": {"api", "arguments", "conversion", "formats"},
    "inspection": {
        *("arguments", "formats", "ir", "kinds", "option_table", "options", "pipeline", "rewriting", "tables"),
        *("op_times", "placement", "temporary"),
    },
    "op_times": {"formats", "inputs", "ir", "pipeline", "placement", "runtimes", "schemas", "tables"},
    "placement": {"formats", "inputs", "ir", "rewriting", "runtimes", "schemas", "tables", "targets"},
    "reporting": {"ir", "checking", "conversion", "inspection", "output", "placement", "runtimes", "tables"},
    "llm": {
        *("arguments", "checking", "conversion_check", "formats", "inputs", "ir", "metrics", "option_table", "options"),
        *(
            "output",
            "passes",
            "pipeline",
            "pipeline_report",
            "quantizing",
            "runtimes",
            "tables",
            "temporary",
            "tracing",
        ),
    },
    "many": {"api", "arguments", "option_table", "temporary"},
    "cli": {_API, "c_source", "kinds", "llm", "option_table", "output", "schemas", "tables", "temporary"},
    "__main__": {"cli"},
    _API: {
        "evaluation",
        "api",
        "checking",
        "conversion",
        "ir",
        "signature_conversion",
        "inspection",
        "many",
        "reporting",
        "rewriting",
    },
    "testing": {_API},
    "pytest_plugin": {_API, "testing"},
    "pre_commit": {_API, "cli"},
}
_FOLDERS = {"": ROOT / "converter" / "onnxtfl", "mappings": ROOT / "mappings", "schemas": ROOT / "schemas"}


def _modules() -> Iterator[tuple[str, Path]]:
    """Each module's dotted name inside onnxtfl, with its file; a package's own file has the package's name."""
    for inside, folder in _FOLDERS.items():
        for path in folder.rglob("*.py"):
            parts = [inside, *path.relative_to(folder).with_suffix("").parts]
            yield ".".join(part for part in parts if part and part != "__init__"), path


_MODULES = dict(_modules())


def _part(module: str) -> str:
    return module.partition(".")[0] or _API


def _imports(name: str, path: Path) -> Iterator[str]:
    """Dotted names, inside onnxtfl, of what a module imports from the package."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found = _from(name, path, node)
        else:
            continue
        for target in found:
            if target == "onnxtfl" or target.startswith("onnxtfl."):
                yield target.removeprefix("onnxtfl").removeprefix(".")


def _from(name: str, path: Path, node: ast.ImportFrom) -> list[str]:
    base = node.module or ""
    if node.level:
        parts = ["onnxtfl", *name.split(".")] if name else ["onnxtfl"]
        kept = parts[: len(parts) - node.level + (path.stem == "__init__")]
        base = ".".join([*kept, base]).rstrip(".")
    inside = base.removeprefix("onnxtfl").removeprefix(".")
    joined = [f"{inside}.{alias.name}".lstrip(".") for alias in node.names]
    return [f"onnxtfl.{full}" if base.startswith("onnxtfl") and full in _MODULES else base for full in joined]


def test_imports() -> None:
    found = list[str]()
    for name, path in _MODULES.items():
        part = _part(name)
        allowed = _ALLOWED[part] | {part, "dataclass", "errors", "platform_calls"}
        found += [f"{name} imports {target}" for target in _imports(name, path) if _part(target) not in allowed]
    assert found == []


def test_every_part_is_listed() -> None:
    assert {_part(name) for name in _MODULES} <= set(_ALLOWED)


def test_the_check_has_few_levels() -> None:
    """A module is one level above the highest of those that it imports, inside of `checking`."""
    inside = {name: path for name, path in _MODULES.items() if _part(name) == "checking"}
    imports = {name: {target for target in _imports(name, path) if target in inside} for name, path in inside.items()}
    levels = dict[str, int]()
    for _ in inside:
        levels = {
            name: 1 + max((levels.get(target, 0) for target in found), default=0) for name, found in imports.items()
        }
    assert max(levels.values()) <= 8


def test_mapping_modules_are_not_imported_by_name() -> None:
    outside = {name: path for name, path in _MODULES.items() if _part(name) != "mappings"}
    found = {name for name, path in outside.items() if any(_part(t) == "mappings" for t in _imports(name, path))}
    assert not found


def test_function_lengths() -> None:
    found = list[str]()
    for name, path in _MODULES.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                lines, documentation = _length(node), _length(node.body[0]) if ast.get_docstring(node) else 0
                found += [f"{name}.{node.name}: {lines} lines"] if lines > 60 or lines - documentation > 50 else []
    assert found == []


def _length(node: ast.stmt) -> int:
    """Lines; of a function without its parameters."""
    assert node.end_lineno is not None
    first = node.body[0].lineno if isinstance(node, ast.FunctionDef) else node.lineno
    return node.end_lineno - first + 1


def test_no_import_cycles() -> None:
    """Imports of types and inside functions count too."""
    imported = {name: {t for t in _imports(name, path) if t in _MODULES} - {name} for name, path in _MODULES.items()}
    while leaves := {name for name, targets in imported.items() if not targets}:
        imported = {name: targets - leaves for name, targets in imported.items() if name not in leaves}
    assert not imported, "modules on a cycle, and those that import them"


def _texts(path: Path) -> Iterator[str]:
    """The strings of a module that are not docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documentation = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.value


_FORMAT_OPS = {*op_names(), *(schema.name for schema in defs.get_all_schemas_with_history())}


def test_no_op_of_a_format_is_named() -> None:
    found = list[str]()
    for name in (n for n in _MODULES if _part(n) in ("build", "ir", "passes", "rewriting")):
        # terms find neutral ops by name, rows declare them
        names_ops = name == "ir.formula" or name.startswith("ir.ops.")
        of_formats = _FORMAT_OPS - (set(OPS) if names_ops else set())
        texts = _texts(_MODULES[name])
        found += [f"{name}: {text!r}" for text in texts if text in of_formats or re.match(r"(tfl|onnx)\.\w", text)]
    assert found == []
