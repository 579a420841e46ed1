"""The check of decoders whose routers select experts: rounding swaps experts with nearly equal scores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from onnxtfl import check, llm
from onnxtfl.checking.evidence import Verdict
from onnxtfl.errors import CheckFailedError
from onnxtfl.llm import real_products
from onnxtfl.llm.reference import Growing
from tests.harness.litert import Array
from tests.unit.tiny_decoders import TOKENS, WIDTH, decoder, node

pytest.importorskip("ai_edge_litert")
EXACT = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)
NOISE = np.random.default_rng(1).standard_normal((8, 16)).astype(np.float32)
HIDDEN, EXPERTS, LAYERS = 32, 4, 2


def _verdict(got: Array, copy: Array = EXACT) -> Verdict:
    return real_products.judged(EXACT, copy, got, 0.1).verdict


def test_few_steps_may_be_far_if_a_copy_without_rounding_is_exact() -> None:
    got = EXACT + 0.03 * NOISE
    got[3] += NOISE[3]
    assert _verdict(got) is Verdict.ACCEPT
    assert _verdict(got, EXACT + 0.03 * NOISE) is Verdict.INCONCLUSIVE
    got[:3] += NOISE[:3]
    assert _verdict(got) is Verdict.INCONCLUSIVE
    assert _verdict(EXACT + 0.2 * NOISE) is Verdict.INCONCLUSIVE


def _with_experts(bits: int, seed: int = 0) -> onnx.ModelProto:
    """A decoder with layers of experts, whose weights have a scale for each block of 32."""
    model, rng = decoder(), np.random.default_rng(seed)
    graph = model.graph
    del graph.node[-1]
    constants: dict[str, Array] = {
        "wide": rng.normal(size=(WIDTH, HIDDEN)) / WIDTH**0.5,
        "rows": np.array([-1, EXPERTS]),
    }
    constants["head"] = rng.normal(size=(HIDDEN, len(TOKENS))) / HIDDEN**0.5
    graph.node.append(node("MatMul", ["y", "wide"], "h0"))
    for k in range(LAYERS):
        constants[f"router{k}"] = rng.normal(size=(HIDDEN, EXPERTS))
        for name, rows in (("up", 2 * HIDDEN), ("down", HIDDEN)):
            shape = (EXPERTS, rows, HIDDEN * bits // 8)
            constants[f"{name}{k}"] = rng.integers(0, 256, shape).astype(np.uint8)
            constants[f"{name}_scales{k}"] = (0.5 + rng.random((EXPERTS, rows, 1))) * 2 ** (1.0 - bits) / HIDDEN**0.5
        given = [f"h{k}", f"flat{k}", f"up{k}", f"up_scales{k}", "", f"down{k}", f"down_scales{k}"]
        how = {"k": 1, "expert_weight_bits": bits, "block_size": 32, "activation_type": "swiglu", "swiglu_fusion": 1}
        graph.node.extend(
            [
                node("MatMul", [f"h{k}", f"router{k}"], f"scores{k}"),
                node("Reshape", [f"scores{k}", "rows"], f"flat{k}"),
                node("QMoE", given, f"experts{k}", domain="com.microsoft", **how),
                node("Add", [f"h{k}", f"experts{k}"], f"h{k + 1}"),
            ]
        )
    graph.node.append(node("MatMul", [f"h{LAYERS}", "head"], "logits"))
    for name, array in constants.items():
        stored = array.astype(np.float32) if array.dtype == np.float64 else array
        graph.initializer.append(numpy_helper.from_array(stored, name))
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model


@pytest.mark.parametrize(("bits", "seed"), [(4, 5), (8, 4)])
def test_swapped_experts_are_explained(bits: int, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, how = tmp_path / "model.onnx", {"prefill": [4, 16], "context": 64}
    onnx.save(_with_experts(bits, seed), path)
    done = llm.convert(path, tmp_path / "m.tflite", **how)
    assert done.check is not None
    reasons = [one.acceptance for one in done.check.outputs if one.accepted_by == real_products.CRITERION]
    assert reasons and all("with products in float, all are within" in reason for reason in reasons)
    monkeypatch.setattr(Growing, "with_real_products", None)
    with pytest.raises(CheckFailedError):
        llm.convert(path, tmp_path / "another.tflite", **how)


def test_another_model_is_not_explained(tmp_path: Path) -> None:
    onnx.save(_with_experts(4, 5), tmp_path / "model.onnx")
    llm.convert(tmp_path / "model.onnx", tmp_path / "m.tflite", prefill=[4, 16], context=64, check=False)
    onnx.save(_with_experts(4, 6), tmp_path / "model.onnx")
    assert check(tmp_path / "model.onnx", tmp_path / "m.tflite").status == "failed"
