"""Conversions in several threads of one process, compared with the same conversions in one thread."""

from __future__ import annotations

import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from onnx import TensorProto, helper

from onnxtfl import pipeline
from onnxtfl.errors import OnnxtflError
from onnxtfl.options import Options
from tests.fuzz.graphs_trial import drawn
from tests.models.corpus import CORPUS
from tests.unit.tiny_models import onnx_model

ONNX = ("activations_zoo", "bert_tiny", "dscnn_kws", "gnn_scatter", "if_script", "indexing_ops", "nonzero_masking")
TFLITE = ("*mobilenet*float*.tflite", "*face*.tflite")
COUNT = 20
THREADS = 4
_TENSORS = 16


def models() -> list[bytes]:
    """At least `COUNT` models: with data-dependent sizes, of the corpus, and random small ones."""
    found = [(CORPUS / "onnx" / name / "model.onnx") for name in ONNX]
    found += [path for pattern in TFLITE for path in sorted((CORPUS / "tflite").rglob(pattern))[:2]]
    large = [path.read_bytes() for path in found if path.exists()]
    random = [drawn(seed).model().SerializeToString() for seed in range(COUNT - THREADS)]
    return [*[nonzero_model()] * THREADS, *large, *random]


def nonzero_model(count: int = _TENSORS) -> bytes:
    """NonZero of `count` tensors, concatenated in pairs: unnamed symbols in sums, whose order depends on their ids."""
    nodes, outputs = [], []
    for i in range(count):
        nodes += [
            helper.make_node("NonZero", [f"x{i}"], [f"p{i}"]),
            helper.make_node("Transpose", [f"p{i}"], [f"r{i}"]),
        ]
        if i:
            nodes.append(helper.make_node("Concat", [f"r{i - 1}", f"r{i - 1}", f"r{i}"], [f"y{i}"], axis=0))
            outputs.append((f"y{i}", TensorProto.INT64, [None, None]))
    inputs = [(f"x{i}", TensorProto.FLOAT, ["n", 3]) for i in range(count)]
    return onnx_model(nodes, inputs, outputs).SerializeToString()


def convert(model: bytes, options: Options | None = None) -> bytes:
    """The model converted to the other format, or the text of the error."""
    out = io.BytesIO()
    step = pipeline.tflite_to_onnx if model[4:8] == b"TFL3" else pipeline.onnx_to_tflite
    try:
        step(model, out, options or Options())
    except OnnxtflError as error:
        return str(error).encode()
    return out.getvalue()


def round_trip(model: bytes, options: Options | None = None) -> tuple[bytes, bytes]:
    """`model` converted to the other format, and that converted back."""
    once = convert(model, options)
    return once, convert(once, options)


def compare(_: object = None) -> list[int]:
    """The indices of the models whose results in several threads (which run first) and in one thread differ."""
    sources = models()
    with ThreadPoolExecutor(THREADS) as pool:
        threaded = list(pool.map(round_trip, sources))
    return _differences(threaded, [round_trip(model) for model in sources])


def nested(_: object = None) -> list[int]:
    """The indices of the models whose results differ when another conversion runs within each step."""
    sources, inner = [nonzero_model(), *models()[-4:]], nonzero_model(3)

    def on_progress(stage: str) -> None:
        convert(inner)

    options = Options(on_progress=on_progress)
    return _differences([round_trip(m, options) for m in sources], [round_trip(m) for m in sources])


def _differences(a: Sequence[object], b: Sequence[object]) -> list[int]:
    return [i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y]
