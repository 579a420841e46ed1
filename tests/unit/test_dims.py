"""Dimensions are polynomials with floor division, equal when their meaning is."""

import contextvars
import itertools
import time

import pytest

from onnxtfl.ir.dims import (
    Dim,
    at_most,
    broadcast_dim,
    ceildiv,
    differ,
    dim_text,
    estimated_size,
    evaluate,
    exceeds,
    floordiv,
    fresh_number,
    fresh_symbol,
    indivisible,
    is_open,
    known_of,
    lower_bound,
    open_axes,
    parse_dim,
    positive_part,
    product,
    substitute,
    symbol,
    symbols,
    truncdiv,
    with_texts,
)
from onnxtfl.ir.symbols import Unknown, symbol_scope

B, H = symbol("b"), symbol("h")


def test_arithmetic_normalizes() -> None:
    assert 2 * B + 1 - B == B + 1
    assert (B + 1) * (B - 1) == B * B - 1
    assert H - H == 0 and isinstance(H - H, int)


def test_division_that_comes_out_is_exact() -> None:
    assert (B * H * 4) // (2 * B) == 2 * H
    assert (2 * H + 3) // 2 == H + 1
    assert (B + 1) // (B + 1) == 1
    assert (64 * B + 512) // (16 * B + 128) == 4
    assert (B * B - 1) // (B + 1) == B - 1


def test_division_that_does_not_stays() -> None:
    half = (H + 1) // 2
    assert str(half) == "(h + 1)//2"
    assert 2 * half != H + 1


@pytest.mark.parametrize("size", range(1, 12))
def test_values_agree_with_integers(size: int) -> None:
    env = {"h": size, "b": 3}
    for dim, value in [
        (floordiv(H - 3, 2), (size - 3) // 2),
        (ceildiv(H + 5, 4), -(-(size + 5) // 4)),
        ((3 * H * B + H) % 4, (9 * size + size) % 4),
        (product([B, H, 2]), 6 * size),
    ]:
        assert evaluate(dim, env) == value


def test_text_reads_back() -> None:
    atoms = [B, H + 1, (H + 1) // 2, 3 * B * H, B * B - 2 * H, -H, ((H + 1) // 2 + B) // 3 * 5]
    for a, b in itertools.product(atoms, atoms):
        for dim in (a + b, a * b, floordiv(a, b + 7)):
            assert parse_dim(str(dim)) == dim


def test_substitution_and_symbols() -> None:
    dim = (H + 1) // 2 * B
    assert set(symbols(dim)) == {"h", "b"}
    assert substitute(dim, {"h": 5}) == 3 * B
    assert substitute(dim, {"h": 5, "b": 2}) == 6


def test_unknown_sizes_count_nominally() -> None:
    assert estimated_size(3) == 3
    assert estimated_size(2 * B, default=10) == 20


def test_other_text_is_refused() -> None:
    for text in ("", "1 +", "f(x)", "1.5"):
        with pytest.raises(ValueError):
            parse_dim(text)


def test_unknown_sizes_are_no_names() -> None:
    with symbol_scope():
        size, number = fresh_symbol(), fresh_number()
    assert (str(size), str(number)) == ("u?0", "v?1")
    assert set(symbols((size + B) // 2)) == {Unknown(0), "b"}
    assert is_open(number // 2 + 1) and not is_open(size * B)
    assert dim_text(3 * size * B + number, lambda unknown: f"unk_{unknown.number}") == "3*b*unk_0 + unk_1"
    assert evaluate(2 * size, {Unknown(0): 5}) == 10
    for dim in (size, number, (size + 1) // 2 * B, number * number - size):
        assert parse_dim(str(dim)) == dim


def test_a_number_in_a_text_is_not_given_again() -> None:
    with symbol_scope():
        assert parse_dim("u?4 + 1") == symbol(Unknown(4)) + 1
        assert fresh_symbol() == symbol(Unknown(5))


def test_scopes_count_for_themselves() -> None:
    with symbol_scope():
        first = fresh_symbol()
        with symbol_scope():
            assert fresh_symbol() == first
        assert fresh_symbol() != first


def test_numbers_of_a_graph_that_outlives_its_scope_are_not_given_again() -> None:
    def outside() -> None:
        with symbol_scope():
            inner = [fresh_symbol(), fresh_symbol()]
        assert fresh_symbol() not in inner

    contextvars.Context().run(outside)


def test_sizes_that_may_be_1_broadcast_to_one_of_both() -> None:
    """The result depends on both sizes, whichever comes first; one that cannot be 1 is the result."""
    n, m = symbol("n"), symbol("m")
    both = broadcast_dim(n, m)
    assert both == broadcast_dim(m, n) == broadcast_dim(both, n) == parse_dim("broadcast(n, m)")
    assert str(2 * both + 1) == "2*broadcast(m, n) + 1"
    assert broadcast_dim(n, n) == broadcast_dim(n, 1) == n
    assert broadcast_dim(n, 4) == 4 and broadcast_dim(0, n) == 0
    assert broadcast_dim(n, 2 * m) == broadcast_dim(2 * m, n) == 2 * m
    assert broadcast_dim(n, m + 2) == m + 2 and broadcast_dim(n, m - 2) not in (n, m - 2)
    assert [evaluate(both, {"n": a, "m": b}) for a, b in ((1, 5), (5, 1), (1, 0), (1, 1))] == [5, 5, 0, 1]
    assert substitute(both, {"n": 4}) == 4 and substitute(both, {"n": 1}) == m and substitute(both, {"n": m}) == m
    assert [*symbols(both)] == ["m", "n"]


@pytest.mark.parametrize(("a", "b"), [(7, 2), (-7, 2), (7, -2), (-7, -2), (-6, 2), (0, -3)])
def test_truncated_quotients(a: int, b: int) -> None:
    assert truncdiv(a, b) == int(a / b)


def test_truncated_quotients_of_known_sign() -> None:
    assert truncdiv(H, 2) == H // 2
    assert truncdiv(-H, 2) == truncdiv(H, -2) == -(H // 2)
    assert truncdiv(4 - 4 * H, 4) == 1 - H
    with pytest.raises(TypeError, match="sign"):
        truncdiv(H - 3, 2)


@pytest.mark.parametrize("size", range(1, 12))
def test_the_rest_of_a_number(size: int) -> None:
    assert evaluate(7 % H, {"h": size}) == 7 % size
    assert (3 * H) % H == 0 == 0 % H


@pytest.mark.parametrize(
    ("a", "b", "differs", "more", "rest"),
    [
        (4, 4, False, False, False),
        (5, 4, True, True, True),
        (4, 5, True, False, True),
        (8, 4, True, True, False),
        (H, 4, False, False, False),
        (4, H, False, False, False),
        (4 * H + 1, 4, False, False, False),
    ],
)
def test_what_is_known_of_two_sizes(a: Dim, b: Dim, differs: bool, more: bool, rest: bool) -> None:
    assert (differ(a, b), exceeds(a, b), indivisible(a, b)) == (differs, more, rest)


def test_what_is_known_of_sizes() -> None:
    assert at_most(3, 3) and not at_most(4, 3) and not at_most(H, 3) and not at_most(None, 3)
    assert [positive_part(d) for d in (-2, 3, H - 1)] == [0, 3, H - 1]
    assert [lower_bound(d) for d in (-2, H + 3, 5 - H)] == [-2, 3, 0]
    assert (known_of(H, B, 4, B), known_of(H, B)) == (4, H)
    assert open_axes([H, 2, 2 * B]) == [0, 2]
    assert with_texts([H + 1, 2]) == ("h + 1", 2)


def test_a_chain_of_divisions_takes_linear_time() -> None:
    """Sums are not sorted by the texts of their atoms, each as long as the chain."""
    start, size = time.process_time(), symbol("n")
    for i in range(5000):
        size = floordiv(size + i % 3, 2) + 1
    assert time.process_time() - start < 3


@pytest.mark.parametrize(
    "text", ["n" + "//2" * 5000, "//".join(f"s{i}" for i in range(5000)), "(" * 5000 + "n" + ")" * 5000]
)
def test_a_text_that_is_too_deep_is_no_dimension(text: str) -> None:
    with pytest.raises(ValueError, match="not a dimension"):
        parse_dim(text)
