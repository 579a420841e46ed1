"""The entry points `onnx2tfl`, `tfl2onnx` and `onnxtfl`; the commands import the public API only, when they run.

Nothing is imported before Ctrl-C is handled, which otherwise prints a traceback.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def onnx2tfl() -> NoReturn:
    """Run the command `onnx2tfl` on the arguments of the process."""
    _run("convert", "onnx2tfl")


def tfl2onnx() -> NoReturn:
    """Run the command `tfl2onnx` on the arguments of the process."""
    _run("convert", "tfl2onnx")


def main() -> NoReturn:
    """Run the command `onnxtfl` on the arguments of the process."""
    _run("commands", "onnxtfl")


def _run(module: str, name: str) -> NoReturn:
    from onnxtfl.cli import interrupts

    interrupts.leave_at_once()
    from importlib import import_module

    from onnxtfl.cli.running import run

    run(getattr(import_module(f"onnxtfl.cli.{module}"), name))
