"""The op tests of the ONNX project (onnx.backend.test of the installed package) as models and arrays.

They are cached in build/, since generating them takes ten seconds.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import tempfile
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
_KINDS_OF_VALUES = {"tensor_type", "sequence_type", "optional_type"}
_CACHE_FORMAT = 4


@dataclass(frozen=True)
class Case:
    """One op test.

    ``ops``: op types of the top-level nodes, the op under test first. ``data_sets``: (inputs, outputs) pairs, in the
    order of the model's inputs and outputs, elements of sequences one after the other. ``random``: only dtypes and
    shapes can be compared. ``types``: the ONNX element types of the inputs and outputs. ``elements``: the number of
    elements of each input of sequence or optional type, None for one without a value; ``shapes``: of elements whose
    rank the model does not say. ``has_sequences``: whether there is any input or output of these types.
    """

    name: str
    ops: tuple[str, ...]
    model: bytes
    data_sets: tuple[tuple[tuple[Array, ...], tuple[Array, ...]], ...]
    rtol: float
    atol: float
    random: bool
    types: frozenset[int]
    elements: Mapping[str, int | None] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    has_sequences: bool = False


def load_cases(mode: str = "plain", sequences: bool = False) -> list[Case]:
    """All cases, sorted by name; ``sequences``: also those with inputs or outputs of sequence and optional type.

    Mode "frozen": those with several inputs, all but the first of them as initializers (as exporters write them); of
    those with an input that is a sequence, all tensors.
    """
    cases = [case for case in _cached() if sequences or not case.has_sequences]
    return cases if mode == "plain" else [freeze(case) for case in cases if _count(case) > 1]


def _count(case: Case) -> int:
    """The number of inputs."""
    lengths = [length or 0 for length in case.elements.values()]
    return len(case.data_sets[0][0]) - sum(lengths) + len(lengths)


def freeze(case: Case) -> Case:
    """``case`` with every input but the first as an initializer, with the values of the first data set.

    Sequences stay inputs; then the first input is an initializer too.
    """
    model = onnx.load_from_string(case.model)
    graph = model.graph
    known = {tensor.name for tensor in graph.initializer}
    inputs, outputs = case.data_sets[0]
    given, kept = iter(inputs), list[Array]()
    for i, value in enumerate([value for value in graph.input if value.name not in known]):
        arrays = [next(given) for _ in range(case.elements.get(value.name, 1) or 0)]
        if value.name in case.elements or (i == 0 and not case.elements):
            kept += arrays
            continue
        graph.initializer.append(numpy_helper.from_array(arrays[0], value.name))
        if model.ir_version >= 4:
            graph.input.remove(value)
    return replace(case, model=model.SerializeToString(), data_sets=((tuple(kept), outputs),))


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
        if test.name in seen or any(value.type.WhichOneof("value") not in _KINDS_OF_VALUES for value in values):
            continue
        seen.add(test.name)
        yield _case(test, model, values)


def _case(test: Any, model: onnx.ModelProto, values: Sequence[onnx.ValueInfoProto]) -> Case:
    sets = _read_sets(Path(test.model_dir)) if test.data_sets is None else test.data_sets
    data_sets = tuple((_arrays(a), _arrays(b)) for a, b in sets)
    known = {tensor.name for tensor in model.graph.initializer}
    given = dict(zip((v for v in (i.name for i in model.graph.input) if v not in known), sets[0][0], strict=False))
    elements, shapes = _elements([v for v in model.graph.input if not v.type.HasField("tensor_type")], given)
    return Case(
        name=test.name,
        ops=tuple(node.op_type for node in model.graph.node),
        model=model.SerializeToString(),
        data_sets=data_sets,
        rtol=test.rtol,
        atol=test.atol,
        random=is_random(model, data_sets),
        types=frozenset(_tensor_type(value.type).elem_type for value in values),
        elements=elements,
        shapes=shapes,
        has_sequences=any(not value.type.HasField("tensor_type") for value in values),
    )


def _elements(
    values: Sequence[onnx.ValueInfoProto], given: Mapping[str, Any]
) -> tuple[dict[str, int | None], dict[str, tuple[int, ...]]]:
    """The number of elements of each sequence, and the shape of each element if the model does not say its rank."""
    elements: dict[str, int | None] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for value in values:
        content = given[value.name]
        elements[value.name] = None if content is None else len(content) if isinstance(content, list) else 1
        if not _tensor_type(value.type).HasField("shape") and isinstance(content, list):
            shapes |= {f"{value.name}_{i}": _array(array).shape for i, array in enumerate(content)}
    return elements, shapes


def _tensor_type(type_: onnx.TypeProto) -> onnx.TypeProto.Tensor:
    """The type of the tensors that a sequence or an optional holds."""
    kind = type_.WhichOneof("value")
    return type_.tensor_type if kind == "tensor_type" else _tensor_type(getattr(type_, kind).elem_type)


def _arrays(values: Sequence[Any]) -> tuple[Array, ...]:
    """The tensors of all inputs or outputs."""
    lists = [value if isinstance(value, list) else [] if value is None else [value] for value in values]
    return tuple(_array(value) for each in lists for value in each)


def _read_sets(folder: Path) -> list[tuple[list[onnx.TensorProto], list[onnx.TensorProto]]]:
    return [(_tensors(at, "input"), _tensors(at, "output")) for at in sorted(folder.glob("test_data_set_*"))]


def _tensors(folder: Path, side: str) -> list[onnx.TensorProto]:
    count = len(list(folder.glob(f"{side}_*.pb")))
    return [onnx.load_tensor(folder / f"{side}_{i}.pb") for i in range(count)]


def _array(value: Any) -> Array:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def is_random(model: onnx.ModelProto, data_sets: Sequence[tuple[Sequence[Array], Sequence[Array]]]) -> bool:
    """Whether only the dtypes and shapes of the outputs can be compared."""
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
