"""Rewrites that only save time: they are made where the measured costs say so, and the report has their gains."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import onnxtfl
from onnxtfl.formats.tflite.outline import file_ops
from onnxtfl.ir.budget import MACHINES
from onnxtfl.passes.canonical.taps import TAPS
from onnxtfl.passes.gains import Gains
from onnxtfl.targets.tflite import TfliteTarget
from tests.passes.helpers import CONV2D, op_counts, transformed


def depthwise(taps: int) -> str:
    """A depthwise convolution of `taps` x `taps` positions."""
    numbers = ", ".join(["1.0"] * (32 * taps * taps))
    return f"""graph main(%x: tensor<1x32x28x28xfloat32>) -> (%y) {{
      %k = constant tensor<32x1x{taps}x{taps}xfloat32> [{numbers}]
      %y = Conv(%x, %k) {{{CONV2D}, feature_group_count = 32}}
    }}"""


def test_a_rewrite_that_pays_is_made_and_recorded() -> None:
    judged = list[tuple[str, bool]]()
    gains = Gains(TfliteTarget())

    def pays(rule: str, before: object, after: object) -> bool:
        judged.append((rule, gains.pays(rule, before, after)))  # type: ignore[arg-type]
        return judged[-1][1]

    counts = op_counts(transformed(depthwise(7), lambda graph: TAPS.apply(graph, pays)))
    assert counts["Conv"] == 3 and judged == [("taps.few_taps", True)]


def test_a_rewrite_that_does_not_pay_leaves_the_graph() -> None:
    counts = op_counts(transformed(depthwise(7), lambda graph: TAPS.apply(graph, lambda *_: False)))
    assert counts == {"Conv": 1}


def test_the_time_of_nodes_is_known_for_each_kind_of_machine() -> None:
    times = list[tuple[float, ...]]()

    def timed(graph: object) -> None:
        times.append(Gains(TfliteTarget()).time(graph.nodes))  # type: ignore[attr-defined]

    transformed(depthwise(5), timed)
    transformed(depthwise(7), timed)
    assert len(times[0]) == len(MACHINES)
    assert all(large > 5 * small for small, large in zip(times[0], times[-1], strict=True)), times


def recurrent(steps: int) -> bytes:
    """A concatenation of many parts, between other ops."""
    inputs = [helper.make_tensor_value_info(f"x{i}", onnx.TensorProto.FLOAT, [1, 64]) for i in range(steps)]
    output = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [steps, 64])
    nodes = [helper.make_node("Tanh", [v.name], [f"t{i}"]) for i, v in enumerate(inputs)]
    nodes.append(helper.make_node("Concat", [f"t{i}" for i in range(steps)], ["c"], axis=0))
    nodes.append(helper.make_node("Tanh", ["c"], ["y"]))
    graph = helper.make_graph(nodes, "g", inputs, [output])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


@pytest.mark.parametrize(("steps", "count"), [(5, 1), (9, 2), (25, 6)])
def test_many_parts_are_joined_in_groups_that_the_delegate_takes(steps: int, count: int) -> None:
    done = onnxtfl.onnx_to_tflite(recurrent(steps), check="require")
    assert done.data is not None
    assert [op.op for op in file_ops(done.data)].count("CONCATENATION") == count


def test_the_report_has_the_gains(tmp_path: Path) -> None:
    done = onnxtfl.onnx_to_tflite(recurrent(25), tmp_path / "m.tflite", check=False)
    (gain,) = done.report.gains
    assert gain.count == 1 and gain.rule.startswith("concatenation.")
    assert set(gain.before) == set(gain.after) == set(MACHINES)
    assert gain.rule in done.table(verbose=True) and gain.rule not in done.table()
    onnxtfl.write_report(done, tmp_path / "report.json")
    assert json.loads((tmp_path / "report.json").read_text())["gains"][0]["rule"] == gain.rule


def lp_pool() -> bytes:
    """Sign(x) * Relu(Abs(x)), as exported Lp pools end."""
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 8]) for name in "xy")
    ops = (
        ("Sign", ["x"], "s"),
        ("Abs", ["x"], "a"),
        ("Relu", ["a"], "r"),
        ("Mul", ["s", "r"], "m"),
        ("Exp", ["m"], "y"),
    )
    graph = helper.make_graph([helper.make_node(op, given, [made]) for op, given, made in ops], "g", [x], [y])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


def test_a_sign_times_a_magnitude_is_the_value() -> None:
    done = onnxtfl.onnx_to_tflite(lp_pool(), check="require")
    assert done.data is not None and [op.op for op in file_ops(done.data)] == ["EXP"]


def log_softmax(classes: int) -> bytes:
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4, classes]) for name in "xy")
    nodes = [helper.make_node("LogSoftmax", ["x"], ["y"], axis=1)]
    made = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    return bytes(made.SerializeToString())


@pytest.mark.parametrize(("classes", "ops"), [(4, 1), (4096, 6)])
def test_the_kernels_of_the_delegate_are_used_where_they_are_faster(classes: int, ops: int) -> None:
    x = np.random.default_rng(0).standard_normal((4, classes)).astype(np.float32)
    done = onnxtfl.onnx_to_tflite(log_softmax(classes), check="require")
    assert done.data is not None and len(file_ops(done.data)) == ops
    (found,) = onnxtfl.run(done.data, {"x": x}).values()
    assert np.isfinite(np.asarray(found)).all()
