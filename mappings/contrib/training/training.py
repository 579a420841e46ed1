"""One step of an optimizer: Adagrad, Adam and Momentum of ai.onnx.preview.training, each for any number of tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps

from onnxtfl.errors import InvalidModelError
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.reshape import reshape
from onnxtfl.rewriting.registry import lift_onnx

_DOMAIN = "ai.onnx.preview.training"
_Step = Callable[[Node, Term, Term, Sequence[Term]], Sequence[Term]]
"""From a node, learning rate, update count (a float) and [x, gradient, states...] to [x, states...]."""


def _for_each_tensor(states: int) -> Callable[[_Step], Callable[[Builder, Node], list[Value]]]:
    """A lift rule from the step for one tensor. Operands: rate, count, all tensors, all gradients, first states..."""

    def wrap(step: _Step) -> Callable[[Builder, Node], list[Value]]:
        @wraps(step)
        def rule(b: Builder, node: Node) -> list[Value]:
            count, rest = divmod(len(node.operands) - 2, 2 + states)
            if rest or count < 1:
                raise InvalidModelError(f"{len(node.operands)} operands: some tensor lacks a state", code="E-FILE-009")
            updated = [step(node, *_scalars(b, node, i), _tensors(b, node, i, count)) for i in range(count)]
            return [term.value for column in zip(*updated, strict=True) for term in column]

        return rule

    return wrap


def _scalars(b: Builder, node: Node, index: int) -> tuple[Term, Term]:
    """Learning rate and update count, in the element type of tensor `index`."""
    dtype = node.operand(2 + index).dtype
    rate, count = (Term(b, reshape(b, node.operand(i), ())).to(dtype) for i in (0, 1))
    return rate, count


def _tensors(b: Builder, node: Node, index: int, count: int) -> list[Term]:
    places: Iterable[int] = range(2 + index, len(node.operands), count)
    return [Term(b, node.operand(i)) for i in places]


def _regularized(node: Node, x: Term, gradient: Term) -> Term:
    """The gradient plus that of norm_coefficient / 2 * |x|**2."""
    return x * float(node.attr("norm_coefficient", 0.0)) + gradient


@lift_onnx("Adagrad", since=(1,), domain=_DOMAIN)
@_for_each_tensor(states=1)
def _adagrad(node: Node, rate: Term, count: Term, tensors: Sequence[Term]) -> Sequence[Term]:
    x, gradient, squares = tensors
    gradient = _regularized(node, x, gradient)
    squares = squares + gradient * gradient
    decayed = rate / (count * float(node.attr("decay_factor", 0.0)) + 1.0)
    return x - gradient * decayed / (squares.sqrt() + float(node.attr("epsilon", 0.0))), squares


@lift_onnx("Adam", since=(1,), domain=_DOMAIN)
@_for_each_tensor(states=2)
def _adam(node: Node, rate: Term, count: Term, tensors: Sequence[Term]) -> Sequence[Term]:
    x, gradient, mean, squares = tensors
    alpha, beta = float(node.attr("alpha", 0.9)), float(node.attr("beta", 0.999))
    gradient = _regularized(node, x, gradient)
    mean = mean * alpha + gradient * (1 - alpha)
    squares = squares * beta + gradient * gradient * (1 - beta)
    later = count.max(1.0)  # no division by zero in the branch that is not chosen
    biased = rate * (1.0 - count.constant(beta).power(later)).sqrt() / (1.0 - count.constant(alpha).power(later))
    step = (count > 0.0).choose(biased, rate) * mean / (squares.sqrt() + float(node.attr("epsilon", 0.0)))
    return (x - step) * (1 - float(node.attr("norm_coefficient_post", 0.0))), mean, squares


@lift_onnx("Momentum", since=(1,), domain=_DOMAIN)
@_for_each_tensor(states=1)
def _momentum(node: Node, rate: Term, count: Term, tensors: Sequence[Term]) -> Sequence[Term]:
    """In the first update, whose count is 0, beta is 1."""
    x, gradient, velocity = tensors
    alpha, mode = float(node.attr("alpha")), node.attr("mode")
    if mode not in ("standard", "nesterov"):
        raise InvalidModelError(f"mode is {mode!r}, not standard or nesterov", code="E-FILE-009")
    gradient = _regularized(node, x, gradient)
    beta = (count > 0.0).choose(count.constant(float(node.attr("beta"))), 1.0)
    velocity = velocity * alpha + gradient * beta
    step = gradient + velocity * alpha if mode == "nesterov" else velocity
    return x - step * rate, velocity
