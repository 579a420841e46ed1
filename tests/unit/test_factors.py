"""What two shapes of as many elements have in common."""

import pytest

from onnxtfl.ir.dims import Dim, symbol
from onnxtfl.ir.factors import Factors, factor_groups

N = symbol("n")


@pytest.mark.parametrize(
    ("before", "after", "sizes", "parts"),
    [
        ((2, 3), (6,), (2, 3), (((0,), (1,)), ((0, 1),))),
        ((1, 32, 8, 8), (1, 4, 512), (1, 4, 8, 8, 8), (((0,), (1, 2), (3,), (4,)), ((0,), (1,), (2, 3, 4)))),
        ((4, 6), (12, 2), (4, 3, 2), (((0,), (1, 2)), ((0, 1), (2,)))),
        ((N, 12), (N, 3, 4), (N, 3, 4), (((0,), (1, 2)), ((0,), (1,), (2,)))),
        ((4 * N, 3), (N, 12), (N, 4, 3), (((0, 1), (2,)), ((0,), (1, 2)))),
        ((4 * (N // 2), 3), (4, 3 * (N // 2)), (4, N // 2, 3), (((0, 1), (2,)), ((0,), (1, 2)))),
        ((5, 1), (5,), (5,), (((0,), ()), ((0,),))),
        ((1, 5), (5, 1), (5,), (((), (0,)), ((0,), ()))),
    ],
)
def test_common_factors(
    before: tuple[Dim, ...], after: tuple[Dim, ...], sizes: tuple[Dim, ...], parts: tuple[object, object]
) -> None:
    found = Factors.of(before, after)
    assert found == Factors(sizes, *parts)  # type: ignore[arg-type]
    assert Factors.of(after, before) == Factors(sizes, *parts[::-1])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("before", "after"),
    [((6, 4), (4, 6)), ((0, 3), (3, 0)), ((2, 3), (5,)), ((N, 4), (4, N)), ((4 * N + 2, 2), (4, 2 * N + 1))],
)
def test_none_in_common(before: tuple[Dim, ...], after: tuple[Dim, ...]) -> None:
    assert Factors.of(before, after) is None


def test_groups_need_no_common_factors() -> None:
    assert factor_groups((2, 6, 4), (2, 4, 6)) == [((0,), (0,)), ((1, 2), (1, 2))]
