"""Recurrent layers: from ONNX to neutral ops and to TFLite, compared with ONNX Runtime."""

from __future__ import annotations

import functools
import io
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import onnxtfl
from onnxtfl.errors import InvalidModelError, UnsupportedError
from onnxtfl.formats.onnx import writer
from onnxtfl.ir.interpret import run
from onnxtfl.ir.model import Model
from onnxtfl.options import Options
from onnxtfl.pipeline import inspect, passes_for
from onnxtfl.rewriting.pass_manager import PassManager
from onnxtfl.runtimes import TFLITE_RUNTIME
from onnxtfl.targets.onnx import OnnxTarget
from tests.harness.litert import Array, run_onnx, run_tflite
from tests.harness.repeated import run_again

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STEPS, BATCH, FEATURES, CELLS = 5, 3, 4, 6
FUNCTIONS = ("Relu", "Tanh", "Sigmoid", "Affine", "LeakyRelu", "ThresholdedRelu")
FUNCTIONS += ("ScaledTanh", "HardSigmoid", "Elu", "Softsign", "Softplus")
COUNTS = {"LSTM": 3, "GRU": 2, "RNN": 1}


def layer(
    kind: str,
    *absent: str,
    opset: int = 22,
    steps: int = STEPS,
    batch: int = BATCH,
    cells: int = CELLS,
    inputs: str = "",
    given: str = "B",
    **attributes: Any,
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model of one layer and its inputs; `given`: the optional operands (B sequence_lens initial_h initial_c P) that
    it has, `inputs`: those operands that are inputs, not constants; `absent`: results that it does not have.
    """
    rng = np.random.default_rng(0)
    gates, directions = GATES[kind], 2 if attributes.get("direction") == "bidirectional" else 1
    state = (batch, directions, cells) if attributes.get("layout") else (directions, batch, cells)
    shapes = {
        "W": (directions, gates * cells, FEATURES),
        "R": (directions, gates * cells, cells),
        "B": (directions, 2 * gates * cells),
    }
    shapes |= {"sequence_lens": (batch,), "initial_h": state, "initial_c": state, "P": (directions, 3 * cells)}
    x = rng.standard_normal((batch, steps, FEATURES) if attributes.get("layout") else (steps, batch, FEATURES))
    arrays = {n: (rng.standard_normal(s) * min(0.5, 4 / cells)).astype(np.float32) for n, s in shapes.items()}
    arrays["sequence_lens"] = np.asarray([steps, 1, 3][:batch], np.int32)
    used = ["W", "R", *given.split()]
    names = ["X", *(n if n in used else "" for n in list(shapes)[: 7 if kind == "LSTM" else 5])]
    results = [n if n not in absent else "" for n in ("Y", "Y_h", "Y_c")[: 3 if kind == "LSTM" else 2]]
    feeds = {"X": x.astype(np.float32), **{n: arrays[n] for n in used if n in inputs.split()}}
    node = helper.make_node(kind, names, results, hidden_size=cells, **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()],
        [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in results if n],
        [numpy_helper.from_array(arrays[n], n) for n in used if n not in feeds],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), feeds


def interpreted(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array]:
    return run(inspect(model.SerializeToString(), "lifted", Options()), list(feeds.values()))


def in_tflite(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array]:
    data = onnxtfl.onnx_to_tflite(model, check=False).data
    assert data is not None
    return [array for _, array in run_tflite(data, feeds)]


def check(wanted: list[Array], found: list[Array], message: object, tolerance: float = 2e-5) -> None:
    for a, b in zip(wanted, found, strict=True):
        np.testing.assert_allclose(
            b, a, rtol=0, atol=tolerance * max(1.0, float(np.abs(a).max())), err_msg=str(message)
        )


ALL = "B sequence_lens initial_h initial_c"
VARIANTS: tuple[dict[str, Any], ...] = (
    {"given": ""},
    {"given": "B sequence_lens"},
    {"given": "B initial_h initial_c"},
    {"given": ALL, "clip": 0.3},
    {"given": ALL, "inputs": f"W R {ALL}"},
    {"steps": 1, "batch": 1, "opset": 8},
)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", GATES)
def test_operands(kind: str, direction: str) -> None:
    """Every operand may be absent, constant or an input, in each direction."""
    for variant in VARIANTS:
        model, feeds = layer(kind, direction=direction, **variant)
        wanted = list(run_onnx(model.SerializeToString(), feeds).values())
        check(wanted, interpreted(model, feeds), variant)
        check(wanted, in_tflite(model, feeds), variant)


@pytest.mark.parametrize("kind", GATES)
def test_batch_major_layers(kind: str) -> None:
    """ONNX Runtime has no kernels for layout 1: the same as layout 0 on transposed inputs."""
    for direction in ("forward", "bidirectional"):
        model, feeds = layer(kind, given=ALL, direction=direction, inputs="initial_h initial_c")
        y, *states = run_onnx(model.SerializeToString(), feeds).values()
        swapped, _ = layer(kind, given=ALL, direction=direction, inputs="initial_h initial_c", layout=1)
        feeds = {n: a.swapaxes(0, 1) for n, a in feeds.items()}
        check([y.transpose(2, 0, 1, 3), *(s.swapaxes(0, 1) for s in states)], in_tflite(swapped, feeds), direction)


ATTRIBUTES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("LSTM", {"given": "B P sequence_lens"}),
    ("LSTM", {"given": "B P", "direction": "bidirectional"}),
    ("LSTM", {"input_forget": 1}),
    ("GRU", {"linear_before_reset": 1}),
    ("GRU", {"linear_before_reset": 1, "given": ALL, "direction": "bidirectional", "clip": 0.2}),
    ("GRU", {"linear_before_reset": 1, "given": ""}),
)


def test_attributes() -> None:
    for kind, attributes in ATTRIBUTES:
        model, feeds = layer(kind, **attributes)
        wanted = list(run_onnx(model.SerializeToString(), feeds).values())
        check(wanted, interpreted(model, feeds), (kind, attributes))
        check(wanted, in_tflite(model, feeds), (kind, attributes))


@pytest.mark.parametrize("kind", GATES)
def test_activations(kind: str) -> None:
    """Every function in every place, with ONNX Runtime's defaults of alpha and beta, and with given ones."""
    for shift in range(len(FUNCTIONS)):
        names = [FUNCTIONS[(shift + 4 * i) % len(FUNCTIONS)] for i in range(COUNTS[kind])]
        for parameters in ({}, {"activation_alpha": [0.7, 0.3, 0.9], "activation_beta": [0.4, 0.2, 0.6]}):
            count = {n: v[: COUNTS[kind]] for n, v in parameters.items()}
            model, feeds = layer(kind, activations=names, **count)
            check(list(run_onnx(model.SerializeToString(), feeds).values()), interpreted(model, feeds), (names, count))


def test_activations_of_each_direction() -> None:
    names = ["Sigmoid", "Tanh", "Relu", "HardSigmoid", "Softsign", "Tanh"]
    model, feeds = layer("LSTM", direction="bidirectional", activations=names, activation_alpha=[0.3])
    check(list(run_onnx(model.SerializeToString(), feeds).values()), in_tflite(model, feeds), names)


@pytest.mark.parametrize(("kind", "opset"), [("LSTM", 1), ("RNN", 1), ("GRU", 1), ("GRU", 3)])
def test_first_versions(kind: str, opset: int) -> None:
    """Without public cases and without kernels in ONNX Runtime: the same as version 7."""
    model, feeds = layer(kind, given=ALL, opset=7)
    wanted = list(run_onnx(model.SerializeToString(), feeds).values())
    old, _ = layer(kind, given=ALL, opset=opset, output_sequence=1)
    check(wanted, in_tflite(old, feeds), opset)


def test_operands_without_directions() -> None:
    """As PyTorch's first exporter wrote one direction: the output has no axis of directions either."""
    model, feeds = layer("LSTM", opset=6)
    for tensor in model.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor)[0], tensor.name))
    found = in_tflite(model, feeds)
    y, *states = run_onnx(layer("LSTM", opset=7)[0].SerializeToString(), feeds).values()
    check([y[:, 0], *states], found, "LSTM")


def test_absent_results() -> None:
    """A layer may have any of its results."""
    model, feeds = layer("LSTM", "Y")
    check(list(run_onnx(model.SerializeToString(), feeds).values()), in_tflite(model, feeds), "Y")
    model, feeds = layer("LSTM", "Y_h", "Y_c", direction="bidirectional")
    check(list(run_onnx(model.SerializeToString(), feeds).values()), in_tflite(model, feeds), "Y_h Y_c")


FUSED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("LSTM", {}),
    ("LSTM", {"direction": "bidirectional", "given": "B initial_h initial_c", "inputs": "initial_h initial_c"}),
    ("LSTM", {"given": "B P initial_h initial_c"}),
    ("LSTM", {"given": "", "input_forget": 1, "activations": ["Sigmoid", "Relu", "Relu"]}),
    ("RNN", {"direction": "reverse", "given": "B initial_h", "inputs": "initial_h"}),
    ("RNN", {"given": "B", "activations": ["Relu"]}),
)


@pytest.mark.parametrize("runtime", ["litert", "litert:builtin", "litert:reference", "tflite-runtime"])
def test_layers_in_one_kernel(runtime: str) -> None:
    """A long or unknown number of steps: one kernel, which begins every run from the same state."""
    if runtime == "tflite-runtime" and not TFLITE_RUNTIME.available():
        pytest.skip("tflite-runtime is not installed")
    for kind, variant in FUSED:
        for steps in (200, None):
            model, feeds = layer(kind, steps=steps or STEPS, **variant)
            if steps is None:
                model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "steps"
            data = onnxtfl.onnx_to_tflite(model, check=False).data
            assert data is not None
            wanted, runs = [], []
            for seed in range(3):
                shape = (steps or 3 + 2 * seed, BATCH, FEATURES)
                x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
                runs.append({**feeds, "X": x})
                wanted.append(list(run_onnx(model.SerializeToString(), runs[-1]).values()))
            for a, b in zip(wanted, run_again(runtime, data, runs), strict=True):
                check(a, b, (kind, variant, steps))


@pytest.mark.parametrize("inputs", ["", "sequence_lens"])
@pytest.mark.parametrize("kind", GATES)
def test_the_last_states_of_a_sequence_of_length_0_are_0(kind: str, inputs: str) -> None:
    """As in ONNX Runtime, although the initial states are others."""
    model, feeds = layer(kind, given=ALL, inputs=inputs, direction="bidirectional")
    if inputs:
        feeds["sequence_lens"][1] = 0
    else:
        lengths = next(t for t in model.graph.initializer if t.name == "sequence_lens")
        values = numpy_helper.to_array(lengths).copy()
        values[1] = 0
        lengths.CopyFrom(numpy_helper.from_array(values, "sequence_lens"))
    wanted = list(run_onnx(model.SerializeToString(), feeds).values())
    assert not wanted[1][:, 1].any()
    check(wanted, in_tflite(model, feeds), kind)


@pytest.mark.parametrize("kind", GATES)
def test_layers_of_unknown_sizes(kind: str) -> None:
    """Steps and batch are known at run time only."""
    model, _ = layer(kind, given="B sequence_lens", inputs="sequence_lens", direction="bidirectional")
    dims = [d for value in model.graph.input for d in value.type.tensor_type.shape.dim][:4]
    dims[0].dim_param = "steps"
    dims[1].dim_param = dims[3].dim_param = "batch"
    data = onnxtfl.onnx_to_tflite(model, check=False).data
    assert data is not None
    rng, runs = np.random.default_rng(0), []
    for steps, batch in ((5, 3), (2, 1), (9, 4)):
        x = rng.standard_normal((steps, batch, FEATURES)).astype(np.float32)
        runs.append({"X": x, "sequence_lens": rng.integers(1, steps + 1, batch).astype(np.int32)})
    wanted = [list(run_onnx(model.SerializeToString(), run).values()) for run in runs]
    for a, b in zip(wanted, run_again("litert", data, runs), strict=True):
        check(a, b, kind)


@pytest.mark.parametrize("runtime", ["litert", "litert:builtin", "litert:reference", "tflite-runtime"])
def test_large_layers_call_one_subgraph(runtime: str) -> None:
    """Weights that would be packed for each step: each step is an IF on the same subgraph, on every runtime."""
    if runtime == "tflite-runtime" and not TFLITE_RUNTIME.available():
        pytest.skip("tflite-runtime is not installed")
    for kind in GATES:
        model, feeds = layer(kind, steps=12, cells=512 if kind == "RNN" else 256, direction="reverse")
        conversion = onnxtfl.onnx_to_tflite(model, check=False)
        assert conversion.report.ops_after["IF"] == 12
        assert conversion.data is not None
        assert len(conversion.data) < 1.2 * len(model.SerializeToString())
        runs = [{"X": 2.0 * feeds["X"]}, feeds]
        wanted = list(run_onnx(model.SerializeToString(), feeds).values())
        check(wanted, run_again(runtime, conversion.data, runs)[1], kind)


@pytest.mark.parametrize(("steps", "calls"), [(16, 0), (17, 17)])
def test_weights_of_all_steps_stay_in_the_cache(steps: int, calls: int) -> None:
    """256 KB a step: XNNPACK packs the weights of each unrolled step."""
    model, _ = layer("LSTM", steps=steps, cells=128)
    assert onnxtfl.onnx_to_tflite(model, check=False).report.ops_after.get("IF", 0) == calls


def test_lengths_of_layers_in_one_kernel() -> None:
    for direction in ("forward", "reverse"):
        model, feeds = layer("LSTM", "Y_h", "Y_c", steps=200, given="B sequence_lens", direction=direction)
        check(list(run_onnx(model.SerializeToString(), feeds).values()), in_tflite(model, feeds), direction)
        assert "UNIDIRECTIONAL_SEQUENCE_LSTM" in onnxtfl.onnx_to_tflite(model, check=False).report.ops_after


@pytest.mark.parametrize("steps", [20, 200])
def test_layers_in_branches(steps: int) -> None:
    """A layer of a subgraph begins from its initial state too, however often that runs."""
    model, feeds = layer("LSTM", "Y_h", "Y_c", steps=steps)
    y, negated, whole = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in ("Y", "N", "Z"))
    branch = helper.make_graph(list(model.graph.node), "then", [], [y])
    other = helper.make_graph([helper.make_node("ReduceSum", ["X"], ["N"])], "else", [], [negated])
    node = helper.make_node("If", ["p"], ["Z"], then_branch=branch, else_branch=other)
    inputs = [*model.graph.input, helper.make_tensor_value_info("p", onnx.TensorProto.BOOL, [])]
    model.graph.CopyFrom(helper.make_graph([node], "g", inputs, [whole], model.graph.initializer))
    runs = [{"X": k * feeds["X"], "p": np.asarray(k != 2)} for k in range(4)]
    data = onnxtfl.onnx_to_tflite(model, check=False).data
    found = run_again("litert:builtin", data or b"", runs)
    for given, result in zip(runs, found, strict=True):
        check(list(run_onnx(model.SerializeToString(), given).values()), result, given["p"])


@pytest.mark.parametrize("runtime", ["litert", "litert:builtin", "litert:reference"])
@pytest.mark.parametrize("kind", ["LSTM", "RNN"])
def test_streaming(kind: str, runtime: str) -> None:
    """With lstm="fused" two runs of 5 steps are one run of 10 steps."""
    model, _ = layer(kind, steps=5)
    conversion = onnxtfl.onnx_to_tflite(model, lstm="fused", check=runtime == "litert")
    assert len(conversion.report.kept_states or ()) == len(model.graph.output) - 1
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "steps"
    x = np.random.default_rng(0).standard_normal((10, BATCH, FEATURES)).astype(np.float32)
    first, second = run_again(runtime, conversion.data or b"", [{"X": x[:5]}, {"X": x[5:]}])
    y, *states = run_onnx(model.SerializeToString(), {"X": x}).values()
    check([y, *states], [np.concatenate([first[0], second[0]]), *second[1:]], kind)


def test_layers_that_cannot_stream() -> None:
    """Not GRU, which has no kernel, nor backward layers, nor those with initial states."""
    for kind, variant in (("GRU", {}), ("LSTM", {"direction": "reverse"}), ("RNN", {"given": "B initial_h"})):
        model, feeds = layer(kind, **variant)
        conversion = onnxtfl.onnx_to_tflite(model, lstm="fused", check=False)
        assert conversion.report.kept_states == ()
        found = [array for _, array in run_tflite(conversion.data or b"", feeds)]
        check(list(run_onnx(model.SerializeToString(), feeds).values()), found, kind)


def in_onnx(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model lifted and written as ONNX again."""
    graph = inspect(model.SerializeToString(), "lifted", Options())
    target = OnnxTarget(21)
    PassManager(passes_for(target, Options())[2:], given=frozenset({"neutral"}), check=True).run(graph)
    file = io.BytesIO()
    writer.write(Model(graph), file, opset=21)
    return onnx.load_from_string(file.getvalue())


def test_layers_are_written_to_onnx() -> None:
    """As one op for each direction, with the attributes that are not the default."""
    variants = [
        (kind, {**variant, "direction": d}) for kind in GATES for variant in VARIANTS for d in ("forward", "reverse")
    ]
    for kind, variant in [*variants, *ATTRIBUTES, ("LSTM", {"activations": ["HardSigmoid", "Affine", "Softsign"]})]:
        model, feeds = layer(kind, **variant)
        written = in_onnx(model)
        assert kind in {node.op_type for node in written.graph.node}
        assert not {"Scan", "Loop"} & {node.op_type for node in written.graph.node}
        wanted, found = (list(run_onnx(m.SerializeToString(), feeds).values()) for m in (model, written))
        check(wanted, found, (kind, variant))


@pytest.mark.parametrize("kind", GATES)
def test_layers_in_both_directions_are_one_op(kind: str) -> None:
    names = ["HardSigmoid", "Tanh", "Tanh", "Sigmoid", "ScaledTanh", "Relu"]
    chosen = {"LSTM": names, "GRU": names[:2] * 2, "RNN": names[1:3]}[kind]
    parameters = {"activation_alpha": [0.3, 0.6], "activation_beta": [0.4, 0.7]} if kind != "RNN" else {}
    for variant in ({"given": ALL}, {"given": "B", "activations": chosen, **parameters}):
        model, feeds = layer(kind, direction="bidirectional", **variant)
        written = in_onnx(model)
        assert [node.op_type for node in written.graph.node] == [kind]
        wanted, found = (list(run_onnx(m.SerializeToString(), feeds).values()) for m in (model, written))
        check(wanted, found, (kind, variant))


def test_layers_come_back_from_tflite() -> None:
    for kind in ("LSTM", "RNN"):
        model, feeds = layer(kind, steps=200)
        data = onnxtfl.tflite_to_onnx(onnxtfl.onnx_to_tflite(model, check=False).data, check=False).data
        assert data is not None
        assert kind in {node.op_type for node in onnx.load_from_string(data).graph.node}
        check(list(run_onnx(model.SerializeToString(), feeds).values()), list(run_onnx(data, feeds).values()), kind)


def test_another_hidden_size() -> None:
    model, _ = layer("GRU")
    model.graph.node[0].attribute[0].i = CELLS + 1
    with pytest.raises(InvalidModelError, match="hidden_size is 7, but the recurrent weights are"):
        onnxtfl.onnx_to_tflite(model, check=False)


def test_unknown_activation() -> None:
    model, _ = layer("RNN", activations=["Gelu"])
    with pytest.raises(UnsupportedError, match="the activation Gelu"):
        onnxtfl.onnx_to_tflite(model, check=False)


@pytest.mark.parametrize(
    ("by_gate", "steps", "cells", "directions"), [(False, 5, 6, 1), (True, 5, 6, 1), (True, 150, 96, 2)]
)
def test_dynamically_quantized_weights(by_gate: bool, steps: int, cells: int, directions: int) -> None:
    """The weights are dequantized, and stay int8 in the file; ONNX Runtime also quantizes the inputs of products."""
    rng = np.random.default_rng(0)
    scale = rng.uniform(0.5, 1, (directions, 4 * cells) if by_gate else (directions,)).astype(np.float32) / (20 * cells)
    zero = np.full(scale.shape, 0 if by_gate else 3, np.int8)  # ONNX Runtime has no other with several scales
    constants = {
        "W": rng.integers(-127, 127, (directions, FEATURES, 4 * cells)).astype(np.int8),
        "R": rng.integers(-127, 127, (directions, cells, 4 * cells)).astype(np.int8),
        "B": rng.standard_normal((directions, 8 * cells)).astype(np.float32),
    } | {"ws": scale, "wz": zero, "rs": scale, "rz": zero}
    operands = ["X", "W", "R", "B", "", "", "", "", "ws", "wz", "rs", "rz"]
    direction = {1: "forward", 2: "bidirectional"}[directions]
    node = helper.make_node(
        "DynamicQuantizeLSTM", operands, ["Y"], domain="com.microsoft", hidden_size=cells, direction=direction
    )
    value = functools.partial(helper.make_tensor_value_info, elem_type=onnx.TensorProto.FLOAT)
    initializers = [numpy_helper.from_array(a, n) for n, a in constants.items()]
    x, y = value("X", shape=[steps, BATCH, FEATURES]), value("Y", shape=None)
    graph = helper.make_graph([node], "g", [x], [y], initializers)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    feeds = {"X": rng.standard_normal((steps, BATCH, FEATURES)).astype(np.float32)}
    check(list(run_onnx(model.SerializeToString(), feeds).values()), in_tflite(model, feeds), by_gate, 2e-2)
    if cells == CELLS:
        onnxtfl.onnx_to_tflite(model, check="require")
    if cells > CELLS:
        written = onnxtfl.onnx_to_tflite(model, check=False).data or b""
        assert len(written) < len(model.SerializeToString()) + 600 * steps


def test_the_initial_state_has_the_size_of_the_batch() -> None:
    """Of an input with an open batch too, so that a Squeeze of the result knows its axes."""
    import onnx
    from onnx import TensorProto, helper

    import onnxtfl

    weights = {"w": (1, 6, 3), "r": (1, 6, 2)}
    constants = [
        onnx.numpy_helper.from_array(np.random.default_rng(0).standard_normal(shape).astype(np.float32), name)
        for name, shape in weights.items()
    ]
    nodes = [
        helper.make_node("GRU", ["x", "w", "r", "", "", "h"], ["y", ""], hidden_size=2),
        helper.make_node("Squeeze", ["y"], ["z"]),
    ]
    specs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", (5, "batch", 3)), ("h", (1, 1, 2)), ("z", None))
    ]
    graph = helper.make_graph(nodes, "gru", specs[:2], specs[2:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert onnxtfl.onnx_to_tflite(model, check="require").report.outputs[0].shape == (5, 2)


@pytest.mark.parametrize("kind", ["LSTM", "RNN"])
def test_initial_states_of_an_open_batch(kind: str) -> None:
    """The batch of the input is known: a kernel's own state tensors have its size."""
    x = {"x": np.ones((STEPS, 1, FEATURES), np.float32)}
    x |= {name: np.full((1, 1, CELLS), 0.5, np.float32) for name in ("h", "c")[: COUNTS[kind] - 1]}
    random, rows = np.random.default_rng(0), GATES[kind] * CELLS
    shapes = {"w": (1, rows, FEATURES), "r": (1, rows, CELLS)}
    constants = [numpy_helper.from_array(random.standard_normal(s).astype(np.float32), n) for n, s in shapes.items()]
    results = ["y", "yh", "yc"][: COUNTS[kind]]
    operands = ["x", "w", "r", "", "", *list(x)[1:]]
    node = helper.make_node(kind, operands, results, hidden_size=CELLS)
    sizes = {"x": ("steps", 1, FEATURES), "h": (1, "n", CELLS), "c": (1, "m", CELLS)}
    inputs = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, sizes[name]) for name in x]
    outputs = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in results]
    graph = helper.make_graph([node], "layer", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8).SerializeToString()
    found = run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data or b"", x)
    for wanted, (_, got) in zip(run_onnx(model, x).values(), found, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
