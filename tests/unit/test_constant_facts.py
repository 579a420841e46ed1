"""Facts about constants are found once in a conversion, and again in the next one."""

from __future__ import annotations

from onnxtfl.ir.constant_facts import constant_facts_scope, known_fact


def test_facts_are_found_once_in_nested_scopes() -> None:
    found: list[str] = []

    def fact(name: str) -> int:
        return known_fact(name, lambda: found.append(name) or len(found))

    with constant_facts_scope():
        first = fact("a")
        with constant_facts_scope():
            assert (fact("a"), fact("b")) == (first, 2)
        assert fact("b") == 2
    assert found == ["a", "b"]


def test_facts_are_forgotten_after_a_conversion() -> None:
    found: list[int] = []
    for _ in range(2):
        with constant_facts_scope():
            known_fact("a", lambda: found.append(1))
    known_fact("a", lambda: found.append(1))
    assert len(found) == 3
