"""Conversions in several threads of one process, compared with the same conversions one by one."""

from __future__ import annotations

import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from onnx import TensorProto, helper

from onnxtfl import pipeline
from onnxtfl.errors import OnnxtflError
from onnxtfl.pipeline import Options
from tests.fuzz.graphs import random_model
from tests.models.corpus import CORPUS
from tests.unit.tiny_models import onnx_model

ONNX = ("activations_zoo", "bert_tiny", "dscnn_kws", "gnn_scatter", "if_script", "indexing_ops", "nonzero_masking")
TFLITE = ("*mobilenet*float*.tflite", "*face*.tflite")
COUNT = 20
THREADS = 4
_TENSORS = 16


def models() -> list[bytes]:
    """At least `COUNT` models: some with sizes that only a run finds out, small ones, and those of the corpus."""
    found = [(CORPUS / "onnx" / name / "model.onnx") for name in ONNX]
    found += [path for pattern in TFLITE for path in sorted((CORPUS / "tflite").rglob(pattern))[:2]]
    whole = [path.read_bytes() for path in found if path.exists()]
    random = [random_model(seed).SerializeToString() for seed in range(COUNT - THREADS)]
    return [*[counting_model()] * THREADS, *whole, *random]


def counting_model() -> bytes:
    """Where many tensors are not 0, joined in pairs: sizes without names, in sums whose order shows their numbers."""
    nodes, outputs = [], []
    for i in range(_TENSORS):
        nodes += [
            helper.make_node("NonZero", [f"x{i}"], [f"p{i}"]),
            helper.make_node("Transpose", [f"p{i}"], [f"r{i}"]),
        ]
        if i:
            nodes.append(helper.make_node("Concat", [f"r{i - 1}", f"r{i - 1}", f"r{i}"], [f"y{i}"], axis=0))
            outputs.append((f"y{i}", TensorProto.INT64, [None, None]))
    inputs = [(f"x{i}", TensorProto.FLOAT, ["n", 3]) for i in range(_TENSORS)]
    return onnx_model(nodes, inputs, outputs).SerializeToString()


def convert(model: bytes, options: Options | None = None) -> bytes:
    """The converted model, in the other format; the message where it cannot be converted."""
    out = io.BytesIO()
    step = pipeline.tflite_to_onnx if model[4:8] == b"TFL3" else pipeline.onnx_to_tflite
    try:
        step(model, out, options or Options())
    except OnnxtflError as error:
        return str(error).encode()
    return out.getvalue()


def there_and_back(model: bytes, options: Options | None = None) -> tuple[bytes, bytes]:
    """The conversion of `model`, and that of the result."""
    once = convert(model, options)
    return once, convert(once, options)


def compare(_: object = None) -> list[int]:
    """The models whose bytes differ between threads, which run first, and one by one."""
    given = models()
    with ThreadPoolExecutor(THREADS) as pool:
        threaded = list(pool.map(there_and_back, given))
    return _differences(threaded, [there_and_back(model) for model in given])


def nested(_: object = None) -> list[int]:
    """The models whose bytes differ where another conversion runs inside each step."""
    given, inner = [counting_model(), *models()[-4:]], counting_model()

    def on_progress(stage: str) -> None:
        convert(inner)

    options = Options(on_progress=on_progress)
    return _differences([there_and_back(m, options) for m in given], [there_and_back(m) for m in given])


def _differences(a: Sequence[object], b: Sequence[object]) -> list[int]:
    return [i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y]
