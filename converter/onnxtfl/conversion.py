"""The result of a conversion: the model, and the report about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxtfl.errors import UsageError
from onnxtfl.tables import WIDTH, Row, as_html, as_text, byte_count, counted, ranked, shape, some, titled

if TYPE_CHECKING:
    from onnxtfl.c_source import CSource
    from onnxtfl.checking.report import CheckReport
    from onnxtfl.ir.record import Record
    from onnxtfl.ir.summary import QuantizationSummary
    from onnxtfl.placement import Placement


@dataclass(frozen=True)
class TensorReport:
    """An input or output of the result: name, dtype (``float32``, ``int64``, ...) and shape (sizes and symbols)."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]

    def __str__(self) -> str:
        return f"{self.name}  {self.dtype} {shape(self.shape)}"


@dataclass(frozen=True)
class IoType:
    """An input or output with another type than in the source, since the runtime's API or kernels lack that type.

    ``source``: the type in the source (``bfloat16``, ``float8e4m3fn``, ``int64``, ...); ``dtype``: the type in the
    result; ``bits``: whether elements are the bits of the source's elements instead of their values
    (``io_dtype="bits"``).
    """

    name: str
    source: str
    dtype: str
    bits: bool = False

    def to_result(self, array: Any) -> Any:
        """An array of the source's type (of the package ml_dtypes) in the result's type. Raises ValueError if it does
        not fit.
        """
        from onnxtfl.ir.small_types import as_held
        from onnxtfl.ir.types import DType

        return as_held(array, DType(self.source), self.bits)

    def to_source(self, array: Any) -> Any:
        """An array of the result in the source's type."""
        from onnxtfl.ir.small_types import from_held
        from onnxtfl.ir.types import DType

        return from_held(array, DType(self.source), self.bits)

    def __str__(self) -> str:
        return f"{self.name}: {'bits' if self.bits else 'values'} of {self.source} as {self.dtype}"


@dataclass(frozen=True)
class StateReport:
    """A state that is an input and an output of the result, by name; None if the entry point does not read, or
    write, it. ``initial``: the value to feed in the first run, one element where all are equal; None if the file has
    none.
    """

    input: str | None
    output: str | None
    initial: Any

    def __str__(self) -> str:
        if self.input is None:
            return f"{self.output} is written for other entry points"
        first = "what another entry point writes"
        if self.initial is not None:
            first = f"{self.initial.reshape(-1)[0]}" if self.initial.size == 1 else "the value in the metadata"
        later = "" if self.output is None else f", then {self.output} of the run before"
        return f"feed {self.input}: {first} in the first run{later}"


@dataclass(frozen=True)
class ExpectedGain:
    """The time that all rewrites by one rule, which only saves time, were expected to save, by measured costs.

    ``count``: the number of rewrites. ``before``, ``after``: the microseconds of the ops in one thread, by kind of
    machine: "avx512" (x86 with AVX-512) and "avx2" (without); only ratios count on other machines of that kind.
    """

    rule: str
    count: int
    before: Mapping[str, float]
    after: Mapping[str, float]

    def __str__(self) -> str:
        saved = (
            f"{before:.3g} us -> {self.after[machine]:.3g} us ({machine})" for machine, before in self.before.items()
        )
        return ", ".join([f"{self.rule}, {counted(self.count, 'time')}", *saved])


@dataclass(frozen=True)
class ConversionReport:
    """The report on a conversion.

    Printed, it is the table of the command line. ``ops_before``, ``ops_after``: number of nodes by operator, in the
    source and in the result. ``source_size`` (None for a model in memory) and ``size``: bytes of the model and of its
    external data. ``seconds``: duration of the conversion without the check. ``peak_memory``: peak resident bytes of
    this process, None if the system does not report it. ``passes``: (name, seconds, nodes after it) of each pass, in
    order. ``quantization``: which ops of a quantized model use integer kernels, which are float and why, which biases
    got another scale, which tensors were requantized; None if nothing is quantized. ``states``: those that became
    inputs and outputs. ``kept_states``: tensors of a .tflite that the next run begins with, None if that was not
    requested. ``other_signatures``: the entry points of the source that were not converted. ``elements``: the names of
    the tensors that each input and output of sequence or optional type became. ``dropped_metadata``: metadata of the
    source that is too large for the result, as text. ``assumptions``: what has to be true of dynamic sizes.
    ``minor_assumptions``: those about sizes that are computed inside, or that are rarely fed. ``complex_names``: inputs
    and outputs of complex numbers, which became real ones with a trailing axis of 2. ``source``: the path of the
    source, "" for a model in memory. ``arena``: bytes of the arena that the target needs, measured on this machine
    (with pointers of 32 bits it needs less); None if that was not measured. ``io_types``: inputs and outputs of another
    type than in the source. ``opset``: the ONNX opset and why it is newer than the default, "" if it is not.
    ``float16``: which ops compute in float16, if that was requested. ``placement``: where each op runs on a target with
    an NPU, with a fallback to the CPU, or if times per op were requested; else None. ``faults``: ops of the result that
    other runtimes than the checked one compute wrong without an error. ``gains``: of rewrites that only save time.
    ``not_loaded``: why the result was not loaded in its runtime, although that was requested.
    """

    inputs: tuple[TensorReport, ...]
    outputs: tuple[TensorReport, ...]
    ops_before: Mapping[str, int]
    ops_after: Mapping[str, int]
    source_size: int | None
    size: int
    seconds: float
    peak_memory: int | None
    passes: tuple[tuple[str, float, int], ...] = field(default=(), repr=False)
    quantization: QuantizationSummary | None = None
    states: tuple[StateReport, ...] = ()
    kept_states: tuple[str, ...] | None = None
    other_signatures: tuple[str, ...] = ()
    elements: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    dropped_metadata: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    complex_names: tuple[str, ...] = ()
    source: str = ""
    arena: int | None = None
    io_types: tuple[IoType, ...] = ()
    opset: str = ""
    float16: str = ""
    minor_assumptions: frozenset[str] = frozenset()
    placement: Placement | None = None
    faults: tuple[str, ...] = ()
    gains: tuple[ExpectedGain, ...] = ()
    not_loaded: str = ""

    def rows(self, verbose: bool = False) -> list[Row]:
        """Return the report as rows of a table.

        ``verbose``: with the passes, the minor assumptions and what was left out of the metadata, and without shortened
        lists.
        """
        rows = titled("inputs", map(str, self.inputs)) + titled("outputs", map(str, self.outputs))
        rows += titled("types", map(str, self.io_types))
        rows += [Row("float16", self.float16)] if self.float16 else []
        rows += titled("sequences", [_elements(*entry) for entry in self.elements.items()])
        rows += titled(
            "complex", [f"{name} has real and imaginary parts as its last axis" for name in self.complex_names]
        )
        rows += _state_rows(self.states) + _kept_rows(self.kept_states, verbose)
        if self.other_signatures:
            others = some(self.other_signatures, verbose)
            rows.append(
                Row("signatures", f"not converted: {others} (`signature=KEY`, or `--signature all|signatures_to_onnx`)")
            )
        rows += titled("opset", [self.opset] if self.opset else [])
        rows += titled("assumed", [what for what in self.assumptions if verbose or what not in self.minor_assumptions])
        rows += titled("left out", [f"{what}: too large" for what in self.dropped_metadata]) if verbose else []
        rows += [Row("ops before", _ops(self.ops_before, verbose)), Row("ops after", _ops(self.ops_after, verbose))]
        rows += [] if self.quantization is None else _quantization_rows(self.quantization, verbose)
        share = f" ({self.size / self.source_size:.2f} of the source)" if self.source_size else ""
        rows.append(Row("size", byte_count(self.size) + share))
        if self.arena is not None:
            rows.append(Row("arena", f"{byte_count(self.arena)} for TFLite Micro ({self.arena} bytes)"))
        rows += [] if self.placement is None else self.placement.rows(verbose)
        rows += _unquantized_rows(self.quantization, self.placement, verbose)
        rows += titled("warning", self.faults, "yellow")
        rows += [Row("warning", f"not loaded: {self.not_loaded}", "yellow")] if self.not_loaded else []
        memory = f", peak memory {byte_count(self.peak_memory)}" if self.peak_memory else ""
        rows.append(Row("time", f"{self.seconds:.2f} s{memory}"))
        passes = [f"{name:18} {1000 * seconds:8.1f} ms {nodes:6} nodes" for name, seconds, nodes in self.passes]
        return rows + (titled("gains", map(str, self.gains)) + titled("passes", passes) if verbose else [])

    def table(self, verbose: bool = False, width: int = WIDTH) -> str:
        """The rows as text, wrapped at spaces to ``width`` columns."""
        return as_text(self.rows(verbose), width)

    def __str__(self) -> str:
        return self.table().rstrip("\n")

    def _repr_html_(self) -> str:
        return as_html(self.rows())


@dataclass(frozen=True, repr=False)
class Conversion:
    """A converted model: the ``path`` it was written to, or its bytes in ``data``; the other one is None.

    ``report``: sizes, counts and times. ``check``: the comparison of the two models, None without one. ``record``:
    the target tensor of each source tensor, and the origin of each target op (`onnxtfl.ir.record.Record`).
    """

    path: Path | None
    data: bytes | None
    report: ConversionReport
    check: CheckReport | None
    record: Record | None = None

    def c_source(self, name: str | None = None) -> CSource:
        """The .tflite as C++ source for TFLite Micro, in files called ``name``, by default as its file, else "model".

        Made with ``target="micro"``. Raises `UnsupportedError` for ops that TFLite Micro does not have, and
        `UsageError` where nothing was written.
        """
        from onnxtfl.c_source import c_source

        data = self.path.read_bytes() if self.path is not None else self.data
        if data is None:
            raise UsageError("the conversion has no result from which to generate C++ source")
        name = name or (self.path.stem if self.path is not None else "model")
        return c_source(data, name, self.report.arena)

    def rows(self, verbose: bool = False) -> list[Row]:
        """The rows of the report and of the check."""
        return self.report.rows(verbose) + ([] if self.check is None else self.check.rows(verbose))

    def table(self, verbose: bool = False, width: int = WIDTH) -> str:
        """The rows as text, wrapped at spaces to ``width`` columns."""
        return as_text(self.rows(verbose), width)

    def __repr__(self) -> str:
        """One line: where the result is, its size, and whether it was checked."""
        place = "nothing written" if self.data is None else f"{byte_count(len(self.data))} in memory"
        place = place if self.path is None else f"{str(self.path)!r}, {byte_count(self.report.size)}"
        before, after = sum(self.report.ops_before.values()), sum(self.report.ops_after.values())
        check = "none" if self.check is None else self.check.status
        return f"<Conversion {place}, {counted(before, 'op')} became {after}, check: {check}>"

    def _repr_html_(self) -> str:
        return as_html(self.rows())


def _state_rows(states: Sequence[StateReport]) -> list[Row]:
    """The lines about the states that the user feeds."""
    lines = list(map(str, states))
    lines += ["(with `state=reset` each run begins with the initial values)"] if lines else []
    return titled("state", lines)


def _kept_rows(names: Sequence[str] | None, verbose: bool) -> list[Row]:
    """The lines about the states that the result keeps between runs; none unless the option `lstm` keeps states."""
    if names is None:
        return []
    if not names:
        return [Row("state", "not kept: no layer has zero initial state and a kernel that keeps its state", "yellow")]
    return titled("state", [f"kept from run to run: {some(names, verbose)}", "(reset_all_variables() resets it)"])


def _quantization_rows(summary: QuantizationSummary, verbose: bool) -> list[Row]:
    """The lines about a quantized model; a warning where ops are quantized in the source only."""
    integers = sum(summary.integer_ops.values())
    counts = [
        (integers, "op uses integer kernels" if integers == 1 else "ops use integer kernels"),
        (sum(summary.hybrid_ops.values()), "hybrid kernels (integer weights)"),
        (len(summary.float_ops), "float kernels"),
    ]
    lines = [", ".join(f"{count} {how}" for i, (count, how) in enumerate(counts) if count or not i)]
    own = Counter(op.op for op in summary.float_ops if not op.island and not op.faster)
    lines += [f"float, as in the source: {ranked(own, verbose)}"] if own else []
    faster = Counter(op.op for op in summary.float_ops if op.faster)
    lines += [f"float, which is faster than in integers: {ranked(faster, verbose)}"] if faster else []
    for entries, one, many in (
        (summary.rescaled_biases, "bias with another scale", "biases with another scale"),
        (summary.requantized, "tensor requantized", "tensors requantized"),
    ):
        shown = [f"{name} ({change})" if verbose else name for name, change in entries]
        lines += [f"{len(entries)} {one if len(entries) == 1 else many}: {some(shown, verbose)}"] if entries else []
    if summary.tolerance:
        lines.append(f"hybrid kernels round activations: tolerance {summary.tolerance:g} of the largest element")
    if summary.dynamic_ops:
        products = "product of activations" if summary.dynamic_ops == 1 else "products of activations"
        lines.append(
            f"{summary.dynamic_ops} {products} that the source quantizes at run time: `dynamic_quant=hybrid` computes "
            "them with kernels for int8 weights: smaller and faster, but less exact"
        )
    if summary.rounded_scales:
        readers = "1 op has" if summary.rounded_scales == 1 else f"{summary.rounded_scales} ops have"
        lines.append(f"{readers} weights whose scales are no float16, and become the nearest ones")
    if summary.coarse_ops:
        lines.append("kernels round coarsely: " + ", ".join(f"{op} {n} steps" for op, n in summary.coarse_ops.items()))
    warnings = [Row("warning", f"{name}: {text}", "yellow") for name, text in summary.kernels]
    warnings += [Row("warning", f"{count} {text}", "yellow") for text, count in summary.faults.items()]
    return titled("quantized", lines) + warnings + _island_rows(summary, verbose)


def _island_rows(summary: QuantizationSummary, verbose: bool) -> list[Row]:
    named = islands(summary)
    lines = [
        f"{len(names)} {op}: {reason}" + (f" ({', '.join(names)})" if verbose else "") for op, reason, names in named
    ]
    count = sum(len(names) for _, _, names in named)
    lines = [f"{count} ops that the source quantizes compute on floats:", *lines] if lines else []
    return titled("warning", lines, "yellow")


_COMPOSITE = 3
"""The least number of float ops that a node became for its inner values to matter."""


def _unquantized_rows(summary: QuantizationSummary | None, placement: Placement | None, verbose: bool) -> list[Row]:
    """Advice on what to quantize in the source of a quantized model, so that its float ops run on the NPU."""
    if summary is None or placement is None or not placement.is_of_npu:
        return []
    ops = Counter(name for op in summary.islands for name in op.sources)
    float_ops = [op for op in placement.elsewhere if op.rewrite.startswith("float")]
    own = list(dict.fromkeys(name for op in float_ops for name in op.sources if name not in ops))
    large = [name for name, count in ops.items() if count >= _COMPOSITE]
    lines = []
    if own:
        lines.append(
            f"{_nodes(own)} float in the source ({some(own, verbose)}): quantize them there; onnxruntime.quantization "
            "leaves many op types in float unless op_types_to_quantize lists all op types of the model"
        )
    if large:
        lines.append(
            f"{_nodes(large)} quantized outside only, without scales for inner values ({some(large, verbose)}): export "
            "them as smaller ops (LayerNormalization: opset 16 or lower), and quantize these with op_types_to_quantize"
        )
    return titled("advice", lines, "yellow")


def _nodes(names: Collection[str]) -> str:
    return f"{len(names)} nodes are" if len(names) > 1 else "1 node is"


def islands(summary: QuantizationSummary) -> list[tuple[str, str, list[str]]]:
    """The ops that the source quantizes and that compute on floats: op, reason and the names of the source's nodes."""
    sources: dict[tuple[str, str], list[str]] = {}
    for op in summary.islands:
        sources.setdefault((op.source_op, op.reason), []).extend(op.sources)
    found = [(op, reason, list(dict.fromkeys(names))) for (op, reason), names in sources.items()]
    return sorted(found, key=lambda entry: (-len(entry[2]), entry[0], entry[1]))


def _elements(name: str, tensors: Sequence[str]) -> str:
    """A line about the tensors that replace an input or output of sequence or optional type."""
    if tuple(tensors) == (name,):
        return f"{name} is one tensor"
    return f"{name} became {', '.join(tensors)}" if tensors else f"{name} has no elements"


def _ops(counts: Mapping[str, int], verbose: bool) -> str:
    """The number of nodes and the most frequent operators."""
    return f"{sum(counts.values())}: {ranked(counts, verbose)}" if counts else "0"
