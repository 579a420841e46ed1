"""Quantization of TFLite models: from calibration data to a quantized file and the tolerance of its check."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from onnxtfl.errors import UsageError
from onnxtfl.formats import files
from onnxtfl.formats.tflite import writer as tflite_writer
from onnxtfl.formats.tflite.metadata import of_the_file
from onnxtfl.formats.tflite.reader import overwrite_entries
from onnxtfl.formats.tflite.schema import state_operands
from onnxtfl.inputs.calibrated import LEVELS, Calibrated
from onnxtfl.inputs.data_files import data_files, read_arrays
from onnxtfl.inputs.description import TensorInfo, describe
from onnxtfl.inputs.generation import make_input, numpy_type
from onnxtfl.inputs.ranges import input_ranges
from onnxtfl.inputs.samples import samples_of
from onnxtfl.inputs.sizes import open_shapes, shape_facts
from onnxtfl.inputs.spread import Sample, Spreads
from onnxtfl.ir import ops
from onnxtfl.ir.data import PathLike
from onnxtfl.ir.dims import differ
from onnxtfl.ir.graph import Graph, State, Value
from onnxtfl.ir.metadata import QUANTIZED
from onnxtfl.ir.model import Model
from onnxtfl.ir.quantized import is_real
from onnxtfl.ir.signatures import Description
from onnxtfl.ir.summary import FloatOp, QuantizationSummary
from onnxtfl.pipeline import lifted_where_possible
from onnxtfl.pipeline_report import Report
from onnxtfl.quantizing.images import Normalization, described, image_files, image_samples, require_pillow
from onnxtfl.rewriting.lift import count_ops
from onnxtfl.runtimes.quantizer import CALIBRATED, Divisor, Mode, Sensitive, quantize, version
from onnxtfl.targets.tflite import has_quantized_kernel, lowest_runtime

Calibration = PathLike | Iterable[Sample]
RANDOM = "random"
RANDOM_SAMPLES = 32
STORAGE: Mapping[Mode, str] = {"int8": "int8", "int16x8": "int16"}
"""Storage of activations; ops without a correct kernel for it stay float."""


@dataclass(frozen=True)
class Quantizing:
    """How to quantize: the mode, the calibration data of the user, and whether inputs and outputs stay float.

    `runtimes`: those whose kernels have to compute on the quantized tensors; other ops stay float. `mean`, `std`: by
    which images are normalized (`Normalization`); None: not at all.
    """

    mode: Mode
    calibration: Calibration | None
    float_io: bool
    runtimes: tuple[str, ...] = ("litert",)
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    def validate(self) -> None:
        """Raise `UsageError` for missing or needless calibration data, before anything is converted."""
        given = self.calibration is not None
        if self.mode not in LEVELS:
            raise UsageError(f"`quantize` cannot be {self.mode!r}", hint=f"use one of {', '.join(LEVELS)}")
        if self.mode in CALIBRATED and not given:
            raise UsageError(f"{self.mode} needs calibration data", code="E-QUANT-002")
        if self.mode not in CALIBRATED and given:
            raise UsageError(f"{self.mode} uses no calibration data", hint=f"only {' and '.join(CALIBRATED)} do")
        path = self.calibration
        if isinstance(path, str | os.PathLike) and path != RANDOM and not os.path.exists(path):
            raise UsageError(f"there is no calibration data at {os.fspath(path)}", code="E-QUANT-002")
        if self._images:
            require_pillow()
        elif self._normalization is not None:
            raise UsageError(
                "`mean` and `std` are for calibration images", hint="pass a folder of images (`calibration`)"
            )
        version()

    @property
    def _images(self) -> list[Path]:
        """The images of the calibration data."""
        path = self.calibration
        return image_files(path) if isinstance(path, str | os.PathLike) and path != RANDOM else []

    @property
    def _normalization(self) -> Normalization | None:
        if self.mean is None and self.std is None:
            return None
        return Normalization(self.mean or (0.0,), self.std or (1.0,))

    def run(self, model: Path, report: Report, seed: int) -> Sample | None:
        """Quantize the .tflite file `model` in place, and update its `report`.

        Returns a sample of the calibration data, if there are any.
        """
        read = files.read(model)
        infos, before = describe(model, read).inputs, count_ops(read.main)
        samples = self._samples(model, infos, seed)
        first = next(samples, None)
        spreads = Spreads()
        every = spreads.observed(samples if first is None else chain([first], samples))
        storage = STORAGE.get(self.mode)
        kept = [
            name for name in before if storage is not None and not has_quantized_kernel(name, storage, self.runtimes)
        ]
        names, graphs = [info.name for info in infos], list(_entered(model))
        states = [v.name or "" for v in state_values(read.main)]
        sensitive = Sensitive(
            [one for graph in graphs for one in divisors(graph)],
            [one for graph in graphs for one in exponents(graph)],
            [*(name for graph in graphs for name in unsupported(graph)), *states],
        )
        quantize(model, self.mode, names, every, float_io=self.float_io, float_ops=kept, sensitive=sensitive)
        read = _written_anew(model, read, {QUANTIZED: Calibrated(self.mode, spreads.by_input()).to_json()})
        overwrite_entries(model, of_the_file(lowest_runtime(read.main)))
        made = describe(model, read)
        report.ops_after = count_ops(read.main)
        report.inputs = _retyped(report.inputs, made.inputs)
        report.outputs = _retyped(report.outputs, made.outputs)
        report.quantization = _summary(read.main)
        return first

    @property
    def advice(self) -> str | None:
        """The advice if the quantized model differs too much from the float one."""
        finer = {"int8": "int16x8 or dynamic", "int16x8": "dynamic", "dynamic": "float16"}.get(self.mode)
        return finer and f"{finer} is more precise, and so may be other calibration data"

    def _samples(self, model: Path, infos: Sequence[TensorInfo], seed: int) -> Iterator[Sample]:
        data = self.calibration
        if data is None:
            return iter(())
        if data == RANDOM:
            return random_samples(model, infos, seed)
        if images := self._images:
            return _checked(image_samples(images, infos, self._normalization), infos)
        return read_samples(data, infos) if isinstance(data, str | os.PathLike) else _checked(data, infos)


def _written_anew(path: Path, source: Model, properties: Mapping[str, str]) -> Model:
    """Write the quantized file again with the package's writer, with the archive of its `source` and `properties`;
    return it.

    The library drops data after the model, and stores weights of 256 KB and more there, where TFLite Micro does not
    read them.
    """
    made, out = files.read(path), path.with_name(path.name + ".written")
    made.metadata.files = source.metadata.files
    made.metadata.properties |= properties
    known = {state.input for state in made.main.states}
    written = [v for v in state_values(made.main) if v not in known and v.producer is not None]
    made.main.states += [State(value, value) for value in written]
    try:
        with out.open("w+b") as file:
            tflite_writer.write(made, file)
        os.replace(out, path)
    finally:
        out.unlink(missing_ok=True)
    return files.read(path)


def state_values(graph: Graph) -> list[Value]:
    """The states of the kernels of a tfl `graph`: tensors that are variables, also if an op writes them."""
    found = []
    for node in graph.walk():
        places = state_operands(node.op.name_in_file, len(node.operands))
        found += [value for i in places if (value := node.optional(i)) is not None]
    return found


def _entered(model: Path) -> Iterator[Graph]:
    """The lifted graph of each entry point of a .tflite."""
    for signature in files.read(model).signatures:
        entered = files.read(model)
        entered.enter(signature.key)
        yield lifted_where_possible(entered)


def unsupported(graph: Graph) -> list[str]:
    """The names of results whose ops litert-quantizer writes such that they do not run, or fails on.

    Products of a constant and a matrix, and ops that move elements of a constant of fewer axes than their result has.
    """
    found = []
    for node in graph.walk():
        moved = node.moved_operands if len(node.results) == 1 else []
        constants = [v for v in moved if v.is_constant and v.dtype.is_float]
        product = node.op is ops.DotGeneral and node.operand(0).is_constant
        if product or (len(moved) > 1 and any(v.rank != node.result.tensor_type.rank for v in constants)):
            found.append(node.result.name or "")
    return found


def divisors(graph: Graph) -> list[Divisor]:
    """The divisors, such as the root of a variance in the decomposition of a layer normalization."""
    places = {ops.Div: 1, ops.Rsqrt: 0}
    values = [node.optional(places[node.op]) for node in graph.walk() if node.op in places]
    return [_divisor(v) for v in values if v is not None and not v.is_constant and v.dtype.is_float]


def _divisor(value: Value) -> Divisor:
    """`value`, and the tensors of which it is the root, the sum with a constant, or the mean of squares."""
    checked, node = [value.name or ""], value.producer
    while node is not None and (node.op in (ops.Sqrt, ops.Add, ops.Reduce) or node.op.moves):
        sources = [v for v in node.operands[:2] if v is not None and not v.is_constant]
        if len(sources) != 1:
            break
        source = sources[0]
        if node.op is ops.Reduce:
            squared = source.producer.operands if source.producer is not None else []
            names = [source.name or "", *(v.name or "" for v in squared if v is not None)]
            return {"checked": checked, "others": list(dict.fromkeys(names))}
        checked.append(source.name or "")
        node = source.producer
    return {"checked": checked, "others": []}


def exponents(graph: Graph) -> list[list[str]]:
    """The names of each operand of a Softmax, and of the tensors from which it is moved."""
    found = []
    for node in graph.walk():
        if node.op in (ops.Softmax, ops.LogSoftmax):
            names, value = [node.operand(0).name or ""], node.operand(0)
            while value.producer is not None and value.producer.op.moves == slice(0, 1):
                value = value.producer.operand(0)
                names.append(value.name or "")
            found.append(names)
    return found


def random_samples(model: Path, infos: Sequence[TensorInfo], seed: int) -> Iterator[Sample]:
    """Yield plausible inputs for the model from a seed, as the check generates them."""
    graph = lifted_where_possible(files.read(model))
    ranges = input_ranges(graph)
    shapes = next(iter(open_shapes(infos, {}, shape_facts(graph))))
    for sample in range(RANDOM_SAMPLES):
        yield {
            info.name: make_input(info, shape, ranges.get(info.name), (seed, sample, k))[0]
            for k, (info, shape) in enumerate(zip(infos, shapes, strict=True))
        }


def read_samples(path: PathLike, infos: Sequence[TensorInfo]) -> Iterator[Sample]:
    """Yield the samples of an .npz file, or of all in a directory, in the order of their names.

    An array is named as its input, or by its position ("arr_0"); it has the shape of the input, or an additional
    leading axis of samples.
    """
    ranks = {info.name: len(info.shape) for info in infos if info.shape is not None}
    positions = {f"arr_{k}": info.name for k, info in enumerate(infos)}
    for file in data_files(path, "E-QUANT-002"):
        arrays = {positions.get(name, name): array for name, array in read_arrays(file, "E-QUANT-002").items()}
        yield from _checked(samples_of(arrays, ranks), infos)


def _checked(samples: Iterable[Sample], infos: Sequence[TensorInfo]) -> Iterator[Sample]:
    """Yield the samples with the types of the inputs. Raises `UsageError` for other names and shapes."""
    for sample in samples:
        if sample.keys() != {info.name for info in infos}:
            raise UsageError(
                f"calibration data for {sorted(sample)}", hint=f"expected: {described(infos)}", code="E-QUANT-002"
            )
        arrays = {name: np.asarray(value) for name, value in sample.items()}
        for info in infos:
            shape = arrays[info.name].shape
            fits = info.shape is None or (len(shape) == len(info.shape) and not any(map(differ, shape, info.shape)))
            if not fits:
                message = f"calibration data of shape {list(shape)} for the input {info.name!r}"
                raise UsageError(message, hint=f"expected: {described(infos)}", code="E-QUANT-002")
        yield {info.name: arrays[info.name].astype(numpy_type(info.dtype), copy=False) for info in infos}


def _summary(graph: Graph) -> QuantizationSummary:
    """The types on which ops of a quantized tfl `graph` compute; ops that only move elements are counted too."""
    integer, hybrid, floats = Counter[str](), Counter[str](), list[FloatOp]()
    for node in graph.walk():
        name, changing = node.op.name_in_file, node.present_operands
        weights = any(v.is_quantized for v in changing if v.is_constant)
        changing = [v for v in changing if not v.is_constant]
        if any(is_real(v.type) for v in changing) and any(is_real(v.type) for v in node.results):
            if weights:
                hybrid[name] += 1
            else:
                target = node.results[0].name or ""
                floats.append(FloatOp(name, target, (target,), name, False, "it is not quantized"))
        elif any(v.is_quantized for v in changing) and any(v.is_quantized for v in node.results):
            integer[name] += 1
    return QuantizationSummary(dict(integer.most_common()), dict(hybrid.most_common()), tuple(floats))


def _retyped(before: Sequence[Description], infos: Sequence[TensorInfo]) -> list[Description]:
    dtypes = {info.name: info.dtype for info in infos}
    return [(name, dtypes.get(name, dtype), shape) for name, dtype, shape in before]
