"""What the commands that ask a server have in common: how they reach it, how they end, how they show a list.

What goes wrong is one line on stderr: exit code 1 for what failed or was not found, 2 for bad usage. It knows no command.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Annotated, Any, NoReturn

import typer

from web import settings
from web.cli_views import json_text, line, show
from web.client import BadAddress, Client, ClientError, Refused

# As many rows as a table shows; --json gives all of them.
ROWS = 200

Url = Annotated[str | None, typer.Option("--url", metavar="URL", help="The server's address, instead of OUTRIDER_URL.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON alone, for scripts.")]


def fail(problem: object, code: int = 1) -> NoReturn:
    """Ends the command with one line on stderr."""
    print(f"outrider: {line(problem)}", file=sys.stderr)
    raise typer.Exit(code)


@contextmanager
def server(url: str | None) -> Iterator[Client]:
    """A client of the server; what goes wrong with it ends the command."""
    try:
        given = settings.client_settings()
        with Client(url or given.url, given.token or "") as client:
            yield client
    except (settings.BadSetting, BadAddress) as problem:
        fail(problem, 2)
    except Refused as problem:
        fail(problem, 2 if problem.status == 400 else 1)
    except ClientError as problem:
        fail(problem)
    except KeyboardInterrupt:
        fail("left; what runs on the server goes on")


def print_list(client: Client, path: str, name: str, table: Any, as_json: bool, **filters: Any) -> None:
    """A list: whole as JSON, its first rows as a table."""
    items = client.pages(path, name, **filters)
    if as_json:
        print(json_text({name: list(items), "next_cursor": ""}))
        return
    rows = list(islice(items, ROWS))
    if not rows:
        print(f"No {name}.", file=sys.stderr)
        return
    show(table(rows))
    if next(items, None):
        print(f"More than {ROWS}; --json gives all.", file=sys.stderr)
