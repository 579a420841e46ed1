"""ONNX's own cases of one op, lifted and interpreted: the neutral ops mean what ONNX says."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from onnxtfl.checking.models.widened import HALVES
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.interpret import run
from onnxtfl.options import Options
from onnxtfl.passes.types.floats import narrow_float64
from onnxtfl.pipeline import inspect
from onnxtfl.rewriting.registry import all_rules
from tests.conformance.cases import Case, load_cases
from tests.harness.compare import difference, wide
from tests.harness.litert import Array, narrow

SKIPPED = {
    "resize_downsample_scales_linear_align_corners": "ONNX Runtime's coordinates, which differ from the reference's",
    "resize_downsample_scales_cubic_align_corners": "the same",
    "dft_inverse": "sums that are 0 but for rounding",
    "dft_inverse_opset19": "the same",
    "melweightmatrix": "its sizes are inputs",
    "loop11": "the scan output of a loop",
}
# Reads of types that NumPy and the graph hold, but whose rounding ONNX's reference alone defines.
_E8M0 = "e8m0"


def reason_to_skip(name: str) -> str | None:
    if name.startswith(("dft", "stft")) and not name.endswith("opset19"):
        return "the axis or the step is an input"
    if "float64" in name and "bitcast" in name:
        return "float64 is computed in float32, whose bits are others"
    if "strnorm" in name and "nochangecase" not in name:
        return "TFLite has no kernel that changes the case of strings"
    return "random values are drawn where the ratio is an input" if "training_dropout" in name else SKIPPED.get(name)


def cases() -> list[Case]:
    """Cases of one node, with comparable outputs."""
    known = {name for _, name in all_rules().lift_onnx}
    found = [case for case in load_cases() if len(case.ops) == 1 and case.ops[0] in known and not case.random]
    return [case for case in found if _E8M0 not in case.name]


def rounding_of_steps(graph: Graph, want: Array) -> float:
    """One unit of float16 or bfloat16 at the largest element, where several ops of `graph` round to it; else 0.

    ONNX's reference rounds after other steps than the neutral ops do. One op (a cast) rounds once, and is not excused.
    """
    rounding = [node for node in graph.nodes if any(r.dtype in HALVES for r in node.results)]
    if want.dtype.name not in ("float16", "bfloat16") or len(rounding) < 2:
        return 0.0
    largest = np.abs(wide(want)).max(initial=0.0)
    return float(ml_dtypes.finfo(want.dtype).eps * 2.0 ** np.floor(np.log2(largest))) if largest > 0.0 else 0.0


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_lifted_cases_mean_what_onnx_says(case: Case) -> None:
    if (reason := reason_to_skip(case.name.removeprefix("test_"))) is not None:
        pytest.skip(reason)
    graph = inspect(case.model, "lifted", Options())
    narrow_float64(graph, "narrow")
    for inputs, outputs in case.data_sets:
        for have, want in zip(run(graph, [narrow(x) for x in inputs]), outputs, strict=True):
            atol = max(case.atol, 1e-7, rounding_of_steps(graph, want))
            message = difference(narrow(have), narrow(want), max(case.rtol, 1e-5), atol)
            assert not message, f"{case.name}: {message}"
