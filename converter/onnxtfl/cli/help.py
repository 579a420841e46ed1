"""The pages that ``--help`` prints: options in groups, 80 columns."""

from __future__ import annotations

from collections.abc import Iterable

import click

GROUPS = {
    "Result": (
        *(
            "output",
            "io_layout",
            "io_dtype",
            "float16",
            "float64",
            "opset",
            "min_runtime",
            "target",
            "emit_c",
            "metadata",
        ),
        *("record", "signature", "state", "lstm", "max_memory"),
    ),
    "Shapes and parts": ("input_shapes", "elements", "inputs", "outputs"),
    "Quantized models": ("quantize", "calibration", "quantized", "quantized_io", "dynamic_quant"),
    "Check": ("check_", "load", "keep_failed", "rtol", "atol", "max_steps", "runtime", "time_limit", "per_layer"),
    "Inputs of the check": ("random", "input_ranges", "seed", "steps"),
    "Reports": ("list_unsupported", "as_json", "report", "json_", "junit"),
    "Several models": ("jobs", "force", "executor", "address"),
}
"""The title of each group, and the parameters in it; others are under "Options"."""


class Grouped(click.Command):
    """A command whose help has its options in groups."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, those without a group last."""
        shown = {str(p.name): p.get_help_record(ctx) for p in self.get_params(ctx) if isinstance(p, click.Option)}
        groups = GROUPS
        if self.name == "check":  # its --inputs are arrays
            groups = GROUPS | {"Inputs of the check": ("inputs", "input_shapes", *GROUPS["Inputs of the check"])}
            groups["Shapes and parts"] = ()
        for title, names in groups.items():
            _write(title, (shown.pop(name, None) for name in names), formatter)
        _write("Options", shown.values(), formatter)


def _write(title: str, records: Iterable[tuple[str, str] | None], formatter: click.HelpFormatter) -> None:
    rows = [record for record in records if record is not None]
    if rows:
        with formatter.section(title):
            formatter.write_dl(rows, col_max=26)
