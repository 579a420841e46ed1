"""The errors of onnxtfl: one tree, and each message is a single line that names the place.

``str(error)`` reads ``message [node 'conv1' Conv-11, type f32[1,3,?,?]]; hint``: what is wrong, where, and what the
user can do about it. Fields that are not known are left out.
"""

from __future__ import annotations

from typing import Any


class OnnxtflError(Exception):
    """Base of every error that onnxtfl raises on purpose.

    ``message``: what is wrong. ``node``: name of the node, value or tensor. ``op``: operator at fault, as the
    file calls it. ``version``: its since-version (ONNX) or op version (TFLite). ``type_``: the type or shape at
    fault, in the text form. ``hint``: what the user can do. ``exit_code``: what the command line returns.
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
        """The node, op, version and type at fault, as one phrase ("" where nothing is known)."""
        op = f"{self.op}-{self.version}" if self.op and self.version is not None else self.op or ""
        node = f"node {self.node!r}" if self.node else ""
        type_ = f"type {self.type_}" if self.type_ is not None else ""
        return ", ".join(part for part in (" ".join(p for p in (node, op) if p), type_) if part)

    def __str__(self) -> str:
        text = f"{self.message} [{self.place}]" if self.place else self.message
        return one_line(f"{text}; {self.hint}" if self.hint else text)


class InvalidModelError(OnnxtflError):
    """The input file is not a good model: cut, garbled, external data missing, cyclic, duplicate names, ..."""


class UnsupportedError(OnnxtflError):
    """The model is good, but something in it cannot be converted; names node, op, version, type and a way out."""


class UsageError(OnnxtflError):
    """An option or argument makes no sense, by itself or for this model."""

    exit_code = 2


class CheckFailedError(OnnxtflError):
    """The conversion went through, but the two models do not agree, or could not be checked where they had to be.

    ``conversion``: the `onnxtfl.Conversion` with the report and the check; its path is None unless the result is kept.
    """

    exit_code = 3

    def __init__(self, message: str, *, conversion: Any = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.conversion = conversion


class RuntimeUnavailableError(OnnxtflError):
    """A runtime is not installed, or cannot run this model."""


class InternalError(OnnxtflError):
    """A mistake of ours, never of the user: what went wrong is the cause (``__cause__``), told by its traceback."""

    def __init__(self, step: str, cause: BaseException, *, node: str | None = None, op: str | None = None) -> None:
        hint = "please report it (ONNXTFL_DEBUG=1 shows where)"
        super().__init__(f"internal error in {step}: {type(cause).__name__}: {cause}", node=node, op=op, hint=hint)


class OutputError(OnnxtflError):
    """The output file cannot be written."""


def one_line(text: str, limit: int = 2000) -> str:
    """Return ``text`` with all runs of whitespace and control characters as one blank, cut at ``limit`` characters."""
    flat = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return flat if len(flat) <= limit else flat[: limit - 3] + "..."
