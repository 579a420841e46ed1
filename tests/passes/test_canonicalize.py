"""Canonical forms: what does nothing goes, what says the same is said one way."""

import pytest

from onnxtfl.ir.text import parse_graph
from onnxtfl.passes.canonical.canonicalize import CANONICAL
from tests.passes.helpers import op_counts, simplify, transformed

NOTHING = {
    "transposes that undo each other": (
        "%a = Transpose(%x) {permutation = [1, 2, 0]}\n %y = Transpose(%a) {permutation = [2, 0, 1]}"
    ),
    "reshape to the same shape": "%s = constant tensor<3xint64> [2, 3, 4]\n %y = Reshape(%x, %s)",
    "reshape there and back": (
        "%s = constant tensor<2xint64> [6, 4]\n %t = constant tensor<3xint64> [2, 3, 4]\n"
        " %a = Reshape(%x, %s)\n %y = Reshape(%a, %t)"
    ),
    "convert to the same type": "%y = Convert(%x) {dtype = !float32}",
    "convert to a wider type and back": "%a = Convert(%x) {dtype = !float64}\n %y = Convert(%a) {dtype = !float32}",
    "broadcast to the same shape": "%s = constant tensor<3xint64> [2, 3, 4]\n %y = BroadcastTo(%x, %s)",
    "plus zero": "%z = constant tensor<float32> [0.0]\n %y = Add(%z, %x)",
    "times one": "%z = constant tensor<1xfloat32> [1.0]\n %y = Mul(%x, %z)",
    "slice of everything": (
        "%s = constant tensor<3xint64> [0, 0, 0]\n %e = constant tensor<3xint64> [2, 3, 4]\n"
        " %t = constant tensor<3xint64> [1, 1, 1]\n %y = Slice(%x, %s, %e, %t)"
    ),
    "concatenation of one": "%y = Concatenate(%x) {axis = 1}",
    "all parts of a split": (
        "%a, %b, %c, %d = Split(%x, _) {axis = 2, count = 4}\n %y = Concatenate(%a, %b, %c, %d) {axis = 2}"
    ),
    "a split with parts of nothing": (
        "%s = constant tensor<3xint64> [0, 4, 0]\n %a, %y, %b = Split(%x, %s) {axis = 2, count = 0}"
    ),
    "pad by nothing": "%p = constant tensor<3x2xint64> [0, 0, 0, 0, 0, 0]\n %y = Pad(%x, %p)",
}


@pytest.mark.parametrize("name", NOTHING)
def test_nothing_is_left_of(name: str) -> None:
    graph = transformed(f"graph main(%x: tensor<2x3x4xfloat32>) -> (%y) {{\n {NOTHING[name]}\n}}", simplify)
    assert op_counts(graph) == {}


def test_sizes_that_become_constant_are_known() -> None:
    """Also of what is computed from a tensor of these sizes. (Expand in the definition of ONNX's Attention.)"""
    text = """graph main(%x: tensor<2x1x4xfloat32>, %z: tensor<2x[n]x4xfloat32>) -> (%y, %w) {
      %no = constant tensor<1xbool> [false]
      %a = constant tensor<3xint64> [2, 5, 4]
      %b = constant tensor<3xint64> [2, 3, 4]
      %s = Select(%no, %a, %b)
      %r = BroadcastTo(%x, %s)
      %y = Exp(%r)
      %w = Exp(%z)
    }"""
    graph = transformed(text, simplify)
    assert graph.outputs[0].shape == (2, 3, 4)
    assert not graph.outputs[1].tensor_type.is_static


@pytest.mark.parametrize(("old", "new"), [("", "1"), ("6", "1x6"), ("[n]", "1x1x[n]"), ("[n]x[m]", "1x[n]x[m]")])
def test_axes_that_a_broadcast_adds_stay(old: str, new: str) -> None:
    """Where no operand spreads to them."""
    old, new = (f"{sizes}x" if sizes else "" for sizes in (old, new))
    text = f"""graph main(%x: tensor<{old}float32>, %s: tensor<{new}float32>) -> (%y) {{
      %k = Shape(%s)
      %r = BroadcastTo(%x, %k)
      %y = Exp(%r)
    }}"""
    graph = transformed(text, simplify)
    assert str(graph.outputs[0].type) == f"tensor<{new}float32>"


def test_ends_keep_a_conversion_that_loses() -> None:
    text = """graph main(%x: tensor<3xfloat32>) -> (%y) {
      %a = Convert(%x) {dtype = !int32}
      %y = Convert(%a) {dtype = !float32}
    }"""
    assert op_counts(transformed(text, simplify)) == {"Convert": 2}


def test_a_zero_that_broadcasts_is_not_dropped() -> None:
    text = """graph main(%x: tensor<1x3xfloat32>) -> (%y) {
      %z = constant tensor<2x1xfloat32> [0.0, 0.0]
      %y = Add(%x, %z)
    }"""
    graph = transformed(text, simplify)
    assert graph.outputs[0].shape == (2, 3)


def test_moving_unit_axes_is_a_reshape() -> None:
    text = """graph main(%x: tensor<[n]x1x5xfloat32>) -> (%y) {
      %y = Transpose(%x) {permutation = [0, 2, 1]}
    }"""
    assert op_counts(transformed(text, simplify)) == {"Reshape": 1}


def test_broadcasts_into_arithmetic_go() -> None:
    text = """graph main(%x: tensor<1x3xfloat32>, %z: tensor<2x3xfloat32>) -> (%y) {
      %s = constant tensor<2xint64> [2, 3]
      %a = BroadcastTo(%x, %s)
      %y = Add(%a, %z)
    }"""
    assert op_counts(transformed(text, simplify)) == {"Add": 1}


def test_shape_arithmetic_folds() -> None:
    text = """graph main(%x: tensor<[n]x3x4xfloat32>) -> (%y) {
      %s = Shape(%x)
      %z = constant tensor<int64> [0]
      %n = Gather(%s, %z) {axis = 0}
      %one = constant tensor<1xint64> [1]
      %n1 = Reshape(%n, %one)
      %m = constant tensor<1xint64> [-1]
      %t = Concatenate(%n1, %m) {axis = 0}
      %y = Reshape(%x, %t)
    }"""
    graph = transformed(text, simplify)
    assert op_counts(graph)["Reshape"] >= 1
    assert str(graph.outputs[0].type) == "tensor<[n]x12xfloat32>"


def test_constants_fold_but_do_not_blow_up() -> None:
    text = """graph main(%x: tensor<1xfloat32>) -> (%y, %z) {
      %a = constant tensor<2xfloat32> [1.0, 2.0]
      %b = Add(%a, %a)
      %y = Mul(%b, %x)
      %c = constant tensor<1xfloat32> [3.0]
      %s = constant tensor<1xint64> [100000]
      %d = BroadcastTo(%c, %s)
      %z = Mul(%d, %x)
    }"""
    graph = transformed(text, simplify)
    assert op_counts(graph)["Add"] == 0
    assert op_counts(graph)["BroadcastTo"] == 1


def test_the_places_of_nonzero_constants_fold() -> None:
    """How many there are is no size before that; PyTorch repeats elements this way."""
    graph = transformed(
        """graph main(%x: tensor<4xfloat32>) -> (%y) {
         %c = constant tensor<4xbool> [true, false, true, true]
         %n = NonZero(%c)
         %s = constant tensor<1xint64> [-1]
         %i = Reshape(%n, %s)
         %y = Gather(%x, %i) {axis = 0}
        }""",
        simplify,
    )
    assert op_counts(graph) == {"Gather": 1} and graph.outputs[0].shape == (3,)


def test_equal_nodes_become_one() -> None:
    text = """graph main(%x: tensor<3xfloat32>) -> (%y) {
      %a = Exp(%x)
      %b = Exp(%x)
      %y = Mul(%a, %b)
    }"""
    assert op_counts(transformed(text, simplify)) == {"Exp": 1, "Mul": 1}


def test_random_numbers_are_drawn_twice() -> None:
    from onnxtfl.ir.text import parse_graph

    graph = parse_graph("""graph main(%x: tensor<3xfloat32>) -> (%y, %z) {
      %y = onnx.RandomNormalLike@1(%x) : tensor<3xfloat32>
      %z = onnx.RandomNormalLike@1(%x) : tensor<3xfloat32>
    }""")
    simplify(graph)
    assert sum(op_counts(graph).values()) == 2


@pytest.mark.parametrize(("number", "op"), [(1.0, "Rsqrt"), (2.0, "Sqrt")])
def test_one_over_a_root_is_one_op(number: float, op: str) -> None:
    """PyTorch writes torch.rsqrt as Sqrt and Reciprocal; TFLite has RSQRT."""
    text = f"""graph main(%x: tensor<2x3xfloat32>) -> (%y) {{
      %o = constant tensor<float32> [{number}]
      %r = Sqrt(%x)
      %y = Div(%o, %r)
    }}"""
    assert op_counts(transformed(text, simplify))[op] == 1


def test_one_over_a_root_beside_quantized_values_stays() -> None:
    """The integer RSQRT of TFLite refuses 0 at run time."""
    text = """graph main(%x: tensor<2x3xint8>) -> (%y) {
      %s = constant tensor<float32> [0.5]
      %z = constant tensor<int8> [0]
      %o = constant tensor<float32> [1.0]
      %d = DequantizeLinear(%x, %s, %z)
      %r = Sqrt(%d)
      %y = Div(%o, %r)
    }"""
    assert "Rsqrt" not in op_counts(transformed(text, simplify))


@pytest.mark.parametrize(("part", "operand"), [("Real", "%x"), ("Imag", "%y")])
def test_parts_of_a_complex_number(part: str, operand: str) -> None:
    text = (
        "graph main(%x: tensor<3xfloat32>, %y: tensor<3xfloat32>) -> (%z) {\n"
        f" %c = Complex(%x, %y)\n %p = {part}(%c)\n %z = Neg(%p)\n}}"
    )
    graph = transformed(text, simplify)
    assert op_counts(graph) == {"Neg": 1}
    assert graph.last is not None and graph.last.operand(0).name == operand.strip("%")


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_one_element_is_not_resized_for_an_elementwise_op(mode: str) -> None:
    text = f"""graph main(%x: tensor<1x1x1x2xfloat32>, %z: tensor<1x3x4x2xfloat32>) -> (%y) {{
      %s = constant tensor<2xint64> [3, 4]
      %r = Resize(%x, %s) {{dims = [1, 2], mode = "{mode}"}}
      %y = Add(%r, %z)
    }}"""
    assert op_counts(transformed(text, simplify)) == {"Add": 1}


@pytest.mark.parametrize(("read", "left"), [("%a, %b, %z", {"Concatenate"}), ("%b, %a, %z", {"Concatenate", "Split"})])
def test_a_split_is_joined_as_a_whole(read: str, left: set[str]) -> None:
    text = f"""graph main(%x: tensor<1x4x3xfloat32>, %z: tensor<1x2x3xfloat32>) -> (%y) {{
      %a, %b = Split(%x) {{axis = 1, count = 2}}
      %y = Concatenate({read}) {{axis = -2}}
    }}"""
    assert set(op_counts(transformed(text, simplify))) == left


def test_a_split_is_requantized_as_a_whole() -> None:
    part, found = ("tensor<1x2x3xfloat32, quant<int8 0.5:3>>", "tensor<1x2x3xfloat32, quant<int8 0.75:1>>")
    text = f"""graph main(%x: tensor<1x4x3xfloat32, quant<int8 0.5:3>>, %z: {found}) -> (%y, %b) {{
      %a, %b = Split(%x) {{axis = 1, count = 2}} : {part}, {part}
      %c = Convert(%a) {{dtype = !float32}} : {found}
      %d = Convert(%b) {{dtype = !float32}} : {found}
      %y = Concatenate(%c, %d, %z) {{axis = 1}} : tensor<1x6x3xfloat32, quant<int8 0.75:1>>
    }}"""
    graph = parse_graph(text)
    CANONICAL.apply(graph)
    assert op_counts(graph) == {"Split": 1, "Convert": 1, "Concatenate": 1}
    assert graph.outputs[0].tensor_type.quantization == graph.inputs[1].tensor_type.quantization


def test_parts_of_two_scales_are_not_requantized_as_a_whole() -> None:
    part, found = ("tensor<1x2x3xfloat32, quant<int8 0.5:3>>", "tensor<1x2x3xfloat32, quant<int8 {}:1>>")
    text = f"""graph main(%x: tensor<1x4x3xfloat32, quant<int8 0.5:3>>) -> (%y) {{
      %a, %b = Split(%x) {{axis = 1, count = 2}} : {part}, {part}
      %c = Convert(%a) {{dtype = !float32}} : {found.format(0.75)}
      %d = Convert(%b) {{dtype = !float32}} : {found.format(0.25)}
      %y = Concatenate(%c, %d) {{axis = 1}} : tensor<1x4x3xfloat32, quant<int8 0.75:1>>
    }}"""
    graph = parse_graph(text)
    CANONICAL.apply(graph)
    assert op_counts(graph) == {"Split": 1, "Convert": 2, "Concatenate": 1}


def test_a_reshaped_weight_is_still_a_constant() -> None:
    """XNNPACK takes a DEQUANTIZE of a constant for a constant filter, a RESHAPE of it not."""
    text = """graph main(%x: tensor<3x1x2xfloat32>) -> (%y) {
      %w = constant tensor<3x2xfloat32, quant<int8 0.5:3>> [1, 2, 3, 4, 5, 6]
      %r = Convert(%w) {dtype = !float32} : tensor<3x2xfloat32>
      %s = constant tensor<3xint64> [3, 1, 2]
      %t = Reshape(%r, %s) : tensor<3x1x2xfloat32>
      %y = Add(%x, %t) : tensor<3x1x2xfloat32>
    }"""
    assert op_counts(transformed(text, CANONICAL.apply)) == {"Convert": 1, "Add": 1}


@pytest.mark.parametrize(("most", "left"), [(255, 0), (256, 2)])
def test_whole_numbers_need_no_conversion_to_an_integer_type_and_back(most: int, left: int) -> None:
    text = f"""graph main(%x: tensor<2x3xfloat32>) -> (%y) {{
      %l = constant tensor<float32> [0.0]
      %h = constant tensor<float32> [{most}.0]
      %c = Clamp(%x, %l, %h)
      %r = Round(%c)
      %i = Convert(%r) {{dtype = !uint8}}
      %y = Convert(%i) {{dtype = !float32}}
    }}"""
    assert op_counts(transformed(text, simplify))["Convert"] == left


@pytest.mark.parametrize("dtype, left", [("int32", 0), ("int64", 0), ("uint32", 2), ("int16", 2)])
def test_a_whole_number_of_unknown_size_as_integer_and_back(dtype: str, left: int) -> None:
    """What a number beyond the integers becomes is not defined for wide signed ones only."""
    text = f"""graph main(%x: tensor<4xfloat32>) -> (%y) {{
      %r = Floor(%x)
      %i = Convert(%r) {{dtype = !{dtype}}}
      %y = Convert(%i) {{dtype = !float32}}
    }}"""
    graph = parse_graph(text)
    simplify(graph)
    assert op_counts(graph)["Convert"] == left


def test_integers_that_wrap_around_stay() -> None:
    text = """graph main(%x: tensor<4xint64>) -> (%y) {
      %i = Convert(%x) {dtype = !int32}
      %y = Convert(%i) {dtype = !int64}
    }"""
    assert op_counts(transformed(text, simplify))["Convert"] == 2


@pytest.mark.parametrize(
    ("first", "second", "left"),
    [
        ("Pad(%x, %p, _)", "Pad(%a, %q, %zero)", 1),
        ("Pad(%x, %p, %one)", "Pad(%a, %q, %one)", 1),
        ("Pad(%x, %p, %one)", "Pad(%a, %q, _)", 2),
        ("Pad(%x, %crop, _)", "Pad(%a, %q, _)", 2),
        ('Pad(%x, %p, _) {mode = "edge"}', "Pad(%a, %q, _)", 2),
    ],
)
def test_pads_with_the_same_constant_are_one(first: str, second: str, left: int) -> None:
    text = (
        "graph main(%x: tensor<[n]x3xfloat32>) -> (%y) {\n"
        " %zero = constant tensor<float32> [0.0]\n %one = constant tensor<float32> [1.0]\n"
        " %p = constant tensor<2x2xint64> [0, 0, 2, 1]\n %q = constant tensor<2x2xint64> [0, 1, 0, 4]\n"
        f" %crop = constant tensor<2x2xint64> [0, 0, 0, -1]\n %a = {first}\n %y = {second}\n}}"
    )
    graph = transformed(text, CANONICAL.apply)
    assert op_counts(graph) == {"Pad": left}
    assert graph.outputs[0].type == parse_graph(text).outputs[0].type


def test_axes_of_one_element_are_not_reversed() -> None:
    text = "graph main(%x: tensor<1x3x1xfloat32>) -> (%y, %z) {{\n %y = Reverse(%x) {{dimensions = {axes}}}\n{rest}}}"
    rest = " %z = Reverse(%y) {dimensions = [0]}\n"
    graph = transformed(text.format(axes=[0, 1, 2], rest=rest), CANONICAL.apply)
    assert [node.attr("dimensions") for node in graph.nodes] == [(1,)]


@pytest.mark.parametrize(
    ("reversed_", "size", "left"),
    [
        ("Reverse(%c) {dimensions = [1]}", 1, {"Concatenate"}),
        ("Slice(%c, %starts, %limits, %strides)", 1, {"Concatenate"}),
        ("Reverse(%c) {dimensions = [0]}", 1, {"Concatenate", "Reverse"}),
        ("Reverse(%c) {dimensions = [1]}", 2, {"Concatenate", "Reverse"}),
    ],
)
def test_single_positions_are_joined_in_reverse(reversed_: str, size: int, left: set[str]) -> None:
    graph = transformed(
        f"graph main(%x: tensor<2x{size}xfloat32>, %z: tensor<2x{size}xfloat32>) -> (%y) {{\n"
        " %starts = constant tensor<2xint64> [0, -1]\n %limits = constant tensor<2xint64> [2, -9]\n"
        " %strides = constant tensor<2xint64> [1, -1]\n"
        f" %c = Concatenate(%x, %z) {{axis = 1}}\n %y = {reversed_}\n}}",
        CANONICAL.apply,
    )
    assert set(op_counts(graph)) == left


@pytest.mark.parametrize(("start", "size"), [(0, 1), (3, 1), (-1, 1), (-9, 10), (0, 2), (3, 2)])
def test_one_position_of_what_is_reversed(start: int, size: int) -> None:
    limit = 9 if start == -1 else start + size
    graph = transformed(
        "graph main(%x: tensor<[n]x5xfloat32>) -> (%y) {\n"
        f" %starts = constant tensor<2xint64> [0, {start}]\n %limits = constant tensor<2xint64> [9, {limit}]\n"
        " %ones = constant tensor<2xint64> [1, 1]\n"
        " %r = Reverse(%x) {dimensions = [1]}\n %y = Slice(%r, %starts, %limits, %ones)\n}",
        CANONICAL.apply,
    )
    is_one = size != 2
    assert op_counts(graph) == ({"Slice": 1} if is_one else {"Slice": 1, "Reverse": 1})


def test_parts_behind_a_transpose_are_joined_in_reverse() -> None:
    graph = transformed(
        "graph main(%x: tensor<1x4x3xfloat32>, %z: tensor<1x4x3xfloat32>) -> (%y) {\n"
        " %starts = constant tensor<3xint64> [0, -1, 0]\n %limits = constant tensor<3xint64> [9, -9, 9]\n"
        " %strides = constant tensor<3xint64> [1, -1, 1]\n"
        " %c = Concatenate(%x, %z) {axis = 0}\n %t = Transpose(%c) {permutation = [1, 0, 2]}\n"
        " %y = Slice(%t, %starts, %limits, %strides)\n}",
        CANONICAL.apply,
    )
    assert op_counts(graph) == {"Concatenate": 1, "Transpose": 1}
