"""The inputs and outputs of a model: their shapes and names, and cutting a part out.

::

    cut at inputs [%h], outputs [%g]:   %h = A(%x); %g = B(%h); %y = C(%g)   ->   (%h) %g = B(%h)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from onnxtfl.errors import UsageError, suggestion
from onnxtfl.ir import ops
from onnxtfl.ir.assumptions import assume
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dependencies import needed_values
from onnxtfl.ir.dims import Dim, SymDim, fresh_symbol, symbol
from onnxtfl.ir.graph import Graph, Value
from onnxtfl.ir.origin import Origin
from onnxtfl.ir.types import DType, TensorType
from onnxtfl.passes.canonical.dead_code import remove_unreached
from onnxtfl.rewriting.lift import Expand, lift_where_possible


def set_input_shapes(
    graph: Graph, shapes: Mapping[str, Sequence[int | str]], cut_at: Sequence[str] | None = None
) -> bool:
    """Set the shapes of inputs (-1: a dynamic size, a name: a named dynamic size).

    Also of the tensors `cut_at`, which become inputs; one of unknown type is float32. Return whether a static size
    changed, so that the types in the file are no longer valid. UsageError for an unknown input or a different rank.
    """
    inputs, changed = {str(v.name): v for v in graph.inputs}, False
    cut_inside = [name for name in cut_at or () if name in shapes and name not in inputs]
    for name, inner in _named(graph, cut_inside).items():
        inputs[name] = inner
        if inner.type is None:
            assume(f"the tensor {name!r} is float32: the model does not say its type")
            inner.type = TensorType(DType.FLOAT32, None)
    for name, shape in shapes.items():
        value = inputs.get(name)
        if value is None or not isinstance(value.type, TensorType):
            hint = suggestion(name, inputs, "its inputs")
            raise UsageError(f"the model has no input {name!r}", hint=hint, code="E-USE-003")
        given = value.type.shape
        if given is not None and len(given) != len(shape):
            raise UsageError(
                f"input {name!r} has {len(given)} axes, not {len(shape)}",
                type_=value.type,
                hint="write a size for each axis, `?|None` for one that stays open",
                code="E-USE-004",
            )
        old = given or (None,) * len(shape)
        new = tuple(_size(have, want) for have, want in zip(old, shape, strict=True))
        changed = changed or any(isinstance(have, int) and have != size for have, size in zip(old, new, strict=True))
        value.type = value.type.with_shape(new)
    return changed


def _size(have: Dim | None, want: int | str) -> Dim:
    """Return the new size of an axis of size `have` (None: unknown) for the option `want`."""
    if isinstance(want, str):
        return symbol(want)
    if want != -1:
        return want
    return have if isinstance(have, SymDim) else fresh_symbol()


def cut(
    graph: Graph, inputs: Sequence[str] | None, outputs: Sequence[str] | None, expand: Expand | None = None
) -> list[str] | None:
    """Keep only the nodes between the named tensors; return the new outputs' names, None if unchanged.

    A tensor that becomes an input has its declared type, else the type inferred by lifting the nodes before it (with
    `expand`). UsageError for names that do not exist.
    """
    if outputs:
        found = _named(graph, outputs)
        graph.outputs = [found[name] for name in outputs]
        _drop_states(graph)
        remove_unreached(graph, set(_named(graph, inputs).values()) if inputs else set())
    if inputs:
        if expand is not None:
            _infer_up_to(graph, inputs, expand)
        _cut_inputs(graph, inputs)
        remove_unreached(graph, set())
    return list(outputs) if outputs else None


def _drop_states(graph: Graph) -> None:
    """Drop states on which the outputs never depend, now or in later invocations."""
    needed = needed_values(graph.outputs, {state.input: state.output for state in graph.states})
    graph.states = [state for state in graph.states if state.input in needed]


def _cut_inputs(graph: Graph, names: Sequence[str]) -> None:
    old = list(graph.inputs)
    found = _named(graph, names)
    graph.inputs = []
    for name in names:
        value = found[name]
        if value in old:
            graph.inputs.append(value)
            continue
        new = graph.add_input(value.type, name)
        new.origin = Origin(name)
        value.name = None
        graph.substitute(value, new)
    remove_unreached(graph, set())
    lost = [v for v in old if v not in graph.inputs and v.uses]
    if lost:
        raise UsageError(
            f"the outputs still need the input {lost[0].name!r}", hint="name it in `inputs` too", code="E-USE-007"
        )


def _infer_up_to(graph: Graph, names: Sequence[str], expand: Expand) -> None:
    """Lift nodes until all named values have types. UsageError for a type that stays unknown."""

    def is_done() -> bool:
        return all(v.type is not None for v in _named(graph, names).values())

    lift_where_possible(graph, expand, is_done)
    unknown = [name for name, value in _named(graph, names).items() if value.type is None]
    if unknown:
        raise UsageError(
            f"the type of the tensor {unknown[0]!r} is unknown",
            hint="give its sizes (`input_shapes`)",
            code="E-USE-004",
        )


def _named(graph: Graph, names: Sequence[str]) -> dict[str, Value]:
    """Return the values with these names, which may be those of outputs or of replaced tensors."""
    known = {v.name: v for v in _values(graph) if v.name}
    if any(name not in known for name in names):
        replaced = {o.tensor: v for v in _values(graph) for o in v.origins if o.shape is None and o.permutation is None}
        known = replaced | dict(zip(graph.output_names, graph.outputs, strict=False)) | known
    for name in names:
        if name not in known:
            hint = suggestion(name, filter(None, known), "its tensors")
            raise UsageError(f"the model has no tensor {name!r}", hint=hint, code="E-USE-003")
    return {name: known[name] for name in names}


def _values(graph: Graph) -> Iterator[Value]:
    yield from graph.inputs
    yield from (state.input for state in graph.states)
    for node in graph.nodes:
        yield from node.results


def separate_outputs(graph: Graph, shares_inputs: bool = False) -> None:
    """Copy each output that is also an input, a constant or another output, so that all outputs are distinct results.

    `shares_inputs`: an output with the name of an input is that input (in ONNX a name denotes one value).
    """
    names = graph.output_names if shares_inputs else ()
    shared = {i for i, (v, name) in enumerate(zip(graph.outputs, names, strict=False)) if v.name == name}
    _separate(graph, {i for i in shared if graph.outputs[i] in graph.inputs})
    separate_region_outputs(graph)


def separate_region_outputs(graph: Graph) -> None:
    """Make the outputs of regions distinct; a read-only value of a While is both input and output."""
    for node in graph.nodes:
        for region in node.regions:
            pairs = zip(region.inputs, region.outputs, strict=False) if node.op is ops.While else ()
            _separate(region, {i for i, (taken, returned) in enumerate(pairs) if taken is returned})


def _separate(graph: Graph, kept: Collection[int]) -> None:
    """Copy the outputs of `graph` that are not distinct results, except those with indices `kept`."""
    taken: set[Value] = set(graph.inputs)
    by_tensor: dict[Value, dict[str, Origin]] = {}
    for i, value in enumerate(graph.outputs):
        if i in kept:
            continue
        if value in taken or value.is_constant or _is_dequantized_constant(value):
            builder = Builder(graph, maker="separate outputs", cause=value.producer)
            graph.outputs[i] = builder(ops.Copy, value)
            name = graph.output_names[i] if i < len(graph.output_names) else None
            graph.outputs[i].origins = _origins_of(value, name, by_tensor)
        taken.add(graph.outputs[i])


def _origins_of(value: Value, name: str | None, by_tensor: dict[Value, dict[str, Origin]]) -> tuple[Origin, ...]:
    """Return the origin of the output `name` of `value`, or all origins.

    `by_tensor`: the origins of the values of earlier calls, by their tensors.
    """
    if value not in by_tensor:
        by_tensor[value] = {origin.tensor: origin for origin in value.origins}
    origin = by_tensor[value].get(name or "")
    return value.origins if origin is None else (origin,)


def _is_dequantized_constant(value: Value) -> bool:
    """XNNPACK of LiteRT 2.3 does not write a dequantized constant that no op reads."""
    node = value.producer
    return node is not None and node.op is ops.Convert and node.operand(0).is_constant and node.operand(0).is_quantized


def keep_names(graph: Graph) -> None:
    """Give the outputs their names in the source; other values with one of these names lose it."""
    names = graph.output_names
    boundary = {v.name for v in graph.inputs} | set(names)
    outside = set(graph.inputs)
    for value in _values(graph):
        if value.name in boundary and value not in outside:
            value.name = None
    for value, name in zip(graph.outputs, names, strict=True):
        value.name = name
