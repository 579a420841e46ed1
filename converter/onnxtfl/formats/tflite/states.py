"""Explicit states: ops of a TFLite graph that change operands or variables become ops without side effects.

::

    state %h = 0                                     state %h = 0, next %h1
    %y = tfl.RNN(%x, %w, %r, %b, %h)           ->    %y, %h1 = tfl.RNN(%x, %w, %r, %b, %h)

    %v = tfl.VAR_HANDLE() {shared_name = "n"}        state %n = (constant of CALL_ONCE), next %n1
    %a = tfl.READ_VARIABLE(%v)                 ->    %n1 = tfl.ADD(%n, %x)
    %b = tfl.ADD(%a, %x)
    tfl.ASSIGN_VARIABLE(%v, %b)

**The convention for lift rules**: a node that updates operands in place (the hidden state of RNN, the activation and
cell state of LSTM, ...; :func:`onnxtfl.formats.tflite.schema.state_operands`) has, after its own results, one more
result for each of them that is present, in operand order: its new value. The rule of such an op returns the values of
its results, then the new state for each of these operands. Later uses of the operand, and the output of its `State`,
are this result. This also applies if the operand is no state but the result of another node.

Variables (VAR_HANDLE, READ_VARIABLE, ASSIGN_VARIABLE) become values. If subgraphs of IF and WHILE read or write them,
they are further operands and results of these. One that is assigned before it is read is no state. The variable tensors
of such a subgraph are reset whenever the IF or WHILE begins, so they are no states; a loop carries them. CALL_ONCE is
removed: what its subgraph assigns is the initial value. A table's constant contents become operands: HASHTABLE_FIND
takes (keys, values, query, default). Source: LiteRT's kernels of these ops, its Subgraph::ReleaseMemory, and its core
of variables and tables (experimental/resource).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.errors import InvalidModelError, UnsupportedError
from onnxtfl.formats.tflite import schema
from onnxtfl.formats.tflite.resources import resource_name
from onnxtfl.formats.unique import UniqueNames
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array, ArrayData, TensorData
from onnxtfl.ir.dims import fresh_symbol, is_static
from onnxtfl.ir.graph import Graph, Node, State, Value, constant
from onnxtfl.ir.model import Model
from onnxtfl.ir.origin import Origin
from onnxtfl.ir.types import DType, TensorType, Type

Evaluate = Callable[[Graph], Sequence[Array]]
"""The outputs of a graph of `tfl` ops without inputs."""
REPLACED = frozenset(
    {"VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "CALL_ONCE", "HASHTABLE", "HASHTABLE_IMPORT", "HASHTABLE_SIZE"}
)
"""The ops that are not in a graph with explicit states."""
_LOOP, _CONDITION = "tfl.WHILE", "cond_subgraph_index"
_BRANCHES, _ONCE = frozenset({"tfl.IF", "tfl.STABLEHLO_CASE", "tfl.STABLEHLO_COMPOSITE"}), "tfl.CALL_ONCE"


def explicit_states(model: Model, evaluate: Evaluate) -> None:
    """Make the states of the main graph explicit (see above), and set `Graph.states`.

    `evaluate` computes initial values that are not stored. Raises UnsupportedError for contents of tables that are not
    constant, and for variables that the subgraphs of other ops than IF and WHILE read or write.
    """
    try:
        _Threader(model.main, _Variables.of(model, evaluate)).run_main()
    except (ValueError, TypeError, IndexError, KeyError) as error:
        raise InvalidModelError(f"malformed ops on variables or tables: {error}", code="E-FILE-005") from error


@dataclass
class _Variables:
    """The variables and tables of a model by name.

    `tables`: keys and values. `read`, `written`: the variables that entry points other than the main graph read or
    write.
    """

    types: dict[str, Type] = field(default_factory=dict)
    initial: dict[str, TensorData] = field(default_factory=dict)
    tables: dict[str, tuple[Value, Value]] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, model: Model, evaluate: Evaluate) -> _Variables:
        found = cls()
        graphs = [*model.subgraphs, model.main]
        declared: dict[str, list[tuple[str, Type]]] = {}
        for graph in graphs:
            for name, access, type_ in found.accesses(graph, {}):
                declared.setdefault(name, []).append((access, type_))
                if graph is not model.main and access is not _INITIALIZE:
                    (found.read if access is _READ else found.written).add(name)
        for name, accesses in declared.items():
            found.types[name] = _variable_type(name, accesses)
        for call in [node for graph in graphs for node in graph.walk() if node.op.name == _ONCE]:
            for region in call.regions:
                found._initialize(call, region, evaluate)
        return found

    def accesses(self, graph: Graph, handles: Mapping[Value, str]) -> Iterator[tuple[str, str, Type]]:
        """The variable, the kind of access and the type of each read and write in `graph` and its regions, in order.

        `handles`: the names of variables whose handles are inputs of the graph.
        """
        known = dict(handles)
        for node in graph.nodes:
            name = _handle_name(node, known)
            if node.op.name == "tfl.READ_VARIABLE" and name and node.result.type is not None:
                yield name, _READ, node.result.type
            elif node.op.name == "tfl.ASSIGN_VARIABLE" and name and (type_ := node.operand(1).type) is not None:
                yield name, _WRITE, type_
            for region in node.regions:
                inner = {inside: known[v] for inside, v in _bound(node, region) if v in known}
                found = self.accesses(region, inner)
                yield from ((n, _INITIALIZE, t) for n, _, t in found) if node.op.name == _ONCE else found
            for i, result in enumerate(node.results):
                if (same := _passed(node, i, known)) is not None:
                    known[result] = same

    def _initialize(self, call: Node, region: Graph, evaluate: Evaluate) -> None:
        """Record the assignments of the subgraph of a CALL_ONCE; its nodes are consumed."""
        threader = _Threader(region, self)
        threader.run()
        if threader.states:
            name = next(iter(threader.states))
            raise UnsupportedError(
                f"the initialization reads the variable {name!r}", node=call.name, op="CALL_ONCE", code="E-OP-007"
            )
        computed = {name: value for name, value in threader.current.items() if value.data is None}
        region.outputs = list(computed.values())
        arrays = dict(zip(computed, evaluate(region) if computed else (), strict=True))
        for name, value in threader.current.items():
            data = value.data
            self.initial[name] = ArrayData(arrays[name], value.tensor_type.storage) if data is None else data


_READ, _WRITE, _INITIALIZE = "reads", "writes", "initializes"


def _handle_name(node: Node, handles: dict[Value, str]) -> str | None:
    """The name of the resource whose handle is operand 0, or (then it is added to `handles`) the result."""
    if len(node.results) == 1 and not node.operands and (name := resource_name(node.result)) is not None:
        handles[node.result] = name
        return name
    first = node.optional(0)
    return None if first is None else handles.get(first)


def _bound(node: Node, region: Graph) -> list[tuple[Value, Value]]:
    """The inputs of a region, each with its operand of the node (the last operands); none if it has more than the node.

    The inputs of a comparator are elements of the operands.
    """
    if len(region.inputs) > len(node.operands):
        return []
    last = node.operands[len(node.operands) - len(region.inputs) :]
    return [(inside, v) for inside, v in zip(region.inputs, last, strict=True) if v is not None]


def _passed(node: Node, index: int, handles: Mapping[Value, str]) -> str | None:
    """The variable whose handle a loop passes through as result `index`; None for other results."""
    operand = node.optional(index) if node.op.name == _LOOP else None
    return None if operand is None else handles.get(operand)


def _variable_type(name: str, accesses: Iterable[tuple[str, Type]]) -> TensorType:
    """Return the common type of all assigned (else read) values, with dynamic sizes where they differ."""
    tensors = [(access, t) for access, t in accesses if isinstance(t, TensorType)]
    if not tensors:
        raise UnsupportedError(f"the variable {name!r} is no tensor", code="E-OP-007")
    types = [t for _, t in tensors]
    if len({(t.dtype, t.quantization) for t in types}) > 1:
        message = f"the variable {name!r} has values of several element types"
        raise UnsupportedError(message, type_=", ".join(dict.fromkeys(map(str, types))), code="E-OP-007")
    shapes = [t.shape for access, t in tensors if access is not _READ] or [t.shape for t in types]
    known = [s for s in shapes if s is not None]
    if len(known) < len(shapes) or len({len(s) for s in known}) > 1:
        return types[0].with_shape(None)
    sizes = [set(dims) for dims in zip(*known, strict=True)]
    return types[0].with_shape(tuple(next(iter(s)) if len(s) == 1 else fresh_symbol() for s in sizes))


class _Threader:
    """Makes the states of one graph explicit.

    `handles`: the variable or table of each handle. `current`: the value of each variable after the nodes so far.
    `states`: of each variable that was read before it was assigned, the value before the first node. `updated`: the
    value of each operand that was updated in place.
    """

    def __init__(
        self,
        graph: Graph,
        variables: _Variables,
        handles: Mapping[Value, str] | None = None,
        current: Mapping[str, Value] | None = None,
    ) -> None:
        self.graph, self.variables = graph, variables
        self.handles, self.current = dict(handles or {}), dict(current or {})
        self.states: dict[str, Value] = {}
        self.updated: dict[Value, Value] = {}

    def run_main(self) -> None:
        """Rewrite the main graph and add the variables to its states."""
        for node in list(self.graph.nodes):
            self._initialize_once(node)
        self.run()
        self._set_initial()
        names = UniqueNames()
        for value in (*self.graph.inputs, *(s.input for s in self.graph.states)):
            names.fresh(value.name or "")
        for name, final in self.current.items():
            before, initial = self.states.get(name), self.variables.initial.get(name)
            if before is final and name not in self.variables.written and initial is not None:
                self.graph.substitute(final, constant(initial, type_=_sized(final.type, initial)), retyped=True)
                continue
            if before is None and name not in self.variables.read:
                continue  # each run assigns it before it reads it
            before = before or Value(self.variables.types[name], name)
            before.name = names.fresh(name)
            self.graph.states.append(State(before, final, initial))

    def _initialize_once(self, node: Node) -> None:
        """The result of DEQUANTIZE of a constant as a state: the kernel computes it in the first run only
        (dequantize.cc).
        """
        if node.op.name != "tfl.DEQUANTIZE" or node.operand(0).data is None or not _is_updated(node.result):
            return
        state = Value(node.result.type, node.result.name)
        state.origins = node.result.origins
        initial = node.operand(0).numpy().astype(node.result.dtype.numpy)
        uniform = initial.size > 0 and bool(np.all(initial == initial.reshape(-1)[0]))
        data = ArrayData(initial.reshape(-1)[0:1].reshape(()) if uniform else initial, node.result.dtype)
        self.graph.states.append(State(state, state, data))
        self.graph.replace(node, [state], retyped=True)

    def _set_initial(self) -> None:
        """Set the initial values of the graph's states; states that no op updates become constants."""
        for state in list(self.graph.states):
            state.initial = state.initial or _after_reset(state.input.tensor_type)
            if state.output is state.input and state.input.tensor_type.is_static:
                self.graph.states.remove(state)
                self.graph.substitute(state.input, _filled(state.input, state.initial))

    def run(self) -> None:
        """Rewrite the nodes of the graph, and the graphs among their attributes."""
        for node in list(self.graph.nodes):
            for i, value in enumerate(node.operands):
                if value is not None and value in self.updated:
                    node.set_operand(i, self._now(value))
            self._node(node)
        self.graph.outputs = [self._now(v) for v in self.graph.outputs]
        for state in self.graph.states:
            state.output = self._now(state.output)
        for handle, name in self.handles.items():
            if handle.uses or handle in self.graph.outputs:
                user = next(iter(handle.users()), None)
                op = None if user is None else user.op.name
                raise UnsupportedError(
                    f"the handle of {name!r} is used as a value", node=handle.name, op=op, code="E-OP-007"
                )
            if handle.producer is not None:
                self.graph.remove(handle.producer)

    def _now(self, value: Value) -> Value:
        """The value of a tensor after the nodes so far."""
        while value in self.updated:
            value = self.updated[value]
        return value

    def _node(self, node: Node) -> None:
        name = _handle_name(node, self.handles)
        if node.regions:
            self._regions(node)
        elif name is None:
            self._update_operands(node)
        elif node.op.name == "tfl.READ_VARIABLE":
            self.graph.replace(node, [self._value(name)], retyped=True)
        elif node.op.name == "tfl.ASSIGN_VARIABLE":
            self.current[name] = node.operand(1)
            self._remove(node)
        elif node.op.name.startswith("tfl.HASHTABLE_"):
            self._table(node, name)

    def _remove(self, node: Node) -> None:
        """Remove a node of an op without results. Raises InvalidModelError if the file uses one."""
        if any(result.uses or self.graph.is_output(result) for result in node.results):
            raise InvalidModelError("this op has no results", node=node.name, op=node.op.name, code="E-FILE-009")
        self.graph.remove(node)

    def _update_operands(self, node: Node) -> None:
        """Add a result for each operand that the node updates in place."""
        for i in _updated_operands(node):
            value = node.optional(i)
            if value is not None:
                self.updated[value] = node.add_result(value.type)

    def _value(self, name: str) -> Value:
        """Return the current value of a variable; a state of the graph if no node has assigned it yet."""
        if name not in self.current:
            value = self.current[name] = self.states[name] = Value(self.variables.types.get(name), name)
            value.origin = Origin(name)
        return self.current[name]

    def _table(self, node: Node, name: str) -> None:
        """Replace the handle of a table among the operands by the contents of the table."""
        if node.op.name == "tfl.HASHTABLE_IMPORT":
            keys, values = node.operand(1), node.operand(2)
            if keys.data is None or values.data is None:
                raise _refusal(node, "the contents of the table are not constant")
            self.variables.tables.setdefault(name, (keys, values))  # the kernel ignores further ones
            self._remove(node)
            return
        if name not in self.variables.tables:
            raise _refusal(node, "the table has no contents here")
        keys, values = self.variables.tables[name]
        builder = Builder(self.graph, node)
        if node.op.name == "tfl.HASHTABLE_SIZE":
            assert keys.data is not None
            count = len(set(keys.data.numpy().reshape(-1).tolist()))
            self.graph.replace(node, [constant(np.asarray([count], np.int64))], retyped=True)
        else:
            types = [r.type for r in node.results]
            found = builder.foreign("tfl", "HASHTABLE_FIND", [keys, values, *node.operands[1:]], types)
            self.graph.replace(node, found, retyped=True)

    def _regions(self, node: Node) -> None:
        """Add the variables that the regions of `node` read or write to its operands and results."""
        if node.op.name == _ONCE:
            self._remove(node)
            return
        condition = node.attributes.get(_CONDITION)
        for region in node.regions:
            _reset(node, region, region is condition)
        accesses = [(region, name, kind) for region in node.regions for name, kind in self._in_region(node, region)]
        touched = _distinct(name for _, name, _ in accesses)
        written = _distinct(name for _, name, kind in accesses if kind is _WRITE)
        if not touched and not any(v in self.handles for v in node.operands):
            for region in node.regions:
                _Threader(region, self.variables).run()
            return
        if node.op.name not in {_LOOP, *_BRANCHES}:
            raise _refusal(node, "its subgraphs use variables or tables")
        if any(region is condition and kind is _WRITE for region, _, kind in accesses):
            raise _refusal(node, "the condition of the loop assigns a variable")
        if node.op.name == _LOOP and isinstance(condition, Graph):
            written = touched
            self._region(node, condition, touched, ())
        bodies = [region for region in node.regions if region is not condition]
        returned = [self._region(node, region, touched, written) for region in bodies]
        self._rebuilt(node, touched, written, [_same(node, set(names)) for names in zip(*returned, strict=True)])

    def _region(self, node: Node, region: Graph, touched: Sequence[str], written: Sequence[str]) -> list[str | None]:
        """Rewrite a region: variables are additional inputs and outputs. Returns the handle, if any, of each old
        output.
        """
        handles = {inside: self.handles[v] for inside, v in _bound(node, region) if v in self.handles}
        region.inputs = [v for v in region.inputs if v not in handles]
        values = {name: region.add_input(self.variables.types[name], name) for name in touched}
        outputs, region.outputs = region.outputs, []
        threader = _Threader(region, self.variables, handles, values)
        threader.run()
        after = [threader._now(v) for v in outputs]
        names = [threader.handles.get(v) for v in after]
        region.outputs = [v for v, name in zip(after, names, strict=True) if name is None]
        region.outputs += [threader.current[name] for name in written]
        region.output_names = []
        return names

    def _rebuilt(
        self, node: Node, touched: Sequence[str], written: Sequence[str], passed: Sequence[str | None]
    ) -> None:
        """Replace `node` by one with the values of variables as operands, and of those that it writes as results."""
        operands = [v for v in node.operands if v not in self.handles] + [self._value(name) for name in touched]
        kept = [r for r, name in zip(node.results, passed, strict=True) if name is None]
        types = [*(r.type for r in kept), *(self.variables.types[name] for name in written)]
        name = node.op.name_in_file
        made = Builder(self.graph, node).foreign("tfl", name, operands, types, node.op.version, **node.attributes)
        if made and made[0].producer is not None:
            made[0].producer.name = node.name
        for old, new in zip(kept, made, strict=False):
            self.graph.substitute(old, new, retyped=True)
        self.current.update(zip(written, made[len(kept) :], strict=True))
        for result, handle in zip(node.results, passed, strict=True):
            if handle is not None:
                for user, i in list(result.uses):
                    user.set_operand(i, next(v for v, n in self.handles.items() if n == handle))
        self.graph.remove(node)

    def _in_region(self, node: Node, region: Graph) -> Iterator[tuple[str, str]]:
        """The variables that a region of `node` reads or writes."""
        handles = {inside: self.handles[v] for inside, v in _bound(node, region) if v in self.handles}
        return ((name, kind) for name, kind, _ in self.variables.accesses(region, handles) if kind is not _INITIALIZE)


def _reset(node: Node, region: Graph, is_condition: bool) -> None:
    """Start the variable tensors of a region with their initial value; a loop carries those of its body."""
    states, region.states = region.states, []
    for state in states:
        first = _filled(state.input, _after_reset(state.input.tensor_type))
        if node.op.name != _LOOP:
            region.substitute(state.input, first)
            continue
        if is_condition or not all(_is_static(v) for inner in region.nodes for v in inner.results):
            raise _refusal(node, "variable tensors in the condition of a loop, or in a body of dynamic shapes")
        for graph in node.regions:
            graph.output_names = []
            if graph is not region:
                graph.add_input(state.input.type)
        region.inputs.append(state.input)
        region.outputs.append(state.output)
        node.operands.append(None)
        node.set_operand(len(node.operands) - 1, first)
        node.add_result(state.input.type)


def _refusal(node: Node, message: str) -> UnsupportedError:
    return UnsupportedError(message, node=node.name, op=node.op.name, code="E-OP-007")


def _is_static(value: Value) -> bool:
    return not isinstance(value.type, TensorType) or value.type.is_static


def _filled(value: Value, initial: TensorData) -> Value:
    """`initial`, broadcast to the type of `value`, as a constant."""
    shape = value.shape
    if not is_static(shape):
        raise UnsupportedError("a variable tensor of dynamic shape", node=value.name, type_=value.type, code="E-OP-007")
    return constant(ArrayData(np.array(np.broadcast_to(initial.numpy(), shape)), initial.dtype), type_=value.type)


def _updated_operands(node: Node) -> list[int]:
    """The operands that `node` updates in place, in order."""
    mutated = [i for i, yes in enumerate(node.attributes.get("mutating_variable_inputs") or ()) if yes]
    return sorted({*schema.state_operands(node.op.name_in_file, len(node.operands)), *mutated})


def _is_updated(value: Value) -> bool:
    """Whether an op updates `value` in place."""
    return any(index in _updated_operands(node) for node, index in value.uses)


def _same(node: Node, names: set[str | None]) -> str | None:
    """The only one of `names`. Raises UnsupportedError if the variable of a handle depends on conditions."""
    if len(names) > 1:
        raise _refusal(node, "which variable it uses depends on what runs")
    return next(iter(names))


def _distinct(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _sized(type_: Type | None, data: TensorData) -> Type | None:
    """The type with the sizes of `data`."""
    return type_.with_shape(data.shape) if isinstance(type_, TensorType) else type_


def _after_reset(type_: TensorType) -> TensorData:
    """The initial value of all elements of a variable tensor. Source: ResetVariableTensor in LiteRT's util.cc."""
    zero = type_.quantization.zero_points[0] if type_.quantization and type_.storage is DType.INT8 else 0
    return ArrayData(np.asarray(zero, type_.storage.numpy), type_.storage)
