"""Look at blocks without running them: data and source files are parsed, commands that install are compared with the
project's own files. Each function returns what is wrong, "" if nothing is.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
import shutil
import subprocess
import tempfile
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import onnxtfl
from onnxtfl.c_source import c_source
from tests.docs import driver
from tests.docs.blocks import ROOT, Block

STUBS = Path(__file__).parent / "stubs"
KNOWN = {"torch", "torchvision", "onnx", "onnxscript", "keras", "tensorflow", "tf2onnx", "skl2onnx", "scikit-learn"}
KNOWN |= {"ai-edge-litert", "pytest", "tflite-runtime", "jax", "numpy", "onnxruntime", "pre-commit", "tflite-micro"}
"""Packages of others that pages tell their readers to install."""
NPM = {"@litertjs/core"}
"""Those of npm."""


def _json(block: Block) -> str:
    return _raised(lambda: json.loads(block.text))


def _toml(block: Block) -> str:
    return _raised(lambda: tomllib.loads(block.text))


def _xml(block: Block) -> str:
    return _raised(lambda: ET.fromstring(f"<page>{block.text}</page>"))


def _html(block: Block) -> str:
    """Parse a page as XML: each element is closed."""
    return _raised(lambda: ET.fromstring(block.text.removeprefix("<!doctype html>")))


def _javascript(block: Block) -> str:
    """Parse a module."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "block.mjs"
        path.write_text(block.text, encoding="utf-8")
        command = ["node", "--check", str(path)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stderr


def _yaml(block: Block) -> str:
    return _raised(lambda: import_module("yaml").safe_load(block.text))


def _python(block: Block) -> str:
    return _raised(lambda: ast.parse(block.text))


def _grammar(block: Block) -> str:
    """Parse Kotlin, Swift or Groovy with tree-sitter."""
    from tree_sitter import Language, Parser

    language = Language(import_module(f"tree_sitter_{block.language}").language())
    root = Parser(language).parse(block.text.encode()).root_node
    return f"not {block.language}: {root}" if root.has_error else ""


def _cpp(block: Block) -> str:
    """Compile against the declarations in stubs/, which have the signatures of the real headers, and digits.h."""
    with tempfile.TemporaryDirectory() as folder:
        if '"digits.h"' in block.text:
            _digits(folder)
        path = Path(folder) / "block.cc"
        path.write_text(block.text, encoding="utf-8")
        command = ["g++", "-std=c++17", "-Wall", "-Werror", "-fsyntax-only", "-I", str(STUBS), str(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.stderr


def _digits(folder: str) -> None:
    """Write the example as C++ source, as the page about microcontrollers does."""
    shapes = {"image": (1, 1, 8, 8)}
    made = onnxtfl.onnx_to_tflite(ROOT / "examples" / "digits.onnx", target="micro", input_shapes=shapes, check=False)
    c_source(made.data or b"", "digits", arena=20_480).write(folder)


def _commands(block: Block) -> str:
    """What is wrong with the commands that the tests do not run."""
    found = [_command(c) for c, _ in driver.commands(block.language, block.text) if not driver.is_run(c)]
    return "\n".join(text for text in found if text)


def _command(command: str) -> str:
    words = shlex.split(command, comments=True)
    if words[0] == "make":
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        targets = [w for w in words[1:] if "=" not in w]
        return "".join(f"no target {t}" for t in targets if not re.search(rf"^{re.escape(t)}:", makefile, re.MULTILINE))
    if words[0] == "npm":
        return "".join(f"unknown package {name}" for name in words[2:] if name not in NPM)
    if "install" in words:
        packages = [w for w in words[words.index("install") + 1 :] if not w.startswith("-")]
        return "\n".join(text for text in map(_package, packages) if text)
    return ""


def _package(word: str) -> str:
    """Check a requirement: our extras exist, and other packages are known."""
    match = re.fullmatch(r"(\.|onnxtfl|[\w-]+)(?:\[([\w,-]+)\])?([<>=~!].*)?", word)
    if match is None:
        return f"unexpected requirement {word}"
    name, extras, _ = match.groups()
    if name not in (".", "onnxtfl"):
        return "" if name in KNOWN else f"unknown package {name}"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    known = project["optional-dependencies"]
    return "\n".join(f"no extra {extra}" for extra in (extras or "").split(",") if extra and extra not in known)


def _plain(block: Block) -> str:
    """A block of text has nothing to run in it."""
    found = re.search(r"^(\$ |onnx2tfl |tfl2onnx |onnxtfl |import |from \w+ import |pip )", block.text, re.MULTILINE)
    return "commands and code have a language of their own" if found else ""


def _raised(parse: Callable[[], object]) -> str:
    try:
        parse()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


KINDS: dict[str, tuple[tuple[str, ...], Callable[[Block], str]]] = {
    "sh": ((), _commands),
    "console": ((), _commands),
    "python": ((), _python),
    "text": ((), _plain),
    "json": ((), _json),
    "toml": ((), _toml),
    "xml": ((), _xml),
    "html": ((), _html),
    "javascript": (("node",), _javascript),
    "yaml": (("yaml",), _yaml),
    "kotlin": (("tree_sitter", "tree_sitter_kotlin"), _grammar),
    "swift": (("tree_sitter", "tree_sitter_swift"), _grammar),
    "cpp": (("g++",), _cpp),
}
"""For each language of a block: the modules and programs to look at it, and how."""


def tools_missing(language: str) -> list[str]:
    """What is needed to look at blocks of this language and is not there."""
    return [n for n in KINDS[language][0] if not (shutil.which(n) or find_spec(n))]


def look_at(block: Block) -> str:
    """What is wrong with a block, "" if nothing is or its parser is not there."""
    if block.language.startswith("{"):
        return ""  # a directive of the site, which its build reads
    if block.language not in KINDS:
        return f"language {block.language!r}: name one of {', '.join(KINDS)}"
    return "" if tools_missing(block.language) else KINDS[block.language][1](block)
