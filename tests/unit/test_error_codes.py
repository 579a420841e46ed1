"""The error codes: each raise site has one, each is used and documented, and advice names what each interface has."""

from __future__ import annotations

import ast
import inspect
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import onnxtfl
from onnxtfl import errors
from onnxtfl.cli import commands
from onnxtfl.error_codes import FAMILIES, error_codes, page
from onnxtfl.errors import InternalError, OnnxtflError, UnsupportedError, UsageError
from onnxtfl.ir.declaration import UnknownRankError
from onnxtfl.ir.verify import VerifyError
from onnxtfl.runtimes.run_errors import _CODES, RunError
from onnxtfl.wording import COMMANDS, PARAMETERS, flag, worded

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted([*(ROOT / "converter" / "onnxtfl").rglob("*.py"), *(ROOT / "mappings").rglob("*.py")])
KINDS = {cls.__name__: cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, OnnxtflError)}
KINDS |= {"RunError": RunError, "UnknownRankError": UnknownRankError, "VerifyError": VerifyError}


def raised() -> Iterator[tuple[Path, ast.Call]]:
    """Each place where an error is made."""
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in KINDS:
                yield path, node


RAISED = list(raised())


def codes_of(call: ast.Call) -> list[str]:
    """The codes that a call may have: those in its `code`, else that of its class."""
    given = [k.value for k in call.keywords if k.arg == "code"]
    if not given:
        return [KINDS[call.func.id].default_code] if call.func.id != "RunError" else [*_CODES.values(), "E-RUN-002"]
    return [n.value for value in given for n in ast.walk(value) if isinstance(n, ast.Constant) and n.value]


def test_each_error_has_a_code() -> None:
    for path, call in RAISED:
        found = codes_of(call)
        named = any(k.arg == "code" and isinstance(k.value, ast.Name | ast.Attribute) for k in call.keywords)
        assert found or named, f"{path}:{call.lineno}"
        assert set(found) <= set(error_codes()), f"{path}:{call.lineno}"


def test_each_code_is_used_and_documented() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in FILES)
    assert set(re.findall(r'"(E-[A-Z]+-\d{3})"', text)) | {"E-USE-001"} == set(error_codes())
    for entry in error_codes().values():
        assert re.fullmatch(r"E-[A-Z]+-\d{3}", entry.code)
        assert entry.family in FAMILIES
        assert min(map(len, (entry.title, entry.means, entry.do))) > 10
        assert f"({entry.code})" in entry.example


def test_each_parameter_has_a_flag() -> None:
    group = [*commands.onnxtfl.commands.values(), commands.onnx2tfl, commands.tfl2onnx]
    flags = {word for command in group for p in command.params for word in (*p.opts, *p.secondary_opts)}
    for name in PARAMETERS - {"on_progress", "on_outcome", "on_conversion", "to", "profile"}:
        assert flag(name).split()[0] in flags or not flag(name).startswith("--"), name


def test_no_message_names_a_flag() -> None:
    """Flags are those of one interface: a message names the parameter in backticks."""
    for path, call in (site for site in RAISED if site[0].parent.name != "cli"):
        texts = [n.value for n in ast.walk(call) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
        assert not any(re.search(r"(?<!`)--[a-z]", text) for text in texts), f"{path}:{call.lineno}"


def test_what_advice_names_exists() -> None:
    functions = [getattr(onnxtfl, name.removesuffix("()")) for name in COMMANDS]
    functions += [onnxtfl.signatures_to_onnx, onnxtfl.convert_many]
    taken = {name for function in functions for name in inspect.signature(function).parameters}
    group = [*commands.onnxtfl.commands.values(), commands.onnx2tfl, commands.tfl2onnx]
    flags = {word for command in group for p in command.params for word in (*p.opts, *p.secondary_opts)}
    named = {name for e in error_codes().values() for name in re.findall(r"`(\w+)", f"{e.means}{e.do}{e.hint}")}
    for name in named & PARAMETERS:
        assert name in taken, name
        assert flag(name) in flags or not flag(name).startswith("--"), name


@pytest.mark.parametrize(
    ("text", "python", "cli"),
    [
        ("set `input_shapes`", "set input_shapes", "set --input-shape"),
        ("use `state=io`", "use state='io'", "use --state io"),
        ("or `opset=17`", "or opset=17", "or --opset 17"),
        ("with `check=False`", "with check=False", "with --no-check"),
        ("with `keep_failed=True`", "with keep_failed=True", "with --keep-failed"),
        ("`--elements x:3|elements={'x': 3}`", "elements={'x': 3}", "--elements x:3"),
        ("use `tflite_to_onnx`", "use tflite_to_onnx", "use tfl2onnx"),
        ("a name of `yours`", "a name of `yours`", "a name of `yours`"),
    ],
)
def test_advice_is_in_the_words_of_the_interface(text: str, python: str, cli: str) -> None:
    assert (worded(text, "python"), worded(text, "cli")) == (python, cli)


def test_a_message_ends_with_its_code() -> None:
    error = UnsupportedError("products of unknown size", node="d", op="CumProd", version=26, code="E-SHAPE-001")
    line = "products of unknown size [node 'd' CumProd-26]; fix the sizes of the inputs ({}) (E-SHAPE-001)"
    assert str(error) == line.format("input_shapes")
    assert error.text("cli") == line.format("--input-shape")
    assert str(OnnxtflError("x" * 5000, code="E-OP-001")).endswith("... (E-OP-001)")


def test_errors_survive_pickling() -> None:
    for error in (InternalError("layout", ValueError("no")), UsageError("no", hint="so", code="E-USE-003")):
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy), copy.code) == (type(error), str(error), error.code)


def test_explain() -> None:
    assert onnxtfl.explain("e-file-003") == page(error_codes()["E-FILE-003"])
    assert onnxtfl.explain("E-FILE-003").startswith("# E-FILE-003: The file is empty\n")
    assert all(code in onnxtfl.explain() for code in error_codes())
    with pytest.raises(UsageError, match="did you mean 'E-FILE-"):
        onnxtfl.explain("E-FIL-003")


def test_explain_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(commands.onnxtfl, click.Group)
    from onnxtfl.cli import running

    assert running.exit_code(commands.onnxtfl, ["explain", "E-OP-001"]) == 0
    assert "## What to do" in capsys.readouterr().out
    assert running.exit_code(commands.onnxtfl, ["explain", "E-OP-999"]) == 2
    assert "there is no error code" in capsys.readouterr().err
