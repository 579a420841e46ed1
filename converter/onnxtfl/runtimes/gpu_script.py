"""LiteRT's GPU accelerator (ML Drift through WebGPU) in the child process: part of `worker`.

The whole model has to run on the GPU, in float32: there is no fallback to the CPU. The accelerator prints the
refused ops and the reasons to stderr only, which is captured.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxtfl.runtimes.captured import FailedRunError, stderr_lines

NO_DEVICE = ("No adapters found", "Failed to initialize WebGPU environment", "GPU accelerator could not be loaded")
"""Messages where no driver for the GPU is installed."""
REFUSED = "Some ops are not accelerated"
"""The message for a model that does not run on the GPU as a whole."""
_HEAD = "not supported by GPU delegate:"


class Model:
    """A model compiled for the GPU; its inputs and outputs are those of the first signature, in the file's order.

    Raises `FailedRunError` of kind "unavailable" without LiteRT or a Vulkan driver, "unsupported" for a model that the
    accelerator refuses as a whole or in part (the message names the ops), or "load".
    """

    def __init__(self, path: str) -> None:
        try:
            from ai_edge_litert.compiled_model import CompiledModel
            from ai_edge_litert.hardware_accelerator import HardwareAccelerator
            from ai_edge_litert.options import GpuOptions, Options
        except (ImportError, OSError) as error:
            raise FailedRunError(
                "unavailable", f"ai-edge-litert with CompiledModel cannot be imported: {error}"
            ) from error
        options = Options(hardware_accelerators=HardwareAccelerator.GPU, gpu_options=GpuOptions(enforce_f32=True))
        said: list[str] = []
        try:
            with stderr_lines(said):
                self._model = CompiledModel.from_file(path, options=options)
        except (RuntimeError, ValueError) as error:
            raise failure(str(error), said, "load") from error
        if not self._model.is_fully_accelerated():
            raise failure(REFUSED, said, "load")
        signature = next(iter(self._model.get_signature_list()))
        self._outputs = list(self._model.get_output_tensor_details(signature).values())

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """Return the outputs of one run."""
        said: list[str] = []
        try:
            with stderr_lines(said):
                sources, targets = self._model.create_input_buffers(0), self._model.create_output_buffers(0)
                for source, value in zip(sources, inputs, strict=True):
                    source.write(np.ascontiguousarray(value))
                self._model.run_by_index(0, sources, targets)
                return [_read(buffer, slot) for buffer, slot in zip(targets, self._outputs, strict=True)]
        except (RuntimeError, ValueError) as error:
            raise failure(str(error), said, "run") from error


def _read(buffer: Any, slot: Mapping[str, Any]) -> Any:
    shape = [int(size) for size in slot["shape"]]
    return buffer.read(int(np.prod(shape)), np.dtype(slot["dtype"])).reshape(shape)


def failure(message: str, said: Sequence[str], kind: str) -> FailedRunError:
    """Return the error for a message of LiteRT and the lines that it printed."""
    text = "\n".join(said)
    if any(known in text for known in NO_DEVICE):
        return FailedRunError("unavailable", "no Vulkan device (or driver) was found for LiteRT's GPU accelerator")
    refused = refusals(said)
    if refused or REFUSED in message:
        return FailedRunError(
            "unsupported", "the GPU accelerator refuses " + ("; ".join(refused) or "a part of the model")
        )
    return FailedRunError("unsupported" if re.search("Unsupported|not supported", message) else kind, message)


def refusals(said: Sequence[str]) -> list[str]:
    """Return the refused ops with the reasons: "BROADCAST_TO: Operation is not supported."."""
    start = next((i for i, line in enumerate(said) if line.endswith(_HEAD)), len(said))
    found = []
    for line in said[start + 1 :]:
        if not re.match(r"[A-Z][A-Z0-9_]*[ :(]", line):
            break
        found.append(line)
    return found
