"""The words of each interface: a message names a parameter in backticks, which is a flag on the command line.

    `input_shapes`           input_shapes            --input-shape
    `state=io`               state='io'              --state io
    `check=False`            check=False             --no-check
    `--flag x|parameter=x`   parameter=x             --flag x          (where the two are written differently)

Other text in backticks is unchanged.
"""

from __future__ import annotations

import re
from typing import Literal

from onnxtfl.option_table import OPTIONS

Interface = Literal["python", "cli", "both"]
"""Who reads a message: a caller of the Python functions, a user of the commands, or a reader of the documentation."""
COMMANDS = {
    "onnx_to_tflite": "onnx2tfl",
    "tflite_to_onnx": "tfl2onnx",
    "check()": "onnxtfl check",
    "inspect()": "onnxtfl inspect",
}
_ARGUMENTS = {
    **{"a": "A", "b": "B", "code": "CODE", "model": "MODEL", "models": "MODEL", "path": "-o", "directory": "-o DIR"},
    **{"to": "--to", "on_conversion": "--on-conversion"},
}
"""The arguments that are no options, with how the commands write them."""
_FLAGS = _ARGUMENTS | {row.name: row.flag for row in OPTIONS if row.is_keyword}
PARAMETERS = frozenset(_FLAGS)
"""The parameters of the public functions that a message may name."""
_MARKED = re.compile(r"`([^`\n]+)`")


def worded(text: str, interface: Interface) -> str:
    """Return ``text`` with its parameters and functions in the words of an interface."""
    return _MARKED.sub(lambda found: _word(found[1], interface) or found[0], text) if "`" in text else text


def flag(parameter: str) -> str:
    """Return the option or argument of the commands that sets a parameter of the public functions."""
    return _FLAGS[parameter]


def _word(marked: str, interface: Interface) -> str | None:
    """The words for text in backticks; None for other text."""
    python, cli = _pair(marked)
    if python is None or cli is None:
        return None
    if interface == "both":
        return f"`{cli}` (Python: `{python}`)"
    return cli if interface == "cli" else python


def _pair(marked: str) -> tuple[str | None, str | None]:
    """The words in Python and on the command line."""
    cli, bar, python = marked.partition("|")
    if bar:
        return python, cli
    if marked in COMMANDS:
        return marked, COMMANDS[marked]
    name, equals, value = marked.partition("=")
    if name not in PARAMETERS:
        return None, None
    if not equals:
        return name, flag(name)
    if value in ("True", "False"):
        return marked, flag(name) if value == "True" else flag(name).replace("--", "--no-", 1)
    return f"{name}={value if _is_number(value) else repr(value)}", f"{flag(name)} {value}"


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?\d+(\.\d+)?", text) is not None
