"""Which quantized kernels are exact: how the probe measures it, and what the table says of it."""

from __future__ import annotations

import numpy as np
import pytest
from tools.probe.case import Case
from tools.probe.exactness import inexact
from tools.probe.judge import steps_off
from tools.probe.measure import Finding
from tools.probe.summary import KERNEL_SETS

from onnxtfl.ir.graph import Value
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.types import DType, TensorType
from onnxtfl.rewriting.registry import Form
from onnxtfl.targets.tflite import TfliteTarget

HALVES = Quantization("int8", (0.5,), (0,))


@pytest.mark.parametrize(
    ("stored", "steps"),
    [
        ([0, 1, 127], 0),
        ([0, 2, 127], 0),  # 0.75 is halfway between 1 and 2
        ([1, 2, 126], 1),
        ([0, 4, 127], 2),
    ],
)
def test_exact_is_the_nearest_step_or_either_of_two(stored: list[int], steps: int) -> None:
    real = np.array([0.1, 0.75, 1e9], np.float32)
    case = Case("ABS", {"T": "qint8"}, [], [], quantizations={("results", 0): HALVES}, real=[real])
    assert steps_off(case, [np.array(stored, np.int8)]) == steps


def _finding(storage: str, **steps: int) -> Finding:
    found = {name.replace("_", " "): n for name, n in steps.items()}
    return Finding({"T": storage, "I": "int32"}, {}, 1, "equal", dict.fromkeys(KERNEL_SETS, "correct"), found)


def test_rows_name_the_kernel_sets_where_they_differ() -> None:
    all_sets = {s.replace(" ", "_"): 1 for s in KERNEL_SETS}
    own = {"litert_xnnpack": 4, "litert_builtin": 4, "litert_reference": 5}
    text = inexact([_finding("qint8", **all_sets), _finding("qint16", **own), _finding("quint8")])
    assert text.splitlines() == [
        "rows = [",
        '  { T = "qint8", steps = 1 },',
        '  { T = "qint16", kernels = "litert", steps = 5 },',
        "]",
    ]


def test_exact_forms_have_no_rows() -> None:
    assert inexact([_finding("qint8")]) == ""


def _steps(op: str, storage: str, runtime: str = "2.14") -> int:
    x, y = (Value(TensorType(DType.FLOAT32, (2, 3), Quantization(storage, (0.5,), (0,)))) for _ in range(2))
    return TfliteTarget(runtime).steps_off(Form(op, (x,), {}), [y])


def test_the_target_knows_how_far_kernels_are_off() -> None:
    assert _steps("ABS", "int8") == 0
    assert _steps("EXP", "int8") == 0
    assert _steps("EXP", "int16") > 1


def test_errors_count_on_the_runtimes_that_are_targets() -> None:
    assert _steps("RSQRT", "int16", "litert-2.3") > 1
