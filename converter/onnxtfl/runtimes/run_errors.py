"""Errors of runtimes that cannot run a model."""

from __future__ import annotations

import re

from onnxtfl.errors import RuntimeUnavailableError, one_line

_CODES = {"unavailable": "E-RUN-001", "crash": "E-RUN-003", "timeout": "E-RUN-004", "memory": "E-RUN-005"}


class RunError(RuntimeUnavailableError):
    """A runtime could not run a model.

    ``kind``: unavailable (runtime not installed), unsupported (the model may be valid, but the runtime lacks a part of
    it), load, run, memory, crash, timeout.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message, hint="", code=_CODES.get(kind, "E-RUN-002"))
        self.kind = kind


_NOISE = (
    r"^\w+: (?=\[ONNXRuntimeError\])|\[ONNXRuntimeError\] : \d+ : \w+ : ",
    r"(?<![\w/.-])[\w.]*/[\w/.-]+\.(?:cc|h|cpp):\d+ (?:[\w:<>&*, ~]+\([^()]*(?:\([^()]*\)[^()]*)*\)(?: const)? )?",
    r"Load model from \S+ failed: ?",
    r"Opset \d+ is under development and support for this is limited.*?(?=Current official support)",
    r"ONNX Runtime only \*guarantees\* support for models stamped with official released onnx opset versions\. ",
    r" Status Message:(?=.* Status Message:)",
)
"""Text that runtimes print around their messages."""
_LONGEST = 20_000
"""The most characters of a message that are searched: a runtime may print a hundred thousand names."""


def brief(message: str) -> str:
    """Return a runtime's error as one line, without error codes and places in the runtime's sources."""
    message = message[:_LONGEST]
    for noise in _NOISE:
        message = re.sub(noise, "", message)
    message = re.sub(r"(?<=\S)(?=Node number \d+ \()", " ", message)
    return one_line(message, 400)
