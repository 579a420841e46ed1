"""Benchmark onnx2tfl and onnxtfl check: time and peak memory of whole processes, and the latency of converted models.

    python tools/bench.py                   all benchmarks, medians of three runs (ten minutes on an idle machine)
    python tools/bench.py --thorough        growth of models five times as large (an hour)
    python tools/bench.py --only resnet50 chain --runs 5
    python tools/bench.py --no-latency --strict
    python tools/bench.py --only mobilenet_v2_qdq    a quantized model of ../shared/corpus or $ONNXTFL_CORPUS
    python tools/bench.py --large           also 2.88 GB with external data, there and back (needs 9 GB for a while)
    python tools/bench.py --decoder         also a decoder of 1.1 billion 4-bit weights (needs 2.6 GB for a while)
    python tools/bench.py --others venv/bin/python   also the converters that are installed there, side by side

Each conversion alternates with `cp --reflink=never` of the same file and `python -c "import onnx, numpy, flatbuffers"`,
so that other load on the machine affects all three. Peak memory is VmHWM, which the process reads before it ends (a
child's ru_maxrss includes its parent's peak). Latency is that of LiteRT (XNNPACK) on the result and of ONNX Runtime on
the source, in alternating processes with 2 threads each. --page also writes the figures as a documentation page.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from bench_others import Other, installed
from bench_page import Figure, page
from float_twin import float_twin
from make_decoders import SIZES, Decoder
from make_models import MODELS
from quantized_twin import dynamic_twin, quantized_twin

_SIZES = {"chain_5000": ("chain", 5000), "chain_10000": ("chain", 10000)}
_GROWING = {
    "split": 20_000,
    "concat": 12_000,
    "chain": 20_000,
    "copies": 4_000,
    "maximum": 4_000,
    "readers": 4_000,
    "inputs": 4_000,
}
"""Models of N outputs, operands, nodes, readers or inputs; their conversion, in either direction, may take at most 2.2
times as long as with N / 2."""
_QUANTIZED = {
    "mobilenet_v2_qdq_int8_pc": 1.5,
    "resnet18_qdq_int8_sym_pertensor": 1.5,
    "resnet18_qop": 0.0,
    "efficientnet_b0_qdq_uint8": 0.0,
    "vgg_qdq_int16act": 0.0,
}
"""Quantized CNNs of the corpus, and the minimum speedup over their float originals (0: not compared)."""
_RECURRENT = ("lstm_h128_dynamo", "gru_uni1")
"""Recurrent layers of the corpus: an LSTM of 128 cells and a GRU of 256, over 25 steps."""
_TWINS, _MADE = ("audio_conv1d",), ("resnet50",)
"""Float networks that ONNX Runtime's quantizer quantizes: of the corpus to QDQ; made ones without the results of
products, and at run time."""
_THOROUGH = 5
"""The factor of these sizes with --thorough."""
_REWRITTEN = (
    "vit_tiny",
    "whisper_encoder",
    "detr_slim",
    "ssd_blazeface",
    "segformer_b0_fp16",
    "densenet",
    "diffusion_unet_dynamo",
    "gridsample_stn",
    "vnet3d_convtranspose3d",
    "espcn_pixelshuffle",
    "gridsample_flow_border_dynamo",
    "resize_align_corners",
)
"""Models of the corpus that rewrites for XNNPACK change: attentions, first tokens, heads of detectors, normalizations,
long concatenations, resampling, convolutions over three axes and transposed ones, to few features, over odd sizes.
"""
_CORPUS = Path(os.environ.get("ONNXTFL_CORPUS", Path(__file__).resolve().parents[2] / "shared" / "corpus")) / "onnx"
_LATENCY = ("resnet50", "mobilenet_v2", "bert_base", "pyramid_pools", "box_classes")
_CHECKED = ("resnet50", "bert_base", "bert_base_plus")
_CONVERTED = ("mobilenet_v2", "resnet50", "bert_base", "bert_base_plus", "chain_5000", "chain_10000")
_LARGE = "linear_layers"
_BESIDE = ("mobilenet_v2", "resnet50", "bert_base")
_MB = 1 << 20
_PEAK = """
import sys
def peak():
    with open("/proc/self/status") as status:
        return next(line.split()[1] for line in status if line.startswith("VmHWM"))
def write_peak():
    with open(sys.argv[1], "w") as out:
        out.write(peak())
"""
_PEAK_OF_CHILD = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[2:], check=False).returncode
with open(sys.argv[1], "w") as out:
    out.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(code)
"""
_IMPORTS = _PEAK + "import onnx, numpy, flatbuffers\nwrite_peak()\n"
_COMMAND = _PEAK + (
    "from onnxtfl.cli import {0} as command\n"
    "path = sys.argv[1]\nsys.argv = ['{0}', *sys.argv[2:]]\n"
    "try:\n    command()\nfinally:\n    sys.argv[1:] = [path]\n    write_peak()\n"
)
_CONVERT = _COMMAND.format("onnx2tfl")
_BACK = _COMMAND.format("tfl2onnx")
_CHECK = _COMMAND.format("main")
_LITERT_LATENCY = """
import sys, time, json, statistics
import numpy as np
from ai_edge_litert.interpreter import Interpreter
model = Interpreter(sys.argv[1], num_threads=2)
model.allocate_tensors()
random = np.random.default_rng(0)
for d in model.get_input_details():
    kind = np.dtype(d["dtype"]).kind
    value = random.random(d["shape"]) if kind == "f" else np.ones(d["shape"])
    model.set_tensor(d["index"], value.astype(d["dtype"]))
def run():
    model.invoke()
"""
_ORT_LATENCY = """
import sys, time, json, statistics
import numpy as np
import onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 2
model = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
random = np.random.default_rng(0)
sizes = {i.name: [d if isinstance(d, int) else 1 for d in i.shape] for i in model.get_inputs()}
fed = {i.name: random.random(sizes[i.name]).astype("f") if "float" in i.type else np.ones(sizes[i.name], "int64")
       for i in model.get_inputs()}
def run():
    model.run(None, fed)
"""
_ONE_RUN = "run()\n"
_TIME = """
for _ in range(3):
    run()
times = []
begin = time.perf_counter()
while len(times) < 5 or (time.perf_counter() - begin < 1 and len(times) < 5000):
    start = time.perf_counter()
    run()
    times.append(time.perf_counter() - start)
print(json.dumps(statistics.median(times)))
"""


@dataclass
class Series:
    """Wall time (s), CPU time (s) and peak memory (bytes) of each run of one command."""

    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    peaks: list[int] = field(default_factory=list)

    @property
    def wall(self) -> float:
        """Median wall seconds."""
        return statistics.median(self.seconds)

    @property
    def peak(self) -> float:
        """Median peak memory in MB."""
        return statistics.median(self.peaks or [0]) / _MB


class FailedError(Exception):
    """A measured command failed; the message has the command and its output."""


class Bench:
    """A benchmark run: the folder of generated files, the figures, and the names of those that exceed their limit."""

    def __init__(self, folder: Path, runs: int) -> None:
        self.folder = folder
        self.runs = runs
        self.exceeded: list[str] = []
        self.figures: list[Figure] = []
        self.section = ""

    def begin(self, section: str, rule: str) -> None:
        """Start a section: print its title and the rule for its limits."""
        self.section = section
        print(f"{section}: {rule}")

    def source(self, name: str) -> Path:
        """The path of a generated model; the first call writes the file."""
        path = self.folder / f"{name}.onnx"
        if not path.exists():
            stem, _, count = name.rpartition("_")
            model, nodes = (stem, int(count)) if stem in _GROWING else (name, 0)
            network = MODELS[model](nodes) if nodes else MODELS[model]()
            partial = path.with_suffix(".partial")
            network.write(partial)
            partial.replace(path)
        return path

    def alternate(self, *commands: Callable[[Series], None]) -> list[Series]:
        """Run the commands alternately, `runs` times each."""
        found = [Series() for _ in commands]
        for _ in range(self.runs):
            for command, series in zip(commands, found, strict=True):
                command(series)
        return found

    def process(self, code: str, *arguments: str) -> Callable[[Series], None]:
        """A command that runs Python code, which writes its peak memory to the file named by its first argument."""
        peak = self.folder / "peak.txt"

        def run(series: Series) -> None:
            _timed([sys.executable, "-c", code, str(peak), *arguments], series)
            series.peaks.append(int(peak.read_text()) * 1024)

        return run

    def convert(
        self, source: Path, target: Path, check: bool = False, code: str = _CONVERT
    ) -> Callable[[Series], None]:
        """A command that converts a file with onnx2tfl or tfl2onnx (`code`), by default with --no-check --no-load."""
        run = self.process(code, str(source), "-o", str(target), *([] if check else ["--no-check", "--no-load"]))

        def convert_anew(series: Series) -> None:
            target.unlink(missing_ok=True)
            run(series)

        return convert_anew

    def copy(self, source: Path) -> Callable[[Series], None]:
        """A command that copies a file (no reflink)."""
        target = self.folder / "copy.bin"

        def run(series: Series) -> None:
            target.unlink(missing_ok=True)
            _timed(["cp", "--reflink=never", str(source), str(target)], series)

        return run

    def failed(self, label: str, error: FailedError) -> None:
        """Print and record a failed measurement."""
        self.exceeded.append(label)
        print(f"  {label:15} FAILED: {error}", flush=True)

    def check(self, label: str, value: float, limit: float, unit: str) -> str:
        """The text of a value and its limit. Records the figure, and its name if it exceeds the limit."""
        self.figures.append(Figure(self.section, label, value, limit, unit))
        if value > limit:
            self.exceeded.append(label)
        return f"{value:.2f} {unit} (limit {limit:.2f}{'' if value <= limit else ', EXCEEDED'})"


def main() -> int:
    """Return exit code 1 with --strict if a limit is exceeded."""
    options = _options()
    folder = options.dir or Path(tempfile.mkdtemp(prefix="onnxtfl-bench-"))
    folder.mkdir(parents=True, exist_ok=True)
    bench = Bench(folder, options.runs)
    _keep_bytecode(folder)
    try:
        _warm_up(bench)
        _conversions(bench, [name for name in _CONVERTED if _wanted(name, options)])
        if options.large:
            _large(bench)
        if options.decoder:
            _decoder(bench)
        if options.others is not None:
            _beside(bench, options.others, [name for name in _BESIDE if _wanted(name, options)])
        _growth(bench, [name for name in _GROWING if _wanted(name, options)], _THOROUGH if options.thorough else 1)
        _checks(bench, [name for name in _CHECKED if _wanted(name, options)])
        _checked_conversions(bench, [name for name in _CHECKED if _wanted(name, options)])
        _start(bench)
        if not options.no_latency:
            models = {name: bench.source(name) for name in _LATENCY if _wanted(name, options)}
            _latencies(bench, "2 threads", models, 1.0)
            if _CORPUS.exists():
                layers = {name: _CORPUS / name / "model.onnx" for name in _RECURRENT if _wanted(name, options)}
                _latencies(bench, "recurrent", layers, 1.2)
                rewritten = {name: _CORPUS / name / "model.onnx" for name in _REWRITTEN if _wanted(name, options)}
                _latencies(bench, "rewrites", rewritten, 1.2)
                twins = {f"{name}_qdq": _twin(bench, name) for name in _TWINS if _wanted(name, options)}
                for name in (name for name in _MADE if _wanted(name, options)):
                    twins |= {
                        f"{name}_operands": _operands_twin(bench, name),
                        f"{name}_dynamic": _dynamic_twin(bench, name),
                    }
                _latencies(bench, "quantized by ONNX Runtime", twins, 1.2)
                _quantized_latencies(bench, [name for name in _QUANTIZED if _wanted(name, options)])
    finally:
        if not options.dir:
            shutil.rmtree(folder, ignore_errors=True)
    if options.page:
        options.page.write_text(page(bench.figures, options.runs), encoding="utf-8")
    print(f"\nlimits exceeded: {', '.join(bench.exceeded) or 'none'}")
    return int(bool(options.strict and bench.exceeded))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="models whose name begins with NAME")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--thorough", action="store_true", help="measure growth on larger models")
    parser.add_argument("--dir", type=Path, help="folder that keeps the generated files (1.5 GB)")
    parser.add_argument("--no-latency", action="store_true")
    parser.add_argument("--large", action="store_true", help="also a model of 2.88 GB")
    parser.add_argument("--decoder", action="store_true", help="also a decoder of 1.1 billion weights")
    parser.add_argument("--others", type=Path, metavar="PYTHON", help="an interpreter with other converters")
    parser.add_argument("--page", type=Path, help="write the figures to this file, as a page of the documentation")
    parser.add_argument("--strict", action="store_true", help="exit code 1 if a limit is exceeded")
    return parser.parse_args()


def _keep_bytecode(folder: Path) -> None:
    """Let the measured processes use cached bytecode, as those of an installed package do."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")


def _warm_up(bench: Bench) -> None:
    """Compile the modules that the measured processes import."""
    source, result = bench.source("chain_50"), _target(bench, "chain_50")
    for run in (bench.process(_IMPORTS), bench.convert(source, result, check=True), bench.process(_BACK, "--help")):
        run(Series())


def _wanted(name: str, options: argparse.Namespace) -> bool:
    return not options.only or any(name.startswith(start) for start in options.only)


def _timed(command: Sequence[str], series: Series) -> None:
    """Run a command and add its wall and CPU time to `series`. Raises FailedError with its output if it fails."""
    started, used = time.perf_counter(), _used()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    series.seconds.append(time.perf_counter() - started)
    series.cpu.append(_used() - used)
    if done.returncode:
        raise FailedError(f"{' '.join(command[-4:])}\n{done.stdout[-1000:]}{done.stderr[-2000:]}")


def _used() -> float:
    """The CPU seconds of all child processes so far, which other load affects less than wall time."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _conversions(bench: Bench, names: Sequence[str]) -> None:
    limits = "wall at most 4 imports (and 3 for each 1,000 nodes of a chain) + 6 cp"
    bench.begin("conversion", f"{limits}, peak memory at most the import's + 100 MB")
    walls = {}
    for name in names:
        try:
            walls[name] = _conversion(bench, name)
        except FailedError as error:
            bench.failed(name, error)
    if walls.keys() >= _SIZES.keys():
        ratio = walls["chain_10000"] / walls["chain_5000"]
        print(f"  10,000 nodes over 5,000: {bench.check('growth', ratio, 2.4, 'times')}")


def _growth(bench: Bench, names: Sequence[str], factor: int) -> None:
    bench.begin("growth", "CPU at most 2.2 times that of half as many outputs, operands, nodes, readers or inputs")
    for name in names:
        stems = [f"{name}_{size}" for size in (_GROWING[name] * factor // 2, _GROWING[name] * factor)]
        results = [_target(bench, stem) for stem in stems]
        back = [bench.folder / f"{stem}.back.onnx" for stem in stems]
        directions = [
            (f"{name} growth", _CONVERT, [bench.source(stem) for stem in stems], results),
            (f"{name} growth back", _BACK, results, back),
        ]
        for label, code, sources, targets in directions:
            try:
                _growth_ratio(
                    bench, label, [bench.convert(*pair, code=code) for pair in zip(sources, targets, strict=True)]
                )
            except FailedError as error:
                bench.failed(label, error)
                break


def _growth_ratio(bench: Bench, label: str, commands: Sequence[Callable[[Series], None]]) -> None:
    """Measure and print the ratio of the CPU times of two commands (small, large), both without the imports."""
    imports, *runs = bench.alternate(bench.process(_IMPORTS), *commands)
    small, large = (statistics.median(run.cpu) - statistics.median(imports.cpu) for run in runs)
    print(f"  {label:22} {bench.check(label, large / small, 2.2, 'times')}; CPU {large:.2f} s", flush=True)


def _conversion(bench: Bench, name: str) -> float:
    """Measure and print the conversion of one model. Returns its wall time in seconds."""
    source = bench.source(name)
    commands = (bench.process(_IMPORTS), bench.copy(source), bench.convert(source, _target(bench, name)))
    imports, copy, conversion = bench.alternate(*commands)
    thousands = _SIZES[name][1] / 1000 if name in _SIZES else 0
    limit = (4 + 3 * thousands) * imports.wall + 6 * copy.wall
    print(
        f"  {name:15} {source.stat().st_size / _MB:6.0f} MB: "
        f"{bench.check(f'{name} wall', conversion.wall, limit, 's')}, "
        f"{bench.check(f'{name} memory', conversion.peak, imports.peak + 100, 'MB')}; "
        f"import {imports.wall:.2f} s {imports.peak:.0f} MB, cp {copy.wall:.3f} s; "
        f"CPU {statistics.median(conversion.cpu):.2f} s, import {statistics.median(imports.cpu):.2f} s",
        flush=True,
    )
    return conversion.wall


def _large(bench: Bench) -> None:
    """Measure and print the conversion of a model that a protobuf message cannot hold, in both directions."""
    bench.begin("large model", "there and back at most 4 imports + 6 cp each, peak memory the import's + 100 MB")
    source, result, back = bench.source(_LARGE), _target(bench, _LARGE), bench.folder / f"{_LARGE}.back.onnx"
    conversions = [bench.convert(source, result), bench.convert(result, back, code=_BACK)]
    commands = (bench.process(_IMPORTS), bench.copy(source.with_suffix(".data")), *conversions)
    try:
        imports, copy, *runs = bench.alternate(*commands)
    except FailedError as error:
        bench.failed(_LARGE, error)
        return
    for label, run in zip(("to TFLite", "back"), runs, strict=True):
        wall = bench.check(f"{label} wall", run.wall, 4 * imports.wall + 6 * copy.wall, "s")
        memory = bench.check(f"{label} memory", run.peak, imports.peak + 100, "MB")
        print(f"  {label:15} {wall}, {memory}; import {imports.wall:.2f} s, cp {copy.wall:.2f} s", flush=True)


def _decoder(bench: Bench) -> None:
    """Measure and print the conversion of a decoder with 4-bit weights to a .litertlm with four signatures."""
    bench.begin("decoder", "wall at most an import + 3 cp, peak memory the import's + 150 MB")
    source, target = bench.folder / "decoder" / "model.onnx", bench.folder / "decoder.litertlm"
    if not source.exists():
        Decoder(SIZES["large"]).write(source)
    arguments = (str(source), "--llm", "-o", str(target), "--no-check", "--prefill", "32,128,1024")
    commands = (bench.copy(source.with_suffix(".onnx.data")), bench.process(_CONVERT, *arguments))
    try:
        imports, copy, conversion = bench.alternate(bench.process(_IMPORTS), *commands)
    except FailedError as error:
        bench.failed("decoder", error)
        return
    wall = bench.check("decoder wall", conversion.wall, imports.wall + 3 * copy.wall, "s")
    memory = bench.check("decoder memory", conversion.peak, imports.peak + 150, "MB")
    cpu = statistics.median(conversion.cpu)
    print(f"  {'decoder':15} {wall}, {memory}; import {imports.wall:.2f} s, cp {copy.wall:.2f} s; CPU {cpu:.2f} s")


def _beside(bench: Bench, python: Path, names: Sequence[str]) -> None:
    """Measure and print time and memory of conversions, and the latency of results, over those of other converters."""
    bench.begin("side by side", "wall time and memory of onnx2tfl, and latency of its result, over those of others")
    for name in names:
        source, target = bench.source(name), _target(bench, name)
        for other in installed(python):
            theirs, back = bench.folder / f"{name}.{other.name}", bench.folder / f"{name}.back.onnx"
            own = bench.convert(target, back, code=_BACK) if other.back else bench.convert(source, target)
            try:
                if not target.exists():
                    bench.convert(source, target)(Series())
                theirs_of = _converted(other, python, target if other.back else source, theirs)
                ours, made = bench.alternate(own, theirs_of)
                _compared(bench, f"{name} {other.name}", ours, made, other, target, theirs)
            except FailedError as error:
                print(f"  {name:15} {other.name} failed: {str(error)[-300:]}", flush=True)


def _converted(other: Other, python: Path, source: Path, folder: Path) -> Callable[[Series], None]:
    """A command that converts a file with another converter, to a folder."""

    def run(series: Series) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        peak = folder / "peak.txt"
        _timed([str(python), "-c", _PEAK_OF_CHILD, str(peak), *other.command(python, source, folder)], series)
        series.peaks.append(int(peak.read_text()) * 1024)

    return run


def _compared(bench: Bench, label: str, ours: Series, made: Series, other: Other, target: Path, folder: Path) -> None:
    """Print and record the ratios of two conversions and of the latencies of their results."""
    texts = [bench.check(f"{label} wall", ours.wall / made.wall, 1.0, "times")]
    texts.append(bench.check(f"{label} memory", ours.peak / made.peak, 1.0, "times"))
    if (result := other.result(folder)) is not None:
        runs = bench.alternate(_latency(_LITERT_LATENCY, target), _latency(_LITERT_LATENCY, result))
        texts.append(bench.check(f"{label} latency", runs[0].wall / runs[1].wall, 1.0, "times"))
    print(f"  {label:32} {', '.join(texts)}; {made.wall:.2f} s, {made.peak:.0f} MB", flush=True)


def _checks(bench: Bench, names: Sequence[str]) -> None:
    """Measure and print memory and time of `onnxtfl check` on already converted models."""
    limits = "peak memory of its own process at most the import's + 100 MB"
    bench.begin("check", f"{limits}; of 500 MB, wall at most 1.3 times what both runtimes need to load and run once")
    for name in names:
        source, target = bench.source(name), _target(bench, name)
        commands = [bench.process(_IMPORTS), bench.process(_CHECK, "check", str(source), str(target))]
        try:
            imports, checked, *runtimes = bench.alternate(
                *commands, _once(_ORT_LATENCY, source), _once(_LITERT_LATENCY, target)
            )
        except FailedError as error:
            bench.failed(f"{name} check", error)
            continue
        memory = bench.check(f"{name} check memory", checked.peak, imports.peak + 100, "MB")
        wall = f"{checked.wall:.2f} s"
        if source.stat().st_size > 500 * _MB:
            wall = bench.check(f"{name} check wall", checked.wall, 1.3 * sum(run.wall for run in runtimes), "s")
        own = f"ONNX Runtime {runtimes[0].wall:.2f} s, LiteRT {runtimes[1].wall:.2f} s"
        print(f"  {name:15} {memory}, {wall}; {own}", flush=True)


def _checked_conversions(bench: Bench, names: Sequence[str]) -> None:
    """Measure and print the time that the check adds to a conversion, next to that of both runtimes alone."""
    bench.begin("checked conversion", "wall at most that of --no-check + 1.2 times the slower runtime's load and run")
    for name in names:
        source, target, checked = bench.source(name), _target(bench, name), bench.folder / f"{name}.checked.tflite"
        commands = [bench.convert(source, checked), bench.convert(source, checked, check=True)]
        commands += [_once(_ORT_LATENCY, source), _once(_LITERT_LATENCY, target)]
        try:
            plain, checked_run, *runtimes = bench.alternate(*commands)
        except FailedError as error:
            bench.failed(f"{name} checked", error)
            continue
        slower = max(runtime.wall for runtime in runtimes)
        wall = bench.check(f"{name} checked wall", checked_run.wall, plain.wall + 1.2 * slower, "s")
        own = f"conversion {plain.wall:.2f} s, ONNX Runtime {runtimes[0].wall:.2f} s, LiteRT {runtimes[1].wall:.2f} s"
        print(f"  {name:15} {wall}; {own}; own process {checked_run.peak:.0f} MB", flush=True)


def _once(code: str, model: Path) -> Callable[[Series], None]:
    """A process that imports a runtime, loads a model and runs it once."""
    return lambda series: _timed([sys.executable, "-c", code + _ONE_RUN, str(model)], series)


def _start(bench: Bench) -> None:
    bench.begin("start", "onnx2tfl --help takes at most one import")
    try:
        imports, usage = bench.alternate(bench.process(_IMPORTS), bench.process(_CONVERT, "--help"))
    except FailedError as error:
        bench.failed("--help", error)
        return
    print(f"  onnx2tfl --help: {bench.check('--help', usage.wall, imports.wall, 's')}")


def _latencies(bench: Bench, title: str, sources: Mapping[str, Path], limit: float) -> None:
    """Measure and print the ratio of latencies, LiteRT on the result to ONNX Runtime on the source, for each source."""
    bench.begin(f"\nlatency, {title}", "LiteRT on the result over ONNX Runtime on the source")
    for name, source in sources.items():
        target = _target(bench, name)
        try:
            if not target.exists():
                bench.convert(source, target)(Series())
            source_run, result_run = bench.alternate(_latency(_ORT_LATENCY, source), _latency(_LITERT_LATENCY, target))
        except FailedError as error:
            bench.failed(f"{name} latency", error)
            continue
        ratio = bench.check(f"{name} latency", result_run.wall / source_run.wall, limit, "times")
        times = (f"{1000 * run.wall:8.3f} ms" for run in (result_run, source_run))
        print(f"  {name:32} {' over '.join(times)}: {ratio}", flush=True)


def _quantized_latencies(bench: Bench, names: Sequence[str]) -> None:
    rule = "LiteRT on the result over ONNX Runtime on the source, and over the float original"
    bench.begin("\nlatency, quantized", rule)
    for name in names:
        source, target = _CORPUS / name / "model.onnx", _target(bench, name)
        try:
            bench.convert(source, target)(Series())
            runs = [_latency(_ORT_LATENCY, source), _latency(_LITERT_LATENCY, target)]
            if _QUANTIZED[name]:
                runs.append(_latency(_LITERT_LATENCY, _float_result(bench, name, source)))
            source_run, result_run, *float_runs = bench.alternate(*runs)
        except FailedError as error:
            bench.failed(f"{name} latency", error)
            continue
        ratio = bench.check(f"{name} latency", result_run.wall / source_run.wall, 1.2, "times")
        text = f"  {name:32} {1000 * result_run.wall:6.2f} ms over {1000 * source_run.wall:6.2f} ms: {ratio}"
        for run in float_runs:
            share = bench.check(f"{name} float", result_run.wall / run.wall, 1 / _QUANTIZED[name], "times")
            text += f"; float {1000 * run.wall:.2f} ms: {share}"
        print(text, flush=True)


def _twin(bench: Bench, name: str) -> Path:
    """The path of a float model of the corpus that ONNX Runtime quantized."""
    path = bench.folder / f"{name}_qdq.onnx"
    quantized_twin(_CORPUS / name / "model.onnx", path)
    return path


def _operands_twin(bench: Bench, name: str) -> Path:
    """The path of a made model of which ONNX Runtime quantized the operands of products, not their results."""
    path = bench.folder / f"{name}_operands.onnx"
    quantized_twin(bench.source(name), path, results=False)
    return path


def _dynamic_twin(bench: Bench, name: str) -> Path:
    """The path of a made model that ONNX Runtime quantized, activations at run time."""
    path = bench.folder / f"{name}_dynamic.onnx"
    dynamic_twin(bench.source(name), path)
    return path


def _float_result(bench: Bench, name: str, source: Path) -> Path:
    """The path of the converted float original of a quantized model."""
    twin, target = bench.folder / f"{name}_float.onnx", _target(bench, f"{name}_float")
    float_twin(source, twin)
    bench.convert(twin, target)(Series())
    return target


def _latency(code: str, model: Path) -> Callable[[Series], None]:
    def run(series: Series) -> None:
        done = subprocess.run(
            [sys.executable, "-c", code + _TIME, str(model)], capture_output=True, text=True, check=False,
            env={**os.environ, "OMP_NUM_THREADS": "2"},
        )  # fmt: skip
        if done.returncode:
            raise FailedError(f"{model}\n{done.stderr[-2000:]}")
        series.seconds.append(json.loads(done.stdout.splitlines()[-1]))

    return run


def _target(bench: Bench, name: str) -> Path:
    return bench.folder / f"{name}.tflite"


if __name__ == "__main__":
    sys.exit(main())
