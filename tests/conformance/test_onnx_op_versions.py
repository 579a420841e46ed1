"""Every version of every ONNX op that converts has a case: of ONNX's op tests, of an older release's, or our own."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import onnx
import pytest

from onnxtfl.rewriting.registry import all_rules
from tests.conformance.cases import load_cases
from tests.conformance.history_cases import load_history_cases
from tests.unit import test_first_versions, test_op_versions

OpVersion = tuple[str, str, int]  # domain, name, since-version
ML = "ai.onnx.ml"
_MAKERS = ("check_same", "ml_model")
_UNIT = Path(__file__).resolve().parents[1] / "unit"


def _since_versions() -> Mapping[tuple[str, str], list[int]]:
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    for schema in onnx.defs.get_all_schemas_with_history():
        found[schema.domain, schema.name].append(schema.since_version)
    return found


_SINCE = _since_versions()


def _convert() -> set[OpVersion]:
    """The op versions of the installed onnx that a rule lifts or upgrades."""
    known = all_rules()
    tables = (known.lift_onnx, known.upgrades)
    return {(d, n, v) for (d, n), all_ in _SINCE.items() for v in all_ if any(v in t.get((d, n), {}) for t in tables)}


def _at(domain: str, name: str, opset: int) -> OpVersion:
    return domain, name, max((v for v in _SINCE[domain, name] if v <= opset), default=0)


def _in_nodes(nodes: Iterable[onnx.NodeProto], opsets: Mapping[str, int]) -> Iterator[OpVersion]:
    for node in nodes:
        domain = "" if node.domain == "ai.onnx" else node.domain
        if (domain, node.op_type) in _SINCE:
            yield _at(domain, node.op_type, opsets.get(domain, 0))
        for attribute in node.attribute:
            for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _in_nodes(graph.node, opsets)


def _in_model(data: bytes) -> Iterator[OpVersion]:
    model = onnx.load_from_string(data)
    opsets = {"" if i.domain == "ai.onnx" else i.domain: i.version for i in model.opset_import}
    yield from _in_nodes(model.graph.node, opsets)
    for function in model.functions:
        yield from _in_nodes(function.node, {i.domain: i.version for i in function.opset_import})


def _in_calls(path: Path) -> Iterator[OpVersion]:
    """The ops of ai.onnx.ml that tests make by `check_same` or `ml_model` (op, ..., version=...), as written there."""
    for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in _MAKERS):
            continue
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        op, version = call.args[0], given.get("version", ast.Constant(3))
        if isinstance(op, ast.Constant) and isinstance(version, ast.Constant) and (ML, op.value) in _SINCE:
            yield _at(ML, str(op.value), int(str(version.value)))


def test_every_op_version_that_converts_has_a_case() -> None:
    history = load_history_cases()
    if not history:
        pytest.skip("the op tests of older releases are not here")
    public = {op for case in [*load_cases("plain", True), *history] for op in _in_model(case.model)}
    own = {("", name, version) for name, version in test_first_versions.NAMED | test_op_versions.NAMED}
    own |= {op for path in _UNIT.glob("test_*.py") for op in _in_calls(path)}
    assert own <= {(d, n, v) for (d, n), all_ in _SINCE.items() for v in all_}, "cases of versions that do not exist"
    missing = sorted(f"{domain}::{name}-{version}" for domain, name, version in _convert() - public - own)
    assert not missing
