"""Assertions about models for tests; the fixtures of the pytest plugin are the same with paths beside the test.

def test_the_app_has_the_model_that_was_trained():
    assert_models_agree("trained.onnx", "app/assets/model.tflite", atol=1e-3)

def test_conversion():
    assert_converts("trained.onnx", golden="app/assets/model.tflite")
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx

    from onnxtfl import CheckReport, Conversion

PathLike = str | os.PathLike[str]
UPDATE = "ONNXTFL_UPDATE"
"""Environment variable: 1 if stored results have to be written again; `pytest --onnxtfl-update` sets it."""

__all__ = ["assert_converts", "assert_models_agree"]


def assert_models_agree(
    a: PathLike | bytes | onnx.ModelProto, b: PathLike | bytes | onnx.ModelProto, **options: Any
) -> CheckReport:
    """Run two models, each .onnx or .tflite, on the same inputs; AssertionError if their outputs differ.

    ``options``: keyword arguments of `onnxtfl.check`, such as ``data``, ``rtol``, ``atol``, ``input_shapes``. Models
    that cannot be compared are an AssertionError too; files that cannot be read raise `onnxtfl.InvalidModelError`.
    """
    __tracebackhide__ = True
    import onnxtfl

    report = onnxtfl.check(a, b, **options)
    if not report.ok:
        raise AssertionError(f"{_name(b)} compared with {_name(a)}: {report}\n{report.table()}")
    return report


def assert_converts(
    model: PathLike, golden: PathLike | None = None, *, update: bool | None = None, **options: Any
) -> Conversion:
    """Convert a model to the other format; AssertionError if that fails, or the result differs from ``golden``.

    The result has to agree with ``model`` on the same inputs. ``golden``: the path of a converted model that is kept
    with the tests, or in the app; it has to agree with the new result, so that a change of the model, of the options
    or of the converter that changes outputs is seen. With ``update`` (``pytest --onnxtfl-update``, or the environment
    variable ONNXTFL_UPDATE=1) the result is written to ``golden`` instead, once it agrees with ``model``. ``options``:
    keyword arguments of `onnxtfl.onnx_to_tflite` or `onnxtfl.tflite_to_onnx`.
    """
    __tracebackhide__ = True
    import onnxtfl

    writes = os.environ.get(UPDATE) == "1" if update is None else update
    convert = _converter(model)
    kept = golden if writes else None
    if kept is not None:
        Path(kept).parent.mkdir(parents=True, exist_ok=True)
    try:
        conversion = convert(model, kept, **{"check": "require", **options})
    except (onnxtfl.CheckFailedError, onnxtfl.UnsupportedError) as error:
        raise AssertionError(f"{_name(model)} does not convert: {error}") from None
    if golden is None or writes:
        return conversion
    if not Path(golden).is_file():
        raise AssertionError(f"{_name(golden)} does not exist; write it with pytest --onnxtfl-update")
    report = onnxtfl.check(golden, conversion.data or b"", **_of_the_check(options))
    if not report.ok:
        advice = "if the change is intended, rewrite it with pytest --onnxtfl-update"
        raise AssertionError(
            f"{_name(model)} does not convert to {_name(golden)} any more ({advice}): {report.table()}"
        )
    return conversion


def _converter(model: PathLike) -> Callable[..., Conversion]:
    """The conversion from the format of `model`."""
    import onnxtfl

    with open(model, "rb") as file:
        return onnxtfl.tflite_to_onnx if file.read(8)[4:] == b"TFL3" else onnxtfl.onnx_to_tflite


def _of_the_check(options: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords of `onnxtfl.check` for those of a conversion: both models have the sizes that the latter fixed."""
    import onnxtfl

    known = inspect.signature(onnxtfl.check).parameters.keys() - {"dims", "data"}
    own = {name.removeprefix("check_"): options[name] for name in ("check_dims", "check_data") if name in options}
    return {name: value for name, value in options.items() if name in known} | own


def _name(model: object) -> str:
    return os.fspath(model) if isinstance(model, str | os.PathLike) else "the model"
