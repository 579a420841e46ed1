"""Loading of user modules that register mapping rules."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from onnxtfl.errors import UsageError
from onnxtfl.rewriting.registry import RuleError, all_rules

GROUP = "onnxtfl.mappings"
"""The entry point group of installed packages with rules."""


def load(names: Sequence[str]) -> None:
    """Import the modules `names` (or .py files) and those of the entry points. UsageError if an import fails.

    The package's rules are registered first: a second rule for the same op is an error.
    """
    entries = _entry_points()
    if names or entries:
        all_rules()
    for entry, package in entries:
        _installed(entry, package)
    for name in names:
        _imported(name)


@functools.cache
def _entry_points() -> tuple[tuple[str, str], ...]:
    """Return the modules that installed packages declare, with the package names."""
    entries = importlib.metadata.entry_points(group=GROUP)
    return tuple(sorted({(entry.module, entry.dist.name if entry.dist else "") for entry in entries}))


@functools.cache
def _installed(module: str, package: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except Exception as error:  # whatever a module of a user raises
        reason = f"{type(error).__name__}: {error}"
        what = f"the rules {module} of the installed package {package} cannot be imported"
        raise UsageError(f"{what}: {reason}", hint="repair that package, or uninstall it") from error


@functools.cache
def _imported(name: str) -> ModuleType:
    try:
        return _from_file(Path(name)) if name.endswith(".py") else importlib.import_module(name)
    except RuleError as error:
        raise UsageError(f"the plugin {name} cannot be used: {error}", hint="load it once") from error
    except Exception as error:  # whatever a module of a user raises
        reason = f"{type(error).__name__}: {error}"
        hint = "name a module that can be imported, or the path of a .py file (`plugins`)"
        raise UsageError(f"the plugin {name} cannot be imported: {reason}", hint=hint) from error


def _from_file(path: Path) -> ModuleType:
    name = f"onnxtfl_plugin_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
