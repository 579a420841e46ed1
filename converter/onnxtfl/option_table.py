"""The table of options: every option of the commands and every keyword of the public functions is one row.

From it follow the command line, the groups of its help and its reference page (:mod:`onnxtfl.cli.options`), the checks
of arguments (:mod:`onnxtfl.arguments`), and the words of messages (:mod:`onnxtfl.wording`). A new option is a row, a
parameter of the functions that have it (a test compares them), and code that uses its value.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from onnxtfl.dataclass import dataclass
from onnxtfl.kinds import (
    Callback,
    Channels,
    CheckMode,
    Choice,
    Counts,
    Data,
    Elements,
    Entries,
    EntriesOrFile,
    FieldsOrFile,
    File,
    Flag,
    Folder,
    Integer,
    Kind,
    Layouts,
    Metrics,
    Modules,
    Names,
    NewNames,
    Number,
    Paths,
    Place,
    Ranges,
    Shapes,
    Signatures,
    Sizes,
    Text,
    Tolerances,
    Version,
    Words,
)
from onnxtfl.schemas.target_tables import chosen_targets

TO_TFLITE, TO_ONNX, CHECK, INSPECT, MANY = "onnx2tfl", "tfl2onnx", "check", "inspect", "many"
BUILD, OPS, LLM = "build", "ops", "llm"
"""The commands; `MANY` is what both converters have for several models, `LLM` what onnx2tfl has for decoders."""
CONVERT = (TO_TFLITE, TO_ONNX)
FUNCTIONS = {
    "onnx_to_tflite": TO_TFLITE,
    "tflite_to_onnx": TO_ONNX,
    "check": CHECK,
    "inspect": INSPECT,
    "unsupported": INSPECT,
    "convert_many": MANY,
    "build_model": BUILD,
    "coverage": OPS,
    "llm.convert": LLM,
}
"""The command whose rows are the keywords of a public function."""


@dataclass(frozen=True)
class Option:
    """An option of the ``commands``.

    ``name``: the keyword in Python. ``flags``: on the command line, "-o --output"; by default "--" and the name; ""
    for keywords that the command line does not have. ``metavar``: how the value is written in the help, by default that
    of the kind. ``is_keyword``: whether the Python functions have it. ``setting``: the field of
    `onnxtfl.checking.Settings` that it sets. ``former``: the name that it had before, which is still accepted.
    ``group``: the title of its group in the help, that of `_GROUPS`.
    """

    name: str
    kind: Kind
    default: Any
    commands: tuple[str, ...]
    help: str = ""
    flags: str | None = None
    metavar: str | None = None
    is_keyword: bool = True
    setting: str = ""
    former: str = ""
    group: str = ""

    @property
    def words(self) -> list[str]:
        """The flags, the most telling one last."""
        return (self.flag if self.flags is None else self.flags).split()

    @property
    def flag(self) -> str:
        """The flag that messages name, also where the command line does not have it."""
        return self.flags.split()[-1] if self.flags else "--" + self.name.replace("_", "-")


def _only_commands(name: str, kind: Kind, default: Any, commands: tuple[str, ...], help_: str, **how: Any) -> Option:
    """An option that the Python functions do not have."""
    return Option(name, kind, default, commands, help_, is_keyword=False, **how)


_BOTH, _COMPARING = CONVERT, (*CONVERT, CHECK)
_BUILDING = (*CONVERT, BUILD)
_ALL_CONVERSIONS = (*_BUILDING, LLM)
_SHAPES_HELP = "Sizes of an input, like x:1,3,224,224; x:?,3,64,64 or x:batch,3,64,64 keeps one dynamic (repeatable)."
_TARGETS = chosen_targets()
_TARGETS_HELP = ", or ".join(table.help for table in _TARGETS.values())
_RUNTIMES_OF_TARGETS = (t.runtime for t in _TARGETS.values() if t.runtime)
TFLITE_RUNTIMES = dict.fromkeys(("litert", "tflite-runtime", "gpu", *_RUNTIMES_OF_TARGETS))
"""What runs .tflite models in a check."""
_PLACED = [name for name, table in _TARGETS.items() if table.parent is not None]
_QUANTIZED_TYPES = Choice("source", "float", "int8", "uint8", "int16")
CRITERIA = (
    *("tolerance", "quantization-steps", "distribution", "near-ties", "float32-reference", "pre-activation"),
    *("rounding-noise", "op-by-op", "emulation-distance"),
)
"""The criteria of a check (`onnxtfl.checking.evidence`)."""
METRICS = ("max-abs", "max-rel", "mean-abs", "cosine", "snr", "psnr", "p50", "p99", "top-1", "top-5")
"""The metrics of an output (`onnxtfl.metrics.quality`)."""
# fmt: off
_RESULT = (
    _only_commands("output", Place(), None, _BOTH,
        "File to write, or folder (DIR/), which several models need; '-': standard output.  [default: next to MODEL]",
        flags="-o --output", metavar="OUT"),
    _only_commands("output", Place(), None, (INSPECT,),
        "Write the graph as text with all constants to this file (.ir), which `onnxtfl build` reads.",
        flags="-o --output", metavar="OUT.ir"),
    _only_commands("output", Place(), None, (BUILD,),
        "File to write, .tflite or .onnx.  [default: GRAPH with the ending .tflite]", flags="-o --output",
        metavar="OUT"),
    Option("rename", NewNames(), None, _BOTH,
        "Another name for an input or output of the result, like x:image (repeatable)."),
    Option("io_layout", Layouts(), "source", _BOTH,
        "Axis order of the image inputs and outputs, or of one of them: source, channels-first or channels-last "
        "(repeatable).  [default: source]"),
    Option("io_dtype", Choice("source", "float32", "bits"), "source", (TO_TFLITE,),
        "bfloat16, float8, int4, ... as values or as bits; float16 as float32."),
    Option("float16", Choice("float32", "native"), "float32", (TO_TFLITE, LLM),
        "Compute float16 in float32, or in float16 where kernels can."),
    Option("float64", Choice("narrow", "error"), "narrow", _BOTH, "Compute float64 in float32, or fail."),
    Option("opset", Integer(13, 24, optional=True), None, (TO_ONNX, BUILD),
        "ONNX opset to write, by default 21, or the lowest newer one that has all ops that are needed."),
    Option("min_runtime", Version(), "2.14", _ALL_CONVERSIONS, "Oldest TFLite runtime that must run the result."),
    Option("target", Choice(*_TARGETS), "tflite", (TO_TFLITE, BUILD), f"What runs the result: {_TARGETS_HELP}."),
    Option("fallback", Choice("none", "cpu"), "none", (TO_TFLITE, BUILD),
        "What runs the ops that the target does not: none (an error), or LiteRT's kernels on the CPU."),
    _only_commands("compile", Flag(), False, (TO_TFLITE,),
        "Also write what Vela compiles of it for an Ethos-U target, as NAME_vela.tflite."),
    _only_commands("emit_c", Place(), None, (TO_TFLITE,),
        "Write the result also as C++ source for TFLite Micro, with its op resolver and arena size.",
        metavar="DIR|FILE.cc"),
    Option("metadata", EntriesOrFile(), None, (TO_TFLITE,),
        "Add to the result's metadata (repeatable); with --llm, a TOML file of those of a language model."),
    Option("metadata", Entries(), None, (TO_ONNX,), "Add to the result's metadata (repeatable)."),
    Option("record", Flag(), True, _BOTH,
        "Write into the result which tensors hold which of the source.  [default: record]"),
    Option("signature", Text(), None, (TO_ONNX,),
        "Entry point to convert; 'all': each to a file in the directory OUT.", metavar="KEY"),
    Option("signatures", Signatures(), None, (TO_TFLITE,),
        "An entry point of the result with the sizes of its inputs, like decode:input_ids=1x1; several share the "
        "weights (repeatable).", flags="--signature"),
    Option("state", Choice("io", "reset"), "io", (TO_ONNX,),
        "States become inputs and outputs, or begin each run with their initial value."),
    Option("lstm", Choice("exact", "fused"), "exact", (TO_TFLITE,),
        "LSTM and RNN layers reset their state in each run, or (one kernel) carry it over."),
    Option("max_memory", Number(least=0), 1024.0, _ALL_CONVERSIONS,
        "Megabytes of constants that the conversion may compute."),
)
_PARTS = (
    Option("input_shapes", Shapes(), None, (*_BUILDING, INSPECT, LLM), _SHAPES_HELP, flags="--input-shape"),
    Option("dims", Sizes(), None, (*_BUILDING, INSPECT),
        "Size of a dimension in all inputs that have it, by its name, like batch=1 (repeatable).", flags="--dim"),
    Option("elements", Elements(), None, (TO_TFLITE, INSPECT),
        "Number of elements of an input that is a sequence; NAME:none is an optional without a value (repeatable)."),
    Option("inputs", Names(), None, (*_BOTH, INSPECT), "Begin the model at these tensors (a b, or a,b)."),
    Option("outputs", Names(), None, (*_BOTH, INSPECT), "End the model at these tensors (a b, or a,b)."),
)
_QUANTIZATION = (
    Option("quantize", Choice(None, "dynamic", "int8", "int16x8", "float16"), None, (TO_TFLITE,),
        "Quantize the result (needs onnxtfl[quantize])."),
    Option("calibration", Kind(), None, (TO_TFLITE,),
        "Samples for int8 and int16x8: an .npz file, a directory of them or of images, or 'random'.", metavar="DATA"),
    Option("mean", Channels(), None, (TO_TFLITE,),
        "Mean of each channel of --calibration images, pixels being 0 to 1.  [default: 0]"),
    Option("std", Channels(is_positive=True), None, (TO_TFLITE,),
        "Standard deviation of each channel of these images; 1/255 keeps pixels from 0 to 255.  [default: 1]"),
    Option("quantized", Choice("qdq", "qoperator", "float"), "qdq", (TO_ONNX,), "How quantized ops are written."),
    Option("quantized_io", _QUANTIZED_TYPES, "source", _BOTH, "Type of the inputs and outputs that are quantized."),
    Option("dynamic_quant", Choice("exact", "hybrid"), "exact", (TO_TFLITE,),
        "Dynamic quantization as it is, or with hybrid kernels."),
)
_CHECKING = (
    Option("check", CheckMode(), "auto", _ALL_CONVERSIONS,
        "Compare both models; --check also fails where one of them cannot be run.  [default: compare]"),
    Option("load", Flag(), True, _BOTH,
        "Load the result in its runtime before it is written, also without a check.  [default: load]"),
    Option("keep_failed", Flag(), False, _ALL_CONVERSIONS, "Write the result also where the check fails."),
    Option("rtol", Tolerances(1e-3), 1e-3, (*_COMPARING, BUILD, LLM),
        "Relative tolerance, of one output with its name (repeatable).  [default: 0.001]", setting="rtol"),
    Option("atol", Tolerances(1e-4), 1e-4, (*_COMPARING, BUILD, LLM),
        "Absolute tolerance, relative to an output's largest value; 0.01abs is a value by itself (repeatable).  "
        "[default: 0.0001]", setting="atol"),
    Option("accept", Words(*CRITERIA), None, _COMPARING,
        f"Criteria that may accept an output: {', '.join(CRITERIA)}.  [default: all]",
        metavar="CRITERION...", setting="accept"),
    Option("metrics", Metrics(*METRICS), (), _COMPARING,
        f"Metrics of each output to report: {', '.join(METRICS)} (repeatable).",
        flags="--metric", metavar="METRIC", setting="metrics"),
    Option("save_outputs", Place(), None, _COMPARING,
        "Write the inputs, and the outputs of both models, as .npz files to this directory.",
        metavar="DIR", setting="save_outputs"),
    Option("max_steps", Number(least=0), 1.0, (CHECK,),
        "Steps that quantized outputs may differ by.", setting="max_steps"),
    Option("runtime", Choice(None, *TFLITE_RUNTIMES), None, _COMPARING,
        "What runs a .tflite.", setting="runtime"),
    Option("time_limit", Number(above=0), 300.0, (*_COMPARING, BUILD, LLM),
        "Seconds for each run of a model, and for the conversion.", setting="time_limit"),
    Option("precision", Choice(None, "float16"), None, (CHECK,),
        "Simulate both models in float16 too, as GPUs compute.", setting="precision"),
    Option("per_layer", Flag(), False, _COMPARING, "Find the first op whose result differs.", setting="per_layer"),
    Option("profile", Flag(), False, _COMPARING, flags="", setting="profile"),
)
_CHECK_INPUTS = (
    Option("data", Data(), None, (CHECK,),
        "Arrays by input name: an .npz file, or a directory of them; a leading axis is that of samples.",
        former="inputs"),
    Option("check_data", Data(), None, _BOTH,
        "Arrays by input name that the check runs both models on: an .npz file, or a directory of them; "
        "a leading axis is that of samples."),
    Option("input_shapes", Shapes(), None, (CHECK,), _SHAPES_HELP, flags="--input-shape", setting="input_shapes"),
    Option("dims", Sizes(), None, (CHECK,),
        "Size of a dimension in the runs, by its name, like batch=2 (repeatable).", flags="--dim", setting="dims"),
    Option("check_dims", Sizes(), None, _BOTH,
        "Size of a dimension in the runs of the check only; it stays dynamic in the result (repeatable).",
        flags="--check-dim", setting="dims"),
    Option("random", Integer(1, 100_000), 1, (CHECK,), "Sets of generated inputs.", setting="random"),
    Option("input_ranges", Ranges(), None, _COMPARING,
        "Lowest and highest value of an input, like x:-1,1 (repeatable).",
        flags="--input-range", setting="input_ranges"),
    Option("seed", Integer(0, 2**32 - 1), 0, (*_COMPARING, BUILD, LLM), "Seed of the inputs.", setting="seed"),
    Option("runs", Integer(1), 3, _COMPARING,
        "Runs, one after the other, of models with state.", setting="runs", former="steps"),
)
_REPORTS = (
    _only_commands("list_unsupported", Flag(), False, _BOTH, "List all ops that have no conversion; convert nothing."),
    _only_commands("as_json", Flag(), False, _BOTH, "With --list-unsupported: print JSON.", flags="--json"),
    _only_commands("report", File(), None, _COMPARING,
        "Write a page with errors along the depth, time per op and what was changed.", metavar="OUT.html"),
    _only_commands("report", File(), None, (INSPECT,), "Write a page with the summary and the placement.",
        metavar="OUT.html"),
    _only_commands("json", Place(), None, (CHECK,),
        "Write the report as JSON to this file; '-': to stdout.", metavar="OUT"),
    _only_commands("junit", File(), None, (CHECK,), "Write the result as JUnit's XML.", metavar="OUT.xml"),
)
_LLM = (
    _only_commands("llm", Flag(), False, (TO_TFLITE,),
        "MODEL is a decoder: write it for LiteRT-LM, with tokenizer and metadata (.litertlm) or alone (.tflite)."),
    Option("prefill", Counts(), None, (LLM,),
        "Numbers of new tokens of the prefill signatures, like 32,128,1024.  [default: those that fit of these]"),
    Option("context", Integer(1, 1 << 24, optional=True), None, (LLM,),
        "Tokens that the caches hold.  [default: the model's positions, up to 4096]"),
    Option("quantize", Choice(None, "dynamic", "float16"), None, (LLM,), flags=""),
    Option("prefill_logits", Flag(), False, (LLM,), "Prefill signatures have logits too."),
    Option("tokenizer", File(), None, (LLM,),
        "A tokenizer.json, or a SentencePiece model.  [default: that beside MODEL]", metavar="FILE"),
    Option("metadata", FieldsOrFile(), None, (LLM,), flags=""),
)
_MANY = (
    Option("jobs", Integer(1, optional=True), None, (MANY,), "Worker processes.  [default: half the processors]"),
    Option("force", Flag(), False, (MANY,), "Convert again even if the result is up to date."),
    Option("executor", Choice("processes", "dask"), "processes", (MANY,),
        "Where they run: here, or on a Dask cluster."),
    Option("address", Text(), None, (MANY,),
        "Address of the Dask scheduler (onnxtfl[dask]).", flags="--scheduler", metavar="ADDRESS"),
    Option("on_outcome", Callback(), None, (MANY,), flags=""),
)
_OTHERS = (
    Option("allow_custom", Flag(), False, _BOTH, "Keep ops without a conversion, for kernels of your own."),
    Option("plugins", Modules(), None, (*_BOTH, LLM), "Load rules of your own (repeatable).", flags="--plugin"),
    Option("stage", Text(), "file", (INSPECT,), "The graph after this step of a conversion (below)."),
    Option("placement", Choice(None, "cpu", *_PLACED), None, (INSPECT,),
        "Say where each op of a .tflite runs on this target, and why not."),
    Option("profile", Flag(), False, (INSPECT,),
        "Measure the time of each op, of a .tflite in LiteRT and of an .onnx in ONNX Runtime."),
    _only_commands("summary", Flag(), False, (INSPECT,), "Print the summary only."),
    _only_commands("diff", Place(), None, (INSPECT,),
        "Print the differences to the graph of another model.", metavar="OTHER"),
    _only_commands("diff_stage", Text(), None, (INSPECT,),
        "Print the differences to the graph after another step (of OTHER, else of MODEL).", metavar="STAGE"),
    _only_commands("as_json", Flag(), False, (INSPECT,), "Print JSON.", flags="--json"),
    Option("neutral", Flag(), False, (OPS,), "Print the operations of the neutral graph instead."),
    Option("as_json", Flag(), False, (OPS,), "Print JSON; without --neutral, all tables.", flags="--json"),
    Option("on_progress", Callback(), None, _ALL_CONVERSIONS, flags=""),
    _only_commands("quiet", Flag(), False, (*_COMPARING, BUILD), "Print errors only.", flags="-q --quiet"),
    _only_commands("verbose", Flag(), False, (*_COMPARING, INSPECT, BUILD), "Print more.", flags="-v --verbose"),
)
# fmt: on
_GROUPS = {
    "Result": _RESULT,
    "Shapes and parts": _PARTS,
    "Quantized models": _QUANTIZATION,
    "Check": _CHECKING,
    "Inputs of the check": _CHECK_INPUTS,
    "Reports": _REPORTS,
    "Language models": _LLM,
    "Several models": _MANY,
    "Options": _OTHERS,
}
OPTIONS = tuple(replace(option, group=group) for group, options in _GROUPS.items() for option in options)
"""All rows, by group in the order of the help."""
ARGUMENTS: dict[str, Kind] = {
    "path": Place(),
    "models": Paths(),
    "directory": Folder(),
    "to": Choice("tflite", "onnx"),
    "on_conversion": Callback(),
    "code": Text(),
}
"""The arguments of the public functions that are not options."""


def options_of(*commands: str) -> list[Option]:
    """The rows of commands, by group."""
    return [option for option in OPTIONS if set(option.commands) & set(commands)]


def former_flags(command: str) -> dict[str, str]:
    """The flags of a command that have another name now, with this."""
    return {"--" + row.former.replace("_", "-"): row.flag for row in options_of(command) if row.former}


def kind_of(name: str) -> Kind:
    """The kind of an argument of the public functions."""
    found = next((option for option in OPTIONS if option.name == name and option.is_keyword), None)
    return ARGUMENTS[name] if found is None else found.kind
