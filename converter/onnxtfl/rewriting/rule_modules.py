"""The modules of ``onnxtfl.mappings`` with rules for an op, so that a conversion imports only those that it needs.

``mappings/rule_modules.txt``, which ``tools/docs.py --pages`` writes, has a line for each module: its name, the
checksum of its source, and the ops that it registers rules for (:func:`table_key`). A module with another checksum or
without a line is imported for every op: a stale line costs time, but no rule is missed.
"""

from __future__ import annotations

import functools
import importlib
import os
import pkgutil
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from onnxtfl.ir.op import Op

PACKAGE, TABLE = "onnxtfl.mappings", "rule_modules.txt"
CONTRIB = {
    "ai.onnx.ml": "ml",
    "ai.onnx.preview.training": "training",
    "com.microsoft": "microsoft",
    "com.microsoft.nchwc": "nchwc",
    "custom": "mediapipe",
}
"""The packages of ``onnxtfl.mappings.contrib``, by domain of their ops (custom: TFLite's custom ops). All modules of a
package are imported for the first op of its domain, since they also register rules for neutral ops."""
QUANTIZED = "quantized"
"""The key of all rules for QOperator ops."""


def op_key(op: type[Op]) -> str:
    """The key of an op in the table: ``Conv``, ``onnx.Conv``, ``tfl.CONV_2D``, ``onnx.Gelu@com.microsoft``."""
    return f"{op.name}@{op.domain}" if op.domain else op.name


def table_key(table: str, key: Any) -> str:
    """The key of an op in the table, for the key of a rule in the field `table` of the registry's ``Rules``."""
    if isinstance(key, type):
        return op_key(key)
    if isinstance(key, tuple):
        domain, name = key
        return f"onnx.{name}@{domain}" if domain else f"onnx.{name}"
    if table == "lower_quantized":
        return QUANTIZED
    return key if table in ("regions", "carried") else f"tfl.{key}"


def import_for(key: str) -> None:
    """Import the core modules with rules for the op `key`."""
    by_op, others = _table()
    for name in (*by_op.get(key, ()), *others):
        importlib.import_module(f"{PACKAGE}.{name}")


def import_contrib(op: type[Op]) -> None:
    """Import the modules of the domain of an op of a file."""
    folder = CONTRIB.get(op.domain or op.name_in_file.partition(":")[0])
    if folder is not None:
        _import_folder(f"contrib.{folder}")


def import_all() -> None:
    """Import all modules of all domains."""
    for name, _ in core_modules():
        importlib.import_module(f"{PACKAGE}.{name}")
    for folder in CONTRIB.values():
        _import_folder(f"contrib.{folder}")


def core_modules() -> Iterator[tuple[str, str]]:
    """The name in the package of each core module, and the path of its source, sorted."""
    (root,) = importlib.import_module(PACKAGE).__path__
    for folder in pkgutil.iter_modules([root]):
        if folder.ispkg and folder.name != "contrib":
            at = os.path.join(root, folder.name)
            for module in pkgutil.iter_modules([at]):
                yield f"{folder.name}.{module.name}", os.path.join(at, f"{module.name}.py")


def checksum(source: bytes) -> str:
    """The checksum of a module's source, whatever its line ends are."""
    return format(zlib.crc32(source.replace(b"\r\n", b"\n")), "08x")


def read(path: str) -> bytes | None:
    """The contents of a file of the package, which may be in an archive; None if it is missing."""
    loader: Any = importlib.import_module(PACKAGE).__loader__
    try:
        return bytes(loader.get_data(path))
    except OSError:
        return None


def _import_folder(folder: str) -> None:
    package = importlib.import_module(f"{PACKAGE}.{folder}")
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)


@functools.cache
def _table() -> tuple[dict[str, list[str]], Sequence[str]]:
    """The modules by op, and those that the table does not describe as they are."""
    (root,) = importlib.import_module(PACKAGE).__path__
    lines = [line.split() for line in (read(os.path.join(root, TABLE)) or b"").decode().splitlines()]
    known = {(name, code): ops for name, code, *ops in lines}
    by_op: dict[str, list[str]] = {}
    others: list[str] = []
    for name, path in core_modules():
        source = read(path)
        ops = None if source is None else known.get((name, checksum(source)))
        if ops is None:
            others.append(name)
        for op in ops or ():
            by_op.setdefault(op, []).append(name)
    return by_op, others
