"""The user's inputs: files of arrays, and their assignment to the inputs of the first model."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from onnxtfl.checking.pairing.interface import Pair, permutations, shape_text
from onnxtfl.checking.report import CheckReport, worst
from onnxtfl.errors import UsageError, suggestion
from onnxtfl.inputs.data_files import data_files, read_arrays
from onnxtfl.inputs.description import TensorInfo
from onnxtfl.inputs.generation import numpy_type
from onnxtfl.inputs.ranges import Range
from onnxtfl.inputs.samples import samples_of
from onnxtfl.ir.data import Array, PathLike
from onnxtfl.ir.permutations import inverse

Inputs = PathLike | Mapping[str, Any] | Sequence[Mapping[str, Any]] | None


@dataclass(frozen=True)
class Case:
    """One set of inputs for both models: ``given``, by name, or those in ``file``; the rest is generated.
    ``label``: in reports.
    """

    label: str = ""
    given: Mapping[str, Any] = field(default_factory=dict)
    file: Path | None = None

    def arrays(self) -> Mapping[str, Any]:
        """The arrays by name. Raises `UsageError` for a file that has none."""
        return self.given if self.file is None else read_arrays(self.file)


def read_cases(data: PathLike) -> list[Case]:
    """The sets of inputs in an .npz file, or in all .npz files of a directory, in the order of their names.

    Raises `UsageError` if there is none.
    """
    return [Case(f"inputs of {file.name}", file=file) for file in data_files(data)]


def random_cases(count: int, seed: int) -> list[Case]:
    """``count`` sets of generated inputs."""
    return [Case(f"random inputs {k + 1} of {count} (seed {seed + k})" if count > 1 else "") for k in range(count)]


def cases_of(inputs: Inputs, count: int, seed: int) -> list[Case]:
    """The sets of inputs of a check. ``inputs``: see `onnxtfl.check`; ``count``: how many are generated without."""
    if inputs is None:
        return random_cases(count, seed)
    if count > 1:
        raise UsageError("`random` (generated input sets) excludes `data` (given inputs)")
    if isinstance(inputs, str | os.PathLike):
        return read_cases(inputs)
    if isinstance(inputs, Mapping):
        return [Case(given=inputs)]
    return [Case(f"inputs {k + 1} of {len(inputs)}", given) for k, given in enumerate(inputs)]


def split_cases(cases: Iterable[Case], a: Sequence[TensorInfo], b: Sequence[TensorInfo]) -> list[Case]:
    """The sets of inputs, one for each sample if the arrays have an axis of samples (`samples_of`).

    ``a``, ``b``: the inputs of both models. Raises `UsageError` for files that cannot be read, and different numbers of
    samples.
    """
    return [part for case in cases for part in _samples(case, a, b)]


def _samples(case: Case, a: Sequence[TensorInfo], b: Sequence[TensorInfo]) -> list[Case]:
    arrays = case.arrays()
    ranks: dict[str, int | None] = {f"arr_{k}": _rank(info) for k, info in enumerate(a)}
    ranks |= {info.name: _rank(info) for info in (*b, *a)}
    found = samples_of(arrays, ranks)
    if len(found) == 1 and all(found[0][name] is array for name, array in arrays.items()):
        return [case]  # its file is read when it is needed
    of = f"{case.label}, " if case.label else ""
    return [Case(f"{of}sample {k + 1} of {len(found)}", sample) for k, sample in enumerate(found)]


def _rank(info: TensorInfo) -> int | None:
    return None if info.shape is None or info.kind != "tensor" else len(info.shape)


def unknown_names(names: Iterable[str], *sides: Sequence[TensorInfo]) -> None:
    """Raise `UsageError` for a name that is not an input."""
    known = list(dict.fromkeys(info.name for infos in sides for info in infos))
    for name in names:
        if name not in known:
            raise _unknown(name, known)


def _unknown(name: str, known: Sequence[str]) -> UsageError:
    hint = suggestion(name, known, "the inputs")
    return UsageError(f"the model has no input {name!r}", hint=hint, code="E-USE-003")


def asked_range(info: TensorInfo, low: float, high: float) -> Range:
    """Return values of an input from ``low`` to ``high``, also for integers.

    Raises `UsageError` if its type does not have these.
    """
    if (
        info.dtype != "string"
        and info.quantization is None
        and _is_beyond(np.array([low, high]), numpy_type(info.dtype))
    ):
        raise UsageError(
            f"input {info.name!r} is {info.dtype}, which does not have all values from {low:g} to {high:g}"
        )
    whole = info.quantization is None and info.dtype.startswith(("int", "uint", "bool"))
    return Range("range", low, math.floor(high) + 1 if whole else high)


def combined(reports: Sequence[CheckReport]) -> CheckReport:
    """One report of models that agree on several sets of inputs: of each output, the check with the largest error."""
    first = reports[0]
    outputs = tuple(worst(checks) for checks in zip(*(report.outputs for report in reports), strict=True))
    notes = tuple(dict.fromkeys(note for report in reports for note in report.notes))
    return replace(first, outputs=outputs, notes=notes, cases=len(reports))


def by_input(
    given: Mapping[str, Any], a: Sequence[TensorInfo], b: Sequence[TensorInfo], pairs: Sequence[Pair]
) -> dict[str, Array]:
    """The arrays by the names of ``a``'s inputs. ``given``: by these names, by ``b``'s (in ``b``'s axis order), or by
    ``arr_0``, ``arr_1``, ..., their positions.

    An array that fits only with channels first for channels last, or the reverse, is transposed. Raises `UsageError`
    for other names, and for arrays that do not fit.
    """
    names_a, names_b = [info.name for info in a], [info.name for info in b]
    found: dict[str, Array] = {}
    for name, value in given.items():
        array = np.asarray(value)
        if name in names_a:
            info = a[names_a.index(name)]
        elif name in names_b:
            pair = next(pair for pair in pairs if pair.b == names_b.index(name))
            info, way = a[pair.a], pair.permutations[0]
            array = array.transpose(inverse(way)) if len(way) == array.ndim else array
        else:
            info = a[_position(name, names_a)]
        found[info.name] = _fitting(array, info)
    return found


def _position(name: str, names: Sequence[str]) -> int:
    number = name.removeprefix("arr_")
    if number != name and number.isdecimal() and int(number) < len(names):
        return int(number)
    raise _unknown(name, names)


def _fitting(array: Array, info: TensorInfo) -> Array:
    """The array in the axis order and type of an input."""
    if info.dtype == "string" or info.kind != "tensor":
        return array
    ways = permutations(tuple(array.shape), info.shape, "auto")
    if not ways:
        shapes = f"{shape_text(info.shape)}, the array for it {shape_text(array.shape)}"
        stacked = shape_text(("N", *(info.shape or ())))
        hint = f"give an array of this shape, or {stacked} for N sets of inputs"
        raise UsageError(f"input {info.name!r} has the shape {shapes}", hint=hint, code="E-USE-004")
    wanted = numpy_type(info.dtype)
    if array.dtype.kind == "f" and wanted.kind in "iub" and not np.array_equal(array, np.trunc(array)):
        raise UsageError(f"input {info.name!r} is {info.dtype}, the array for it has fractions")
    if array.dtype.type is np.void and wanted.kind == "V" and array.dtype.itemsize == wanted.itemsize:
        array = array.view(wanted)  # types of ml_dtypes, as NumPy reads them from a file
    if array.dtype.kind != wanted.kind and (array.dtype.kind in "OSUcMm" or array.dtype.type is np.void):
        raise UsageError(f"input {info.name!r} is {info.dtype}, the array for it {array.dtype.name}")
    if _is_beyond(array, wanted):
        raise UsageError(f"input {info.name!r} is {info.dtype}, the array for it has values that do not fit")
    return array.transpose(ways[0]).astype(wanted, copy=False)


def _is_beyond(array: Array, wanted: np.dtype[Any]) -> bool:
    """Whether values are beyond the range of an integer or float type."""
    if not array.size or array.dtype == wanted or wanted.kind not in "iuf" or array.dtype.kind not in "biuf":
        return False
    finite = array[np.isfinite(array)]
    limits = np.finfo(wanted) if wanted.kind == "f" else np.iinfo(wanted)
    return bool(finite.size and (finite.min() < limits.min or finite.max() > limits.max))
