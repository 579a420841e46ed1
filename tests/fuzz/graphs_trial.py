"""One random graph: the source runs, is converted, and the result runs, with several sizes of the open dims.

Even seeds are ONNX models; a fifth of these are converted to channels-last inputs and outputs. Odd seeds are TFLite
models: half of them conversions of random ONNX graphs, half drawn (tests/fuzz/tflite_trial.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
import onnx

from tests.fuzz import (
    graphs_control,
    graphs_elementwise,
    graphs_microsoft,
    graphs_networks,
    graphs_patterns,
    graphs_structure,
    tflite_trial,
)
from tests.fuzz.graphs_judge import (
    Arrays,
    Noisy,
    difference,
    finite,
    makes_integers_of_nan,
    noisy_inputs,
    sum_overflows,
)
from tests.fuzz.graphs_onnx import Drawing
from tests.fuzz.graphs_smaller import smallest
from tests.fuzz.graphs_source import Source
from tests.fuzz.graphs_steps import Steps, onnx_steps
from tests.fuzz.graphs_text import ancestors, text_of
from tests.fuzz.judging import Case, judged, runs_of
from tests.fuzz.soaking import Found
from tests.fuzz.tflite_trial import agrees_with_a_kernel
from tests.harness.child import stage
from tests.harness.litert import narrow, run_onnx, run_tflite

STEPS = {
    **graphs_elementwise.STEPS, **graphs_structure.STEPS, **graphs_networks.STEPS, **graphs_control.STEPS,
    **graphs_patterns.STEPS, **graphs_microsoft.STEPS,
}  # fmt: skip
_COMMON = [name for name in STEPS if name not in graphs_microsoft.STEPS]
_MOVES = [
    "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Expand", "Tile", "Concat", "Split", "Slice", "Gather",
    "Pad", "Add", "Mul", "Neg", "Relu", "Where", "Cast", "ReduceSum", "ReduceMax", "MatMul", "Softmax", "DepthToSpace",
]  # fmt: skip
_REPEATED = [*graphs_control.STEPS, "layers in a row", "Transpose", "Concat", "Slice"]
ELSEWHERE = {
    "sequences, which are no arrays": "ConcatFromSequence Optional OptionalGetElement OptionalHasElement SequenceAt "
    "SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength SequenceMap SplitToSequence",
    "random results": "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike",
    "quantized, in tests/unit/test_qlinear.py": "QLinearConv QLinearMatMul",
    "opsets below 13 or above 24": "Affine BitCast ConstantFill CumProd ImageScaler ParametricSoftplus ScaledTanh "
    "Scatter SimplifiedLayerNormalization Upsample",
    "experimental ops of old opsets, in tests/unit/test_experimental.py": "Crop DynamicSlice GivenTensorFill Scale",
    "strings, in tests/unit/test_strings.py": "RegexFullMatch StringConcat StringNormalizer "
    "StringSplit TfIdfVectorizer",
}
"""Why and where the other ops that convert are tested."""
_KERNELS = ("default", "builtin")
_WITH_FLOATS = ("DequantizeLinear", "MatMulIntegerToFloat")
"""Ops that make floats of integers; QGemm without a scale of the result does too."""
_OF_FLOATS = ("QuickGelu", "QuantizeLinear")


def drawn(seed: int) -> Drawing:
    """The random ONNX graph of a seed: most of one to five nodes, some of about twelve.

    A tenth is of recurrent layers, loops and branches, one after the other. A third are chains, mostly of ops that move
    elements: each node reads the newest value it can.
    """
    g = Drawing(seed)
    g.linked = g.chance(0.33)
    count = g.choose((3, 4, 6, 8)) if g.linked else g.choose((1, 1, 2, 2, 3, 4, 5, 12, 12))
    names = _REPEATED if g.chance(0.1) else _COMMON if count > 5 else list(STEPS)
    names = [*names, *_MOVES * 3] if g.linked else names
    for _ in range(6 * count):
        if len(g.nodes) >= count:
            break
        STEPS[g.choose(names)](g)
    return g


def attempt(seed: int) -> Found:
    """The outcome of a seed, in the worker process."""
    if _is_drawn_tflite(seed):
        return tflite_trial.attempt(seed)
    stage("source")
    g = drawn(seed)
    if not g.nodes:
        return Found("skipped")
    return _way(seed)(g)


def smaller(seed: int) -> Found:
    """As `attempt`, of a part of the graph that fails in the same way; a drawn TFLite model stays whole."""
    return tflite_trial.attempt(seed) if _is_drawn_tflite(seed) else smallest(drawn(seed), _way(seed))


def _way(seed: int) -> Callable[[Drawing], Found]:
    if seed % 2:
        return to_onnx
    return to_channels_last if seed % 10 == 4 else to_tflite


def _is_drawn_tflite(seed: int) -> bool:
    return seed % 4 == 3


def described(seed: int) -> tuple[str, dict[str, bytes]]:
    """The text and the files of a seed: of cases that end the process."""
    if _is_drawn_tflite(seed):
        return tflite_trial.described(seed)
    model = drawn(seed).model()
    return text_of(model), {"model.onnx": model.SerializeToString()}


def to_channels_last(g: Drawing) -> Found:
    """Convert an ONNX graph to TFLite whose image inputs and outputs are channels-last, and compare.

    It is not judged op by op: a difference with which the conversion in the source's layout agrees counts.
    """
    return to_tflite(g, "channels-last")


def to_tflite(g: Drawing, layout: Literal["source", "channels-last"] = "source") -> Found:
    """Convert an ONNX graph, and compare."""
    import onnxtfl

    model = g.model()
    data = model.SerializeToString()

    source = Source(model)
    runs = list(runs_of(g, source.run, again=_has_branches(g)))
    if not runs:
        return Found("skipped")

    orders: dict[str, tuple[int, ...]] = {}

    def convert() -> onnxtfl.Conversion:
        made = onnxtfl.onnx_to_tflite(model, check=False, load=False, io_layout=layout)
        orders.update(_orders_of(made, model))
        return made

    def results(converted: bytes, fed: Arrays) -> Iterator[tuple[str, Arrays]]:
        moved = {n: a.transpose(orders[n]).copy() if n in orders else a for n, a in fed.items()}
        for kernels in _KERNELS:
            found = dict(run_tflite(converted, moved, kernels=kernels))
            yield kernels, {n: a.transpose(np.argsort(orders[n])) if n in orders else a for n, a in found.items()}

    files = {"model.onnx": data}
    found = judged(_case(g, files, source.noisy, model), convert, results, runs)
    if found.kind == "disagree" and layout != "source":
        plain = to_tflite(g)
        return found if plain.kind == "agree" else plain
    if found.kind == "disagree" and _is_fault_of_source(found, source, runs):
        return replace(found, kind="source")
    return _by_step(g, found, source, runs) if found.kind == "disagree" else found


def _orders_of(made: Any, model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """The axes of those inputs and outputs that a conversion moves."""
    own = {value.name for value in (*model.graph.input, *model.graph.output)}
    return {e.source: e.permutation for e in made.record.tensors if e.permutation and e.source == e.target in own}


def _by_step(g: Drawing, found: Found, source: Source, runs: list[tuple[Arrays, Arrays]]) -> Found:
    """A difference, judged op by op, with both kernel sets."""
    import onnxtfl

    converted = onnxtfl.onnx_to_tflite(source.with_all_outputs(), check=False, load=False).data or b""

    def run(data: bytes, kernels: str, fed: Arrays) -> Arrays:
        return dict(run_tflite(data, fed, kernels=kernels))

    runs = [*runs[:1], *(run for run in runs[1:] if not _is_doubtful(source.model, *run))]
    steps = Steps(onnx_steps(g), source.values, _rounded(source.model))
    kinds = {
        steps.judged(found, partial(run, found.files["result"], kernels), partial(run, converted, kernels), runs).kind
        for kernels in _KERNELS
    }
    return found if found.kind in kinds else replace(found, kind=max(kinds))


def _has_branches(g: Drawing) -> bool:
    """Whether other elements may take another branch."""
    return any(node.op_type == "If" for node in g.nodes)


def to_onnx(g: Drawing) -> Found:
    """Convert an ONNX graph, then the result back, and compare that with the result."""
    import onnxtfl

    try:
        source = onnxtfl.onnx_to_tflite(g.model(), check=False, load=False, record=False).data
    except Exception:
        return Found("skipped")
    assert isinstance(source, bytes)

    def run(fed: Arrays) -> Arrays:
        return dict(run_tflite(source, {n: narrow(a) for n, a in fed.items()}, kernels="builtin"))

    origin = g.model().SerializeToString()
    runs = [found for found in runs_of(g, run, again=_has_branches(g)) if _accepts(origin, *found)]
    if not runs:
        return Found("skipped")

    def convert() -> onnxtfl.Conversion:
        return onnxtfl.tflite_to_onnx(source, check=False, load=False)

    def results(converted: bytes, fed: Arrays) -> Iterator[tuple[str, Arrays]]:
        found = run_onnx(converted, {n: narrow(a) for n, a in fed.items()})
        taken = {f"{name}_1": name for name in fed}  # in ONNX, an output has another name than the inputs
        yield "ONNX Runtime", {taken.get(n, n): a for n, a in found.items()}

    found = judged(_case(g, {"model.tflite": source}, noisy_inputs(run), g.model()), convert, results, runs)
    if found.kind == "disagree" and _is_rounding(found, runs):
        return replace(found, kind="agree")
    if found.kind == "disagree" and _is_of_a_kernel(found, source, runs):
        return replace(found, kind="source")
    return found


def _is_of_a_kernel(found: Found, source: bytes, runs: list[tuple[Arrays, Arrays]]) -> bool:
    """Whether the resulting ONNX model computes what other kernels of LiteRT do: its own round integers twice."""
    result = found.files["result"]
    try:
        pairs = [({n: narrow(a) for n, a in fed.items()}, expected) for fed, expected in runs]
        return all(agrees_with_a_kernel(source, fed, expected, run_onnx(result, fed)) for fed, expected in pairs)
    except Exception:  # a runtime that refuses
        return False


def _is_rounding(found: Found, runs: list[tuple[Arrays, Arrays]]) -> bool:
    """Whether noise in all that the resulting ONNX model computes changes it as much as it differs."""
    result = Source(onnx.ModelProto.FromString(found.files["result"]))
    try:
        return all(difference(expected, result.run(fed), fed, result.noisy) is None for fed, expected in runs)
    except Exception:  # with subgraphs, or a runtime that refuses
        return False


def _is_fault_of_source(found: Found, source: Source, runs: list[tuple[Arrays, Arrays]]) -> bool:
    """Whether the results agree with ONNX Runtime without optimizations, or on empty arrays with ONNX's evaluator."""
    converted = found.files["result"]
    for kernels in _KERNELS:
        for fed, expected in runs:
            try:
                actual = dict(run_tflite(converted, fed, kernels=kernels))
            except Exception:
                continue
            if difference(actual, expected, fed, source.noisy) and all(
                difference(actual, other, fed, source.noisy) for other in source.others(fed)
            ):
                return False
    return True


def _case(g: Drawing, files: dict[str, bytes], noisy: Noisy, model: onnx.ModelProto) -> Case:
    def text(*outputs: str) -> str:
        return ancestors(model, *outputs) if outputs else text_of(model)

    steps = _quantized(model)
    return Case(
        g, text, files, noisy, partial(_is_doubtful, model), partial(_is_undefined, model), steps, Source(model).values
    )


def _rounded(model: onnx.ModelProto) -> dict[str, float]:
    """By how much integers may differ: TFLite's kernels round by other formulas.

    By 1 the results of com.microsoft's ops on integers with a scale, and of quantizing what was computed of integers.
    """
    scaled: set[str] = set()
    found: dict[str, float] = {}
    for node in model.graph.node:
        is_integer = bool(node.domain) and node.op_type.startswith("Q") and node.op_type not in _OF_FLOATS
        is_float = node.op_type in _WITH_FLOATS or (node.op_type == "QGemm" and not any(node.input[7:]))
        if is_float:
            scaled |= set(node.output)
        elif is_integer or (node.op_type == "QuantizeLinear" and node.input[0] in scaled):
            found |= dict.fromkeys(node.output, 1.0)
    return found


def _quantized(model: onnx.ModelProto) -> dict[str, float]:
    """By how much values may differ: those integers, and by their scale the floats that are made of them."""
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    found = _rounded(model)
    for node in model.graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in found and node.input[1] in constants:
            found[node.output[0]] = 1.001 * float(np.abs(constants[node.input[1]]).max())
    return found


def _accepts(model: bytes, fed: Arrays, expected: Arrays) -> bool:
    """Whether ONNX Runtime has finite results of the same shapes at these sizes: LiteRT's kernels do not check all."""
    try:
        found = run_onnx(model, fed)
        return finite(found) and all(expected[name].shape == array.shape for name, array in found.items())
    except Exception:
        return False


_NOT_EVALUATED = ("Loop", "Scan")
"""What ONNX's evaluator does not compute, as all ops of other domains: it joins the results of a Loop along their first
axis, and has no Scan from the end."""


def _is_doubtful(model: onnx.ModelProto, fed: Arrays, expected: Arrays) -> bool:
    """Whether ONNX's own evaluator refuses these sizes, or has results of other shapes than ONNX Runtime.

    So are windows that are larger than what they go over (ONNX Runtime counts one place, or none).
    """
    from onnx.reference import ReferenceEvaluator

    try:
        shapes = {name: array.shape for name, array in Source(model).values(fed).items()}
        if not all(_operand_fits(node, shapes) for node in model.graph.node):
            return True
        if any(node.domain or node.op_type in _NOT_EVALUATED for node in model.graph.node):
            return False
        found = ReferenceEvaluator(model).run(None, dict(fed))
    except Exception:
        return True
    sizes = {output.name: np.shape(array) for output, array in zip(model.graph.output, found, strict=True)}
    return any(sizes.get(name) != array.shape for name, array in expected.items())


def _is_undefined(model: onnx.ModelProto, fed: Arrays) -> bool:
    """Whether a node makes integers of what is no number, such as a mean of no elements (ONNX Runtime has 0), or a
    variance as a difference of squares that is below 0 by rounding.

    Also integer products over nothing, whose result ONNX Runtime does not write, means of nothing, which ONNX leaves
    undefined, sums of integers that overflow, and a NonZero of what is left where sums cancel out.
    """
    if _has_negative_variance(model, fed) or _has_undefined_sums(model, fed) or _counts_rounding(model, fed):
        return True
    source, ops = Source(model), [(node.input, node.output) for node in model.graph.node]
    for values in (source.values, source.evaluated):
        try:
            if makes_integers_of_nan(ops, values(fed)):
                return True
        except Exception:  # it cannot evaluate everything
            continue
    return False


_INTEGER_PRODUCTS = ("MatMulInteger", "MatMulInteger16", "MatMulIntegerToFloat", "DynamicQuantizeMatMul", "QGemm")
_SUMS = ("ConvInteger", "QLinearMatMul", *_INTEGER_PRODUCTS, "ReduceMean", "ReduceSum")


def _has_undefined_sums(model: onnx.ModelProto, fed: Arrays) -> bool:
    """Whether something is summed of which there is nothing, or integers whose sum does not fit their type."""
    nodes = [node for node in model.graph.node if node.op_type in _SUMS]
    values: Arrays = Source(model).values(fed) if nodes else {}
    summed = [(node.op_type, values[node.input[node.op_type == "ConvInteger"]]) for node in nodes]
    return any(sum_overflows(array) if op == "ReduceSum" else array.size == 0 for op, array in summed)


def _counts_rounding(model: onnx.ModelProto, fed: Arrays) -> bool:
    counted = {node.input[0] for node in model.graph.node if node.op_type == "NonZero"}
    counted &= {name for node in model.graph.node for name in node.output}
    values: Arrays = Source(model).values(fed) if counted else {}
    sizes = [np.abs(values[name]) for name in counted if values[name].dtype.kind == "f" and values[name].size]
    return any(((size > 0) & (size < 1e-6 * size.max())).any() for size in sizes)


def _has_negative_variance(model: onnx.ModelProto, fed: Arrays) -> bool:
    """Whether ONNX Runtime's MeanVarianceNormalization, E[x^2] - E[x]^2, has NaN for finite elements."""
    nodes = [node for node in model.graph.node if node.op_type == "MeanVarianceNormalization"]
    values = {**fed, **Source(model).values(fed)} if nodes else {}
    pairs = [(values.get(node.input[0]), values.get(node.output[0])) for node in nodes]
    return any(x is not None and y is not None and np.isfinite(x).all() and np.isnan(y).any() for x, y in pairs)


def _operand_fits(node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether a window fits, axes of one name in an Einsum have one size (ONNX Runtime repeats those of size 1), and
    the other axes of what a Concat joins (it ignores operands without elements). A Loop has rounds: of none, ONNX
    Runtime does not know the sizes of what is collected, and has 0.
    """
    found = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type == "Loop":
        return all(shapes[name][0] for name in node.output[len(node.input) - 2 :] if name)
    if node.op_type == "Einsum":
        names = [term.strip() for term in found["equation"].decode().split("->")[0].split(",")]
        pairs = {pair for term, x in zip(names, node.input, strict=True) for pair in zip(term, shapes[x], strict=True)}
        return len(pairs) == len({name for name, _ in pairs})
    if node.op_type == "Concat":
        return len({(*shapes[x][: found["axis"]], *shapes[x][found["axis"] :][1:]) for x in node.input}) == 1
    if "kernel_shape" not in found:
        return True
    shape = shapes[node.input[0]]
    sizes = shape[1:-1] if node.op_type.startswith("Nhwc") else shape[2:]
    pads, dilations = found.get("pads", [0] * 2 * len(sizes)), found.get("dilations", [1] * len(sizes))
    spans = [(k - 1) * d + 1 for k, d in zip(found["kernel_shape"], dilations, strict=True)]
    return all(n + pads[i] + pads[i + len(sizes)] >= spans[i] for i, n in enumerate(sizes))
