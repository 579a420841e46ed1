"""Run two models on the same inputs, compare the outputs, and report."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import replace

import numpy as np

from onnxtfl.checking.calibrated import for_quantized, with_advice
from onnxtfl.checking.inputs.user_data import Inputs, cases_of, split_cases
from onnxtfl.checking.profiling import with_models
from onnxtfl.checking.report import CheckReport
from onnxtfl.checking.session import Check
from onnxtfl.checking.settings import Settings
from onnxtfl.errors import UnsupportedError, UsageError
from onnxtfl.formats import files
from onnxtfl.runtimes import Workers

PathLike = str | os.PathLike[str]


def check_models(
    a: PathLike,
    b: PathLike,
    settings: Settings | None = None,
    inputs: Inputs = None,
    workers: Workers | None = None,
) -> CheckReport:
    """Compare the .onnx or .tflite model ``b`` with ``a``, the reference.

    ``inputs``: arrays by name, for some or all inputs (the rest are generated), several such sets, or the path of a
    file or directory that has them. ``workers``: processes that were started before, and stay open. Returns a report
    in any case where both files can be read; raises `InvalidModelError`, and `UsageError` for an unknown input name.
    """
    started = time.perf_counter()
    settings = settings or Settings()
    if settings.runtime is not None and "tflite" not in map(files.sniff, (a, b)):
        raise UsageError("`runtime` says what runs a .tflite model, and both models are .onnx")
    cases = cases_of(inputs, settings.random, settings.seed)
    with ExitStack() as stack:
        stack.enter_context(np.errstate(all="ignore"))  # values of models, and errors of them, may be infinite
        try:
            workers = workers or stack.enter_context(Workers(settings.runtime))
            settings = for_quantized(settings, a, b)
            check = Check(a, b, settings, workers, stack)
            cases = cases if inputs is None else split_cases(cases, check.a.info.inputs, check.b.info.inputs)
            report = with_models(check.report(cases), (check.a, check.b), settings)
            report = with_advice(report, settings) if inputs is None else report
        except UnsupportedError as error:  # a kind of value, or an op, that the readers do not know
            report = CheckReport("not checked", str(error))
    seconds = time.perf_counter() - started
    return replace(report, rtol=settings.rtol, atol=settings.atol, seed=settings.seed, seconds=seconds)
