"""The option `--compile`: the result of Vela beside the converted model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from onnxtfl.cli.streams import STREAM

if TYPE_CHECKING:
    from onnxtfl import Conversion

COMPILED = "_vela"
"""The suffix that Vela appends to the name of a model."""


def uncompiled(output: str, target: str) -> str:
    """The path of the converted model, for the path of either file. Raises `UsageError` where nothing is compiled."""
    from onnxtfl.errors import UsageError
    from onnxtfl.schemas.target_tables import target_tables

    able = [name for name, table in target_tables().items() if table.accelerator is not None]
    if target not in able:
        raise UsageError(f"nothing compiles models for {target}", hint=f"use --target {', '.join(able)}")
    if output == STREAM:
        raise UsageError("--compile writes two files", hint="name one with -o", code="E-USE-006")
    path = Path(output)
    return str(path.with_name(path.name.replace(f"{COMPILED}{path.suffix}", path.suffix)))


def write_compiled(conversion: Conversion, output: str) -> None:
    """Write Vela's result. Raises `RuntimeUnavailableError` if Vela did not compile the model."""
    from onnxtfl.errors import RuntimeUnavailableError

    placement = conversion.report.placement
    if placement is None or placement.compiled is None:
        why = "it was not loaded (--no-load)" if placement is None else placement.note
        raise RuntimeUnavailableError(f"{output} was written, but not compiled: {why}", hint="")
    path = Path(output)
    path.with_name(f"{path.stem}{COMPILED}{path.suffix}").write_bytes(placement.compiled)
