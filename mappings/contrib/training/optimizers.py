"""Optimizer steps of ai.onnx.preview.training, each for any number of tensors: Adagrad, Adam, Momentum."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.reshape import reshape
from onnxtfl.rewriting.registry import lift_onnx

_DOMAIN = "ai.onnx.preview.training"
_Step = Callable[[Node, Term, Term, Sequence[Term]], Sequence[Term]]
"""(node, learning rate, update count as float, [x, gradient, states...]) -> the new [x, states...] of one tensor."""


def _for_each_tensor(states: int) -> Callable[[_Step], Callable[[Builder, Node], list[Value]]]:
    """A decorator that makes a lift rule from the step for one tensor with this number of states.

    Operands of the op: rate, count, all tensors, all gradients, all first states, ...
    """

    def wrap(step: _Step) -> Callable[[Builder, Node], list[Value]]:
        @wraps(step)
        def rule(b: Builder, node: Node) -> list[Value]:
            count, rest = divmod(len(node.operands) - 2, 2 + states)
            if rest or count < 1:
                raise ValueError(
                    f"{len(node.operands)} operands: some tensor lacks a state (2 + {2 + states} a tensor expected)"
                )
            updated = [step(node, *_scalars(b, node, i), _tensors(b, node, i, count)) for i in range(count)]
            return [term.value for column in zip(*updated, strict=True) for term in column]

        return rule

    return wrap


def _scalars(b: Builder, node: Node, index: int) -> tuple[Term, Term]:
    """Learning rate and update count as scalars, in the dtype of tensor `index`."""
    dtype = node.operand(2 + index).dtype
    rate, count = (Term(b, reshape(b, node.operand(i), ())).to(dtype) for i in (0, 1))
    return rate, count


def _tensors(b: Builder, node: Node, index: int, count: int) -> list[Term]:
    """Tensor `index` of `count`, its gradient and its states."""
    operand_indices: Iterable[int] = range(2 + index, len(node.operands), count)
    return [Term(b, node.operand(i)) for i in operand_indices]


def _regularized(node: Node, x: Term, gradient: Term) -> Term:
    """gradient + norm_coefficient * x (L2 regularization)."""
    return x * float(node.attr("norm_coefficient", 0.0)) + gradient


@lift_onnx("Adagrad", since=(1,), domain=_DOMAIN)
@_for_each_tensor(states=1)
def _adagrad(node: Node, rate: Term, count: Term, tensors: Sequence[Term]) -> Sequence[Term]:
    """One step of Adagrad.

    x' = x - rate / (1 + count * decay_factor) * g / (sqrt(squares') + epsilon), with squares' = squares + g ** 2.
    """
    x, gradient, squares = tensors
    gradient = _regularized(node, x, gradient)
    squares = squares + gradient * gradient
    decayed = rate / (count * float(node.attr("decay_factor", 0.0)) + 1.0)
    return x - gradient * decayed / (squares.sqrt() + float(node.attr("epsilon", 0.0))), squares


@lift_onnx("Adam", since=(1,), domain=_DOMAIN)
@_for_each_tensor(states=2)
def _adam(node: Node, rate: Term, count: Term, tensors: Sequence[Term]) -> Sequence[Term]:
    """One step of Adam.

    x' = (x - r * mean' / (sqrt(squares') + epsilon)) * (1 - norm_coefficient_post), with
    mean' = alpha * mean + (1 - alpha) * g, squares' = beta * squares + (1 - beta) * g ** 2, and r the rate, times
    sqrt(1 - beta ** count) / (1 - alpha ** count) if count > 0.
    """
    x, gradient, mean, squares = tensors
    alpha, beta = float(node.attr("alpha", 0.9)), float(node.attr("beta", 0.999))
    gradient = _regularized(node, x, gradient)
    mean = mean * alpha + gradient * (1 - alpha)
    squares = squares * beta + gradient * gradient * (1 - beta)
    positive_count = count.max(1.0)  # avoids a division by 0 in the branch that is not selected
    corrected_rate = (
        rate
        * (1.0 - count.constant(beta).power(positive_count)).sqrt()
        / (1.0 - count.constant(alpha).power(positive_count))
    )
    step = (count > 0.0).choose(corrected_rate, rate) * mean / (squares.sqrt() + float(node.attr("epsilon", 0.0)))
    return (x - step) * (1 - float(node.attr("norm_coefficient_post", 0.0))), mean, squares


@lift_onnx("Momentum", since=(1,), domain=_DOMAIN)
@_for_each_tensor(states=1)
def _momentum(node: Node, rate: Term, count: Term, tensors: Sequence[Term]) -> Sequence[Term]:
    """One step of SGD with momentum.

    x' = x - rate * velocity', with velocity' = alpha * velocity + beta * g; in the first update (count 0), beta is 1.
    With mode nesterov, x' = x - rate * (g + alpha * velocity').
    """
    x, gradient, velocity = tensors
    alpha, mode = float(node.attr("alpha")), node.attr("mode")
    if mode not in ("standard", "nesterov"):
        raise ValueError(f"mode is {mode!r}, not standard or nesterov")
    gradient = _regularized(node, x, gradient)
    beta = (count > 0.0).choose(count.constant(float(node.attr("beta"))), 1.0)
    velocity = velocity * alpha + gradient * beta
    step = gradient + velocity * alpha if mode == "nesterov" else velocity
    return x - step * rate, velocity
