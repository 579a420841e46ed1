"""What the inputs of an ONNX model are for (see `facts`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from onnxtfl.checking.facts import ANY_DIM, Array, Facts, Indexer, Op, Selector, Tables, View, analyze
from onnxtfl.runtimes.describe import Dim

SMALL = 64  # elements of a constant that the walk looks at

_AXES = {("CumSum", 1), ("Squeeze", 1), ("Unsqueeze", 1), ("Trilu", 1), ("ReduceSum", 1), ("ReduceMean", 1)}
_AXES |= {("ReduceMax", 1), ("ReduceMin", 1), ("ReduceProd", 1), ("ReduceL1", 1), ("ReduceL2", 1), ("Slice", 1)}

TABLES = Tables(
    carriers={
        **dict.fromkeys(("Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Flatten"), (0,)),
        **dict.fromkeys(("Expand", "Tile", "Slice", "Split", "Gather", "GatherND", "GatherElements", "Pad"), (0,)),
        **dict.fromkeys(("CastLike", "DepthToSpace", "SpaceToDepth", "ReverseSequence", "SequenceAt"), (0,)),
        "Concat": tuple(range(16)),
        "Where": (1, 2),
    },
    indexers={
        "Gather": (Indexer(1, 0, "axis"),),
        "GatherElements": (Indexer(1, 0, "axis"),),
        "ScatterElements": (Indexer(1, 0, "axis"),),
        "Scatter": (Indexer(1, 0, "axis"),),
        "GatherND": (Indexer(1, 0, ANY_DIM),),
        "ScatterND": (Indexer(1, 0, ANY_DIM),),
        "EmbedLayerNormalization": (Indexer(0, 2), Indexer(1, 4)),
    },
    ranges={
        **dict.fromkeys(_AXES, (0, 1)),
        **{("Slice", 2): (2**30, 2**30 + 1), ("Slice", 4): (1, 2)},
        **{("Loop", 0): (1, 4), ("Range", 0): (0, 1), ("Range", 1): (2, 6), ("Range", 2): (1, 2)},
        **{("ConstantOfShape", 0): (1, 4), ("Expand", 1): (1, 2), ("Tile", 1): (1, 3), ("TopK", 1): (1, 2)},
        **{("Pad", 1): (0, 2), ("OneHot", 1): (4, 7), ("OneHot", 0): (0, 4), ("Resize", 2): (1, 3)},
        **{("Dropout", 1): (0, 0.5), ("Dropout", 2): (0, 1), ("Bernoulli", 0): (0, 1)},
        **{("Log", 0): (0.1, 2), ("Sqrt", 0): (0, 2), ("Acosh", 0): (1, 3), ("Acos", 0): (-0.9, 0.9)},
        **{("Asin", 0): (-0.9, 0.9), ("Atanh", 0): (-0.9, 0.9), ("BatchNormalization", 4): (0.5, 1.5)},
    },
    compares=frozenset({"Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"}),
    masks=frozenset({("Where", 0), ("Not", 0), ("If", 0), ("And", 0), ("And", 1), ("Or", 0), ("Or", 1)}),
    affine=("Add", "Sub", "Mul"),
    random=frozenset(
        {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
    ),
    selectors={
        "ArgMax": Selector(0, ("axis", 0)),
        "ArgMin": Selector(0, ("axis", 0)),
        "TopK": Selector(1, ("axis", -1)),
    },
    keepers=frozenset({"Identity", "Cast", "Squeeze", "Unsqueeze", "Reshape", "Flatten"}),
)


def onnx_facts(model: Any) -> Facts:
    """Return what the graph of an ``onnx.ModelProto`` says about its inputs and outputs.

    Drops the model's large weights: read the file again where they matter.
    """
    drop_weights(model.graph)
    if model.functions:
        from onnx import inliner

        with suppress(Exception):  # a broken function is for the converter to report
            model = inliner.inline_local_functions(model)
    facts = analyze(_view(model))
    return replace(facts, steps=_steps(model.graph))


def drop_weights(graph: Any) -> None:
    """Empty the initializers of more than `SMALL` elements, keeping their shapes."""
    for tensor in graph.initializer:
        if np.prod(tensor.dims, dtype=np.float64) > SMALL:
            for field in ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data"):
                tensor.ClearField(field)


def _view(model: Any) -> View:
    graph = model.graph
    constants = dict(_constants(graph))
    shapes = _Shapes(model, constants)
    held = {tensor.name for tensor in graph.initializer}
    return View(
        tuple(value.name for value in graph.input if value.name not in held),
        tuple(value.name for value in graph.output),
        tuple(_ops(graph)),
        shapes.get,
        lambda name: _array(constants.get(name)),
        TABLES,
    )


def _ops(graph: Any) -> Iterator[Op]:
    """Yield the nodes of a graph and its subgraphs; a node with subgraphs takes what they capture, too."""
    for node in graph.node:
        attributes = {a.name: a.i for a in node.attribute if a.type == 2}
        bodies = [a.g for a in node.attribute if a.type == 5]
        inner = [op for body in bodies for op in _ops(body)]
        yield from inner
        draws = any(op.kind in TABLES.random or op.attributes.get("draws") for op in inner)
        kind = "Not" if node.op_type == "Cast" and attributes.get("to") == 9 else node.op_type  # both ask "is it 0?"
        captured = tuple(name for op in inner for name in op.inputs)
        yield Op(kind, (*node.input, *captured), tuple(node.output), {**attributes, "draws": draws})


def _constants(graph: Any) -> Iterator[tuple[str, Any]]:
    """Yield name and TensorProto of the initializers and Constant nodes."""
    for tensor in graph.initializer:
        yield tensor.name, tensor
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].type == 4:
            yield node.output[0], node.attribute[0].t


def _array(tensor: Any) -> Array | None:
    """Return a small constant as an array."""
    from onnx import numpy_helper

    if tensor is None or tensor.external_data or np.prod(tensor.dims, dtype=np.float64) > SMALL:
        return None
    with suppress(ValueError, TypeError):
        return np.asarray(numpy_helper.to_array(tensor))
    return None


class _Shapes:
    """Shapes of values: from the file, else, inferred once when first asked for, from onnx.shape_inference."""

    def __init__(self, model: Any, constants: dict[str, Any]) -> None:
        self._model = model
        self._known: dict[str, tuple[Dim, ...] | None] = {name: tuple(t.dims) for name, t in constants.items()}
        self._add(model.graph)
        self._inferred = False

    def get(self, name: str) -> tuple[Dim, ...] | None:
        if name not in self._known and not self._inferred:
            from onnx import shape_inference

            self._inferred = True
            with suppress(Exception):  # a model that onnx cannot infer is still checked, with small row numbers
                self._add(shape_inference.infer_shapes(self._model).graph)
        return self._known.get(name)

    def _add(self, graph: Any) -> None:
        for value in (*graph.input, *graph.value_info, *graph.output):
            if value.type.tensor_type.HasField("shape"):
                dims = value.type.tensor_type.shape.dim
                self._known.setdefault(value.name, tuple(d.dim_value if d.dim_value > 0 else None for d in dims))


def _steps(graph: Any) -> dict[str, float]:
    """Return the grid of each output that is a DequantizeLinear with one constant scale, moved at most."""
    producers = {name: node for node in graph.node for name in node.output}
    constants = dict(_constants(graph))
    steps = {}
    for value in graph.output:
        node = producers.get(value.name)
        while node is not None and node.op_type in (
            "Reshape",
            "Transpose",
            "Squeeze",
            "Unsqueeze",
            "Flatten",
            "Identity",
        ):
            node = producers.get(node.input[0])
        scale = (
            _array(constants.get(node.input[1])) if node is not None and node.op_type == "DequantizeLinear" else None
        )
        if scale is not None and scale.size == 1:
            steps[value.name] = float(scale.reshape(-1)[0])
    return steps
