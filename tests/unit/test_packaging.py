"""The wheel: one top-level module, with the mapping modules and the schema data inside; and it imports."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_SOURCES = {"onnxtfl": ROOT / "converter" / "onnxtfl", "onnxtfl.mappings": ROOT / "mappings"}
VERSIONS = ("3.11", "3.12", "3.13")
_PROBE = """
import importlib.resources, sys
import onnxtfl, onnxtfl.mappings, onnxtfl.schemas
from onnxtfl.rewriting import registry
registry.all_rules()
assert any(f.name.endswith(".toml") for f in importlib.resources.files(onnxtfl.schemas).iterdir())
print(onnxtfl.__file__)
print(*(name for name in sys.modules if name.startswith("onnxtfl.mappings.")))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("converter", "mappings", "schemas"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / name)
    _python("-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder / "dist"), cwd=folder)
    (found,) = (folder / "dist").glob("*.whl")
    return found


def test_all_packages_are_listed() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    there = {"onnxtfl.schemas"}
    for name, folder in _SOURCES.items():
        for path in folder.rglob("*.py"):
            there.add(".".join([name, *path.relative_to(folder).parts[:-1]]))
    assert sorted(listed) == sorted(there)


def test_one_top_level_module_with_everything_inside(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"onnxtfl"}
    sources = {"onnxtfl": ROOT / "converter" / "onnxtfl", "onnxtfl/mappings": ROOT / "mappings"}
    wanted = {f"{inside}/{p.relative_to(at).as_posix()}" for inside, at in sources.items() for p in at.rglob("*.py")}
    wanted |= {f"onnxtfl/schemas/{path.name}" for path in (ROOT / "schemas").glob("*.t*")}
    wanted |= {f"onnxtfl/schemas/targets/{path.name}" for path in (ROOT / "schemas" / "targets").glob("*.toml")}
    wanted |= {"onnxtfl/mappings/rule_modules.txt"}
    wanted |= {f"onnxtfl/reporting/{name}" for name in ("elements.html", "page.css", "page.html", "page.js")}
    assert wanted | {"onnxtfl/py.typed"} <= names


def test_the_wheel_imports(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "site"
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    _python(*install, "--target", str(target), str(wheel), cwd=tmp_path)
    out = _python("-c", _PROBE, cwd=tmp_path, PYTHONPATH=str(target)).splitlines()
    assert Path(out[0]).is_relative_to(target)
    paths = [path.relative_to(ROOT).with_suffix("") for path in (ROOT / "mappings").rglob("[a-z]*.py")]
    modules = {".".join(("onnxtfl", *path.parts)) for path in paths}
    assert len(modules) > len(paths) // 2 > 30
    assert modules <= set(out[1].split())


def test_the_wheel_finds_rules_by_op_without_being_unpacked(wheel: Path, tmp_path: Path) -> None:
    code = (
        "from onnxtfl.rewriting import rule_modules\n"
        "by_op, others = rule_modules._table()\n"
        "print(rule_modules.__file__, by_op['Softmax'], others)"
    )
    out = _python("-c", code, cwd=tmp_path, PYTHONPATH=str(wheel))
    assert out.split() == [f"{wheel}/onnxtfl/rewriting/rule_modules.py", "['nn.softmax']", "[]"]


def test_the_python_versions_are_those_of_the_classifiers() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = [c.rpartition(" ")[2] for c in project["classifiers"] if re.search(r":: 3\.\d+$", c)]
    assert versions == list(VERSIONS)
    assert project["requires-python"] == f">={VERSIONS[0]}"


@pytest.mark.parametrize("version", VERSIONS)
def test_the_wheel_installs_on(version: str, wheel: Path, tmp_path: Path) -> None:
    """Each Python that the machine has installs the wheel, compiles all of it, and runs a part without dependencies."""
    python = _interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version} on this machine")
    site = tmp_path / "site"
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    _python(*install, "--target", str(site), str(wheel), cwd=tmp_path, python=python)
    _python("-W", "error::SyntaxWarning", "-m", "compileall", "-q", "-f", str(site), cwd=tmp_path, python=python)
    code = "import onnxtfl, onnxtfl.cli; from onnxtfl.error_codes import error_codes; print(len(error_codes()))"
    assert int(_python("-c", code, cwd=tmp_path, python=python, PYTHONPATH=str(site))) > 30


def _interpreter(version: str) -> str | None:
    """The path of a Python of this version that has pip."""
    if f"{sys.version_info.major}.{sys.version_info.minor}" == version:
        return sys.executable
    found = shutil.which(f"python{version}")
    if found is None or subprocess.run([found, "-m", "pip", "--version"], capture_output=True, check=False).returncode:
        return None
    return found


def test_importing_the_package_imports_neither_runtime_nor_solver(tmp_path: Path) -> None:
    code = "import sys, onnxtfl, onnxtfl.cli; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = set(_python("-c", code, cwd=tmp_path).split())
    assert not loaded & {"onnxruntime", "ai_edge_litert", "tflite_runtime", "tensorflow", "highspy", "scipy", "torch"}


def _python(*arguments: str, cwd: Path, python: str = sys.executable, **environment: str) -> str:
    command = [python, *arguments]
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout
