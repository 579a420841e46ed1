"""The exceptions of onnxtfl: one tree, each message a single line.

``str(error)`` is ``message [node 'conv1' Conv-11, type f32[1,3,?,?]]; hint``: what is wrong, where, and what the user
can do. Unknown fields are left out; quantized types are shortened (`short`).
"""

from __future__ import annotations

import re
from typing import Any

SCALES = 3
_QUANTIZED = re.compile(r"(quant<[^<>]*?)((?: [^\s:<>]+:-?\d+)+)>")
"""A quantization in the text form: storage type, axis and block, then "scale:zero_point" pairs."""


class OnnxtflError(Exception):
    """Base class of the errors that onnxtfl raises.

    ``message``: what is wrong. ``node``: name of the node, value or tensor. ``op``: name of the operator in the file.
    ``version``: its since-version (ONNX) or op version (TFLite). ``type_``: the offending type or shape. ``hint``:
    what the user can do. ``exit_code``: exit code of the command line.
    """

    exit_code = 1

    def __init__(
        self,
        message: str,
        *,
        node: str | None = None,
        op: str | None = None,
        version: int | None = None,
        type_: object | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.node = node
        self.op = op
        self.version = version
        self.type_ = type_
        self.hint = hint

    @property
    def place(self) -> str:
        """The node, op, version and type as one phrase ("" where all are unknown)."""
        op = f"{self.op}-{self.version}" if self.op and self.version is not None else self.op or ""
        node = f"node {self.node!r}" if self.node else ""
        type_ = f"type {self.type_}" if self.type_ is not None else ""
        return ", ".join(part for part in (" ".join(p for p in (node, op) if p), type_) if part)

    def __str__(self) -> str:
        text = f"{self.message} [{self.place}]" if self.place else self.message
        return one_line(f"{text}; {self.hint}" if self.hint else text)


class InvalidModelError(OnnxtflError):
    """The input file is not a valid model: truncated, corrupt, external data missing, cyclic, duplicate names, ..."""


class UnsupportedError(OnnxtflError):
    """The model is valid, but cannot be converted; names node, op, version and type."""


class UsageError(OnnxtflError):
    """An option or argument is invalid, by itself or for this model."""

    exit_code = 2


class CheckFailedError(OnnxtflError):
    """The conversion succeeded, but the two models differ, or a required check could not run.

    ``conversion``: the `onnxtfl.Conversion` with the report and the check; its path is None unless the result is kept.
    """

    exit_code = 3

    def __init__(self, message: str, *, conversion: Any = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.conversion = conversion


class RuntimeUnavailableError(OnnxtflError):
    """A runtime is not installed, or cannot run this model."""


class InternalError(OnnxtflError):
    """A bug of onnxtfl; the exception that showed it is ``__cause__``."""

    def __init__(self, step: str, cause: BaseException, *, node: str | None = None, op: str | None = None) -> None:
        hint = "please report it (ONNXTFL_DEBUG=1 shows where)"
        super().__init__(f"internal error in {step}: {type(cause).__name__}: {cause}", node=node, op=op, hint=hint)


class OutputError(OnnxtflError):
    """The output file cannot be written."""


def one_line(text: str, limit: int = 2000) -> str:
    """Return ``text`` as one printable line of at most ``limit`` characters, quantized types shortened."""
    flat = " ".join("".join(c if c.isprintable() else " " for c in short(text)).split())
    return flat if len(flat) <= limit else flat[: limit - 3] + "..."


def short(text: object) -> str:
    """Return ``text`` with the quantized types in it shortened: lists of more than `SCALES` scales as their range.

    ``quant<int8 axis=0 128 scales 0.00052..0.00083>``; zero points that are not all 0 follow as a range too.
    """
    return _QUANTIZED.sub(_shortened, str(text))


def _shortened(quantized: re.Match[str]) -> str:
    pairs = [(float(scale), int(zero)) for scale, _, zero in (pair.partition(":") for pair in quantized[2].split())]
    if len(pairs) <= SCALES:
        shown = " ".join(f"{scale:.6g}:{zero}" for scale, zero in pairs)
        return f"{quantized[1]} {shown}>"
    scales, zeros = zip(*pairs, strict=True)
    offsets = f" zero points {min(zeros)}..{max(zeros)}" if any(zeros) else ""
    return f"{quantized[1]} {len(pairs)} scales {min(scales):.3g}..{max(scales):.3g}{offsets}>"
