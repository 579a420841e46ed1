"""A recurrent layer of ONNX comes back from TFLite as one op, in whichever form it was written there."""

from __future__ import annotations

import io
from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest

from onnxtfl.options import Options
from onnxtfl.pipeline import onnx_to_tflite, tflite_to_onnx
from tests.harness.litert import Array, run_onnx
from tests.unit.test_recurrence import ALL, GATES, layer

FORMS = ({"steps": 2}, {"steps": 25}, {"steps": 150})
"""Written out, and as one kernel or (GRU) as a loop."""
OTHERS = 6
"""Most ops that are not the layer: reshapes, transposes and slices of its inputs and outputs."""
SELECTING = 4
"""More with lengths and initial states of run time: the last states of sequences of length 0 are 0."""


def there_and_back(model: onnx.ModelProto) -> onnx.ModelProto:
    tflite, back = io.BytesIO(), io.BytesIO()
    onnx_to_tflite(model, tflite, Options())
    tflite_to_onnx(tflite.getvalue(), back, Options())
    return onnx.load_from_string(back.getvalue())


def check(kind: str, *absent: str, **variant: Any) -> Counter[str]:
    """The ops of the model that comes back, one of which is the layer; it computes the same."""
    model, feeds = layer(kind, *absent, **variant)
    return compare(kind, model, feeds, variant)


def compare(kind: str, model: onnx.ModelProto, feeds: dict[str, Array], message: object) -> Counter[str]:
    back = there_and_back(model)
    found = Counter(node.op_type for node in back.graph.node)
    selecting = SELECTING if {"sequence_lens", "initial_h"} <= feeds.keys() else 0
    assert found[kind] == 1 and found.total() <= 1 + OTHERS + selecting, (message, found)
    assert not found.keys() & {"Loop", "Scan", "If"}
    wanted, got = (run_onnx(m.SerializeToString(), feeds) for m in (model, back))
    for name, array in wanted.items():
        np.testing.assert_allclose(got[name], array, rtol=0, atol=2e-5, err_msg=str(message))
    return found


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", GATES)
def test_forms(kind: str, direction: str) -> None:
    for form in FORMS:
        check(kind, direction=direction, **form)
    check(kind, direction=direction, batch=1)


@pytest.mark.parametrize("kind", GATES)
def test_two_sequences_of_many_cells(kind: str) -> None:
    for direction, steps, cells in (("bidirectional", 3, 80), ("forward", 12, 512 if kind == "RNN" else 256)):
        form = {"linear_before_reset": 1} if kind == "GRU" else {}
        model, feeds = layer(kind, batch=2, direction=direction, steps=steps, cells=cells, **form)
        compare(kind, model, feeds, direction)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", GATES)
def test_operands(kind: str, direction: str) -> None:
    for given, inputs in (("", ""), (ALL, "initial_h initial_c sequence_lens"), ("B sequence_lens", "sequence_lens")):
        check(kind, direction=direction, given=given, inputs=inputs)
    check(kind, "Y", direction=direction)
    check(kind, "Y_h", "Y_c", direction=direction, given="B sequence_lens", inputs="sequence_lens")


@pytest.mark.parametrize("kind", GATES)
def test_long_sequences_with_lengths(kind: str) -> None:
    for direction in ("forward", "reverse"):
        for absent in ((), ("Y_h", "Y_c")):
            check(kind, *absent, direction=direction, steps=70, given="B sequence_lens", inputs="sequence_lens")


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_loops_over_blocks_of_steps(direction: str) -> None:
    """Long sequences are several steps in each round of a loop, and the steps that are left."""
    for steps in (307, 320):
        check("GRU", direction=direction, steps=steps)
    check("GRU", direction=direction, steps=307, batch=1, given="B initial_h", inputs="initial_h")
    check("GRU", direction=direction, steps=307, linear_before_reset=1)
    both = direction == "bidirectional"
    check("LSTM", direction=direction, steps=307, activations=["Sigmoid", "Relu", "Tanh"] * (2 if both else 1))


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_loops_over_blocks_with_lengths_stay(direction: str) -> None:
    """The steps that are left after the last block are no layer: sequences may be longer than these."""
    model, feeds = layer("GRU", direction=direction, steps=307, given="B sequence_lens", inputs="sequence_lens")
    back = there_and_back(model)
    wanted, got = (run_onnx(m.SerializeToString(), feeds) for m in (model, back))
    for name, array in wanted.items():
        np.testing.assert_allclose(got[name], array, rtol=0, atol=2e-5)


@pytest.mark.parametrize("kind", GATES)
def test_unknown_length(kind: str) -> None:
    for direction in ("forward", "reverse") if kind != "GRU" else ("forward",):
        model, feeds = layer(kind, direction=direction)
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "steps"
        compare(kind, model, feeds, direction)


def test_attributes() -> None:
    check("LSTM", clip=0.3)
    check("LSTM", input_forget=1)
    check("LSTM", given="B P")
    check("GRU", linear_before_reset=1)
    check("GRU", linear_before_reset=1, given="")
    for name in ("Relu", "Softsign"):
        check("RNN", activations=[name])
    check("GRU", activations=["HardSigmoid", "Relu"])
    check("LSTM", activations=["Sigmoid", "Relu", "Tanh"])


def test_stacked_layers_are_two_ops() -> None:
    """The output of a layer is the input of the next."""
    first, feeds = layer("GRU", "Y_h")
    rng = np.random.default_rng(1)
    cells = 6
    weights = [rng.standard_normal((1, 3 * cells, cells)).astype(np.float32) * 0.3 for _ in range(2)]
    graph = first.graph
    constants = {"W2": weights[0], "R2": weights[1], "axis": np.asarray([1])}
    graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in constants.items())
    graph.node.append(onnx.helper.make_node("Squeeze", ["Y", "axis"], ["S"]))
    graph.node.append(onnx.helper.make_node("GRU", ["S", "W2", "R2"], ["Z", ""], hidden_size=cells))
    graph.output[0].name = "Z"
    back = there_and_back(first)
    assert Counter(node.op_type for node in back.graph.node)["GRU"] == 2
    wanted, got = (run_onnx(m.SerializeToString(), feeds)["Z"] for m in (first, back))
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-5)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("kind", GATES)
def test_one_step_with_states_as_inputs(kind: str, batch: int) -> None:
    given = "B initial_h initial_c" if kind == "LSTM" else "B initial_h"
    check(kind, steps=1, batch=batch, given=given, inputs=given.removeprefix("B "))
