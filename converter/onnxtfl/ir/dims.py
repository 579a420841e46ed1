"""Dimensions: an int, or a polynomial with floor division over named symbols.

A dimension known before run time is a plain ``int``. One that is not is a :class:`SymDim`, so that ``batch``,
``2*seq + 1`` and ``(h + 1)//2`` stay known through shape arithmetic. Arithmetic normalizes, so two dimensions are
equal exactly when their polynomials are.
"""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class FloorDiv:
    """The atom ``numerator // denominator`` where the division does not come out."""

    numerator: Dim
    denominator: Dim

    def __str__(self) -> str:
        return f"({self.numerator})//{_factor(self.denominator)}"


Atom = str | FloorDiv
Monomial = tuple[tuple[Atom, int], ...]


class SymDim:
    """A polynomial over symbols and floor divisions; immutable, hashable, normalized."""

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.terms = terms
        self._hash = hash(terms)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SymDim) and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    def __add__(self, other: Dim) -> Dim:
        return _from_terms(itertools.chain(self.terms, _terms(other)))

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return self * -1

    def __sub__(self, other: Dim) -> Dim:
        return self + (-other)

    def __rsub__(self, other: Dim) -> Dim:
        return (-self) + other

    def __mul__(self, other: Dim) -> Dim:
        pairs = itertools.product(self.terms, _terms(other))
        return _from_terms((_monomial_product(a, b), ca * cb) for (a, ca), (b, cb) in pairs)

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return floordiv(self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return floordiv(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return self - (self // other) * other

    def __str__(self) -> str:
        parts = [_term_text(m, c) for m, c in self.terms]
        return " + ".join(parts).replace("+ -", "- ")

    def __repr__(self) -> str:
        return f"SymDim({self})"


Dim = int | SymDim
Shape = tuple[Dim, ...]

_fresh_counter = itertools.count()


def symbol(name: str) -> SymDim:
    """The dimension that is the symbol `name`."""
    return SymDim(((((name, 1),), 1),))


def fresh(prefix: str = "u") -> SymDim:
    """A symbol used nowhere else, for a size known only at run time."""
    return symbol(f"{prefix}?{next(_fresh_counter)}")


def reset_fresh() -> None:
    """Start the numbering of fresh symbols anew, so that the same input gives the same output."""
    global _fresh_counter  # noqa: PLW0603 - one counter a conversion, by design
    _fresh_counter = itertools.count()


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
    return SymDim(((((FloorDiv(a, b), 1),), 1),))


def ceildiv(a: Dim, b: Dim) -> Dim:
    """`a / b` rounded toward plus infinity."""
    return -floordiv(-a, b)


def product(dims: Iterable[Dim]) -> Dim:
    """The product of all dims; 1 for none."""
    result: Dim = 1
    for d in dims:
        result = result * d
    return result


def static(shape: Sequence[Dim] | None) -> bool:
    """Whether every dimension of `shape` is an int; False where the rank is unknown."""
    return shape is not None and all(isinstance(d, int) for d in shape)


def nominal(dim: Dim, default: int = 64) -> int:
    """A size to reckon costs with: symbols count as `default`."""
    if isinstance(dim, int):
        return dim
    return max(1, evaluate(dim, {}, default))


def evaluate(dim: Dim, env: Mapping[str, int], default: int | None = None) -> int:
    """The value of `dim` where `env` gives its symbols (others are `default`, KeyError without one)."""
    if isinstance(dim, int):
        return dim
    return sum(c * math.prod(_atom_value(a, env, default) ** p for a, p in m) for m, c in dim.terms)


def substitute(dim: Dim, env: Mapping[str, Dim]) -> Dim:
    """`dim` with the symbols of `env` replaced."""
    if isinstance(dim, int):
        return dim
    total: Dim = 0
    for monomial, c in dim.terms:
        term: Dim = c
        for atom, power in monomial:
            base = _substitute_atom(atom, env)
            for _ in range(power):
                term = term * base
        total = total + term
    return total


def symbols(dim: Dim) -> set[str]:
    """The names of the symbols in `dim`."""
    if isinstance(dim, int):
        return set()
    found: set[str] = set()
    for monomial, _ in dim.terms:
        for atom, _ in monomial:
            found |= {atom} if isinstance(atom, str) else symbols(atom.numerator) | symbols(atom.denominator)
    return found


def parse_dim(text: str) -> Dim:
    """Read what ``str`` of a dimension printed; ValueError for anything else."""
    quoted = text.replace("?", "__Q__")
    try:
        return _parse_ast(ast.parse(quoted, mode="eval").body)
    except (SyntaxError, KeyError, TypeError) as error:
        raise ValueError(f"not a dimension: {text!r}") from error


def _parse_ast(node: ast.expr) -> Dim:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        return symbol(node.id.replace("__Q__", "?"))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_parse_ast(node.operand)
    if isinstance(node, ast.BinOp):
        left, right = _parse_ast(node.left), _parse_ast(node.right)
        if isinstance(node.op, ast.Pow) and isinstance(right, int):
            return product([left] * right)
        operations: dict[type[ast.operator], Callable[[], Dim]] = {
            ast.Add: lambda: left + right,
            ast.Sub: lambda: left - right,
            ast.Mult: lambda: left * right,
        }
        operations[ast.FloorDiv] = lambda: floordiv(left, right)
        return operations[type(node.op)]()
    raise ValueError(ast.dump(node))


def _terms(dim: Dim) -> tuple[tuple[Monomial, int], ...]:
    if isinstance(dim, int):
        return (((), dim),) if dim else ()
    return dim.terms


def _from_terms(terms: Iterable[tuple[Monomial, int]]) -> Dim:
    total: dict[Monomial, int] = {}
    for monomial, c in terms:
        total[monomial] = total.get(monomial, 0) + int(c)
    kept = sorted(((m, c) for m, c in total.items() if c), key=lambda t: (-len(t[0]), str(t[0])))
    if not kept:
        return 0
    if len(kept) == 1 and not kept[0][0]:
        return kept[0][1]
    return SymDim(tuple(kept))


def _monomial_product(a: Monomial, b: Monomial) -> Monomial:
    powers: dict[Atom, int] = dict(a)
    for atom, p in b:
        powers[atom] = powers.get(atom, 0) + p
    return tuple(sorted(powers.items(), key=lambda t: str(t[0])))


def _exact_quotient(a: Dim, b: Dim) -> Dim | None:
    """a / b where b is a single term dividing every term of a."""
    if a == b:
        return 1
    divisor = _terms(b)
    if len(divisor) != 1:
        return None
    (monomial, c) = divisor[0]
    terms = [_divide_term(m, k, monomial, c) for m, k in _terms(a)]
    return None if any(t is None for t in terms) else _from_terms(t for t in terms if t is not None)


def _divide_term(m: Monomial, k: int, by: Monomial, c: int) -> tuple[Monomial, int] | None:
    if k % c:
        return None
    powers = dict(m)
    for atom, p in by:
        powers[atom] = powers.get(atom, 0) - p
        if powers[atom] < 0:
            return None
    return tuple((a, p) for a, p in powers.items() if p), k // c


def _atom_value(atom: Atom, env: Mapping[str, int], default: int | None) -> int:
    if isinstance(atom, str):
        if atom not in env and default is not None:
            return default
        return env[atom]
    return evaluate(atom.numerator, env, default) // (evaluate(atom.denominator, env, default) or 1)


def _substitute_atom(atom: Atom, env: Mapping[str, Dim]) -> Dim:
    if isinstance(atom, str):
        return env.get(atom, symbol(atom))
    return floordiv(substitute(atom.numerator, env), substitute(atom.denominator, env))


def _factor(dim: Dim) -> str:
    text = str(dim)
    return text if isinstance(dim, int) or text.replace("?", "_").isidentifier() else f"({text})"


def _term_text(monomial: Monomial, c: int) -> str:
    factors = []
    for atom, p in monomial:
        text = (
            atom if isinstance(atom, str) else (str(atom) if p == 1 and len(monomial) == 1 and c == 1 else f"({atom})")
        )
        factors.append(text if p == 1 else f"{text}**{p}")
    if not factors:
        return str(c)
    if c in (1, -1):
        return ("-" if c < 0 else "") + "*".join(factors)
    return "*".join([str(c), *factors])
