"""The command `onnxtfl-pre-commit`, which hooks of pre-commit run on the model files that a commit changes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from onnxtfl.cli.streams import accept_any_text

_OTHER = {".onnx": ".tflite", ".tflite": ".onnx"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Check each model; with "--write" convert the .onnx files. Returns 1 if a model fails, 2 for unknown options.

    A pair NAME.onnx and NAME.tflite has to agree, a model without the other one has to convert.
    """
    accept_any_text()
    words = list(sys.argv[1:] if arguments is None else arguments)
    unknown = [word for word in words if word.startswith("-") and word != "--write"]
    if unknown:
        print(f"error: unknown option {unknown[0]}; the only one is --write", file=sys.stderr)
        return 2
    models = [Path(word) for word in words if word != "--write"]
    checks = [write(model) for model in models] if "--write" in words else [check(*pair) for pair in _pairs(models)]
    return int(not all(checks))


def check(model: Path, other: Path) -> bool:
    """Compare a model with the other one of its pair if it exists, else convert it; prints the reason of a failure."""
    import onnxtfl

    convert = onnxtfl.onnx_to_tflite if model.suffix.lower() == ".onnx" else onnxtfl.tflite_to_onnx
    try:
        if not other.is_file():
            convert(model)
            return True
        report = onnxtfl.check(model, other)
    except onnxtfl.OnnxtflError as error:
        print(f"{model}: {error}")
        return False
    if not report.ok:
        print(f"{other} and {model} do not agree: {report}")
    return report.ok


def write(model: Path) -> bool:
    """Convert `model` to a .tflite beside it, unless that file agrees with it; prints the reason of a failure."""
    import onnxtfl

    target = model.with_suffix(".tflite")
    try:
        if target.is_file() and onnxtfl.check(model, target).ok:
            return True
        onnxtfl.onnx_to_tflite(model, target)
        print(f"{target} was written; add it to the commit")
    except onnxtfl.OnnxtflError as error:
        print(f"{model}: {error}")
    return False


def _pairs(models: Iterable[Path]) -> list[tuple[Path, Path]]:
    """Each model with the other one of its pair, a pair once, the .onnx first."""
    found: dict[tuple[Path, Path], None] = {}
    for model in models:
        other = model.with_suffix(_OTHER.get(model.suffix.lower(), ".tflite"))
        pair = (other, model) if model.suffix.lower() == ".tflite" and other.is_file() else (model, other)
        found[pair] = None
    return list(found)
