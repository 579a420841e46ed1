"""The op tests of the ONNX project (onnx.backend.test of the installed package) as models and arrays.

They are cached in build/, since generating them takes ten seconds.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import tempfile
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from tests.harness.litert import Array
from tests.harness.workers import ROOT

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
MODES = ("plain", "frozen")
_RANDOM_OPS = {
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
}  # fmt: skip
_CACHE_FORMAT = 3


@dataclass(frozen=True)
class Case:
    """One op test.

    ``ops``: op types of the top-level nodes, the op under test first. ``data_sets``: (inputs, outputs) pairs, in the
    order of the model's inputs and outputs. ``random``: only dtypes and shapes can be compared. ``types``: the ONNX
    element types of the inputs and outputs.
    """

    name: str
    ops: tuple[str, ...]
    model: bytes
    data_sets: tuple[tuple[tuple[Array, ...], tuple[Array, ...]], ...]
    rtol: float
    atol: float
    random: bool
    types: frozenset[int]


def load_cases(mode: str = "plain") -> list[Case]:
    """All cases whose inputs and outputs are tensors, sorted by name.

    Mode "frozen": those with several inputs, all but the first of them as initializers (as exporters write them).
    """
    cases = _cached()
    return cases if mode == "plain" else [freeze(case) for case in cases if len(case.data_sets[0][0]) > 1]


def freeze(case: Case) -> Case:
    """``case`` with every input but the first as an initializer, with the values of the first data set."""
    model = onnx.load_from_string(case.model)
    graph = model.graph
    known = {tensor.name for tensor in graph.initializer}
    dynamic = [value for value in graph.input if value.name not in known]
    inputs, outputs = case.data_sets[0]
    for value, array in list(zip(dynamic, inputs, strict=True))[1:]:
        graph.initializer.append(numpy_helper.from_array(array, value.name))
        if model.ir_version >= 4:
            graph.input.remove(value)
    return replace(case, model=model.SerializeToString(), data_sets=((inputs[:1], outputs),))


def _cached() -> list[Case]:
    path = ROOT / "build" / f"onnx-op-cases-{onnx.__version__}-{_CACHE_FORMAT}.pickle"
    with contextlib.suppress(OSError, EOFError, pickle.UnpicklingError, AttributeError, ImportError):
        cases: list[Case] = pickle.loads(path.read_bytes())
        return cases
    cases = sorted(_generated(), key=lambda case: case.name)
    with contextlib.suppress(OSError):
        _write(path, pickle.dumps(cases))
    return cases


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    Path(temporary).replace(path)


def _generated() -> Iterable[Case]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [test for kind in KINDS for test in load_model_tests(kind=kind)]
    seen: set[str] = set()
    for test in found:
        model = test.model or onnx.load(Path(test.model_dir) / "model.onnx")
        values = [*model.graph.input, *model.graph.output]
        if test.name in seen or any(value.type.WhichOneof("value") != "tensor_type" for value in values):
            continue
        seen.add(test.name)
        yield _case(test, model, values)


def _case(test: Any, model: onnx.ModelProto, values: Sequence[onnx.ValueInfoProto]) -> Case:
    sets = _read_sets(Path(test.model_dir)) if test.data_sets is None else test.data_sets
    data_sets = tuple((tuple(map(_array, a)), tuple(map(_array, b))) for a, b in sets)
    return Case(
        name=test.name,
        ops=tuple(node.op_type for node in model.graph.node),
        model=model.SerializeToString(),
        data_sets=data_sets,
        rtol=test.rtol,
        atol=test.atol,
        random=_is_random(model, data_sets),
        types=frozenset(value.type.tensor_type.elem_type for value in values),
    )


def _read_sets(folder: Path) -> list[tuple[list[onnx.TensorProto], list[onnx.TensorProto]]]:
    return [(_tensors(at, "input"), _tensors(at, "output")) for at in sorted(folder.glob("test_data_set_*"))]


def _tensors(folder: Path, side: str) -> list[onnx.TensorProto]:
    count = len(list(folder.glob(f"{side}_*.pb")))
    return [onnx.load_tensor(folder / f"{side}_{i}.pb") for i in range(count)]


def _array(value: Any) -> Array:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def _is_random(model: onnx.ModelProto, data_sets: Sequence[tuple[Sequence[Array], Sequence[Array]]]) -> bool:
    nodes = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    if any(node.op_type in _RANDOM_OPS for node in nodes):
        return True
    return any(node.op_type == "Dropout" and _drops(model, node, data_sets[0][0]) for node in nodes)


def _drops(model: onnx.ModelProto, node: onnx.NodeProto, inputs: Sequence[Array]) -> bool:
    """Whether a Dropout is in training mode with a ratio other than 0."""
    values = dict(zip([value.name for value in model.graph.input], inputs, strict=False))
    values |= {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    training = len(node.input) > 2 and bool(values[node.input[2]])
    ratio = float(values[node.input[1]]) if len(node.input) > 1 and node.input[1] else 0.5
    return training and ratio != 0
