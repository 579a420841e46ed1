"""Declared types of a TFLite file that kernels ignore or contradict (measured on LiteRT 2.3).

Other modules handle types without quantization (lifting compares them with the inferred ones) and scales and zero
points that kernels ignore (:mod:`onnxtfl.rewriting.stored_integers`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnxtfl.errors import InvalidModelError
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.types import DType, TensorType
from onnxtfl.targets.table import OpEntry, Parameter, entry

_PLAIN = ("int32", "int64")
_REAL = DType.FLOAT32


def plain_integers(graph: Graph) -> None:
    """Drop scales of int32 and int64 from `graph` and its regions where no kernel reads them.

    ::

        %y = tfl.ADD(%x : int32 0.5:0, %x)    ->    %y = tfl.ADD(%x : int32, %x)

    These kernels compute on the stored integers: ADD, GATHER, the axes of REDUCE_MAX. Biases keep their scales.
    Operands and results of ops that rescale have scales too: a graph with such an op is not changed.
    """
    nodes = [(node, found) for node in graph.walk() if (found := _entry(node)) is not None]
    if any(found.stored.get("scales") == "wide" and any(map(_is_plain, _values(node))) for node, found in nodes):
        return
    biases = {value for node, found in nodes for value in _biases(node, found)}
    for node, _ in nodes:
        for value in _values(node):
            if _is_plain(value) and value not in biases:
                value.type = TensorType(value.tensor_type.storage, value.tensor_type.shape)


def check_declared_results(graph: Graph) -> None:
    """Raise InvalidModelError for a quantized result of `graph` or its regions that its kernel stores otherwise.

    By its signature, some operands and results of an op have the same element type. Kernels refuse another type, or use
    their own whatever the file declares (ADD, CEIL, the sizes of SLICE).
    """
    for node in graph.walk():
        if node.regions and node.op.dialect == "tfl":
            _check_regions(node)
        elif (found := _entry(node)) is not None:
            _check(node, found)


def _entry(node: Node) -> OpEntry | None:
    """The entry of a builtin op; None for another one."""
    try:
        return entry(node.op.name_in_file) if node.op.dialect == "tfl" else None
    except KeyError:
        return None


def _values(node: Node) -> Iterator[Value]:
    return (v for v in (*node.operands, *node.results) if v is not None and isinstance(v.type, TensorType))


def _is_plain(value: Value) -> bool:
    return value.is_quantized and value.tensor_type.storage.value in _PLAIN


def _biases(node: Node, found: OpEntry) -> Iterator[Value]:
    also = found.stored.get("bias")
    for value, parameter in zip(node.operands, _repeated(found.operands, len(node.operands)), strict=False):
        if value is not None and ("bias" in parameter.name or parameter.name == also):
            yield value


def _check(node: Node, found: OpEntry) -> None:
    given = _stored_by_variable(node, found)
    alone = not any(v is not None and v.is_quantized for v in node.operands)
    is_real = _is_always_real(found) or (alone and found.stored.get("real") == "alone")
    for result, parameter in zip(node.results, _repeated(found.results, len(node.results)), strict=False):
        declared = result.type
        if not isinstance(declared, TensorType):
            continue
        read = given.get(parameter.variable) or (TensorType(_REAL, declared.shape) if is_real else declared)
        _check_stored(node, result, read, found)


def _check_stored(node: Node, result: Value, read: TensorType, found: OpEntry) -> None:
    """Raise InvalidModelError if the kernel stores a quantized result in another type, that of `read`."""
    declared = result.tensor_type
    if _lacks_scale(result):
        return
    is_told = _is_quantized(read, declared) or _is_always_real(found)
    if is_told and declared.storage is not read.storage and declared.storage.value != found.stored.get("also"):
        message = f"the result is declared as {declared.storage.value}, and stored as {read.storage.value}"
        place, version = node.name or result.name, node.op.version
        raise InvalidModelError(message, node=place, op=found.name, version=version, type_=declared, code="E-FILE-009")


def _check_regions(node: Node) -> None:
    """Compare the types of a node with those of its subgraphs; the condition of a loop returns a bool."""
    condition = node.attributes.get("cond_subgraph_index")
    bodies = [region for region in node.regions if region is not condition]
    for body in (body for body in bodies if len(body.outputs) == len(node.results)):
        for result, value in zip(node.results, body.outputs, strict=True):
            if isinstance(result.type, TensorType) and isinstance(value.type, TensorType):
                _check_stored(node, result, value.type, entry(node.op.name_in_file))
    for region in node.regions:
        for outer, inner in zip(node.operands[::-1], region.inputs[::-1], strict=False):
            if outer is None or not isinstance(outer.type, TensorType) or not isinstance(inner.type, TensorType):
                continue
            if _is_quantized(outer.type, inner.type) and outer.type.storage is not inner.type.storage:
                raise _other_operand(node, inner.name or "", outer.type, inner.type)


def _stored_by_variable(node: Node, found: OpEntry) -> dict[str, TensorType]:
    """The type of the first operand of each variable. Raises InvalidModelError if another operand of it is stored
    otherwise.
    """
    stored: dict[str, TensorType] = {}
    of_results = {parameter.variable for parameter in found.results}
    for value, parameter in zip(node.operands, _repeated(found.operands, len(node.operands)), strict=False):
        if value is None or not isinstance(value.type, TensorType) or _lacks_scale(value):
            continue
        first, given = stored.setdefault(parameter.variable, value.type), value.type
        is_one = parameter.variable in of_results and _is_quantized(first, given)
        is_one |= first.dtype.is_integer and given.dtype.is_integer
        if is_one and first.storage is not given.storage and given.storage.value != found.stored.get("operands"):
            raise _other_operand(node, parameter.name, given, first)
    return stored


def _is_always_real(found: OpEntry) -> bool:
    return found.stored.get("real") == "always"


def _lacks_scale(value: Value) -> bool:
    """Whether `value` is computed from quantized tensors but declared without a scale: its values are real ones in
    effect.
    """
    node = value.producer
    found = None if node is None else _entry(node)
    if node is None or node.graph is None or found is None or node.graph.is_output(value):
        return False
    if found.stored.get("inner") != "real":
        return False
    is_real = value.tensor_type.dtype.is_float and not value.is_quantized
    return is_real and all(v is not None and v.is_quantized for v in node.operands)


def _is_quantized(*types: TensorType) -> bool:
    return any(type_.quantization is not None for type_ in types)


def _other_operand(node: Node, name: str, given: TensorType, wanted: TensorType) -> InvalidModelError:
    message = f"the operand {name} is stored as {given.storage.value}, not as {wanted.storage.value}"
    place, name = node.shown_name, node.op.name_in_file
    return InvalidModelError(message, node=place, op=name, version=node.op.version, type_=given, code="E-FILE-009")


def _repeated(parameters: Sequence[Parameter], count: int) -> list[Parameter]:
    """The parameter of each of `count` values; a variadic one is the last."""
    found = list(parameters[:count])
    if parameters and parameters[-1].variadic:
        found += [parameters[-1]] * (count - len(found))
    return found
