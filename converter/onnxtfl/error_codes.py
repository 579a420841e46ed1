"""The error codes, with their meaning and advice; read from error_codes.toml.

A code is stable: it keeps its meaning in later versions, and the code of a removed error is not reused.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from onnxtfl.dataclass import dataclass
from onnxtfl.wording import Interface, worded

FAMILIES = {
    "FILE": "The file cannot be read as a model",
    "OP": "An op cannot be converted",
    "TYPE": "A type cannot be converted",
    "SHAPE": "A size or value is known only at run time",
    "QUANT": "Quantization",
    "USE": "Options and arguments",
    "CHECK": "The comparison of the two models",
    "RUN": "Runtimes and packages",
    "OUT": "Writing the result",
    "INT": "A bug of onnxtfl",
}
"""Title of each family of codes, the middle part of ``E-FILE-001``."""


@dataclass(frozen=True)
class ErrorCode:
    """The documentation of a code. ``hint``: the default advice of messages ("" for none).

    ``means``, ``do`` and ``example`` are Markdown, with the parameters in the form of :mod:`onnxtfl.wording`.
    """

    code: str
    title: str
    means: str
    do: str
    example: str
    hint: str = ""

    @property
    def family(self) -> str:
        """The middle part of the code."""
        return self.code.split("-")[1]


@cache
def error_codes() -> Mapping[str, ErrorCode]:
    """Return all codes in the order of the file."""
    import tomllib

    text = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    return {code: ErrorCode(code, **entry) for code, entry in tomllib.loads(text).items()}


def default_hint(code: str) -> str:
    """Return the advice for a code, or ""."""
    found = error_codes().get(code)
    return found.hint if found else ""


def page(entry: ErrorCode, interface: Interface = "both") -> str:
    """Return the page of a code in Markdown: title, meaning, what to do, example."""
    example = "\n".join(f"    {line}".rstrip() for line in entry.example.strip().splitlines())
    parts = [f"# {entry.code}: {entry.title}", entry.means, "## What to do", entry.do, "## Example", example]
    return worded("\n\n".join(part.strip("\n") for part in parts), interface) + "\n"


def index(interface: Interface = "both") -> str:
    """Return the list of all codes in Markdown, by family."""
    lines = ["# Error codes", "", "An error message ends with its code; `onnxtfl explain CODE` prints its page."]
    for family, title in FAMILIES.items():
        lines += ["", f"## {title}", ""]
        members = (entry for entry in error_codes().values() if entry.family == family)
        lines += [f"- [{entry.code}]({entry.code}.md) {worded(entry.title, interface)}" for entry in members]
    return "\n".join(lines) + "\n"
