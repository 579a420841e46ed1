"""Models that are broken at one node: the check fails, and `per_layer` names the node.

`tools/broken_models.py` does the same with many more, of the corpus.
"""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import onnxtfl
from tests.models.broken_models import Break, OnnxBreaker, TfliteBreaker

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
CNN = f"""{HEAD} cnn (float[1, 3, 8, 8] x) => (float[1, 5] y) {{
    c1 = Conv <pads = [1, 1, 1, 1]> (x, w_c1, b_c1)
    r1 = Relu (c1)
    c2 = Conv <pads = [1, 1, 1, 1]> (r1, w_c2, b_c2)
    s1 = Sigmoid (c2)
    a1 = Add (r1, s1)
    k1 = Concat <axis = 1> (a1, s1)
    p1 = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (k1)
    f1 = Flatten (p1)
    g1 = Gemm (f1, w_g1, b_g1)
    y = Softmax (g1)
}}"""
TRANSFORMER = f"""{HEAD} block (float[1, 8, 8] x) => (float[1, 8, 8] y) {{
    q = MatMul (x, w_q)
    k = MatMul (x, w_k)
    v = MatMul (x, w_v)
    t = Transpose <perm = [0, 2, 1]> (k)
    s = MatMul (q, t)
    p = Softmax (s)
    o = MatMul (p, v)
    h = Add (x, o)
    m = ReduceMean <axes = [-1]> (h)
    d = Sub (h, m)
    f = MatMul (d, w_f)
    e = Add (f, b_f)
    g = Relu (e)
    y = Add (h, g)
}}"""
LSTM = f"""{HEAD} layer (float[5, 2, 4] x) => (float[5, 2, 3] y) {{
    l, h, c = LSTM <hidden_size = 6> (x, w_l, r_l, b_l)
    s = Squeeze (l, one)
    y = MatMul (s, w_y)
}}"""
SHAPES = {
    "w_c1": (4, 3, 3, 3),
    "b_c1": (4,),
    "w_c2": (4, 4, 3, 3),
    "b_c2": (4,),
    "w_g1": (128, 5),
    "b_g1": (5,),
    "w_q": (8, 8),
    "w_k": (8, 8),
    "w_v": (8, 8),
    "w_f": (8, 8),
    "b_f": (8,),
    "w_l": (1, 24, 4),
    "r_l": (1, 24, 6),
    "b_l": (1, 48),
    "w_y": (6, 3),
}


def model(text: str) -> onnx.ModelProto:
    """A model of the text, with random weights of these shapes."""
    found, random = parser.parse_model(text), np.random.default_rng(5)
    used = {name for node in found.graph.node for name in node.input}
    for name in sorted(used & {*SHAPES, "one"}):
        array = np.array([1]) if name == "one" else random.standard_normal(SHAPES[name]).astype(np.float32) / 2
        found.graph.initializer.append(numpy_helper.from_array(array, name))
    for node in found.graph.node:
        node.name = f"node_{node.output[0]}"
    return found


def int8() -> onnx.ModelProto:
    """The convolutional network with int8 weights and activations, between DequantizeLinear and QuantizeLinear."""
    found = model(CNN)
    nodes, renamed = list(found.graph.node), dict[str, str]()
    del found.graph.node[:]

    def constant(name: str, array: np.ndarray) -> str:
        found.graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    def quantized(name: str, scale: float) -> str:
        grid = [constant(f"{name}_scale", np.float32(scale)), constant(f"{name}_zero", np.int8(0))]
        for op, before, after in (("Quantize", name, f"{name}_q"), ("Dequantize", f"{name}_q", f"{name}_d")):
            node = onnx.helper.make_node(f"{op}Linear", [before, *grid], [after], name=f"{op}_{name}")
            found.graph.node.append(node)
        return f"{name}_d"

    renamed["x"] = quantized("x", 0.03)
    for node in nodes:
        for i, name in enumerate(node.input):
            if name.startswith("w_") and name not in renamed:
                weights = next(t for t in found.graph.initializer if t.name == name)
                stored = np.clip(np.round(numpy_helper.to_array(weights) / 0.015), -127, 127).astype(np.int8)
                grid = [constant(f"{name}_scale", np.float32(0.015)), constant(f"{name}_zero", np.int8(0))]
                operands = [constant(f"{name}_q", stored), *grid]
                found.graph.node.append(onnx.helper.make_node("DequantizeLinear", operands, [f"{name}_d"]))
                renamed[name] = f"{name}_d"
            node.input[i] = renamed.get(name, name)
        found.graph.node.append(node)
        if node.output[0] != "y":
            renamed[node.output[0]] = quantized(node.output[0], 1 / 128 if node.op_type == "Sigmoid" else 0.06)
    return found


MODELS = {"cnn": model(CNN), "transformer": model(TRANSFORMER), "lstm": model(LSTM), "int8": int8()}
CASES = [  # model, how the pair is made, kind of break, op
    ("cnn", "onnx-!onnx", "a few weights", "Conv"),
    ("cnn", "onnx-!onnx", "no activation", "Sigmoid"),
    ("cnn", "onnx-!converted", "pads", "Conv"),
    ("cnn", "onnx-!converted", "Sub for Add", "Add"),
    ("cnn", "onnx-!converted", "order", "Concat"),
    ("cnn", "!onnx-tflite", "no bias", "Gemm"),
    ("cnn", "onnx-!tflite", "a few weights", "CONV_2D"),
    ("cnn", "onnx-!tflite", "beta", "SOFTMAX"),
    ("cnn", "onnx-!tflite", "no activation", "CONV_2D"),
    ("transformer", "onnx-!onnx", "perm", "Transpose"),
    ("transformer", "onnx-!converted", "axis", "Softmax"),
    ("transformer", "onnx-!converted", "all weights", "MatMul"),
    ("transformer", "onnx-!tflite", "a few weights", "FULLY_CONNECTED"),
    ("lstm", "onnx-!onnx", "gates", "LSTM"),
    ("lstm", "onnx-!converted", "a few weights", "LSTM"),
    ("lstm", "onnx-!converted", "all weights", "MatMul"),
    ("int8", "onnx-!tflite", "no bias", "CONV_2D"),
    ("int8", "onnx-!tflite", "all weights", "CONV_2D"),
    ("int8", "onnx-!onnx", "scale", "DequantizeLinear"),
    ("int8", "onnx-!converted", "no activation", "Sigmoid"),
]


def broken(breaker: OnnxBreaker | TfliteBreaker, kind: str, op: str) -> tuple[object, Break]:
    """A copy that is broken in this way at the last node of this op where that can be."""
    for found, index in reversed(list(breaker.ways())):
        made = breaker.broken(kind, index) if found == kind else None
        if made is not None and made[1].op == op:
            return made
    raise AssertionError(f"{op} cannot be broken: {kind}")


def pair(name: str, how: str, kind: str, op: str, folder: Path) -> tuple[Path, Path, Break]:
    """The files of a pair, one of which is broken."""
    random = np.random.default_rng(0)
    source, a, b = MODELS[name], folder / "a.onnx", folder / ("b.onnx" if how == "onnx-!onnx" else "b.tflite")
    onnx.save(source, a)
    if how == "onnx-!tflite":
        data = onnxtfl.onnx_to_tflite(source, check=False).data or b""
        wrong, what = broken(TfliteBreaker(data, random), kind, op)
        assert isinstance(wrong, bytes)
        b.write_bytes(wrong)
        return a, b, what
    wrong, what = broken(OnnxBreaker(source, random), kind, op)
    assert isinstance(wrong, onnx.ModelProto)
    if how == "onnx-!onnx":
        onnx.save(wrong, b)
    elif how == "!onnx-tflite":
        onnx.save(wrong, a)
    if how != "onnx-!onnx":
        onnxtfl.onnx_to_tflite(wrong if how == "onnx-!converted" else source, b, check=False)
    return a, b, what


@pytest.mark.parametrize(("name", "how", "kind", "op"), CASES, ids=lambda part: str(part).replace(" ", "_"))
def test_the_broken_node_is_named(name: str, how: str, kind: str, op: str, tmp_path: Path) -> None:
    a, b, what = pair(name, how, kind, op, tmp_path)
    report = onnxtfl.check(a, b, per_layer=True)
    assert report.status == "failed", report
    first = report.first_difference
    assert first is not None
    assert what.node in {first.node, first.b}, first
    assert first.error > 10 * first.error_in
    assert str(first) in report.notes
