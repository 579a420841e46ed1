"""The order in which mapping modules are imported has no effect."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tests.harness.workers import Worker


def digests(backwards: bool) -> dict[str, str]:
    with Worker() as worker:
        outcome = worker.run("tests.models.import_order:digests", backwards, 600)
    assert outcome.kind == "done", f"{outcome.kind}: {outcome.message}\n{outcome.detail}"
    assert isinstance(outcome.value, dict)
    return outcome.value


def test_the_same_bytes_in_any_order() -> None:
    """Models of every op of ONNX, there and back."""
    with ThreadPoolExecutor(2) as pool:
        forwards, reverse = pool.map(digests, (False, True))
    assert len(forwards) > 100
    assert {name for name in forwards if forwards[name] != reverse[name]} == set()
