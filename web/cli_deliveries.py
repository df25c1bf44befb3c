"""`outrider deliveries`: what did not arrive, sent again or given up by hand. The server decides."""

from collections.abc import Iterable
from typing import Annotated, Any

import typer
from rich.table import Table

from background.ledger import STATES
from web.cli_help import Plain, one_of
from web.cli_server import AsJson, Url, print_list, server
from web.cli_views import columns, line, when, width
from web.client import Refused, part

CAME_TO_NOTHING = "undeliverable"
DEAD = "dead"
ALL = (*STATES, DEAD)
WORDS = f"{', '.join(ALL[:-1])} or {ALL[-1]}"

app = typer.Typer(no_args_is_help=True)
Id = Annotated[str, typer.Argument(metavar="ID", help="As the list shows it: a job's id, or a webhook call's.")]


@app.callback()
def deliveries() -> None:
    """What is owed to sessions and webhooks, and what has become of it."""


@app.command("list", cls=Plain)
def deliveries_list(
    state: Annotated[
        str, typer.Option(metavar="STATE", callback=one_of(ALL, WORDS), help=f"Which: {WORDS} (a webhook's call).")
    ] = CAME_TO_NOTHING,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Lists ends of jobs that no turn could tell; with --state dead, webhook calls that were given up."""
    asked = {"kind": "webhook"} if state == DEAD else {"state": state}
    with server(url) as client:
        print_list(client, "/api/deliveries", "deliveries", _table, as_json, **asked)


@app.command("replay", cls=Plain)
def deliveries_replay(delivery: Id, url: Url = None) -> None:
    """Tells or calls once more, by the rules of any delivery: what was told is not told again."""
    with server(url) as client:
        done = client.post(_path(delivery, webhook="again", briefing="replay"))
    print(f"{line(delivery)} {line(done['state'])}")


@app.command("discard", cls=Plain)
def deliveries_discard(delivery: Id, url: Url = None) -> None:
    """Gives a delivery up, with a mark of who did. A job's report stays where it is."""
    with server(url) as client:
        done = client.post(_path(delivery, webhook="discard", briefing="discard"))
    print(f"{line(delivery)} {line(done['state'])}")


def _path(delivery: str, *, webhook: str, briefing: str) -> str:
    """Where it is: a webhook call's id is its task's, its webhook's and its event's. Raises `Refused` for what is neither."""
    if "/" not in delivery:
        return f"/api/deliveries/{part(delivery)}/{briefing}"
    parts = delivery.split("/")
    if len(parts) != 3 or not all(parts):
        raise Refused("There is no such delivery.", 404, "NOT_FOUND")
    task, name, event = map(part, parts)
    return f"/api/webhooks/{task}/{name}/deliveries/{event}/{webhook}"


def _table(found: Iterable[dict[str, Any]]) -> Table:
    return columns(
        "ID",
        "STATE",
        "ENDED",
        "TRIES",
        "WHY",
        room=width(),
        spare=("ENDED", "TRIES"),
        rows=(
            (row["id"], row["state"], when(row["ended_at"]), row["tries"], row["last_error"] or "-") for row in found
        ),
    )
