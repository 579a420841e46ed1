"""The command `onnxtfl inspect`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

import click

from onnxtfl.cli.help import Grouped
from onnxtfl.cli.options import CONTEXT, MODEL, command_options, keywords
from onnxtfl.cli.reports import requested, write
from onnxtfl.option_table import INSPECT

STAGES = {
    ".onnx": (
        *("file", "lifted", "lift", "sequences", "remove dead", "fix features", "narrow", "small types"),
        *("floats", "dynamic products", "remark dynamic products", "block rows", "quantized types", "simplify"),
        *("layers of scans", "feature scales", "integer constants", "fuse quantized", "stored clamps"),
        *("int8 storage", "quantized io"),
        *(
            "real results",
            "hybrid",
            "formulas",
            "used positions",
            "widen kernels",
            "convolutions",
            "pairs of rows",
            "narrow kernels",
        ),
        *("separate outputs", "legalize", "saturate", "sizes of inputs", "tidy", "sink", "layout", "legalize late"),
        *("loop invariants", "merged columns", "columns", "softmax rows"),
        *(
            "strided slices",
            "slow axes",
            "rows",
            "few axes",
            "cleanup",
            "legalize merged",
            "origins",
            "lower",
            "fuse activations",
            "pass through",
        ),
        *("state tensors", "first op", "memory", "prepared outputs"),
    ),
    ".tflite": (
        *("file", "lifted", "lift", "sequences", "remove dead", "fix features", "small types", "complex numbers"),
        *("widen kernels", "recognize", "recognize layers", "narrow kernels", "quantized types", "simplify"),
        "fuse quantized",
        *("uint8 storage", "quantized io", "int32 outputs", "opset", "formulas", "integer sums"),
        *("separate outputs", "legalize", "tidy", "sink", "layout", "legalize late", "loop invariants", "cleanup"),
        *("legalize merged", "surround moves", "origins", "lower"),
    ),
}
"""The stages of the conversion by the suffix of the source; a test compares them with the pipeline."""
_HELP = "\n\n".join(
    f"Stages of {'an' if suffix == '.onnx' else 'a'} {suffix}: {', '.join(names)}." for suffix, names in STAGES.items()
)


@click.command("inspect", cls=Grouped, short_help="Print what is in a model.", context_settings=CONTEXT, epilog=_HELP)
@click.argument("model", type=MODEL)
@command_options(INSPECT)
def inspect_command(
    model: str,
    stage: str,
    summary: bool,
    diff: str | None,
    diff_stage: str | None,
    as_json: bool,
    output: str | None,
    profile: bool,
    **options: Any,
) -> int:
    """Print what is in MODEL (.onnx, .tflite or .litertlm; - is standard input): a summary, then the graph with types
    and short constants.
    """
    from onnxtfl import inspect
    from onnxtfl.cli.streams import model_of
    from onnxtfl.cli.tables import show

    page = requested(options)
    part = keywords(INSPECT, options | {"profile": profile})
    content = model_of(model)
    found = inspect(content, stage, **part)
    write(page, found)
    if output is not None:
        _write(output, found.text())
    elif diff is not None or diff_stage is not None:
        _print(found.diff(inspect(diff or content, diff_stage or stage, **({} if diff else part))))
    elif as_json:
        click.echo(json.dumps(found.to_json(graph=not summary), indent=2, ensure_ascii=False))
    else:
        show(found.rows(options["verbose"]))
        _print([] if summary else ["", *found.lines()])
    return 0


def _write(output: str, text: str) -> None:
    """Write the text of a graph to a file, or to standard output."""
    from onnxtfl.cli.streams import is_stdout
    from onnxtfl.output import write_text

    if is_stdout(output):
        sys.stdout.write(text)
    else:
        write_text(output, text)


def _print(lines: Iterable[str]) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)
