"""The graph: nodes in topological order, values with one producer and their uses.

SSA. A value is the result of one node, an input of the graph, or a constant (it then has `data`). Nodes form a linked
list, so that inserting and removing is local; the list is always in topological order.
Regions (of If, While, ...) are graphs among a node's attributes. They do not use values of the outer graph: captured
values are operands of the node, and trailing inputs of the region.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.errors import InternalError
from onnxtfl.ir.data import Array, ArrayData, TensorData
from onnxtfl.ir.declaration import Declaration, Effect, Permutation, Permuted, SharedAxes, UnknownRankError
from onnxtfl.ir.dims import Shape, known_size
from onnxtfl.ir.divisions import Division, of_shared_axes
from onnxtfl.ir.history import Remark, with_name
from onnxtfl.ir.intervals import Facts, FactsOf
from onnxtfl.ir.origin import HasOrigins, Origin
from onnxtfl.ir.outputs import indexed, replace_in
from onnxtfl.ir.permutations import physical_axes
from onnxtfl.ir.quantization import Quantization, dequantize
from onnxtfl.ir.types import DType, TensorType, Type, compatible, plain_type, rank_of, shape_of

Attributes = dict[str, Any]


class Value(HasOrigins):
    """A value of a graph: result of a node, graph input, or constant."""

    __slots__ = ("data", "index", "known", "name", "producer", "type", "uses")

    def __init__(self, type_: Type | None, name: str | None = None) -> None:
        super().__init__()
        self.type: Type | None = type_
        self.name = name
        self.producer: Node | None = None
        self.index = 0
        self.uses: dict[tuple[Node, int], None] = {}
        self.data: TensorData | None = None
        self.known: Array | None = None  # the dims of a small integer tensor, known before run time

    @property
    def is_constant(self) -> bool:
        """Whether this value is a constant."""
        return self.data is not None

    @property
    def is_quantized(self) -> bool:
        """Whether this is a tensor of a quantized type."""
        return isinstance(self.type, TensorType) and self.type.quantization is not None

    @property
    def is_static(self) -> bool:
        """Whether this is a tensor of which all sizes are known."""
        return isinstance(self.type, TensorType) and self.type.is_static

    @property
    def is_single(self) -> bool:
        """Whether all dimensions are known to be 1."""
        shape = shape_of(self.type)
        return shape is not None and all(d == 1 for d in shape)

    @property
    def tensor_type(self) -> TensorType:
        """The type if it is a tensor type; TypeError otherwise."""
        if not isinstance(self.type, TensorType):
            raise TypeError(f"{self.name or 'a value'} is not a tensor but {self.type}")
        return self.type

    @property
    def dtype(self) -> DType:
        """The element type of this tensor."""
        return self.tensor_type.dtype

    @property
    def shape(self) -> tuple[Any, ...]:
        """The dimensions of this tensor; UnknownRankError if its rank is unknown."""
        type_ = self.type
        shape = type_.shape if type_.__class__ is TensorType else self.tensor_type.shape
        if shape is None:
            raise UnknownRankError(f"the rank of {self.name or 'a tensor'} is unknown")
        return shape

    @property
    def rank(self) -> int:
        """The number of axes; UnknownRankError if it is unknown."""
        return len(self.shape)

    def size(self, axis: int) -> int:
        """The size of an axis, which has to be known before run time; UnsupportedError if it is not."""
        return known_size(self.shape[axis])

    def numpy(self) -> Array:
        """The elements of this constant, dequantized; TypeError if it is not a constant."""
        stored, type_ = self.stored(), self.type
        if isinstance(type_, TensorType) and type_.quantization is not None:
            return dequantize(stored, type_.quantization, type_.dtype)
        return stored

    def stored(self) -> Array:
        """The elements of this constant as stored, not dequantized; TypeError if it is not a constant."""
        if self.data is None:
            raise TypeError(f"{self.name or 'a value'} is not constant")
        return self.data.numpy()

    def replace_uses(self, new: Value) -> None:
        """Replace this value by `new` in all users."""
        uses, self.uses = self.uses, {}
        for node, index in uses:
            node.operands[index] = new
        new.uses.update(uses)

    def users(self) -> list[Node]:
        """The nodes that have this value as operand, each once, in the order in which the uses were added."""
        return list(dict.fromkeys(node for node, _ in self.uses))

    def __repr__(self) -> str:
        return f"%{self.name or hex(id(self))}: {self.type}"


class Op(Declaration):
    """An op: its declaration, effects, registration, and the axis orders of its operands.

    Subclasses in ``ir/ops`` are registered by class name.
    """

    name: ClassVar[str] = "Op"
    name_in_file: ClassVar[str] = ""
    """The name of a file's op without its dialect; "" for neutral ops."""
    dialect: ClassVar[str] = "neutral"
    domain: ClassVar[str] = ""
    version: ClassVar[int] = 0
    effect: ClassVar[Effect] = Effect.PURE
    core: ClassVar[bool] = False
    propagates: ClassVar[bool] = False
    """Whether `compute` accepts object arrays of dims, so that known values are propagated through the op."""
    shared_axes: ClassVar[SharedAxes | None] = None
    """Which operands and attributes refer to the axes of the results."""
    documented: ClassVar[str] = ""
    """The op's name in neutral-ops.txt, if that differs."""

    def __init_subclass__(cls, register: bool = True, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if register and cls.dialect == "neutral":
            cls.name = cls.__name__
            OPS[cls.name] = cls

    @classmethod
    def documented_name(cls, node: Node) -> str:
        """Return the name of the op of `node` in neutral-ops.txt."""
        return cls.documented or cls.name

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        """The unquantized types of the results; OnnxtflError, ValueError or TypeError if the operands are invalid."""
        return cls.result_types(node.operands, attributes_of(node))

    @classmethod
    def known_results(cls, node: Node) -> list[Array | None] | None:
        """The elements of the results known before run time (None: unknown), for ops with a rule of their own."""
        return None

    @classmethod
    def implied(cls, node: Node) -> Mapping[int, Sequence[float]]:
        """The elements of operands, by index, that follow from known sizes of the results; operands left out may have
        several values.
        """
        return {}

    @classmethod
    def facts(cls, node: Node, index: int, of: FactsOf) -> Facts | None:
        """What is known of the elements of result `index` in exact arithmetic, from those of operands (by index), for
        ops with a rule of their own; None: by the traits.
        """
        return None

    @classmethod
    def kept(cls, node: Node, quantization: Quantization, shape: Shape | None) -> Quantization | None:
        """For ops that move elements: the operand's `quantization` for a result of `shape`; None if it is unknown,
        so that the result is not quantized unless the node declares it.
        """
        return quantization if quantization.per_tensor else None

    @classmethod
    def permuted(cls, node: Node, index: int, permutation: Permutation) -> Permuted | None:
        """The permuted op if operand `index` (-1: the first result) has axis order `permutation`, or None.

        By default as `shared_axes` declares it; None if a rank is unknown, or that of an operand is lower.
        """
        shared, rank = cls.shared_axes, len(permutation)
        together = [] if shared is None else list(range(len(node.operands)))[: shared.operands]
        if shared is None or index not in (-1, *together) or any(rank_of(v.type) != rank for v in node.results):
            return None
        orders: list[Permutation | None] = [None] * len(node.operands)
        for i in together:
            value = node.operands[i]
            if value is not None and rank_of(value.type) == rank:
                orders[i] = permutation
            elif value is not None and not value.is_single:
                return None
        if any(v.known is None for i in shared.axes if (v := node.optional(i)) is not None):
            return None
        attributes = {name: physical_axes(node.attr(name), permutation) for name in shared.attributes}
        vectors, axes = (dict.fromkeys(indices, permutation) for indices in (shared.vectors, shared.axes))
        return Permuted(tuple(orders), (permutation,) * len(node.results), attributes, vectors, axes)

    @classmethod
    def divisions(cls, attributes: Mapping[str, Any], operands: Sequence[Array | None]) -> Iterable[Division]:
        """Axes of the only result along which it may be evaluated in parts, by default those of `shared_axes`."""
        return () if cls.shared_axes is None else of_shared_axes(cls.shared_axes, attributes, operands)

    @classmethod
    def origin_before(cls, node: Node, origin: Origin) -> Origin | None:
        """The origin of operand 0 if a result has `origin`; None if the op changes elements."""
        return None

    @classmethod
    def effect_of(cls, node: Node) -> Effect:
        """The effect of `node`; for a node with regions, that of the first effectful node in them."""
        for graph in node.regions:
            for inner in graph.nodes:
                if (effect := inner.op.effect_of(inner)) is not Effect.PURE:
                    return effect
        return cls.effect

    @classmethod
    def folds(cls, node: Node) -> bool:
        """Whether `compute` agrees with the runtimes for `node` up to float rounding."""
        return True


OPS: dict[str, type[Op]] = {}
"""The neutral ops by name."""


class Node:
    """An op instance."""

    __slots__ = (
        "attributes",
        "graph",
        "lowered_from",
        "made_by",
        "name",
        "next",
        "op",
        "operands",
        "previous",
        "regions",
        "remarks",
        "results",
        "sources",
    )

    def __init__(self, op: type[Op], operands: Sequence[Value | None], attributes: Mapping[str, Any]) -> None:
        self.op = op
        self.attributes: Attributes = dict(attributes)
        self.regions = _graphs_among(attributes.values())
        """The graphs among the attributes at the node's creation."""
        self.operands: list[Value | None] = list(operands)
        self.results: list[Value] = []
        self.name: str | None = None
        self.sources: tuple[str, ...] = ()  # the names of the source nodes that this node implements
        self.made_by: tuple[str, ...] = ()  # the rules and passes that created the node, in order
        self.remarks: tuple[Remark, ...] = ()  # for the user: about the node, or about those that it replaces
        self.lowered_from: type[Op] | None = None  # the neutral op that this op of a target is a form of
        self.graph: Graph | None = None
        self.previous: Node | None = None
        self.next: Node | None = None
        for i, value in enumerate(self.operands):
            if value is not None:
                value.uses[(self, i)] = None

    @property
    def shown_name(self) -> str:
        """The name of the node, else of its first named result; "" without names."""
        return self.name or next((r.name for r in self.results if r.name), "")

    @property
    def result(self) -> Value:
        """The only result."""
        (value,) = self.results
        return value

    @property
    def present_operands(self) -> list[Value]:
        """The operands that are not absent, in order."""
        return [v for v in self.operands if v is not None]

    @property
    def moved_operands(self) -> list[Value]:
        """The operands whose elements the op moves (`Op.moves`), without absent ones; none of an op that computes."""
        return [v for v in self.operands[self.op.moves or slice(0)] if v is not None]

    @property
    def only_moves_first(self) -> bool:
        """Whether all elements of the results are elements of the first operand."""
        return self.op.moves == slice(0, 1) and not self.op.inserts

    @property
    def is_pure(self) -> bool:
        """Whether neither the op nor one in the regions has an effect."""
        return self.op.effect_of(self) is Effect.PURE

    def operand(self, index: int) -> Value:
        """Operand `index`; ValueError if it is absent."""
        value = self.operands[index] if index < len(self.operands) else None
        if value is None:
            raise ValueError(f"{self.op.name}: operand {index} is absent")
        return value

    def optional(self, index: int) -> Value | None:
        """Operand `index`, or None if it is absent."""
        return self.operands[index] if index < len(self.operands) else None

    def attr(self, name: str, default: Any = None) -> Any:
        """Attribute `name`, or the default that the op declares, or `default`."""
        if name in self.attributes:
            return self.attributes[name]
        return self.op.defaults.get(name, default)

    def add_result(self, type_: Type | None, name: str | None = None) -> Value:
        """Append a result."""
        value = Value(type_, name)
        value.producer, value.index = self, len(self.results)
        self.results.append(value)
        return value

    def set_operand(self, index: int, value: Value | None) -> None:
        """Replace operand `index` by `value`."""
        old = self.operands[index]
        if old is not None:
            del old.uses[(self, index)]
        self.operands[index] = value
        if value is not None:
            value.uses[(self, index)] = None

    def detach(self) -> None:
        """Remove the uses that this node has of its operands, and the cycle with its results: it is freed at once."""
        for i, value in enumerate(self.operands):
            if value is not None:
                del value.uses[(self, i)]
        self.operands[:] = [None] * len(self.operands)
        for result in self.results:
            result.producer = None

    def add_history(self, *others: Node, made_by: str | None = None) -> None:
        """Add sources and remarks of `others` to this node's, and `made_by` to its rules and passes."""
        if others:
            self.sources = tuple(dict.fromkeys(s for node in (self, *others) for s in node.sources))
            self.remarks = tuple(dict.fromkeys(r for node in (self, *others) for r in node.remarks))
        if made_by is not None:
            self.made_by = with_name(self.made_by, made_by)

    def __repr__(self) -> str:
        return f"{', '.join(map(repr, self.results))} = {self.op.name}({', '.join(map(repr, self.operands))})"


def _graphs_among(attributes: Iterable[Any]) -> tuple[Graph, ...]:
    found: tuple[Graph, ...] = ()
    for value in attributes:  # of each node; a generator would be half as fast
        if value.__class__ is Graph:
            found += (value,)
        elif value.__class__ is tuple and value and value[0].__class__ is Graph:
            found += value
    return found


def attributes_of(node: Node) -> dict[str, Any]:
    """The attributes of `node` with the op's defaults; ValueError if a required one is missing."""
    given = node.attributes
    for name in node.op.required:
        if name not in given:
            raise ValueError(f"{node.op.name} needs the attribute {name}")
    return {**node.op.defaults, **given}


@dataclass(slots=True)
class State:
    """State that persists between runs: read as `input`, written from `output`. `initial`: the value before the first
    run; one element of rank 0 is that of all. None: unknown, or as in the file.
    """

    input: Value
    output: Value
    initial: TensorData | None = None


@indexed
@dataclass
class Graph:
    """A graph; `inputs` and `outputs` keep the order of the source. `number`: the subgraph of a file that it is."""

    name: str = "main"
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    output_names: list[str] = field(default_factory=list)  # if not those of the values, of which some may be repeated
    number: int | None = None
    first: Node | None = None
    last: Node | None = None
    size: int = 0  # the number of nodes
    holders: int = 0  # the number of nodes with regions

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    @property
    def nodes(self) -> Iterator[Node]:
        """The nodes in order; the caller may remove the one just yielded."""
        node = self.first
        while node is not None:
            following = node.next
            yield node
            node = following

    def add_input(self, type_: Type | None, name: str | None = None) -> Value:
        """Append an input."""
        value = Value(type_, name)
        if name is not None:
            value.origin = Origin(name)
        self.inputs.append(value)
        return value

    def insert(self, node: Node, before: Node | None = None) -> Node:
        """Insert `node` before `before`, or at the end."""
        self.size += 1
        self.holders += bool(node.regions)
        node.graph = self
        node.next = before
        node.previous = before.previous if before else self.last
        if node.previous:
            node.previous.next = node
        else:
            self.first = node
        if before:
            before.previous = node
        else:
            self.last = node
        return node

    def remove(self, node: Node) -> None:
        """Remove a node; ValueError if its results have uses."""
        for result in node.results:
            if result.uses:
                raise ValueError(f"{node.op.name} still has users")
        node.detach()
        self.unlink(node)

    def drop(self, node: Node) -> None:
        """Remove an unused pure node; if it only moves elements, its operand gets the origins of its results."""
        operand = node.operands[0] if node.operands else None
        if operand is not None and operand.type is not None:
            for result in node.results:
                operand.add_origins(node.op.origin_before(node, origin) for origin in result.origins)
        self.remove(node)

    def unlink(self, node: Node) -> None:
        """Take a node out of the list without removing its uses; the caller inserts it again."""
        self.size -= 1
        self.holders -= bool(node.regions)
        if node.previous:
            node.previous.next = node.next
        else:
            self.first = node.next
        if node.next:
            node.next.previous = node.previous
        else:
            self.last = node.previous
        node.graph = node.previous = node.next = None

    def replace(self, node: Node, values: Sequence[Value], *, retyped: bool = False) -> None:
        """Replace the results of `node` by `values` as :meth:`substitute` does, and remove `node`."""
        for old, new in zip(node.results, values, strict=True):
            self.substitute(old, new, retyped=retyped)
        self.remove(node)

    def substitute(self, old: Value, new: Value, *, retyped: bool = False) -> None:
        """Replace all uses of `old` by `new`, also among outputs and states; `new` inherits name and origins.

        InternalError if the types differ in more than unknown sizes. `retyped`: skip this check, since the type of
        `old` comes from the file and its users are lifted later.
        """
        if not retyped and not compatible(old.type, new.type):
            raise _of_another_type(old, new)
        inherit(old, new)
        old.replace_uses(new)
        replace_in(self.outputs, old, new)
        for state in self.states:
            if state.output is old:
                state.output = new

    def splice(self, body: Graph, operands: Sequence[Value | None], before: Node) -> list[Node]:
        """Move the nodes of `body` before `before`, with `operands` as its inputs; return the moved nodes.

        `body` has no nodes then; its outputs are values of this graph. Operands that are an absent input are absent.
        Raises ValueError if an output is.
        """
        for inner, outer in zip(body.inputs, operands, strict=True):
            if outer is not None:
                body.substitute(inner, outer, retyped=True)
                continue
            if inner in body.outputs:
                raise ValueError("an absent operand is a result")
            for user, i in list(inner.uses):
                user.set_operand(i, None)
        moved = list(body.nodes)
        for node in moved:
            body.unlink(node)
            self.insert(node, before)
        return moved

    @property
    def names_of_outputs(self) -> list[str]:
        """The name of each output: `output_names`, for further outputs those of the values, "" for one without."""
        return [*self.output_names, *(value.name or "" for value in self.outputs[len(self.output_names) :])]

    def is_output(self, value: Value) -> bool:
        """Whether `value` is an output or the new value of a state."""
        return value in self.outputs or (bool(self.states) and any(state.output is value for state in self.states))

    def output_set(self) -> set[Value]:
        """The outputs and the new values of states."""
        return {*self.outputs, *(state.output for state in self.states)}

    def clear(self) -> None:
        """Remove all nodes, those of regions too, whose cycles with values would wait for the garbage collector."""
        for node in self.nodes:
            node.detach()
            node.graph = node.previous = node.next = None
            for region in node.regions:
                region.clear()
        self.first = self.last = None
        self.size = self.holders = 0

    def walk(self) -> Iterator[Node]:
        """All nodes; those of regions follow the first node that has them."""
        if not self.holders:
            yield from self.nodes
            return
        seen: set[Graph] = set()
        for node in self.nodes:
            yield node
            for graph in node.regions:
                if graph not in seen:
                    seen.add(graph)
                    yield from graph.walk()


def _of_another_type(old: Value, new: Value) -> InternalError:
    """The error for a rewrite that would change the type of `old`."""
    cause = TypeError(f"{old.type} would be replaced by {new.type}")
    op = None if old.producer is None else old.producer.op.name
    return InternalError("a rewrite", cause, node=old.name, op=op)


def inherit(old: Value, new: Value) -> None:
    """Give `new`, which replaces `old`, the origins of `old`, and its name if `new` has none."""
    if new.name is None and new.data is None:
        new.name = old.name
    new.add_origins(old.origins)


def take_name(old: Value, new: Value) -> None:
    """Give the output `new` the name and the origins of `old`, which becomes an inner value."""
    new.name, new.origins, old.name = old.name, old.origins, None


def constant(
    value: Array | TensorData | int | float | bool,
    dtype: DType | None = None,
    name: str | None = None,
    type_: Type | None = None,
) -> Value:
    """A constant: numbers and arrays as `dtype`, or stored elements of the quantized type `type_`."""
    if not isinstance(value, TensorData):
        value = ArrayData(np.asarray(value, None if dtype is None else dtype.numpy), dtype)
    result = Value(type_ or plain_type(value.dtype, value.shape), name)
    result.data = value
    if value.dtype.is_integer and value.size <= KNOWN_LIMIT and value.dtype.bits >= 8 and not result.is_quantized:
        result.known = value.numpy().astype(object)
    return result


KNOWN_LIMIT = 256
"""The largest number of elements of an integer tensor whose known elements are propagated."""
