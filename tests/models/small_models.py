"""Small ONNX models of each family, with random weights, for tests that damage a model."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper, parser

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
CNN = f"""{HEAD} cnn (float[1, 3, 8, 8] x) => (float[1, 5] y) {{
    c1 = Conv <pads = [1, 1, 1, 1]> (x, w_c1, b_c1)
    r1 = Relu (c1)
    c2 = Conv <pads = [1, 1, 1, 1]> (r1, w_c2, b_c2)
    s1 = Sigmoid (c2)
    a1 = Add (r1, s1)
    k1 = Concat <axis = 1> (a1, s1)
    p1 = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (k1)
    m1 = GlobalAveragePool (p1)
    f1 = Flatten (m1)
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
GRU = f"""{HEAD} loop (float[N, 2, 4] x) => (float[N, 2, 3] y) {{
    l, h = GRU <hidden_size = 6> (x, w_r, r_r, b_r)
    s = Squeeze (l, one)
    y = MatMul (s, w_y)
}}"""
CHOICE = f"""{HEAD} choice (float[2, 8] x) => (float[2, 8] y) {{
    r = Relu (x)
    g = Greater (r, zero)
    d = Sub (x, half)
    w = Where (g, r, d)
    m = ReduceSum <keepdims = 0> (x)
    c = Greater (m, zero)
    y = If (c) <
        then_branch = yes () => (float[2, 8] t) {{ t = MatMul (w, w_q) }},
        else_branch = no () => (float[2, 8] e) {{ e = Tanh (w) }}
    >
}}"""
TABLE = f"""{HEAD} table (int64[1, 6] i) => (float[1, 6, 8] y) {{
    e = Gather (w_e, i)
    n = LayerNormalization (e, g_n, b_n)
    y = MatMul (n, w_q)
}}"""
DETECTION = f"""{HEAD} detection (float[1, 20, 6] x) => (int64[M, 3] y) {{
    b = MatMul (x, w_b)
    p = Sigmoid (b)
    s = MatMul (x, w_s)
    t = Transpose <perm = [0, 2, 1]> (s)
    y = NonMaxSuppression <center_point_box = 1> (p, t, most, overlap)
}}"""
CONSTANTS = {
    "one": np.array([1]),
    "zero": np.float32(0),
    "half": np.float32(0.5),
    "most": np.array([20]),
    "overlap": np.array([0.4], np.float32),
}
SHAPES = {
    "w_c1": (4, 3, 3, 3),
    "b_c1": (4,),
    "w_c2": (4, 4, 3, 3),
    "b_c2": (4,),
    "w_g1": (8, 5),
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
    "w_r": (1, 18, 4),
    "r_r": (1, 18, 6),
    "b_r": (1, 36),
    "w_e": (5, 8),
    "g_n": (8,),
    "b_n": (8,),
    "w_b": (6, 4),
    "w_s": (6, 2),
}


def model(text: str) -> onnx.ModelProto:
    """A model of the text, with random weights of these shapes."""
    found, random = parser.parse_model(text), np.random.default_rng(5)
    for name in sorted({*SHAPES, *CONSTANTS}):
        if name in CONSTANTS:
            array = np.asarray(CONSTANTS[name])
        else:
            array = random.standard_normal(SHAPES[name]).astype(np.float32) / (20 if name == "w_e" else 2)
        if f" {name}" in text.replace("(", " "):
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


TEXTS = {
    "cnn": CNN,
    "transformer": TRANSFORMER,
    "lstm": LSTM,
    "gru": GRU,
    "choice": CHOICE,
    "table": TABLE,
    "detection": DETECTION,
}
MODELS = {**{name: model(text) for name, text in TEXTS.items()}, "int8": int8()}
"""Each by its name; "int8" is the convolutional network, quantized."""
