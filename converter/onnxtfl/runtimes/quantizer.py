"""Post-training quantization of a .tflite file by litert-quantizer, in a child process: the library may crash."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from onnxtfl.errors import RuntimeUnavailableError, UnsupportedError, one_line
from onnxtfl.runtimes import quantizer_script as script
from onnxtfl.temporary import places

Mode = Literal["dynamic", "int8", "int16x8", "float16"]
DISTRIBUTION = "litert-quantizer"
Divisor = dict[Literal["checked", "others"], list[str]]
"""The names of a divisor and of the tensors from which it is computed: those that may be 0, and others."""
CALIBRATED = ("int8", "int16x8")
"""The modes that need samples of the inputs."""


@dataclass(frozen=True)
class Sensitive:
    """Tensors around which ops stay float.

    `divisors`: divisors with elements that quantization would make 0. `exponents`: groups of operands of exponential
    functions, if one of the group has large steps. `unsupported`: results of ops that cannot be quantized.
    """

    divisors: list[Divisor] = field(default_factory=list)
    exponents: list[list[str]] = field(default_factory=list)
    unsupported: list[str] = field(default_factory=list)


def version() -> str:
    """Return the installed version of litert-quantizer. Raises `RuntimeUnavailableError` if it is not installed."""
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        hint = "pip install 'onnxtfl[quantize]'"
        raise RuntimeUnavailableError(f"{DISTRIBUTION}, which quantizes models, is not installed", hint=hint) from None


def quantize(
    model: Path,
    mode: Mode,
    inputs: Sequence[str],
    samples: Iterable[Mapping[str, Any]] = (),
    *,
    float_io: bool = True,
    float_ops: Sequence[str] = (),
    sensitive: Sensitive | None = None,
) -> None:
    """Quantize the .tflite file `model` in place.

    `inputs`: the names of its inputs. `samples`: arrays by input name, for the modes of `CALIBRATED`. `float_io`: keep
    the type of inputs and outputs. `float_ops`: ops that are not quantized. `sensitive`: see `Sensitive`. Raises
    `RuntimeUnavailableError`, and `UnsupportedError` if the library fails.
    """
    known, out = version(), model.with_name(model.name + ".quantized")
    paths = []
    try:
        for k, sample in enumerate(samples):
            paths.append(model.with_name(f"{model.name}.sample{k}.npz"))
            np.savez(paths[-1], **{f"i{i}": sample[name] for i, name in enumerate(inputs)})
        request = {"model": os.fspath(model), "out": os.fspath(out), "mode": mode, "float_io": float_io}
        request |= {"float_ops": list(float_ops), "places": places(), **asdict(sensitive or Sensitive())}
        _run(request | {"inputs": list(inputs), "samples": list(map(os.fspath, paths))}, known)
        os.replace(out, model)
    finally:
        for path in (*paths, out):
            path.unlink(missing_ok=True)


def _run(request: Mapping[str, Any], known: str) -> None:
    name = f"{DISTRIBUTION} {known}"
    command, text = [sys.executable, script.__file__], json.dumps(request)
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    error = f"crashed (exit code {done.returncode})"
    if done.returncode == 0 and done.stdout:
        error = json.loads(done.stdout).get("error", "")
    if error:
        raise UnsupportedError(f"{name} cannot quantize this model: {one_line(error, 500)}", code="E-QUANT-003")
