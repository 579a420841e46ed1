"""The kinds of values that options and arguments have: how those of Python are checked, how those of the command line
are read. Nothing here imports the package or a command-line library.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from onnxtfl.dataclass import dataclass

LARGEST_SIZE = 2**31 - 1
Size = int | str | None
"""A size of an input: an int; a name, shared by equal dynamic sizes; None or -1 for a dynamic size."""
LAYOUTS = ("source", "channels-first", "channels-last")


class RefusedError(ValueError):
    """A value that is not possible: the message, what to do, and the error code (:mod:`onnxtfl.errors`)."""

    def __init__(self, message: str, hint: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message, self.hint, self.code = message, hint, code


def refuse(name: str, value: object, use: str) -> RefusedError:
    """Return the error for an invalid argument; ``use``: what is valid."""
    shown = value if isinstance(value, str | int | float) or value is None else type(value).__name__
    return RefusedError(f"`{name}` cannot be {shown!r}", f"use {use}")


class Kind:
    """Any value. `metavar`: how it is written in the help. `repeatable`: whether the command line collects several."""

    metavar: ClassVar[str] = "TEXT"
    repeatable: ClassVar[bool] = False

    def check(self, name: str, value: Any) -> Any:
        """Return the value of the argument `name` as the package uses it, or raise `RefusedError`."""
        return value

    def read(self, text: str) -> Any:
        """Parse a text of the command line. ValueError with a message for an invalid text."""
        return text

    def collect(self, value: Any) -> Any:
        """Return the Python argument for the parsed values of an option (several if it is repeatable)."""
        return value


class Choice(Kind):
    """One of several words, or None where that is the first value."""

    def __init__(self, *values: object) -> None:
        self.values = values

    @property
    def words(self) -> list[str]:
        """The values that the command line has."""
        return [value for value in self.values if isinstance(value, str)]

    def check(self, name: str, value: Any) -> Any:
        if not any(value is other or (isinstance(value, str) and value == other) for other in self.values):
            raise refuse(name, value, f"one of {', '.join(map(repr, self.values))}")
        return value


class CheckMode(Choice):
    """Whether and how a result is checked; on the command line on, off or neither."""

    def __init__(self) -> None:
        super().__init__(True, False, "auto", "require")

    def collect(self, value: Any) -> Any:
        return {None: "auto", True: "require", False: False}[value]


@dataclass(frozen=True)
class Number(Kind):
    """A finite number of at least `least`, or above `above`."""

    above: float | None = None
    least: float | None = None

    def check(self, name: str, value: Any) -> float:
        valid = _is_real(value) and math.isfinite(value)
        limit = self.least if self.above is None else self.above
        assert limit is not None
        if not valid or value < limit or value == self.above:
            above = f"of at least {limit:g}" if self.above is None else f"above {limit:g}"
            raise refuse(name, value, f"a number {above}")
        return float(value)


class Tolerances(Kind):
    """A tolerance of all outputs, or several: "NAME:1e-4" is that of an output, "1e-4abs" an absolute one.

    In Python a number, a text, or a dictionary from names of outputs to these ("" for all others).
    """

    metavar, repeatable = "[NAME:]NUMBER[abs]", True
    _ABSOLUTE = "abs"

    def __init__(self, default: float) -> None:
        self.default = default

    def check(self, name: str, value: Any) -> dict[str, tuple[float, bool]]:
        """The tolerance and whether it is absolute, by name of an output; "" for all others."""
        given = value if isinstance(value, Mapping) else {"": value}
        found = {"": (self.default, False)}
        return found | {str(key): self._one(name, one) for key, one in given.items()}

    def _one(self, name: str, value: Any) -> tuple[float, bool]:
        if isinstance(value, tuple) and len(value) == 2:  # as this method returns it
            return value[0], value[1]
        is_absolute = isinstance(value, str) and value.endswith(self._ABSOLUTE)
        try:
            real = float(value.removesuffix(self._ABSOLUTE)) if isinstance(value, str) else value
        except ValueError:
            real = math.nan
        number = float(real) if _is_real(real) else math.nan
        if not math.isfinite(number) or number < 0:
            raise refuse(name, value, "a number of at least 0")
        return number, is_absolute

    def read(self, text: str) -> tuple[str, str]:
        key, _, number = text.rpartition(":")
        try:
            self._one("", number)
        except RefusedError:
            raise ValueError(f"{text!r} is not {self.metavar}, like 1e-3 or scores:1e-4") from None
        return key, number

    def collect(self, value: Iterable[tuple[str, str]]) -> dict[str, str]:
        return dict(value)


@dataclass(frozen=True)
class Integer(Kind):
    """An integer from `least` to `most`; None if that is `optional`."""

    least: int
    most: int | None = None
    optional: bool = False

    def check(self, name: str, value: Any) -> int | None:
        if value is None and self.optional:
            return None
        if not _is_integer(value) or value < self.least or (self.most is not None and value > self.most):
            limits = f"of at least {self.least}" if self.most is None else f"from {self.least} to {self.most}"
            raise refuse(name, value, f"an integer {limits}")
        return int(value)


@dataclass(frozen=True)
class Channels(Kind):
    """A finite number for each channel of an image, or one for all; on the command line 0.5,0.5,0.5 or 1/255.

    `is_positive`: whether they have to be above 0. None where it is not given.
    """

    is_positive: bool = False
    metavar: ClassVar[str] = "NUMBER[,...]"

    def check(self, name: str, value: Any) -> tuple[float, ...] | None:
        if value is None:
            return None
        found = [value] if _is_real(value) else list(value) if isinstance(value, Iterable) else []
        valid = bool(found) and all(_is_real(one) and math.isfinite(one) for one in found)
        if not valid or (self.is_positive and min(found) <= 0):
            raise refuse(name, value, f"a number{' above 0' if self.is_positive else ''}, or one for each channel")
        return tuple(map(float, found))

    def read(self, text: str) -> tuple[float, ...]:
        try:
            return tuple(_quotient(word) for word in text.split(","))
        except (ValueError, ZeroDivisionError):
            raise ValueError(f"{text!r} is not {self.metavar}, like 0.485,0.456,0.406 or 1/255") from None


class Flag(Kind):
    """True or False."""

    def check(self, name: str, value: Any) -> bool:
        if not isinstance(value, bool):
            raise refuse(name, value, "True or False")
        return value


class Text(Kind):
    """A string, or None."""

    def check(self, name: str, value: Any) -> str | None:
        if value is not None and not isinstance(value, str):
            raise refuse(name, value, "a string")
        return value


class Version(Kind):
    """A version of the TFLite runtime; a number is read as one."""

    def check(self, name: str, value: Any) -> str:
        text = str(value) if _is_real(value) else value
        if not isinstance(text, str) or not re.fullmatch(r"(litert-)?\d+(\.\d+)*", text):
            raise refuse(name, value, "a version like 2.14")
        return text


class File(Kind):
    """The path of a file, or None."""

    use: ClassVar[str] = "the path of a file"

    def check(self, name: str, value: Any) -> Any:
        if value is not None and (not isinstance(value, str | os.PathLike) or not os.fspath(value)):
            raise refuse(name, value, self.use)
        return value


class Place(File):
    """The path of a file or a folder, or None."""


class Folder(File):
    """The path of a folder."""

    use = "the path of a folder"

    def check(self, name: str, value: Any) -> Any:
        if value is None:
            raise refuse(name, value, self.use)
        return super().check(name, value)


class Paths(Kind):
    """Paths of models: a list, or a single path."""

    def check(self, name: str, value: Any) -> list[Any]:
        listed = [value] if isinstance(value, str | os.PathLike) else value
        found = list(listed) if isinstance(listed, Iterable) and not isinstance(listed, bytes | Mapping) else [None]
        if not all(isinstance(one, str | os.PathLike) for one in found):
            raise refuse(name, value, "a list of paths")
        return found


class Callback(Kind):
    """A function, or None."""

    def check(self, name: str, value: Any) -> Any:
        if value is not None and not callable(value):
            raise refuse(name, value, "a function")
        return value


class Names(Kind):
    """A list of names, or None; a string is refused, since it would be a list of letters."""

    metavar = "NAME..."
    repeatable = True

    def check(self, name: str, value: Any) -> list[str] | None:
        if value is None:
            return None
        is_list = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
        found = list(value) if is_list else []
        if not is_list or not all(isinstance(one, str) and one for one in found):
            raise refuse(name, value, f"a list of tensor names{f', [{value!r}]' if isinstance(value, str) else ''}")
        twice = next((one for k, one in enumerate(found) if one in found[:k]), None)
        if twice is not None:
            raise RefusedError(f"`{name}` names {twice!r} twice")
        return found or None

    def collect(self, value: Sequence[str]) -> list[str] | None:
        """The names in ``a b`` or ``a,b``; a comma in a name is written ``\\,``."""
        found = [name for word in value for name in re.split(r"(?<!\\),", word)]
        return [name.replace("\\,", ",").strip() for name in found if name] or None


class Words(Names):
    """A list of some of several words; None for all of them."""

    def __init__(self, *words: str) -> None:
        self.words = words

    def check(self, name: str, value: Any) -> list[str] | None:
        found = super().check(name, [value] if isinstance(value, str) else value)
        for word in found or ():
            if word not in self.words:
                raise refuse(name, word, f"some of {', '.join(self.words)}")
        return found


class Metrics(Words):
    """A list of names of metrics; in Python also functions of two arrays."""

    def check(self, name: str, value: Any) -> Any:
        given = [value] if isinstance(value, str) or callable(value) else value
        if not isinstance(given, Sequence):
            raise refuse(name, value, f"some of {', '.join(self.words)}, or functions of two arrays")
        super().check(name, [one for one in given if not callable(one)] or None)
        return tuple(given)

    def collect(self, value: Sequence[str]) -> list[str]:
        return super().collect(value) or []


class Modules(Names):
    """A list of the names of modules."""

    metavar = "MODULE"

    def check(self, name: str, value: Any) -> list[str]:
        return super().check(name, value) or []

    def collect(self, value: Sequence[str]) -> list[str]:
        return list(value)


class Data(Kind):
    """Arrays for a check: a path, arrays by name, or several of these."""

    metavar = "DATA"

    def check(self, name: str, value: Any) -> Any:
        if value is None or (isinstance(value, str | os.PathLike) and os.fspath(value)):
            return value
        use = "arrays by input name, a list of such, or the path of an .npz file or a directory"
        if isinstance(value, str | bytes | os.PathLike) or not isinstance(value, Iterable):
            raise refuse(name, value, use)
        if isinstance(value, Mapping):
            return _mapping(name, value, use)
        sets = list(value)
        if not sets:
            raise refuse(name, value, use)
        return [_mapping(name, {} if one is None else one, use) for one in sets]


class Pairs(Kind):
    """A dictionary from names to values; on the command line ``NAME:VALUE``, where the name may contain colons."""

    repeatable = True
    separator: ClassVar[str] = ":"
    example: ClassVar[str] = ""
    use: ClassVar[str] = "a dictionary"

    def check(self, name: str, value: Any) -> Any:
        return {key: self.check_value(name, key, one) for key, one in _mapping(name, value, self.use).items()}

    def check_value(self, name: str, key: str, value: Any) -> Any:
        """Return the value of `key` as the package uses it; `RefusedError` for one that is not possible."""
        return value

    def read(self, text: str) -> tuple[str, Any]:
        key, separator, rest = text.rpartition(self.separator)
        try:
            if not separator or not key:
                raise ValueError
            return key, self.read_value(rest)
        except ValueError:
            raise ValueError(f"{text!r} is not {self.metavar}, like {self.example}") from None

    def read_value(self, text: str) -> Any:
        """Parse a text. ValueError for an invalid text."""
        return text

    def collect(self, value: Iterable[tuple[str, Any]]) -> Any:
        return dict(value)


class Shapes(Pairs):
    """Shapes by input name; on the command line ``?`` is a dynamic size, a word a named dynamic size."""

    metavar, example = "NAME:SIZES", "x:1,3,224,224 or x:?,3,224,224"
    use = "a dictionary of input name and sizes"

    def check_value(self, name: str, key: str, value: Any) -> tuple[int | str, ...]:
        """Return the sizes; -1: a dynamic size, a name: a named dynamic size."""
        hint = f"use sizes from 0 to {LARGEST_SIZE}, a name, or `?|None` for a dynamic size"
        if isinstance(value, str | bytes) or not isinstance(value, Iterable):
            raise RefusedError(f"invalid shape {value!r} for input {key!r}", hint, "E-USE-004")
        sizes = [-1 if size is None else size for size in value]
        if not all(_is_size(size) for size in sizes):
            shown = ",".join("?" if size is None else str(size) for size in sizes)
            raise RefusedError(f"invalid shape {shown} for input {key!r}", hint, "E-USE-004")
        return tuple(size if isinstance(size, str) else int(size) for size in sizes)

    def read_value(self, text: str) -> tuple[Size, ...]:
        words = [word.strip() for word in text.split(",")] if text else []
        if not all(re.fullmatch(r"\?|-1|0*[1-9]\d*|[A-Za-z_]\w*", word) for word in words):
            raise ValueError
        return tuple(None if word in ("?", "-1") else int(word) if word.isdecimal() else word for word in words)


class Signatures(Pairs):
    """Shapes by input name of each entry point by key; on the command line sizes are separated by x."""

    metavar, example = "KEY:INPUT=SIZES[,...]", "prefill:input_ids=1x128 or decode:input_ids=1x1,mask=1x?"
    use = "a dictionary of key and shapes by input name"
    _SHAPES = Shapes()

    def check_value(self, name: str, key: str, value: Any) -> dict[str, tuple[int | str, ...]]:
        if not key:
            raise RefusedError("a signature without a key", f"write {self.metavar}", "E-USE-005")
        found: dict[str, tuple[int | str, ...]] = self._SHAPES.check(name, value)
        return found

    def read(self, text: str) -> tuple[str, Any]:
        key, _, rest = text.partition(":")
        pairs = [pair.partition("=")[::2] for pair in rest.split(",") if pair]
        try:
            return key, {name: self._SHAPES.read_value(sizes.replace("x", ",")) for name, sizes in pairs}
        except ValueError:
            raise ValueError(f"{text!r} is not {self.metavar}, like {self.example}") from None


class Sizes(Pairs):
    """The sizes of dimensions by name."""

    metavar, example, separator = "NAME=SIZE", "batch=1", "="
    use = "a dictionary of the name of a dimension and its size"

    def check_value(self, name: str, key: str, value: Any) -> int:
        if not _is_integer(value) or not 0 <= value <= LARGEST_SIZE:
            raise refuse(name, f"{key}={value}", f"sizes from 0 to {LARGEST_SIZE}")
        return int(value)

    def read_value(self, text: str) -> int:
        if not (text.isascii() and text.isdecimal()):
            raise ValueError
        return int(text)


class NewNames(Pairs):
    """New names by old name."""

    metavar, example = "OLD:NEW", "x:image"
    use = "a dictionary of old and new name"

    def check_value(self, name: str, key: str, value: Any) -> str:
        if not isinstance(value, str) or not value:
            raise refuse(name, f"{key}: {value}", "a new name for each old one")
        return value

    def read_value(self, text: str) -> str:
        if not text:
            raise ValueError
        return text


class Ranges(Pairs):
    """The lowest and highest values by input name."""

    metavar, example = "NAME:LOW,HIGH", "x:-1,1"
    use = "a dictionary of input name, and lowest and highest value"

    def check_value(self, name: str, key: str, value: Any) -> tuple[float, float]:
        numbers = [*value] if isinstance(value, Sequence) else []
        if len(numbers) != 2 or not all(map(_is_real, numbers)) or not -math.inf < numbers[0] <= numbers[1] < math.inf:
            raise refuse(name, f"{key}: {value}", "a lowest and a highest value for each input, like (-1, 1)")
        return float(numbers[0]), float(numbers[1])

    def read_value(self, text: str) -> tuple[float, float]:
        low, high = map(float, text.split(","))
        if not low <= high:
            raise ValueError
        return low, high


class Elements(Pairs):
    """The number of elements by input name; None ("none") for an optional without a value."""

    metavar, example = "NAME:COUNT", "x:3 or x:none"
    use = "a dictionary of input name and number of elements"

    def check_value(self, name: str, key: str, value: Any) -> int | None:
        if value is not None and not _is_integer(value):
            raise refuse(name, value, "numbers, None for an optional input without a value")
        return value if value is None else int(value)

    def read_value(self, text: str) -> int | None:
        if text != "none" and not (text.isascii() and text.isdecimal()):
            raise ValueError
        return None if text == "none" else int(text)


class Layouts(Pairs):
    """A layout of all inputs and outputs, or a dictionary from names to layouts, "*" for those that are not named."""

    metavar = "[NAME:]LAYOUT"
    use = "a layout, or a dictionary of input or output name and layout"

    def check(self, name: str, value: Any) -> Any:
        return super().check(name, value) if isinstance(value, Mapping) else self.check_value(name, "", value)

    def check_value(self, name: str, key: str, value: Any) -> str:
        return str(Choice(*LAYOUTS).check(name, value))

    def read(self, text: str) -> tuple[str, str]:
        name, colon, layout = text.rpartition(":")
        if layout not in LAYOUTS or (colon and not name):
            raise ValueError(f"{text!r} is not one of {', '.join(LAYOUTS)}, nor NAME: and one of these")
        return name or "*", layout

    def collect(self, value: Iterable[tuple[str, str]]) -> str | dict[str, str]:
        layouts = dict(value)
        return layouts if layouts.keys() - {"*"} else layouts.get("*", "source")


class Entries(Pairs):
    """Texts by key; the text may contain equals signs."""

    metavar, example, separator = "KEY=VALUE", "author=me", "="
    use = "a dictionary of names and texts"

    def check(self, name: str, value: Any) -> dict[str, str] | None:
        return super().check(name, value) or None

    def read(self, text: str) -> tuple[str, str]:
        key, equals, rest = text.partition("=")
        if not equals or not key:
            raise ValueError(f"{text!r} is not {self.metavar}, like {self.example}")
        return key, rest


class EntriesOrFile(Entries):
    """Texts by key; on the command line also the path of a TOML file, which has the key ""."""

    metavar = "KEY=VALUE|FILE"

    def check(self, name: str, value: Any) -> dict[str, str] | None:
        found = super().check(name, value)
        if found is not None and "" in found:
            raise RefusedError(f"`{name}`: {found['']!r} is not KEY=VALUE", "files of metadata are for --llm")
        return found

    def read(self, text: str) -> tuple[str, str]:
        return ("", text) if "=" not in text and text.lower().endswith(".toml") else super().read(text)


class FieldsOrFile(Kind):
    """Values of any type by key, or the path of a TOML file with them."""

    def check(self, name: str, value: Any) -> Any:
        if isinstance(value, str | os.PathLike):
            return File().check(name, value)
        return _mapping(name, value, "the path of a TOML file, or a dictionary of its fields") or None

    def collect(self, value: Any) -> Any:
        """The path of the file, if one was given, else the texts by key."""
        found = dict(value or ())
        return found.get("", found or None)


class Counts(Kind):
    """Integers of at least 1, or None; on the command line 32,128."""

    metavar = "N,..."

    def check(self, name: str, value: Any) -> list[int] | None:
        if value is None:
            return None
        is_list = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
        listed: list[Any] = list(value) if is_list else []
        if not listed or not all(_is_integer(one) and one > 0 for one in listed):
            raise refuse(name, value, "a list of integers of at least 1")
        return [int(one) for one in listed]

    def read(self, text: str) -> list[int]:
        parts = [part.strip() for part in text.split(",")]
        if not all(part.isascii() and part.isdecimal() and int(part) for part in parts):
            raise ValueError(f"{text!r} is not a list of numbers, like 32,128")
        return [int(part) for part in parts]


def _mapping(name: str, value: Any, use: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise refuse(name, value, use)
    return dict(value)


def _is_size(size: Any) -> bool:
    if isinstance(size, str):
        return re.fullmatch(r"[A-Za-z_]\w*", size) is not None
    return _is_integer(size) and -1 <= size <= LARGEST_SIZE


def _quotient(text: str) -> float:
    """The number that "0.5" or "1/255" is."""
    dividend, slash, divisor = text.partition("/")
    return float(dividend) / (float(divisor) if slash else 1.0)


def _is_real(value: Any) -> bool:
    """Whether the value is a number of Python or NumPy."""
    return not isinstance(value, bool | str) and hasattr(value, "__float__") and not hasattr(value, "__len__")


def _is_integer(value: Any) -> bool:
    return not isinstance(value, bool) and hasattr(value, "__index__") and not hasattr(value, "__len__")
