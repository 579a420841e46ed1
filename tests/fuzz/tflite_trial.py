"""One random TFLite graph: LiteRT runs it, it is converted, and ONNX Runtime runs the result, at several sizes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np

from tests.fuzz import tflite_elementwise, tflite_networks, tflite_quantized, tflite_structure
from tests.fuzz.graphs_judge import Arrays, makes_integers_of_nan, sum_overflows
from tests.fuzz.graphs_steps import Steps, noisy_steps, tflite_steps
from tests.fuzz.judging import Case, judged, runs_of
from tests.fuzz.soaking import Found
from tests.fuzz.tflite_drawing import Op, TfliteDrawing
from tests.harness.child import stage
from tests.harness.compare import largest_error
from tests.harness.litert import Array, narrow, run_onnx, run_tflite

STEPS = {**tflite_elementwise.STEPS, **tflite_structure.STEPS, **tflite_networks.STEPS}
QUANTIZED = tflite_quantized.STEPS
ELSEWHERE = {
    "control flow, in tests/fuzz/graphs_control.py and tests/unit/test_branches.py": "CALL CALL_ONCE IF WHILE "
    "STABLEHLO_CASE STABLEHLO_WHILE",
    "state, in tests/models/test_stateful_tflite.py": "BIDIRECTIONAL_SEQUENCE_LSTM BIDIRECTIONAL_SEQUENCE_RNN LSTM RNN "
    "SVDF UNIDIRECTIONAL_SEQUENCE_LSTM UNIDIRECTIONAL_SEQUENCE_RNN",
    "random results": "MULTINOMIAL RANDOM_STANDARD_NORMAL RANDOM_UNIFORM",
    "resources, strings": "ASSIGN_VARIABLE HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE READ_VARIABLE "
    "VAR_HANDLE",
    "strings, in tests/unit/test_strings.py": "SKIP_GRAM",
    "operands of special values, in tests/unit/test_tflite_rare_ops.py": "EMBEDDING_LOOKUP_SPARSE "
    "STABLEHLO_RNG_BIT_GENERATOR",
    "numbers of one kind, in tests/unit/test_hashing.py": "LSH_PROJECTION",
    "custom ops, in tests/unit/test_custom_ops.py": "custom:AudioSpectrogram custom:AveragePool3D custom:AvgPool3D "
    "custom:Convolution2DTransposeBias custom:DISPATCH_OP custom:Landmarks2TransformMatrix custom:MaxPool3D "
    "custom:MaxPoolWithArgmax custom:MaxPoolingWithArgmax2D "
    "custom:MaxUnpooling2D custom:Mfcc custom:NeutronGraph custom:TFLite_Detection_PostProcess "
    "custom:TransformLandmarks custom:TransformTensor custom:TransformTensorBilinear custom:edgetpu-custom-op "
    "custom:ethos-u custom:vsi-npu",
    "sparse constants, regions: one form each, in tests/conformance": "DENSIFY STABLEHLO_REDUCE_WINDOW "
    "STABLEHLO_SCATTER",
    "no kernel in LiteRT, in tests/unit/test_stablehlo.py": "STABLEHLO_ABS STABLEHLO_BROADCAST_IN_DIM STABLEHLO_CBRT "
    "STABLEHLO_CLAMP STABLEHLO_COMPARE STABLEHLO_CONCATENATE STABLEHLO_CONVERT STABLEHLO_CONVOLUTION "
    "STABLEHLO_COSINE STABLEHLO_DIVIDE STABLEHLO_DOT_GENERAL STABLEHLO_DYNAMIC_SLICE STABLEHLO_DYNAMIC_UPDATE_SLICE "
    "STABLEHLO_EXPONENTIAL STABLEHLO_FLOOR STABLEHLO_IOTA STABLEHLO_LOG STABLEHLO_LOGISTIC STABLEHLO_NEGATE "
    "STABLEHLO_OR STABLEHLO_POWER STABLEHLO_REDUCE STABLEHLO_REMAINDER STABLEHLO_RESHAPE STABLEHLO_RSQRT "
    "STABLEHLO_SELECT STABLEHLO_SLICE STABLEHLO_SORT STABLEHLO_SUBTRACT STABLEHLO_TANH STABLEHLO_TRANSPOSE",
}
"""Why and where the other ops that convert are tested."""
_MOVES = (
    "BROADCAST_TO", "CONCATENATION", "EXPAND_DIMS", "GATHER", "MIRROR_PAD", "PACK", "PAD", "PADV2", "RESHAPE",
    "REVERSE_V2", "SLICE", "SPLIT", "SPLIT_V", "SQUEEZE", "STRIDED_SLICE", "TILE", "TRANSPOSE", "UNPACK",
)  # fmt: skip


def drawn(seed: int) -> TfliteDrawing:
    """The random TFLite graph of a seed: one to five ops, or a quantized one.

    A third are chains, mostly of ops that move elements: each op reads the newest value it can.
    """
    g = TfliteDrawing(seed)
    if g.chance(0.2):
        for _ in range(4):
            if not g.ops:
                QUANTIZED[g.choose(list(QUANTIZED))](g)
        return g
    g.linked = g.chance(0.33)
    count = g.choose((3, 4, 6, 8)) if g.linked else g.choose((1, 1, 1, 2, 2, 3, 4, 5))
    names = [*STEPS, *_MOVES * 3] if g.linked else list(STEPS)
    for _ in range(4 * count):
        if len(g.ops) < count:
            STEPS[g.choose(names)](g)
    return g


def is_drawn(name: str) -> bool:
    """Whether the step of an op adds it for one of a few seeds, in the worker process."""
    for seed in range(40):
        g = TfliteDrawing(seed)
        STEPS[name](g)
        if any(op.name == name for op in g.ops):
            return True
    return False


def described(seed: int) -> tuple[str, dict[str, bytes]]:
    """The text and the file of a seed: of cases that end the process."""
    g = drawn(seed)
    return g.text(), {"model.tflite": g.model()}


def _is_doubtful(g: TfliteDrawing, fed: Arrays, expected: Arrays) -> bool:
    """Whether a result, or what a window goes over, is empty: runtimes do not agree on windows larger than what they
    go over, or over nothing.

    Also the sum and the mean of no integers, which LiteRT leaves unwritten, the mean of no floats, which ONNX leaves
    undefined, and a STABLEHLO_PAD that leaves no elements: the sizes of its result are 0 along every axis.
    """
    given = [g.arrays[name] for op in g.ops for name in op.inputs if name in g.constants]
    arrays = [*expected.values(), *([*fed.values(), *given] if g.quantized else ())]
    return any(array.size == 0 for array in arrays) or _has_ops_on_nothing(g, fed)


def _has_ops_on_nothing(g: TfliteDrawing, fed: Arrays) -> bool:
    try:
        values = _values(g, fed)
    except Exception:
        return False
    names = [op.inputs for op in g.ops if "padding" in op.options or op.name == "MEAN"]
    names += [op.results for op in g.ops if "padding" in op.options or op.name == "STABLEHLO_PAD"]
    return any(name in values and values[name].size == 0 for group in names for name in group)


def _values(g: TfliteDrawing, fed: Arrays) -> dict[str, Array]:
    """Each input, constant and value of a run; raises LiteRT's errors."""
    return {**g.arrays, **dict(run_tflite(g.model(every=True), fed, kernels="builtin")), **fed}


def _is_undefined(g: TfliteDrawing, fed: Arrays) -> bool:
    """Whether integers are made of what is no number, integers overflow, or a kernel reads beyond an operand that does
    not fit.
    """
    try:
        values = _values(g, fed)
    except Exception:
        return False
    shapes = {name: np.shape(array) for name, array in values.items()}
    if not all(operands_fit(op, [shapes[name] for name in op.inputs if name]) for op in g.ops):
        return True
    if any(op.name == "SUM" and sum_overflows(values[op.inputs[0]]) for op in g.ops) or _has_nan(g, values):
        return True
    return makes_integers_of_nan([(op.inputs, op.results) for op in g.ops], values)


def _has_nan(g: TfliteDrawing, values: Arrays) -> bool:
    """Whether the larger or smaller of NaN and a number is taken: LiteRT's kernels return their second operand."""
    operands = [values[name] for op in g.ops if op.name in ("MAXIMUM", "MINIMUM") for name in op.inputs]
    return any(array.dtype.kind == "f" and bool(np.isnan(array).any()) for array in operands)


def operands_fit(op: Op, shapes: list[tuple[int, ...]]) -> bool:
    """Whether the shapes of operands fit that kernels do not check."""
    if op.name in ("ATAN2", "STABLEHLO_SHIFT_LEFT"):
        return shapes[0] == shapes[1]
    if op.name == "MATRIX_SET_DIAG":
        *batch, rows, columns = shapes[0]
        return shapes[1] == (*batch, min(rows, columns))
    return True


def attempt(seed: int) -> Found:
    """The outcome of a seed, in the worker process."""
    stage("source")
    g = drawn(seed)
    return to_onnx(g) if g.ops else Found("skipped")


def to_onnx(g: TfliteDrawing) -> Found:
    """Convert a TFLite graph, and compare."""
    import onnxtfl

    data = g.model()

    def run(fed: Arrays) -> Arrays:
        return dict(run_tflite(data, fed, kernels="builtin"))

    runs = list(runs_of(g, run, again=g.is_dynamic()))
    if not runs:
        return Found("skipped")

    def convert() -> onnxtfl.Conversion:
        return onnxtfl.tflite_to_onnx(data, check=False, load=False)

    def results(converted: bytes, fed: Arrays) -> Iterator[tuple[str, Arrays]]:
        yield "ONNX Runtime", {n: narrow(a) for n, a in run_onnx(converted, fed).items()}

    source = Case(
        g,
        g.text,
        {"model.tflite": data},
        noisy_steps(tflite_steps(g), partial(_values, g)),
        partial(_is_doubtful, g),
        partial(_is_undefined, g),
        _quantized(g),
        partial(_values, g),
    )
    found = judged(source, convert, results, runs)
    return _by_step(g, found, runs) if found.kind == "disagree" else found


def _by_step(g: TfliteDrawing, found: Found, runs: list[tuple[Arrays, Arrays]]) -> Found:
    """A difference, judged by LiteRT's other kernels, and op by op."""
    import onnxtfl

    def result(fed: Arrays) -> Arrays:
        return run_onnx(found.files["result"], fed)

    data = g.model()
    if all(agrees_with_a_kernel(data, fed, expected, result(fed)) for fed, expected in runs):
        return replace(found, kind="source")
    data = g.model(every=True)

    def every(fed: Arrays) -> Arrays:
        return run_onnx(onnxtfl.tflite_to_onnx(data, check=False, load=False).data or b"", fed)

    runs = [*runs[:1], *(run for run in runs[1:] if not _is_doubtful(g, *run))]
    steps = Steps(tflite_steps(g), partial(_values, g), dict.fromkeys(g.quantized, 1.0))
    return steps.judged(found, result, every, runs)


def _quantized(g: TfliteDrawing) -> dict[str, float]:
    """By how much values may differ: by 1 those that are quantized, by their scale those that are dequantized again."""
    steps = dict.fromkeys(g.quantized, 1.0)
    computed = {name for op in g.ops for name in op.results}
    for op in g.ops:
        if op.name == "DEQUANTIZE" and op.inputs[0] in computed & g.quantized.keys():
            steps[op.results[0]] = 1.001 * max(g.quantized[op.inputs[0]].scales)
    return steps


def agrees_with_a_kernel(data: bytes, fed: Arrays, expected: Arrays, actual: Arrays) -> bool:
    """Whether a result is that of LiteRT's own kernels, of XNNPACK, or of the reference kernels.

    The optimized ADD of int8 wraps around where the result has far finer steps; the reference one saturates.
    """
    ways = [expected]
    for kernels in ("default", "reference"):
        with suppress(Exception):
            ways.append(dict(run_tflite(data, fed, kernels=kernels)))
    return any(all(largest_error(narrow(actual[n]), a) <= 1 for n, a in way.items()) for way in ways)
