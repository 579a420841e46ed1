"""Forms of the document: statements as neutral-ops.txt spells them, where our declaration differs.

A form declares the document's operands and attributes, and expands a statement to our ops. A statement that our own
declaration accepts has our meaning; the two never disagree about one that both accept. Some forms can also be printed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.errors import InvalidModelError, OnnxtflError
from onnxtfl.ir.attributes import REQUIRED, Attribute, Choice, Float, Several, of_annotation
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import ANY, Op, Operand, attributes_of
from onnxtfl.ir.types import TensorType, Type


@dataclass(frozen=True)
class Statement:
    """The right side of a statement: operands (None: absent), their names where they are written, and attributes."""

    operands: Sequence[Value | None]
    attributes: Mapping[str, Any]
    names: tuple[str, ...] = ()


Print = Callable[[Node], Statement | None]


@dataclass(frozen=True)
class Form:
    """The document's form of `op`: `expand` returns the results for operands and attributes (as keywords).

    `results`: how many there are; None: one for each name on the left. `printed`: the statement of a node; None if it
    has no such form.
    """

    op: type[Op]
    operands: tuple[Operand, ...]
    attributes: Mapping[str, Attribute]
    expand: Callable[..., Value | Sequence[Value]]
    results: int | None = 1
    printed: Print | None = None

    @property
    def meaning(self) -> str:
        """What the form means, in Markdown."""
        return inspect.getdoc(self.expand) or ""

    def accepts(self, statement: Statement, results: int) -> bool:
        """Whether a statement with this number of results is in this form."""
        return self.results in (None, results) and _accepted(self.operands, self.attributes, statement)

    def built(self, b: Builder, operands: Sequence[Value | None], attributes: Mapping[str, Any]) -> list[Value]:
        """The results, as values of our ops. InvalidModelError if the operands or attributes do not fit."""
        found = {name: kind.default for name, kind in self.attributes.items()}
        try:
            for name, value in attributes.items():
                found[name] = self.attributes[name].checked(name, value)
            missing = [name for name, value in found.items() if value is REQUIRED]
            if missing:
                raise TypeError(f"the attribute {missing[0]} is missing")
            _check_types(self.operands, operands)
            absent = 0 if self.operands and self.operands[-1].variadic else len(self.operands) - len(operands)
            made = self.expand(b, *operands, *[None] * absent, **found)
        except OnnxtflError:
            raise
        except (ValueError, TypeError, IndexError, KeyError) as error:
            message = f"operands do not fit: {error}"
            raise InvalidModelError(message, op=self.op.documented or self.op.name, code="E-FILE-009") from error
        return [made] if isinstance(made, Value) else list(made)


FORMS: dict[type[Op], Form] = {}
"""The forms by our op."""


def _check_types(declared: Sequence[Operand], operands: Sequence[Value | None]) -> None:
    """Raise TypeError for an operand of another element type than declared, or too many of them."""
    if len(operands) > len(declared) and not (declared and declared[-1].variadic):
        raise TypeError(f"{len(operands)} operands, at most {len(declared)} expected")
    for i, value in enumerate(operands):
        operand = declared[min(i, len(declared) - 1)]
        if value is not None and isinstance(value.type, TensorType) and value.dtype not in operand.dtypes:
            raise TypeError(f"operand {operand.name} cannot be {value.dtype.value}")


def _accepted(operands: Sequence[Operand], attributes: Mapping[str, Attribute], statement: Statement) -> bool:
    """Whether a declaration has these operands and attributes."""
    given, known = statement.attributes, attributes.keys()
    needed = {name for name, kind in attributes.items() if kind.default is REQUIRED}
    least = sum(1 for o in operands if not (o.optional or o.variadic))
    most = len(statement.operands) if not operands or operands[-1].variadic else len(operands)
    if not needed <= given.keys() <= known or not least <= len(statement.operands) <= most:
        return False
    try:
        for name, value in given.items():
            attributes[name].checked(name, value)
    except (TypeError, ValueError):
        return False
    return True


def _with_declared(
    known: Mapping[str, Attribute], op: type[Op], statement: Statement, types: Sequence[Type | None]
) -> dict[str, Any]:
    """The attributes, with absent ones of `known` from the declared types: their element type, and `shape`."""
    found = dict(statement.attributes)
    for result, type_ in zip(op.results, types, strict=False):
        if not isinstance(type_, TensorType):
            continue
        name = result.like or ("dtype" if len(op.results) == 1 else "")
        if name in known and known[name].default is not type_.dtype:
            found.setdefault(name, type_.dtype)
        if "shape" in known and known["shape"].default is REQUIRED and type_.is_static:
            found.setdefault("shape", type_.shape)
    return found


def _returns(op: type[Op], types: Sequence[Type | None]) -> bool:
    """Whether `op` declares as many results as `types`, of these element types."""
    if len(types) > len(op.results) and not (op.results and op.results[-1].variadic):
        return False
    pairs = zip(op.results, types, strict=False)
    return all(not isinstance(type_, TensorType) or type_.dtype in result.dtypes for result, type_ in pairs)


def read(op: type[Op], statement: Statement, types: Sequence[Type | None]) -> tuple[Form | None, Statement]:
    """The form in which a statement with results of these declared types is written (None: ours, or none), and the
    statement with the attributes that only the types tell.
    """
    own = replace(statement, attributes=_with_declared(op.attributes, op, statement, types))
    form = FORMS.get(op)
    if form is None or (_returns(op, types) and _accepted(op.operands, op.attributes, own)):
        return None, own
    theirs = replace(statement, attributes=_with_declared(form.attributes, op, statement, types))
    names = theirs.attributes.keys()
    is_theirs = bool(names - op.attributes.keys()) and names <= form.attributes.keys()
    return (form, theirs) if is_theirs or form.accepts(theirs, len(types)) else (None, own)


def built(b: Builder, op: type[Op], *operands: Value | None, **attributes: Any) -> list[Value]:
    """The results of `op` in the document's form."""
    return FORMS[op].built(b, operands, attributes)


def printed(node: Node) -> Statement:
    """The statement of a neutral node, in the document's form if it has one."""
    form = FORMS.get(node.op)
    found = None if form is None or form.printed is None else form.printed(node)
    return found or Statement(node.operands, node.attributes)


# --- declarations -----------------------------------------------------------------------------------------------------


def document_form(
    op: type[Op],
    *operands: Operand,
    attributes: Mapping[str, Attribute] | None = None,
    results: int | None = 1,
    printed: Print | None = None,
    widened: bool = False,
) -> Callable[[Callable[..., Value | Sequence[Value]]], Form]:
    """Declare the document's form of `op` by the decorated function.

    Its parameters are a builder, the operands, and the attributes with their defaults; `attributes`: those whose kind
    the annotation does not say. Operands named as ours have the element types of these, unless `widened`.
    """

    def declare(expand: Callable[..., Value | Sequence[Value]]) -> Form:
        parameters = list(inspect.signature(expand).parameters.values())
        variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        named = parameters[2 if variadic else len(operands) + 1 :]
        found = {p.name: REQUIRED if p.default is p.empty else p.default for p in named}
        kinds = {p.name: of_annotation(p.annotation, found[p.name]) for p in named if p.name not in (attributes or {})}
        ordered = {name: (attributes or {}).get(name) or kinds[name] for name in found}
        ours = {operand.name: operand.dtypes for operand in op.operands}
        typed = tuple(
            replace(o, dtypes=ours.get(o.name, ANY)) if o.dtypes == ANY and not widened else o for o in operands
        )
        FORMS[op] = form = Form(op, typed, ordered, expand, results, printed)
        return form

    return declare


@dataclass(frozen=True)
class Spelling:
    """The document's form of one node of `op`: attributes of other names or values, operands that are attributes there.

    `renamed`: our attribute by the document's name. `constants`: operand indices, with the attribute's kind, by name.
    `values`: our value by the document's, for attributes by name.
    """

    op: type[Op]
    renamed: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, tuple[int, Attribute]] = field(default_factory=dict)
    values: Mapping[str, Mapping[Any, Any]] = field(default_factory=dict)

    def register(self) -> None:
        """Declare the form."""
        ours = {name: kind for name, kind in self.op.attributes.items() if name not in self.renamed.values()}
        ours |= {
            name: Choice(*known, default=self._theirs(name, ours[name].default)) for name, known in self.values.items()
        }
        others = {name: self.op.attributes[mine] for name, mine in self.renamed.items()}
        given = {name: kind for name, (_, kind) in self.constants.items()}
        places = {place for place, _ in self.constants.values()}
        operands = tuple(o for i, o in enumerate(self.op.operands) if i not in places)
        FORMS[self.op] = Form(self.op, operands, {**others, **given, **ours}, self._expand, 1, self._printed)

    def _expand(self, b: Builder, *operands: Value | None, **attributes: Any) -> Value:
        """The same op with the document's names and values of attributes."""
        values: list[Any] = list(operands)
        for name, (place, kind) in self.constants.items():
            values.insert(place, _constant(kind, attributes.pop(name)))
        attributes |= {name: known[attributes[name]] for name, known in self.values.items()}
        named = {self.renamed.get(name, name): value for name, value in attributes.items()}
        return b(self.op, *self.op.trimmed(values), **named)

    def _theirs(self, name: str, value: Any) -> Any:
        """The document's value of an attribute."""
        return next((theirs for theirs, ours in self.values.get(name, {}).items() if ours == value), value)

    def _printed(self, node: Node) -> Statement | None:
        found = dict(self._constants_of(node))
        if len(found) != len(self.constants):
            return None
        places = {place for place, _ in self.constants.values()}
        theirs = {mine: name for name, mine in self.renamed.items()}
        attributes = {theirs.get(name, name): self._theirs(name, v) for name, v in attributes_of(node).items()}
        attributes |= {name: value for name, value in found.items() if value is not None}
        return Statement([v for i, v in enumerate(node.operands) if i not in places], attributes)

    def _constants_of(self, node: Node) -> Iterator[tuple[str, Any]]:
        for name, (place, kind) in self.constants.items():
            value = node.optional(place)
            if value is None:
                yield name, None
            elif value.is_constant and not value.is_quantized:
                elements = value.numpy().reshape(-1).tolist()
                yield name, tuple(elements) if isinstance(kind, Several) else elements[0]


def _constant(kind: Attribute, value: Any) -> Any:
    """The operand for an attribute: a vector, or a scalar in a vector; None for None."""
    if value is None:
        return None
    return np.asarray(value, np.float32 if isinstance(kind, Float) else np.int64).reshape(-1)
