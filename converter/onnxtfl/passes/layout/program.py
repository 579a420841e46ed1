"""The 0/1 program that chooses a configuration per node to minimize the cost of transposes and kernels.

Variables: x[node, configuration] is 0 or 1, one of each node is 1 (so the last is 1 minus the others), at the cost of
the target's kernel. t[value, order] is at least (what some consumer reads in that order) minus (what the producer
writes in it), at the cost of a transpose. So a transpose is paid once for each value and order, however many read it.
Costs are microseconds.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.op import Elementwise
from onnxtfl.passes.layout.orders import Boundary, Configuration, Order, Orders, natural, transposition
from onnxtfl.targets import Target


@dataclass
class Choice:
    """The optimum: a configuration per node, an order per free input and output."""

    nodes: dict[Node, Configuration] = field(default_factory=dict)
    inputs: dict[Value, Order] = field(default_factory=dict)
    outputs: dict[Value, Order] = field(default_factory=dict)


ALWAYS = -1
"""The column of the constant 1, for amounts that do not depend on decisions."""
Amount = dict[int, float]
"""A linear combination of columns with value 0 or 1, which indicates whether something is the case."""


def _most(amount: Mapping[int, float]) -> float:
    """Return the upper bound of `amount`."""
    return sum(factor for column, factor in amount.items() if factor > 0 or column == ALWAYS)


def _sum(
    amounts: Iterable[Mapping[int, float]], factor: float = 1.0, onto: Mapping[int, float] | None = None
) -> Amount:
    """Return `onto` plus `factor` times each amount."""
    total = dict(onto or {})
    for amount in amounts:
        for column, each in amount.items():
            total[column] = total.get(column, 0.0) + factor * each
    return {column: each for column, each in total.items() if each}


_INTEGRAL = 1e-6
"""The largest error of an integral value."""


class _Program:
    """Columns and rows in flat arrays for the solver: a deep network has tens of thousands."""

    def __init__(self) -> None:
        self.cost = array("d")
        self.integral = bytearray()
        self.low = array("d")
        self.starts = array("i", [0])
        self.columns = array("i")
        self.factors = array("d")

    def column(self, cost: float, integral: bool) -> int:
        self.cost.append(cost)
        self.integral.append(integral)
        return len(self.cost) - 1

    def at_least(self, low: float, amount: Mapping[int, float]) -> None:
        """Add the row amount >= low."""
        self.low.append(low - amount.get(ALWAYS, 0.0))
        for column, factor in amount.items():
            if column != ALWAYS:
                self.columns.append(column)
                self.factors.append(factor)
        self.starts.append(len(self.columns))

    def solve(self) -> Sequence[float]:
        """Return the values of the columns at the optimum.

        Without the condition that values are integral, a program is solved in a fifth of the time. Its optimum is
        nearly always integral, and then that of the program.
        """
        values = self._optimum(is_integral=False)
        if all(abs(value - round(value)) < _INTEGRAL for value in values):
            return values
        return self._optimum(is_integral=True)

    def _optimum(self, is_integral: bool) -> Sequence[float]:
        solver = _quiet_solver()
        for option, value in (("threads", 1), ("random_seed", 0), ("mip_rel_gap", 0.0)):
            solver.setOptionValue(option, value)
        model = self._model()
        if not is_integral:
            model.integrality_ = []
        solver.passModel(model)
        solver.run()
        values: Sequence[float] = solver.getSolution().col_value
        return values

    def _model(self) -> Any:
        import highspy

        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(self.cost), len(self.low)
        lp.col_cost_ = np.asarray(self.cost)
        lp.col_lower_, lp.col_upper_ = np.zeros(len(self.cost)), np.ones(len(self.cost))
        lp.row_lower_, lp.row_upper_ = np.asarray(self.low), np.full(len(self.low), np.inf)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.asarray(self.starts)
        lp.a_matrix_.index_ = np.asarray(self.columns)
        lp.a_matrix_.value_ = np.asarray(self.factors)
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        lp.integrality_ = [kinds[i] for i in self.integral]
        return lp


def _quiet_solver() -> Any:
    """Return a silent solver: the constructor of HiGHS 1.16 prints a header when it enables callbacks."""
    import highspy

    class Quiet(highspy.Highs):  # type: ignore[misc]
        def enableCallbacks(self) -> None:
            self.setOptionValue("output_flag", False)
            super().enableCallbacks()

    solver = Quiet()
    solver.setOptionValue("output_flag", False)  # versions that enable no callbacks
    return solver


def choose(graph: Graph, found: Orders, target: Target, boundary: Boundary) -> Choice:
    """Solve for the whole graph at once; inputs and outputs that are not in `boundary` are not permuted."""
    return _Chooser(graph, found, target, boundary).run()


SURELY, NODE = 2.0, 1.0
"""The kernel cost that a transpose has to save: its cost times the error of the estimates, plus microseconds for an
additional node.
"""
_MOVED = 0.05
"""Microseconds that a not preferred order of an input or output has to save."""


class _Chooser:
    """Builds the program. `taken[node]`: the amount of each configuration; `inputs`, `outputs`: of each order.

    `followed`: the values whose only reader has the order in which they are written; no transpose of them is needed.
    """

    def __init__(self, graph: Graph, found: Orders, target: Target, boundary: Boundary) -> None:
        self.graph, self.found, self.target = graph, found, target
        self.program = _Program()
        self.seen_outside = graph.output_set()
        self.taken: dict[Node, Sequence[Amount]] = {}
        self.followed: set[Value] = set()
        self.inputs = {v: self._boundary(boundary[v]) for v in graph.inputs if v in boundary}
        self.outputs = {v: self._boundary(boundary[v]) for v in graph.outputs if v in boundary}

    def run(self) -> Choice:
        for node in self.graph.nodes:
            configurations = self.found.configurations.get(node)
            if configurations is not None:
                costs = [configuration.cost for configuration in configurations]
                self.taken[node] = self._followed(node, configurations) or self._decision(costs)
        for value in self.found.of:
            if value not in self.followed:
                self._price(value)
        return self._read(self.program.solve() if self.program.cost else ())

    def _decision(self, costs: Sequence[float]) -> list[Amount]:
        """Return a column for each alternative but the last, with its additional cost."""
        columns = [self.program.column(cost - costs[-1], True) for cost in costs[:-1]]
        rest: Amount = {ALWAYS: 1.0, **dict.fromkeys(columns, -1.0)}
        if len(columns) > 1:
            self.program.at_least(0, rest)
        return [*({column: 1.0} for column in columns), rest]

    def _boundary(self, orders: Sequence[Order]) -> dict[Order, Amount]:
        return dict(zip(orders, self._decision([0.0, *[_MOVED] * (len(orders) - 1)]), strict=True))

    def _followed(self, node: Node, configurations: Sequence[Configuration]) -> list[Amount] | None:
        """Choose the producer's order for an elementwise node that is the only reader of its only operand.

        This is optimal, since a transpose before it may move after it, and removes half of the nodes of a network.
        """
        moving = [i for i, v in enumerate(node.operands) if v is not None and not v.is_constant]
        if len(moving) != 1 or not issubclass(node.op, Elementwise) or len(node.results) != 1:
            return None
        (index,) = moving
        value, result = node.operand(index), node.result
        alone = len(value.uses) == 1 and value not in self.seen_outside
        if not alone or value.shape != result.shape:
            return None
        given = self._given(value)
        orders = [c.operands[index] for c in configurations]
        if self._moves_faster(value, result, orders):
            return None
        if len(set(orders)) < len(orders) or not given.keys() <= set(orders):
            return None
        if any(c.results[0] != order for c, order in zip(configurations, orders, strict=True)):
            return None
        self.followed.add(value)
        return [given.get(order, {}) if order is not None else {} for order in orders]

    def _moves_faster(self, value: Value, result: Value, orders: Iterable[Order | None]) -> bool:
        """Whether a transpose of `value` costs less than one of `result`, which has another type of element."""
        before, after = value.tensor_type, result.tensor_type
        if before.storage is after.storage:
            return False
        price = self.target.transpose_cost
        return any(price(before, order) < price(after, order) for order in orders if order is not None)

    def _price(self, value: Value) -> None:
        """Add a column for each order that is read, with a row per reader."""
        given = self._given(value)
        readers: dict[Order, list[Amount]] = {}
        for reader in self._readers(value):
            if reader == given:
                continue  # it reads each order exactly where that is written
            for order, amount in reader.items():
                readers.setdefault(order, []).append(amount)
        base = natural(value)
        for order, amounts in readers.items():
            needs = [_sum([given[order]], -1.0, onto=amount) if order in given else amount for amount in amounts]
            needs = [n for n in needs if n.keys() - {ALWAYS} and _most(n) > 0]
            have = base if order != base else next((k for k in given if k != order), base)
            if not needs or have == order:
                continue  # this transpose does not depend on any decision
            price = self.target.transpose_cost(value.tensor_type.permuted(have), transposition(have, order))
            paid = self.program.column(price * SURELY + NODE, False)
            for need in needs:
                self.program.at_least(0, {paid: 1.0, **{column: -factor for column, factor in need.items()}})

    def _given(self, value: Value) -> dict[Order, Amount]:
        """Return the amount in which the producer writes each order."""
        if value in self.inputs:
            return self.inputs[value]
        producer = value.producer
        if producer is None or producer not in self.taken:
            return {natural(value): {ALWAYS: 1.0}}
        return self._by_order(producer, [c.results[value.index] for c in self.found.configurations[producer]])

    def _readers(self, value: Value) -> list[dict[Order, Amount]]:
        """Return for each reader the amount in which it reads each order."""
        readers = []
        for node, index in value.uses:
            if node in self.taken:
                orders = [c.operands[index] for c in self.found.configurations[node]]
                readers.append(self._by_order(node, orders))
            else:
                readers.append({natural(value): {ALWAYS: 1.0}})
        if value in self.outputs:
            readers.append(self.outputs[value])
        elif value in self.seen_outside:
            readers.append({natural(value): {ALWAYS: 1.0}})
        return readers

    def _by_order(self, node: Node, orders: Sequence[Order | None]) -> dict[Order, Amount]:
        """Return the amount of each order at one operand or result of `node`."""
        taken = self.taken[node]
        if len(taken) == 1 and orders[0] is not None:
            return {orders[0]: taken[0]}
        amounts: dict[Order, list[Amount]] = {}
        for order, amount in zip(orders, taken, strict=True):
            assert order is not None
            amounts.setdefault(order, []).append(amount)
        return {order: _sum(each) if len(each) > 1 else each[0] for order, each in amounts.items()}

    def _read(self, solution: Sequence[float]) -> Choice:
        def value(amount: Amount) -> float:
            return sum(factor * (1.0 if c == ALWAYS else solution[c]) for c, factor in amount.items())

        choice = Choice()
        for node, amounts in self.taken.items():
            best = max(range(len(amounts)), key=lambda i: value(amounts[i])) if len(amounts) > 1 else 0
            choice.nodes[node] = self.found.configurations[node][best]
        for boundary, chosen in ((self.inputs, choice.inputs), (self.outputs, choice.outputs)):
            for free, orders in boundary.items():
                chosen[free] = max(orders, key=lambda order: value(orders[order]))
        return choice
