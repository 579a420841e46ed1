"""The evaluator of neutral ops in the child process: part of `worker`, and like it a script."""

from __future__ import annotations

from typing import Any


def evaluator(path: str) -> Any:
    """Return the evaluator of the model in a file of any format; ops without a meaning are "unsupported"."""
    from onnxtfl.errors import UnsupportedError
    from onnxtfl.evaluation import Evaluator

    try:
        return Evaluator(path)
    except UnsupportedError as error:
        raise _UnsupportedModelError(str(error)) from error


class _UnsupportedModelError(Exception):
    """A model that the neutral ops do not describe."""

    kind = "unsupported"
