"""The greater and the smaller of two elements: Max, Min."""

from __future__ import annotations

from functools import partial

from onnxtfl.build.operands import accumulated, with_bools
from onnxtfl.build.rows import row
from onnxtfl.ir import ops
from onnxtfl.rewriting.registry import lift_onnx, lift_tfl

row(ops.Max, onnx="Max", lifts=False)
row(ops.Max, tfl="MAXIMUM")
row(ops.Min, onnx="Min", lifts=False)
row(ops.Min, tfl="MINIMUM")
lift_tfl("STABLEHLO_MAXIMUM")(partial(with_bools, op=ops.Max, of_bools=ops.Or))
lift_tfl("STABLEHLO_MINIMUM")(partial(with_bools, op=ops.Min, of_bools=ops.And))
lift_onnx("Max", since=(1, 6, 8, 12, 13))(partial(accumulated, op=ops.Max))
lift_onnx("Min", since=(1, 6, 8, 12, 13))(partial(accumulated, op=ops.Min))
