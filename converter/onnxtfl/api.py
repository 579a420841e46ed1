"""The public functions, which the package ``onnxtfl`` re-exports."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Literal

from onnxtfl.arguments import accepting_former_names, checked, conversion_options, model_kind, of_command, settings
from onnxtfl.conversion import Conversion
from onnxtfl.conversion_check import CheckMode, TfliteRuntime, loaded_file, with_faults
from onnxtfl.conversion_job import convert, job_of, quantizing_of
from onnxtfl.errors import UsageError, suggestion
from onnxtfl.kinds import Size
from onnxtfl.option_table import BUILD, CHECK, INSPECT, OPS, TO_ONNX, TO_TFLITE

if TYPE_CHECKING:
    import onnx

    from onnxtfl.checking.report import CheckReport
    from onnxtfl.metrics.quality import Metric
    from onnxtfl.quantizing import Calibration
    from onnxtfl.rewriting.unsupported import UnsupportedOp

Tolerance = float | str | Mapping[str, float | str]
"""A tolerance of all outputs, or by name of an output ("" for all others); a text like "0.01abs" is an absolute
tolerance that is not relative to an output's largest value.
"""
PathLike = str | os.PathLike[str]
IoLayout = Literal["source", "channels-first", "channels-last"]
"""Axis order of inputs and outputs: that of the source, or images (of rank 3 to 5) transposed. ``io_layout`` may also
be a dictionary from names of inputs and outputs to their layouts; the name "*" is all others, which are not moved
without it.
"""
IoDtype = Literal["source", "float32", "bits"]
"""The representation of inputs and outputs whose types runtimes do not accept: "source" has the values (of bfloat16,
float8 and float4 as float32, of integers of 4 and 2 bits in 8 bits), "bits" the bits of each element, as uint16 or
uint8. "float32" is like "source", and float16 becomes float32 too. `ConversionReport.io_types` lists what changed.
"""
Float16 = Literal["float32", "native"]
"""The type in which float16 is computed: float32, or ("native") float16 by the ops that have kernels for it in
``min_runtime``, and float32 by the others; ``ConversionReport.float16`` says which.
"""
QuantizedIo = Literal["source", "float", "int8", "uint8", "int16"]
"""Type of inputs that are quantized first and outputs that are dequantized last; "source" keeps theirs."""
Quantized = Literal["qdq", "qoperator", "float"]
"""How quantized ops are written in ONNX: between DequantizeLinear and QuantizeLinear, which ONNX Runtime fuses to
integer kernels; as QLinearConv and similar (some of the domain com.microsoft); or on real values, saturated but not
rounded.
"""
DynamicQuant = Literal["exact", "hybrid"]
"""MatMulInteger and similar ops as they are, or as faster kernels on float activations and int8 weights, with the error
in ``conversion.report.quantization.tolerance``.
"""
StateMode = Literal["io", "reset"]
"""States of a model as inputs and outputs, with initial values in the metadata (``Conversion.report.states``), or each
run begins with these.
"""
LstmMode = Literal["exact", "fused"]
"""Every run begins from the initial states, as in ONNX; or LSTM and RNN layers that begin from zeros are one kernel,
which goes on where the run before ended (``Conversion.report.kept_states``).
"""
TfliteTargetName = str
"""What runs the .tflite: "tflite", the TFLite runtimes from ``min_runtime`` on, or these and another target, named as
its table in ``onnxtfl/schemas/targets``: "micro", TFLite Micro on a microcontroller; "ethos-u55", "ethos-u65" or
"ethos-u85", the same with an NPU; "gpu", LiteRT's GPU accelerator, on which all ops run (unless ``fallback`` is "cpu").

For TFLite Micro all sizes have to be static. If tflite-micro is installed, the check runs it as well, and the report
has the size of the arena that it needs. `Conversion.c_source` is the result in C++. For an NPU, ``report.placement``
says where each op runs, and (by Vela, ``pip install 'onnxtfl[ethos-u]'``) which memory and time it takes.
"""
QuantizeMode = Literal["dynamic", "int8", "int16x8", "float16"]
"""How to quantize the result with litert-quantizer (``pip install 'onnxtfl[quantize]'``): "dynamic" (int8 weights,
activations quantized at run time), "int8", "int16x8" (int16 activations), "float16" (weights).

``calibration``, for "int8" and "int16x8": samples of the inputs, as dictionaries, or the path of an .npz file or of a
directory of such files, or of images; "random" generates them. ``mean``, ``std``: by channel of these images, whose
pixels are 0 to 1 (as of torchvision's Normalize). The float result is checked as usual, the quantized one with a
tolerance in quantization steps. Inputs and outputs stay float unless ``quantized_io`` is "int8".
"""
Progress = Callable[[str], None]
Data = PathLike | Mapping[str, Any] | Iterable[Mapping[str, Any]]
"""Inputs for a check: arrays by input name, for some or all inputs (of ``check``: by the first model's names, by the
second's, or by position, as ``arr_0``), several such sets, or the path of an .npz file or of a directory of them.
Arrays with an additional leading axis are one set for each of its elements. Inputs without an array are generated.
"""
InputShapes = Mapping[str, Sequence[Size]]
"""Sizes by input name; None makes a size dynamic, a name also names it."""
Elements = Mapping[str, int | None]
"""The number of elements of each input that is a sequence, None for an optional without a value; their tensors are
called NAME_0, ...
"""


@accepting_former_names(TO_TFLITE)
def onnx_to_tflite(
    model: PathLike | bytes | onnx.ModelProto,
    path: PathLike | None = None,
    *,
    check: CheckMode = "auto",
    load: bool = True,
    input_shapes: InputShapes | None = None,
    dims: Mapping[str, int] | None = None,
    elements: Elements | None = None,
    signatures: Mapping[str, InputShapes] | None = None,
    rename: Mapping[str, str] | None = None,
    io_layout: IoLayout | Mapping[str, IoLayout] = "source",
    io_dtype: IoDtype = "source",
    quantized_io: QuantizedIo = "source",
    dynamic_quant: DynamicQuant = "exact",
    lstm: LstmMode = "exact",
    quantize: QuantizeMode | None = None,
    calibration: Calibration | None = None,
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
    float16: Float16 = "float32",
    float64: Literal["narrow", "error"] = "narrow",
    min_runtime: str = "2.14",
    target: TfliteTargetName = "tflite",
    fallback: Literal["none", "cpu"] = "none",
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    metadata: Mapping[str, str] | None = None,
    rtol: Tolerance = 1e-3,
    atol: Tolerance = 1e-4,
    accept: Sequence[str] | None = None,
    metrics: Sequence[str | Metric] = (),
    save_outputs: PathLike | None = None,
    seed: int = 0,
    keep_failed: bool = False,
    time_limit: float = 300.0,
    max_memory: float = 1024.0,
    runs: int = 3,
    input_ranges: Mapping[str, tuple[float, float]] | None = None,
    check_dims: Mapping[str, int] | None = None,
    check_data: Data | None = None,
    runtime: TfliteRuntime | None = None,
    per_layer: bool = False,
    profile: bool = False,
    record: bool = True,
    allow_custom: bool = False,
    plugins: Sequence[str] | None = None,
    on_progress: Progress | None = None,
) -> Conversion:
    """Convert an ONNX model to TFLite.

    ``model``: a path, the bytes of a file, or an ``onnx.ModelProto``. ``path``: the file to write, or a folder (one
    that exists, or a text that ends with a slash) for a file with the model's name; without it the bytes are in
    ``Conversion.data``. The keywords are the options of the command line (docs/command-line.md), with values of Python
    (`CheckMode`, `QuantizeMode`, `IoDtype`, `IoLayout`, `Float16`, `TfliteTargetName`, `InputShapes`, `Elements`).
    ``dims``: sizes by the name of the dimension. ``min_runtime``: "2.14" to "2.23" or "litert-1.0" to "litert-2.3".
    ``signatures``: the entry points of the result, each with sizes of its own (`InputShapes`); weights are stored once.

    Raises `InvalidModelError`, `UnsupportedError`, `UsageError`, `OutputError`, `CheckFailedError`.
    """
    given = of_command(TO_TFLITE, locals())
    quantizing = quantizing_of(given)
    return convert(job_of(model, path, given, quantizing))


@accepting_former_names(TO_ONNX)
def tflite_to_onnx(
    model: PathLike | bytes,
    path: PathLike | None = None,
    *,
    opset: int | None = None,
    check: CheckMode = "auto",
    load: bool = True,
    input_shapes: InputShapes | None = None,
    dims: Mapping[str, int] | None = None,
    rename: Mapping[str, str] | None = None,
    io_layout: IoLayout | Mapping[str, IoLayout] = "source",
    quantized_io: QuantizedIo = "source",
    quantized: Quantized = "qdq",
    state: StateMode = "io",
    signature: str | None = None,
    float64: Literal["narrow", "error"] = "narrow",
    min_runtime: str = "2.14",
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    metadata: Mapping[str, str] | None = None,
    rtol: Tolerance = 1e-3,
    atol: Tolerance = 1e-4,
    accept: Sequence[str] | None = None,
    metrics: Sequence[str | Metric] = (),
    save_outputs: PathLike | None = None,
    seed: int = 0,
    keep_failed: bool = False,
    time_limit: float = 300.0,
    max_memory: float = 1024.0,
    runs: int = 3,
    input_ranges: Mapping[str, tuple[float, float]] | None = None,
    check_dims: Mapping[str, int] | None = None,
    check_data: Data | None = None,
    runtime: TfliteRuntime | None = None,
    per_layer: bool = False,
    profile: bool = False,
    record: bool = True,
    allow_custom: bool = False,
    plugins: Sequence[str] | None = None,
    on_progress: Progress | None = None,
) -> Conversion:
    """Convert a TFLite model (a path or its bytes) to ONNX of ``opset`` 13 to 24; by default 21, or the lowest
    newer one with all ops that are needed. Of a .litertlm, its sections with models are read.

    ``signature``: the key of the entry point to convert, by default the first subgraph (see `signatures`). The other
    parameters, the result and the errors are those of `onnx_to_tflite` (``min_runtime`` has no effect in this
    direction). The weights of a model of more than 2 GB are written to ``path`` + ".data".
    """
    given = of_command(TO_ONNX, locals())
    return convert(job_of(model, path, given))


def build_model(
    model: PathLike | bytes,
    path: PathLike | None = None,
    *,
    to: Literal["tflite", "onnx"] | None = None,
    check: CheckMode = "auto",
    input_shapes: InputShapes | None = None,
    dims: Mapping[str, int] | None = None,
    opset: int | None = None,
    min_runtime: str = "2.14",
    target: TfliteTargetName = "tflite",
    fallback: Literal["none", "cpu"] = "none",
    rtol: Tolerance = 1e-3,
    atol: Tolerance = 1e-4,
    seed: int = 0,
    keep_failed: bool = False,
    time_limit: float = 300.0,
    max_memory: float = 1024.0,
    on_progress: Progress | None = None,
) -> Conversion:
    """Convert a graph of neutral ops as text (.ir: a path or its bytes) to TFLite or ONNX.

    ``to``: the format of the result, by default that of the ending of ``path`` (.onnx), else TFLite. The source of the
    check is evaluated by the neutral ops (see `run`). The other parameters, the result and the errors are those of
    `onnx_to_tflite` and `tflite_to_onnx`; ``opset`` is for ONNX, ``target`` for TFLite.
    """
    given = of_command(BUILD, locals())
    model_kind(model, "model", ("a path", "bytes"))
    checked(to=to or "tflite")
    to_onnx = (to or ("onnx" if os.fspath(path or "").lower().endswith(".onnx") else "tflite")) == "onnx"
    refused = {"target": "tflite", "fallback": "none"} if to_onnx else {"opset": None}
    wrong = next((name for name, default in refused.items() if given[name] != default), None)
    if wrong is not None:
        raise UsageError(f"`{wrong}` has no effect on {'ONNX' if to_onnx else 'TFLite'} models", hint="leave it out")
    arguments = {name: value for name, value in given.items() if name not in ("opset", "target", "fallback")}
    if to_onnx:
        return tflite_to_onnx(model, path, opset=opset, **arguments)
    return onnx_to_tflite(model, path, target=target, fallback=fallback, **arguments)


@accepting_former_names(CHECK)
def check(
    a: PathLike | bytes | onnx.ModelProto,
    b: PathLike | bytes | onnx.ModelProto,
    *,
    rtol: Tolerance = 1e-3,
    atol: Tolerance = 1e-4,
    accept: Sequence[str] | None = None,
    metrics: Sequence[str | Metric] = (),
    save_outputs: PathLike | None = None,
    seed: int = 0,
    data: Data | None = None,
    input_shapes: InputShapes | None = None,
    dims: Mapping[str, int] | None = None,
    time_limit: float = 300.0,
    runs: int = 3,
    max_steps: float = 1,
    random: int = 1,
    input_ranges: Mapping[str, tuple[float, float]] | None = None,
    runtime: TfliteRuntime | None = None,
    precision: Literal["float16"] | None = None,
    per_layer: bool = False,
    profile: bool = False,
) -> CheckReport:
    """Run two models, each .onnx or .tflite, on the same inputs and compare; ``a`` is the reference.

    ``data``: see `Data`. Without, inputs are generated from ``seed``: embedding ids within their table, masks of 0 and
    1, images, quiet sound. ``random``: the number of generated sets, with mixed sizes if dimensions are dynamic.
    ``input_ranges``: lowest and highest value by input name, instead of those derived from the graph. ``dims``: the
    size of a dimension, by its name, in the runs.

    Inputs and outputs are matched by name, then by position and shape; channels-last matches channels-first. A .tflite
    as ``b`` must agree with and without XNNPACK. ``runtime``: the runtime for .tflite models, by default LiteRT, else
    tflite-runtime; "micro" is TFLite Micro (``pip install 'onnxtfl[micro]'``). Models with state run ``runs`` times in
    a row, on other inputs each time; states that ``onnxtfl`` turned into inputs and outputs of an ONNX model are fed
    back. ``max_steps``: the largest allowed difference of quantized outputs in quantization steps.

    ``rtol``, ``atol``: see `Tolerance`. ``accept``: the criteria that may accept an output, by default all
    (``["tolerance"]`` allows nothing beyond the tolerance). ``metrics``: names of metrics, or functions of two arrays,
    measured of each output (``OutputCheck.metrics``). ``save_outputs``: a directory for the inputs and the outputs of
    both models, as .npz files. ``per_layer``, ``profile``: see `CheckMode`.
    ``precision``: "float16" also simulates both models in float16, with sums in float32 and in float16
    (``CheckReport.float16``); the check fails if an output of ``b`` overflows where that of ``a`` does not.

    Does not raise for models that differ or do not run: see ``CheckReport.status``. Raises `InvalidModelError` for a
    file that cannot be read and `UsageError` for unknown input names and arrays that do not fit.
    """
    return _compare(a, b, of_command(CHECK, locals()))


def _compare(
    a: PathLike | bytes | onnx.ModelProto, b: PathLike | bytes | onnx.ModelProto, given: Mapping[str, Any]
) -> CheckReport:
    """Compare `a` and `b`; `given`: the keywords of `check`."""
    from onnxtfl.checking.session import check_models
    from onnxtfl.checking.settings import Settings
    from onnxtfl.llm.generation import check_pair

    for name, model in (("a", a), ("b", b)):
        model_kind(model, name, ("a path", "bytes", "an onnx.ModelProto"))
    how = Settings(**settings(CHECK, given))
    with ExitStack() as stack:
        first, second = (loaded_file(model, name, stack) for name, model in (("a", a), ("b", b)))
        report = check_pair(first, second, how) or check_models(first, second, how, given["data"])
        return with_faults(report, second) if given["runtime"] in (None, "gpu") else report


def unsupported(
    model: PathLike | bytes | onnx.ModelProto,
    *,
    input_shapes: InputShapes | None = None,
    dims: Mapping[str, int] | None = None,
    elements: Elements | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
) -> list[UnsupportedOp]:
    """Return all ops of a model (.onnx or .tflite) that cannot be converted to the other format, and why.

    Grouped by op and reason, with the names of the nodes; an empty list for a model that converts. The parameters are
    those of `onnx_to_tflite`. Raises `InvalidModelError` and `UsageError`.
    """
    given = of_command(INSPECT, locals())
    from onnxtfl import pipeline

    model_kind(model, "model", ("a path", "bytes", "an onnx.ModelProto"))
    return pipeline.unsupported(model, conversion_options(given))


def explain(code: str | None = None) -> str:
    """Return the page of an error code ("E-OP-001") in Markdown, or the list of all codes.

    Raises `UsageError` for an unknown code.
    """
    from onnxtfl.error_codes import error_codes, index, page

    checked(code=code)
    if code is None:
        return index()
    found = error_codes().get(code.upper())
    if found is None:
        raise UsageError(f"there is no error code {code!r}", hint=suggestion(code.upper(), error_codes(), "the codes"))
    return page(found)


def coverage(*, neutral: bool = False, as_json: bool = False) -> str:
    """Return tables of what converts: each version of each ONNX operator, and each TFLite operator.

    ``neutral``: the operations of the neutral graph instead, with how each is written in both formats (measured, which
    takes ten seconds) and which operators are read as it. ``as_json``: JSON instead of Markdown; without ``neutral``,
    of all tables.
    """
    from onnxtfl import op_tables

    given = of_command(OPS, {"neutral": neutral, "as_json": as_json})
    if given["as_json"]:
        values = op_tables.as_values()
        return json.dumps(values["neutral"] if given["neutral"] else values, indent=1)
    return op_tables.neutral_ops() if given["neutral"] else op_tables.op_tables()
