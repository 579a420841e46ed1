"""The record of a conversion: each source tensor that still exists, and what made each target op."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import onnxtfl
from onnxtfl.ir.origin import Origin
from onnxtfl.ir.record import Record
from tests.harness.litert import run_onnx, run_tflite

CNN = """<ir_version: 8, opset_import: ["" : 17]>
main (float[1, 3, 8, 8] x) => (float[1, 16] y) {
    conv = Conv <pads = [1, 1, 1, 1]> (x, w, b)
    relu = Relu (conv)
    pool = MaxPool <kernel_shape = [4, 4], strides = [4, 4]> (relu)
    flat = Flatten (pool)
    y = Softmax (flat)
}"""


def cnn() -> onnx.ModelProto:
    model = parser.parse_model(CNN)
    rng = np.random.default_rng(0)
    for name, shape in (("w", (4, 3, 3, 3)), ("b", (4,))):
        array = rng.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    for node in model.graph.node:
        node.name = f"node_{node.output[0]}"
    return model


def test_what_a_cnn_becomes() -> None:
    record = onnxtfl.onnx_to_tflite(cnn()).record
    assert record is not None
    where = {t.source: t for t in record.tensors}
    assert where["relu"].permutation == (0, 2, 3, 1)
    assert {t.permutation for t in record.tensors if t.source == "x"} == {None, (0, 2, 3, 1)}
    assert where["w"].permutation == (0, 2, 3, 1) and where["b"].permutation is None
    assert "conv" not in where, "it is inside the convolution that applies the activation"
    made = {op.op: op for op in record.ops}
    assert made["CONV_2D"].sources == ("node_conv", "node_relu")
    assert made["CONV_2D"].made_by[0].startswith("convolution.") and made["CONV_2D"].made_by[-1] == "fuse activations"
    assert made["MAX_POOL_2D"].sources == ("node_pool",)
    assert Record.from_json(record.to_json()) == record


def test_each_tensor_holds_what_the_record_says() -> None:
    """Run both models up to a tensor and compare as the entry says."""
    model = cnn()
    x = np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float32)
    record = onnxtfl.onnx_to_tflite(model).record
    assert record is not None
    tried = 0
    for entry in record.tensors:
        if entry.source in ("x", "w", "b"):
            continue
        part = onnxtfl.onnx_to_tflite(model, outputs=[entry.source], check=False)
        assert part.data is not None
        ((_, got),) = run_tflite(part.data, {"x": x})
        extended = onnx.ModelProto.FromString(model.SerializeToString())
        extended.graph.output.append(onnx.ValueInfoProto(name=entry.source))
        wanted = run_onnx(extended.SerializeToString(), {"x": x})[entry.source]
        assert entry.permutation is None or len(entry.permutation) == wanted.ndim
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
        tried += 1
    assert tried >= 3


def test_reshapes_that_go_leave_their_tensors_names() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    main (float[2, 12] x) => (float[24] z) {
        h = Exp (x)
        s = Constant <value_ints = [2, 3, 4]> ()
        r = Reshape (h, s)
        t = Constant <value_ints = [24]> ()
        f = Reshape (r, t)
        z = Neg (f)
    }"""
    record = onnxtfl.onnx_to_tflite(parser.parse_model(text), check=False).record
    assert record is not None
    where = {t.source: t for t in record.tensors}
    assert where["r"].target == where["h"].target and where["r"].shape == (2, 12) and where["h"].shape is None


def test_other_text_is_no_record() -> None:
    with pytest.raises(ValueError, match="not the record"):
        Record.from_json('{"tensors": [{"colour": 1}], "ops": []}')


SEQUENCE = """<ir_version: 8, opset_import: ["" : 17]>
main (float[1, 3, 8] x) => (float[1, 4, 8] z, float[1, 4, 8] y) {
    conv = Conv <pads = [1, 1]> (x, w)
    y = Relu (conv)
    z = Conv <pads = [1, 1]> (y, v)
}"""


def test_a_tensor_in_two_shapes_is_named_in_both() -> None:
    """The second convolution reads the result of the first in four axes, in which the check has to compare it."""
    model = parser.parse_model(SEQUENCE)
    random = np.random.default_rng(0)
    for name, shape in (("w", (4, 3, 3)), ("v", (4, 4, 3))):
        model.graph.initializer.append(numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), name))
    conversion = onnxtfl.onnx_to_tflite(model)
    assert conversion.record is not None
    (wide,) = (t for t in conversion.record.tensors if t.source == "y" and t.shape is not None and len(t.shape) == 4)
    assert wide.permutation is not None and sorted(wide.permutation) == [0, 1, 2, 3]
    assert sorted(wide.shape) == [1, 1, 4, 8] and [wide.shape[p] for p in wide.permutation][-1] == 4
    assert "y" in {t.source for t in conversion.record.tensors if t.shape is None}


@pytest.mark.parametrize(
    ("permutation", "before", "after", "found"),
    [
        ((0, 2, 1), (1, 8, 4), (1, 1, 8, 4), ((1, 1, 4, 8), (0, 1, 3, 2))),
        ((0, 2, 1), (2, 8, 4), (2, 8, 1, 4), ((1, 2, 4, 8), (1, 3, 0, 2))),
        ((0, 3, 2, 1), (2, 1, 8, 4), (2, 8, 4), ((2, 4, 8), (0, 2, 1))),
        ((0, 2, 1), (2, 8, 4), (16, 4), None),
        ((0, 2, 1), (2, 4, 4), (2, 16), None),
        (None, (2, 8, 4), (16, 4), ((16, 4), None)),
    ],
)
def test_origins_of_reshaped_values(permutation, before, after, found) -> None:  # type: ignore[no-untyped-def]
    moved = Origin("a", permutation).reshaped(after, before)
    assert (None if moved is None else (moved.shape, moved.permutation)) == found
