"""What the inputs of a TFLite model are for (see `facts`)."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from onnxtfl.checking.facts import ANY_DIM, Array, Facts, Indexer, Op, Selection, Selector, Tables, View, analyze
from onnxtfl.runtimes.describe import TFLITE_DTYPES, Dim, PathLike, bounded, open_tflite, tflite_tensor, vector

SMALL = 64

TABLES = Tables(
    carriers={
        **dict.fromkeys(("CAST", "RESHAPE", "SQUEEZE", "EXPAND_DIMS", "TRANSPOSE", "TILE", "BROADCAST_TO"), (0,)),
        **dict.fromkeys(
            ("SLICE", "STRIDED_SLICE", "GATHER", "GATHER_ND", "PAD", "PADV2", "REVERSE_V2", "UNPACK"), (0,)
        ),
        **{"SPLIT": (1,), "SPLIT_V": (0,), "CONCATENATION": tuple(range(16)), "PACK": tuple(range(16))},
        **{"SELECT": (1, 2), "SELECT_V2": (1, 2)},
    },
    indexers={
        "GATHER": (Indexer(1, 0, "axis"),),
        "GATHER_ND": (Indexer(1, 0, ANY_DIM),),
        "EMBEDDING_LOOKUP": (Indexer(0, 1),),
    },
    ranges={
        **{("ONE_HOT", 0): (0, 4), ("ONE_HOT", 1): (4, 7), ("TOPK_V2", 1): (1, 2), ("RESHAPE", 1): (1, 2)},
        **{("TILE", 1): (1, 3), ("BROADCAST_TO", 1): (1, 2), ("FILL", 0): (1, 4), ("RANGE", 0): (0, 1)},
        **{("RANGE", 1): (2, 6), ("RANGE", 2): (1, 2), ("PAD", 1): (0, 2), ("EXPAND_DIMS", 1): (0, 1)},
        **{("LOG", 0): (0.1, 2), ("SQRT", 0): (0, 2), ("RSQRT", 0): (0.1, 2), ("SUM", 1): (0, 1), ("MEAN", 1): (0, 1)},
    },
    compares=frozenset({"EQUAL", "NOT_EQUAL", "GREATER", "LESS", "GREATER_EQUAL", "LESS_EQUAL"}),
    masks=frozenset({("SELECT", 0), ("SELECT_V2", 0), ("LOGICAL_NOT", 0), ("IF", 0), ("CAST_BOOL", 0)}),
    affine=("ADD", "SUB", "MUL"),
    random=frozenset({"RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL", "MULTINOMIAL"}),
    selectors={"ARG_MAX": Selector(0, 1), "ARG_MIN": Selector(0, 1), "TOPK_V2": Selector(1, ("axis", -1))},
    keepers=frozenset({"CAST", "SQUEEZE", "EXPAND_DIMS", "RESHAPE"}),
)


def tflite_facts(path: PathLike) -> Facts:
    """Return what the main subgraph of a .tflite file says about its inputs and outputs, by their names.

    Raises `InvalidModelError`.
    """
    from onnxtfl.runtimes.describe import describe_tflite

    info = describe_tflite(path)
    with open_tflite(path) as model:
        graph = model.Subgraphs(0)
        inputs, outputs = vector(graph, "Inputs"), vector(graph, "Outputs")
        view = View(
            tuple(str(index) for index in inputs),
            tuple(str(index) for index in outputs),
            tuple(_ops(model, graph)),
            lambda name: _shape(graph, int(name)),
            functools.cache(lambda name: _constant(model, graph, int(name))),
            TABLES,
        )
        facts = analyze(view)
        own = {str(index): spec.name for index, spec in zip(outputs, info.outputs, strict=True)}
        chosen = {
            own[key]: Selection(tflite_tensor(graph, int(known.data), {}).name, known.axis)
            for key, known in facts.selections.items()
        }
    names = {str(index): spec.name for index, spec in zip(inputs, info.inputs, strict=True)}
    drawn = frozenset(own[key] for key in facts.drawn)
    return Facts({names[key]: known for key, known in facts.ranges.items()}, drawn, selections=chosen)


def _ops(model: Any, graph: Any) -> Iterator[Op]:
    """Yield the nodes of a subgraph."""
    kinds = _kind_names()
    codes = [model.OperatorCodes(k) for k in range(bounded(model.OperatorCodesLength()))]
    builtin = [max(code.BuiltinCode(), code.DeprecatedBuiltinCode()) for code in codes]
    for k in range(bounded(graph.OperatorsLength())):
        operator = graph.Operators(k)
        kind = kinds.get(builtin[operator.OpcodeIndex()], "CUSTOM")
        operands = tuple(str(index) if index >= 0 else "" for index in vector(operator, "Inputs"))
        results = tuple(str(index) for index in vector(operator, "Outputs"))
        if kind == "CAST" and results and tflite_tensor(graph, int(results[0]), {}).dtype == "bool":
            kind = "CAST_BOOL"
        yield Op(kind, operands, results, _attributes(kind, operator))


@functools.cache
def _kind_names() -> dict[int, str]:
    import tflite

    return {number: name for name, number in vars(tflite.BuiltinOperator).items() if isinstance(number, int)}


def _attributes(kind: str, operator: Any) -> dict[str, int]:
    """Return the options that the walk needs: the axis of a GATHER."""
    table = operator.BuiltinOptions()
    if kind != "GATHER" or table is None:
        return {}
    import tflite

    options = tflite.GatherOptions()
    options.Init(table.Bytes, table.Pos)
    return {"axis": options.Axis()}


def _shape(graph: Any, index: int) -> tuple[Dim, ...] | None:
    return tflite_tensor(graph, index, {}).shape


def _constant(model: Any, graph: Any, index: int) -> Array | None:
    """Return a small constant tensor as an array."""
    if not 0 <= index < graph.TensorsLength():
        return None
    tensor = graph.Tensors(index)
    buffer = model.Buffers(tensor.Buffer())
    dtype = TFLITE_DTYPES[tensor.Type()] if 0 <= tensor.Type() < len(TFLITE_DTYPES) else ""
    if dtype not in ("float32", "int32", "int64", "bool") or not 0 < buffer.DataLength() <= 8 * SMALL:
        return None
    return np.frombuffer(buffer.DataAsNumpy().tobytes(), dtype=dtype)
