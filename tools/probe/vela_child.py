"""The child process of the probe for Ethos-U: like :mod:`child`, but Vela compiles a model instead of running it.

The kernel set of a request is Vela's name of the accelerator ("ethos-u55-128"). A model whose op Vela puts on the NPU
is "placed", another one "refused".
"""

from __future__ import annotations

import contextlib
import functools
import io
import sys
from pathlib import Path
from typing import Any

# The modules in the folder of this script must not hide those that Vela imports.
if __name__ == "__main__" and sys.path:
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from ethosu import regor
from ethosu.vela.architecture_features import ArchitectureFeatures
from tools.probe.child import serve

ON_CPU = "Passthrough"


def run(accelerator: str, model: bytes, inputs: list[Any]) -> tuple[str, Any]:
    """Compile a model."""
    name, options = accelerator.rpartition("-")[0].title().replace("-", ""), "[compiler]\nenable_db=true\n"
    try:
        made = regor.compile(name, model, "TFLITE", system(accelerator), options=options)
    except RuntimeError as error:
        return "refused", str(error)
    ops = {row[made.opt_database.tables["optimised"].header.index("operator")] for row in _rows(made, "optimised")}
    return ("refused", "left to the CPU") if ON_CPU in ops else ("placed", "")


def _rows(made: Any, table: str) -> list[Any]:
    return list(made.opt_database.tables[table].data)


@functools.cache
def system(accelerator: str) -> str:
    """Vela's default configuration of an accelerator, in the form of its compiler."""
    with contextlib.redirect_stdout(io.StringIO()):
        arch = ArchitectureFeatures(None, accelerator, "internal-default", "internal-default", 3, False, None)
    chosen = f"system_config_name={arch.system_config}\nmemory_mode_name={arch.memory_mode}\n"
    files = "".join(Path(file).read_text(encoding="utf-8") for file in arch.vela_config_files)
    return f"[architecture]\nmacs={arch.num_macs_per_cycle}\ncores={arch.ncores}\n[vela]\n{chosen}{files}"


def main() -> None:
    """Serve requests with the Vela of this Python."""
    serve(lambda: run)


if __name__ == "__main__":
    main()
