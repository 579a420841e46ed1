"""Texts by LiteRT-LM's engine in the child process: part of `worker`, and like it a script.

A request of texts says what is asked::

    {"prompts": [[token]], "steps": number}     texts of these tokens, and how the engine goes on with each
    {"answers": [[token]]}                      the texts of these tokens

The engine has texts as its interface, so a prompt is the text of the tokens, which the tokenizer may read as others.
"""

from __future__ import annotations

from typing import Any

Asked = dict[str, Any]
_ENGINES: dict[str, Any] = {}
"""The engine of each file, which stays loaded."""


def texts(module: Any, model: str, asked: Asked) -> Asked:
    """Answer a request; ``module``: the package litert_lm. For prompts, the tokens that the engine reads, the text that
    follows (greedy), and the ids of the tokens that end it; for answers, their texts.
    """
    if model not in _ENGINES:
        module.set_min_log_severity(module.LogSeverity.ERROR)
        _ENGINES[model] = module.Engine(model, cache_dir=":nocache")
    engine = _ENGINES[model]
    if "answers" in asked:
        return {"texts": [engine.detokenize(tokens) if tokens else "" for tokens in asked["answers"]]}
    found = [_continued(module, engine, engine.detokenize(tokens), asked["steps"]) for tokens in asked["prompts"]]
    stops = [tokens[0] for tokens in engine.eos_token_ids if len(tokens) == 1]
    return {"prompts": [tokens for tokens, _ in found], "texts": [text for _, text in found], "stops": stops}


def _continued(module: Any, engine: Any, text: str, steps: int) -> tuple[list[int], str]:
    """The tokens of a prompt, and the text of up to ``steps`` tokens that follow; none for a text without tokens, which
    the engine refuses (a tokenizer that does not read its own texts).
    """
    start, tokens = engine.bos_token_id, engine.tokenize(text)
    if not tokens:
        return [], ""
    greedy = module.SamplerConfig(top_k=1, temperature=1.0)
    how = {"apply_prompt_template": False, "sampler_config": greedy, "max_output_tokens": steps}
    with engine.create_session(**how) as session:
        session.run_prefill([text])
        answer = session.run_decode().texts[0]
    return [*([] if start is None else [start]), *tokens], answer
