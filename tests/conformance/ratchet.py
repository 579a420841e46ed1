"""The ratchet lists, in TOML: the cases that do not pass yet, each with its reason."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import onnx

_FOLDER = Path(__file__).parent
_HEADER = """\
# {title}
# A listed case that passes, or an unlisted one that fails, fails the run: the list only shrinks.
# Written by `python tools/conformance.py --update`.
"""
_TITLES = {
    "plain": "ONNX's op tests, unchanged, that do not pass yet.",
    "frozen": "ONNX's op tests with every input but the first as an initializer that do not pass yet.",
    "history": "The corpus' op tests of older releases of ONNX that do not pass yet.",
    "tflite": "The corpus' .tflite models of one op that do not convert to correct ONNX yet.",
}
_NAMES = _FOLDER / "onnx_ops_names.txt"
_FILES = {
    "plain": "onnx_ops.toml",
    "frozen": "onnx_ops_frozen.toml",
    "history": "onnx_ops_history.toml",
    "tflite": "tflite_ops.toml",
}


@dataclass
class Ratchet:
    """A list. ``known``: reason by case name. ``onnx_version``: version of the onnx package that has the cases."""

    mode: str
    onnx_version: str = onnx.__version__
    known: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """The file of the list."""
        return _FOLDER / _FILES[self.mode]

    @property
    def is_current(self) -> bool:
        """Whether the list was made with the installed version of onnx."""
        return self.onnx_version == str(onnx.__version__)


def case_names() -> frozenset[str]:
    """The names of all cases of ONNX's op tests in the onnx of the lists."""
    return frozenset(_NAMES.read_text(encoding="utf-8").split())


def save_names(names: Iterable[str]) -> None:
    """Write the names of all cases of ONNX's op tests."""
    _NAMES.write_text("\n".join(sorted(names)) + "\n", encoding="utf-8")


def load(mode: str) -> Ratchet:
    """The list of a mode ("plain", "frozen", "history" or "tflite"), empty where its file does not exist."""
    ratchet = Ratchet(mode)
    if not ratchet.path.exists():
        return ratchet
    content = tomllib.loads(ratchet.path.read_text(encoding="utf-8"))
    ratchet.onnx_version = content["onnx_version"]
    for group in content.get("failing", []):
        ratchet.known |= dict.fromkeys(group["cases"], group["reason"])
    return ratchet


def save(ratchet: Ratchet, total: int) -> None:
    """Write the list, grouped by reason, the largest groups first."""
    lines = [_HEADER.format(title=_TITLES[ratchet.mode])]
    lines += [f"onnx_version = {json.dumps(ratchet.onnx_version)}"]
    lines += [f"cases = {total}", f"passing = {total - len(ratchet.known)}"]
    for reason, names in by_reason(ratchet.known).items():
        lines += ["", "[[failing]]", f"reason = {json.dumps(reason)}", "cases = ["]
        lines += [f"    {json.dumps(name)}," for name in names]
        lines += ["]"]
    ratchet.path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def by_reason(reasons: Mapping[str, str]) -> dict[str, list[str]]:
    """Case names by reason, the largest groups first."""
    groups: dict[str, list[str]] = {}
    for name in sorted(reasons):
        groups.setdefault(reasons[name], []).append(name)
    return dict(sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])))


def unlisted(old: Ratchet, failing: Iterable[str]) -> list[str]:
    """The failing cases that are not in the list."""
    return sorted(set(failing) - set(old.known))
