"""Targets: what they refuse and why, op versions, and the probe that measures them."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from tools.probe.case import Case, evaluated, int32
from tools.probe.measure import Finding, Measurer
from tools.probe.quantized import quantized as quantized_cases
from tools.probe.runtime import Runtime
from tools.probe.summary import summarize
from tools.probe.tables import rewrite

from onnxtfl.errors import UsageError
from onnxtfl.ir.graph import Value, constant
from onnxtfl.ir.quantization import Quantization, dequantize
from onnxtfl.ir.types import DType, SequenceType, TensorType, tensor
from onnxtfl.rewriting.registry import Form
from onnxtfl.targets import Refusal
from onnxtfl.targets.forms import intersect, read_form
from onnxtfl.targets.instance import OpInstance
from onnxtfl.targets.onnx import OnnxTarget
from onnxtfl.targets.table import OpEntry, parse_signature
from onnxtfl.targets.tflite import TfliteTarget, fused_activation_of

LATEST = "litert-2.3"


def value(dtype: str, *shape: int | str) -> Value:
    return Value(tensor(dtype, *shape))


def quantized(storage: str, *shape: int, axis: int | None = None) -> Value:
    count = 1 if axis is None else shape[axis]
    parameters = Quantization(storage, (0.5,) * count, (0,) * count, axis)
    return Value(TensorType(DType.FLOAT32, shape, parameters))


def refusal(
    op: str,
    operands: Sequence[Value | None],
    results: Sequence[Value],
    options: Mapping[str, Any] | None = None,
    runtime: str = "2.14",
) -> Refusal | None:
    return TfliteTarget(runtime).refusal(Form(op, tuple(operands), options or {}), results)


def version(op: str, operands: Sequence[Value | None], results: Sequence[Value], **options: Any) -> int:
    return TfliteTarget().op_version(Form(op, tuple(operands), options), results)


def test_what_kernels_take_is_taken() -> None:
    x = value("float32", 2, 3)
    assert refusal("ADD", [x, x], [x]) is None
    assert refusal("RELU", [x], [x]) is None


def test_a_wrong_element_type_names_the_operands_and_what_would_do() -> None:
    x = value("int8", 2, 3)
    found = refusal("ADD", [x, x], [x])
    assert found is not None and found.kind == "dtype"
    assert DType.INT32 in found.allowed and DType.INT8 not in found.allowed
    assert "lhs" in found.message and "int8" in found.message


def test_a_rank_that_only_broadcasting_forbids() -> None:
    x, row = value("float32", *[2] * 6), value("float32", 2)
    assert refusal("DIV", [x, x], [x]) is None
    found = refusal("DIV", [x, row], [x])
    assert found is not None and found.kind == "rank" and 4 <= found.limit < 6


def test_symbolic_dimensions_broadcast_where_they_differ() -> None:
    x = value("float32", "n", 2, 2, 2, 2, 2)
    other = value("float32", "m", 2, 2, 2, 2, 2)
    assert refusal("DIV", [x, x], [x]) is None
    assert refusal("DIV", [x, other], [x]) is not None


def test_an_op_without_a_kernel() -> None:
    x = value("float32", 2)
    for op in ("STABLEHLO_TANH", "NO_SUCH_OP"):
        found = refusal(op, [x], [x])
        assert found is not None and found.kind == "op"


def test_quantized_tensors_are_told_apart() -> None:
    x = quantized("int4", 2, 3)
    found = refusal("ADD", [x, x], [x])
    assert found is not None and found.kind == "quantization"


def test_a_later_runtime_takes_more() -> None:
    x = value("float32", *[2] * 7)
    perm = constant(np.arange(7, dtype=np.int32))
    older = refusal("TRANSPOSE", [x, perm], [x])
    assert older is not None and older.kind == "rank"
    assert refusal("TRANSPOSE", [x, perm], [x], runtime=LATEST) is None


def test_an_op_that_a_runtime_does_not_have_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxtfl.targets.tflite.OLDEST", (1, 5))
    x = value("float32", 2)
    found = refusal("GELU", [x], [x], {"approximate": False}, runtime="2.8")
    assert found is not None and found.kind == "op"
    assert refusal("GELU", [x], [x], {"approximate": False}) is None


@pytest.mark.parametrize("name", ["latest", "99", "2.5", "litert-9.0", "2.99"])
def test_a_runtime_that_is_none(name: str) -> None:
    with pytest.raises(UsageError, match=r"cannot be .*; use 2\.14 to 2\.23 .*, or litert-1.0 to litert-2.3"):
        TfliteTarget(name)


@pytest.mark.parametrize(
    ("op", "dtype", "expected"),
    [("ADD", "float32", 1), ("ADD", "int64", 4), ("ADD", "int16", 5), ("MUL", "int64", 5), ("NEG", "float32", 1)],
)
def test_versions_by_element_type(op: str, dtype: str, expected: int) -> None:
    x = value(dtype, 2)
    assert version(op, [x, x] if op != "NEG" else [x], [x]) == expected


def test_versions_by_rank_and_broadcasting() -> None:
    five, row = value("float32", *[2] * 5), value("float32", 2)
    assert version("SUB", [five, five], [five]) == 1
    assert version("SUB", [five, row], [five]) == 3
    assert version("BROADCAST_TO", [row, constant(int32([2] * 5))], [five]) == 2
    assert version("SLICE", [five, constant(int32([0] * 5)), constant(int32([1] * 5))], [five]) == 5


def test_versions_by_options() -> None:
    x, w, b, y = value("float32", 2, 4), value("float32", 3, 4), value("float32", 3), value("float32", 2, 3)
    assert version("FULLY_CONNECTED", [x, w, b], [y]) == 1
    assert version("FULLY_CONNECTED", [x, w, b], [y], keep_num_dims=True) == 5
    assert version("FULLY_CONNECTED", [x, w], [y]) == 6
    assert version("FULLY_CONNECTED", [x, w, None], [y]) == 6
    image, size = value("float32", 1, 4, 4, 1), constant(int32([8, 8]))
    assert version("RESIZE_BILINEAR", [image, size], [image], half_pixel_centers=True) == 3
    assert version("RESIZE_BILINEAR", [image, size], [image], half_pixel_centers=False) == 1
    assert version("CUMSUM", [x, constant(int32(0))], [x], exclusive=True) == 1


def test_versions_of_convolutions() -> None:
    x, y = value("float32", 1, 8, 8, 4), value("float32", 1, 8, 8, 6)
    plain, grouped, bias = value("float32", 6, 3, 3, 4), value("float32", 6, 3, 3, 2), value("float32", 6)
    assert version("CONV_2D", [x, plain, bias], [y], fused_activation_function="RELU") == 1
    assert version("CONV_2D", [x, grouped, bias], [y]) == 6
    depthwise = value("float32", 1, 3, 3, 4)
    assert version("DEPTHWISE_CONV_2D", [x, depthwise], [x], dilation_w_factor=1, dilation_h_factor=1) == 1
    assert version("DEPTHWISE_CONV_2D", [x, depthwise], [x], dilation_w_factor=1, dilation_h_factor=2) == 2


def test_versions_of_quantized_ops() -> None:
    x, w = quantized("int8", 1, 8, 8, 4), quantized("int8", 6, 3, 3, 4, axis=0)
    assert version("CONV_2D", [x, w], [quantized("int8", 1, 8, 8, 6)]) == 3
    assert version("CONV_2D", [value("float32", 1, 8, 8, 4), w], [value("float32", 1, 8, 8, 6)]) == 5
    assert version("DEQUANTIZE", [x], [value("float32", 1, 8, 8, 4)]) == 2
    assert version("DEQUANTIZE", [w], [value("float32", 6, 3, 3, 4)]) == 5
    small = quantized("int16", 2)
    assert version("ADD", [small, small], [small], pot_scale_int16=False) == 3


def test_activations_that_fuse() -> None:
    assert fused_activation_of("RELU6") == "RELU6"
    assert fused_activation_of("TANH") is None
    assert fused_activation_of("not an op") is None


def test_the_table_is_read_fast() -> None:
    from onnxtfl.schemas import sections

    from onnxtfl.rewriting import readings
    from onnxtfl.targets import table

    for cached in (sections.texts, sections.names, readings.reading_of, table.entry):
        cached.cache_clear()
    started = time.perf_counter()
    for op in ("ADD", "CONV_2D", "RESHAPE", "SOFTMAX"):
        table.entry(op)
    assert time.perf_counter() - started < 0.02


def test_onnx_opsets() -> None:
    x, i = value("float32", 2), value("int64", 2)
    old, new = OnnxTarget(13), OnnxTarget(21)
    assert new.refusal(Form("Gelu", (x,), {"approximate": "tanh"}), [x]) is None
    missing = old.refusal(Form("Gelu", (x,)), [x])
    assert missing is not None and missing.kind == "op"
    add = Form("Add", (x, x))
    assert new.op_version(add, [x]) == 14 and old.op_version(add, [x]) == 13
    wrong = new.refusal(Form("Add", (value("bool", 2),) * 2), [value("bool", 2)])
    assert wrong is not None and wrong.kind == "dtype" and DType.FLOAT32 in wrong.allowed
    assert new.refusal(Form("Clip", (x, None, value("float32"))), [x]) is None
    assert new.refusal(Form("Relu", (x,), {"slope": 1}), [x]) is not None
    assert new.refusal(Form("Gather", (x, i), {"axis": 0}), [x]) is None
    sequence = Value(SequenceType(tensor("float32", 2)))
    assert new.refusal(Form("SequenceAt", (sequence, value("int64"))), [x]) is None


def test_the_probe_tells_right_from_wrong_and_refused() -> None:
    x = np.array([-1.5, 2.5], np.float32)
    cases = [
        Case("ABS", {"T": "float32"}, [x], [np.abs(x)]),
        Case("NEG", {"T": "float32"}, [x], [np.abs(x)]),
        Case("ABS", {"T": "float64"}, [x.astype(np.float64)], [np.abs(x.astype(np.float64))]),
    ]
    runtime = Runtime(sys.executable)
    try:
        right, wrong, refused = Measurer({"litert": runtime}).measure(cases)
    finally:
        runtime.close()
    assert set(right.verdicts.values()) == {"correct"}
    assert set(wrong.verdicts.values()) == {"wrong"}
    assert set(refused.verdicts.values()) == {"refused"}


def test_the_probe_outlives_a_crash(tmp_path: Any) -> None:
    runtime = Runtime(sys.executable)
    try:
        x = np.ones((2, 2), np.int8)
        assert runtime.run("builtin", Case("ADD", {"T": "int8"}, [x, x], [x]).model(), [x, x])[0] == "abort"
        y = np.ones(2, np.float32)
        assert runtime.run("builtin", Case("ABS", {"T": "float32"}, [y], [y]).model(), [y])[0] == "ran"
    finally:
        runtime.close()


def _finding(dtype: str, rank: int, mode: str, ok: bool) -> Finding:
    places = [f"{r} {k}" for r in ("2.14", "litert") for k in ("xnnpack", "builtin", "reference")]
    return Finding({"T": dtype}, {}, rank, mode, dict.fromkeys(places, "correct" if ok else "wrong"))


def test_findings_become_forms() -> None:
    findings = [_finding(d, r, "equal", True) for d in ("float32", "int32") for r in range(5)]
    findings += [_finding(d, r, "broadcast", r < 3) for d in ("float32", "int32") for r in range(1, 5)]
    text = summarize(findings)
    assert 'both = [{ T = "float32 int32", rank = 4, broadcast = 2 }]' in text
    assert "wrong" in text


def test_tables_are_rewritten_in_place(tmp_path: Any) -> None:
    file = tmp_path / "ops.toml"
    file.write_text("# head\n\n[A]\ncode = 0\n\n[A.kernels]\nboth = []\n\n[B]\ncode = 1\n", encoding="utf-8")
    rewrite(file, {"A": "both = [1]\n", "B": "both = [2]\n"})
    once = file.read_text(encoding="utf-8")
    assert once.index("both = [1]") < once.index("[B]") < once.index("both = [2]") and "both = []" not in once
    rewrite(file, {"A": "both = [1]\n", "B": "both = [2]\n"})
    assert file.read_text(encoding="utf-8") == once


@pytest.mark.skipif(
    not os.environ.get("ONNXTFL_TFLITE_RUNTIME_PYTHON"), reason="no Python with tflite-runtime is named"
)
def test_the_older_runtime_answers() -> None:
    python = os.environ["ONNXTFL_TFLITE_RUNTIME_PYTHON"]
    assert shutil.which(python)
    runtime = Runtime(python)
    x = np.ones(2, np.float32)
    try:
        assert runtime.run("reference", Case("ABS", {"T": "float32"}, [x], [x]).model(), [x])[0] == "ran"
    finally:
        runtime.close()


def _entry(signature: str, **fields: Any) -> OpEntry:
    operands, results = parse_signature(signature)
    more: dict[str, Any] = {
        "versions": (),
        "fuses_as": None,
        "activations": frozenset(),
        "matrix_rank": 0,
        "symmetric": "",
        "reads": "real",
        "scales": (),
        "fixed_results": {},
        "kernels": {},
        **fields,
    }
    return OpEntry(name="OP", operands=operands, results=results, **more)


def _violations(form: Mapping[str, Any], entry: OpEntry, operands: Sequence[Value | None], **options: Any) -> list[str]:
    result = next(v for v in operands if v is not None)
    return [m.kind for m in read_form(form).violations(OpInstance(entry, operands, [result], options))]


def test_forms_that_want_constants_operands_and_options() -> None:
    entry = _entry("x:T axes:I bias?:B -> y:T")
    x, axes, fixed = value("float32", 2), value("int32", 1), constant(int32([0]))
    assert _violations({"T": "float32", "constant": "axes"}, entry, [x, fixed]) == []
    assert _violations({"T": "float32", "constant": "axes"}, entry, [x, axes]) == ["other"]
    assert _violations({"T": "float32", "required": "bias"}, entry, [x, axes, None]) == ["other"]
    assert _violations({"T": "float32", "required": "bias"}, entry, [x, axes, x]) == []
    assert _violations({"T": "float32", "keep": [True]}, entry, [x, axes], keep=True) == []
    assert _violations({"T": "float32", "keep": [True]}, entry, [x, axes], keep=False) == ["other"]


def test_forms_with_ranks() -> None:
    entry = _entry("x:T y:T -> z:T")
    four, one, scalar = value("float32", 2, 2, 2, 2), value("float32", 2), value("float32")
    form = {"T": "float32", "rank": "1-4", "broadcast": 3, "scalar": 4}
    assert _violations(form, entry, [four, four]) == []
    assert _violations(form, entry, [four, one]) == ["rank"]
    assert _violations(form, entry, [four, scalar]) == []
    assert _violations(form, entry, [scalar, scalar]) == ["shape"]
    batched = _entry("x:T y:T -> z:T", matrix_rank=2)
    assert (
        _violations({"T": "float32", "broadcast": 2}, batched, [value("float32", 5, 2, 3), value("float32", 5, 3, 4)])
        == []
    )


def test_forms_of_quantized_tensors() -> None:
    entry = _entry("x:T y:T -> z:T", fixed_results={"qint8": (0.5, 0)})
    a, other = quantized("int8", 2), Value(TensorType(DType.FLOAT32, (2,), Quantization("int8", (0.25,), (3,))))
    same = {"T": "qint8", "quantization": "same"}
    assert _violations(same, entry, [a, a]) == []
    assert _violations(same, entry, [a, other]) == ["quantization"]
    assert _violations({"T": "qint8"}, entry, [a, other]) == []
    fixed = {"T": "qint8", "quantization": "fixed"}
    assert _violations(fixed, entry, [a, other]) == []
    assert _violations(fixed, entry, [other, a]) == ["quantization"]
    rows = quantized("int8", 3, 2, axis=0)
    assert _violations({"T": "qint8"}, entry, [rows, rows]) == ["quantization"]
    assert _violations({"T": "qint8", "per_axis": "T"}, entry, [rows, rows]) == []


def test_two_runtimes_take_what_each_takes() -> None:
    first = read_form({"T": "float32 int32", "rank": 8, "broadcast": 6, "constant": "axes"})
    second = read_form({"T": "float32 int8", "rank": "2-5", "broadcast": 4, "required": "bias", "keep": True})
    both = intersect(first, second)
    assert both is not None
    assert both.types == {"T": {"float32"}} and both.ranks == {"T": (2, 5)} and both.broadcast == 4
    assert both.constant == {"axes"} and both.required == {"bias"} and both.options == {"keep": {True}}
    assert intersect(first, read_form({"T": "bool"})) is None


def test_quantized_cases_are_right_for_the_stored_numbers() -> None:
    x = np.linspace(-2, 2, 8, dtype=np.float32).reshape(2, 4)
    case = evaluated("RELU", {"T": "float32"}, [x], lambda v: [np.maximum(v, 0)])
    made = list(quantized_cases([case]))
    assert {c.types["T"] for c in made} == {"qint8", "quint8", "qint16"}
    for c in made:
        before, after = c.quantizations["operands", 0], c.quantizations["results", 0]
        right = np.maximum(dequantize(c.operands[0], before), 0)
        assert np.allclose(dequantize(c.expected[0], after), right, atol=after.scales[0])


def test_findings_of_constants_count_where_they_are_computed_too() -> None:
    places = [f"{r} {k}" for r in ("2.14", "litert") for k in ("xnnpack", "builtin", "reference")]
    fixed = {"constant": "axes"}
    findings = [Finding({"T": "float32"}, {}, rank, "equal", dict.fromkeys(places, "correct")) for rank in range(1, 9)]
    for rank in range(1, 9):
        verdicts = {p: "refused" if rank > 6 and "xnnpack" in p else "correct" for p in places}
        findings.append(Finding({"T": "float32"}, fixed, rank, "equal", verdicts))
    assert summarize(findings).startswith('both = [{ T = "float32", rank = 6 }]')
