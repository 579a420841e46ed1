"""The journal of a folder of results: their sources and options, and which are complete."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnxtfl.many.sources import Pair

NAME = ".onnxtfl.jsonl"


class Journal:
    """A line per created result; the last line of a result counts. Unreadable lines are ignored."""

    def __init__(self, folder: Path, to: str, options: Mapping[str, Any]) -> None:
        self.path = folder / NAME
        self._folder = folder
        self._key = _key(to, options)
        self._known = {entry["target"]: entry for entry in self._read()}

    def is_up_to_date(self, pair: Pair) -> bool:
        """Whether the result exists, is newer than its source, and was created with the same options."""
        entry = self._known.get(self._name(pair))
        with contextlib.suppress(OSError):
            newer = pair.target.stat().st_mtime_ns >= pair.source.stat().st_mtime_ns
            return entry is not None and entry.get("done") is True and newer and entry == self._entry(pair, True)
        return False

    def write(self, pair: Pair, *, done: bool) -> None:
        """Append the outcome of a model; lines are written at once, so that an interrupted run leaves complete ones."""
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            line = json.dumps(self._entry(pair, done), sort_keys=True) + "\n"
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line)

    def _entry(self, pair: Pair, done: bool) -> dict[str, Any]:
        state = pair.source.stat()
        source = {"source": os.path.abspath(pair.source), "bytes": state.st_size, "time": state.st_mtime_ns}
        return {"target": self._name(pair), "key": self._key, "done": done, **source}

    def _name(self, pair: Pair) -> str:
        return pair.target.relative_to(self._folder).as_posix()

    def _read(self) -> list[dict[str, Any]]:
        entries = []
        with contextlib.suppress(OSError, UnicodeDecodeError):
            for line in self.path.read_text(encoding="utf-8").splitlines():
                with contextlib.suppress(ValueError):
                    entry = json.loads(line)
                    if isinstance(entry, dict) and isinstance(entry.get("target"), str):
                        entries.append(entry)
        return entries


def _key(to: str, options: Mapping[str, Any]) -> str:
    """Return the key of an up-to-date result: options and package version."""
    from importlib.metadata import version

    shown = json.dumps([version("onnxtfl"), to, sorted(options.items())], default=_described)
    return hashlib.sha256(shown.encode()).hexdigest()[:16]


def _described(value: Any) -> str:
    """An option that is no plain value; the contents of arrays count."""
    if hasattr(value, "tobytes"):
        return hashlib.sha256(value.tobytes()).hexdigest()
    return os.fspath(value) if isinstance(value, os.PathLike) else repr(value)
