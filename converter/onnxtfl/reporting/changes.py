"""The changes of a conversion to the ops of the source, from its record: kept, fused, decomposed, cast, transposed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

from onnxtfl.ir.record import OpEntry

Kind = Literal["kept", "fused", "decomposed", "cast", "transposed"]
MEANING: dict[Kind, str] = {
    "kept": "one op of the source became one op of the result",
    "fused": "several ops of the source became one",
    "decomposed": "one op of the source became several",
    "cast": "the element type or the quantization changes",
    "transposed": "the order of the axes changes",
}
_MOVES, _CASTS = {"transpose"}, {"cast", "quantize", "dequantize", "quantizelinear", "dequantizelinear"}

_WORDS = {
    "layout": "its axis order was chosen so that the fewest bytes are transposed in the whole graph",
    "fuse activations": "the kernel also computes the activation after it",
    "fuse quantized": "it computes on the stored integers, as its operands and its result are quantized",
    "quantized types": "a constant scale and zero point became part of the tensor's type",
    "quantized inputs and outputs": "the type of quantized inputs and outputs was chosen",
    "requantize": "the kernel needs other scales: values are requantized",
    "float arithmetic": "no integer kernel computes it: it is computed on floats",
    "floats": "it is computed in float32, which kernels have",
    "narrow": "float64 became float32",
    "saturate": "results are clamped, as the kernel does not saturate them",
    "refine": "a reciprocal or root was refined to float32",
    "memory": "a copy keeps a value that the kernel would overwrite",
    "keep states": "its state is kept from run to run",
    "state tensors": "its state is written before the kernel in every run",
    "separate outputs": "two outputs that are one value became two tensors",
    "pass through": "an output that is an input became a tensor of its own",
    "legalize.dtype": "cast to a type that the kernels take",
    "legalize.rank": "axes were merged, as the kernels take fewer",
    "linear.bias_by_feature": "a constant was added to the bias",
    "linear.factor_by_feature": "a constant factor was multiplied into the weights",
    "linear.pad_into_conv": "a padding with zeros became that of the convolution",
    "contraction.weight_in_order": "constant weights were stored in the kernel's axis order",
    "registry.expand": "it was written as the formula that defines it",
    "broadcasting.expand": "it was written as the formula that defines it",
    "templates.formula": "several ops were recognized as one, by its formula",
    "canonicalize.power": "a power with a constant exponent became products and roots",
    "canonicalize.reshape_": "reshapes in sequence became one",
    "canonicalize.transpose": "transposes in sequence became one",
    "canonicalize.drop_broadcasts": "a broadcast that the op does anyway was removed",
    "control.scan_as_calls": "each step of the layer calls one subgraph",
    "recurrence.unrolled": "a recurrent layer that was written step by step was recognized",
    "types.before_move": "values are dequantized before they are moved or selected",
    "fuse.requantization": "dequantizing and quantizing became one step",
}
_MODULES = {
    "canonicalize": "brought to its canonical form",
    "shape_arithmetic": "the arithmetic on shapes was simplified",
    "unit_axes": "axes of size 1 were moved or removed",
    "approximations": "computed by a formula that is exact to float32",
    "recurrence": "a recurrent layer was written in the form that runs fastest",
    "loop_simplification": "the loop carries only what is needed",
    "loop_invariants": "what does not change in a loop is computed before it",
}


class Change(NamedTuple):
    """An op of the result: the kind of change, the op and its tensor, the nodes of the source, and the reasons."""

    kind: Kind
    op: str
    target: str
    sources: tuple[str, ...]
    why: str


def changes(ops: Sequence[OpEntry]) -> list[Change]:
    """A change for each op of the result, in its order."""
    made = Counter(source for entry in ops if _kind_of_op(entry) is None for source in entry.sources)
    return [Change(_kind(entry, made), entry.op, entry.target, entry.sources, in_words(entry.made_by)) for entry in ops]


def _kind(entry: OpEntry, made: Counter[str]) -> Kind:
    if (kind := _kind_of_op(entry)) is not None:
        return kind
    if len(entry.sources) > 1:
        return "fused"
    return "decomposed" if any(made[source] > 1 for source in entry.sources) or not entry.sources else "kept"


def _kind_of_op(entry: OpEntry) -> Kind | None:
    """The kind of ops that only move or convert elements."""
    plain = entry.op.replace("_", "").lower()
    return "transposed" if plain in _MOVES else "cast" if plain in _CASTS else None


def in_words(made_by: Sequence[str]) -> str:
    """Describe the rules and passes that created an op, without the rule that only read it."""
    found = list(dict.fromkeys(filter(None, map(_words, made_by))))
    return "; ".join(found)


def _words(rule: str) -> str:
    """Describe a rule or pass; "" for one that only reads or writes an op."""
    module, _, function = rule.partition(".")
    if rule in _WORDS or module in _MODULES:
        return _WORDS.get(rule) or _MODULES[module]
    if function.endswith(("_for_tfl", "_tfl", "_for_kernel", "_for_onnx")):
        return f"written as the kernels need it ({module})"
    return "" if function else rule
