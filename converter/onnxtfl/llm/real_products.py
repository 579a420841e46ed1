"""A copy of a converted decoder in which no kernel rounds activations: evidence for one that chooses by rounded values.

A decoder that routes tokens to experts computes something else where rounding swaps two experts with nearly equal
scores, so a few steps of a correct result are far from the source.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from onnxtfl.checking.evidence import CriterionName, Judgment, Verdict
from onnxtfl.ir.data import Array
from onnxtfl.llm.decoders import Decoder
from onnxtfl.llm.entries import Entries
from onnxtfl.llm.signatures import decoder_to_tflite
from onnxtfl.options import Options
from onnxtfl.tracing.parts import temporary_directory

CRITERION: CriterionName = "emulation-distance"
"""The name of the criterion: distances from a model that computes as the result does, except for its rounding."""
_EXACT = 1e-3
"""The distance of the copy from the source in float32, relative to the size of the logits."""


@dataclass(frozen=True)
class RealProducts:
    """The copy of the result of a source, written when it is first asked for."""

    source: Path
    decoder: Decoder
    entries: Entries
    stack: ExitStack

    @cached_property
    def path(self) -> Path:
        """The .tflite with the signatures and caches of the result."""
        path = temporary_directory(self.stack) / "real_products.tflite"
        sizes: dict[str, Any] = {"prefill": self.entries.prefill, "context": self.entries.context}
        with path.open("w+b") as out:
            decoder_to_tflite(self.source, self.decoder, out, Options(), has_real_products=True, **sizes)
        return path


def judged(exact: Array, copy: Array, got: Array, limit: float) -> Judgment:
    """Accept logits [steps, vocabulary] of which most steps are within `limit` of those of the source in float32, if
    the copy computes `exact`; distances are relative to the size of all logits.
    """
    off, steps = float(_distances(exact, copy).max()), _distances(exact, got)
    far, typical = int((steps > limit).sum()), float(np.median(steps))
    reason = f"{far} of {len(steps)} steps are far from the source in float32, the others {typical:.3f} of the logits' "
    reason += f"size: with products in float, all are within {off:.1g}"
    is_explained = off <= _EXACT and 4 * far <= len(steps)
    evidence = {"error": typical, "far": float(far), "copy": off}
    return Judgment(CRITERION, Verdict.ACCEPT if is_explained else Verdict.INCONCLUSIVE, reason, evidence)


def _distances(exact: Array, got: Array) -> Array:
    """The root mean square of the difference of each step, relative to the size of all logits."""
    size = float(np.sqrt(np.mean(np.square(exact, dtype=np.float64)))) or 1.0
    return np.asarray(np.sqrt(np.mean(np.square(got.astype(np.float64) - exact), axis=-1)) / size)
