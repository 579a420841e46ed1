"""The judgment of a criterion about an output: a verdict and its evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, get_args

CriterionName = Literal[
    "tolerance",
    "quantization-steps",
    "distribution",
    "near-ties",
    "float32-reference",
    "pre-activation",
    "rounding-noise",
    "op-by-op",
    "emulation-distance",
]
"""The criteria, in the order in which they judge."""
CRITERION_NAMES: tuple[str, ...] = get_args(CriterionName)


class Verdict(StrEnum):
    """The conclusion of a criterion; a rejection is final and overrides later criteria."""

    ACCEPT = "accept"
    REJECT = "reject"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Judgment:
    """The verdict of a criterion on one output.

    ``reason``: one line, may be "". ``evidence``: the measurements, by name.
    """

    criterion: CriterionName
    verdict: Verdict
    reason: str = ""
    evidence: Mapping[str, float] = field(default_factory=dict)

    @property
    def accepts(self) -> bool:
        return self.verdict is Verdict.ACCEPT

    @property
    def rejects(self) -> bool:
        return self.verdict is Verdict.REJECT
