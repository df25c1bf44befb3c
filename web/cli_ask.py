"""`outrider ask`: a further question to the worker of a job that has ended, by a running server."""

import sys
from typing import Annotated

import typer

from web.cli_help import Plain
from web.cli_server import Url, fail, server
from web.cli_views import job_line
from web.client import job_path

COMES = "Its answer takes the place of the report and is told in its session; `outrider job {} --report` shows it."


def add_to(app: typer.Typer) -> None:
    """Makes the command one of the app's."""
    app.command(cls=Plain)(ask)


def ask(
    job_id: Annotated[str, typer.Argument(metavar="ID", help="The job's id, bg-…")],
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="What its worker is asked further.")],
    url: Url = None,
) -> None:
    """Asks the worker of a job that has ended; it goes on from what it knows."""
    if not question.strip():
        fail("the question is empty", 2)
    with server(url) as client:
        asked = client.post(f"{job_path(job_id)}/ask", {"prompt": question})
    print(job_line(asked))
    print(COMES.format(asked["id"]), file=sys.stderr)
