"""Requests to LiteRT-LM's engine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from onnxtfl.runtimes import engine_script


class _Engine:
    """An engine whose tokenizer reads no token from "?", for which it has no answer."""

    bos_token_id, eos_token_ids = 1, [[2]]

    def __init__(self, *_: Any, **__: Any) -> None:
        self.text = ""

    def detokenize(self, tokens: list[int]) -> str:
        return "".join("?" if token == 9 else "a" for token in tokens)

    def tokenize(self, text: str) -> list[int]:
        return [5] * text.count("a")

    def create_session(self, **_: Any) -> _Engine:
        return self

    def __enter__(self) -> _Engine:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run_prefill(self, texts: list[str]) -> None:
        if not self.tokenize(texts[0]):
            raise RuntimeError("litert_lm_session_run_prefill failed")

    def run_decode(self) -> Any:
        return SimpleNamespace(texts=["b"])


def test_a_prompt_of_no_tokens_is_left_out() -> None:
    module = SimpleNamespace(
        Engine=_Engine,
        set_min_log_severity=lambda _: None,
        LogSeverity=SimpleNamespace(ERROR=0),
        SamplerConfig=lambda **_: None,
    )
    found = engine_script.texts(module, "a model", {"prompts": [[3, 4], [9]], "steps": 2})
    assert found == {"prompts": [[1, 5, 5], []], "texts": ["b", ""], "stops": [2]}
