"""The base of all targets: which op of the target's format a neutral node becomes."""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from typing import ClassVar

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.budget import Gain, current_budget
from onnxtfl.ir.builder import Operand
from onnxtfl.ir.data import Array, TensorData
from onnxtfl.ir.declaration import Permutation
from onnxtfl.ir.dims import is_nonnegative
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.matching import is_between
from onnxtfl.ir.permutations import is_unit_move
from onnxtfl.ir.quantization import StoredNumbers
from onnxtfl.ir.shapes import static_ints
from onnxtfl.ir.types import DType, TensorType, Type, shape_of
from onnxtfl.ir.verify import VerifyError, verify
from onnxtfl.rewriting import target as engine
from onnxtfl.rewriting.registry import Computed, Form
from onnxtfl.rewriting.structure import FEW
from onnxtfl.rewriting.target import Refusal
from onnxtfl.rewriting.widening import widened
from onnxtfl.targets.instance import BoundOp, is_prepared
from onnxtfl.targets.table import Costs
from onnxtfl.targets.work import estimates, open_bytes

EQUAL, SOME = 1.25, 200.0
"""Costs that differ by less than this factor, and this many nanoseconds, count as equal: measurements vary as much."""

CONVERTED = 3
"""How much longer a transpose takes with a conversion before it and one after it, each of which reads and writes all
elements (CAST was not measured).
"""


class Target(engine.Target):
    """A target with tables of its ops and their costs.

    `channels_last`: whether convolution kernels are channels-last. `compares_costs`: whether the measured costs are
    those of the hardware that the target's ops run on. `reads_values`: whether the tables depend on constants like
    axes. `shares_inputs`: whether an output may be an input, of the same
    name. `has_open_sizes`: whether tensors may have dynamic sizes. `leaving`: by how much the time counts of an op
    between others that the delegate leaves to other kernels; `crossing`: the nanoseconds for each byte that it reads or
    writes, if results have dynamic sizes.
    """

    channels_last: ClassVar[bool]
    compares_costs: bool = True
    reads_values: bool = False
    has_open_sizes: bool = True
    shares_inputs: ClassVar[bool]
    leaving: float = 1.0
    crossing: float = 0.0

    def __init__(self) -> None:
        self._refusals: dict[Hashable, Refusal | None] = {}
        self._versions: dict[Hashable, int] = {}
        self._costs: dict[Hashable, tuple[float, ...] | None] = {}
        self._transposes: dict[Hashable, float] = {}
        self._known: dict[Node, tuple[tuple[object, ...], Form | None, Hashable]] = {}
        self._last: tuple[Form | None, Hashable] = None, None

    @abstractmethod
    def refusal(self, form: Form, results: Sequence[Value]) -> Refusal | None:
        """Why the target's tables refuse `form` with results of the types of `results`; None if they accept it."""

    @abstractmethod
    def op_version(self, form: Form, results: Sequence[Value]) -> int:
        """The lowest op version that can express `form`; the target has the op."""

    @abstractmethod
    def bound(self, form: Form, results: Sequence[Value]) -> BoundOp | None:
        """`form` with its operands and results bound to the op's signature; None if the target has no such op."""

    def steps_off(self, form: Form, results: Sequence[Value]) -> int:
        """The largest error of quantized results of an accepted `form`, in steps; 0 if all are the nearest steps."""
        return 0

    def unmeasured_fault(self, form: Form) -> str:
        """The fault of `form` in releases that were not measured, if the target includes these; "" without one."""
        return ""

    @abstractmethod
    def costs(self, form: Form) -> Costs:
        """The costs measured for the op of `form`."""

    def accepted(self, node: Node) -> Form | None:
        """The form of `node` that is written; None if the target accepts none.

        Of several, those that do not fall back; of these, the cheapest on each kind of machine (those of one op, if
        costs do not count); if costs are equal or unknown, those that the delegate computes; of these, the one with the
        smallest error of quantized results; if errors are equal too, the first in the order of the rules.

        After layout assignment most nodes stay as they are until they are written: until then their forms are
        remembered.
        """
        if not self.is_laid_out or self.reads_values:
            return self._accepted(node)
        state, known = _state_of(node), self._known.get(node)
        if known is not None and len(known[0]) == len(state) and all(map(operator.is_, known[0], state)):
            self._last = known[1:]
            return known[1]
        form = self._accepted(node)
        self._known[node] = state, form, self._last[1] if self._last[0] is form else None
        return form

    def _accepted(self, node: Node) -> Form | None:
        forms = [form for form in self.forms(node) if self.refuses(node, form) is None]
        forms = [form for form in forms if not self.falls_back(node, form)] or forms
        if not self.compares_costs:
            forms = [form for form in forms if form.renames] or forms
        if len(forms) > 1 and _may_be_empty(node):
            forms = [form for form in forms if not self.fails_without_rows(form)] or forms
        if len(forms) < 2:
            return forms[0] if forms else None
        costs = [cost for form in forms if self.compares_costs and (cost := self.cost(node, form)) is not None]
        if len(costs) == len(forms):
            forms = [form for form, kept in zip(forms, cheapest(costs), strict=True) if kept]
        forms = [form for form in forms if self.delegates(node, form)] or forms
        if len(forms) < 2 or not any(result.is_quantized for result in node.results):
            return forms[0]
        return min(forms, key=lambda form: self.steps_off(form, results_of(node, form)))

    def cost(self, node: Node, form: Form) -> tuple[float, ...] | None:
        """The run time of `form` of `node` in nanoseconds on each kind of machine; None if it was not measured."""
        costs = self.costs(form)
        if not costs:
            return None
        key = (*self.key_of(node, form), *map(_work_key, form.operands))
        if key not in self._costs:
            op = self.bound(form, results_of(node, form))
            self._costs[key] = None if op is None else estimates(costs, op)
        return self._costs[key]

    def saves(self, rule: str, before: Sequence[Node], after: Sequence[Node]) -> bool:
        return is_gain(rule, self.time(before) if self.time(before[:1]) else (), self.time(after))

    def gains(self, rule: str, before: Sequence[Node], after: Sequence[Node]) -> bool:
        """As :meth:`saves`, for a rewrite after legalization that makes more nodes: the target has to accept all of
        them, and they have to be clearly faster on some machine.
        """
        if any(self.accepted(node) is None for node in after):
            return False
        had, have = self.time(before), self.time(after)
        is_faster = not had or not have or not is_within(had, have)
        return is_faster and self.saves(rule, before, after)

    def time(self, nodes: Iterable[Node]) -> tuple[float, ...]:
        """The run time of accepted nodes together in nanoseconds on each kind of machine, with that for leaving the
        delegate between them; () if no cost is known.
        """
        total: tuple[float, ...] = ()
        for node in nodes:
            form = self.accepted(node)
            if form is not None and (found := self.cost(node, form)) is not None:
                if is_between(node) and not self.delegates(node, form):
                    moved = self.crossing * open_bytes(node)
                    found = tuple(self.leaving * cost + moved for cost in found)
                total = added(total, found)
        return total

    def node_cost(self, node: Node) -> float:
        """The mean run time of the accepted form of `node` in microseconds; 0 if unknown."""
        form = self.accepted(node)
        return _mean(self.cost(node, form) or (0.0,)) / 1000 if form is not None else 0.0

    def transpose_cost(self, type_: TensorType, order: Permutation) -> float:
        """Microseconds to permute the axes of a tensor, as one or several ops; 0 if only axes of size 1 move.

        A type that no kernel takes is converted to a wider one and back.
        """
        key = type_, order
        if key not in self._transposes:
            shape = type_.shape or ()
            moves = not is_unit_move(shape, order)
            node = Node(ops.Transpose if moves else ops.Copy, [Value(type_)], {"permutation": order} if moves else {})
            node.add_result(type_.permuted(order) if moves else type_)
            wide = self._widened(node)
            costs = [_mean(cost) for form in self.forms(node) if (cost := self.cost(node, form)) is not None]
            node.detach()
            found = min(costs, default=0.0) / 1000
            if wide is not None:
                found = CONVERTED * self.transpose_cost(type_.with_dtype(wide), order)
            self._transposes[key] = found
        return self._transposes[key]

    def _widened(self, node: Node) -> DType | None:
        """The type in which `node` is computed if the target refuses that of its operand; None if it does not."""
        refusals = [self.refuses(node, form) for form in self.forms(node)]
        allowed = [r.allowed for r in refusals if r is not None and r.kind == "dtype"]
        return widened(node.operand(0).dtype, allowed[0]) if allowed and len(allowed) == len(refusals) else None

    def refuses(self, node: Node, form: Form) -> Refusal | None:
        key = self.key_of(node, form)
        self._last = form, key
        try:
            return self._refusals[key]  # a single look-up: hashing the key takes as long as making it
        except KeyError:
            return self._refusals.setdefault(key, self.refusal(form, results_of(node, form)))

    def key_of(self, node: Node, form: Form) -> tuple[Hashable, ...]:
        """Everything on which the tables depend: op, attributes, types, which operands are constant (or which small
        integers they are, if the tables depend on these).
        """
        reads_values = self.reads_values
        operands = tuple([_operand_key(v, reads_values) for v in form.operands])
        results: tuple[Type | None, ...] = form.types or tuple([r.type for r in node.results])
        options = repr(form.attributes) if form.attributes else ""
        return form.op, form.domain, operands, results, form.results, form.own_version, options, self.is_laid_out

    def version(self, node: Node, form: Form) -> int:
        self._known.pop(node, None)  # the node is written
        last, key = self._last
        if last is not form or key is None:
            key = self.key_of(node, form)
        version = self._versions.get(key)
        return version or self._versions.setdefault(key, self.op_version(form, results_of(node, form)))

    def verify(self, graph: Graph) -> None:
        """Check that `graph`, regions included, holds ops of this target only, in forms that it accepts.

        Raises VerifyError, which is a bug.
        """
        verify(graph, f"as {self.title}")
        for node in graph.walk():
            if node.op.dialect != self.name:
                raise VerifyError(f"is not an op of {self.title}", node=node.name, op=node.op.name)
            form = as_form(node)
            refusal = self.refusal(form, node.results)
            if refusal is not None:
                raise VerifyError(f"{self.title} does not accept it: {refusal.message}", node=node.name, op=form.op)


def cheapest(costs: Sequence[tuple[float, ...]]) -> list[bool]:
    """Whether each of several forms has the lowest cost; the first form is the one to write where machines disagree."""
    first = costs[0]
    harmless = [cost for cost in costs if is_within(cost, first)]
    best = min(harmless, key=lambda cost: sum(c / max(f, 1.0) for c, f in zip(cost, first, strict=True)))
    return [is_within(cost, first) and is_within(cost, best) for cost in costs]


def added(total: tuple[float, ...], cost: tuple[float, ...]) -> tuple[float, ...]:
    """The sum of two costs on each kind of machine; `cost` where `total` is ()."""
    return tuple(map(sum, zip(total, cost, strict=True))) if total else cost


def _mean(cost: tuple[float, ...]) -> float:
    return sum(cost) / len(cost)


def is_gain(rule: str, before: tuple[float, ...], after: tuple[float, ...]) -> bool:
    """Whether `rule` may replace ops that take `before` by ops that take `after` (nanoseconds on each kind of machine;
    (): unknown): these do not take longer, as far as known. The budget keeps the gain.
    """
    if before and after and not is_within(after, before):
        return False
    current_budget().gains.append(Gain(rule, before, after))
    return True


def is_within(cost: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Whether `cost` is not higher than `other` on any machine, as far as measurements can tell."""
    return all(c <= o * EQUAL + SOME for c, o in zip(cost, other, strict=True))


def as_form(node: Node) -> Form:
    """An op of a target's format as a form."""
    own = node.op.version if node.lowered_from is ops.Custom else None
    name = node.op.name_in_file
    return Form(name, tuple(node.operands), node.attributes, domain=node.op.domain, own_version=own)


def _state_of(node: Node) -> tuple[object, ...]:
    """The parts of a node, to be compared by identity."""
    types = [v and v.type for values in (node.operands, node.results) for v in values]
    return (*node.operands, *types, *node.attributes, *node.attributes.values())


def _operand_key(operand: Operand | Computed, reads_values: bool) -> Hashable:
    if operand.__class__ is Value and not reads_values:
        return _type_key(operand.type), operand.data is not None
    if isinstance(operand, Computed):
        return operand.type, False
    if reads_values and (known := _small_integers(operand)) is not None:
        return known.shape, known.tobytes()
    if isinstance(operand, Value):
        return _type_key(operand.type), operand.data is not None
    if operand is None:
        return None
    return (operand.dtype, operand.shape) if isinstance(operand, TensorData) else _array_key(np.asarray(operand))


def _work_key(operand: Operand | Computed) -> Hashable:
    """What the work of an op depends on besides types: axes, and whether operands are prepared before the first run."""
    if isinstance(operand, Value):
        is_integer = isinstance(operand.type, TensorType) and operand.type.dtype.is_integer
        axes = static_ints(operand) if is_integer else None
        return is_prepared(operand) if axes is None else tuple(axes)
    known = None if isinstance(operand, Computed) else _small_integers(operand)
    return None if known is None else known.tobytes()


def _type_key(type_: Type | None) -> Hashable:
    """A type without the scales of blocks, which no table depends on."""
    quantization = type_.quantization if isinstance(type_, TensorType) else None
    if quantization is None or not isinstance(quantization.scales, StoredNumbers) or not isinstance(type_, TensorType):
        return type_
    return type_.dtype, type_.shape, quantization.storage, quantization.axis, quantization.block


def _small_integers(operand: Operand) -> Array | None:
    """The elements of a small constant of integers, like axes; None for other operands."""
    if isinstance(operand, Value):
        known = operand.data if operand.data is not None and not operand.is_quantized else None
        return known.numpy() if known is not None and known.size <= FEW and known.dtype.is_integer else None
    if operand is None or isinstance(operand, TensorData):
        return None
    found = np.asarray(operand)
    return found if found.size <= FEW and found.dtype.kind in "iu" else None


def _array_key(array: Array) -> Hashable:
    return array.dtype.num, array.shape


def results_of(node: Node, form: Form) -> list[Value]:
    """The node's results in the order of the form, or values of the types in the form."""
    if form.types is not None:
        return [Value(type_) for type_ in form.types]
    return list(node.results) if form.results is None else [node.results[i] for i in form.results]


def operands_of(form: Form) -> list[Value | None]:
    """The form's operands, arrays and lists as constants."""
    return [_as_value(operand) for operand in form.operands]


def _as_value(operand: Operand | Computed) -> Value | None:
    if isinstance(operand, Computed):
        return Value(operand.type)
    if operand is None or isinstance(operand, Value):
        return operand
    if isinstance(operand, TensorData):
        return constant(operand)
    return constant(np.asarray(operand))


def _may_be_empty(node: Node) -> bool:
    """Whether an axis of the first operand may have size 0 at run time."""
    value = node.operands[0] if node.operands else None
    shape = None if value is None else shape_of(value.type)
    return any(not isinstance(size, int) and not is_nonnegative(size - 1) for size in shape or ())
