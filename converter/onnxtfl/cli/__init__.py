"""The entry points `onnx2tfl`, `tfl2onnx` and `onnxtfl`; the commands import the public API only, when they run."""

from __future__ import annotations

from typing import NoReturn


def onnx2tfl() -> NoReturn:
    """Run the command `onnx2tfl` on the arguments of the process."""
    _run("onnx2tfl")


def tfl2onnx() -> NoReturn:
    """Run the command `tfl2onnx` on the arguments of the process."""
    _run("tfl2onnx")


def main() -> NoReturn:
    """Run the command `onnxtfl` on the arguments of the process."""
    _run("onnxtfl")


def _run(name: str) -> NoReturn:
    from onnxtfl.cli import interrupts

    interrupts.leave_at_once()
    from onnxtfl.cli import commands
    from onnxtfl.cli.running import run

    interrupts.catch()
    run(getattr(commands, name))
