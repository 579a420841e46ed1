"""The text form reads back as what was printed."""

import pytest

from onnxtfl.ir.text import TextError, parse_graph, print_graph

TEXTS = {
    "dims": "graph main(%x: tensor<1x[2*n + 1]x[(h + 1)//2]xfloat32>) -> (%x) {\n}\n",
    "unknown rank": "graph main(%x: tensor<*xfloat32>) -> (%x) {\n}\n",
    "quantized": ("graph main(%x: tensor<2xfloat32, quant<int8 axis=0 0.1:0 0.25:-3>>) -> (%x) {\n}\n"),
    "other types": (
        "graph main(%x: sequence<tensor<2xstring>>, %y: optional<tensor<float32>>, %z: tuple<tensor<bool>, "
        "resource<variable>>) -> (%x, %y, %z) {\n}\n"
    ),
    "foreign": (
        'graph main(%"a/b:0": tensor<2xfloat32>) -> (%y) {\n'
        "  %1 = constant tensor<2xint64> [1, -1]\n"
        '  %y = onnx.Foo@11@com.x(%"a/b:0", _, %1) {a = [1, 2.5, "s"], b = true, c = none, d = !int8, '
        'e = data tensor<2xfloat32> [1.5, inf], f = hex "00ff", g = type tensor<2xint4>} : ?\n'
        "}\n"
    ),
    "subgraph": (
        "graph main(%c: tensor<bool>, %x: tensor<2xfloat32>) -> (%y) {\n"
        "  %y = onnx.If@16(%c, %x) {then_branch = graph then(%v: tensor<2xfloat32>) -> (%v) {\n"
        "  }} : tensor<2xfloat32>\n"
        "}\n"
    ),
    "state": (
        "graph main(%x: tensor<2xfloat32>) -> (%y) {\n"
        "  state %h: tensor<2xfloat32> -> %y = tensor<2xfloat32> [0.0, 1.0]\n"
        "  %y = onnx.Add@14(%h, %x) : tensor<2xfloat32>\n"
        "}\n"
    ),
    "without results": (
        "graph main(%x: tensor<2xfloat32>) -> (%x) {\n  tfl.A@1(%x) {a = 1}\n  tfl.B@1()\n  %y = tfl.C@1() : ?\n}\n"
    ),
    "strings": 'graph main() -> (%s) {\n  %s = constant tensor<2xstring> ["a", "\\u00e9"]\n}\n',
}


@pytest.mark.parametrize("name", TEXTS)
def test_what_is_printed_reads_back(name: str) -> None:
    assert print_graph(parse_graph(TEXTS[name])) == TEXTS[name]


def test_types_of_neutral_ops_are_inferred() -> None:
    graph = parse_graph("graph main(%x: tensor<2x3xfloat32>) -> (%y) {\n %y = Transpose(%x) {permutation = [1, 0]}\n}")
    assert str(graph.outputs[0].type) == "tensor<3x2xfloat32>"


@pytest.mark.parametrize(
    "text", ["", "graph", "graph main(%x: tensor<2xfloat33>) -> () {\n}", "graph m() -> (%y) {\n}"]
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_graph(text)


def test_an_unknown_op_is_named() -> None:
    with pytest.raises(TextError, match="line 2: unknown op 'Frob'"):
        parse_graph("graph m() -> () {\n %a = Frob()\n}")


def test_names_of_the_document() -> None:
    text = (
        "graph main(%x: tensor<2x3xfloat32>) -> (%v, %i) {\n"
        "  %k = Constant tensor<1xint64> [2]\n"
        "  %v, %i = Topk(%x, %k) {axis = 1, largest = true, sorted = true}"
        " : tensor<2x2xfloat32>, tensor<2x2xint64>\n}\n"
    )
    graph = parse_graph(text)
    assert next(iter(graph.nodes)).op.name == "TopK"
    assert "Topk(" in print_graph(graph, documented=True) and "Constant tensor" in print_graph(graph, documented=True)
    assert "TopK(" in print_graph(graph) and "constant tensor" in print_graph(graph)
    assert print_graph(parse_graph(print_graph(graph, documented=True))) == print_graph(graph)


def test_the_document_calls_only_a_convolution_with_bias_otherwise() -> None:
    start = "graph main(%x: tensor<1x2x4x4xfloat32>, %w: tensor<3x2x1x1xfloat32>, %b: tensor<3xfloat32>) -> (%y) {\n"
    spatial = ", ".join(f"{side}_spatial_dimensions = [2, 3]" for side in ("input", "kernel", "output"))
    numbers = f"{{{spatial}, window_strides = [1, 1], padding = [0, 0, 0, 0], rhs_dilation = [1, 1]}}"
    for operands, name in (("%x, %w", "Conv"), ("%x, %w, %b", "ConvBias")):
        text = f"{start} %y = {name}({operands}) {numbers}\n}}\n"
        assert f"= {name}(" in print_graph(parse_graph(text), documented=True)
