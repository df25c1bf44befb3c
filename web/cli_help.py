"""How the help of a command reads: names in capitals and sentences, without a programming language's types.

Also says of an option's value what it may be, in plain words. Knows no command and asks nobody.
"""

from collections.abc import Callable, Iterable
from typing import Any

import typer
from typer.core import TyperArgument, TyperCommand


class Plain(TyperCommand):
    """A command whose help shows each argument and option by its metavar alone."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What stands behind the command's name in its line of usage."""
        return ["[OPTIONS]", *(name for name, _ in self._arguments(ctx))]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """The lists of arguments and of options; an argument that its name explains is in no list."""
        options = [param for param in self.get_params(ctx) if not isinstance(param, TyperArgument)]
        explained = [(name, text) for name, text in self._arguments(ctx) if text]
        for title, rows in {
            "Arguments": explained,
            "Options": [row for param in options if (row := param.get_help_record(ctx))],
        }.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def _arguments(self, ctx: Any) -> list[tuple[str, str]]:
        arguments = [param for param in self.get_params(ctx) if isinstance(param, TyperArgument)]
        return [(param.display_name_raw, param.help or "") for param in arguments]


def one_of(values: Iterable[str], words: str) -> Callable[[str | None], str | None]:
    """Lets an option be one of `values` or absent; `words` say so to whoever gave another."""
    allowed = frozenset(values)

    def check(value: str | None) -> str | None:
        if value is None or value in allowed:
            return value
        raise typer.BadParameter(f"{value!r} is not {words}")

    return check
