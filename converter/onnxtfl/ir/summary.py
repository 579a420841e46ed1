"""The quantization of a converted model: data for reports, without methods that need a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from onnxtfl.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class FloatOp:
    """An op of the result that computes in float.

    `op`, `target`: the op and its result; `sources`: the nodes of the source that it comes from; `source_op`: what
    they compute, as a neutral op. `island`: whether they are quantized in the source, and no integer kernel is correct;
    `reason`: why it is float. `faster`: whether they are quantized in the source, and this kernel is faster.
    """

    op: str
    target: str
    sources: tuple[str, ...]
    source_op: str
    island: bool
    reason: str
    faster: bool = False


@dataclass(frozen=True)
class QuantizationSummary:
    """`integer_ops`, `hybrid_ops`: number of ops, by name, that compute on integers, or on weights that are integers
    and float activations. `float_ops`: the ops that compute in float. `rescaled_biases`: (tensor or op, what changed)
    of each bias with another scale than in the source. `requantized`: (tensor, what changed) of each tensor that is
    read in another quantization than the source's. `tolerance`: the allowed error of results, relative to an output's
    largest element, since hybrid kernels quantize activations that the source quantizes differently, or not at all.
    `kernels`: (tensor, what is computed) of each op whose kernel in the source's runtime deviates from the semantics of
    the op. `faults`: known kernel bugs of releases that were not measured, with the number of affected ops.
    `rounded_scales`: products with weights whose scales become the nearest float16. `dynamic_ops`: products of
    activations that are quantized at run time, which are not hybrid kernels. `coarse_ops`: the number of integer ops,
    by name, whose kernels may have errors of several steps.
    """

    integer_ops: Mapping[str, int] = field(default_factory=dict)
    hybrid_ops: Mapping[str, int] = field(default_factory=dict)
    float_ops: tuple[FloatOp, ...] = ()
    rescaled_biases: tuple[tuple[str, str], ...] = ()
    requantized: tuple[tuple[str, str], ...] = ()
    tolerance: float = 0.0
    coarse_ops: Mapping[str, int] = field(default_factory=dict)
    kernels: tuple[tuple[str, str], ...] = ()
    faults: Mapping[str, int] = field(default_factory=dict)
    dynamic_ops: int = 0
    rounded_scales: int = 0

    @property
    def islands(self) -> tuple[FloatOp, ...]:
        """The float ops that the source computes on quantized tensors."""
        return tuple(op for op in self.float_ops if op.island)
