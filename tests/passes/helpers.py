"""What pass tests share: text in, text out, and the same numbers before and after."""

from collections import Counter
from collections.abc import Callable

import numpy as np

from onnxtfl.ir.dims import evaluate
from onnxtfl.ir.graph import Graph, Node
from onnxtfl.ir.interpret import run
from onnxtfl.ir.text import parse_graph
from onnxtfl.ir.verify import verify
from onnxtfl.passes.canonical.simplify import SIMPLIFY
from onnxtfl.passes.recognize import RECOGNIZE, RECOGNIZE_LAYERS
from onnxtfl.rewriting.pass_manager import Group, Pass, PassManager
from tests.passes import quantized
from tests.passes.quantized import stored_inputs

CONV2D = (
    "input_spatial_dimensions = [2, 3], kernel_spatial_dimensions = [2, 3], output_spatial_dimensions = [2, 3], "
    "window_strides = [1, 1], padding = [0, 0, 0, 0], rhs_dilation = [1, 1]"
)


def random_inputs(graph: Graph, seed: int = 0) -> list[np.ndarray]:
    """Numbers for the inputs, as they are stored; unknown sizes are 3."""
    return list(stored_inputs(graph, lambda value: [evaluate(d, {}, 3) for d in value.shape], seed))


def transformed(text: str, step: Callable[[Graph], object]) -> Graph:
    """The graph of `text` after `step`, checked by the verifier and on random numbers, with quantized tensors too."""
    graph = parse_graph(text)
    verify(graph, "before")
    inputs = random_inputs(graph)
    wanted = run(graph, inputs)
    step(graph)
    verify(graph, "after")
    for got, want in zip(run(graph, inputs), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    quantized.check(text, step, random_inputs)
    return graph


def op_counts(graph: Graph) -> Counter[str]:
    """The number of nodes of each op, those in regions included."""
    return Counter(node.op.name for node in graph.walk())


def only_node(graph: Graph, op: str) -> Node:
    """The node of `op`, outside of regions; an error if there is another one, or none."""
    (node,) = [node for node in graph.nodes if node.op.name == op]
    return node


def run_pass(step: Pass | Group, graph: Graph) -> None:
    """Run one pass over a graph and its regions, the verifier after it."""
    PassManager([step], given=frozenset({"neutral", "legal", "laid out", "lowered"}), check=True).run(graph)


def simplify(graph: Graph) -> None:
    run_pass(SIMPLIFY, graph)


def recognize(graph: Graph) -> None:
    run_pass(RECOGNIZE, graph)


def recognize_layers(graph: Graph) -> None:
    run_pass(RECOGNIZE, graph)
    run_pass(RECOGNIZE_LAYERS, graph)
