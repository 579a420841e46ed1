"""A .tflite as C++ source for TFLite Micro: the file as an aligned array, its op resolver, the size of its arena."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from onnxtfl.errors import OutputError, UnsupportedError, UsageError

SUFFIXES = (".cc", ".cpp", ".cxx")
_ROW = 16
"""Bytes of the array in a line."""
_HEADER = """\
// Written by onnxtfl: a model for TensorFlow Lite for Microcontrollers.
//
//   static {space}::OpResolver resolver;
//   alignas(16) static uint8_t arena[{arena}];
//   if (!{space}::AddOps(resolver)) return false;
//   static tflite::MicroInterpreter interpreter(
//       tflite::GetModel({space}::kModel), resolver, arena, sizeof(arena));

#ifndef {guard}
#define {guard}

#include <cstddef>
#include <cstdint>

#if __has_include("tensorflow/lite/micro/micro_mutable_op_resolver.h")
#include "tensorflow/lite/micro/micro_mutable_op_resolver.h"
#endif

namespace {space} {{

// The bytes of the .tflite file, aligned to 16.
extern const unsigned char kModel[];
constexpr std::size_t kModelSize = {size};

{arena_size}

// How many different ops the model has.
constexpr unsigned int kOpCount = {count};

#if __has_include("tensorflow/lite/micro/micro_mutable_op_resolver.h")
using OpResolver = tflite::MicroMutableOpResolver<kOpCount>;
#endif

// Adds the ops of the model to an OpResolver; returns whether it took all of them.
template <typename Resolver>
bool AddOps(Resolver& resolver) {{
  int failed = 0;
{adds}
  return failed == 0;
}}

}}  // namespace {space}

#endif  // {guard}
"""
_ARENA = """\
// The bytes of the arena that the model needs, measured where pointers have 64 bits (with 32 bits it needs less).
constexpr std::size_t kArenaSize = {arena};"""
_NO_ARENA = (
    "// The size of the arena was not measured: interpreter.arena_used_bytes() returns it after AllocateTensors()."
)
_SOURCE = """\
#include "{name}.h"

namespace {space} {{

alignas(16) const unsigned char kModel[] = {{
{rows}
}};

}}  // namespace {space}
"""


@dataclass(frozen=True)
class CSource:
    """The two files of a model in C++: ``header`` and ``source``, as text, for the files ``name``.h and ``name``.cc.

    Their definitions are in a namespace with the name of the files and the suffix "_model".
    """

    name: str
    header: str
    source: str

    def write(self, folder: str | os.PathLike[str], suffix: str = ".cc") -> tuple[Path, Path]:
        """Write both files into ``folder``, which is created if needed; return their paths.

        ``suffix``: of the source file. Raises `OutputError`.
        """
        header, source = (Path(folder) / (self.name + end) for end in (".h", suffix))
        try:
            header.parent.mkdir(parents=True, exist_ok=True)
            header.write_text(self.header, encoding="utf-8")
            source.write_text(self.source, encoding="utf-8")
        except OSError as error:
            raise OutputError(f"cannot write {source}: {error.strerror or error}") from error
        return header, source


def c_source(model: bytes, name: str, arena: int | None = None) -> CSource:
    """The .tflite ``model`` as C++ source in files called ``name``; ``arena``: the bytes of its arena, if known.

    Raises `UnsupportedError` for a model with ops that TFLite Micro does not have, and `UsageError` for a name without
    letters and digits.
    """
    adds = _resolver_methods(model)
    space = _namespace(name)
    header = _HEADER.format(
        space=space,
        guard=f"ONNXTFL_{space.upper()}_H_",
        size=len(model),
        arena=f"{space}::kArenaSize" if arena is not None else "20 * 1024",
        arena_size=_NO_ARENA if arena is None else _ARENA.format(arena=arena),
        count=max(1, len(adds)),
        adds="\n".join(f"  failed += resolver.{method}() != 0;" for method in adds),
    )
    return CSource(name, header, _SOURCE.format(name=name, space=space, rows="\n".join(_rows(model))))


def split_path(path: str | os.PathLike[str], name: str) -> tuple[Path, str, str]:
    """The folder of the files, their name, and the suffix of the source, for a path of a folder or of a C++ file.

    ``name``: that of the files in a folder. Raises `UsageError` for a file with another suffix.
    """
    file = Path(path)
    if file.suffix.lower() in SUFFIXES and not file.is_dir():
        return file.parent, file.stem, file.suffix
    if file.suffix.lower() in (".c", ".h", ".hpp", ".tflite") and not file.is_dir():
        raise UsageError(f"{file} is not a folder or a C++ file", hint=f"name a folder, or {file.with_suffix('.cc')}")
    return file, name, ".cc"


def _resolver_methods(model: bytes) -> list[str]:
    """The methods of MicroMutableOpResolver that add the ops of a model, sorted."""
    from onnxtfl.formats.tflite import reader
    from onnxtfl.targets.table import narrowed

    read = reader.read(model)
    graphs = {id(graph): graph for graph in (read.main, *(s.graph for s in read.signatures))}
    ops = {node.op.name_in_file for graph in graphs.values() for node in graph.walk()}
    entries = {op: narrowed("micro", op) for op in sorted(ops)}
    if missing := [op for op, known in entries.items() if known.is_missing]:
        message = f"TFLite Micro does not have these ops of the model: {', '.join(missing)}"
        raise UnsupportedError(message, hint="convert with `target=micro`", code="E-OP-004")
    return sorted(known.resolver for known in entries.values())


def _namespace(name: str) -> str:
    """An identifier for files called `name`, which is no word of C++."""
    found = re.sub(r"\W", "_", name, flags=re.ASCII).strip("_")
    if not found:
        raise UsageError(f"{name!r} is no name for a C++ file", hint="use letters and digits")
    found = f"m{found}" if found[0].isdigit() else found
    return found if found.endswith("_model") else f"{found}_model"


def _rows(model: bytes) -> Iterator[str]:
    for start in range(0, len(model), _ROW):
        yield "    " + ", ".join(f"0x{byte:02x}" for byte in model[start : start + _ROW]) + ","
