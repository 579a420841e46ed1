"""Build the documentation: the pages that are generated from the code, then the site (Sphinx).

    python tools/docs.py              docs/ops.md, neutral-ops.md, command-line.md, then build/docs/index.html
    python tools/docs.py --pages      only these three pages, and mappings/rule_modules.txt

The site is built from a copy of docs/ in build/docs-source, to which the changelog, CONTRIBUTING.md, SECURITY.md and a
page for each error code are added. Sphinx warnings are errors.
"""

from __future__ import annotations

import argparse
import inspect
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.neutral_page import neutral_page

from onnxtfl import coverage
from onnxtfl.cli import commands
from onnxtfl.error_codes import error_codes
from onnxtfl.error_codes import index as error_index
from onnxtfl.error_codes import page as error_page
from onnxtfl.option_table import former_flags

ROOT = Path(__file__).resolve().parents[1]
DOCS, SOURCE, SITE = ROOT / "docs", ROOT / "build" / "docs-source", ROOT / "build" / "docs"
COMMANDS = ("onnx2tfl", "tfl2onnx", "onnxtfl")
_KINDS = {"INTEGER RANGE": "NUMBER", "FLOAT RANGE": "NUMBER", "INTEGER": "NUMBER", "FLOAT": "NUMBER"}
ROOT_PAGES = {name: name.lower() for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")}


def main() -> int:
    """Return the exit code of Sphinx."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", action="store_true", help="write the pages in docs/ only")
    options = parser.parse_args()
    for name, text in generated().items():
        _write(DOCS / name, text)
    _write(ROOT / "mappings" / "rule_modules.txt", rule_modules())
    if options.pages:
        return 0
    try:
        import sphinx  # noqa: F401
    except ImportError:
        print("Sphinx is not installed: run `make docs`, or pip install '.[docs]'", file=sys.stderr)
        return 1
    copy_pages(SOURCE)
    code = build(SOURCE, SITE)
    if not code:
        print(f"{SITE.relative_to(ROOT)}/index.html")
    return code


def generated() -> dict[str, str]:
    """The text of the generated pages by path in docs/; tests compare them with the files."""
    return {"ops.md": coverage() + "\n", "neutral-ops.md": neutral_page(), "command-line.md": command_line()}


def rule_modules() -> str:
    """The text of mappings/rule_modules.txt, made by a process in which no rules are registered."""
    command = [sys.executable, str(ROOT / "tools" / "rule_modules.py")]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def build(source: Path, site: Path) -> int:
    """Run Sphinx and return its exit code."""
    quiet = ["-q", "-W", "--keep-going", "-b", "html", "-d", str(site.parent / "doctrees")]
    return subprocess.run([sys.executable, "-m", "sphinx", *quiet, str(source), str(site)], check=False).returncode


def copy_pages(to: Path) -> None:
    """Copy docs/ to `to`, add the pages that are not in docs/, and copy the examples that pages include."""
    if to.exists():
        shutil.rmtree(to)
    shutil.copytree(DOCS, to, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "examples" / "plugin", to.parent / "examples" / "plugin", dirs_exist_ok=True)
    for name, page in ROOT_PAGES.items():
        path = ROOT / name
        text = path.read_text(encoding="utf-8") if path.exists() else f"# {name.removesuffix('.md').title()}\n"
        for other, renamed in ROOT_PAGES.items():
            text = text.replace(f"]({other})", f"]({renamed})")
        _write(to / page, text.replace("](docs/", "]("))
    for code in error_codes().values():
        _write(to / "errors" / f"{code.code}.md", error_page(code))
    with (to / "troubleshooting.md").open("a", encoding="utf-8") as page:
        page.write("\n" + list_of_errors())


def list_of_errors() -> str:
    """The last section of troubleshooting.md: all error codes by family, with links to their pages."""
    _, _, families = error_index().partition("\n## ")
    codes = "\n".join(f"errors/{code}" for code in error_codes())
    links = re.sub(r"\]\((E-[A-Z0-9-]+\.md)\)", r"](errors/\1)", f"## {families}")
    return f"{links}\n```{{toctree}}\n:hidden:\n\n{codes}\n```\n"


def command_line() -> str:
    """The page command-line.md: the options of all commands."""
    head = (
        "# Command line\n\nGenerated from the commands by `make docs`; a test fails when it is stale. "
        "[start.md](start.md) is the place to begin.\n"
    )
    found = [getattr(commands, name) for name in COMMANDS]
    parts = [part for command in found for part in _command(command, command.name or "")]
    return "\n".join([head, *parts])


def _command(command: click.Command, path: str) -> Iterator[str]:
    """The sections of a command and of its subcommands."""
    context = click.Context(command, info_name=path)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            if (found := command.get_command(context, name)) is not None:
                yield from _command(found, f"{path} {name}")
        return
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    yield f"## {path}\n\n**`{usage}`**\n\n{_paragraphs(command.help)}\n"
    rows = [row for parameter in command.params if (row := _option(parameter, context))]
    yield "| option | what it does |\n| --- | --- |\n" + "".join(f"| {name} | {help_} |\n" for name, help_ in rows)
    if former := former_flags(command.name or ""):
        yield "Former names, which still work: " + ", ".join(f"`{a}` of `{b}`" for a, b in former.items()) + ".\n"
    if command.epilog:
        yield f"{_paragraphs(command.epilog)}\n"


def _paragraphs(text: str | None) -> str:
    """The help of a command as Markdown; paragraphs that click does not rewrap (marked by \\b) become code blocks."""
    parts = re.split(r"\n\s*\n", inspect.cleandoc(text or "").replace("\b\n", "\b"))
    found = (f"```text\n{part[1:]}\n```" if part.startswith("\b") else _text(part) for part in parts)
    return "\n\n".join(found)


def _option(parameter: click.Parameter, context: click.Context) -> tuple[str, str] | None:
    """The names and the help of an option as a table row; None for hidden ones."""
    record = parameter.get_help_record(context)
    if record is None or not record[1]:
        return None
    names, help_ = record
    for kind, shown in _KINDS.items():
        names = names.replace(kind, shown)
    return f"`{names}`".replace("|", "\\|"), _text(help_).replace("|", "\\|")


def _text(text: str | None) -> str:
    return re.sub(r"\s+", " ", text or "").strip().replace("<", "&lt;")


def _write(path: Path, text: str) -> None:
    """Write a page unless the file already has this text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
