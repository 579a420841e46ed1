"""Chat templates of Hugging Face for LiteRT-LM, which passes the content of a message as a list of typed parts."""

from __future__ import annotations

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


def for_typed_content(template: str) -> str:
    """The template, with a head that makes texts of the contents of messages if it renders only these as it should."""
    text = _rendered(template, _MARK)
    typed = _rendered(template, [{"type": "text", "text": _MARK}])
    return template if text is None or _MARK not in text or text == typed else _PLAIN + template


def _rendered(template: str, content: Any) -> str | None:
    """The prompt of one message of the user; None where the template does not render it."""
    from jinja2 import TemplateError
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
    except (TemplateError, TypeError, ValueError, AttributeError, KeyError):
        return None


def _raise(message: str) -> None:
    raise ValueError(message)
