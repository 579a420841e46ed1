"""onnxtfl converts neural networks between ONNX and TFLite, both ways, and checks the result in both runtimes.

    conversion = onnxtfl.onnx_to_tflite("model.onnx", "model.tflite")
    conversion = onnxtfl.tflite_to_onnx("model.tflite", "model.onnx")
    report = onnxtfl.check("model.onnx", "model.tflite")

Modules are loaded on first use: importing onnxtfl imports neither a runtime nor a solver nor NumPy, and nothing of the
standard library: the commands import it before they can handle Ctrl-C.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` would have to be imported; type checkers know the name
if TYPE_CHECKING:
    from typing import Any

    from onnxtfl.api import (
        build_model,
        check,
        coverage,
        explain,
        onnx_to_tflite,
        tflite_to_onnx,
        unsupported,
    )
    from onnxtfl.checking.report import CheckReport, InputUsed, OutputCheck
    from onnxtfl.conversion import Conversion, ConversionReport, IoType, StateReport, TensorReport
    from onnxtfl.errors import (
        CheckFailedError,
        InternalError,
        InvalidModelError,
        OnnxtflError,
        OutputError,
        RuntimeUnavailableError,
        UnsupportedError,
        UsageError,
    )
    from onnxtfl.evaluation import run
    from onnxtfl.inspection import Inspection, inspect
    from onnxtfl.ir.summary import FloatOp, QuantizationSummary
    from onnxtfl.many import Outcome, convert_many
    from onnxtfl.reporting.write import write_report
    from onnxtfl.rewriting.unsupported import UnsupportedOp
    from onnxtfl.signature_conversion import signatures, signatures_to_onnx

    __version__: str

__all__ = [
    "CheckFailedError",
    "CheckReport",
    "Conversion",
    "ConversionReport",
    "FloatOp",
    "InputUsed",
    "Inspection",
    "InternalError",
    "InvalidModelError",
    "IoType",
    "OnnxtflError",
    "Outcome",
    "OutputCheck",
    "OutputError",
    "QuantizationSummary",
    "RuntimeUnavailableError",
    "StateReport",
    "TensorReport",
    "UnsupportedError",
    "UnsupportedOp",
    "UsageError",
    "build_model",
    "check",
    "convert_many",
    "coverage",
    "explain",
    "inspect",
    "onnx_to_tflite",
    "run",
    "signatures",
    "signatures_to_onnx",
    "tflite_to_onnx",
    "unsupported",
    "write_report",
]

_MODULES = {
    **dict.fromkeys(("CheckReport", "InputUsed", "OutputCheck"), "onnxtfl.checking.report"),
    **dict.fromkeys(("Conversion", "ConversionReport", "IoType", "StateReport", "TensorReport"), "onnxtfl.conversion"),
    **dict.fromkeys(("FloatOp", "QuantizationSummary"), "onnxtfl.ir.summary"),
    **dict.fromkeys(
        ("build_model", "check", "coverage", "explain", "onnx_to_tflite", "tflite_to_onnx", "unsupported"),
        "onnxtfl.api",
    ),
    **dict.fromkeys(("signatures", "signatures_to_onnx"), "onnxtfl.signature_conversion"),
    **dict.fromkeys(("Outcome", "convert_many"), "onnxtfl.many"),
    "UnsupportedOp": "onnxtfl.rewriting.unsupported",
    "write_report": "onnxtfl.reporting.write",
    "run": "onnxtfl.evaluation",
    **dict.fromkeys(("Inspection", "inspect"), "onnxtfl.inspection"),
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("onnxtfl")
    if name not in (*__all__, "llm"):
        raise AttributeError(f"module 'onnxtfl' has no attribute {name!r}")
    from importlib import import_module

    if name == "llm":
        return import_module("onnxtfl.llm")
    value = getattr(import_module(_MODULES.get(name, "onnxtfl.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, "__version__"])
