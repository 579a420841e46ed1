"""com.microsoft CropAndResize: what ONNX Runtime's kernel computes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.test_microsoft_ops import compare, made, normal

BOXES = np.array([[0, 0, 1, 1], [0.1, 0.3, 0.9, 0.2], [-0.4, 0.2, 0.7, 1.3], [0.5, 0.5, 0.5, 0.5]], np.float32)
WHICH = np.array([0, 1, 1, 0], np.int32)


@pytest.mark.parametrize("size", [(3, 4), (1, 1), (7, 1), (2, 9)])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_crops(mode: str, size: tuple[int, int]) -> None:
    inputs = {"x": normal(2, 3, 5, 6), "boxes": BOXES, "which": WHICH}
    model = made("CropAndResize", inputs, 1, {"size": np.array(size, np.int32)}, mode=mode, extrapolation_value=-2.5)
    compare(model, inputs)


def test_crops_of_any_number_of_boxes() -> None:
    inputs = {"boxes": BOXES, "which": WHICH}
    constants = {"x": normal(2, 1, 1, 4), "size": np.array([2, 3], np.int32)}
    model = made("CropAndResize", inputs, 1, constants, operands="x,boxes,which,size", open_=True)
    compare(model, inputs)
