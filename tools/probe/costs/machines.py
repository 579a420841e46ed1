"""The kinds of machine that costs are measured for, on one machine.

======  ============================================================
avx512  x86 with AVX-512
avx2    the same without: LiteRT is told that there is no AVX-512
======  ============================================================

XNNPACK and the other libraries in LiteRT choose their kernels once in a process, by CPUID; `without_avx512.c` replaces
these instructions in LiteRT's library. It is compiled on first use: this needs gcc and objdump.

    python -m tools.probe.costs.machines avx2 SCRIPT ARGUMENTS..    runs a script as on such a machine
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_SOURCE = Path(__file__).with_name("without_avx512.c")
_BUILD = Path(__file__).resolve().parents[3] / "build" / "probe"
_LIBRARY = "libpywrap_litert_common.so"


@functools.cache
def become(machine: str) -> None:
    """Make LiteRT run in this process as on such a machine; call it before a model is loaded.

    Raises RuntimeError where that is not possible.
    """
    if machine == own_kind():
        return
    if machine != "avx2":
        raise RuntimeError("these costs are measured on a machine with AVX-512")
    _hide_avx512()


def own_kind() -> str:
    """The kind of this machine."""
    return "avx512" if "avx512f" in Path("/proc/cpuinfo").read_text(encoding="utf-8") else "avx2"


def _hide_avx512() -> None:
    import ai_edge_litert.interpreter  # noqa: F401  (loads the library)

    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    mapped = next(line.split() for line in lines if line.endswith(_LIBRARY))
    start, library = int(mapped[0].partition("-")[0], 16), Path(mapped[-1])
    offsets = _cpuid_offsets(library)
    addresses = (ctypes.c_size_t * len(offsets))(*(start + offset for offset in offsets))
    if not offsets or ctypes.CDLL(str(_compiled())).hide_avx512(addresses, len(offsets)):
        raise RuntimeError(f"the CPUID instructions of {library.name} cannot be replaced")


def _cpuid_offsets(library: Path) -> Sequence[int]:
    """The addresses of the CPUID instructions in a library; found once for each version of it."""
    status = library.stat()
    known = _BUILD / f"cpuid-{status.st_size}-{int(status.st_mtime)}.txt"
    if not known.exists():
        code = subprocess.run(["objdump", "-d", "--no-show-raw-insn", library], stdout=subprocess.PIPE, check=True)
        found = re.findall(rb"^ *([0-9a-f]+):\s+cpuid", code.stdout, re.MULTILINE)
        _BUILD.mkdir(parents=True, exist_ok=True)
        known.write_bytes(b"\n".join(found))
    return [int(line, 16) for line in known.read_text(encoding="utf-8").split()]


def _compiled() -> Path:
    made = _BUILD / "without_avx512.so"
    if not made.exists() or made.stat().st_mtime < _SOURCE.stat().st_mtime:
        _BUILD.mkdir(parents=True, exist_ok=True)
        partial = made.with_suffix(f".{os.getpid()}")
        subprocess.run(["gcc", "-O2", "-Wall", "-shared", "-fPIC", "-o", partial, _SOURCE], check=True)
        partial.replace(made)
    return made


if __name__ == "__main__":
    _, chosen, *sys.argv = sys.argv
    become(chosen)
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
