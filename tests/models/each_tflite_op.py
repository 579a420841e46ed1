"""Each op of a quantized .tflite converted to ONNX by itself, and run on the tensors that LiteRT computes."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.harness.litert import Array, run_onnx
from tests.models.tflite_files import samples_of


@dataclass(frozen=True)
class Difference:
    """The largest difference of an op's results, in steps of their quantization."""

    op: str
    steps: float


def differences(path: Path) -> list[Difference]:
    """The differences of all ops with quantized operands or results that have a conversion, in the worker process."""
    from onnxtfl.formats.tflite import reader

    data = path.read_bytes()
    interpreter = _allocated(data)
    graph = reader.read(data).main
    nodes = list(graph.nodes)
    details = interpreter._get_ops_details()[: len(nodes)]
    states = {state.input for state in graph.states}
    indices = [
        i
        for n, d in zip(nodes, details, strict=True)
        for v, i in zip(n.operands, d["inputs"], strict=True)
        if v in states
    ]
    before = {i: interpreter.get_tensor(i) for i in indices}
    interpreter.invoke()
    return [
        found
        for node, detail in zip(nodes, details, strict=True)
        if not node.regions and _is_quantized(node)
        for found in _differences(interpreter, before, node, detail)
    ]


def optimized_ops(path: Path) -> Counter[str]:
    """The ops that ONNX Runtime's optimizer leaves of the converted model."""
    import onnx

    import onnxtfl
    from tests.models.corpus import optimized

    data = onnxtfl.tflite_to_onnx(path, check=False).data
    assert data is not None
    return Counter(node.op_type for node in onnx.load_from_string(optimized(data, "ALL")).graph.node)


def _allocated(data: bytes) -> Any:
    """An interpreter with inputs, that keeps every tensor of the model."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(
        model_content=data,
        num_threads=1,
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        experimental_preserve_all_tensors=True,
    )
    interpreter.allocate_tensors()
    for detail, array in zip(interpreter.get_input_details(), samples_of(data).values(), strict=True):
        interpreter.set_tensor(detail["index"], array)
    return interpreter


def _is_quantized(node: Any) -> bool:
    return any(v is not None and v.is_quantized for v in (*node.operands, *node.results))


def _differences(interpreter: Any, before: dict[int, Array], node: Any, detail: Any) -> Iterator[Difference]:
    """The differences of one op; `before`: the states that ops have updated since, by tensor."""
    import onnx

    import onnxtfl

    model, places = _single(node)
    try:
        data = onnxtfl.tflite_to_onnx(model, check=False).data
    except onnxtfl.UnsupportedError:
        return
    assert data is not None
    names = [v.name for v in onnx.load_from_string(data).graph.input]
    read = [detail["inputs"][i] for i in places]
    given = [before[i] if i in before else interpreter.get_tensor(i) for i in read]
    results = run_onnx(data, dict(zip(names, given, strict=True))).values()
    for got, index in zip(results, detail["outputs"], strict=True):
        yield Difference(node.op.name.removeprefix("tfl."), _steps(got, interpreter.get_tensor(index)))


def _single(node: Any) -> tuple[bytes, list[int]]:
    """The .tflite of `node` alone, and the places of its operands that are inputs of it."""
    from onnxtfl.formats.tflite import writer
    from onnxtfl.ir.graph import Graph, Node
    from onnxtfl.ir.model import Model

    graph, inputs, places = Graph(), dict[Any, Any](), list[int]()
    for i, value in enumerate(node.operands):
        if value is not None and not value.is_constant and value not in inputs:
            inputs[value] = graph.add_input(value.type, f"in{i}")
            places.append(i)
    made = Node(node.op, [inputs.get(v, v) for v in node.operands], node.attributes)
    for i, result in enumerate(node.results):
        made.add_result(result.type).name = f"out{i}"
    graph.insert(made, None)
    graph.outputs = list(made.results)
    file = io.BytesIO()
    writer.write(Model(graph), file)
    return file.getvalue(), places


def _steps(got: Array, want: Array) -> float:
    """The largest difference; floats are compared with 1/10000 of the largest element as a step."""
    unit = float(np.abs(want).max(initial=0)) / 10000 or 1.0 if want.dtype.kind == "f" else 1.0
    return float(np.abs(got.astype(np.float64) - want.astype(np.float64)).max(initial=0) / unit)
