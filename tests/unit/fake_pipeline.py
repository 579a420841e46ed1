"""A pipeline that writes what a test says: the public functions are tested without the converter."""

from __future__ import annotations

import dataclasses
import os
import sys
import types
from collections.abc import Callable
from typing import BinaryIO

import pytest

import onnxtfl
from onnxtfl import pipeline as real


class FakePipeline(types.ModuleType):
    """Stands in for `onnxtfl.pipeline`: ``data`` is what it writes, ``sidecar`` goes beside it, ``fail`` is called."""

    Options = real.Options
    Report = real.Report
    lifted_where_possible = staticmethod(real.lifted_where_possible)

    def __init__(self, data: bytes) -> None:
        super().__init__("onnxtfl.pipeline")
        self.data = data
        self.sidecar: bytes | None = None
        self.fail: Callable[[], None] = lambda: None
        self.options: real.Options | None = None
        self.report = real.Report([("x", "float32", (2, 3))], [("y", "float32", (2, 3))], {"Mul": 1}, {"MUL": 1})

    def onnx_to_tflite(self, model: object, out: BinaryIO, options: real.Options) -> real.Report:
        """Write ``data``, half of it before failing."""
        self.options = options
        if options.on_progress is not None:
            options.on_progress("read")
        out.write(self.data[: len(self.data) // 2])
        out.flush()
        self.fail()
        out.write(self.data[len(self.data) // 2 :])
        if self.sidecar is not None:
            with open(f"{out.name}.data", "wb") as file:
                file.write(self.sidecar)
        size = os.path.getsize(model) if isinstance(model, str | os.PathLike) else None
        return dataclasses.replace(self.report, source_size=size)

    tflite_to_onnx = onnx_to_tflite


def install(monkeypatch: pytest.MonkeyPatch, data: bytes) -> FakePipeline:
    """Put a fake in the place of the pipeline."""
    fake = FakePipeline(data)
    monkeypatch.setitem(sys.modules, "onnxtfl.pipeline", fake)
    monkeypatch.setattr(onnxtfl, "pipeline", fake, raising=False)
    return fake
