"""`outrider documents`: what was taken into the knowledge store, listed and removed. The server decides."""

from collections.abc import Iterable
from typing import Annotated, Any

import typer
from rich.table import Table

from web.cli_help import Plain
from web.cli_server import AsJson, Url, print_list, server
from web.cli_views import columns, when, width
from web.client import document_path

app = typer.Typer(no_args_is_help=True)


@app.callback()
def documents() -> None:
    """Documents of the knowledge store."""


@app.command("list", cls=Plain)
def documents_list(as_json: AsJson = False, url: Url = None) -> None:
    """Lists what was taken in, the newest first. Shared ones are everybody's, and Outrider's own."""
    with server(url) as client:
        print_list(client, "/api/knowledge/documents", "documents", _table, as_json)


@app.command("remove", cls=Plain)
def documents_remove(
    document: Annotated[str, typer.Argument(metavar="ID", help="The document's id, doc-…")], url: Url = None
) -> None:
    """Removes a document: it is found no more. A shared one stays."""
    with server(url) as client:
        client.drop(document_path(document))


def _table(found: Iterable[dict[str, Any]], room: int | None = None) -> Table:
    return columns(
        "ID",
        "TAKEN IN",
        "CHARS",
        "TRUST",
        "WHOSE",
        "NAME",
        room=room or width(),
        spare=("TAKEN IN", "WHOSE", "CHARS"),
        rows=(
            (row["id"], when(row["created_at"]), row["chars"], row["trust_label"], _whose(row), row["name"])
            for row in found
        ),
    )


def _whose(row: dict[str, Any]) -> str:
    return "shared" if row["shared"] else "yours"
