"""The 0/1 program: which configuration each node takes, so that the bytes moved by transposes are fewest.

Variables: x[node, configuration] is 0 or 1, one of each node is 1. t[value, label] is at least (what some consumer
reads under the label) minus (what the producer gives under it), and costs the value's bytes. So a transpose is paid
once for each value and label, however many read it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from onnxtfl.ir.dims import nominal
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.op import Permutation
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


def transpose_cost(value: Value, have: Permutation, want: Permutation) -> int:
    """The price of laying `value` anew."""
    shape = value.tensor_type.shape or ()
    if is_unit_move(shape, transposition(have, want), have):
        return RESHAPE_COST
    size = max(1, value.dtype.bits // 8)
    for d in shape:
        size *= nominal(d)
    return NODE_COST + (size if have[-1] == want[-1] else int(size * SCATTERED))


def is_unit_move(shape: Sequence[object], permutation: Permutation, have: Permutation) -> bool:
    """Whether permuting memory labelled `have` moves axes of size 1 only."""
    moved = [p for p in permutation if shape[have[p]] != 1]
    return moved == sorted(moved)


ALWAYS = -1
"""Stands, among columns, for the constant 1: what is so whatever is decided."""


def _need(reads: Mapping[int, float], gives: Mapping[int, float]) -> dict[int, float]:
    """reads - gives: how much of a transpose a reader needs, by column."""
    total = dict(reads)
    for column, factor in gives.items():
        total[column] = total.get(column, 0.0) - factor
    return {column: factor for column, factor in total.items() if factor}


class _Program:
    """Collects columns and rows in the form that the solver takes."""

    def __init__(self) -> None:
        self.cost: list[float] = []
        self.integral: list[bool] = []
        self.rows: list[tuple[float, float, list[tuple[int, float]]]] = []

    def column(self, cost: float, integral: bool) -> int:
        self.cost.append(cost)
        self.integral.append(integral)
        return len(self.cost) - 1

    def row(self, low: float, high: float, entries: Mapping[int, float]) -> None:
        self.rows.append((low, high, list(entries.items())))

    def solve(self) -> list[float]:
        """The values of the columns at the optimum."""
        import highspy
        import numpy as np

        solver = highspy.Highs()
        for option, value in (("output_flag", False), ("threads", 1), ("random_seed", 0), ("mip_rel_gap", 0.0)):
            solver.setOptionValue(option, value)
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(self.cost), len(self.rows)
        lp.col_cost_ = np.asarray(self.cost, np.float64)
        lp.col_lower_, lp.col_upper_ = np.zeros(len(self.cost)), np.ones(len(self.cost))
        lp.row_lower_ = np.asarray([r[0] for r in self.rows], np.float64)
        lp.row_upper_ = np.asarray([r[1] for r in self.rows], np.float64)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.cumsum([0, *(len(r[2]) for r in self.rows)]).astype(np.int32)
        lp.a_matrix_.index_ = np.asarray([c for r in self.rows for c, _ in r[2]], np.int32)
        lp.a_matrix_.value_ = np.asarray([v for r in self.rows for _, v in r[2]], np.float64)
        kinds = {True: highspy.HighsVarType.kInteger, False: highspy.HighsVarType.kContinuous}
        lp.integrality_ = [kinds[i] for i in self.integral]
        solver.passModel(lp)
        solver.run()
        return list(solver.getSolution().col_value)


def choose(graph: Graph, found: Labels, free_inputs: set[Value], free_outputs: set[Value]) -> Choice:
    """Solve for the whole graph at once."""
    return _Chooser(graph, found, free_inputs, free_outputs).run()


class _Chooser:
    def __init__(self, graph: Graph, found: Labels, free_inputs: set[Value], free_outputs: set[Value]) -> None:
        self.graph, self.found = graph, found
        self.free_inputs, self.free_outputs = free_inputs, free_outputs
        self.program = _Program()
        self.columns: dict[Node, list[int]] = {}
        self.input_columns: dict[Value, dict[Permutation, int]] = {}
        self.output_columns: dict[Value, dict[Permutation, int]] = {}

    def run(self) -> Choice:
        for node, configurations in self.found.configurations.items():
            self.columns[node] = self._decision(len(configurations))
        self.input_columns = {v: self._boundary(v) for v in self.graph.inputs if v in self.free_inputs}
        self.output_columns = {v: self._boundary(v) for v in self.graph.outputs if v in self.free_outputs}
        for value in self.found.of:
            self._price(value)
        return self._read(self.program.solve() if self.program.cost else [])

    def _decision(self, count: int) -> list[int]:
        """A column for each configuration; ALWAYS where there is only one, which decides nothing."""
        if count == 1:
            return [ALWAYS]
        columns = [self.program.column(0, True) for _ in range(count)]
        self.program.row(1, 1, dict.fromkeys(columns, 1.0))
        return columns

    def _boundary(self, value: Value) -> dict[Permutation, int]:
        labels = dict.fromkeys([identity(value), channels_last_label(value)])
        columns = {label: self.program.column(0.5 * (label == identity(value)), True) for label in labels}
        self.program.row(1, 1, dict.fromkeys(columns.values(), 1.0))
        return columns

    def _price(self, value: Value) -> None:
        """A column for each label that somebody reads, with a row for each reader."""
        given = self._given(value)
        readers: dict[Permutation, list[dict[int, float]]] = {}
        for reader in self._readers(value):
            for label, entries in reader.items():
                readers.setdefault(label, []).append(entries)
        base = identity(value)
        for label, rows in readers.items():
            needs = [n for n in (_need(reads, given.get(label, {})) for reads in rows) if set(n) - {ALWAYS}]
            if not needs:
                continue  # whether this transpose is there does not depend on any decision
            have = base if label != base else next((k for k in given if k != label), base)
            paid = self.program.column(self._cost(value, have, label), False)
            for need in needs:
                constant = need.pop(ALWAYS, 0.0)
                self.program.row(constant, float("inf"), {paid: 1.0, **{c: -f for c, f in need.items()}})

    def _cost(self, value: Value, have: Permutation, want: Permutation) -> float:
        if have == want or not isinstance(value.type, TensorType):
            return 0.0
        return transpose_cost(value, have, want) / 1024

    def _given(self, value: Value) -> dict[Permutation, dict[int, float]]:
        """For each label: the columns under which the producer gives it (ALWAYS: whatever is decided)."""
        if value in self.input_columns:
            return {label: {column: 1.0} for label, column in self.input_columns[value].items()}
        if value.producer not in self.columns:
            return {identity(value): {ALWAYS: 1.0}}
        result: dict[Permutation, dict[int, float]] = {}
        producer = value.producer
        for column, configuration in zip(self.columns[producer], self.found.configurations[producer], strict=True):
            label = configuration.results[value.index]
            assert label is not None
            result.setdefault(label, {})[column] = 1.0
        return result

    def _readers(self, value: Value) -> list[dict[Permutation, dict[int, float]]]:
        readers = []
        for node, index in value.uses:
            if node not in self.columns:
                readers.append({identity(value): {ALWAYS: 1.0}})
                continue
            reads: dict[Permutation, dict[int, float]] = {}
            for column, configuration in zip(self.columns[node], self.found.configurations[node], strict=True):
                label = configuration.operands[index]
                assert label is not None
                reads.setdefault(label, {})[column] = 1.0
            readers.append(reads)
        if value in self.output_columns:
            readers.append({label: {column: 1.0} for label, column in self.output_columns[value].items()})
        elif value in self.graph.output_set():
            readers.append({identity(value): {ALWAYS: 1.0}})
        return readers

    def _read(self, solution: list[float]) -> Choice:
        choice = Choice()
        for node, columns in self.columns.items():
            best = max(range(len(columns)), key=lambda i: solution[columns[i]]) if len(columns) > 1 else 0
            choice.nodes[node] = self.found.configurations[node][best]
        for boundary, chosen in ((self.input_columns, choice.inputs), (self.output_columns, choice.outputs)):
            for value, labels in boundary.items():
                chosen[value] = max(labels, key=lambda label: solution[labels[label]])
        return choice
