"""Matrix products: DotGeneral DotGeneralBias Dot Gemm."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from onnxtfl.ir import half
from onnxtfl.ir.attributes import Axes, Flag, Float, Integers
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, broadcast_dim, differ, known_of, product
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.divisions import Division, along
from onnxtfl.ir.formula import Formula, Term, by_expansion
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import NUMERIC, Attributes, Op, Operand, Permutation, Permuted, attributes_of
from onnxtfl.ir.ops.arithmetic import pair
from onnxtfl.ir.permutations import physical_axes, unless_identity


class DotGeneral(Op):
    """Sum of products over the contracting dimensions, separately for each index of the batching ones.

    The result has the batching axes (in the order of the attribute), then lhs's free axes, then rhs's;
    `output_permutation` (added) permutes that result, empty for none; a batching size of 1 broadcasts (widened).
    Operands of one numeric dtype; integers wrap, floats under 32 bits are summed in float32. Source: neutral-ops 3.38.
    """

    core = True
    typed = True
    multiplies = "matrices"
    widens = True
    operands: ClassVar[tuple[Operand, ...]] = pair(NUMERIC)
    attributes = {
        "lhs_batching_dimensions": Axes(()),
        "rhs_batching_dimensions": Axes(()),
        "lhs_contracting_dimensions": Axes(),
        "rhs_contracting_dimensions": Axes(),
        "output_permutation": Integers(()),
    }

    @staticmethod
    def shape(lhs: Value, rhs: Value, *bias: Value, **attributes: Any) -> Dims:
        roles = DotRoles(attributes, lhs.rank, rhs.rank)
        pairs = zip(roles.lhs_batch, roles.rhs_batch, strict=True)
        batch = [broadcast_dim(lhs.shape[i], rhs.shape[j]) for i, j in pairs]
        for i, j in zip(roles.lhs_contract, roles.rhs_contract, strict=True):
            _agree(lhs.shape[i], rhs.shape[j])
        natural = (*batch, *(lhs.shape[i] for i in roles.lhs_free), *(rhs.shape[j] for j in roles.rhs_free))
        for vector in bias:
            _check_bias(vector, natural)
        return tuple(natural[p] for p in attributes["output_permutation"] or range(len(natural)))

    @staticmethod
    def compute(lhs: Array, rhs: Array, *bias: Array, **attributes: Any) -> Array:
        roles = DotRoles(attributes, lhs.ndim, rhs.ndim)
        a = lhs.transpose((*roles.lhs_batch, *roles.lhs_free, *roles.lhs_contract))
        b = rhs.transpose((*roles.rhs_batch, *roles.rhs_contract, *roles.rhs_free))
        count, depth = len(roles.lhs_batch), math.prod(lhs.shape[i] for i in roles.lhs_contract)
        rows, columns = [lhs.shape[i] for i in roles.lhs_free], [rhs.shape[j] for j in roles.rhs_free]
        a = a.reshape(*a.shape[:count], math.prod(rows), depth)
        product = half.matmul(a, b.reshape(*b.shape[:count], depth, math.prod(columns)))
        result = sum(bias, product.reshape((*product.shape[:count], *rows, *columns)))
        return np.asarray(result).transpose(attributes["output_permutation"] or range(result.ndim))

    @classmethod
    def divisions(cls, attributes: Attributes, operands: Sequence[Array | None]) -> Iterator[Division]:
        """All axes of the result: those of batches are axes of both operands, free ones of one."""
        lhs, rhs, *bias = operands
        assert lhs is not None and rhs is not None
        roles = DotRoles(attributes, lhs.ndim, rhs.ndim)
        natural: list[tuple[int | None, int | None]] = [*zip(roles.lhs_batch, roles.rhs_batch, strict=True)]
        natural += [*((i, None) for i in roles.lhs_free), *((None, j) for j in roles.rhs_free)]
        order = list(attributes["output_permutation"] or range(len(natural)))
        for axis, (i, j) in enumerate(natural):
            sizes = [1 if place is None else x.shape[place] for x, place in ((lhs, i), (rhs, j))]
            size = sizes[0] if sizes[1] == 1 else sizes[1]
            places = [place if n == size else None for place, n in zip((i, j), sizes, strict=True)]
            yield along(order.index(axis), size, [*places, *(_feature_axis(v, axis == len(natural) - 1) for v in bias)])

    @classmethod
    def permuted(cls, node: Node, index: int, permutation: Permutation) -> Permuted | None:
        """Renumber axes; a permuted result changes `output_permutation`."""
        if index == -1:
            return _permuted_result(node, permutation)
        permuted = _permuted_operand(node, index, permutation)
        return _align_weight(node, permuted) if index == 0 and node.operand(1).is_constant else permuted


class DotGeneralBias(DotGeneral):
    """DotGeneral, plus a bias for each index of the last natural axis (rhs's last free one).

    Source: neutral-ops 3.39. Not core: recognised for targets whose matmul adds a bias.
    """

    core = False
    operands = (*pair(NUMERIC), Operand("bias", NUMERIC))

    @classmethod
    def permuted(cls, node: Node, index: int, permutation: Permutation) -> Permuted | None:
        """As DotGeneral; the bias and its axis are not permuted."""
        permuted = None if index == 2 else super().permuted(node, index, permutation)
        if permuted is None or (index == 1 and len(DotRoles.of(node).rhs_free) > 1):
            return None
        return Permuted((*permuted.operands, None), permuted.results, permuted.attributes)


def _feature_axis(bias: Array | None, is_last: bool) -> int | None:
    return bias.ndim - 1 if is_last and bias is not None and bias.ndim and bias.shape[-1] != 1 else None


def _check_bias(bias: Value, natural: Dims) -> None:
    """Raise ValueError unless `bias` has one element per index of the last natural axis."""
    count, features = product(bias.tensor_type.shape or (1,)), natural[-1] if natural else 1
    if differ(count, features):
        raise ValueError(f"a bias of {count} elements for {features} results")


class DotRoles:
    """The axes of a DotGeneral's operands by role."""

    def __init__(self, attributes: Attributes, lhs_rank: int, rhs_rank: int) -> None:
        self.lhs_batch, self.rhs_batch = _axes(attributes, "batching")
        self.lhs_contract, self.rhs_contract = _axes(attributes, "contracting")
        if len(self.lhs_batch) != len(self.rhs_batch) or len(self.lhs_contract) != len(self.rhs_contract):
            raise ValueError("batching or contracting dimensions do not pair up")
        self.lhs_free = _free(lhs_rank, self.lhs_batch + self.lhs_contract)
        self.rhs_free = _free(rhs_rank, self.rhs_batch + self.rhs_contract)

    @classmethod
    def of(cls, node: Node) -> DotRoles:
        """Return the roles in `node`, whose operands have known ranks."""
        return cls(attributes_of(node), node.operand(0).rank, node.operand(1).rank)

    @property
    def attributes(self) -> dict[str, Any]:
        """Return the attributes for these roles, with the result in its natural order."""
        return {
            "lhs_batching_dimensions": self.lhs_batch,
            "rhs_batching_dimensions": self.rhs_batch,
            "lhs_contracting_dimensions": self.lhs_contract,
            "rhs_contracting_dimensions": self.rhs_contract,
        }

    @property
    def is_batch_matmul(self) -> bool:
        """Whether each operand is [batch..., two axes]: batch axes in order, one free and one contracting axis."""
        front = tuple(range(len(self.lhs_batch)))
        ones = len(self.lhs_contract) == len(self.lhs_free) == len(self.rhs_free) == 1
        return ones and self.lhs_batch == front == self.rhs_batch


def _axes(attributes: Attributes, kind: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(attributes[f"lhs_{kind}_dimensions"]), tuple(attributes[f"rhs_{kind}_dimensions"])


def _free(rank: int, taken: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(taken)) != len(taken) or any(not 0 <= a < rank for a in taken):
        raise ValueError(f"dimensions {taken} of a tensor of rank {rank}")
    return tuple(a for a in range(rank) if a not in taken)


def _agree(a: Dim, b: Dim) -> Dim:
    """Return the common size of two axes: the static one if the other is symbolic."""
    if differ(a, b):
        raise ValueError(f"sizes {a} and {b} differ")
    return known_of(a, b)


def _permuted_operand(node: Node, index: int, permutation: Permutation) -> Permuted:
    """Permute the batching axes of the other operand and of the result alike, and the free axes of the result."""
    roles = DotRoles.of(node)
    mine, other = (roles.rhs_batch, roles.lhs_batch) if index else (roles.lhs_batch, roles.rhs_batch)
    batch = [mine.index(a) for a in permutation if a in mine]
    orders: list[Sequence[int]] = [permutation, _shuffled(node.operand(1 - index).rank, other, batch)]
    lhs, rhs = reversed(orders) if index else orders
    changed = {
        "lhs_batching_dimensions": physical_axes(tuple(roles.lhs_batch[q] for q in batch), lhs),
        "rhs_batching_dimensions": physical_axes(tuple(roles.rhs_batch[q] for q in batch), rhs),
        "lhs_contracting_dimensions": physical_axes(roles.lhs_contract, lhs),
        "rhs_contracting_dimensions": physical_axes(roles.rhs_contract, rhs),
    }
    free = roles.rhs_free if index else roles.lhs_free
    start = len(batch) + (len(roles.lhs_free) if index else 0)
    order = [*batch, *range(len(batch), len(batch) + len(roles.lhs_free) + len(roles.rhs_free))]
    order[start : start + len(free)] = [start + free.index(a) for a in permutation if a in free]
    before = node.attr("output_permutation")
    if before:  # the natural result changes, the output permutation puts it back
        changed["output_permutation"] = unless_identity([order.index(p) for p in before]) or ()
        order = list(range(len(order)))
    return Permuted((unless_identity(lhs), unless_identity(rhs)), (unless_identity(order),), changed)


def _shuffled(rank: int, axes: Sequence[int], order: Sequence[int]) -> list[int]:
    """Return the axis order of `rank` axes with `axes` in `order` and the others unchanged."""
    result = list(range(rank))
    for place, which in zip(sorted(axes), order, strict=True):
        result[place] = axes[which]
    return result


def _align_weight(node: Node, permuted: Permuted) -> Permuted:
    """Permute the contracting axes of a constant rhs like those of lhs, so that both can be flattened."""
    lhs_axes = permuted.attributes["lhs_contracting_dimensions"]
    rhs_axes = tuple(node.attr("rhs_contracting_dimensions"))
    if len(rhs_axes) < 2:
        return permuted
    weight = _shuffled(node.operand(1).rank, rhs_axes, sorted(range(len(lhs_axes)), key=lhs_axes.__getitem__))
    axes = {
        "lhs_contracting_dimensions": tuple(sorted(lhs_axes)),
        "rhs_contracting_dimensions": tuple(sorted(rhs_axes)),
    }
    operands = (permuted.operands[0], unless_identity(weight))
    return Permuted(operands, permuted.results, {**permuted.attributes, **axes})


def _permuted_result(node: Node, permutation: Permutation) -> Permuted:
    before = node.attr("output_permutation") or tuple(range(len(permutation)))
    after = unless_identity([before[p] for p in permutation])
    return Permuted((None, None), (unless_identity(permutation),), {"output_permutation": after or ()})


def _product(b: Builder, lhs: Value, rhs: Value, lhs_axis: int, rhs_axis: int) -> Value:
    return b(
        DotGeneral, lhs, rhs, lhs_contracting_dimensions=(lhs_axis,), rhs_contracting_dimensions=(rhs_axis,)
    )  # fmt: skip


@by_expansion(*pair(NUMERIC), multiplies="matrices")
def Dot(b: Builder, lhs: Value, rhs: Value) -> Value:
    """The last axis of `lhs` against the first of `rhs`, both of rank 1 or 2. Source: neutral-ops 3.37; XLA Dot."""
    if not {lhs.rank, rhs.rank} <= {1, 2}:
        raise ValueError(f"vectors or matrices, not ranks {lhs.rank} and {rhs.rank}")
    return _product(b, lhs, rhs, lhs.rank - 1, 0)


class Gemm(Formula):
    """alpha * A @ B + beta * C, A and B transposed where the flags say so. Source: neutral-ops 3.55; ONNX Gemm-13."""

    multiplies = "matrices"
    operands = (Operand("a", NUMERIC), Operand("b", NUMERIC), Operand("c", NUMERIC, optional=True))
    attributes = {"alpha": Float(1.0), "beta": Float(1.0), "transA": Flag(False), "transB": Flag(False)}

    @classmethod
    def formula(cls, lhs: Term, rhs: Term, c: Term | None, **attributes: Any) -> Term:
        if lhs.rank != 2 or rhs.rank != 2:
            raise ValueError(f"matrices, not ranks {lhs.rank} and {rhs.rank}")
        axes = int(not attributes["transA"]), int(attributes["transB"])
        result: Term = Term(lhs.b, _product(lhs.b, lhs.value, rhs.value, *axes)) * attributes["alpha"]
        return result if c is None else result + c * attributes["beta"]


class Contraction(DotGeneral):
    """A DotGeneral that is written as one Einsum, over more axes than a matmul has. Source: ONNX Einsum-12 (added)."""

    core = False
