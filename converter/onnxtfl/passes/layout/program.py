"""The 0/1 program: which configuration each node takes, so that the bytes moved by transposes are fewest.

Variables: x[node, configuration] is 0 or 1, one of each node is 1 (so the last is what the others leave of it).
t[value, label] is at least (what some consumer reads under the label) minus (what the producer gives under it), and
costs the value's bytes. So a transpose is paid once for each value and label, however many read it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxtfl.ir.dims import nominal
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.op import Elementwise, Permutation
from onnxtfl.ir.types import TensorType
from onnxtfl.passes.layout.labels import Configuration, Labels, channels_last_label, identity, transposition

NODE_COST = 4096
"""What a transpose costs besides its bytes: calling a kernel, and a node more in the model."""
SCATTERED = 1.25
"""How much more a byte costs where the last axis changes, so that no two neighbours stay together."""
RESHAPE_COST = 1
"""What it costs to move unit axes only, which is a Reshape."""


@dataclass
class Choice:
    """The optimum: a configuration for each node with a choice, a label for each free input and output."""

    nodes: dict[Node, Configuration] = field(default_factory=dict)
    inputs: dict[Value, Permutation] = field(default_factory=dict)
    outputs: dict[Value, Permutation] = field(default_factory=dict)


def transpose_cost(tensor: TensorType, permutation: Permutation) -> int:
    """The price of permuting the axes of a tensor."""
    shape = tensor.shape or ()
    if is_unit_move(shape, permutation):
        return RESHAPE_COST
    size = max(1, tensor.storage.bits // 8)
    for d in shape:
        size *= nominal(d)
    return NODE_COST + (size if permutation[-1] == len(permutation) - 1 else int(size * SCATTERED))


def is_unit_move(shape: Sequence[object], permutation: Permutation) -> bool:
    """Whether permuting the axes of `shape` moves axes of size 1 only."""
    moved = [p for p in permutation if shape[p] != 1]
    return moved == sorted(moved)


ALWAYS = -1
"""Stands, among columns, for the constant 1: what is so whatever is decided."""
Amount = dict[int, float]
"""A sum of columns, each times a factor: 1 where something is so, 0 where it is not."""


def _most(amount: Mapping[int, float]) -> float:
    """What `amount` is at most."""
    return sum(factor for column, factor in amount.items() if factor > 0 or column == ALWAYS)


def _sum(
    amounts: Iterable[Mapping[int, float]], factor: float = 1.0, onto: Mapping[int, float] | None = None
) -> Amount:
    """`onto` plus `factor` times each amount."""
    total = dict(onto or {})
    for amount in amounts:
        for column, each in amount.items():
            total[column] = total.get(column, 0.0) + factor * each
    return {column: each for column, each in total.items() if each}


class _Program:
    """Collects columns and rows, flat, as the solver takes them: a deep network has tens of thousands."""

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
        """A row: `amount` is `low` or more."""
        self.low.append(low - amount.get(ALWAYS, 0.0))
        for column, factor in amount.items():
            if column != ALWAYS:
                self.columns.append(column)
                self.factors.append(factor)
        self.starts.append(len(self.columns))

    def solve(self) -> Sequence[float]:
        """The values of the columns at the optimum."""
        import highspy

        solver = highspy.Highs()
        for option, value in (("output_flag", False), ("threads", 1), ("random_seed", 0), ("mip_rel_gap", 0.0)):
            solver.setOptionValue(option, value)
        solver.passModel(self._model())
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


def choose(graph: Graph, found: Labels, free_inputs: set[Value], free_outputs: set[Value]) -> Choice:
    """Solve for the whole graph at once."""
    return _Chooser(graph, found, free_inputs, free_outputs).run()


class _Chooser:
    """`taken[node]`: how much each of its configurations is taken; `inputs`, `outputs`: how much a label is."""

    def __init__(self, graph: Graph, found: Labels, free_inputs: set[Value], free_outputs: set[Value]) -> None:
        self.graph, self.found = graph, found
        self.program = _Program()
        self.seen_outside = graph.output_set()
        self.taken: dict[Node, Sequence[Amount]] = {}
        self.inputs = {v: self._boundary(v) for v in graph.inputs if v in free_inputs}
        self.outputs = {v: self._boundary(v) for v in graph.outputs if v in free_outputs}

    def run(self) -> Choice:
        for node in self.graph.nodes:
            configurations = self.found.configurations.get(node)
            if configurations is not None:
                self.taken[node] = self._followed(node, configurations) or self._decision(len(configurations))
        for value in self.found.of:
            self._price(value)
        return self._read(self.program.solve() if self.program.cost else ())

    def _decision(self, count: int, cost: float = 0) -> list[Amount]:
        """A column for each of `count` choices but the last; `cost` is that of the first."""
        columns = [self.program.column(cost if i == 0 else 0, True) for i in range(count - 1)]
        rest: Amount = {ALWAYS: 1.0, **dict.fromkeys(columns, -1.0)}
        if len(columns) > 1:
            self.program.at_least(0, rest)
        return [*({column: 1.0} for column in columns), rest]

    def _boundary(self, value: Value) -> dict[Permutation, Amount]:
        labels = list(dict.fromkeys([identity(value), channels_last_label(value)]))
        return dict(zip(labels, self._decision(len(labels), 0.5), strict=True))

    def _followed(self, node: Node, configurations: Sequence[Configuration]) -> list[Amount] | None:
        """What an elementwise node takes that alone reads its only operand: the label that it is given.

        Nothing is lost: a transpose before it could as well stand behind it. Half of the nodes of a network are so.
        """
        moving = [i for i, v in enumerate(node.operands) if v is not None and not v.is_constant]
        if len(moving) != 1 or not issubclass(node.op, Elementwise) or len(node.results) != 1:
            return None
        (index,) = moving
        value, result = node.operand(index), node.result
        alone = len(value.uses) == 1 and value not in self.seen_outside
        if not alone or value.shape != result.shape or value.tensor_type.storage.bits < result.tensor_type.storage.bits:
            return None
        given = self._given(value)
        labels = [c.operands[index] for c in configurations]
        if len(set(labels)) < len(labels) or not given.keys() <= set(labels):
            return None
        if any(c.results[0] != label for c, label in zip(configurations, labels, strict=True)):
            return None
        return [given.get(label, {}) if label is not None else {} for label in labels]

    def _price(self, value: Value) -> None:
        """A column for each label that somebody reads, with a row for each reader."""
        given = self._given(value)
        readers: dict[Permutation, list[Amount]] = {}
        for reader in self._readers(value):
            for label, amount in reader.items():
                readers.setdefault(label, []).append(amount)
        base = identity(value)
        for label, amounts in readers.items():
            needs = [_sum([given.get(label, {})], -1.0, onto=amount) for amount in amounts]
            needs = [n for n in needs if n.keys() - {ALWAYS} and _most(n) > 0]
            have = base if label != base else next((k for k in given if k != label), base)
            if not needs or have == label:
                continue  # whether this transpose is there does not depend on any decision
            price = transpose_cost(value.tensor_type.permuted(have), transposition(have, label))
            paid = self.program.column(price / 1024, False)
            for need in needs:
                self.program.at_least(0, _sum([need], -1.0, onto={paid: 1.0}))

    def _given(self, value: Value) -> dict[Permutation, Amount]:
        """How much the producer gives each label."""
        if value in self.inputs:
            return self.inputs[value]
        producer = value.producer
        if producer is None or producer not in self.taken:
            return {identity(value): {ALWAYS: 1.0}}
        return self._by_label(producer, [c.results[value.index] for c in self.found.configurations[producer]])

    def _readers(self, value: Value) -> list[dict[Permutation, Amount]]:
        """How much each reader reads each label."""
        readers = []
        for node, index in value.uses:
            if node in self.taken:
                labels = [c.operands[index] for c in self.found.configurations[node]]
                readers.append(self._by_label(node, labels))
            else:
                readers.append({identity(value): {ALWAYS: 1.0}})
        if value in self.outputs:
            readers.append(self.outputs[value])
        elif value in self.seen_outside:
            readers.append({identity(value): {ALWAYS: 1.0}})
        return readers

    def _by_label(self, node: Node, labels: Sequence[Permutation | None]) -> dict[Permutation, Amount]:
        """How much each label is that the configurations of `node` have somewhere."""
        amounts: dict[Permutation, list[Amount]] = {}
        for label, amount in zip(labels, self.taken[node], strict=True):
            assert label is not None
            amounts.setdefault(label, []).append(amount)
        return {label: _sum(each) if len(each) > 1 else each[0] for label, each in amounts.items()}

    def _read(self, solution: Sequence[float]) -> Choice:
        def value(amount: Amount) -> float:
            return sum(factor * (1.0 if c == ALWAYS else solution[c]) for c, factor in amount.items())

        choice = Choice()
        for node, amounts in self.taken.items():
            best = max(range(len(amounts)), key=lambda i: value(amounts[i]))
            choice.nodes[node] = self.found.configurations[node][best]
        for boundary, chosen in ((self.inputs, choice.inputs), (self.outputs, choice.outputs)):
            for free, labels in boundary.items():
                chosen[free] = max(labels, key=lambda label: value(labels[label]))
        return choice
