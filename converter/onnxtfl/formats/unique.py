"""Unique names."""

from __future__ import annotations


class UniqueNames:
    """Makes names unique by appending numbers, starting with `first`."""

    def __init__(self, first: int = 1) -> None:
        self._first = first
        self._used: dict[str, int] = {}

    def fresh(self, base: str) -> str:
        """`base`, with a number appended if it is already used."""
        name = base
        while name in self._used:
            name = f"{base}_{self._used[base]}"
            self._used[base] += 1
        self._used[name] = self._first
        return name
