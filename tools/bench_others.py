"""Other converters to TFLite that tools/bench.py runs side by side, where they are installed."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Other:
    """A converter. `module`: its Python package. `words`: the command line for a source and the folder of the result.

    `back`: whether it converts our result to ONNX.
    """

    name: str
    module: str
    words: Callable[[Path, Path], Sequence[str]]
    back: bool = False

    def command(self, python: Path, source: Path, folder: Path) -> list[str]:
        """The command that converts `source` to a file in `folder`."""
        return [str(python), *self.words(source, folder)]

    def result(self, folder: Path) -> Path | None:
        """The .tflite in float32 that it wrote; None if there is none."""
        found = sorted(folder.rglob("*.tflite"), key=lambda path: ("float32" not in path.name, path.name))
        return found[0] if found else None


_OF_TORCHVISION = """
import sys, torch, torchvision, {0}
sizes = {{"mobilenet_v2": torchvision.models.mobilenet_v2, "resnet50": torchvision.models.resnet50}}
if sys.argv[1] not in sizes:
    sys.exit("torchvision has no such network")
network = sizes[sys.argv[1]](weights=None).eval()
{0}.convert(network, (torch.randn(1, 3, 224, 224),)).export(sys.argv[2])
"""
"""litert-torch converts networks of PyTorch: the same ones, with other weights."""


def _exported(module: str) -> Callable[[Path, Path], Sequence[str]]:
    code = _OF_TORCHVISION.format(module)
    return lambda source, folder: ["-c", code, source.stem, str(folder / "model.tflite")]


def _onnx2tf(source: Path, folder: Path) -> Sequence[str]:
    return ["-m", "onnx2tf", "-i", str(source), "-o", str(folder)]


def _eiq(source: Path, folder: Path) -> Sequence[str]:
    return ["-m", "onnx2tflite", str(source), "-o", str(folder / "model.tflite")]


def _tf2onnx(source: Path, folder: Path) -> Sequence[str]:
    return ["-m", "tf2onnx.convert", "--tflite", str(source), "--output", str(folder / "model.onnx")]


OTHERS = (
    Other("onnx2tf", "onnx2tf", _onnx2tf),
    Other("eiq-onnx2tflite", "onnx2tflite", _eiq),
    Other("litert-torch", "litert_torch", _exported("litert_torch")),
    Other("tf2onnx", "tf2onnx", _tf2onnx, back=True),
)


def installed(python: Path) -> list[Other]:
    """Those that the interpreter `python` can import."""
    find = "import importlib.util, sys; print(*[m for m in sys.argv[1:] if importlib.util.find_spec(m)])"
    modules = [other.module for other in OTHERS]
    found = subprocess.run(
        [str(python), "-c", find, *modules], capture_output=True, text=True, check=True
    ).stdout.split()
    return [other for other in OTHERS if other.module in found]
