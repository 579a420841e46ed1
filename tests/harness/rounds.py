"""Convert a model to TFLite and back, and compare several runs of each with ONNX Runtime."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import onnx.parser

from onnxtfl import runtimes
from onnxtfl.options import Options
from onnxtfl.pipeline import onnx_to_tflite, tflite_to_onnx
from tests.harness.litert import Array, invoke, run_onnx
from tests.harness.runtimes import run_tflite_on

INVOCATIONS = 3
Feeds = Mapping[str, Array]


def parsed(text: str, opset: int = 17) -> bytes:
    """The model in ONNX's text form, without header."""
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{text}').SerializeToString()


def there_and_back(
    text: str, *feeds: Feeds, opset: int = 17, options: Options | None = None, tolerance: float = 1e-4
) -> tuple[Counter[str], Counter[str]]:
    """The ops of the model in TFLite, and of that model back in ONNX.

    Both have the results of ONNX Runtime for the model, on each of `feeds`, in all kernel sets, in every invocation.
    """
    options = options or Options(debug=True)
    source, there, back = parsed(text, opset), io.BytesIO(), io.BytesIO()
    report = onnx_to_tflite(source, there, options)
    returned = tflite_to_onnx(there.getvalue(), back, options)
    names = {name for name, _, _ in report.inputs}
    given = [{k: v for k, v in each.items() if k in names} for each in feeds]
    wanted = [list(run_onnx(source, each).values()) for each in feeds]
    for kernels in ("AUTO", "BUILTIN_WITHOUT_DEFAULT_DELEGATES"):
        for found, want in zip(invoked(there.getvalue(), given, kernels), wanted, strict=True):
            _compare(found, want, tolerance)
    for each, want in zip(given, wanted, strict=True):
        if runtimes.TFLITE_RUNTIME.available():
            _compare([v for _, v in run_tflite_on("tflite-runtime", there.getvalue(), each)], want, tolerance)
        _compare(list(run_onnx(back.getvalue(), each).values()), want, tolerance)
    return Counter(report.ops_after), Counter(returned.ops_after)


def invoked(model: bytes, feeds: Sequence[Feeds], kernels: str) -> list[list[Array]]:
    """The outputs of one interpreter for each of `feeds`, the same in every invocation."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    resolver = getattr(OpResolverType, kernels)
    interpreter = Interpreter(model_content=model, num_threads=1, experimental_op_resolver_type=resolver)
    found = []
    for each in feeds:
        runs = [invoke(interpreter, each, allocate=i == 0) for i in range(INVOCATIONS)]
        for run in runs[1:]:
            for one, other in zip(runs[0], run, strict=True):
                np.testing.assert_array_equal(one, other)
        found.append(runs[0])
    return found


def _compare(found: Sequence[Array], wanted: Sequence[Array], tolerance: float) -> None:
    for got, want in zip(found, wanted, strict=True):
        assert got.shape == want.shape
        if want.dtype.kind == "f":
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance / 10)
        else:
            np.testing.assert_array_equal(got, want)


def floats(*shape: int) -> Array:
    """Reproducible values of a normal distribution."""
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)
