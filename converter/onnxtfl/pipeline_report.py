"""The record of a conversion, from which reports are made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path

from onnxtfl.dataclass import dataclass
from onnxtfl.formats.onnx.state_metadata import StateEntry
from onnxtfl.ir.assumptions import Assumption
from onnxtfl.ir.budget import MACHINES, Gain
from onnxtfl.ir.record import Record
from onnxtfl.ir.signatures import Description
from onnxtfl.ir.summary import QuantizationSummary
from onnxtfl.passes.types.held_types import HeldType
from onnxtfl.rewriting.pass_manager import PassTiming


@dataclass
class Report:
    """The source and the result of a conversion.

    `ops_before`, `ops_after`: nodes by op. `passes`: time and node count of each pass. `record`: the target tensor of
    each source tensor, and the origin of each target op. `quantization`: which ops compute on integers or not, and why;
    None if nothing is quantized. `states`: those that became inputs and outputs. `kept_states`: tensors that the next
    run begins with, None if not requested. `other_signatures`: the entry points of the file that were not converted.
    `elements`: the tensors that each input and output of sequence or optional type became. `vectors`: inputs that
    replace maps. `unranked`: inputs of unknown rank. `complex_names`: complex inputs and outputs, as pairs.
    `source_size`: its bytes, None in memory. `dropped_metadata`: the parts of the source's metadata that are too large.
    `source_files`: the source's files with external data. `assumptions`: what has to be true of dynamic sizes.
    `io_types`: see `HeldType`. `custom_ops`: those of users. `opset`: ONNX's and why, if not the default. `float16`:
    which ops compute in it. `input_shapes`: those of all inputs, if the options have `dims`. `gains`: of rewrites that
    only save time. `not_loaded`: why the result was not loaded, although that was requested.
    """

    inputs: list[Description] = field(default_factory=list)
    outputs: list[Description] = field(default_factory=list)
    ops_before: dict[str, int] = field(default_factory=dict)
    ops_after: dict[str, int] = field(default_factory=dict)
    passes: list[PassTiming] = field(default_factory=list)
    record: Record = field(default_factory=Record)
    quantization: QuantizationSummary | None = None
    states: list[StateEntry] = field(default_factory=list)
    kept_states: list[str] | None = None
    other_signatures: list[str] = field(default_factory=list)
    elements: dict[str, tuple[str, ...]] = field(default_factory=dict)
    vectors: list[str] = field(default_factory=list)
    complex_names: list[str] = field(default_factory=list)
    source_size: int | None = None
    dropped_metadata: list[str] = field(default_factory=list)
    assumptions: list[Assumption] = field(default_factory=list)
    unranked: list[str] = field(default_factory=list)
    io_types: list[HeldType] = field(default_factory=list)
    source_files: tuple[Path, ...] = ()
    custom_ops: list[str] = field(default_factory=list)
    input_shapes: dict[str, tuple[int | str, ...]] = field(default_factory=dict)
    opset: str = ""
    float16: str = ""
    gains: list[Gain] = field(default_factory=list)
    not_loaded: str = ""

    def expected_gains(self) -> Iterator[tuple[str, int, dict[str, float], dict[str, float]]]:
        """For each rule: the number of rewrites, and the microseconds before and after them by kind of machine."""
        for rule in dict.fromkeys(gain.rule for gain in self.gains):
            gains = [gain for gain in self.gains if gain.rule == rule]
            before, after = _microseconds(gain.before for gain in gains), _microseconds(gain.after for gain in gains)
            yield rule, len(gains), before, after


def _microseconds(found: Iterable[tuple[float, ...]]) -> dict[str, float]:
    known = zip(*filter(None, found), strict=True)
    return {machine: sum(each) / 1000 for machine, each in zip(MACHINES, known, strict=False)}


def joined(reports: Mapping[str, Report]) -> Report:
    """One report on several entry points: inputs and outputs of the first one, ops of all."""
    first, *others = reports.values()
    ops = sum((Counter(report.ops_after) for report in others), Counter(first.ops_after))
    assumptions = list(dict.fromkeys(one for report in reports.values() for one in report.assumptions))
    return replace(first, ops_after=dict(ops), assumptions=assumptions)
