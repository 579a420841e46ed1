"""Each code block of README.md and docs/ does what its page says.

A page is run as a reader would: its blocks one after the other in a new folder with the small models that it names. To
see one: `pytest tests/docs -k start.md`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs import driver
from tests.docs.blocks import Block, blocks, pages
from tests.docs.running import missing, run
from tests.docs.static import look_at, tools_missing

PAGES = {page: blocks(page) for page in pages()}
ALL = [block for page in PAGES.values() for block in page]
NEEDS = sorted({(block.page, name) for block in ALL for name in block.needs})
LANGUAGES = sorted({block.language for block in ALL if not block.language.startswith("{")})


@pytest.mark.parametrize("page", [name for name, found in PAGES.items() if any(b.language for b in found)])
def test_the_blocks_of_a_page_run(page: str, tmp_path: Path) -> None:
    wrong = run(PAGES[page], tmp_path)
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.parametrize("block", ALL, ids=lambda block: block.place)
def test_a_block_reads(block: Block) -> None:
    wrong = look_at(block)
    assert not wrong, f"{block.place}: {wrong}"


@pytest.mark.parametrize(("page", "name"), NEEDS)
def test_what_a_block_needs_is_there(page: str, name: str) -> None:
    """Skipped, with the reason, where blocks of the page could not run on this machine."""
    left_out = [block.place for block in PAGES[page] if name in missing(block)]
    if left_out:
        pytest.skip(f"{name} is not installed: {', '.join(left_out)} not run")


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_parser_of_a_language_is_there(language: str) -> None:
    if language in ("sh", "console", "python"):
        return
    if needed := tools_missing(language):
        pytest.skip(f"{', '.join(needed)} not installed: blocks of {language} were not parsed")


def test_what_may_be_left_out_is_little() -> None:
    """Blocks that need other packages are few: most of each page runs everywhere."""
    run_here = [b for b in ALL if b.language in ("sh", "console", "python") and not b.needs]
    needing = [b for b in ALL if b.needs]
    assert len(needing) < len(run_here) / 3


def test_a_wrong_output_is_found() -> None:
    assert not driver.differences(["a  0.5 s (1e-07)", "...", "b ... d"], "a  12.25 s (3.1e-9)\nx\ny\nb c d\n")
    assert not driver.differences(["time        0.67 s"], "time   12.1 s")
    assert driver.differences(["3 ops"], "4 ops")
    assert driver.differences(["a", "b"], "a\n")


def test_an_exit_code_is_compared(tmp_path: Path) -> None:
    assert run([Block("page", 1, "sh", "false\n")], tmp_path)
    assert run([Block("page", 1, "sh", "false\n", {"exit": "1"})], tmp_path) == []
    assert run([Block("page", 1, "python", "import no_such_module\n")], tmp_path)


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("json", "{"), ("toml", "a"), ("xml", "<a>"), ("python", "def"), ("text", "$ ls"), ("sh", "make nothing"),
        ("sh", "pip install '.[nothing]'"), ("rust", ""), ("yaml", "a: ["), ("kotlin", "fun ("), ("swift", "let = ="),
        ("cpp", "int main() { return x; }"),
    ],
)  # fmt: skip
def test_what_is_not_right_is_found(language: str, text: str) -> None:
    if language != "rust" and (needed := tools_missing(language)):
        pytest.skip(f"{', '.join(needed)} not installed")
    assert look_at(Block("page", 1, language, text))
