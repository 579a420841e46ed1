"""Round trips of whole models: convert, run in LiteRT, compare, convert back, check, run in ONNX Runtime, compare.

The models are not part of the project; the environment variable ONNXTFL_CORPUS names their folder (default:
../shared/corpus).
"""

from __future__ import annotations

import json
import os
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.harness.child import peak_memory, stage
from tests.harness.compare import largest_error
from tests.harness.litert import Array, run_onnx, run_tflite
from tests.harness.runtimes import DEFAULT, run_tflite_on
from tests.harness.workers import ROOT

CORPUS = Path(os.environ.get("ONNXTFL_CORPUS", ROOT.parent / "shared" / "corpus"))
TIMEOUT = 300.0

FLOAT_MODELS = (
    "activations_zoo", "ast_audio", "audio_conv1d", "bert_tiny", "centernet_maxpool_nms", "densenet", "detr_slim",
    "diffusion_unet_dynamo", "dscnn_kws", "einsum_bilinear", "espcn_pixelshuffle", "mobilefacenet_l2norm",
    "mobilenet_v1", "multi_io_multitask", "patchtst_forecast", "pointnet", "repvgg_groupconv", "resize_align_corners",
    "resize_half_pixel_dynamo", "ssd_blazeface", "ssd_blazeface_dynamo", "tcn_wavenet", "torch_transformer_encoder",
    "vit_tiny", "whisper_encoder",
)  # fmt: skip
REAL_MODELS = ("mnist", "yolox_nano", "version-RFB-320", "version-slim-320_simplified")
RECURRENT = ("convlstm_unrolled", "gru_op9", "gru_uni1", "lstm_h128_dynamo", "lstm_seqfirst", "rnn_relu_bi")
PURE_CNNS = ("audio_conv1d", "densenet", "dscnn_kws", "mobilenet_v1", "repvgg_groupconv", "mnist")


@dataclass(frozen=True)
class Job:
    """A model to convert: ``path`` of the .onnx or .tflite file, ``options`` of the conversion, ``back``: whether to
    convert the result back, ``runtime`` to run it on (see `tests.harness.runtimes`)."""

    name: str
    path: Path
    options: Mapping[str, Any] = field(default_factory=dict)
    back: bool = True
    runtime: str = DEFAULT


@dataclass
class Report:
    """The results of a job; ``error`` and ``back_error`` are "" for a pass, largest errors relative to the tolerance.

    ``ops``: number of TFLite ops by name. ``four_d``: number of 4-D inputs and outputs of the source. ``size_ratio``:
    bytes over those of the source. ``nodes_ratio``: nodes of the ONNX model that was converted back over those of the
    source after ONNX Runtime's basic optimization.
    """

    name: str
    error: str = ""
    detail: str = ""
    seconds: float = 0.0
    largest_error: float = float("nan")
    ops: Counter[str] = field(default_factory=Counter)
    four_d: int = 0
    size_ratio: float = float("nan")
    fully_delegated: bool = False
    back_error: str = ""
    back_largest_error: float = float("nan")
    nodes_ratio: float = float("nan")
    peak_memory: int = 0

    @property
    def passed(self) -> bool:
        """Whether no step failed."""
        return not self.error and not self.back_error


def find(names: Sequence[str] = (), **options: Any) -> list[Job]:
    """Jobs for models of the corpus' onnx/ and onnx-real/ folders; by default the float ones that must pass."""
    return [Job(name, _path(name), options) for name in names or (*FLOAT_MODELS, *REAL_MODELS)]


def find_tflite(pattern: str = "", kinds: Sequence[str] = ("float",)) -> list[Job]:
    """Jobs for the .tflite files of the corpus whose path contains ``pattern`` and whose kind is one of ``kinds``."""
    index = json.loads((CORPUS / "tflite" / "index.json").read_text(encoding="utf-8"))
    found = [entry["file"] for entry in index if pattern in entry["file"] and entry["kind"] in kinds]
    return [Job(name, CORPUS / "tflite" / name) for name in found]


def names_of(folder: str) -> list[str]:
    """All model names of "onnx" or "onnx-real"."""
    if folder == "onnx":
        return sorted(path.parent.name for path in (CORPUS / "onnx").glob("*/model.onnx"))
    return sorted(path.stem for path in (CORPUS / "onnx-real").glob("*.onnx"))


def _path(name: str) -> Path:
    if "/" in name or name.endswith(".onnx"):
        return Path(name).resolve()
    whole = CORPUS / "onnx" / name / "model.onnx"
    return whole if whole.exists() else CORPUS / "onnx-real" / f"{name}.onnx"


class _FailedError(Exception):
    """A step failed; the message is for the report."""


def attempt(job: Job) -> Report:
    """Run a job, in the worker process."""
    if job.path.suffix == ".tflite":
        return _attempt_tflite(job)
    report = Report(job.name)
    source = job.path.read_bytes()
    inputs, expected = samples(job.path)
    data = _step(report, "error", lambda: _to_tflite(report, job, source, inputs, expected))
    report.peak_memory = peak_memory()
    if data is not None and job.back:
        _step(report, "back_error", lambda: _to_onnx(report, data, source, inputs, expected))
    return report


def _attempt_tflite(job: Job) -> Report:
    from tests.models.tflite_files import samples_of

    report = Report(job.name)
    data = job.path.read_bytes()
    stage("run source")
    inputs = samples_of(data)
    try:
        expected = dict(run_tflite(data, inputs))
    except (RuntimeError, ValueError) as error:
        report.error = f"LiteRT cannot run the source: {error}"
        return report
    report.ops = count_tflite_ops(data)
    _step(report, "back_error", lambda: _to_onnx(report, data, None, inputs, expected))
    return report


def _step(report: Report, kind: str, function: Callable[[], bytes | None]) -> bytes | None:
    """Run a step; the report gets the message of an exception in the field ``kind``."""
    from onnxtfl.errors import OnnxtflError

    try:
        return function()
    except (_FailedError, OnnxtflError) as error:
        setattr(report, kind, str(error))
        report.detail = traceback.format_exc()
    except Exception as error:
        setattr(report, kind, f"{type(error).__name__}: {error}")
        report.detail = traceback.format_exc()
    return None


def _to_tflite(
    report: Report, job: Job, source: bytes, inputs: Mapping[str, Array], expected: Mapping[str, Array]
) -> bytes:
    import onnxtfl

    stage("convert")
    started = time.perf_counter()
    data = _data(onnxtfl.onnx_to_tflite(job.path, check=False, **job.options))
    report.seconds = time.perf_counter() - started
    report.ops = count_tflite_ops(data)
    report.size_ratio = len(data) / len(source)
    report.four_d = sum(array.ndim == 4 for array in [*inputs.values(), *expected.values()])
    stage("run")
    channels_last = job.options.get("io_layout") == "channels-last"
    actual = run_tflite_on(job.runtime, data, _to_channels_last(data, inputs) if channels_last else inputs)
    report.largest_error = _compare(actual, expected, channels_last)
    stage("delegate")
    report.fully_delegated = fully_delegated(data)
    return data


def _to_onnx(
    report: Report, data: bytes, source: bytes | None, inputs: Mapping[str, Array], expected: Mapping[str, Array]
) -> None:
    import onnx

    import onnxtfl

    stage("convert back")
    result = _data(onnxtfl.tflite_to_onnx(data, check=False))
    stage("check back")
    model = onnx.load_from_string(result)
    onnx.checker.check_model(model, full_check=True)
    names = [value.name for value in model.graph.input]
    if source is not None and names != _input_names(source):
        raise _FailedError(f"the input names of the result are {names}")
    stage("run back")
    fed = dict(zip(names, inputs.values(), strict=True)) if source is None else inputs
    report.back_largest_error = _compare(list(run_onnx(result, fed).items()), expected, named=source is not None)
    if source is not None:
        stage("count nodes")
        report.nodes_ratio = count_onnx_nodes(result) / count_onnx_nodes(optimized(source))


def _data(conversion: Any) -> bytes:
    assert isinstance(conversion.data, bytes)
    return conversion.data


def _compare(
    actual: Sequence[tuple[str, Array]], expected: Mapping[str, Array], channels_last: bool = False, named: bool = True
) -> float:
    """The largest error; _FailedError where names differ or values are not within the tolerance."""
    if (named and [name for name, _ in actual] != list(expected)) or len(actual) != len(expected):
        raise _FailedError(f"outputs are {[name for name, _ in actual]}, expected {list(expected)}")
    worst = 0.0
    for (name, array), wanted in zip(actual, expected.values(), strict=True):
        found = _to_channels_first(array, wanted) if channels_last else array
        error = largest_error(found, wanted)
        if not error <= 1:
            raise _FailedError(f"output {name!r} is wrong: {_describe(found, wanted, error)}")
        worst = max(worst, error)
    return worst


def _describe(actual: Array, expected: Array, error: float) -> str:
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return f"{actual.dtype}{list(actual.shape)} instead of {expected.dtype}{list(expected.shape)}"
    return f"the error is {error:.3g} times the tolerance"


def _to_channels_last(model: bytes, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The inputs with those transposed to channels-last that the converted model has in this layout."""
    from ai_edge_litert.interpreter import Interpreter

    from tests.harness.litert import names_of as tensor_names

    interpreter = Interpreter(model_content=model, num_threads=1)
    details = interpreter.get_input_details()
    shapes = dict(
        zip(tensor_names(interpreter, details, "inputs"), (d["shape_signature"] for d in details), strict=True)
    )
    return {name: _fitted(array, list(shapes[name])) for name, array in inputs.items()}


def _fitted(array: Array, shape: Sequence[int]) -> Array:
    last = np.moveaxis(array, 1, -1) if array.ndim > 2 else array
    fits = all(wanted in (-1, size) for wanted, size in zip(shape, last.shape, strict=True))
    return np.ascontiguousarray(last) if fits else array


def _to_channels_first(array: Array, expected: Array) -> Array:
    first = np.moveaxis(array, -1, 1) if array.ndim > 2 else array
    return first if first.shape == expected.shape else array


def samples(path: Path) -> tuple[dict[str, Array], dict[str, Array]]:
    """Inputs and expected outputs by name, in the model's order: from io.npz, else random and of ONNX Runtime."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    known = path.parent / "io.npz"
    if known.exists():
        arrays = np.load(known)
        inputs = {v.name: arrays[f"in_{v.name}"] for v in model.graph.input if f"in_{v.name}" in arrays}
        return inputs, {v.name: arrays[f"out_{v.name}"] for v in model.graph.output}
    inputs = _random_inputs(model)
    return inputs, run_onnx(path.read_bytes(), inputs)


def _random_inputs(model: Any) -> dict[str, Array]:
    from onnx import helper

    random = np.random.default_rng(0)
    known = {tensor.name for tensor in model.graph.initializer}
    inputs = {}
    for value in model.graph.input:
        if value.name not in known:
            shape = [dim.dim_value or 1 for dim in value.type.tensor_type.shape.dim]
            dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
            inputs[value.name] = random.random(shape).astype(dtype)
    return inputs


def _input_names(source: bytes) -> list[str]:
    import onnx

    graph = onnx.load_from_string(source).graph
    known = {tensor.name for tensor in graph.initializer}
    return [value.name for value in graph.input if value.name not in known]


def count_tflite_ops(data: bytes) -> Counter[str]:
    """The number of operators by builtin op, in all subgraphs."""
    import tflite

    names = {number: name for name, number in vars(tflite.BuiltinOperator).items() if isinstance(number, int)}
    model = tflite.Model.GetRootAs(data, 0)
    codes = [model.OperatorCodes(i) for i in range(model.OperatorCodesLength())]
    numbers = [max(code.BuiltinCode(), code.DeprecatedBuiltinCode()) for code in codes]
    counts: Counter[str] = Counter()
    for s in range(model.SubgraphsLength()):
        graph = model.Subgraphs(s)
        for i in range(graph.OperatorsLength()):
            number = numbers[graph.Operators(i).OpcodeIndex()]
            counts[names.get(number, str(number))] += 1
    return counts


def count_onnx_nodes(data: bytes) -> int:
    """The number of nodes of the graph and its subgraphs."""
    import onnx

    def count(graph: Any) -> int:
        bodies = [a.g for node in graph.node for a in node.attribute if a.HasField("g")]
        return len(graph.node) + sum(map(count, bodies))

    return count(onnx.load_from_string(data).graph)


def optimized(data: bytes, level: str = "BASIC") -> bytes:
    """The model after ONNX Runtime's optimization: BASIC (constant folding, fused batch norms), or ALL."""
    import tempfile

    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level}")
        options.optimized_model_filepath = str(Path(folder) / "optimized.onnx")
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        return Path(options.optimized_model_filepath).read_bytes()


def fully_delegated(data: bytes) -> bool:
    """Whether XNNPACK runs the whole model as one partition."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=data, num_threads=1)
    interpreter.allocate_tensors()
    delegates = [op for op in interpreter._get_ops_details() if op["op_name"] == "DELEGATE"]
    if len(delegates) != 1:
        return False
    inputs, outputs = (
        {d["index"] for d in f()} for f in (interpreter.get_input_details, interpreter.get_output_details)
    )
    produced = {int(i) for op in interpreter._get_ops_details() for i in op["outputs"]}
    read = {int(i) for i in delegates[0]["inputs"]}
    return outputs <= {int(i) for i in delegates[0]["outputs"]} and not (read & produced) - inputs


def digest(job: Job) -> str:
    """A digest of the converted file, in the worker process."""
    import hashlib

    import onnxtfl

    data = _data(onnxtfl.onnx_to_tflite(job.path, check=False, **job.options))
    return hashlib.sha256(data).hexdigest()
