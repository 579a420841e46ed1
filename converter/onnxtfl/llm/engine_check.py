"""The check of a .litertlm in LiteRT-LM's engine: it goes on with prompts as LiteRT does through the signatures."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from onnxtfl.checking.report import CheckReport
from onnxtfl.checking.settings import Settings
from onnxtfl.formats import files
from onnxtfl.ir.data import Array
from onnxtfl.llm.entries import Entries
from onnxtfl.runtimes import ENGINE, LITERT, RunError, RunOptions, Worker

_EXCUSES = frozenset({"unavailable", "unsupported", "timeout", "memory"})
_NEAR = 1e-3
"""The distance of two logits, relative to the largest, that may be rounding."""


def with_engine(
    report: CheckReport, container: Path, model: Path, settings: Settings, embedder: Path | None = None
) -> CheckReport:
    """The report on a .litertlm, also checked in the engine: failed if it goes on with another text than LiteRT does
    through the signatures of the `model` in it (and of its `embedder`). Unchanged if litert-lm-api is not installed.
    """
    if report.status == "failed" or not (ENGINE.available() and LITERT.available()):
        return report
    entries = Entries.of(files.read(model))
    if entries is None:
        return report
    try:
        with ExitStack() as stack:
            engine, litert = (stack.enter_context(runtime.worker()) for runtime in (ENGINE, LITERT))
            options = RunOptions(time_limit=settings.time_limit)
            check = _Check(container, model, entries, engine, litert, options, embedder)
            problem, note = check.run(settings.seed)
    except RunError as error:
        excused = error.kind in _EXCUSES
        problem, note = ("", str(error)) if excused else (f"LiteRT-LM does not run it: {error.message}", "")
    notes = (*report.notes, *filter(None, [note]))
    return replace(report, notes=notes) if not problem else replace(report, status="failed", reason=problem)


@dataclass(frozen=True)
class _Check:
    """The files and processes of a check."""

    container: Path
    model: Path
    entries: Entries
    engine: Worker
    litert: Worker
    options: RunOptions
    embedder: Path | None

    @property
    def steps(self) -> int:
        """Tokens after each prompt, at most half of the caches."""
        return min(self.entries.steps, max(1, self.entries.context // 2))

    def run(self, seed: int) -> tuple[str, str]:
        """What is wrong, "" if nothing is, and a note."""
        rng, steps = np.random.default_rng(seed), self.steps
        lengths = sorted(
            {n for n in (3, *(size + 2 for size in self.entries.prefill)) if n < self.entries.context // 4}
        )
        prompts = [rng.integers(0, self.entries.vocabulary, n).tolist() for n in lengths or [1]]
        found = self.engine.texts(self.container, {"prompts": prompts, "steps": steps}, self.options)
        fitting = [
            pair
            for pair in zip(found["prompts"], found["texts"], strict=True)
            if 0 < len(pair[0]) < self.entries.context - steps
        ]
        problems = [self._compared(prompt, text, found["stops"]) for prompt, text in fitting]
        tokens = ", ".join(str(len(prompt)) for prompt, _ in fitting)
        note = f"LiteRT-LM {ENGINE.version()} goes on as LiteRT after prompts of {tokens} tokens" if fitting else ""
        return next(filter(None, problems), ""), note

    def _compared(self, prompt: Sequence[int], text: str, stops: Sequence[int]) -> str:
        """How the engine's text differs from that of LiteRT's tokens, where it is not by rounding."""
        pieces = self.entries.pieces(len(prompt) - 1)
        plan: dict[str, Any] = {"prompt": prompt, "steps": self.steps, "forced": None, "pieces": pieces}
        plan |= {"embedder": str(self.embedder)} if self.embedder is not None else {}
        tokens, logits = self.litert.generate(self.model, plan, self.options)
        end = next((k for k, token in enumerate(tokens) if token in stops), len(tokens))
        starts = [tokens[:k] for k in range(end + 1)]
        texts = self.engine.texts(self.container, {"answers": starts}, self.options)["texts"]
        if text == texts[-1]:
            return ""
        same = max(k for k, start in enumerate(texts) if text.startswith(start))
        if _has_near_tie(logits[: same + 1]):
            return ""
        return f"after {len(prompt)} tokens, LiteRT-LM goes on with {text!r}, LiteRT with {texts[-1]!r}"


def _has_near_tie(logits: Array) -> bool:
    """Whether the two largest logits of a step are so close that rounding decides."""
    ordered = np.sort(logits, axis=-1)
    return bool((ordered[:, -1] - ordered[:, -2] <= _NEAR * np.abs(logits).max(axis=-1)).any())
