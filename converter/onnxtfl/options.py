"""The options of a conversion, which are known before anything that converts is imported."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Literal

from onnxtfl.dataclass import dataclass
from onnxtfl.schemas.target_tables import target_tables

if TYPE_CHECKING:
    from onnxtfl.passes.layout import IoLayout, IoLayouts
    from onnxtfl.passes.quantize import QuantizedIo
    from onnxtfl.passes.states.exposed import StateMode
    from onnxtfl.passes.states.first_caches import FirstCaches
    from onnxtfl.passes.states.fixed_caches import FixedCaches
    from onnxtfl.passes.states.named_caches import NamedCaches
    from onnxtfl.passes.types.small_types import IoDtype

Progress = Callable[[str], None]
Quantized = Literal["qdq", "qoperator", "float"]
LstmMode = Literal["exact", "fused"]


@dataclass(frozen=True)
class Options:
    """How to convert.

    `input_shapes`: input name -> sizes (-1: dynamic, a name: dynamic with this name). `dims`: size of each dimension of
    this name, in all inputs. `io_layout`: the axis order of inputs and outputs, of all or by name. `io_dtype`: the
    representation of inputs and outputs whose types no runtime accepts (bfloat16, float8, ...): their values, or
    ("bits") their bits as integers; "float32": values, and float32 for float16 too. `float64`: "narrow" computes in
    float32, "error" raises. `float16`: "native" computes it where there are kernels. `min_runtime`: the oldest runtime
    that must run the result. `target`: the table in ``schemas/targets/`` of a target that must run it too.
    `fallback`: what runs the ops that it does not. `rename`: old name -> new name of inputs and outputs. `inputs`,
    `outputs`: names of tensors where the model begins and ends.
    `opset`: the ONNX opset to write; None: 21, or the lowest newer one that has all ops that are needed. `elements`:
    input name -> the number of elements of a sequence; None for an optional without a value. `quantized_io`: the type
    of quantized inputs and outputs. `quantized`: how ONNX's quantized ops are written. `dynamic_quant`: whether dynamic
    quantization is computed as it is, or by hybrid kernels. `lstm`: whether recurrent layers begin every run from their
    initial state, or ("fused") from where the last run ended. `metadata`: properties to write in addition to those of
    the source. `record`: whether the record of the conversion is written into the result. `max_memory`: megabytes that
    the constants computed before run time may hold. `time_limit`: seconds that the conversion may take
    (:mod:`onnxtfl.ir.budget`). `allow_custom`: ops without a conversion become custom ops. `plugins`: modules that
    register rules. `check_data`: the user's inputs for the check, which show targets that compute in float16 the ranges
    of values. `is_quantized_later`: whether a quantizer changes the result. `caches`: the caches of a decoder that get
    a fixed length. `signatures`: input shapes of each entry point of the result. `debug`: the verifier runs after each
    pass.
    """

    input_shapes: Mapping[str, Sequence[int | str]] | None = None
    dims: Mapping[str, int] | None = None
    io_layout: IoLayouts = "source"
    io_dtype: IoDtype = "source"
    float64: Literal["narrow", "error"] = "narrow"
    float16: Literal["float32", "native"] = "float32"
    min_runtime: str = "2.14"
    target: str = "tflite"
    fallback: Literal["none", "cpu"] = "none"
    rename: Mapping[str, str] | None = None
    inputs: Sequence[str] | None = None
    outputs: Sequence[str] | None = None
    opset: int | None = None
    check_data: Any = field(default=None, compare=False)
    on_progress: Progress | None = field(default=None, compare=False)
    quantized_io: QuantizedIo = "source"
    quantized: Quantized = "qdq"
    dynamic_quant: Literal["exact", "hybrid"] = "exact"
    state: StateMode = "io"
    signature: str | None = None
    lstm: LstmMode = "exact"
    elements: Mapping[str, int | None] | None = None
    metadata: Mapping[str, str] | None = None
    record: bool = True
    max_memory: float = 1024.0
    time_limit: float = 300.0
    allow_custom: bool = False
    plugins: Sequence[str] = ()
    is_quantized_later: bool = False
    caches: FixedCaches | FirstCaches | NamedCaches | None = None
    signatures: Mapping[str, Mapping[str, Sequence[int | str]]] | None = None
    debug: bool = field(default_factory=lambda: bool(os.environ.get("ONNXTFL_VERIFY")))

    @property
    def moves_to(self) -> IoLayout:
        """The layout to which inputs and outputs are permuted; the first one if there are several."""
        layouts = self.io_layout
        every = [layouts] if isinstance(layouts, str) else list(layouts.values())
        return next((layout for layout in every if layout != "source"), "source")

    @property
    def has_small_loops(self) -> bool:
        """Whether loops stay loops, since each tensor of an unrolled loop takes memory."""
        return target_tables()[self.target].loops == "small"

    @property
    def loops(self) -> Literal["fast", "small", "small quantized", "none"]:
        """The value of `Budget.loops`."""
        loops = target_tables()[self.target].loops
        return "small quantized" if loops == "small" and self.is_quantized_later else loops

    @property
    def folds_all(self) -> bool:
        """Whether nodes of constants are computed whatever their size."""
        return target_tables()[self.target].folds_all


def of_signatures(options: Options) -> dict[str, Options]:
    """The options of each entry point by key."""
    whole = replace(options, signatures=None, record=False)
    return {
        key: replace(whole, input_shapes={**(options.input_shapes or {}), **shapes})
        for key, shapes in (options.signatures or {}).items()
    }
