"""The ratchet lists: the cases that do not pass yet, each with its reason, in TOML."""

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
    "plain": "ONNX's op tests, as they stand, that do not pass yet.",
    "frozen": "ONNX's op tests with every input but the first made an initializer, that do not pass yet.",
    "tflite": "The corpus' .tflite models of one op that do not become right ONNX yet.",
}
_FILES = {"plain": "onnx_ops.toml", "frozen": "onnx_ops_frozen.toml", "tflite": "tflite_ops.toml"}


@dataclass
class Ratchet:
    """``known``: reason by case name. ``onnx_version``: the onnx package whose cases were run."""

    mode: str
    onnx_version: str = onnx.__version__
    known: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """The file the list is kept in."""
        return _FOLDER / _FILES[self.mode]

    @property
    def fits(self) -> bool:
        """True where the installed onnx is the one that the list was made with."""
        return self.onnx_version == str(onnx.__version__)


def load(mode: str) -> Ratchet:
    """The list of a mode ("plain", "frozen" or "tflite"); an empty one where there is no file yet."""
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


def grown(old: Ratchet, failing: Iterable[str]) -> list[str]:
    """The failing cases that the list does not have."""
    return sorted(set(failing) - set(old.known))
