"""Chat templates of Hugging Face for LiteRT-LM, which passes the content of a message as a list of typed parts.

A template is a program: it is rendered in a process of its own, which runs this file, with limits on time and memory.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

_PLAIN = """\
{%- set plain = namespace(messages=[]) -%}
{%- for message in messages -%}
{%- if message.content is string or message.content is not iterable -%}
{%- set plain.messages = plain.messages + [message] -%}
{%- else -%}
{%- set text = message.content | selectattr('type', 'equalto', 'text') | map(attribute='text') | join -%}
{%- set plain.messages = plain.messages + [dict(message, content=text)] -%}
{%- endif -%}
{%- endfor -%}
{%- set messages = plain.messages %}{{ '' }}"""
"""Makes a text of the content of each message, as most templates want it."""
_MARK = "onnxtfl"
_SECONDS, _BYTES = 5, 1 << 29
"""The most time and memory in which a template is rendered."""


def for_typed_content(template: str) -> str:
    """The template, with a head that makes texts of the contents of messages if it renders only these as it should."""
    text, typed = _rendered(template, [_MARK, [{"type": "text", "text": _MARK}]])
    return template if text is None or _MARK not in text or text == typed else _PLAIN + template


def _rendered(template: str, contents: Sequence[Any]) -> list[str | None]:
    """The prompt of one message of the user with each of `contents`; None where the template does not render it."""
    command, given = [sys.executable, "-P", __file__], json.dumps([template, contents])
    try:
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=_SECONDS, check=True)
    except (subprocess.SubprocessError, OSError):
        return [None] * len(contents)
    prompts: list[str | None] = json.loads(done.stdout)
    return prompts


def _prompt(template: str, content: Any) -> str | None:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals |= {"raise_exception": _raise, "strftime_now": str}
    try:
        messages = [{"role": "user", "content": content}]
        return environment.from_string(template).render(
            messages=messages, add_generation_prompt=True, bos_token="", eos_token=""
        )
    except Exception:  # whatever a template does
        return None


def _raise(message: str) -> None:
    raise ValueError(message)


def _main() -> None:
    """Render the template of the standard input with each of the contents there."""
    from onnxtfl.platform_calls import limit_memory

    limit_memory(_BYTES)
    template, contents = json.load(sys.stdin)
    json.dump([_prompt(template, content) for content in contents], sys.stdout)


if __name__ == "__main__":
    _main()
