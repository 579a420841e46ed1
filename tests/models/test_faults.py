"""Pairs of models whose second is wrong on purpose: the verdict of the check on each."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from onnxtfl import check
from tests.models.corpus import CORPUS

FAULTS = CORPUS / "faults"
INDEX: Mapping[str, Mapping[str, str]] = json.loads((FAULTS / "index.json").read_text()) if FAULTS.exists() else {}


@pytest.mark.skipif(not INDEX, reason=f"no corpus at {CORPUS} (ONNXTFL_CORPUS)")
@pytest.mark.parametrize("name", sorted(INDEX))
def test_the_verdict_on_a_wrong_model(name: str) -> None:
    report = check(FAULTS / f"{name}.onnx", FAULTS / f"{name}.tflite")
    assert report.status == INDEX[name]["verdict"], str(report)
    assert report.reason  # it says why, in JSON too
    assert report.to_json()["status"] == report.status
