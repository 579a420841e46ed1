"""The interface of a target that legalization and lowering use; :mod:`onnxtfl.targets` implements it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from onnxtfl.ir.graph import Node
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import Form
from onnxtfl.rewriting.registry import Target as TargetName

Kind = Literal["dtype", "rank", "op", "quantization", "other"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a target does not accept a form.

    `kind`:

    - "dtype": a cast of the operands of the types `found` (none: of any) to an element type of `allowed`, and of the
      results back, helps.
    - "quantization": likewise, `allowed` being the storage types that quantized tensors may have (none: no kernel).
    - "rank": at most `limit` axes are accepted (where shapes differ, if the message says so).
    - "other": an option, an operand that has to be constant, or the number of operands.
    - "op": the target has no such op.
    """

    kind: Kind
    message: str
    allowed: frozenset[DType] = frozenset()
    limit: int = 0
    found: frozenset[DType] = frozenset()


class Target(ABC):
    """A backend that runs files of one format: `name` is the format's dialect, `title` its name in messages."""

    name: ClassVar[TargetName]
    chain: tuple[TargetName, ...]
    """What the target is one of, the narrowest first: rules for each of them are rules for it."""
    has_integer_ops: bool
    """Whether ops other than those that quantize and dequantize have kernels on quantized types."""
    title: str
    has_int64: bool = True
    """Whether kernels compute in int64."""
    has_float16: bool = True
    """Whether a kernel converts float16, so that it can be the type of inputs and outputs."""
    has_hybrid_kernels: bool = True
    """Whether kernels multiply real values by quantized weights, and memory for dequantized weights is no concern."""
    longest_axis: int = (1 << 63) - 1
    """The most elements that an axis of a tensor may have."""
    raised: str = ""
    """The version of the format and the reason, where a model needs a newer one than the default."""

    @abstractmethod
    def forms(self, node: Node) -> Sequence[Form]:
        """The forms that the lowering rules offer for `node`."""

    @abstractmethod
    def refuses(self, node: Node, form: Form) -> Refusal | None:
        """Why the target does not accept `form` of `node`; None if it does."""

    @abstractmethod
    def accepted(self, node: Node) -> Form | None:
        """The accepted form of `node` with the lowest cost; None if the target accepts none."""

    def may_compute_on_integers(self, node: Node) -> bool:
        """Whether any kernels compute on quantized types like those of `node`."""
        return self.has_integer_ops

    @property
    def saturated_steps(self) -> float | None:
        """How many steps from 0 real values are saturated when they are quantized; NaN is not. None: all, and NaN."""
        return None

    @property
    def factor_bits(self) -> int | None:
        """How many bits after the point the factor has by which values are requantized; None: enough."""
        return None

    def fixed_quantization(self, form: Form, storage: str) -> Quantization | None:
        """The only quantization of the results of `form` that its kernels write; None if they write any."""
        return None

    def advice(self, node: Node) -> str | None:
        """What the user can do about a node that the target cannot run; None: what the error's code advises."""
        return None

    def operand_name(self, node: Node, index: int) -> str | None:
        """The name of an operand of `node`, an op of the target; None if it has none."""
        return None

    @abstractmethod
    def version(self, node: Node, form: Form) -> int:
        """The lowest version of the target's op that can express `form`."""
