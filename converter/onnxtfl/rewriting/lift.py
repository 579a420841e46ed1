"""Lifting: replaces all ops of a file by neutral ops, in topological order, so that rules know the operand types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from functools import partial

from onnxtfl.errors import InvalidModelError, OnnxtflError, UnsupportedError, reason
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder, ElementTypeError
from onnxtfl.ir.cloning import clone
from onnxtfl.ir.dims import Dim, fresh_symbol
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.history import Remark
from onnxtfl.ir.op import attributes_of
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.quantized import is_real, quantization_of, touches_quantized
from onnxtfl.ir.reshape import reshape
from onnxtfl.ir.shown_sizes import operand_types
from onnxtfl.ir.types import DType, TensorType, Type, differ_in_unit_axes, shape_of
from onnxtfl.rewriting.branches import only_valid, take_valid_branch
from onnxtfl.rewriting.declared import as_declared, reinterpret_stored
from onnxtfl.rewriting.regions import prepare_region, set_regions
from onnxtfl.rewriting.registry import ANY_VERSION, Inlined, LiftRule, Steps, rule_name, rules_for
from onnxtfl.rewriting.stored_integers import (
    check_axes,
    check_parameters,
    check_scales,
    on_integers,
    only_clamps,
    reads_integers,
    restate_products,
)

Expand = Callable[[Node], Graph | None]
"""Returns the body of an op that its format defines by other ops; None if there is no such definition."""


def lift(graph: Graph, expand: Expand) -> None:
    """Replace all ``onnx`` and ``tfl`` nodes of `graph` by neutral nodes.

    Raises UnsupportedError for an op or op version without a rule; rules raise it for cases that they do not support.
    """
    for node in graph.nodes:
        if node.op.dialect != "neutral":
            lift_node(graph, node, expand)


def lift_where_possible(
    graph: Graph,
    expand: Expand,
    is_done: Callable[[], bool] = lambda: False,
    failed: Callable[[Node, Exception], None] = lambda node, error: None,
) -> None:
    """Lift all liftable nodes, also in regions, until `is_done`; others keep the dialect of the file.

    `failed` is called with a node that cannot be lifted and the reason. For analysis, not for conversion.
    """
    node = graph.first
    while node is not None and not is_done():
        before, following = node.previous, node.next
        if node.op.dialect != "neutral" and not _is_lifted(graph, node, expand, failed):
            if node.graph is graph:
                for region in node.regions:
                    lift_where_possible(region, expand, failed=failed)
            else:  # replaced by its body, some nodes of which could not be lifted
                following = before.next if before is not None else graph.first
        node = following


def _is_lifted(graph: Graph, node: Node, expand: Expand, failed: Callable[[Node, Exception], None]) -> bool:
    """Lift `node` and return True; if that fails, remove the created nodes and return False."""
    before = node.previous
    try:
        lift_node(graph, node, expand)
    except Exception as error:  # errors of single nodes do not affect others
        failed(node, error)
        while node.graph is graph and (made := node.previous) is not before and made is not None:
            if any(result.uses for result in made.results):
                break
            graph.remove(made)
        return False
    return True


def lift_node(graph: Graph, node: Node, expand: Expand) -> None:
    """Replace one node of a file's dialect by neutral nodes: by its rule, else by its definition in the format.

    Rules compute on real values; the results get the quantization that the file declares.
    """
    name = op_name(node)
    node.sources = node.sources or (node.shown_name or name,)
    try:
        rule = _onnx_rule(graph, node) if node.op.dialect == "onnx" else _tfl_rule(node)
        body = expand(node) if rule is None else None
        if rule is not None:
            _lift_by_rule(graph, node, rule, expand)
        elif body is not None:
            _inline(graph, node, body, node.operands, expand)
        else:
            raise _no_conversion(node)
    except OnnxtflError as error:
        raise _located(_of_type(error, node), node, name) from error.__cause__
    except MemoryError as error:
        raise UnsupportedError("out of memory", node=node.name, op=name, code="E-RUN-005") from error
    except RecursionError as error:
        raise InvalidModelError(
            "subgraphs or functions are nested too deeply", node=node.name, op=name, code="E-FILE-011"
        ) from error
    except (ValueError, TypeError, IndexError, KeyError, ZeroDivisionError, OverflowError) as error:
        found = InvalidModelError(f"invalid {name}: {reason(error)}", type_=operand_types(node), code="E-FILE-009")
        raise _located(found, node, name) from error


def _no_conversion(node: Node) -> UnsupportedError:
    """Return the error for an op without a rule, with the advice of its family."""
    message, known, key = "there is no conversion for this op", rules_for(node.op), _onnx_key(node)
    advice = known.refused.get(key) if node.op.dialect == "onnx" else known.refused_tfl.get(key[1])
    call = known.custom_calls.get(key[1]) if node.op.dialect == "tfl" else None
    if advice is None:
        called = f", which calls {call(node)['called']!r}" if call else ""
        return UnsupportedError(message + called, code="E-OP-002")
    return UnsupportedError(f"{message}: {advice[0]}", hint=advice[1], code="E-OP-002")


def _lift_by_rule(graph: Graph, node: Node, rule: LiftRule, expand: Expand) -> None:
    """Lift the regions first, so that the rule knows their result types; then dialect ops that the rule creates."""
    regions = node.regions
    inlined = prepare_region(node) if regions else None
    if isinstance(inlined, Inlined):
        _inline(graph, node, inlined.region, inlined.operands, expand)
        return
    if isinstance(inlined, Generator):
        _replace(graph, node, _lifted_steps(graph, node, inlined, expand))
        return
    only = only_valid(node, inlined, partial(lift, expand=expand)) if inlined is not None else None
    if only is not None:
        _inline(graph, node, only.region, only.operands, expand)
        return
    if inlined is None:
        _lift_regions(node, expand)
    builder, values = _applied(graph, node, rule)
    if _is_integer_kernel(node) and _reinterpret(graph, node, values, builder.created):
        builder, values = _applied(graph, node, rule)
    if touches_quantized(node):
        values = _all_as_declared(builder, node, values)
        _remark_parts(node, builder.created)
    _replace(graph, node, values)
    for made in builder.created:
        if made.op.dialect != "neutral":
            lift_node(graph, made, expand)
        elif regions:
            take_valid_branch(graph, made, partial(lift, expand=expand))


def _applied(graph: Graph, node: Node, rule: LiftRule) -> tuple[Builder, Sequence[Value]]:
    builder = Builder(graph, node, maker=rule_name(rule))
    if node.op.dialect == "tfl":
        check_parameters(node)
    if _is_integer_kernel(node):
        check_scales(node)
        restate_products(builder, node)
        if reads_integers(node):
            return builder, on_integers(builder, node, rule)
    lifted = builder.tried(rule, node)
    return builder, [lifted] if isinstance(lifted, Value) else lifted


def _is_integer_kernel(node: Node) -> bool:
    return node.op.dialect == "tfl" and touches_quantized(node)


def _reinterpret(graph: Graph, node: Node, values: Sequence[Value], created: Sequence[Node]) -> bool:
    """Reinterpret the integers that `node` copies as its result declares; return whether the scale differs.

    TFLite's kernels that move, select or average elements copy integers and ignore the scales of operands and result
    (measured on LiteRT 2.3, all kernel sets). CONCATENATION rescales some, MEAN all.
    """
    wanted = quantization_of(node.results[0])
    copied = _copied(values[0], created, node) if wanted is not None and wanted.per_tensor else ()
    places = [i for i, v in enumerate(node.operands) if v is not None and v in copied]
    given = {i: quantization_of(node.operand(i)) for i in places}
    if wanted is None or any(q is None or not q.per_tensor or q.dtype is not wanted.dtype for q in given.values()):
        return False
    changed = [i for i in places if given[i] != wanted]
    if not changed:
        return False
    for made in reversed(created):
        graph.remove(made)
    builder = Builder(graph, node)
    for i in changed:
        node.set_operand(i, reinterpret_stored(builder, node.operand(i), wanted))
    return True


def _all_as_declared(b: Builder, node: Node, values: Sequence[Value]) -> list[Value]:
    """Return the results with their declared types; copied parts keep their integers."""
    found, first = [], quantization_of(node.results[0]) if node.op.dialect == "tfl" else None
    for value, result in zip(values, node.results, strict=False):
        _check_stored(b, node, value, result)
        wanted, part = quantization_of(result), value
        other = first is not None and wanted is not None and _is_other_scale(first, wanted)
        if first is not None and wanted is not None and other and _copied(value, b.created, node):
            part = reinterpret_stored(b, as_declared(b, value, value.tensor_type.stored_as(first)), wanted)
        found.append(as_declared(b, part, result.type))
    return found


def _check_stored(b: Builder, node: Node, value: Value, result: Value) -> None:
    """Raise ValueError if a TFLite file declares another type for integers that its kernel moves."""
    stored, declared = quantization_of(value), quantization_of(result)
    if node.op.dialect == "tfl" and not node.regions and "custom:" not in node.op.name:
        check_axes(node, value, result, _copied(value, b.created, node))
    if node.op.dialect != "tfl" or stored is None or not isinstance(result.type, TensorType):
        return
    other = declared is not None and declared.storage != stored.storage and _copied(value, b.created, node)
    if other or (declared is None and result.dtype.is_float):
        type_ = result.dtype.value if declared is None else declared.storage
        raise ValueError(f"the result is declared as {type_}, and stored as {stored.storage}")


def _is_other_scale(first: Quantization, second: Quantization) -> bool:
    """Whether both have the same storage type but different scales or zero points."""
    return first != second and first.dtype is second.dtype and first.per_tensor and second.per_tensor


def _copied(value: Value, created: Sequence[Node], node: Node) -> set[Value]:
    """Return the operands of `node` whose elements `value` contains, through ops in `created`; none if computed.

    A constant that the rule creates may be folded from each constant operand; others (a stored 0) have the parameters
    of the result.
    """
    found: set[Value] = set()
    constants = {v for v in node.present_operands if v.is_constant and quantization_of(v) is not None}
    seen, work = {value}, [value]
    while work:
        value = work.pop()
        if value in node.operands:
            found.add(value)
        elif value.producer is not None or not value.is_constant:
            made = value.producer if value.producer in created else None
            sources = _sources(made)
            if not sources:
                return set()
            work += [source for source in sources if source not in seen]
            seen.update(sources)
        else:
            found |= constants
    return found


def _sources(made: Node | None) -> list[Value]:
    """The operands whose elements, or means of them, the results of a node have; none if it computes others."""
    if made is None or made.op is ops.Concatenate or (made.op is ops.Reduce and made.attr("kind") == "mean"):
        return []
    if only_clamps(made):
        return [made.operand(0)]
    chosen = made.op.moves or made.op.selects
    if chosen is None:
        chosen = slice(0, 0 if made.op.picks(attributes_of(made)) is None else 1)
    return [v for v in made.operands[chosen] if v is not None]


MOST_LIFTS = 4
"""The most times that the body of a loop is lifted until its results have the types of its inputs."""
MOST_CHANGING = 8
"""The most nested loops in one whose body is lifted several times: each level multiplies the time."""


def _lift_regions(node: Node, expand: Expand) -> None:
    """Lift the regions of `node`; those of a loop again while its body returns other types than it takes as inputs."""
    carried = rules_for(node.op).carried.get(node.op.name)
    if carried is None and not node.regions:
        return
    widened: set[Dim] = set()
    is_deep = carried is not None and _loops_within(node) > MOST_CHANGING
    for attempt in range(1 if is_deep else MOST_LIFTS):
        spare = [] if carried is None else [clone(region) for region in node.regions]
        for region in node.regions:
            lift(region, expand)
        triples = [] if carried is None else [_of_one_rank(node, *triple) for triple in carried(node)]
        wider = [(v.type, _wider(v.type, new.type, stated, widened, attempt)) for v, new, stated in triples]
        if all(old == new for old, new in wider):
            return
        bodies = [region for region in node.regions if any(v is triples[0][0] for v in region.inputs)]
        places = [bodies[0].inputs.index(v) for v, _, _ in triples]
        for region in spare:
            for place, (_, type_) in zip(places, wider, strict=True):
                region.inputs[place].type = type_
        set_regions(node, spare)
    if is_deep:
        raise UnsupportedError(
            f"a loop around {MOST_CHANGING} other ones carries values whose sizes change", code="E-OP-005"
        )
    raise UnsupportedError("the types of the values that this loop carries change without end", code="E-OP-005")


def _of_one_rank(node: Node, taken: Value, returned: Value, stated: Type | None) -> tuple[Value, Value, Type | None]:
    """The triple of a carried value; one element that a body returns in another rank than it takes has that one."""
    if not differ_in_unit_axes(returned.type, taken.type):
        return taken, returned, stated
    body = next(region for region in node.regions if any(v is taken for v in region.inputs))
    made = reshape(Builder(body), returned, taken.shape)
    body.outputs = [made if v is returned else v for v in body.outputs]
    return taken, made, stated


def _loops_within(node: Node) -> int:
    """The depth of nested loops in the regions of `node`."""
    inner = (n for region in node.regions for n in region.nodes if n.regions)
    return max((_loops_within(n) + (n.op.name in rules_for(n.op).carried) for n in inner), default=0)


def _wider(
    taken: Type | None, returned: Type | None, stated: Type | None, widened: set[Dim], attempt: int
) -> Type | None:
    """The type of a loop-carried value with type `taken` in the first iteration and `returned` in the next one.

    `stated`: the type that the file declares. `widened`: sizes that are unknown. From the second `attempt` on, all
    sizes are unknown if one changes.
    """
    if not isinstance(taken, TensorType) or not isinstance(returned, TensorType) or taken.shape is None:
        return taken
    if returned.shape is None or len(returned.shape) != len(taken.shape):
        shape = shape_of(stated)
        is_wrong = shape is not None and returned.shape is not None and len(shape) != len(returned.shape)
        return taken.with_shape(None if is_wrong else shape)
    changed = [a != b and a not in widened for a, b in zip(taken.shape, returned.shape, strict=True)]
    if not any(changed):
        return taken
    if isinstance(stated, TensorType) and stated.shape is not None:
        return taken if attempt else taken.with_shape(stated.shape)
    dims = [fresh_symbol() if change or attempt else d for d, change in zip(taken.shape, changed, strict=True)]
    widened.update(d for d, old in zip(dims, taken.shape, strict=True) if d != old)
    return taken.with_shape(tuple(dims))


def _remark_parts(node: Node, created: Sequence[Node]) -> None:
    """Remark the ops that together compute the quantized op `node`: only the result of the last is quantized."""
    parts = [made for made in created if made.op.moves is None and made.op is not ops.Convert]
    names = ", ".join(dict.fromkeys(made.op.name for made in parts))
    if any(is_real(r.type) for made in parts[:-1] for r in made.results):
        for made in parts:
            made.remarks += (Remark("island", op_name(node), f"it is computed as {names}"),)


def _inline(graph: Graph, node: Node, body: Graph, operands: Sequence[Value | None], expand: Expand) -> None:
    """Replace `node` by the nodes of `body`, with `operands` as its inputs, and lift each of them."""
    inserted = _spliced(graph, node, body, operands)
    _replace(graph, node, body.outputs)
    for inner_node in inserted:
        lift_node(graph, inner_node, expand)


def _spliced(graph: Graph, node: Node, body: Graph, operands: Sequence[Value | None]) -> list[Node]:
    """The nodes of `body` that are not neutral, all of which move before `node`, with `operands` as its inputs."""
    inserted = graph.splice(body, operands, node)
    for inner_node in inserted:
        inner_node.sources = node.sources
        for result in inner_node.results:
            result.name = result.origin = None
    return [inner_node for inner_node in inserted if inner_node.op.dialect != "neutral"]


def _lifted_steps(graph: Graph, node: Node, steps: Steps, expand: Expand) -> Sequence[Value]:
    """Insert the regions of `steps` before `node`, lift each, and return the results for `node`."""
    try:
        step = next(steps)
        while True:
            inserted = _spliced(graph, node, step.region, step.operands)
            (results,) = Builder(graph, node).foreign("", "Results", step.region.outputs, [None])
            assert results.producer is not None
            for inner_node in inserted:
                lift_node(graph, inner_node, expand)
            outputs = results.producer.present_operands
            graph.remove(results.producer)
            step = steps.send(outputs)
    except StopIteration as stop:
        values: Sequence[Value] = stop.value
        return values


def op_name(node: Node) -> str:
    """The op's name in its file, with the domain unless that is the default."""
    name = node.op.name_in_file or node.op.name
    return f"{node.op.domain}::{name}" if node.op.domain else name


def _onnx_key(node: Node) -> tuple[str, str]:
    """Domain and name of an op of a file."""
    return node.op.domain, node.op.name_in_file


def count_ops(graph: Graph) -> dict[str, int]:
    """The number of nodes by op in the graph and its regions, in descending order."""
    return dict(Counter(op_name(node) for node in graph.walk()).most_common())


def has_conversion(node: Node, is_defined: Callable[[Node], bool]) -> bool:
    """Whether there is a rule for a node of a file's dialect, or (`is_defined`) a definition by other ops."""
    if node.op.dialect == "tfl":
        return node.op.name_in_file in rules_for(node.op).lift_tfl or is_defined(node)
    key = _onnx_key(node)
    found = rules_for(node.op).lift_onnx.get(key, {})
    if not found:
        return is_defined(node)
    return not {node.op.version, ANY_VERSION}.isdisjoint({*found, *rules_for(node.op).upgrades.get(key, {})})


def _onnx_rule(graph: Graph, node: Node) -> LiftRule | None:
    key = _onnx_key(node)
    known = rules_for(node.op)
    found, upgrades = known.lift_onnx.get(key, {}), known.upgrades.get(key, {})
    if node.op.version in upgrades:
        upgrades[node.op.version](Builder(graph, node), node)
        return found[max(found)] if found else None  # None: its definition is correct for the node now
    if not found:
        return None
    rule = found.get(node.op.version) or found.get(ANY_VERSION)
    if rule is None:
        versions = ", ".join(map(str, sorted({*found, *upgrades})))
        raise UnsupportedError(f"this version of the op is not supported (supported: {versions})", code="E-OP-003")
    return rule


def _tfl_rule(node: Node) -> LiftRule | None:
    return rules_for(node.op).lift_tfl.get(node.op.name_in_file)


def _replace(graph: Graph, node: Node, values: Sequence[Value]) -> None:
    for i, old in enumerate(node.results):
        if i < len(values):
            _check_dtype(i, old, values[i], node)
            graph.substitute(old, values[i], retyped=True)
        elif old.uses or graph.is_output(old):
            raise UnsupportedError(f"result {i} of this op cannot be converted")
    graph.remove(node)


def _check_dtype(i: int, old: Value, new: Value, node: Node) -> None:
    """Raise ValueError if a TFLite file declares a real result of another type than the kernel writes."""
    if node.op.dialect != "tfl" or not (isinstance(old.type, TensorType) and isinstance(new.type, TensorType)):
        return
    if old.dtype != new.dtype and not (old.is_quantized or new.is_quantized):
        raise ValueError(f"result {i} is declared as {old.dtype.value}, and computed in {new.dtype.value}")


def _of_type(error: OnnxtflError, node: Node) -> OnnxtflError:
    """The error for an element type that is valid for an op of the file, but that no kernel computes.

    ONNX has more types than any kernel. TFLite's kernels compute integers without a scale either as plain integers or
    as if the scale were 0.
    """
    if not isinstance(error.__cause__, ElementTypeError):
        return error
    if node.op.dialect == "onnx":
        return UnsupportedError(str(error.__cause__), hint="cast it to another type, or cut the model around it")
    types = {v.dtype for v in node.present_operands if isinstance(v.type, TensorType)}
    if any(dtype.is_complex for dtype in types):
        return UnsupportedError(str(error.__cause__), hint="cut the model around it", code="E-TYPE-002")
    if not types & {DType.INT8, DType.UINT8, DType.INT16}:
        return error
    hint = "give it a scale, cast it to another type, or cut the model around it"
    return UnsupportedError(f"{error.__cause__} without a scale", hint=hint, code="E-TYPE-002")


def _located(error: OnnxtflError, node: Node, name: str) -> OnnxtflError:
    """Return `error` with this node, op and operand types, unless it already names a node."""
    if error.node is None:
        error.node = node.shown_name or None
        if error.op != name or error.version is None:
            error.op, error.version = name, node.op.version
    error.type_ = error.type_ or operand_types(node)
    return error
