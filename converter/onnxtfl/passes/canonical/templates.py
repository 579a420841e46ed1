"""Patterns from formulas: an op is recognized by its formula over other ops.

::

    HardSigmoid(%x) {slope, offset} = Clamp(Add(Mul(%x, slope), offset), 0, 1)

    %a = Div(%x, 6)
    %b = Add(0.5, %a)                              %y = HardSigmoid(%x) {slope = 1/6, offset = 0.5}
    %y = Clamp(%b, 0, 1)                     ->

Sums match in either order, products and quotients by constants in any association. Attributes that are parameters of a
template are bound to the scalar constants found.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import symbol
from onnxtfl.ir.facts import never_negative
from onnxtfl.ir.formula import Formula, Term
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.interpret import evaluate_node
from onnxtfl.ir.matching import SMALL, Product, is_close, product_of, same_value, single_use, splat_value
from onnxtfl.ir.op import Op, attributes_of
from onnxtfl.ir.quantized import touches_quantized
from onnxtfl.ir.types import DType, TensorType
from onnxtfl.rewriting.patterns import Patterns

PRODUCTS = (ops.Mul, ops.Div)
SHAPE = (2, 3)
EXACT, ROUNDED = 1e-6, 1e-4
"""Relative tolerances for constants that a converter computed, and for those that an exporter rounded."""


@dataclass(frozen=True)
class Template:
    """`op` with `attributes` and `operands` computes the same as the formula that ends in `root`.

    `parameters`: values that are scalar constants where the formula is found, and the attributes that they become.
    `sizes`: operands that are never negative. `absent`: values that may have any type, or be absent. `shared`: whether
    intermediate values may have other uses. `tolerance`: that of constants.
    """

    op: type[Op]
    attributes: Mapping[str, Any]
    operands: tuple[Value, ...]
    root: Node
    parameters: Mapping[Value, str] = field(default_factory=dict)
    sizes: frozenset[Value] = frozenset()
    absent: frozenset[Value] = frozenset()
    shared: bool = False
    tolerance: float = EXACT

    @classmethod
    def of(
        cls,
        op: type[Op],
        formula: Callable[..., Term] | None = None,
        *,
        written: Callable[[Graph], object] | None = None,
        dtypes: Sequence[DType] = (),
        parameters: Sequence[str] = (),
        sizes: Sequence[int] = (),
        absent: Sequence[int] = (),
        tolerance: float = EXACT,
        **attributes: Any,
    ) -> Template:
        """The template of `op` by its own formula, an equivalent `formula`, or the graph that `written` makes.

        `dtypes`: of the operands (none: all are floats). `sizes`, `absent`: indices of such operands.
        """
        graph = Graph(op.name)
        b = Builder(graph)
        given = [graph.add_input(TensorType(d, SHAPE)) for d in dtypes or [DType.FLOAT32] * len(op.operands)]
        for i in sizes:
            given[i].known = _some_sizes(i)
        for i in absent:
            given[i].type = TensorType(DType.INT64, (1,))
        terms = {name: Term(b, graph.add_input(TensorType(DType.FLOAT32, ()))) for name in parameters}
        if formula is not None:
            graph.outputs = [formula(*(Term(b, v) for v in given), **{**op.defaults, **attributes, **terms}).value]
        else:
            graph.outputs = [b(op, *given, **attributes, **terms)]
            (written or _expanded)(graph)
        numbers = {t.value: name for name, t in terms.items()}
        free = frozenset(graph.inputs) - {v for i, v in enumerate(given) if i not in absent} - numbers.keys()
        root, positive = graph.outputs[0].producer, frozenset(given[i] for i in sizes)
        assert root is not None
        return cls(op, attributes, tuple(given), root, numbers, positive, free, written is not None, tolerance)

    @functools.cached_property
    def nearest(self) -> frozenset[type[Op]]:
        """The ops that have to produce the operands of the root, also through products."""
        return frozenset(node.op for node in _made_before(self.root))

    @functools.cached_property
    def second(self) -> frozenset[type[Op]]:
        """The ops that have to produce the operands of those, as far as they are no numbers."""
        before = (made for node in _made_before(self.root) for made in _made_before(node))
        return frozenset(made.op for made in before if not self._is_number(made.result))

    @functools.cached_property
    def needs(self) -> frozenset[type[Op]]:
        """The ops that a graph has to contain; constants may replace parts of a `shared` formula."""
        found = {self.root.op} if self.shared else {node.op for node in self.nodes}
        return frozenset(found.difference(PRODUCTS))

    @property
    def nodes(self) -> Sequence[Node]:
        return list(self.root.graph.nodes) if self.root.graph is not None else []

    def factors(self, node: Node) -> Product:
        """The factors of a product in the formula; what depends on constants and parameters only is a number."""
        if node not in self._factors:
            self._factors[node] = product_of(node.result, self._is_number)
        return self._factors[node]

    @functools.cached_property
    def _factors(self) -> dict[Node, Product]:
        return {}

    def _is_number(self, value: Value) -> bool:
        if value.data is not None or value in self.parameters:
            return True
        made = value.producer.operands if value.producer is not None else []
        return bool(made) and all(v is not None and self._is_number(v) for v in made)

    def match(self, node: Node) -> tuple[list[Value | None], dict[str, Any]] | None:
        """The op's operands and attributes if `node` computes it; else None."""
        match = _Match(self)
        if not match.node(self.root, node) or not match.consistent():
            return None
        numbers, bound = match.numbers, match.bound
        if any(v not in bound for v in self.operands) or any(v not in numbers for v in self.parameters):
            return None
        attributes = {**self.attributes, **{name: numbers[v] for v, name in self.parameters.items()}}
        if issubclass(self.op, Formula) and not self.op.check(attributes):
            return None
        return [bound[v] for v in self.operands], attributes

    def rewrite(self, b: Builder, node: Node) -> Value | None:
        """Replace a formula by its op if the result type is the same."""
        found = self.match(node)
        if found is None:
            return None
        result = b(self.op, *found[0], **found[1])
        if result.type != node.result.type and result.producer is not None and b.created:
            b.graph.remove(b.created.pop())
        return result if result.type == node.result.type else None


def patterns_of(*templates: Template) -> Patterns:
    """Rewrites of formulas to their ops by the first template that matches; a quotient may match a product."""
    by_op: dict[type[Op], list[Template]] = {}
    for template in templates:
        for op in PRODUCTS if template.root.op in PRODUCTS else (template.root.op,):
            by_op.setdefault(op, []).append(template)
    patterns = Patterns()
    for op, some in by_op.items():
        patterns.on(op)(partial(_formula, templates=some))
    return patterns


def _formula(b: Builder, node: Node, templates: Sequence[Template]) -> Value | None:
    return next((value for t in fitting(templates, node) if (value := t.rewrite(b, node)) is not None), None)


def fitting(templates: Sequence[Template], node: Node) -> Iterator[Template]:
    """Those of `templates` that `node` may match, by the ops that produce its operands, and those before."""
    nearest = list(_made_before(node))
    found = {made.op for made in nearest}
    fits = [template for template in templates if template.shared or template.nearest <= found]
    second = {made.op for before in nearest for made in _made_before(before)} if fits else set()
    return (template for template in fits if template.shared or template.second <= second)


def _expanded(graph: Graph) -> None:
    """Expand the only node to its formula."""
    (node,) = graph.nodes
    assert issubclass(node.op, Formula)
    graph.replace(node, node.op.expansion(Builder(graph, node), node))


def _some_sizes(operand: int) -> Array:
    """Return fresh dynamic sizes."""
    numbers = np.empty(SHAPE, object)
    for i, place in enumerate(np.ndindex(*SHAPE)):
        numbers[place] = symbol(f"template_{operand}_{i}")
    return numbers


class _Match:
    """An attempt to match a template: values and numbers bound so far, and constants to be checked."""

    def __init__(self, template: Template) -> None:
        self.template = template
        self.bound: dict[Value, Value | None] = {}
        self.numbers: dict[Value, float] = {}
        self.folded: list[tuple[Value, Value]] = []
        self.products: list[tuple[list[tuple[Value, int]], float]] = []

    def first(self, attempts: Iterable[Callable[[], bool]]) -> bool:
        """Whether one of `attempts` succeeds; the bindings of failed attempts are removed."""
        sizes = len(self.bound), len(self.numbers), len(self.folded), len(self.products)
        for attempt in attempts:
            if attempt():
                return True
            for table, size in ((self.bound, sizes[0]), (self.numbers, sizes[1])):
                while len(table) > size:
                    table.popitem()
            del self.folded[sizes[2] :], self.products[sizes[3] :]
        return False

    def node(self, wanted: Node, given: Node) -> bool:
        is_product = not self.template.shared and wanted.op in PRODUCTS and given.op in PRODUCTS
        if not (is_product or wanted.op is given.op) or touches_quantized(given):
            return False
        orders = [given.operands, given.operands[::-1]] if _swaps(wanted) else [given.operands]
        attempts = [partial(self._as_written, wanted, given, operands) for operands in orders]
        return self.first([*attempts, partial(self._as_product, wanted, given)] if is_product else attempts)

    def value(self, wanted: Value, given: Value | None) -> bool:
        bound = self.bound
        if wanted in bound:
            before = bound[wanted]
            return before is given or (before is not None and given is not None and same_value(before, given))
        if given is None or wanted in self.template.absent:
            bound[wanted] = given
            return wanted in self.template.absent
        if wanted in self.template.parameters:
            return self._number(wanted, splat_value(given))
        if wanted.data is not None:
            return self._same_number(wanted, given)
        if wanted.producer is None:
            return self._operand(wanted, given)
        if given.data is not None:
            self.folded.append((wanted, given))
            return self._may_be_constant(wanted)
        return self._made(wanted, wanted.producer, given)

    def _may_be_constant(self, wanted: Value) -> bool:
        """Whether all operands on which `wanted` depends may be constant."""
        bound, made = self.bound.get(wanted), wanted.producer.operands if wanted.producer is not None else ()
        return bound.is_constant if bound is not None else all(v is None or self._may_be_constant(v) for v in made)

    def _made(self, wanted: Value, maker: Node, given: Value) -> bool:
        node = given.producer
        if node is None or node.graph is None or not self.node(maker, node):
            return False
        self.bound[wanted] = given
        return self.template.shared or len(wanted.uses) > 1 or single_use(given, node.graph)

    def _number(self, wanted: Value, number: float | None) -> bool:
        if number is None:
            return False
        return is_close(number, self.numbers.setdefault(wanted, number), self.template.tolerance)

    def _operand(self, wanted: Value, given: Value) -> bool:
        fits = given.dtype is wanted.dtype or (given.dtype.is_float and wanted.dtype.is_float)
        if fits and wanted in self.template.sizes:
            fits = never_negative(given)
        self.bound[wanted] = given
        return fits

    def _as_written(self, wanted: Node, given: Node, operands: Sequence[Value | None]) -> bool:
        missing = len(wanted.operands) - len(operands)
        if wanted.op is not given.op or missing < 0 or not self._same_attributes(wanted, given):
            return False
        pairs = zip(wanted.operands, [*operands, *[None] * missing], strict=True)
        return all(w is g is None or (w is not None and self.value(w, g)) for w, g in pairs)

    def _same_attributes(self, wanted: Node, given: Node) -> bool:
        theirs = attributes_of(given)
        return all(self._same_attribute(mine, theirs[name]) for name, mine in attributes_of(wanted).items())

    def _same_attribute(self, mine: Any, theirs: Any) -> bool:
        if isinstance(mine, Term):
            return self._number(mine.value, theirs)
        return is_close(theirs, mine, self.template.tolerance) if isinstance(mine, float) else bool(mine == theirs)

    def _as_product(self, wanted: Node, given: Node) -> bool:
        """Match both as products of the same operands; numbers are compared when all are bound."""
        if not given.result.dtype.is_float:
            return False
        mine = self.template.factors(wanted)
        theirs = product_of(given.result, lambda v: bool(splat_value(v)))
        if len(mine.operands) != len(theirs.operands) or bool(mine.numbers) > bool(theirs.numbers):
            return False
        if wanted.result in mine.operands:  # division by a tensor
            return False
        factor = math.prod((splat_value(v) or 1.0) ** e for v, e in theirs.numbers)
        self.products.append((mine.numbers, factor))
        return self._bind_factor(mine.numbers, factor) and self._in_any_order(mine.operands, theirs.operands)

    def _bind_factor(self, numbers: Sequence[tuple[Value, int]], factor: float) -> bool:
        """Solve for the only unbound parameter of a factor."""
        unbound = [(v, e) for v, e in numbers if v in self.template.parameters and v not in self.numbers]
        if len(unbound) != 1:
            return True
        wanted, exponent = unbound[0]
        others = self._factor([(v, e) for v, e in numbers if v is not wanted])
        return others is not None and self._number(wanted, (factor / others) ** exponent)

    def _factor(self, numbers: Sequence[tuple[Value, int]]) -> float | None:
        """The product of numbers of the template with exponents 1 or -1; None if one is unknown."""
        product = 1.0
        for value, exponent in numbers:
            number = self._computed(value)
            if number is None:
                return None
            product *= float(number) ** exponent
        return product

    def _in_any_order(self, wanted: Sequence[Value], given: Sequence[Value]) -> bool:
        def attempt(i: int) -> bool:
            return self.value(wanted[0], given[i]) and self._in_any_order(wanted[1:], [*given[:i], *given[i + 1 :]])

        return not wanted or self.first(partial(attempt, i) for i in range(len(given)))

    def consistent(self) -> bool:
        """Whether the found constants equal those that the template computes from bound constants."""
        for wanted, given in self.folded:
            numbers = self._computed(wanted)
            if numbers is None or given.data is None or given.data.size > SMALL:
                return False
            if not constants_equal(given.numpy(), numbers, self.template.tolerance):
                return False
        factors = ((self._factor(numbers), product) for numbers, product in self.products)
        return all(f is not None and is_close(product, f, self.template.tolerance) for f, product in factors)

    def _computed(self, wanted: Value) -> Array | None:
        """Compute a value of the template from the bound constants and numbers; None if unknown."""
        if wanted.data is not None:
            return wanted.numpy().reshape(-1)[0]  # type: ignore[no-any-return]
        if wanted in self.numbers:
            return np.asarray(self.numbers[wanted])
        if wanted in self.bound:
            value = self.bound[wanted]
            return value.numpy() if value is not None and value.data is not None else None
        if wanted.producer is None:
            return None
        operands = [None if v is None else self._computed(v) for v in wanted.producer.operands]
        if any(o is None and v is not None for o, v in zip(operands, wanted.producer.operands, strict=True)):
            return None
        return evaluate_node(wanted.producer, [None if o is None else np.asarray(o) for o in operands])[0]

    def _same_number(self, wanted: Value, given: Value) -> bool:
        """Whether `given` is a constant with all elements equal to the number `wanted`."""
        if given.data is None or wanted.data is None or not 0 < given.data.size <= SMALL:
            return False
        number, numbers = wanted.numpy().reshape(-1)[0], given.numpy()
        if wanted.dtype.is_float != given.dtype.is_float:
            return False
        close = wanted.dtype.is_float and np.allclose(numbers, number, self.template.tolerance, 0)
        return bool(np.all(numbers == number) or close)


_MOST_PRODUCTS = 64
"""The most products that are searched for the producers of their operands."""


def _made_before(node: Node) -> Iterator[Node]:
    """The nodes that produce the operands of `node`, also through products."""
    work, seen = [node], {node}
    while work:
        user = work.pop()
        for made in (value.producer for value in user.present_operands):
            if made is not None and made.op not in PRODUCTS:
                yield made
            elif made is not None and user.op in PRODUCTS and made not in seen and len(seen) < _MOST_PRODUCTS:
                seen.add(made)
                work.append(made)


def _swaps(node: Node) -> bool:
    if node.op is ops.Compare:
        return node.attr("comparison_direction") in ("EQ", "NE")
    return node.op.commutative


def constants_equal(given: Array, numbers: Array, tolerance: float) -> bool:
    """Whether `given`, broadcast to the shape of `numbers`, is equal to them."""
    shape = np.shape(numbers) or given.shape
    if given.ndim > len(shape) or any(d not in (1, n) for d, n in zip(given.shape[::-1], shape[::-1], strict=False)):
        return False
    return bool(np.allclose(np.broadcast_to(given, shape), numbers, tolerance))
