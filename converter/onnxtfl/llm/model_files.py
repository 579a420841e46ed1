"""The files beside an ONNX decoder that say what it is: its configuration and its tokenizer."""

from __future__ import annotations

import json
import math
import os
import reprlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from onnxtfl.errors import UsageError

GENAI, CONFIG, GENERATION = "genai_config.json", "config.json", "generation_config.json"
TOKENIZER_CONFIG, TOKENIZER = "tokenizer_config.json", "tokenizer.json"
_MODELS = "onnx"
"""Some exporters write models to a folder of this name, inside of that with the other files."""


class ModelFiles:
    """The folders in which the files of a model are: its own, and the one above where its own is called "onnx"; none
    for a model in memory.
    """

    def __init__(self, model: object) -> None:
        path = Path(os.path.abspath(model)) if isinstance(model, str | os.PathLike) else None
        self.folders = [] if path is None else [path.parent]
        if path is not None and path.parent.name == _MODELS:
            self.folders.append(path.parent.parent)
        self._tables = dict[str, dict[str, Any]]()

    def find(self, names: Iterable[str]) -> Path | None:
        """The first of the named files that is there."""
        paths = (folder / name for folder in self.folders for name in names)
        return next((path for path in paths if path.is_file()), None)

    def table(self, name: str, *inner: str) -> dict[str, Any]:
        """The object in a JSON file, or that of the key `inner` in it; empty if there is none.

        Raises UsageError for a malformed file.
        """
        if name not in self._tables:
            self._tables[name] = self._read(name)
        found: Any = self._tables[name]
        for key in inner:
            found = found.get(key) if isinstance(found, dict) else None
        return found if isinstance(found, dict) else {}

    def number(self, default: float, *place: str) -> float:
        """The number at a place (the name of a file, and keys); `default` if there is none. Raises UsageError for other
        values.
        """
        *table, key = place
        found = self.table(*table).get(key)
        if found is None:
            return default
        if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
            raise UsageError(
                f"{place[0]}: {key} is {reprlib.repr(found)}, not a number",
                hint="correct it, or export it again",
            )
        return found

    def text(self, name: str) -> str:
        """The contents of a text file; empty if there is none. Raises UsageError if it is no text."""
        path = self.find([name])
        try:
            return "" if path is None else path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise UsageError(f"{path}: cannot be read as text: {error}", hint="download or export it again") from error

    def _read(self, name: str) -> dict[str, Any]:
        path = self.find([name])
        if path is None:
            return {}
        try:
            found = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            raise UsageError(f"{path}: cannot be read as JSON: {error}", hint="download or export it again") from error
        return found if isinstance(found, dict) else {}

    def values(self, keys: Sequence[str], *names: str) -> Iterator[Any]:
        """The values of the keys in the JSON files of these names, also in their objects for the text model.

        Those of the first file come first; none of None.
        """
        for name in names:
            for one in (self.table(name), self.table(name, "model"), self.table(name, "text_config")):
                yield from (one[key] for key in keys if one.get(key) is not None)

    def described(self) -> str:
        """Where files were looked for, for messages."""
        return " or ".join(map(str, self.folders)) or "no folder, since the model is in memory"
