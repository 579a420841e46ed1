"""What runs in other people's CI: the steps of the GitHub Action, the pytest plugin, the hooks, and their examples."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import onnx
import pytest

import onnxtfl
from onnxtfl import pre_commit
from onnxtfl.testing import assert_converts, assert_models_agree
from tests.unit.tiny_models import onnx_scale, saved, tflite_scale

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
ROOT = Path(__file__).resolve().parents[2]
CI = ROOT / "examples" / "ci"
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())


def run_step(name: str, inputs: dict[str, str], folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the script of a step as a runner of GitHub does, with the expressions of `env` replaced."""
    (step,) = (s for s in ACTION["runs"]["steps"] if s.get("name") == name)
    given = {key: spec.get("default", "") for key, spec in ACTION["inputs"].items()} | inputs
    environment = {key: evaluated(value, given) for key, value in step["env"].items()}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    files = {f"GITHUB_{key}": os.fspath(folder / key.lower()) for key in ("OUTPUT", "STEP_SUMMARY")}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    environment = {**os.environ, "PATH": path, **files, **environment, **more}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def evaluated(text: str, inputs: dict[str, str]) -> str:
    """The value of `${{ inputs.NAME }}`, `${{ github.action_path }}`, or the first of both that is set."""

    def value(match: re.Match[str]) -> str:
        names = [name.strip() for name in match[1].split("||")]
        values = [os.fspath(ROOT) if n == "github.action_path" else inputs[n.removeprefix("inputs.")] for n in names]
        return next(filter(None, values), "")

    return re.sub(r"\$\{\{(.*?)\}\}", value, text)


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder with models/good.onnx, models/bad.onnx (not convertible), app/good.tflite and app/other.tflite."""
    for name in ("models", "app"):
        (tmp_path / name).mkdir()
    saved(onnx_scale(), tmp_path / "models" / "good.onnx")
    saved(tflite_scale(), tmp_path / "app" / "good.tflite")
    saved(tflite_scale(3.0), tmp_path / "app" / "other.tflite")
    return tmp_path


def test_the_action_converts_and_checks(models: Path) -> None:
    inputs = {"models": "models/*.onnx", "pairs": "models/good.onnx app/good.tflite", "output": "converted"}
    done = run_step(
        "Check models", inputs | {"args": "--atol 1e-3", "junit": "reports/models.xml", "report": "pages"}, models
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (models / "output").read_text() == "status=passed\nchecked=2\nfailed=0\n"
    assert (models / "converted" / "good.tflite").exists() and "::error" not in done.stdout
    assert "| models/good.onnx | passed |" in (models / "step_summary").read_text()
    assert {path.name for path in (models / "pages").iterdir()} == {"model0-good.html", "pair0.html"}
    suite = ElementTree.parse(models / "reports" / "models.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "0")


def test_what_fails_is_an_annotation_of_its_file(models: Path) -> None:
    (models / "models" / "bad,1.onnx").write_bytes(b"\x08\x08no model")
    inputs = {"models": "models/bad*.onnx\nmodels/none.onnx", "pairs": "models/good.onnx app/other.tflite"}
    done = run_step("Check models", inputs | {"junit": "j.xml", "json": "reports"}, models)
    assert done.returncode == 1
    errors = [line for line in done.stdout.splitlines() if line.startswith("::error")]
    assert [re.findall("file=(.*?),", line)[0] for line in errors] == [
        "models/bad%2C1.onnx",
        "models/none.onnx",
        "app/other.tflite",
    ]
    assert (models / "output").read_text() == "status=failed\nchecked=3\nfailed=3\n"
    assert "| models/good.onnx and app/other.tflite | differs |" in (models / "step_summary").read_text()
    assert len(ElementTree.parse(models / "j.xml").getroot().findall("testcase/failure")) == 3
    assert '"failed"' in (models / "reports" / "pair0.json").read_text()


def test_models_of_one_name_keep_their_folders(tmp_path: Path) -> None:
    for k, name in enumerate(("a/x.onnx", "b/x.onnx", "b/deep/x.onnx", "other/y.onnx")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        saved(onnx_scale(float(k)), tmp_path / name)
    inputs = {"models": "**/x.onnx\nother/*.onnx\nother/y.onnx", "output": "out", "report": "pages"}
    done = run_step("Check models", inputs, tmp_path)
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "output").read_text() == "status=passed\nchecked=4\nfailed=0\n"
    made = {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.tflite")}
    assert made == {"a/x.tflite", "b/x.tflite", "b/deep/x.tflite", "y.tflite"}
    assert onnxtfl.check(tmp_path / "b" / "x.onnx", tmp_path / "out" / "b" / "x.tflite").ok
    assert len(list((tmp_path / "pages").iterdir())) == 4


def test_no_result_replaces_another(tmp_path: Path) -> None:
    """Of two lines, and of two suffixes."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        saved(onnx_scale(), tmp_path / name / "x.onnx")
    for name in ("t.tflite", "t.lite"):
        saved(tflite_scale(), tmp_path / name)
    done = run_step("Check models", {"models": f"a/*.onnx\n{tmp_path}/b/*.onnx\n*.*lite", "output": "out"}, tmp_path)
    assert done.returncode == 0, done.stdout
    made = {path.name for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert made == {"x.tflite", "t.onnx", "t.tflite.onnx"}
    assert len(list((tmp_path / "out").rglob("x.tflite"))) == 2


def test_a_name_is_no_workflow_command(tmp_path: Path) -> None:
    """The runner executes each line that starts with `::`, except between stop-commands and its token."""
    injected = "x\n::error::injected\r\n::set-env name=PATH::here\n.onnx"
    (tmp_path / injected).write_bytes(b"\x08\x08no model")
    saved(onnx_scale(), tmp_path / "m\n::warning::injected.onnx")
    done = run_step("Check models", {"models": "*.onnx", "junit": "j.xml", "report": "pages"}, tmp_path)
    assert done.returncode == 1
    commands = executed(done.stdout)
    assert [line.split("::")[1].split()[0] for line in commands] == ["group", "endgroup"] * 2 + ["error"]
    assert "file=x%0A%3A%3Aerror%3A%3Ainjected%0D%0A" in commands[-1]
    assert "| failed |" not in (tmp_path / "step_summary").read_text()
    assert len((tmp_path / "step_summary").read_text().splitlines()) == 7
    cases = ElementTree.parse(tmp_path / "j.xml").getroot().findall("testcase")
    assert sorted(case.get("name", "").split("\\n")[0] for case in cases) == ["m", "x"]


def executed(text: str) -> list[str]:
    """The lines of a log that a runner of GitHub executes."""
    found, token = list[str](), ""
    for line in text.splitlines():
        if token:
            token = "" if line.strip() == f"::{token}::" else token
        elif line.lstrip().startswith("::stop-commands::"):
            token = line.strip().removeprefix("::stop-commands::")
        elif line.lstrip().startswith("::") or "##[" in line:
            found.append(line)
    assert not token
    return found


def test_a_name_is_no_option(models: Path) -> None:
    plugin = models / "evil.py"
    plugin.write_text("raise SystemExit('the plugin was loaded')\n")
    for name in ("--plugin=evil.py.onnx", "-o.onnx"):
        saved(onnx_scale(), models / name)
    inputs = {"models": "*.onnx\n-missing.onnx", "pairs": "--plugin=evil.py.onnx app/good.tflite", "output": "out"}
    done = run_step("Check models", inputs, models)
    assert "--plugin=evil.py.onnx: passed" in done.stdout and "-o.onnx: passed" in done.stdout
    assert "--plugin=evil.py.onnx and app/good.tflite: passed" in done.stdout
    assert "-missing.onnx: not possible" in done.stdout
    assert {path.name for path in (models / "out").iterdir()} == {"--plugin=evil.py.tflite", "-o.tflite"}


@pytest.fixture
def driver(tmp_path: Path) -> str:
    """A folder for temporary files in which SwiftShader is unpacked."""
    known = Path(os.environ.get("VK_DRIVER_FILES", "none"))
    if not known.with_name("libvk_swiftshader.so").exists():
        pytest.skip("needs SwiftShader (tools/swiftshader.sh)")
    unpacked = tmp_path / "temp" / "swiftshader" / "usr" / "lib"
    unpacked.mkdir(parents=True)
    (unpacked / "chromium").symlink_to(known.parent)
    return os.fspath(tmp_path / "temp")


def test_the_action_checks_on_a_gpu(models: Path, driver: str) -> None:
    inputs = {"gpu": "true", "models": "models/*.onnx", "pairs": "models/good.onnx app/other.tflite", "json": "json"}
    done = run_step("Check models", inputs, models, RUNNER_TEMP=driver, VK_DRIVER_FILES="", VK_ICD_FILENAMES="")
    assert done.returncode == 1
    assert "models/good.onnx: passed" in done.stdout and "app/other.tflite: differs" in done.stdout
    report = json.loads((models / "json" / "pair0.json").read_text())
    assert any("gpu" in runtime for runtime in report["runtimes"])


def test_a_gpu_needs_a_driver(models: Path) -> None:
    """The step fails with what the installation said, it does not check on the CPU instead."""
    for command in ("apt-get", "sudo"):
        (models / command).write_text("#!/bin/sh\necho no packages >&2\nexit 100\n")
        (models / command).chmod(0o755)
    script = (ROOT / "tools" / "swiftshader.sh").read_text()
    (models / "tools").mkdir()
    (models / "tools" / "swiftshader.sh").write_text(script.replace("/usr/lib/chromium /opt", "/nowhere /nowhere"))
    more = {"RUNNER_TEMP": os.fspath(models), "ACTION_PATH": os.fspath(models)}
    more["PATH"] = f"{models}{os.pathsep}{os.environ['PATH']}"
    done = run_step("Check models", {"gpu": "true", "models": "models/*.onnx"}, models, **more)
    assert done.returncode == 100 and "no packages" in done.stderr and "passed" not in done.stdout


def test_nothing_to_check_is_a_failure(tmp_path: Path) -> None:
    done = run_step("Check models", {}, tmp_path)
    assert done.returncode == 1 and "nothing to check" in done.stdout


def test_the_action_installs_itself(tmp_path: Path) -> None:
    source, target = tmp_path / "action", tmp_path / "site"
    for name in ("converter", "mappings", "schemas"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    offline = {"PIP_TARGET": str(target), "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_INDEX": "1"}
    done = run_step("Install onnxtfl", {"requirement": str(source)}, tmp_path, **offline)
    assert done.returncode == 0, done.stderr
    assert (target / "onnxtfl" / "api.py").exists()


def test_the_example_workflow_uses_inputs_of_the_action() -> None:
    steps = yaml.safe_load((CI / "workflow.yml").read_text())["jobs"]["models"]["steps"]
    (given,) = (step["with"] for step in steps if "onnxtfl@" in step["uses"])
    assert set(given) <= set(ACTION["inputs"])
    assert all("description" in spec for spec in ACTION["inputs"].values())


def test_the_example_test_of_an_app(tmp_path: Path) -> None:
    shutil.copy(CI / "test_models.py", tmp_path)
    (tmp_path / "models").mkdir()
    model = onnx.load(ROOT / "examples" / "digits.onnx")
    onnx.save(model, tmp_path / "models" / "digits.onnx")
    code, text = run_pytest(tmp_path, "--onnxtfl-update", "-k", "converts")
    assert code == 0, text
    code, text = run_pytest(tmp_path, "--junitxml=j.xml", "-k", "dark")
    assert code == 0, text
    assert "onnxtfl.max_abs" in (tmp_path / "j.xml").read_text()
    bias = next(t for t in model.graph.initializer if len(t.dims) == 1)
    bias.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(bias) + 1, bias.name))
    onnx.save(model, tmp_path / "models" / "digits.onnx")
    code, text = run_pytest(tmp_path, "-k", "converts")
    assert code == 1 and "if the change is intended" in text and "testing.py" not in text


def run_pytest(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run the tests of a folder with the plugin, also where the installed onnxtfl is older than it."""
    loaded = ["-p", "onnxtfl.pytest_plugin", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir", os.fspath(folder), *loaded, *arguments]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_the_plugin_costs_the_tests_of_others_nothing() -> None:
    code = (
        "import pytest, sys; before = set(sys.modules); import onnxtfl.pytest_plugin; print(set(sys.modules) - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {name.partition(".")[0] for name in eval(done.stdout)} <= {"onnxtfl"}


def test_the_plugin_is_an_entry_point() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"onnxtfl": "onnxtfl.pytest_plugin"}
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert {shlex.split(hook["entry"])[0] for hook in hooks} <= set(project["scripts"])


def test_assertions(models: Path) -> None:
    source = models / "models" / "good.onnx"
    assert assert_models_agree(source, models / "app" / "good.tflite").ok
    with pytest.raises(AssertionError, match=r"other.tflite compared with .*good.onnx: failed"):
        assert_models_agree(source, models / "app" / "other.tflite")
    with pytest.raises(AssertionError, match="any more"):
        assert_converts(source, models / "app" / "other.tflite")
    with pytest.raises(AssertionError, match="write it with pytest --onnxtfl-update"):
        assert_converts(models / "app" / "good.tflite", models / "new.onnx")
    assert assert_converts(source, models / "app" / "other.tflite", update=True).path is not None
    with pytest.raises(onnxtfl.InvalidModelError):
        assert_models_agree(source, ROOT / "README.md")


def test_hooks(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = models / "models" / "good.onnx", models / "models" / "good.tflite"
    assert pre_commit.main([str(source)]) == 0 and not target.exists()
    assert pre_commit.main(["--write", str(source)]) == 1 and target.exists()
    assert "add it to the commit" in capsys.readouterr().out
    assert pre_commit.main(["--write", str(source)]) == 0
    assert pre_commit.main([str(source), str(target)]) == 0
    shutil.copy(models / "app" / "other.tflite", target)
    assert pre_commit.main([str(source), str(target)]) == 1
    assert capsys.readouterr().out.count("do not agree") == 1
    saved(b"\x08\x08no model", source)
    target.unlink()
    assert pre_commit.main([str(source)]) == 1 and pre_commit.main(["--verbose"]) == 2
