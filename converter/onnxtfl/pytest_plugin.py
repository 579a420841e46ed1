"""The pytest plugin of onnxtfl: the option --onnxtfl-update, and the assertions of `onnxtfl.testing` as fixtures.

The fixtures take paths relative to the file of the test, and write errors to the JUnit report. Nothing of onnxtfl but
this module is imported before a test uses one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from onnxtfl import CheckReport, Conversion

_UPDATE = "ONNXTFL_UPDATE"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --onnxtfl-update."""
    group = parser.getgroup("onnxtfl")
    text = "rewrite the models named by golden= in assert_converts"
    group.addoption("--onnxtfl-update", action="store_true", default=False, help=text)


@pytest.fixture
def assert_models_agree(
    request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> Callable[..., CheckReport]:
    """`onnxtfl.testing.assert_models_agree`; relative paths begin at the folder of the test."""

    def checked(a: Any, b: Any, **options: Any) -> CheckReport:
        __tracebackhide__ = True
        from onnxtfl import testing

        report = testing.assert_models_agree(_placed(request, a), _placed(request, b), **options)
        record_property("onnxtfl.max_abs", report.max_abs)
        record_property("onnxtfl.max_rel", report.max_rel)
        return report

    return checked


@pytest.fixture
def assert_converts(
    request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> Callable[..., Conversion]:
    """`onnxtfl.testing.assert_converts`; relative paths begin at the folder of the test."""

    def converted(model: Any, golden: Any = None, **options: Any) -> Conversion:
        __tracebackhide__ = True
        from onnxtfl import testing

        if request.config.getoption("onnxtfl_update"):
            options.setdefault("update", True)
        conversion = testing.assert_converts(_placed(request, model), _placed(request, golden), **options)
        record_property("onnxtfl.size", conversion.report.size)
        if conversion.check is not None:
            record_property("onnxtfl.max_abs", conversion.check.max_abs)
        return conversion

    return converted


def pytest_configure(config: pytest.Config) -> None:
    """Pass --onnxtfl-update to the assertions outside of fixtures too."""
    if config.getoption("onnxtfl_update", default=False):
        os.environ[_UPDATE] = "1"


def _placed(request: pytest.FixtureRequest, model: Any) -> Any:
    """`model`, a relative path joined to the folder of the test."""
    if isinstance(model, str | os.PathLike) and not os.path.isabs(model):
        return Path(request.path).parent / os.fspath(model)
    return model
