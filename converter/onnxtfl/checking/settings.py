"""The options of a check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from onnxtfl.checking.pairing.interface import Layout
from onnxtfl.inputs.spread import Spread
from onnxtfl.ir.data import PathLike
from onnxtfl.ir.record import TensorEntry
from onnxtfl.metrics.quality import Metric

PATIENCE = 2.0


@dataclass(frozen=True)
class Settings:
    """The options of a check.

    ``rtol``, ``atol``: ``|b - a| <= rtol |a| + atol max|a|`` for floats. ``seed``: of the inputs. ``time_limit``:
    seconds for each run. ``layout``: "auto" accepts channels-last against channels-first, "source" does not,
    "channels-last" expects it if the shapes leave a choice. ``input_shapes``: sizes by input name, -1 or a name for a
    dynamic one. ``kernels``: the kernel sets on which a .tflite as the second model must agree; the first model runs on
    the first. ``tensors``: the record of the conversion of the first model to the second. ``max_steps``: the largest
    allowed difference of quantized outputs in steps. ``levels``: if only the second model is quantized, a step is at
    least the largest value divided by this. ``runs``: the number of consecutive runs of models with state (others: at
    most 2). ``profile``: measure the time of each op. ``patience``: a further kernel set that takes more than these
    seconds, and four times as long as the slower of the other runs, is skipped, with a note; None: never.
    ``per_layer``: also compare the tensors inside of both models. ``runtime``: the name of the runtime for .tflite
    models; None for the first installed one. ``in_float32``: a quantized source is compared in float32, as on the GPU:
    the second model computes on real values. ``input_ranges``: the lowest and highest values of inputs, by name,
    instead of those derived from the graph. ``accept``: the names of the criteria that may accept an output beyond the
    tolerance, None for all. ``output_rtol``, ``output_atol``: tolerances of single outputs, by name. ``absolute``:
    outputs whose absolute tolerance is not relative to their largest value, "" for all but those in ``output_atol``.
    ``metrics``: names of metrics of each output, or functions of two arrays. ``save_outputs``: the directory for inputs
    and outputs. ``quantized_from``: the float .tflite from which the second model was quantized; the time of both is
    measured. ``spreads``: those of the calibration data, by input of the second model: generated inputs are like these.
    ``random``: the number of generated sets of inputs. ``dims``: the size of dimensions by name, for the runs.
    ``precision``: "float16" simulates both models in float16 too (`onnxtfl.checking.float16`).
    """

    rtol: float = 1e-3
    atol: float = 1e-4
    seed: int = 0
    time_limit: float = 300.0
    layout: Layout = "auto"
    kernels: tuple[str, ...] = ("default", "builtin")
    input_shapes: Mapping[str, Sequence[int | str]] = field(default_factory=dict)
    tensors: Sequence[TensorEntry] = ()
    levels: float | None = None
    max_steps: float = 1.0
    runs: int = 3
    profile: bool = False
    quantized_from: PathLike | None = None
    patience: float | None = PATIENCE
    per_layer: bool = False
    runtime: str | None = None
    in_float32: bool = False
    random: int = 1
    precision: str | None = None
    spreads: Mapping[str, Spread] = field(default_factory=dict)
    input_ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    accept: frozenset[str] | None = None
    output_rtol: Mapping[str, float] = field(default_factory=dict)
    output_atol: Mapping[str, float] = field(default_factory=dict)
    absolute: frozenset[str] = frozenset()
    metrics: Sequence[str | Metric] = ()
    save_outputs: PathLike | None = None

    def tolerances(self, output: str) -> tuple[float, float]:
        """The relative and absolute tolerance of an output of the first model."""
        return self.output_rtol.get(output, self.rtol), self.output_atol.get(output, self.atol)

    def is_absolute(self, output: str) -> bool:
        """Whether the absolute tolerance of an output is not relative to its largest value."""
        return output in self.absolute or ("" in self.absolute and output not in self.output_atol)
