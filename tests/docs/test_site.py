"""The site: its generated pages are fresh, its links lead somewhere, it builds without a warning."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest

import onnxtfl
from onnxtfl.error_codes import error_codes
from tests.docs.blocks import ROOT, pages

DOCS = ROOT / "docs"
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def tool() -> ModuleType:
    """tools/docs.py."""
    spec = importlib.util.spec_from_file_location("docs_tool", ROOT / "tools" / "docs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(not version("click").startswith("8.5."), reason="other releases of click word their help otherwise")
def test_the_command_line_page_is_not_stale() -> None:
    made = tool().generated()["command-line.md"]
    assert made == (DOCS / "command-line.md").read_text(encoding="utf-8"), "run `make docs`"


def test_the_command_line_page_has_every_option() -> None:
    made, written = (set(re.findall(r"--[a-z][a-z0-9-]+", text)) for text in (
        tool().generated()["command-line.md"], (DOCS / "command-line.md").read_text(encoding="utf-8")
    ))  # fmt: skip
    assert made == written, "run `make docs`"


@pytest.mark.parametrize("page", pages())
def test_links_lead_to_files(page: str) -> None:
    folder = (ROOT / page).parent
    links = LINK.findall((ROOT / page).read_text(encoding="utf-8"))
    local = [link.partition("#")[0] for link in links if "://" not in link and not link.startswith("#")]
    # these two are made by the build
    missing = [
        link for link in local if not (folder / link).exists() and link not in ("contributing.md", "changelog.md")
    ]
    assert not missing


def test_the_names_of_the_reference_exist() -> None:
    text, current, count = (DOCS / "api.md").read_text(encoding="utf-8"), "onnxtfl", 0
    for directive, name in re.findall(r"^\.\. (auto\w+|currentmodule):: ([\w.]+)$", text, re.MULTILINE):
        if directive == "currentmodule":
            current = name
            continue
        module, _, last = name.rpartition(".")
        assert hasattr(importlib.import_module(module or current), last), name
        count += 1
    assert count > 20


def test_every_page_is_in_the_contents() -> None:
    listed = set(
        re.findall(r"^(?:\w+ <)?([a-z0-9-]+)>?$", (DOCS / "index.md").read_text(encoding="utf-8"), re.MULTILINE)
    )
    there = {path.stem for path in DOCS.glob("*.md")} - {"index"} | {"contributing", "security", "changelog"}
    assert there == listed


def test_the_api_page_has_every_public_name() -> None:
    listed = re.findall(r"^\.\. auto(?:function|class|exception):: (\w+)$", (DOCS / "api.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(onnxtfl.__all__)


def test_every_make_target_of_the_readme_has_a_line_in_make_help() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    described = re.findall(r"^# .*\n([a-z]+):", makefile, re.MULTILINE)
    assert set(re.findall(r"`make ([a-z]+)`", (ROOT / "README.md").read_text(encoding="utf-8"))) <= set(described)


@pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("sphinx", "myst_parser", "furo")),
    reason="Sphinx, myst-parser or furo is not installed: the site was not built (`make docs` builds it)",
)
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    docs = tool()
    docs.copy_pages(tmp_path / "source")
    assert docs.build(tmp_path / "source", tmp_path / "site") == 0
    html = {path.relative_to(tmp_path / "site").as_posix() for path in (tmp_path / "site").rglob("*.html")}
    assert {f"errors/{code}.html" for code in error_codes()} <= html
    assert {Path(page).with_suffix(".html").name for page in pages() if page.startswith("docs/")} <= html
