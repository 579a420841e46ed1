"""Maps as outputs: the tensor of their values, in the order in which ONNX Runtime sorts the keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

from onnxtfl.errors import InvalidModelError
from onnxtfl.ir.interpret import run
from onnxtfl.options import Options
from onnxtfl.pipeline import inspect
from tests.unit.ml_models import features, ml_model

LABELS: list[dict[str, Any]] = [{"classlabels_int64s": [7, 2, 5]}, {"classlabels_strings": ["b", "ü", "a"]}]


@pytest.mark.parametrize("labels", LABELS, ids=["integers", "strings"])
def test_zip_map_is_its_tensor(labels: dict[str, Any]) -> None:
    x = features(4, 3)
    model = ml_model("ZipMap", [x], version=1, **labels)
    maps = onnxruntime.InferenceSession(model).run(None, {"x0": x})[0]
    (found,) = run(inspect(model, "lifted", Options()), [x])
    assert found.tolist() == [[row[key] for key in sorted(row)] for row in maps]


def test_labels_that_occur_twice_are_an_error() -> None:
    model = ml_model("ZipMap", [features(4, 2)], version=1, classlabels_int64s=[3, 3])
    with pytest.raises(InvalidModelError, match="occur twice"):
        inspect(model, "lifted", Options())


def test_values_are_not_copied_where_the_labels_are_sorted() -> None:
    graph = inspect(ml_model("ZipMap", [features(4, 2)], version=1, classlabels_int64s=[3, 9]), "lifted", Options())
    assert [node.op.name for node in graph.nodes] == []
    assert np.shape(run(graph, [features(4, 2)])[0]) == (4, 2)
