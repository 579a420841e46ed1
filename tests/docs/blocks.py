"""The code blocks of a Markdown page, and what the page's author says about them.

A comment above a block tells the tests more about it; readers do not see it:

    <!-- test: needs torch -->      runs only where these Python modules or programs are installed
    <!-- test: exit 3 -->           the exit code of its last command
    <!-- test: file check.py -->    is written to this file, not run
    <!-- test: output -->           is what the Python block above it prints
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
DIRECTIVES = ("needs", "exit", "file", "output")


@dataclass(frozen=True)
class Block:
    """A fenced block: ``line`` (from 1) is that of its first line of code."""

    page: str
    line: int
    language: str
    text: str
    directives: Mapping[str, str] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """``docs/start.md:12``."""
        return f"{self.page}:{self.line}"

    @property
    def needs(self) -> tuple[str, ...]:
        """Modules and programs without which it cannot run."""
        return tuple(self.directives.get("needs", "").split())


def pages() -> list[str]:
    """Paths of README.md, CONTRIBUTING.md and the pages in docs/, relative to the root."""
    found = [path for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md") if path.exists()]
    found += sorted((ROOT / "docs").rglob("*.md"))
    return [path.relative_to(ROOT).as_posix() for path in found]


def blocks(page: str) -> list[Block]:
    """The blocks of a page, in order. Raises ValueError for one that is indented instead of fenced."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found: list[Block] = []
    directives: dict[str, str] = {}
    for token in MarkdownIt("commonmark").parse(text):
        line = (token.map or [0])[0] + 1
        if token.type == "html_block":
            directives = _directives(token.content, f"{page}:{line}")
            continue
        if token.type == "code_block":
            raise ValueError(f"{page}:{line}: an indented code block; fence it and name its language")
        if token.type == "fence":
            language = token.info.strip().split(" ")[0]
            found.append(Block(page, line + 1, language, token.content, directives))
        directives = {}
    return found


def _directives(comment: str, place: str) -> dict[str, str]:
    """The directives in a comment, each with its value."""
    text = comment.strip()
    if not text.startswith("<!-- test:"):
        return {}
    entries = text.removeprefix("<!-- test:").removesuffix("-->").split(";")
    found = {name: value for name, _, value in (entry.strip().partition(" ") for entry in entries)}
    if unknown := found.keys() - set(DIRECTIVES):
        raise ValueError(f"{place}: unknown directive {', '.join(sorted(unknown))}")
    return found
