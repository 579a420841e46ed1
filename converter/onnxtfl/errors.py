"""The exceptions of onnxtfl: one tree, each message a single line.

``str(error)`` is ``message [node 'conv1' Conv-11, type f32[1,3,?,?]]; hint (E-OP-001)``: what is wrong, where, what the
user can do, and the code (:mod:`onnxtfl.error_codes`). Unknown fields are left out; quantized types are shortened
(`short`). Messages and hints name parameters in backticks, which each interface writes in its words
(:mod:`onnxtfl.wording`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from onnxtfl.error_codes import default_hint
from onnxtfl.wording import Interface, worded

SCALES = 3
MANY = 12  # names listed in a suggestion
MOST_COMPARED = 5000  # names compared to find the nearest one
_QUANTIZED = re.compile(r"(quant<[^<>]*?)((?: [^\s:<>]+:-?\d+)+)>")
"""A quantization in the text form: storage type, axis and block, then "scale:zero_point" pairs."""
_OF_PYTHON = re.compile(
    r"values to unpack|^zip\(\)|object is not|object cannot be|not supported between|unsupported operand|^expected str"
)
"""Messages of Python's own exceptions for a wrong length or type, which do not help a user."""
_CODE = re.compile(r" \(E-[A-Z]+-\d{3}\)")
"""The code of an error that is quoted in the message of another one."""


class OnnxtflError(Exception):
    """Base class of the errors that onnxtfl raises.

    ``message``: what is wrong. ``node``: name of the node, value or tensor. ``op``: name of the operator in the file.
    ``version``: its since-version (ONNX) or op version (TFLite). ``type_``: the offending type or shape. ``hint``:
    what the user can do, by default what its code advises. ``code``: what kind of error it is (`onnxtfl.explain`).
    ``exit_code``: exit code of the command line.
    """

    exit_code = 1
    default_code: ClassVar[str] = ""

    def __init__(
        self,
        message: str,
        *,
        node: str | None = None,
        op: str | None = None,
        version: int | None = None,
        type_: object | None = None,
        hint: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.node = node
        self.op = op
        self.version = version
        self.type_ = type_
        self.hint = hint
        self.code = code or self.default_code

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _restored, (type(self), self.args, self.__dict__)

    @property
    def place(self) -> str:
        """The node, op, version and type as one phrase ("" where all are unknown)."""
        op = f"{self.op}-{self.version}" if self.op and self.version is not None else self.op or ""
        node = f"node {self.node!r}" if self.node else ""
        type_ = f"type {self.type_}" if self.type_ is not None else ""
        return ", ".join(part for part in (" ".join(p for p in (node, op) if p), type_) if part)

    def __str__(self) -> str:
        return self.text("python")

    def text(self, interface: Interface) -> str:
        """Return the line with parameter names as in ``interface``; codes of quoted errors are removed."""
        message = _CODE.sub("", self.message) if self.code else self.message
        text = f"{message} [{self.place}]" if self.place else message
        hint = default_hint(self.code) if self.hint is None else self.hint
        line = one_line(worded(f"{text}; {hint}" if hint else text, interface))
        return f"{line} ({self.code})" if self.code else line


def _restored(kind: type[OnnxtflError], args: tuple[Any, ...], fields: dict[str, Any]) -> OnnxtflError:
    """Restore a pickled error from its fields, without calling its class."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    return error


class InvalidModelError(OnnxtflError):
    """The input file is not a valid model: truncated, corrupt, external data missing, cyclic, duplicate names, ..."""

    default_code = "E-FILE-008"


class UnsupportedError(OnnxtflError):
    """The model is valid, but cannot be converted; names node, op, version and type."""

    default_code = "E-OP-001"


class UsageError(OnnxtflError):
    """An option or argument is invalid, by itself or for this model."""

    default_code = "E-USE-002"
    exit_code = 2


class CheckFailedError(OnnxtflError):
    """The conversion succeeded, but the two models differ, or a required check could not run.

    ``conversion``: the `onnxtfl.Conversion` with the report and the check; its path is None unless the result is kept.
    """

    default_code = "E-CHECK-001"
    exit_code = 3

    def __init__(
        self, message: str, *, conversion: Any = None, hint: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message, hint=hint, code=code)
        self.conversion = conversion


class RuntimeUnavailableError(OnnxtflError):
    """A runtime is not installed, or cannot run this model."""

    default_code = "E-RUN-001"


class InternalError(OnnxtflError):
    """A bug of onnxtfl; the exception that showed it is ``__cause__``."""

    default_code = "E-INT-001"

    def __init__(self, step: str, cause: BaseException, *, node: str | None = None, op: str | None = None) -> None:
        super().__init__(f"internal error in {step}: {type(cause).__name__}: {cause}", node=node, op=op)


class OutputError(OnnxtflError):
    """The output file cannot be written."""

    default_code = "E-OUT-001"


def reason(error: Exception) -> str:
    """Return the reason for ``error``, raised by a rule or a type inference; messages of Python itself are replaced."""
    if isinstance(error, ZeroDivisionError):
        return "a size, stride or factor is 0"
    if isinstance(error, KeyError) and error.args and isinstance(error.args[0], str):
        return f"the option {one_line(error.args[0], 80)!r} is missing, or this is not a value that an option has"
    text = str(error)
    if isinstance(error, OverflowError) or text.startswith("cannot convert float"):
        return "a number is not finite, or too large"
    if isinstance(error, IndexError | KeyError) or _OF_PYTHON.search(text):
        return "the number of its operands, their ranks, or its options are not those of this op"
    return text


def suggestion(name: str, known: Iterable[str], what: str) -> str:
    """Return a hint for an unknown name: the nearest known one, else up to `MANY` of them (``what``: "the inputs")."""
    import difflib

    names = [str(other) for other in known]
    near = difflib.get_close_matches(name, names[:MOST_COMPARED], 1)
    if near:
        return f"did you mean {near[0]!r}?"
    shown = ", ".join(map(repr, names[:MANY])) + (f", and {len(names) - MANY} more" if len(names) > MANY else "")
    return f"{what} are: {shown}" if names else "there are none"


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
