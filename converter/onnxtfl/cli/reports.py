"""The option `--report` of the commands, and `--junit`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnxtfl import CheckReport, Conversion, Inspection

_SUFFIXES = {"--report": (".html", ".htm"), "--junit": (".xml",)}


def requested(options: dict[str, Any], name: str = "--report") -> str | None:
    """Take the path of a report out of the options; a page also needs errors along the depth and time per op.

    Raises `UsageError` for a path with another suffix, and for one that cannot be written, before anything is run.
    """
    path: str | None = options.pop(name.removeprefix("--"), None)
    if path is None:
        return None
    from onnxtfl import OutputError, UsageError

    suffix = _SUFFIXES[name][0]
    if Path(path).suffix.lower() not in _SUFFIXES[name]:
        raise UsageError(f"{name} writes {suffix[1:].upper()}, not {path}", hint=f"name it {Path(path).stem}{suffix}")
    if Path(path).is_dir():
        raise OutputError(f"cannot write {path}: it is a directory")
    if name == "--report":
        options |= {"per_layer": True, "profile": True}
    return path


def write(path: str | None, result: Conversion | CheckReport | Inspection | None, *names: object) -> None:
    """Write the report if one was requested and there is a result. ``names``: of the two models of a check."""
    if path is not None and result is not None:
        from onnxtfl import write_report

        write_report(result, path, **dict(zip("ab", map(str, names), strict=False)))
