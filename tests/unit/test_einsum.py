"""The ops of the family einsum: what they mean, how they are lifted, and what is written for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from onnxtfl.ir.interpret import run
from onnxtfl.options import Options
from onnxtfl.pipeline import inspect
from tests.unit.lifting import floats
from tests.unit.tiny_models import onnx_model


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bij,bjk->bik", ((2, 3, 4), (2, 4, 5))),
        ("...ij,jk->...ik", ((2, 3, 4), (4, 5))),
        ("bxi,oij,byj->boxy", ((2, 3, 4), (5, 4, 6), (2, 7, 6))),
        ("...ii->...i", ((2, 3, 3),)),
        ("ij,ij", ((3, 4), (3, 4))),
        ("i,j->ji", ((3,), (4,))),
    ],
)
def test_einsum_is_numpys(equation: str, shapes: Any) -> None:
    arrays = [floats(*shape, seed=i) for i, shape in enumerate(shapes)]
    specs = [(f"x{i}", TensorProto.FLOAT, shape) for i, shape in enumerate(shapes)]
    wanted = np.einsum(equation, *arrays)
    node = helper.make_node("Einsum", [name for name, _, _ in specs], ["y"], equation=equation)
    model = onnx_model([node], specs, [("y", TensorProto.FLOAT, wanted.shape)])
    (found,) = run(inspect(model.SerializeToString(), "lifted", Options()), arrays)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
