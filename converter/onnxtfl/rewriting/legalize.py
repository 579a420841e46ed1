"""Legalization: one worklist that rewrites every neutral node to a form that the target accepts.

For each node, the lowering rules return the target ops that it can be written as, and the target's tables say which
of them its kernels accept. If there is none, the node is cast to an element type that holds all its values, reduced to
fewer axes, or decomposed, and the new nodes are visited, until all are accepted or an error names one that is not.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from onnxtfl.errors import InternalError, OnnxtflError, UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.budget import current_budget
from onnxtfl.ir.builder import Builder, ElementTypeError, infers_better_sizes
from onnxtfl.ir.dims import Shape, known_sizes
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.history import Remark
from onnxtfl.ir.op import Effect, Elementwise
from onnxtfl.ir.quantized import is_real, touches_quantized
from onnxtfl.ir.shown_sizes import operand_types
from onnxtfl.ir.source_names import source_name
from onnxtfl.ir.types import DType, TensorType, Type
from onnxtfl.rewriting.another_row import may_lack_rows, with_another_row
from onnxtfl.rewriting.collapse import collapse, with_unit_batch
from onnxtfl.rewriting.declared import as_declared
from onnxtfl.rewriting.halves import moved_in_halves
from onnxtfl.rewriting.int64 import narrow_int64
from onnxtfl.rewriting.lower import emit
from onnxtfl.rewriting.patterns import replaced
from onnxtfl.rewriting.registry import DecomposeRule, Form, rule_name, rules_for
from onnxtfl.rewriting.requantize import in_float, requantized
from onnxtfl.rewriting.target import Refusal, Target
from onnxtfl.rewriting.widening import widened

MAX_STEPS_PER_NODE = 400
MOST_REFUSED, MOST_CHAINED = 64, 256
"""The longest chains of rewrites: while the target refuses each form, and of any. Longer ones undo each other."""


def legalize(graph: Graph, target: Target, *, late: bool = False) -> None:
    """Rewrite `graph` until `target` accepts every neutral node; UnsupportedError names those that it never accepts.

    `late`: after layout assignment. Late decompositions run too, and forms with computed operands or results are
    emitted with the neutral ops for these.
    """
    target.is_laid_out |= late
    work = [(node, 0) for node in graph.nodes if node.op.dialect == "neutral"]
    budget = MAX_STEPS_PER_NODE * (len(work) + 10)
    work.reverse()
    refused: list[_RefusedError] = []
    while work:
        node, depth = work.pop()
        if node.graph is not graph:
            continue
        try:
            made = _step(graph, node, target, late, depth)
        except _RefusedError as error:
            refused.append(error)
            continue
        work.extend((new, depth + 1) for new in reversed(made))
        budget -= 1 if made else 0
        if budget < 0 or depth > MOST_CHAINED:
            raise UnsupportedError("legalization does not terminate", node=node.name, op=node.op.name, code="E-OP-004")
    if refused:
        raise _all_refused(refused, target)


def write_formulas(graph: Graph, target: Target) -> bool:
    """Decompose derived ops without a form of the target, so that simplification sees them; return whether any."""
    work = [node for node in graph.nodes if _is_unknown(node, target)]
    changed = bool(work)
    while work:
        node = work.pop()
        _check_sizes(node, target)
        work.extend(made for made in _rewrite(graph, node, target) if _is_unknown(made, target))
    return changed


def _is_unknown(node: Node, target: Target) -> bool:
    known = node.op.core or node.op.dialect != "neutral"
    return not known and not target.forms(node) and _late_rule(node, target) is None


def _step(graph: Graph, node: Node, target: Target, late: bool, depth: int) -> list[Node]:
    """Rewrite `node` (after `depth` rewrites) if the target does not accept it; return the new neutral nodes."""
    current_budget().step(node.name, node.op.name)
    try:
        if infers_better_sizes(node):
            return _remade(graph, node)
        _check_sizes(node, target)
        form = target.accepted(node)
        if late and form is not None and target.fails_without_rows(form) and may_lack_rows(node):
            return _with_another_row(graph, node)
        if form is not None and (made := _preferred(graph, node, target, form, late)) is not None:
            return made
        if late and form is not None and not form.renames:
            return [made for made in emit(graph, node, form, target) if made.op.dialect == "neutral"]
        waits = not late and _late_rule(node, target) is not None
        legal = form is not None or waits or _will_vanish(node, target, late)
        if not legal and depth > MOST_REFUSED:
            raise _refused(node, target, _refusals(node, target))
        if form is not None and target.falls_back(node, form):
            return _brought_back(graph, node, target, late)
        return [] if legal else _rewrite(graph, node, target)
    except OnnxtflError as error:
        error.node = error.node or source_name(node)
        raise
    except MemoryError as error:
        raise UnsupportedError("out of memory", node=source_name(node), op=node.op.name, code="E-RUN-005") from error
    except OSError:
        raise
    except Exception as error:
        raise InternalError("legalize", error, node=source_name(node), op=node.op.name) from error


def _will_vanish(node: Node, target: Target, late: bool) -> bool:
    """Whether simplification may remove `node`: a node of constants, or before layout assignment one whose rank alone
    is refused: a Reshape, which with those around it may be one of fewer axes, or elementwise arithmetic, of which
    axes are merged in the order that the layout gives them.
    """
    is_folded = current_budget().folds_all and node.is_pure and not node.regions and node.operands
    if is_folded and all(v is None or v.is_constant for v in node.operands):
        return True
    if late or not (node.op is ops.Reshape or issubclass(node.op, Elementwise)):
        return False
    if {refusal.kind for refusal in _refusals(node, target)} != {"rank"}:
        return False
    return node.op is ops.Reshape or _reshapes(node.result, target)


def _reshapes(value: Value, target: Target) -> bool:
    """Whether the target has a Reshape to the axes of `value`."""
    axes = constant(np.ones(value.tensor_type.rank or 0, np.int32))
    node = Node(ops.Reshape, [Value(value.tensor_type), axes], {})
    node.add_result(value.tensor_type)
    return target.accepted(node) is not None


def _remade(graph: Graph, node: Node) -> list[Node]:
    builder = Builder(graph, node, cause=node)
    graph.replace(node, builder.remade(node, *node.operands))
    return builder.created


def _with_another_row(graph: Graph, node: Node) -> list[Node]:
    builder = Builder(graph, node)
    builder.maker = "legalize.rows"
    graph.replace(node, with_another_row(builder, node))
    return builder.created


def _preferred(graph: Graph, node: Node, target: Target, form: Form, late: bool) -> list[Node] | None:
    """Rewrite an accepted node to ops that run faster, or on more hardware; return the new nodes, None if it stays.

    A move on more than `free_rank` axes becomes one on fewer; an op that the runtime's delegate leaves to other kernels
    becomes ops that it computes, where these do not cost more time; one whose integer kernel is slow computes
    in float.
    """
    if late:
        return _delegated_late(graph, node, target, form)
    if touches_quantized(node) and target.is_faster_in_float(node, form):
        builder = Builder(graph, node)
        if (values := _in_faster_float(builder, node, target)) is None:
            return None
        graph.replace(node, values)
        return builder.created
    if _moves_many_axes(node, target):
        few = rules_for(node.op).decompositions_of(node, *target.chain, order="axes")
        made = _rewritten_if(graph, node, few, lambda _, made: all(_has_few_axes(one, target) for one in made))
        if made is not None:
            return made
    has_rules = rules_for(node.op).are_for(node.op, target.delegate_chain)
    if has_rules and not target.delegates(node, form):
        found = rules_for(node.op).own_decompositions(node, *target.delegate_chain)
        return _delegated(graph, node, target, found)
    return None


def _delegated_late(graph: Graph, node: Node, target: Target, form: Form) -> list[Node] | None:
    """Rewrite a node by the rule that depends on the axis order; return the new nodes, None if it stays."""
    rule = rules_for(node.op).late_rule(node.op, *target.delegate_chain)
    if rule is None or not rule.when(node) or target.delegates(node, form):
        return None
    return _delegated(graph, node, target, [rule.func])


def _delegated(graph: Graph, node: Node, target: Target, rules: Iterable[DecomposeRule]) -> list[Node] | None:
    """Rewrite `node` by the first of `rules` whose nodes the delegate computes, if that takes no more time; quantized
    elements are only moved, or requantized by way of their real values, which is what requantization means.
    """

    def is_better(rule: str, made: Sequence[Node]) -> bool:
        is_equal = not touches_quantized(node) or all(_moves(one) or one.op is node.op is ops.Convert for one in made)
        is_delegated = is_equal and all(_is_delegated(one, target) for one in made)
        return is_delegated and target.saves(rule, replaced(graph, node), made)

    return _rewritten_if(graph, node, rules, is_better)


def _in_faster_float(builder: Builder, node: Node, target: Target) -> list[Value] | None:
    """The results of a quantized node computed in float; None if the delegate leaves an op of that to other kernels."""
    builder.maker = "float arithmetic"
    values = in_float(builder, node, target)
    if not all(_is_delegated(made, target) for made in builder.created):
        builder.undo()
        return None
    for made in builder.created:
        if made.op is node.op:
            made.remarks += (Remark("faster", node.op.name, "the kernel for floats is faster"),)
    return values


def _is_slow(node: Node, target: Target) -> bool:
    form = target.accepted(node) if touches_quantized(node) else None
    return form is not None and target.is_faster_in_float(node, form)


def _moves_many_axes(node: Node, target: Target) -> bool:
    """Whether `node` moves one operand on more than `free_rank` axes of known sizes."""
    if node.op.moves is None or len(node.operands[node.op.moves]) != 1 or node.op is ops.Reshape:
        return False
    values = [v for v in (*node.operands[:1], *node.results) if v is not None]
    types = [v.type for v in values if isinstance(v.type, TensorType)]
    if not all(type_.is_static for type_ in types):
        return False
    return max((len(type_.shape or ()) for type_ in types), default=0) > target.free_rank


def _has_few_axes(node: Node, target: Target) -> bool:
    return node.op is ops.Reshape or node.result.rank <= target.free_rank


def _is_delegated(node: Node, target: Target) -> bool:
    form = target.accepted(node)
    return form is not None and target.delegates(node, form)


def _rewritten_if(
    graph: Graph, node: Node, found: Iterable[DecomposeRule], is_better: Callable[[str, Sequence[Node]], bool]
) -> list[Node] | None:
    """Rewrite `node` by the first rule whose nodes are better; return these, None if there is no such rule.

    A rule that returns an operand makes no node.
    """
    for rule in found:
        builder = Builder(graph, node)
        builder.maker = rule_name(rule)
        values = builder.tried(rule, node)
        if values is not None and is_better(builder.maker, builder.created):
            graph.replace(node, [values] if isinstance(values, Value) else list(values))
            return builder.created
        builder.undo()
    return None


def _check_sizes(node: Node, target: Target) -> None:
    """Raise UnsupportedError for a result with a longer axis than the target supports."""
    for result in node.results:
        if isinstance(result.type, TensorType) and _longest_axis(result.type.shape or ()) > target.longest_axis:
            message = f"{target.title} has no tensors with an axis of more than {target.longest_axis} elements"
            raise UnsupportedError(message, op=node.op.name, type_=result.type, code="E-OP-008")


@functools.lru_cache(4096)
def _longest_axis(shape: Shape) -> int:
    return max(known_sizes(shape), default=0)


def will_accept(node: Node, target: Target) -> bool:
    """Whether the target accepts `node`, or will accept it after layout assignment and late legalization."""
    return target.accepted(node) is not None or _late_rule(node, target) is not None


def _late_rule(node: Node, target: Target) -> DecomposeRule | None:
    late = rules_for(node.op).late_rule(node.op, *target.chain)
    return late.func if late is not None and late.when(node) else None


def _rewrite(graph: Graph, node: Node, target: Target) -> list[Node]:
    refusals = _refusals(node, target)
    builder = Builder(graph, node)
    if touches_quantized(node) and node.op is not ops.Convert and not node.regions:
        values: list[Value] | None = _rewrite_quantized(builder, node, target, refusals)
    else:
        values = _repair(builder, node, refusals) or _decompose(builder, node, target)
    if values is None:
        raise _refused(node, target, refusals)
    if not target.has_int64:
        narrow_int64(graph, builder.created, node.results, values)
    graph.replace(node, values)
    return builder.created


def _brought_back(graph: Graph, node: Node, target: Target, late: bool) -> list[Node]:
    """Rewrite a quantized node that only the fallback of `target` accepts: in another quantization, or (after layout
    assignment) by a rule for the target.

    Returns the new nodes; none if there is no such rewrite.
    """
    if not touches_quantized(node) or node.regions:
        return []
    builder = Builder(graph, node)
    builder.maker = "requantize"
    values = requantized(builder, node, target)
    if values is None and late:
        made = _decompose(builder, node, target, target.own_chain)
        values = None if made is None else _as_declared(builder, node, made)
    if values is None:
        builder.undo()
        return []
    graph.replace(node, values)
    return builder.created


def _refusals(node: Node, target: Target) -> list[Refusal]:
    return [r for f in target.forms(node) if (r := target.refuses(node, f)) is not None]


def _rewrite_quantized(builder: Builder, node: Node, target: Target, refusals: Sequence[Refusal]) -> list[Value]:
    """Change quantizations, move axes around one quantized op, or compute in float in between."""
    if not target.may_compute_on_integers(node):
        return _between_conversions(builder, node, target)
    builder.maker = "requantize"
    values = requantized(builder, node, target)
    if values is not None and any(_is_slow(made, target) for made in builder.created):
        builder.undo()
        values = _in_faster_float(builder, node, target) or requantized(builder, node, target)
    if values is not None:
        return values
    values = _repair(builder, node, [r for r in refusals if r.kind == "rank"]) or _decompose(builder, node, target)
    values = None if values is None else _as_declared(builder, node, values)
    if values is not None:
        return values
    builder.undo()
    builder.maker = "float arithmetic"
    node.remarks += (_in_float(node, target, refusals),)
    return in_float(builder, node, target)


def _between_conversions(builder: Builder, node: Node, target: Target) -> list[Value]:
    """Compute in float between Converts, which runtimes fuse with one op.

    A rule for the target may give a node another form, in between moves of quantized values.
    """
    if node.op is not ops.Convert and not _accepts_in_float(node, target) and _late_rule(node, target) is None:
        moved = _decompose(builder, node, target, target.chain[:1])
        moved = None if moved is None else _as_declared(builder, node, moved)
        if moved is not None and all(_moves(made) or _accepts_in_float(made, target) for made in builder.created):
            return moved
        builder.undo()
    results = in_float(builder, node, target)
    for made in builder.created:
        if made.op is node.op and made.op is not ops.Convert and not will_accept(made, target):
            made.remarks += (_in_float(node, target, ()),)
    return results


def _accepts_in_float(node: Node, target: Target) -> bool:
    """Whether the target accepts `node` on dequantized operands."""

    def real(type_: Type | None) -> Type | None:
        return type_.stored_as(None) if isinstance(type_, TensorType) else type_

    operands = [Value(real(v.type)) if v is not None and v.is_quantized else v for v in node.operands]
    probe = Node(node.op, operands, node.attributes)
    for result in node.results:
        probe.add_result(real(result.type))
    try:
        return target.accepted(probe) is not None
    finally:
        probe.detach()


def _as_declared(builder: Builder, node: Node, values: Sequence[Value]) -> list[Value] | None:
    """The values that a rule made of a quantized node, in its types; None if several ops would round.

    Those whose quantization the rule declares round as the rule intends.
    """
    undeclared = [made for made in builder.created if not all(r.is_quantized for r in made.results)]
    if len([made for made in undeclared if not _moves(made)]) > 1:
        return None
    return [as_declared(builder, v, r.type) for v, r in zip(values, node.results, strict=True)]


def _in_float(node: Node, target: Target, refusals: Sequence[Refusal]) -> Remark:
    """Return why `node` computes in float, according to the kernel table."""
    reals = [v for v in (*node.operands, *node.results) if v is not None and not v.is_constant and is_real(v.type)]
    if reals:
        what = "its result" if any(v in node.results for v in reals) else "an operand"
        return Remark("float", node.op.name, f"{what} is float")
    said = [r.message for r in refusals if r.kind == "quantization"] or [r.message for r in refusals]
    return Remark("island", node.op.name, "; ".join(dict.fromkeys(said)) or f"{target.title} has no op like it")


def _of_type(error: OnnxtflError, node: Node) -> OnnxtflError:
    """Return the error for an element type that the ops of a rule lack (the model itself is valid)."""
    if not isinstance(error.__cause__, ElementTypeError):
        return error
    said, hint = f"{error.__cause__} in {error.op}", "cast it to another type, or cut the model around it"
    return UnsupportedError(
        said, node=error.node, op=node.op.name, type_=operand_types(node), hint=hint, code="E-TYPE-002"
    )


def _moves(node: Node) -> bool:
    """Whether `node` moves quantized elements or computes shapes."""
    return node.op.moves is not None or not any(r.tensor_type.dtype.is_float for r in node.results)


def _repair(builder: Builder, node: Node, refusals: Sequence[Refusal]) -> list[Value] | None:
    for refusal in refusals:
        builder.maker = f"legalize.{refusal.kind}"
        for repair in _REPAIRS.get(refusal.kind, ()):
            if (values := builder.tried(functools.partial(repair, refusal=refusal), node)) is not None:
                return values
    return None


def _decompose(builder: Builder, node: Node, target: Target, chain: Sequence[str] | None = None) -> list[Value] | None:
    """Rewrite `node` by the first rule that applies; `chain`: rules for these targets only, not those for all."""
    late = _late_rule(node, target) if chain is None else None
    known = rules_for(node.op)
    found = known.decompositions_of(node, *target.chain) if chain is None else known.own_decompositions(node, *chain)
    for rule in [late] if late else found:
        builder.maker = rule_name(rule)
        try:
            values = builder.tried(rule, node)
        except OnnxtflError as error:
            error.node = error.node or source_name(node)
            raise _of_type(error, node) from error
        if values is not None:
            return [values] if isinstance(values, Value) else list(values)
    return None


def cast_operands(builder: Builder, node: Node, refusal: Refusal) -> list[Value] | None:
    """Compute `node` in a wider element type and cast back; None if no allowed type is wide enough.

    Casting back wraps integers around, as arithmetic in the narrow type does. Integers are never cast to floats.
    """
    if node.op in (ops.Convert, ops.BitcastConvert) or node.op.effect is not Effect.PURE:
        return None
    tensors = {i: v for i, v in enumerate(node.operands) if v is not None and isinstance(v.type, TensorType)}
    narrowest = [(i, v) for i, v in tensors.items() if not refusal.found or v.dtype in refusal.found]
    pairs = ((v.dtype, w) for i, v in narrowest if (w := widened(v.dtype, refusal.allowed & declared_types(node, i))))
    narrow, wide = next(pairs, (None, None))
    if narrow is None or wide is None:
        return None
    operands = list(node.operands)
    for i, v in tensors.items():
        if v.dtype is narrow and wide in declared_types(node, i):
            operands[i] = builder(ops.Convert, v, dtype=wide)
    attributes = {k: wide if v is narrow else v for k, v in node.attributes.items()}
    results = builder.remade(node, *operands, **attributes)
    back = []
    for new, old in zip(results, node.results, strict=True):
        changed = isinstance(new.type, TensorType) and isinstance(old.type, TensorType) and new.dtype is not old.dtype
        back.append(builder(ops.Convert, new, dtype=old.dtype) if changed else new)
    return back


def _collapsed(builder: Builder, node: Node, refusal: Refusal) -> list[Value] | None:
    return collapse(builder, node, refusal.limit)


def _with_unit_batch(builder: Builder, node: Node, refusal: Refusal) -> list[Value] | None:
    return with_unit_batch(builder, node, _MOST_AXES)


def has_repeated_operands(graph: Graph) -> bool:
    """Whether a node reads the same tensor as two operands, as after the merging of equal nodes."""
    return any(len(set(node.operands)) < len(node.operands) for node in graph.nodes)


def _with_copies(builder: Builder, node: Node, refusal: Refusal) -> list[Value]:
    """Return the results of `node` on copies of operands that it reads more than once."""
    operands = list(node.operands)
    for i, v in enumerate(operands):
        if v is not None and v in operands[:i]:
            operands[i] = builder(ops.Copy, v)
    return builder.remade(node, *operands)


_MOST_AXES = 4
"""The most axes of tensors of targets whose kernels depend on the batch."""
_REPAIRS: Mapping[str, Sequence[Callable[..., list[Value] | None]]] = {
    "dtype": (cast_operands, moved_in_halves),
    "rank": (_collapsed,),
    "shape": (_with_unit_batch,),
    "distinct": (_with_copies,),
}
"""The rewrites that may make a refused node acceptable, by kind of refusal."""


def declared_types(node: Node, index: int) -> frozenset[DType]:
    """The element types that the op accepts for operand `index`."""
    formals = node.op.operands
    return formals[min(index, len(formals) - 1)].dtypes if formals else frozenset(DType)


class _RefusedError(UnsupportedError):
    """Raised for a node that no rule can make acceptable, with the `reason`."""

    reason = ""


def _refused(node: Node, target: Target, refusals: Sequence[Refusal]) -> _RefusedError:
    unranked = any(isinstance(v.type, TensorType) and v.type.shape is None for v in node.present_operands)
    missing = "the rank of an operand is known only at run time" if unranked else "no form of it exists there"
    reason = "; ".join(dict.fromkeys(r.message for r in refusals)) or missing
    message = f"{target.title} cannot run this: {reason}"
    error = _RefusedError(message, node=source_name(node), op=node.op.name, type_=operand_types(node), code="E-OP-004")
    error.hint = target.advice(node)
    error.reason = reason
    return error


def _all_refused(errors: Sequence[_RefusedError], target: Target) -> UnsupportedError:
    """Return one error that names each kind of refused op once, with its first node."""
    first = errors[0]
    kinds = {(error.op, error.reason): error for error in reversed(errors)}
    if len(kinds) == 1:
        return UnsupportedError(
            first.message, node=first.node, op=first.op, type_=first.type_, hint=first.hint, code=first.code
        )
    each = "; ".join(f"{e.op} (node {e.node!r}): {e.reason}" for e in reversed(kinds.values()))
    hint = max((e.hint for e in errors if e.hint), default=None)
    return UnsupportedError(f"{target.title} cannot run {len(errors)} ops: {each}", hint=hint, code=first.code)
