"""Print mappings/rule_modules.txt, the ops that each module of the mappings registers rules for.

    python tools/rule_modules.py > mappings/rule_modules.txt        as `python tools/docs.py --pages` does

Those of other domains (mappings/contrib) are imported for ops of these domains only, so they may not have rules for
other ops of files. The modules are imported with tables that note the module whose body registers a rule, so that this
needs a process in which no module of the mappings is imported yet.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import fields
from typing import Any

from onnxtfl.rewriting import registry, rule_modules

_OPS: dict[str, set[str]] = defaultdict(set)


class _Noting(dict[Any, Any]):
    """A table of rules that notes the key of the op, by module, for each rule that is added."""

    def __init__(self, table: str) -> None:
        super().__init__()
        self.table = table

    def setdefault(self, key: Any, default: Any = None) -> Any:
        self._note(key)
        return super().setdefault(key, default)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._note(key)
        super().__setitem__(key, value)

    def _note(self, key: Any) -> None:
        _OPS[_module()].add(rule_modules.table_key(self.table, key))


def _module() -> str:
    """The name of the innermost module of the mappings whose body is running, without the package."""
    frame = sys._getframe()
    start = f"{rule_modules.PACKAGE}."
    while frame.f_code.co_name != "<module>" or not frame.f_globals["__name__"].startswith(start):
        assert frame.f_back is not None, "a rule is registered by no module of the mappings"
        frame = frame.f_back
    return str(frame.f_globals["__name__"]).removeprefix(start)


def _of_default_domains(keys: set[str]) -> list[str]:
    """The keys of ops of ONNX's default domain, and of TFLite's builtin ops."""
    return sorted(
        k for k in keys if k.startswith(("onnx.", "tfl.")) and "@" not in k and not k.startswith("tfl.custom:")
    )


def table() -> str:
    """The contents of the file."""
    tables: Any = registry._RULES
    for one in fields(tables):
        setattr(tables, one.name, _Noting(one.name))
    registry.all_rules()
    misplaced = {name: ops for name in _OPS if name.startswith("contrib.") and (ops := _of_default_domains(_OPS[name]))}
    assert not misplaced, f"rules that are imported for ops of another domain only: {misplaced}"
    lines = []
    for name, path in rule_modules.core_modules():
        source = rule_modules.read(path)
        assert source is not None
        lines.append(" ".join([name, rule_modules.checksum(source), *sorted(_OPS[name])]) + "\n")
    return "".join(lines)


if __name__ == "__main__":
    sys.stdout.write(table())
