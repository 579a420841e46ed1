"""Dimensions: an int, or a polynomial with floor division and broadcasting over symbols.

A dimension known before run time is a plain ``int``; any other is a :class:`SymDim`, so that shape arithmetic is exact
on ``batch``, ``2*seq + 1``, ``(h + 1)//2`` and ``broadcast(n, m)``, which is n or m. Arithmetic normalizes: two
dimensions are equal if and only if their polynomials are. One that is too large for the budget
(:mod:`onnxtfl.ir.budget`) is an unknown integer instead; `Budget.unknown` counts these. A symbol is a name, or an
:class:`Unknown`.
"""

from __future__ import annotations

import ast
import functools
import itertools
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeGuard

from onnxtfl.dataclass import dataclass
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir.budget import LARGEST_EXPRESSION, current_budget
from onnxtfl.ir.symbols import Unknown, next_number, reserve


@dataclass(frozen=True)
class FloorDiv:
    """The atom ``numerator // denominator`` of a division that is not exact."""

    numerator: Dim
    denominator: Dim


@dataclass(frozen=True)
class Common:
    """The atom for the size to which `sizes`, two or more that may be 1, broadcast: the one that is not 1."""

    sizes: tuple[Dim, ...]


Symbol = str | Unknown
Atom = Symbol | FloorDiv | Common
Monomial = tuple[tuple[Atom, int], ...]
Replacements = Mapping[str, "Dim"] | Mapping[Symbol, "Dim"] | Mapping[Symbol | Common, "Dim"]


class SymDim:
    """A polynomial over symbols and floor divisions; immutable, hashable, normalized."""

    __slots__ = ("_hash", "_text", "facts", "terms", "weight")

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.terms = terms
        self.weight = len(terms)
        """The number of terms, and of the factors in them."""
        for monomial, _ in terms:
            for atom, power in monomial:
                self.weight += _weight(atom) * power
        self.facts: Any = None
        """What the value analysis knows of it (ir/intervals.py), once it was asked."""
        self._hash = hash(terms)
        self._text = ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SymDim) and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    def __add__(self, other: Dim) -> Dim:
        if other.__class__ is int:
            return self._plus(other)
        return _from_terms(itertools.chain(self.terms, _terms(other)))

    def _plus(self, number: int) -> Dim:
        """The sum with a number, whose term is the last one."""
        last, constant = self.terms[-1]
        rest, total = (self.terms, number) if last else (self.terms[:-1], constant + number)
        return _bounded(SymDim((*rest, ((), total)) if total else rest)) if number else self

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return self * -1

    def __sub__(self, other: Dim) -> Dim:
        return self + (-other)

    def __rsub__(self, other: Dim) -> Dim:
        return (-self) + other

    def __mul__(self, other: Dim) -> Dim:
        if not current_budget().may_expand(len(self.terms) * len(_terms(other))):
            return _too_large()
        pairs = itertools.product(self.terms, _terms(other))
        return _from_terms((_monomial_product(a, b), ca * cb) for (a, ca), (b, cb) in pairs)

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return floordiv(self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return floordiv(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return self - (self // other) * other

    def __rmod__(self, other: Dim) -> Dim:
        return other - (other // self) * self

    def __str__(self) -> str:
        return dim_text(self)

    def __repr__(self) -> str:
        return f"SymDim({self})"


Dim = int | SymDim
Shape = tuple[Dim, ...]


def symbol(name: Symbol | Common) -> SymDim:
    """The dimension that is the symbol `name`, or the size to which others broadcast."""
    return _of_atom(name)


def fresh_symbol() -> SymDim:
    """A size known only at run time, different from all others."""
    return _of_atom(Unknown(next_number()))


def fresh_number() -> SymDim:
    """An integer computed at run time, which may be negative, different from all others."""
    return _of_atom(Unknown(next_number(), is_size=False))


def _of_atom(atom: Atom) -> SymDim:
    return _bounded(SymDim(((((atom, 1),), 1),)))


_LARGEST_FACTOR = 1 << 64


def _bounded(dim: SymDim) -> SymDim:
    """`dim`, or an unknown integer where its expression is too large."""
    small = dim.weight <= LARGEST_EXPRESSION and all(-_LARGEST_FACTOR < c < _LARGEST_FACTOR for _, c in dim.terms)
    return dim if small else _too_large()


def _too_large() -> SymDim:
    """A size that is unknown since its expression would be too large."""
    current_budget().unknown += 1
    return fresh_symbol()


def _weight(atom: Atom) -> int:
    return 1 if isinstance(atom, Symbol) else 1 + sum(d.weight if isinstance(d, SymDim) else 1 for d in parts(atom))


def parts(atom: Atom) -> tuple[Dim, ...]:
    """Return the dimensions in an atom; none for a symbol."""
    if isinstance(atom, FloorDiv):
        return atom.numerator, atom.denominator
    return atom.sizes if isinstance(atom, Common) else ()


def floordiv(a: Dim, b: Dim) -> Dim:
    """`a // b` rounded toward minus infinity, kept exact; ZeroDivisionError where `b` is 0."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    if b == 1:
        return a
    quotient = _exact_quotient(a, b)
    if quotient is not None:
        return quotient
    if isinstance(b, int):
        whole = [(m, c // b) for m, c in _terms(a) if c % b == 0]
        rest = _from_terms((m, c) for m, c in _terms(a) if c % b != 0)
        if whole:
            return _from_terms(whole) + floordiv(rest, b)
    return _of_atom(FloorDiv(a, b))


def truncdiv(a: Dim, b: Dim) -> Dim:
    """`a / b` rounded toward zero; TypeError if it depends on an unknown sign."""
    quotient = floordiv(a, b)
    if _are_nonnegative(a, b) or _are_nonnegative(-a, -b) or quotient * b == a:
        return quotient
    if _are_nonnegative(-a, b):
        return -floordiv(-a, b)
    if _are_nonnegative(a, -b):
        return -floordiv(a, -b)
    raise TypeError(f"the sign of {a} or {b} is not known")


def _are_nonnegative(a: Dim, b: Dim) -> bool:
    """Whether both are known to be >= 0."""
    return is_nonnegative(a) and is_nonnegative(b)


def broadcast_dim(a: Dim, b: Dim) -> Dim:
    """The dimension to which `a` and `b` broadcast; ValueError if they do not.

    A size that cannot be 1 is the result: the other one is 1 or equal, else no run succeeds.
    """
    if b in (a, 1) or a == 1:
        return a if b == 1 else b
    if differ(a, b):
        raise ValueError(f"dimensions {a} and {b} do not broadcast")
    fixed = next((d for d in sorted((a, b), key=lambda d: isinstance(d, SymDim)) if not may_be_one(d)), None)
    if fixed is not None:
        return fixed
    parts = {part for d in (a, b) for part in common_sizes(d)}
    return _of_atom(Common(tuple(sorted(parts, key=str)))) if len(parts) > 1 else parts.pop()


def common_sizes(dim: Dim) -> tuple[Dim, ...]:
    """The sizes that broadcast to `dim`."""
    atom = _only_atom(dim)
    return atom.sizes if isinstance(atom, Common) else (dim,)


def _only_atom(dim: Dim) -> Atom | None:
    """The atom that `dim` is; None for other expressions."""
    terms = _terms(dim)
    if len(terms) != 1:
        return None
    ((monomial, factor),) = terms
    return monomial[0][0] if factor == 1 == len(monomial) == monomial[0][1] else None


def may_be_one(dim: Dim) -> bool:
    """Whether `dim` may be 1, judged by its factors and its lower bound."""
    if isinstance(dim, int):
        return dim == 1
    rest = dim - 1
    factor = math.gcd(*(c for monomial, c in _terms(dim) if monomial))
    constant = next((c for monomial, c in _terms(rest) if not monomial), 0)
    return constant % factor == 0 and not (constant > 0 and is_nonnegative(rest))


def is_nonnegative(dim: Dim) -> bool:
    """Whether `dim` is known to be >= 0 for all sizes, which may be 0."""
    return all(c > 0 and all(_is_nonnegative_atom(atom) for atom, _ in m) for m, c in _terms(dim))


def _is_nonnegative_atom(atom: Atom) -> bool:
    if isinstance(atom, Common):
        return all(map(is_nonnegative, atom.sizes))
    if isinstance(atom, FloorDiv):
        return is_nonnegative(atom.numerator) and is_nonnegative(atom.denominator)
    return atom.is_size if isinstance(atom, Unknown) else True


def lower_bound(dim: Dim) -> int:
    """A lower bound of `dim`, every symbol being a size."""
    if any(c < 0 for m, c in _terms(dim) if m):
        return 0
    return sum(c for m, c in _terms(dim) if not m)


def positive_part(dim: Dim) -> Dim:
    """`dim`, or 0 where it is known to be negative."""
    return 0 if exceeds(0, dim) else dim


def ceildiv(a: Dim, b: Dim) -> Dim:
    """`a / b` rounded toward plus infinity."""
    return -floordiv(-a, b)


def sum_of(dims: Iterable[Dim]) -> Dim:
    """The sum of `dims`, in time linear in their terms."""
    return _from_terms(itertools.chain.from_iterable(map(_terms, dims)))


def product(dims: Iterable[Dim]) -> Dim:
    """The product of all dims; 1 for none."""
    result: Dim = 1
    for d in dims:
        result = result * d
    return result


_IS_INT = int.__instancecheck__
"""isinstance for ints; `all` with it takes half as long as with a generator, and most passes ask it of most values."""


def is_static(shape: Iterable[object] | None) -> TypeGuard[tuple[int, ...]]:
    """Whether every dimension of `shape` is an int; False where the rank is unknown."""
    return shape is not None and all(map(_IS_INT, shape))


def known_size(dim: Dim, what: str = "a size") -> int:
    """A size that has to be known before run time; UnsupportedError (about `what`) for others."""
    if not isinstance(dim, int):
        raise UnsupportedError(f"{what} has to be known before run time, not {dim}", code="E-SHAPE-001")
    return dim


def known_sizes(dims: Iterable[object]) -> list[int]:
    """Those of `dims` that are known before run time."""
    return [d for d in dims if isinstance(d, int)]


def known_of(*dims: Dim) -> Dim:
    """Return a static size among equal sizes if there is one, else the first."""
    return next(iter(known_sizes(dims)), dims[0])


def open_axes(dims: Sequence[object]) -> list[int]:
    """The places of the sizes that are not known before run time."""
    return [i for i, d in enumerate(dims) if not isinstance(d, int)]


def size_or(dim: Dim | str | None, default: int) -> int:
    """`dim` where it is known before run time, else `default`."""
    return dim if isinstance(dim, int) else default


def differ(a: Dim | str | None, b: Dim | str | None) -> bool:
    """Whether two sizes are known before run time, and differ."""
    return a != b and is_static((a, b))


def at_most(dim: Dim | None, limit: int) -> TypeGuard[int]:
    """Whether a size is known before run time, and not more than `limit`."""
    return isinstance(dim, int) and dim <= limit


def exceeds(dim: Dim | None, limit: Dim) -> bool:
    """Whether two sizes are known before run time, and the first is more than the second."""
    return isinstance(dim, int) and isinstance(limit, int) and dim > limit


def indivisible(dim: Dim, by: Dim) -> bool:
    """Whether two sizes are known before run time, and the second does not divide the first."""
    return differ(dim // by * by, dim)


def with_texts(dims: Iterable[Dim], text: Callable[[Dim], str] = str) -> tuple[int | str, ...]:
    """The sizes as ints where they are known before run time, else as texts."""
    return tuple(d if isinstance(d, int) else text(d) for d in dims)


def estimated_size(dim: Dim, default: int = 64) -> int:
    """An estimate of the size for cost models: every symbol is `default`."""
    return dim if isinstance(dim, int) else max(1, evaluate(dim, {}, default))


def evaluate(dim: Dim, env: Mapping[Symbol, int] | Mapping[str, int], default: int | None = None) -> int:
    """The value of `dim` with the symbols in `env`; others are `default` (KeyError if that is None)."""
    return sum(c * math.prod(_atom_value(a, env, default) ** p for a, p in m) for m, c in _terms(dim))


def substitute(dim: Dim, env: Replacements) -> Dim:
    """`dim` with the symbols in `env`, and the sizes to which others broadcast, replaced."""
    total: Dim = 0
    for monomial, c in _terms(dim):
        term: Dim = c
        for atom, power in monomial:
            base = _substitute_atom(atom, env)
            for _ in range(power):
                term = term * base
        total = total + term
    return total


def symbols(dim: Dim) -> Iterator[Symbol]:
    """The symbols in `dim`, with repetitions."""
    for monomial, _ in _terms(dim):
        for atom, _ in monomial:
            if isinstance(atom, FloorDiv | Common):
                yield from itertools.chain.from_iterable(map(symbols, parts(atom)))
            else:
                yield atom


def is_open(dim: Dim) -> bool:
    """Whether `dim` depends on an integer computed at run time: it may be negative and is not a size."""
    return any(isinstance(s, Unknown) and not s.is_size for s in symbols(dim))


_UNKNOWN = re.compile(r"\b([uv])\?(\d+)")


def parse_dim(text: str) -> Dim:
    """Parse the text that ``str`` prints for a dimension. Raises ValueError for other text."""
    try:
        return _parse_ast(ast.parse(_UNKNOWN.sub(r"\1[\2]", text), mode="eval").body)
    except (SyntaxError, KeyError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError(f"not a dimension: {text!r}") from error


_OPERATIONS: Mapping[type[ast.operator], Callable[[Dim, Dim], Dim]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: floordiv,
}


def _parse_ast(node: ast.expr) -> Dim:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return symbol(name)
        case ast.Subscript():
            return _parse_unknown(node)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "broadcast":
        return functools.reduce(broadcast_dim, map(_parse_ast, node.args))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_parse_ast(node.operand)
    if isinstance(node, ast.BinOp):
        left, right = _parse_ast(node.left), _parse_ast(node.right)
        if isinstance(node.op, ast.Pow) and isinstance(right, int) and 0 <= right <= LARGEST_EXPRESSION:
            return product(itertools.repeat(left, right))
        return _OPERATIONS[type(node.op)](left, right)
    raise ValueError(ast.dump(node))


def _parse_unknown(node: ast.Subscript) -> Dim:
    match node:
        case ast.Subscript(value=ast.Name(id=kind), slice=ast.Constant(value=int(number))):
            reserve(number)
            return symbol(Unknown(number, kind == "u"))
    raise ValueError(ast.dump(node))


def _terms(dim: Dim) -> tuple[tuple[Monomial, int], ...]:
    if isinstance(dim, int):
        return (((), dim),) if dim else ()
    return dim.terms


def _from_terms(terms: Iterable[tuple[Monomial, int]]) -> Dim:
    total: dict[Monomial, int] = {}
    for monomial, c in terms:
        total[monomial] = total.get(monomial, 0) + int(c)
    if len(total) > LARGEST_EXPRESSION + 1:  # without sorting them by their texts
        return _too_large()
    kept = _in_order([(m, c) for m, c in total.items() if c])
    if not kept:
        return 0
    if len(kept) == 1 and not kept[0][0]:
        return kept[0][1]
    return _bounded(SymDim(tuple(kept)))


def _in_order(terms: list[tuple[Monomial, int]]) -> list[tuple[Monomial, int]]:
    """Sort terms by the number of their factors, descending, then by the factors.

    The texts of factors are only compared within one number: that of a nested division is as long as all of it.
    """
    by_count: dict[int, list[tuple[Monomial, int]]] = {}
    for term in terms:
        by_count.setdefault(len(term[0]), []).append(term)
    found: list[tuple[Monomial, int]] = []
    for _, equal in sorted(by_count.items(), reverse=True):
        found += sorted(equal, key=lambda term: [*map(_order, term[0])]) if len(equal) > 1 else equal
    return found


def _order(power: tuple[Atom, int]) -> tuple[bool, str, int]:
    """The sort key of a factor: symbols before other atoms, then by text."""
    atom, exponent = power
    return isinstance(atom, FloorDiv | Common), _atom_text(atom, str), exponent


def _monomial_product(a: Monomial, b: Monomial) -> Monomial:
    powers: dict[Atom, int] = dict(a)
    for atom, p in b:
        powers[atom] = powers.get(atom, 0) + p
    return tuple(sorted(powers.items(), key=_order)) if len(powers) > 1 else tuple(powers.items())


def _exact_quotient(a: Dim, b: Dim) -> Dim | None:
    """a / b if b divides a, by long division of polynomials; else None."""
    if a in (0, b):
        return int(a != 0)
    (monomial, c), *others = _terms(b)
    quotient: Dim = 0
    for _ in _terms(a):
        terms = [_divide_term(m, k, monomial, c) for m, k in (_terms(a)[:1] if others else _terms(a))]
        if any(t is None for t in terms):
            return None
        part = _from_terms(t for t in terms if t is not None)
        quotient, a = quotient + part, a - part * b
        if a == 0:
            return quotient
    return None


def _divide_term(m: Monomial, k: int, by: Monomial, c: int) -> tuple[Monomial, int] | None:
    if k % c:
        return None
    powers = dict(m)
    for atom, p in by:
        powers[atom] = powers.get(atom, 0) - p
        if powers[atom] < 0:
            return None
    return tuple((a, p) for a, p in powers.items() if p), k // c


def _atom_value(atom: Atom, env: Mapping[Symbol, int] | Mapping[str, int], default: int | None) -> int:
    if isinstance(atom, FloorDiv):
        return evaluate(atom.numerator, env, default) // (evaluate(atom.denominator, env, default) or 1)
    if isinstance(atom, Common):
        sizes = [evaluate(d, env, default) for d in atom.sizes]
        return next((size for size in sizes if size != 1), 1)
    value = env.get(atom, default)  # type: ignore[arg-type]
    if value is None:
        raise KeyError(atom)
    return value


def _substitute_atom(atom: Atom, env: Replacements) -> Dim:
    if isinstance(atom, FloorDiv):
        return floordiv(substitute(atom.numerator, env), substitute(atom.denominator, env))
    if isinstance(atom, Common) and atom not in env:
        return functools.reduce(broadcast_dim, (substitute(d, env) for d in atom.sizes))
    return env.get(atom, _of_atom(atom))  # type: ignore[arg-type]


Naming = Callable[[Unknown], str]


def dim_text(dim: Dim, naming: Naming = str) -> str:
    """`dim` as an expression; `naming` returns the names of unknown integers."""
    if isinstance(dim, SymDim) and naming is str:
        dim._text = dim._text or _sum_text(dim, naming)
        return dim._text
    return _sum_text(dim, naming)


def _sum_text(dim: Dim, naming: Naming) -> str:
    parts = [_term_text(m, c, naming) for m, c in _terms(dim)]
    return " + ".join(parts).replace("+ -", "- ") or "0"


def _atom_text(atom: Atom, naming: Naming) -> str:
    if isinstance(atom, FloorDiv):
        divisor = dim_text(atom.denominator, naming)
        shown = f"({divisor})" if _is_expression(atom.denominator) else divisor
        return f"({dim_text(atom.numerator, naming)})//{shown}"
    if isinstance(atom, Common):
        return f"broadcast({', '.join(dim_text(d, naming) for d in atom.sizes)})"
    return atom if isinstance(atom, str) else naming(atom)


def _is_expression(dim: Dim) -> bool:
    """Whether `dim` is neither a number nor a symbol."""
    return any(True for _ in symbols(dim)) and isinstance(_only_atom(dim), FloorDiv | None)


def _term_text(monomial: Monomial, c: int, naming: Naming) -> str:
    factors = []
    for atom, power in monomial:
        factor = _atom_text(atom, naming)
        if isinstance(atom, FloorDiv) and not power == len(monomial) == c == 1:
            factor = f"({factor})"
        factors.append(factor if power == 1 else f"{factor}**{power}")
    if not factors:
        return str(c)
    if c in (1, -1):
        return ("-" if c < 0 else "") + "*".join(factors)
    return "*".join([str(c), *factors])
