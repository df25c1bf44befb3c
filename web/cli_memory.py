"""`outrider memory` and `outrider session memory`: what is remembered, and what of it a session's models were given."""

from collections.abc import Iterable
from typing import Annotated, Any

import typer
from rich.table import Table

from web.cli_help import Plain
from web.cli_server import AsJson, Url, print_list, server
from web.cli_views import columns, when, width
from web.client import memory_path, session_path

app = typer.Typer(no_args_is_help=True)


@app.callback()
def memory() -> None:
    """What is remembered of sessions."""


@app.command("list", cls=Plain)
def memory_list(
    summaries: Annotated[bool, typer.Option("--summaries", help="Summaries of sessions instead of facts.")] = False,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Lists the facts that turns may be given, the newest first."""
    with server(url) as client:
        print_list(client, "/api/memory", "memories", _table, as_json, kind="summary" if summaries else "fact")


@app.command("remove", cls=Plain)
def memory_remove(
    memory: Annotated[str, typer.Argument(metavar="ID", help="The id of a fact or summary, m-…")], url: Url = None
) -> None:
    """Removes a fact, or a summary: it is given to no turn any more."""
    with server(url) as client:
        client.drop(memory_path(memory))


def of_session(
    session: Annotated[str, typer.Argument(metavar="ID", help="The session's id.")],
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Lists what of memory a session's models were given: which turn, which item, its trust, about how many tokens."""
    with server(url) as client:
        print_list(client, f"{session_path(session)}/memory", "uses", _uses, as_json)


def _table(found: Iterable[dict[str, Any]], room: int | None = None) -> Table:
    return columns(
        "ID",
        "NOTED",
        "SESSION",
        "TEXT",
        room=room or width(),
        spare=("NOTED", "SESSION"),
        rows=((row["id"], when(row["created_at"]), row["session"] or "(gone)", row["text"]) for row in found),
    )


def _uses(found: Iterable[dict[str, Any]], room: int | None = None) -> Table:
    return columns(
        "AT",
        "TASK",
        "KIND",
        "TRUST",
        "TOKENS",
        "ITEM",
        room=room or width(),
        spare=("AT", "TRUST", "TOKENS"),
        rows=(
            (when(row["at"]), row["task_id"], row["kind"], row["trust"], row["tokens"], row["item"] or "(gone)")
            for row in found
        ),
    )
