"""The interface of a target that legalization and lowering use; :mod:`onnxtfl.targets` implements it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal

from onnxtfl.dataclass import dataclass
from onnxtfl.ir.graph import Node
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import Form
from onnxtfl.rewriting.registry import Target as TargetName

Kind = Literal["dtype", "rank", "shape", "op", "quantization", "distinct", "other"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a target does not accept a form.

    `kind`:

    - "dtype": a cast of the operands of the types `found` (none: of any) to an element type of `allowed`, and of the
      results back, helps.
    - "quantization": likewise, `allowed` being the storage types that quantized tensors may have (none: no kernel).
    - "rank": at most `limit` axes are accepted (where shapes differ, if the message says so).
    - "shape": other shapes of the same elements may help.
    - "distinct": no operand may be the same tensor as another; copies help.
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
    """The chain of targets whose rules apply, the narrowest first."""
    own_chain: tuple[TargetName, ...] = ()
    """Those whose rules also apply to nodes that only the fallback accepts."""
    has_integer_ops: bool
    """Whether there are kernels on quantized types besides quantize and dequantize."""
    title: str
    has_uint8_kernels: bool = True
    """Whether convolutions and most other ops compute on uint8."""
    is_real: bool = False
    """Whether quantized types are computed as real ones, without rounding: the hardware computes so itself."""
    has_int64: bool = True
    """Whether kernels compute in int64."""
    has_float16: bool = True
    """Whether a kernel converts float16, so that inputs and outputs may have it."""
    has_hybrid_kernels: bool = True
    """Whether there are hybrid kernels, and memory for dequantized weights does not matter."""
    longest_axis: int = (1 << 63) - 1
    """The largest size of an axis."""
    most_axes: int | None = None
    """The most axes of inputs and outputs; None for any number."""
    free_rank: int = (1 << 31) - 1
    """Ops that move elements are written with at most this number of axes where that costs reshapes only."""
    is_laid_out: bool = False
    """Whether layout assignment is done: what kernels take of the order of axes is not asked before."""
    delegate_chain: tuple[TargetName, ...] = ()
    """The targets whose rules rewrite accepted ops to ones that the runtime's delegate computes."""
    raised: str = ""
    """The version of the format and the reason, if a model needs a newer one than the default."""

    @abstractmethod
    def forms(self, node: Node) -> Sequence[Form]:
        """Return the forms of `node` from the lowering rules."""

    @abstractmethod
    def refuses(self, node: Node, form: Form) -> Refusal | None:
        """Return why the target does not accept `form` of `node`; None if it does."""

    @abstractmethod
    def accepted(self, node: Node) -> Form | None:
        """Return the accepted form of `node` with the lowest cost; None if there is none."""

    def falls_back(self, node: Node, form: Form) -> bool:
        """Whether only the fallback of the target accepts `form` of `node`."""
        return False

    def delegates(self, node: Node, form: Form) -> bool:
        """Whether the runtime's delegate computes `form` of `node`, or there is no delegate."""
        return True

    def fails_without_rows(self, form: Form) -> bool:
        """Whether the kernel of `form` ends the process or is wrong where the first axis of an operand has size 0."""
        return False

    def is_faster_in_float(self, node: Node, form: Form) -> bool:
        """Whether the delegate leaves `form` of quantized `node` to kernels that are slower than it is on floats."""
        return False

    def saves(self, rule: str, before: Sequence[Node], after: Sequence[Node]) -> bool:
        """Whether the nodes `after` a rule do not take longer than those `before` it, of which the first is the root.

        True if the cost of the root is not known.
        """
        return True

    def may_compute_on_integers(self, node: Node) -> bool:
        """Whether any kernels compute on quantized types like those of `node`."""
        return self.has_integer_ops

    @property
    def saturated_steps(self) -> float | None:
        """Return up to how many steps from 0 quantization saturates (NaN excluded); None: always, also NaN."""
        return None

    @property
    def factor_bits(self) -> int | None:
        """Return the fractional bits of the requantization factor; None: enough."""
        return None

    def fixed_quantization(self, form: Form, storage: str) -> Quantization | None:
        """Return the only result quantization that the kernels of `form` support; None if any."""
        return None

    def advice(self, node: Node) -> str | None:
        """Return what the user can do about a node that the target cannot run; None: the default advice."""
        return None

    def operand_name(self, node: Node, index: int) -> str | None:
        """Return the name of an operand of the target op `node`, else None."""
        return None

    @abstractmethod
    def version(self, node: Node, form: Form) -> int:
        """Return the lowest version of the target's op for `form`."""
