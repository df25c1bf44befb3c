"""The command `outrider`: its options, its exit codes, and who does what it asks.

0 is done, 1 is that the thing asked for failed or was not found, 2 is bad usage; what went wrong is one line on stderr.
Every command but `serve`, `worker`, `seal`, `token`, `backup` and `restore` asks a running server, and the server decides.
"""

import json
import sys
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer
from rich.console import Console

from background import states
from web import cli_ask, cli_backup, cli_deliveries, cli_documents, cli_memory, settings
from web.cli_chat import say_once
from web.cli_help import Plain, one_of
from web.cli_ingest import WEB, ingest_pages
from web.cli_ingest import ingest as take
from web.cli_prompt import converse
from web.cli_server import ROWS, AsJson, Url, fail, print_list, server
from web.cli_story import story_text
from web.cli_tokens import token_app
from web.cli_views import (
    ENDED,
    clean,
    hits_text,
    job_line,
    job_page,
    jobs_table,
    json_text,
    line,
    sessions_table,
    show,
    status_table,
)
from web.client import Refused, job_path, session_path

# As many hits as the server gives at most.
MOST_HITS = 50
STATUSES = f"{', '.join([*states.JOB][:-1])} or {[*states.JOB][-1]}"
HITS = f"a number from 1 to {MOST_HITS}"

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
session_app = typer.Typer(no_args_is_help=True)
seal_app = typer.Typer(no_args_is_help=True)
app.add_typer(seal_app, name="seal", help="The keys that seal what the registry keeps.")
app.add_typer(token_app, name="token", help="Access tokens, by which users are known.")
app.add_typer(session_app, name="session", help="Sessions of the server.")
app.add_typer(cli_deliveries.app, name="deliveries", help="What did not arrive, again or given up.")
app.add_typer(cli_documents.app, name="documents", help="Documents of the knowledge store.")
app.add_typer(cli_memory.app, name="memory", help="What is remembered of sessions.")


JobId = Annotated[str, typer.Argument(metavar="ID", help="The job's id, bg-…")]
SessionId = Annotated[str, typer.Argument(metavar="ID", help="The session's id.")]
Data = Annotated[str | None, typer.Option("--data", metavar="DIR", help="The data folder.")]
Model = Annotated[str | None, typer.Option("--model", metavar="NAME", help="The model, or `offline`.")]


def main() -> None:
    """The console command."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character shows a question mark instead of a stack trace.
        stream.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]
    app(prog_name="outrider")


def required(text: str, what: str) -> str:
    """The text, if there is any."""
    if not text.strip():
        fail(f"{what} is empty", 2)
    return text


@app.callback(invoke_without_command=True)
def outrider(show_version: Annotated[bool, typer.Option("--version", help="Prints the version.")] = False) -> None:
    """Send subagents out, keep the chat live, get one briefing back."""
    if show_version:
        print(f"outrider {version('outrider')}")
        raise typer.Exit


# --- the server itself ----------------------------------------------------------------------------------------------


def settings_help() -> str:
    """Every setting, one a line; the mark in front keeps the lines apart."""
    rows = "\n".join(f"{row.environment} ({row.default}): {row.meaning}" for row in settings.table())
    return f"\b\nSettings, from the environment or from {settings.FILE} in the data folder:\n{rows}"


@app.command(cls=Plain, epilog=settings_help())
def serve(
    host: Annotated[str | None, typer.Option(metavar="ADDRESS", help="The address to listen on.")] = None,
    port: Annotated[str | None, typer.Option(metavar="PORT", help="The port to listen on.")] = None,
    data: Data = None,
    model: Model = None,
    no_worker: Annotated[
        bool, typer.Option("--no-worker", help="Serve only; work is done by `outrider worker`.")
    ] = False,
) -> None:
    """Web server and worker in one process."""
    given = load(host=host, port=port, data=data, model=model)
    raise typer.Exit(process().serve(given, worker=not no_worker))


@app.command(cls=Plain)
def worker(data: Data = None, model: Model = None) -> None:
    """A worker alone, for a database that several processes share."""
    given = load(data=data, model=model)
    raise typer.Exit(process().work(given))


@seal_app.command("rotate", cls=Plain)
def seal_rotate(data: Data = None) -> None:
    """Seals everything anew with a new key (or the first of OUTRIDER_SEAL_KEY), after which the old ones are not needed.

    Server and workers must be stopped. Killed in between, it is run again.
    """
    given = load(data=data)
    from web import rotation

    try:
        print(rotation.rotate_seals(given))
    except rotation.Unrotated as problem:
        fail(problem)


@seal_app.callback()
def seals() -> None:
    """The keys that seal what the registry keeps."""


cli_backup.add_to(app)


def process() -> ModuleType:
    """The server. Loading it and the agent library takes long, so what only asks a server starts without them."""
    from web import process as web_process

    return web_process


def load(**command_line: str | None) -> settings.Settings:
    """The settings; a bad one ends the command."""
    try:
        return settings.load(command_line)
    except settings.BadSetting as problem:
        fail(problem, 2)


# --- talking --------------------------------------------------------------------------------------------------------


@app.command(cls=Plain)
def chat(
    text: Annotated[str | None, typer.Argument(metavar="[TEXT]", help="One message; none for a prompt.")] = None,
    session: Annotated[str | None, typer.Option(metavar="ID", help="Go on in this session.")] = None,
    steer: Annotated[
        bool,
        typer.Option("--steer", help="Let the turn that runs in the session take TEXT up, if it takes another step."),
    ] = False,
    incognito: Annotated[
        bool,
        typer.Option(
            "--incognito", help="Nothing said here is remembered or searched; all of it goes a day after the last word."
        ),
    ] = False,
    url: Url = None,
) -> None:
    """One message, or an interactive chat; answers stream, jobs are followed until they are briefed."""
    if text is None and not sys.stdin.isatty():
        text = sys.stdin.buffer.read().decode("utf-8", "replace")
    if text is not None:
        text = required(text, "the text")
    elif steer:
        fail("--steer wants a TEXT; at the prompt it is /steer TEXT", 2)
    with server(url) as client:
        if text is None:
            code = converse(client, session, incognito=incognito)
        else:
            code = say_once(client, session, text, steer=steer, incognito=incognito)
    raise typer.Exit(code)


@session_app.command("list", cls=Plain)
def session_list(as_json: AsJson = False, url: Url = None) -> None:
    """Lists sessions."""
    with server(url) as client:
        print_list(client, "/api/sessions", "sessions", sessions_table, as_json)


@session_app.command("export", cls=Plain)
def session_export(session: SessionId, url: Url = None) -> None:
    """Prints a session as JSON, its texts sealed: it can be imported where one of this server's seal keys is."""
    with server(url) as client:
        exported = client.content(f"{session_path(session)}/export")
    sys.stdout.buffer.write(exported + b"\n")
    tell_left_out(json.loads(exported))


@session_app.command("import", cls=Plain)
def session_import(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `export` printed; - for standard input.")],
    session: Annotated[str | None, typer.Option("--as", metavar="ID", help="The session's id here.")] = None,
    url: Url = None,
) -> None:
    """Makes an exported session into one of this server; what is there already stays."""
    try:
        content = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as problem:
        fail(f"{file}: {problem.strerror}")
    with server(url) as client:
        try:
            print(client.send("/api/sessions/import", content, id=session)["id"])
        except Refused as problem:  # of what was typed only the name is the server's to judge; the rest is in the file
            typed = problem.status == 400 and problem.field == "id"
            fail(problem if typed or problem.status != 400 else f"{file}: {problem}", 2 if typed else 1)


@session_app.command("copy", cls=Plain)
def session_copy(
    session: SessionId,
    to: Annotated[str | None, typer.Option("--as", metavar="ID", help="The copy's id; a new one by default.")] = None,
    url: Url = None,
) -> None:
    """Copies a session's ended turns with their results into a new session, and prints its id."""
    with server(url) as client:
        copied = client.post(f"{session_path(session)}/copy", {"id": to} if to else {})
    print(copied["id"])
    tell_left_out(copied)


def tell_left_out(carried: dict[str, Any]) -> None:
    """Says what of a session was not taken along."""
    if turns := carried.get("left_out", {}).get("turns", 0):
        left = f"{turns} turns that have" if turns > 1 else "1 turn that has"
        print(f"Left out: {left} not ended yet.", file=sys.stderr)


@session_app.command("erase", cls=Plain)
def session_erase(
    session: SessionId,
    yes: Annotated[bool, typer.Option("--yes", help="Does not ask.")] = False,
    url: Url = None,
) -> None:
    """Erases a session with its turns, jobs and reports; what still runs in it is stopped."""
    with server(url) as client:
        found = client.get(session_path(session))
        if not yes and not _agreed(f"Erase '{line(found['title'] or session)}' with all its jobs and reports?"):
            fail("nothing was erased; --yes does not ask")
        client.delete(session_path(session))


def _agreed(question: str) -> bool:
    """Whether somebody says yes; where nobody can be asked, nobody does."""
    try:
        return typer.confirm(question)
    except typer.Abort:
        print(file=sys.stderr)
        return False


session_app.command("memory", cls=Plain)(cli_memory.of_session)


@session_app.callback()
def sessions() -> None:
    """Sessions of the server."""


# --- jobs -----------------------------------------------------------------------------------------------------------


@app.command(cls=Plain)
def jobs(
    session: Annotated[str | None, typer.Option(metavar="ID", help="Only this session's.")] = None,
    status: Annotated[
        str | None,
        typer.Option(metavar="STATUS", callback=one_of(states.JOB, STATUSES), help=f"Only these: {STATUSES}."),
    ] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Lists jobs."""
    with server(url) as client:
        if session:
            client.get(session_path(session))  # a mistyped one is not an empty one
        print_list(client, "/api/background", "jobs", jobs_table, as_json, session=session, status=status, limit=ROWS)


@app.command(cls=Plain)
def job(
    job_id: JobId,
    report: Annotated[bool, typer.Option("--report", help="The full report and nothing else.")] = False,
    story: Annotated[bool, typer.Option("--story", help="All that happened to it, in order.")] = False,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Shows one job."""
    if report and (as_json or story):
        fail(f"--report and {'--story' if story else '--json: the JSON of a job has its report'}", 2)
    with server(url) as client:
        if report:
            print_report(client.content(f"{job_path(job_id)}/report"))
        elif story:
            told = client.get(f"{job_path(job_id)}/story")
            print(json_text(told) if as_json else story_text(told))
        else:
            found = client.get(job_path(job_id))
            print(json_text(found) if as_json else job_page(found))


@app.command(cls=Plain)
def stop(job_id: JobId, url: Url = None) -> None:
    """Cancels a job."""
    with server(url) as client:
        stopped = client.post(f"{job_path(job_id)}/cancel")
    print(job_line(stopped))
    if stopped.get("note"):
        print(line(stopped["note"]), file=sys.stderr)
    if stopped["status"] in ENDED and stopped["status"] != "canceled":
        raise typer.Exit(1)


cli_ask.add_to(app)


# --- knowledge ------------------------------------------------------------------------------------------------------


@app.command(cls=Plain)
def ingest(
    sources: Annotated[list[str], typer.Argument(metavar="PATH…", help="Files, folders, http or https addresses.")],
    url: Url = None,
) -> None:
    """Adds text, Markdown, HTML and PDF files, folders of them, or pages of the web to the knowledge store.

    Files are read here; a page is read by a job of the server's, in the session `ingest`.
    """
    err = Console(stderr=True, highlight=False)
    pages = [source for source in sources if source.startswith(WEB)]
    with server(url) as client:
        counts = take(client, [Path(source) for source in sources if source not in pages], err)
        if pages:
            ingest_pages(client, pages, counts, err)
    print(counts)
    if counts.failed or not counts.taken:
        fail("nothing was taken" if not counts.taken else f"{counts.failed} failed")


@app.command(cls=Plain)
def search(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Words, in any form.")],
    limit: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            callback=one_of(map(str, range(1, MOST_HITS + 1)), HITS),
            help=f"At most so many hits, {HITS}.",
        ),
    ] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Searches the knowledge store."""
    with server(url) as client:
        found = client.get("/api/knowledge/search", q=required(query, "the query"), limit=limit)
    if as_json:
        print(json_text(found))
    elif found["hits"]:
        print(hits_text(found["hits"]))
    else:
        print("Nothing found.", file=sys.stderr)


# --- the state ------------------------------------------------------------------------------------------------------


@app.command(cls=Plain)
def status(as_json: AsJson = False, url: Url = None) -> None:
    """Workers, queue, undelivered jobs, stores, settings; exits with 1 when no worker is live."""
    with server(url) as client:
        found = client.get("/api/status")
    if as_json:
        print(json_text(found))
    else:
        show(status_table(found))
    if not found["live"]:
        fail("WORKER_UNAVAILABLE: no live worker; start one with `outrider worker`")


def print_report(report: bytes) -> None:
    """Byte for byte into a file or a pipe; made clean for a terminal."""
    if sys.stdout.isatty():
        print(clean(report.decode("utf-8", "replace")))
    else:
        sys.stdout.buffer.write(report)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
