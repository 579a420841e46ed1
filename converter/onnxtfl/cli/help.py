"""The pages that ``--help`` prints: options in groups, 80 columns."""

from __future__ import annotations

import click

from onnxtfl.option_table import OPTIONS, former_flags


class Grouped(click.Command):
    """A command whose help has its options in the groups of the table."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words of the command; options may have their former names."""
        former = former_flags(str(self.name))
        end = args.index("--") if "--" in args else len(args)
        for k, (word, equals, value) in enumerate(word.partition("=") for word in args[:end]):
            args[k] = former.get(word, word) + equals + value
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, those without a group last."""
        commands = ("many", "llm", self.name)
        own = {row.name: row.group for command in commands for row in OPTIONS if command in row.commands}
        found: dict[str, list[tuple[str, str]]] = {row.group: [] for row in OPTIONS}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                found[own.get(str(parameter.name), "Options")].append(record)
        for title, rows in found.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows, col_max=26)
