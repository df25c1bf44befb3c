"""The command line keeps its word: what it prints, where, and with which exit code, against a real HTTP server.

The server is `Fake`: it says what the test tells it. What needs a terminal, a signal or a pipe runs as a process of its
own; the rest runs in this one.
"""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from starlette.responses import HTMLResponse, Response
from typer.testing import CliRunner, Result

from agent import files
from background import states
from tests.support.server import ROOT, free_port, wait
from tests.web.fake_outrider import NOW, Fake, ended, error, job, told
from web import cli, cli_chat
from web.client_events import Event, events, lines
from web.setting_fields import Settings

ENV = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LANG": "C.UTF-8", "TERM": "xterm", "COLUMNS": "120"}
JOB = job()["id"]
HOSTILE = "\x1b[31mred\x1b]0;title\x07 \x9b2J \u202egnp.exe\u202c [bold]x[/bold] \ud800 <b>seen</b>"
# Everything by which a text could move a cursor, colour a line or turn its direction.
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture(scope="module")
def running() -> Iterator[Fake]:
    with Fake() as server:
        yield server


@pytest.fixture
def fake(running: Fake) -> Fake:
    """A server that has heard nothing yet."""
    running.now(running.forget)
    return running


@pytest.fixture
def run(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs a command against the fake server, in this process."""
    monkeypatch.setenv("OUTRIDER_URL", fake.url)
    monkeypatch.delenv("OUTRIDER_TOKEN", raising=False)

    def run(*arguments: str, input: str = "") -> Result:
        result = CliRunner().invoke(cli.app, arguments, input=input)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


def process(
    fake: Fake,
    *arguments: str,
    columns: int = 120,
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.PIPE,
    stderr: int = subprocess.PIPE,
) -> subprocess.Popen[bytes]:
    """The command as a process of its own, with pipes."""
    command = [sys.executable, "-m", "web.cli", *arguments]
    env = ENV | {"OUTRIDER_URL": fake.url, "COLUMNS": str(columns)}
    return subprocess.Popen(
        command, cwd=ROOT, env=env, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True
    )


class Terminal:
    """The command at a terminal of its own: `seen` is all that the terminal was sent, `shows` looks at it in order."""

    def __init__(self, fake: Fake, *arguments: str, columns: int = 120) -> None:
        self._own, theirs = pty.openpty()
        self.process = process(fake, *arguments, columns=columns, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        self.seen = ""
        self._at = 0
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(10)
        self._reader.join(10)
        os.close(self._own)

    def _read(self) -> None:
        try:
            while found := os.read(self._own, 4096):
                self.seen += found.decode("utf-8", "replace")
        except OSError:
            return  # the other side is closed

    def type(self, text: str) -> None:
        os.write(self._own, text.encode())

    def shows(self, text: str) -> None:
        """Waits until this was shown, behind what was waited for before."""
        wait(lambda: text in self.seen[self._at :], 10, lambda: f"no {text!r} in {self.seen[self._at :]!r}")
        self._at = self.seen.index(text, self._at) + len(text)

    def ends(self) -> int:
        code = self.process.wait(10)
        self._reader.join(10)
        return code


def only_line(text: str) -> str:
    """The one line there is."""
    (line,) = text.splitlines()
    return line


# --- lists and single things ----------------------------------------------------------------------------------------


def test_jobs_shows_a_row_for_each_job(fake: Fake, run: Callable[..., Result]) -> None:
    fake.jobs = {str(n): job(n, status=status) for n, status in enumerate(["running", "failed"], 1)}
    result = run("jobs")
    rows = [row for row in result.stdout.splitlines() if "bg-" in row]
    assert result.exit_code == 0
    assert [row.split()[:3] for row in rows] == [
        ["bg-000000000002", "failed", "researcher"],
        ["bg-000000000001", "running", "researcher"],
    ]
    assert "look into 1" in rows[1]


def test_jobs_asks_the_server_for_what_was_narrowed_down(fake: Fake, run: Callable[..., Result]) -> None:
    fake.sessions["s 1"] = {"id": "s 1"}
    run("jobs", "--session", "s 1", "--status", "failed")
    assert fake.asked("GET", "/api/background") == [{"session": "s 1", "status": "failed", "limit": "200"}]


def test_jobs_as_json_is_every_page_and_nothing_but_json(fake: Fake, run: Callable[..., Result]) -> None:
    fake.jobs, fake.page = {str(n): job(n) for n in range(7)}, 3
    result = run("jobs", "--json")
    assert [row["description"] for row in json.loads(result.stdout)["jobs"]] == [
        f"look into {n}" for n in range(6, -1, -1)
    ]
    assert result.stderr == ""


def test_a_long_list_of_jobs_ends_and_says_so(fake: Fake, run: Callable[..., Result]) -> None:
    fake.jobs = {str(n): job(n) for n in range(201)}
    result = run("jobs")
    assert result.stdout.count("bg-") == 200
    assert only_line(result.stderr) == "More than 200; --json gives all."


def test_a_cursor_that_comes_again_ends_the_list(fake: Fake, run: Callable[..., Result]) -> None:
    fake.answers["GET /api/background"] = {"jobs": [job()], "next_cursor": "again"}
    assert len(json.loads(run("jobs", "--json").stdout)["jobs"]) == 2


def test_every_status_of_a_job_can_be_asked_for_and_another_is_refused_in_plain_words(
    run: Callable[..., Result],
) -> None:
    assert {status: run("jobs", "--status", status).exit_code for status in states.JOB} == dict.fromkeys(states.JOB, 0)
    assert run("jobs", "--status", "parked").stderr.splitlines()[-1] == (
        "Error: Invalid value for '--status': 'parked' is not "
        "queued, running, input_required, completed, failed or canceled"
    )


@pytest.mark.parametrize(
    ("command", "line"), [(("jobs", "--session", "s"), "No jobs."), (("session", "list"), "No sessions.")]
)
def test_a_list_of_nothing_says_so_without_a_bare_header(
    fake: Fake, run: Callable[..., Result], command: tuple[str, ...], line: str
) -> None:
    fake.answers["GET /api/sessions"] = {"sessions": [], "next_cursor": ""}
    fake.sessions["s"] = {"id": "s"}
    result = run(*command)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", f"{line}\n")


@pytest.mark.parametrize("output", [(), ("--json",)])
def test_the_jobs_of_a_session_that_is_not_there_are_not_none(
    fake: Fake, run: Callable[..., Result], output: tuple[str, ...]
) -> None:
    fake.answers["GET /api/sessions/nope"] = error(404, "NOT_FOUND", "There is no such session.")
    result = run("jobs", "--session", "nope", *output)
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "outrider: There is no such session.\n")


HELPS = ["serve", "worker", "chat", "jobs", "job", "stop", "ingest", "search", "status", "session list"]


@pytest.mark.parametrize("command", HELPS)
def test_help_names_what_to_give_and_no_types(run: Callable[..., Result], command: str) -> None:
    text = run(*command.split(), "--help").stdout.split("Settings,")[0]
    assert re.findall(r"[<>{}]|\[\[|\bstr\b|list\[|\brequired", text) == []
    assert "--help" in text


def test_help_explains_each_argument_by_its_plain_name(run: Callable[..., Result]) -> None:
    usage = {command: run(command, "--help").stdout.splitlines()[0] for command in ("chat", "job", "ingest", "search")}
    assert [line.split("[OPTIONS] ")[1] for line in usage.values()] == ["[TEXT]", "ID", "PATH…", "QUERY"]
    assert "--port PORT" in run("serve", "--help").stdout
    assert "QUERY  Words" in run("search", "--help").stdout


def test_sessions_are_listed(fake: Fake, run: Callable[..., Result]) -> None:
    row = {"id": "s", "title": "On  owls", "kind": "chat", "created_at": NOW, "updated_at": NOW, "running": 0}
    fake.answers["GET /api/sessions"] = {"sessions": [row, row | {"id": "t", "running": 2}], "next_cursor": ""}
    rows = [row.split() for row in run("session", "list").stdout.splitlines()[1:]]
    assert rows == [
        [id, "2026-11-30", "12:00:00Z", state, "On", "owls"] for id, state in (("s", "idle"), ("t", "running"))
    ]
    assert json.loads(run("session", "list", "--json").stdout)["sessions"][1]["running"] == 2


def test_one_job_is_shown_with_all_that_a_reader_asks(fake: Fake, run: Callable[..., Result]) -> None:
    why = {"reason": "TIMED_OUT", "message": "It ran too long."}
    fake.jobs[JOB] = ended(
        status="failed", error=why, partial=True, excerpt="Half of it", report="Half of it, and more"
    )
    page = run("job", JOB).stdout
    for text in (
        JOB,
        "failed",
        "TIMED_OUT: It ran too long.",
        "pending",
        "partial, 6 characters",
        "Find it.",
        "Half of it",
    ):
        assert text in page
    assert "and more" not in page
    assert json.loads(run("job", JOB, "--json").stdout) == fake.jobs[JOB]


def test_a_job_that_waits_to_be_dispatched_says_what_for_and_nothing_of_being_told(
    fake: Fake, run: Callable[..., Result]
) -> None:
    held = {"state": "none", "attempts": 2, "last_error": "Too many tasks are open."}
    fake.jobs[JOB] = job(delivery=held)
    page = run("job", JOB).stdout
    assert "waits:       Too many tasks are open.\n" in page
    assert "told" not in page
    fake.jobs[JOB] = ended(delivery="pending") | {"delivery": held | {"state": "pending"}}
    assert "told:        pending (tried 2 times; Too many tasks are open.)\n" in run("job", JOB).stdout
    fake.jobs[JOB] = job()
    assert "waits" not in run("job", JOB).stdout


def test_a_job_that_was_retried_says_how_often_it_was_attempted(fake: Fake, run: Callable[..., Result]) -> None:
    fake.jobs[JOB] = ended(attempts=3)
    assert "attempts:    3\n" in run("job", JOB).stdout
    fake.jobs[JOB] = ended(attempts=1)
    assert "attempts" not in run("job", JOB).stdout


def test_a_job_that_its_user_stopped_says_who_stopped_it(fake: Fake, run: Callable[..., Result]) -> None:
    fake.jobs[JOB] = ended(status="canceled", canceled_by="user")
    assert "canceled by user" in run("job", JOB).stdout


def test_a_report_goes_into_a_pipe_byte_for_byte(fake: Fake) -> None:
    report = f"# Owls\r\n\n{HOSTILE}\n\n\x00 no newline at the end".encode("utf-8", "surrogatepass")
    fake.answers[f"GET /api/background/{JOB}/report"] = Response(report, media_type="text/markdown")
    out, err = process(fake, "job", JOB, "--report").communicate(timeout=20)
    assert (out, err) == (report, b"")


def test_a_report_without_an_end_is_said_in_one_line(fake: Fake, run: Callable[..., Result]) -> None:
    fake.answers[f"GET /api/background/{JOB}/report"] = error(404, "NOT_FOUND", "There is no report yet.")
    result = run("job", JOB, "--report")
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "outrider: There is no report yet.\n")


def test_stop_says_what_the_job_now_is(fake: Fake, run: Callable[..., Result]) -> None:
    fake.answers[f"POST /api/background/{JOB}/cancel"] = ended(status="canceled", canceled_by="user")
    result = run("stop", JOB)
    assert (result.exit_code, result.stdout) == (0, f"{JOB} canceled: look into 1\n")


def test_s56_stop_never_speaks_of_success_where_a_job_had_ended(fake: Fake, run: Callable[..., Result]) -> None:
    """S56: a cancel of an ended job names its real end, one of an unknown job says that there is none."""
    fake.answers[f"POST /api/background/{JOB}/cancel"] = error(409, "CONFLICT", "The job is completed.")
    assert [run("stop", JOB).stderr, run("stop", JOB).exit_code] == ["outrider: The job is completed.\n", 1]
    assert [run("stop", "bg-0").stderr, run("stop", "bg-0").exit_code] == ["outrider: There is no such thing.\n", 1]
    fake.answers[f"POST /api/background/{JOB}/cancel"] = ended(status="completed")
    assert run("stop", JOB).exit_code == 1


@pytest.mark.parametrize("id", ["", ".", ".."])
def test_an_id_never_changes_the_path_that_is_asked(fake: Fake, run: Callable[..., Result], id: str) -> None:
    assert run("job", id).exit_code == 1
    assert fake.seen == []


@pytest.mark.parametrize("command", [("job", "a/b"), ("job", "../../x", "--report"), ("stop", "/")], ids=" ".join)
def test_an_id_with_slashes_is_no_jobs_and_leads_nowhere(
    fake: Fake, run: Callable[..., Result], command: tuple[str, ...]
) -> None:
    result = run(*command)
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "outrider: There is no such job.\n")
    assert fake.seen == []


def test_text_that_is_no_unicode_is_sent_as_well_as_it_can_be(fake: Fake, run: Callable[..., Result]) -> None:
    """An argument and a file's name may hold any bytes; they come as half characters, which cannot be sent."""
    fake.sessions["a\ufffd"] = {"id": "a\ufffd"}
    run("jobs", "--session", "a\udcff")
    run("job", "a\udcff")
    run("chat", "hi \udcff")
    assert fake.asked("GET", "/api/background")[0]["session"] == "a\ufffd"
    assert fake.asked("POST", "/api/sessions/s/messages")[0]["text"] == "hi \ufffd"


def test_a_text_is_sent_no_longer_than_it_is(fake: Fake, run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("漢" * 1000)
    run("ingest", str(tmp_path))
    assert int(fake.headers[0]["content-length"]) < 3500


# --- what is shown is clean -----------------------------------------------------------------------------------------


def hostile_server(fake: Fake) -> None:
    """Everything that a stranger may have written is hostile."""
    fake.sessions["s"] = {"id": "s"}
    fake.jobs[JOB] = told(1, "t", description=HOSTILE, prompt=HOSTILE, excerpt=HOSTILE, session=HOSTILE)
    fake.jobs[JOB]["delivery"]["last_error"] = HOSTILE
    fake.jobs[JOB]["error"] = {"reason": "MODEL_FAILED", "message": HOSTILE}
    row = {"id": "s", "title": HOSTILE, "kind": "chat", "created_at": NOW, "updated_at": NOW, "running": 0}
    hit = {"id": 1, "heading": HOSTILE, "snippet": HOSTILE, "source": HOSTILE, "source_type": "document", "trust": 1}
    fake.answers |= {
        f"GET /api/background/{JOB}/report": Response(HOSTILE.encode("utf-8", "surrogatepass")),
        "GET /api/sessions": {"sessions": [row]},
        "GET /api/knowledge/search": {"hits": [hit | {"trust_label": "external", "created_at": NOW}]},
        "GET /api/status": status(problems=[HOSTILE]),
        "POST /api/background/x/cancel": error(409, "CONFLICT", HOSTILE),
    }


@pytest.mark.parametrize(
    "command",
    [("jobs",), ("job", JOB), ("session", "list"), ("search", "q"), ("status",), ("stop", "x"), ("chat", "hi")],
    ids=" ".join,
)
def test_s77_nothing_that_was_written_elsewhere_is_obeyed(
    fake: Fake, run: Callable[..., Result], command: tuple[str, ...]
) -> None:
    """S77: no control sequence and no direction override reaches a terminal; the text stays to be seen."""

    async def turn(server: Fake, task: str) -> None:
        for character in HOSTILE:  # a sequence that is cut into pieces is no sequence to be missed
            server.delta(task, character)
        server.finish(task, HOSTILE)

    hostile_server(fake)
    fake.turn = turn
    result = run(*command)
    assert OBEYED.findall(result.output) == []
    assert "␛[31mred␛]0;title␇" in result.output
    if command != ("jobs",):  # whose rows are clipped
        assert "[U+202E]gnp.exe[U+202C] [bold]x[/bold] \ufffd <b>seen</b>" in result.output


@pytest.mark.parametrize("command", [("job", JOB), ("job", JOB, "--report")], ids=" ".join)
def test_s77_a_job_at_a_terminal_sends_it_no_control_sequence(fake: Fake, command: tuple[str, ...]) -> None:
    """S77, at a real terminal: carriage returns are the terminal's own, before each line feed."""
    hostile_server(fake)
    with Terminal(fake, *command) as terminal:
        assert terminal.ends() == 0
        assert OBEYED.findall(terminal.seen.replace("\r\n", "\n")) == []
        assert "␛[31mred" in terminal.seen


def test_json_needs_no_cleaning(fake: Fake, run: Callable[..., Result]) -> None:
    hostile_server(fake)
    result = run("jobs", "--json")
    assert result.stdout.isascii()
    assert OBEYED.findall(result.stdout) == []
    assert json.loads(result.stdout)["jobs"][0]["description"] == HOSTILE


def test_a_long_description_is_clipped_in_the_table_only(fake: Fake, run: Callable[..., Result]) -> None:
    fake.jobs[JOB] = job(description="long " * 100 + "end")
    assert "…" in run("jobs").stdout
    assert "end" not in run("jobs").stdout
    assert "long end" in run("job", JOB).stdout


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_ids_and_statuses_are_whole_in_any_terminal_and_the_description_gives_way(fake: Fake, columns: int) -> None:
    """By the command and by `/jobs` in a chat alike."""
    jobs = [
        job(number, status=status, session="a-session-with-a-long-name", description="every word of it " * 9)
        for number, status in enumerate(states.JOB, 1)
    ]
    fake.jobs = {each["id"]: each for each in jobs}
    with Terminal(fake, "jobs", columns=columns) as terminal:
        assert terminal.ends() == 0
        whole(terminal.seen, jobs, columns)
    with Terminal(fake, "chat", columns=columns) as terminal:
        terminal.shows("› ")
        terminal.type("/jobs\n")
        terminal.shows(jobs[-1]["id"])
        terminal.shows("› ")
        whole(terminal.seen[terminal.seen.index("DESCRIPTION") :], jobs, columns)


def whole(seen: str, jobs: list[dict[str, Any]], columns: int) -> None:
    """Each job has one row, with its id and status in full, that fits into the terminal."""
    for each in jobs:
        (row,) = [line for line in seen.splitlines() if each["id"] in line]
        assert row.split()[:2] == [each["id"], each["status"]]
        assert "every word" in row and row.rstrip().endswith("…") and len(row.rstrip()) <= columns


# --- what goes wrong ------------------------------------------------------------------------------------------------

ASKING = [
    ("jobs",),
    ("job", JOB),
    ("job", JOB, "--report"),
    ("stop", JOB),
    ("search", "q"),
    ("session", "list"),
    ("status",),
    ("chat", "hi"),
    ("ingest", str(ROOT / "README.md")),
]


@pytest.mark.parametrize("command", ASKING, ids=" ".join)
def test_without_a_server_one_line_says_where_it_was_sought_and_how_to_start_it(
    run: Callable[..., Result], command: tuple[str, ...], tmp_path: Path
) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    (tmp_path / "a.md").write_text("text")
    command = ("ingest", str(tmp_path)) if command[0] == "ingest" else command
    result = run(*command, "--url", url)
    assert (result.exit_code, result.stdout) == (1, "")
    assert url in only_line(result.stderr)
    assert "outrider serve" in result.stderr and "(Connection refused)" in result.stderr
    assert "--url" in result.stderr and "OUTRIDER_URL" in result.stderr and "rrno" not in result.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("chat", "  "),
        ("search", ""),
        ("search", "q", "--limit", "0"),
        ("search", "q", "--limit", "51"),
        ("search", "q", "--limit", "many"),
        ("jobs", "--status", "lost"),
        ("job", JOB, "--report", "--json"),
        ("jobs", "--url", "localhost"),
        ("jobs", "--url", "ftp://127.0.0.1"),
        ("jobs", "--nosuch"),
        ("ingest",),
        ("token", "create"),
        ("token", "create", "--user", "al ice"),
    ],
    ids=" ".join,
)
def test_bad_usage_asks_nobody_and_exits_with_2(
    fake: Fake, run: Callable[..., Result], command: tuple[str, ...]
) -> None:
    result = run(*command)
    assert (result.exit_code, result.stdout, fake.seen) == (2, "", [])
    assert result.stderr


def test_a_bad_address_in_the_environment_is_bad_usage(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTRIDER_URL", "nowhere")
    result = run("jobs")
    assert result.exit_code == 2
    assert "OUTRIDER_URL" in only_line(result.stderr)


@pytest.mark.parametrize(
    ("answer", "code", "line"),
    [
        (error(400, "INVALID", "limit: at most 50"), 2, "outrider: limit: at most 50"),
        (error(404, "NOT_FOUND", "There is\nno such job."), 1, "outrider: There is no such job."),
        (error(429, "LIMIT", "Too much."), 1, "outrider: Too much."),
        (
            error(401, "X", "A token is needed."),
            1,
            "outrider: A token is needed. (OUTRIDER_TOKEN is not set)",
        ),
        (Response("broken", status_code=500), 1, "outrider: URL answered 500, and not like Outrider."),
        (HTMLResponse("<p>hello</p>"), 1, "outrider: What answers at URL is not Outrider."),
        (Response("[]", media_type="application/json"), 1, "outrider: What answers at URL is not Outrider."),
    ],
)
def test_a_refusal_is_one_line_in_the_servers_words(
    fake: Fake, run: Callable[..., Result], answer: Response, code: int, line: str
) -> None:
    fake.answers["GET /api/knowledge/search"] = answer
    result = run("search", "q", "--json")
    assert (result.exit_code, result.stdout) == (code, "")
    assert only_line(result.stderr) == line.replace("URL", fake.url)


def test_the_token_goes_along_and_the_option_wins_over_the_environment(
    fake: Fake, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTRIDER_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("OUTRIDER_TOKEN", "secret")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert run("jobs", "--url", fake.url + "/").exit_code == 0
    assert fake.headers[0]["authorization"] == "Bearer secret"


def test_without_a_token_none_is_sent(fake: Fake, run: Callable[..., Result]) -> None:
    run("jobs")
    assert "authorization" not in fake.headers[0]


# --- knowledge ------------------------------------------------------------------------------------------------------


def test_search_shows_the_hits_best_first(fake: Fake, run: Callable[..., Result]) -> None:
    hit = {
        "id": 1,
        "snippet": "an owl\nat night",
        "source": "owls.md",
        "source_type": "document",
        "trust": 3,
        "score": 1.0,
    }
    hits = [hit | {"heading": name, "trust_label": "operator", "job_id": None, "created_at": NOW} for name in "AB"]
    fake.answers["GET /api/knowledge/search"] = {"hits": hits}
    shown = run("search", 'foo-bar "baz', "--limit", "2").stdout
    assert shown.startswith("1. A\n   owls.md (document, operator, 2026-11-30 12:00:00Z)\n   an owl at night\n\n2. B\n")
    assert fake.asked("GET", "/api/knowledge/search") == [{"q": 'foo-bar "baz', "limit": "2"}]
    assert json.loads(run("search", "q", "--json").stdout) == {"hits": hits}


def test_a_search_that_finds_nothing_is_done_and_says_so(fake: Fake, run: Callable[..., Result]) -> None:
    fake.answers["GET /api/knowledge/search"] = {"hits": []}
    result = run("search", "q")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "Nothing found.\n")


@pytest.fixture
def documents(fake: Fake) -> None:
    """The server takes every document; one that is called `known` replaces another."""
    fake.answers["POST /api/knowledge/documents"] = lambda body: (
        error(413, "TOO_LARGE", "This is too much.")
        if "refuse" in body["name"]
        else {"id": body["name"], "chunks": 1 if "notes" in body["name"] else 2, "replaced": "known" in body["name"]}
    )


@pytest.mark.usefixtures("documents")
def test_ingest_takes_texts_and_says_of_each_other_why_not(
    fake: Fake, run: Callable[..., Result], tmp_path: Path
) -> None:
    for name, content in {
        "known.md": b"# A",
        "deep/er/b.MARKDOWN": b"\xef\xbb\xbfb \xc3\xa4",
        "c.txt": b"c",
        ".hidden.md": b"no",
        ".git/config.md": b"no",
        "binary.md": b"a\0b",
        "latin.txt": b"\xe4",
        "empty.md": b" \n",
        "large.md": b"x" * (files.MAX_BYTES + 1),
        "most.md": b"x" * files.MAX_BYTES,
        "code.py": b"pass",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / "gone.md").symlink_to(tmp_path / "nowhere")
    result = run("ingest", str(tmp_path), str(tmp_path / "c.txt"))
    taken = fake.asked("POST", "/api/knowledge/documents")
    assert [Path(body["name"]).relative_to(tmp_path).as_posix() for body in taken] == [
        "c.txt",
        "known.md",
        "most.md",
        "deep/er/b.MARKDOWN",
    ]
    assert [body["text"] for body in taken if body["name"].endswith("MARKDOWN")] == ["b ä"]
    assert result.stdout == "4 documents taken (1 of them in place of an older one), 8 chunks; 7 skipped, 0 failed\n"
    assert {line.rsplit("/", 1)[1] for line in result.stderr.splitlines()} == {
        ".git: hidden",
        ".hidden.md: hidden",
        "binary.md: it is binary",
        "latin.txt: it is not UTF-8 text",
        "empty.md: there is no text in it",
        "large.md: larger than 4 MiB",
        "gone.md: not a file",
    }
    assert result.exit_code == 0


@pytest.mark.usefixtures("documents")
def test_ingest_takes_a_hidden_file_that_was_named_itself(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / ".notes.md").write_text("notes")
    result = run("ingest", str(tmp_path / ".notes.md"))
    assert (result.exit_code, result.stdout) == (0, "1 document taken, 1 chunk; 0 skipped, 0 failed\n")


@pytest.mark.usefixtures("documents")
def test_ingest_goes_on_after_a_refusal_and_fails_in_the_end(run: Callable[..., Result], tmp_path: Path) -> None:
    for name in ("a-refuse.md", "b.md"):
        (tmp_path / name).write_text("text")
    result = run("ingest", str(tmp_path), str(tmp_path / "nosuch.md"))
    assert result.exit_code == 1
    assert result.stdout == "1 document taken, 2 chunks; 0 skipped, 2 failed\n"
    assert "a-refuse.md: This is too much." in result.stderr
    assert "nosuch.md: no such file or folder" in result.stderr


@pytest.mark.usefixtures("documents")
def test_ingest_that_took_nothing_has_failed(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("pass")
    result = run("ingest", str(tmp_path / "code.py"))
    assert result.exit_code == 1
    assert "not named .md" in result.stderr
    assert run("ingest", str(tmp_path)).exit_code == 1


def test_ingest_stops_where_every_further_file_would_be_refused(
    fake: Fake, run: Callable[..., Result], tmp_path: Path
) -> None:
    fake.answers["POST /api/knowledge/documents"] = error(401, "UNAUTHORIZED", "A token is needed.")
    for name in "abc":
        (tmp_path / f"{name}.md").write_text("text")
    assert run("ingest", str(tmp_path)).exit_code == 1
    assert len(fake.seen) == 1


@pytest.mark.usefixtures("documents")
def test_ingest_shows_a_bar_at_a_terminal(fake: Fake, tmp_path: Path) -> None:
    (tmp_path / "a\x1b[31m.md").write_text("text")
    with Terminal(fake, "ingest", str(tmp_path)) as terminal:
        assert terminal.ends() == 0
        assert "1/1" in terminal.seen
        assert "\x1b[31m.md" not in terminal.seen


# --- the state ------------------------------------------------------------------------------------------------------


def status(live: bool = True, **fields: Any) -> dict[str, Any]:
    worker = {
        "id": "w1",
        "host": "here",
        "pid": 7,
        "kinds": ["turn", "job"],
        "started_at": NOW,
        "beat_at": NOW,
        "swept_at": NOW,
    }
    queue = {"kind": "job", "queued": 3, "waiting": 1, "running": 2, "oldest_due_at": NOW}
    return {
        "live": live,
        "workers": [worker | {"live": live}],
        "queue": [queue],
        "undelivered": {"count": 2, "oldest_at": NOW},
        "stores": {
            "registry": {"ok": True, "bytes": 12_345},
            "knowledge": {"ok": False},
            "spare": {"ok": True, "documents": 4, "chunks": 5, "bytes": 6},
        },
        "settings": Settings(data=Path("/data")).model_dump(mode="json"),
        "problems": [],
    } | fields


def test_f173_status_shows_workers_queue_outbox_stores_and_settings(fake: Fake, run: Callable[..., Result]) -> None:
    """F173: what an operator asks of a server, in one table; of the settings those that are not as by default."""
    fake.answers["GET /api/status"] = status(problems=["No index: reports are delivered without a pointer."])
    fake.answers["GET /api/status"]["settings"] |= {"auto_resume": False, "profiles": ["chat", "echo"], "new": 1}
    result = run("status")
    others = len(Settings.model_construct(data=Path()).model_dump()) - 4
    assert (result.exit_code, result.stderr) == (0, "")
    rows = [" ".join(row.split()) for row in result.stdout.splitlines()]
    assert rows == [
        "state live",
        "worker w1 live, heard 2026-11-30 12:00:00Z, swept 2026-11-30 12:00:00Z, here pid 7: turn job",
        "queue job 3 queued, 1 waiting, 2 running, oldest due 2026-11-30 12:00:00Z",
        "not told yet 2 jobs since 2026-11-30 12:00:00Z",
        "store registry 12 kB",
        "store knowledge cannot be read",
        "store spare 4 documents, 5 chunks, 6 B",
        "problem No index: reports are delivered without a pointer.",
        "setting data /data",
        "setting auto_resume false",
        "setting blocking_wait_s 20.0",
        'setting profiles ["chat", "echo"]',
        "setting new 1",
        f"settings {others} others are as by default; --json has all",
    ]
    assert json.loads(run("status", "--json").stdout) == fake.answers["GET /api/status"]


def test_f173_workers_that_are_gone_are_one_line_beside_one_that_lives(fake: Fake, run: Callable[..., Result]) -> None:
    told = status()
    (lives,) = told["workers"]
    gone = [lives | {"id": f"w{n}", "live": False, "beat_at": f"2026-11-30T11:0{n}:00Z"} for n in (2, 3)]
    fake.answers["GET /api/status"] = told | {"workers": [*gone, lives]}
    rows = [" ".join(row.split()) for row in run("status").stdout.splitlines()]
    assert [row for row in rows if "worker" in row] == [
        "worker w1 live, heard 2026-11-30 12:00:00Z, swept 2026-11-30 12:00:00Z, here pid 7: turn job",
        "silent workers 2 within an hour, the last heard 2026-11-30 11:03:00Z",
    ]


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_f173_without_a_live_worker_status_fails_with_the_reason_of_the_refusal(
    fake: Fake, run: Callable[..., Result], options: tuple[str, ...]
) -> None:
    """F173: the exit code is 1, and stderr names `WORKER_UNAVAILABLE`; stdout is what it is with a worker."""
    fake.answers["GET /api/status"] = status(live=False)
    result = run("status", *options)
    assert result.exit_code == 1
    assert "WORKER_UNAVAILABLE" in only_line(result.stderr)
    assert "outrider worker" in result.stderr
    assert json.loads(result.stdout)["live"] is False if options else "no live worker" in result.stdout


# --- the server itself ----------------------------------------------------------------------------------------------


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, Any, Any]]:
    """Stands in for the server: what was started, with which settings."""
    started: list[tuple[str, Any, Any]] = []
    stand_in = ModuleType("web.process")
    stand_in.serve = lambda settings, worker: started.append(("serve", settings, worker)) or 3  # type: ignore
    stand_in.work = lambda settings: started.append(("work", settings, None)) or 4  # type: ignore
    monkeypatch.setitem(sys.modules, "web.process", stand_in)
    monkeypatch.setattr("web.process", stand_in, raising=False)
    monkeypatch.setenv("OUTRIDER_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("OUTRIDER_MODEL", raising=False)
    return started


def test_serve_starts_the_server_with_what_the_command_line_says(
    run: Callable[..., Result], house: list[tuple[str, Any, Any]], tmp_path: Path
) -> None:
    options = (
        "--port",
        "9999",
        "--host",
        "::1",
        "--model",
        "openai:x",
        "--data",
        str(tmp_path / "other"),
        "--no-worker",
    )
    assert run("serve", *options).exit_code == 3
    ((what, settings, worker),) = house
    assert (what, worker) == ("serve", False)
    assert (settings.port, settings.host, settings.model) == (9999, "::1", "openai:x")
    assert settings.data == tmp_path / "other"


def test_serve_has_a_worker_unless_it_is_told_otherwise(
    run: Callable[..., Result], house: list[tuple[str, Any, Any]], tmp_path: Path
) -> None:
    run("serve")
    assert (house[0][1].data, house[0][2]) == (tmp_path / "data", True)


def test_worker_works(run: Callable[..., Result], house: list[tuple[str, Any, Any]]) -> None:
    assert run("worker", "--model", "openai:x").exit_code == 4
    assert (house[0][0], house[0][1].model) == ("work", "openai:x")


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_a_bad_setting_stops_the_start_with_one_line(
    run: Callable[..., Result], house: list[tuple[str, Any, Any]], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("OUTRIDER_MAX_JOBS", "none")
    result = run(command)
    assert (result.exit_code, house) == (2, [])
    assert "OUTRIDER_MAX_JOBS" in only_line(result.stderr)


def test_the_help_of_serve_lists_every_setting(run: Callable[..., Result]) -> None:
    text = run("serve", "--help").stdout
    assert "OUTRIDER_BATCH_JOIN_TIMEOUT_S (900): " in text
    assert "OUTRIDER_AUTO_RESUME (true): " in text


def test_the_command_is_there_and_does_not_load_the_server(fake: Fake) -> None:
    """What only asks a server starts without the agent library."""
    code = "import sys, web.cli; sys.exit(len({'pydantic_ai', 'starlette', 'apsw'} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=ENV, capture_output=True, timeout=30)
    assert (loaded.returncode, loaded.stderr) == (0, b"")
    out, err = process(fake, "--version").communicate(timeout=20)
    assert (re.fullmatch(rb"outrider \d+\.\d+\.\d+\n", out) is not None, err) == (True, b"")


def test_a_reader_that_goes_away_is_no_fault(fake: Fake) -> None:
    fake.jobs = {str(n): job(n, description="x" * 60) for n in range(200)}
    reading, writing = os.pipe()
    os.close(reading)
    try:
        _, err = process(fake, "jobs", "--json", stdout=writing).communicate(timeout=20)
    finally:
        os.close(writing)
    assert b"Traceback" not in err


# --- one message ----------------------------------------------------------------------------------------------------


def speaks(*pieces: str, answer: str | None = None, **end: Any) -> Callable[[Fake, str], Any]:
    """A turn that says these pieces and is kept as `answer`."""

    async def turn(server: Fake, task: str) -> None:
        for piece in pieces:
            server.delta(task, piece)
        server.finish(task, "".join(pieces) if answer is None else answer, **end)

    return turn


def test_chat_makes_a_session_and_streams_the_answer(fake: Fake, run: Callable[..., Result]) -> None:
    fake.turn = speaks("Hel", "lo\n", "there")
    result = run("chat", "hi")
    assert (result.exit_code, result.stdout) == (0, "Hello\nthere\n")
    assert result.stderr == "session s\n"
    ((text, message_id),) = [body.values() for body in fake.asked("POST", "/api/sessions/s/messages")]
    assert (text, len(message_id)) == ("hi", 32)


def test_chat_listens_before_it_speaks(fake: Fake, run: Callable[..., Result]) -> None:
    run("chat", "hi")
    asked = [f"{method} {path}" for method, path, _ in fake.seen]
    assert asked.index("GET /api/events") < asked.index("POST /api/sessions/s/messages")
    assert fake.asked("GET", "/api/events") == [{"session": "s"}]


def test_chat_goes_on_in_a_session(fake: Fake, run: Callable[..., Result]) -> None:
    fake.sessions["s"] = {"id": "s"}
    result = run("chat", "--session", "s", "hi")
    assert (result.stdout, result.stderr) == ("ok\n", "")
    assert fake.asked("POST", "/api/sessions") == []


def test_chat_makes_the_session_that_was_named_and_is_not_there(fake: Fake, run: Callable[..., Result]) -> None:
    assert run("chat", "--session", "mine", "hi").stderr == "session mine\n"
    assert fake.asked("POST", "/api/sessions") == [{"id": "mine"}]


def test_chat_reads_its_text_from_a_pipe(fake: Fake, run: Callable[..., Result]) -> None:
    assert run("chat", input="from a pipe\nand on\n").exit_code == 0
    assert fake.asked("POST", "/api/sessions/s/messages")[0]["text"] == "from a pipe\nand on\n"
    assert run("chat", input=" \n").exit_code == 2


@pytest.mark.parametrize(
    ("pieces", "kept", "printed"),
    [
        (("Hel",), "Hello", "Hello\n"),
        ((), "Hello", "Hello\n"),
        (("I look.", "Found it."), "Found it.", "I look.Found it.\n"),
        (("a ", "b"), "a\n\nb", "a b\n"),
        (("Half a", "gain"), "Anew", "Half again\nAnew\n"),
        (("Half",), "", "Half\n"),
        ((), "", ""),
    ],
)
def test_what_the_log_keeps_is_what_is_read_in_the_end(
    fake: Fake, run: Callable[..., Result], pieces: tuple[str, ...], kept: str, printed: str
) -> None:
    """The rest is added, earlier remarks of the turn stand, and another text is printed as another."""
    fake.turn = speaks(*pieces, answer=kept)
    result = run("chat", "hi")
    assert result.stdout == printed
    assert ("another" in result.stderr) == (kept == "Anew")


def test_a_log_of_many_pages_is_read_whole_and_each_message_once(fake: Fake, run: Callable[..., Result]) -> None:
    """What is said between two pages pushes a message from the one onto the other."""

    async def turn(server: Fake, task: str) -> None:
        server.log(task, "agent", "ok")
        server.messages.append(dict(server.messages[-1]))
        server.emit("turn.finished", session="s", task_id=task, state="completed")

    fake.turn, fake.page = turn, 2
    for number in range(2):
        fake.log(f"t{number}", "user", "before")
    assert run("chat", "hi").stdout == "ok\n"


def test_pieces_of_other_turns_are_not_the_answer(fake: Fake, run: Callable[..., Result]) -> None:
    async def turn(server: Fake, task: str) -> None:
        server.delta("other", "not for you")
        server.emit("turn.finished", session="s", task_id="other", state="completed")
        server.finish(task, "yours")

    fake.turn = turn
    assert run("chat", "hi").stdout == "yours\n"


@pytest.mark.parametrize("gap", ["cut", "reset"])
def test_a_lost_stream_loses_nothing_of_the_answer(fake: Fake, run: Callable[..., Result], gap: str) -> None:
    """The pieces after a gap do not join those before it: the rest is printed once, in the end."""

    async def turn(server: Fake, task: str) -> None:
        server.delta(task, "One ")
        if gap == "cut":
            server.cut()
            server.delta(task, "two ")  # while nobody listens
            await server.heard()
        else:
            server.emit("reset")
        await server.until(lambda: server.asked("GET", "/api/sessions/s/messages"))
        server.delta(task, "three")
        server.finish(task, "One two three")

    fake.turn = turn
    result = run("chat", "hi")
    assert (result.stdout, result.exit_code) == ("One two three\n", 0)
    assert result.stderr == "session s\n"


def test_a_server_that_is_away_for_a_moment_is_waited_for(
    fake: Fake, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    away = iter([HTMLResponse("starting"), HTMLResponse("starting")])
    fake.answers["GET /api/sessions/s/messages"] = lambda _: next(away, None)
    monkeypatch.setattr(cli_chat, "LOOK_S", 0.05)
    result = run("chat", "hi")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "ok\n", "session s\n")


def test_an_end_that_nobody_heard_is_read_from_the_log(
    fake: Fake, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def turn(server: Fake, task: str) -> None:
        server.log(task, "agent", "in silence")

    monkeypatch.setattr(cli_chat, "LOOK_S", 0.05)
    fake.turn = turn
    assert run("chat", "hi").stdout == "in silence\n"


def test_a_stream_goes_on_behind_the_last_event_it_heard(fake: Fake, run: Callable[..., Result]) -> None:
    async def turn(server: Fake, task: str) -> None:
        for stream in server.streams:
            stream.put_nowait(b"id: 41\nevent: turn.started\ndata: {}\n\n")
        server.cut()
        await server.heard()
        server.finish(task, "ok")

    fake.turn = turn
    run("chat", "hi")
    heard = [
        h.get("last-event-id") for (_, path, _), h in zip(fake.seen, fake.headers, strict=True) if path == "/api/events"
    ]
    assert heard == [None, "41"]


def test_a_stream_that_is_refused_for_good_ends_the_waiting(fake: Fake, run: Callable[..., Result]) -> None:
    async def turn(server: Fake, task: str) -> None:
        server.answers["GET /api/events"] = error(404, "NOT_FOUND", "There is no such session.")
        server.cut()

    fake.turn = turn
    result = run("chat", "hi")
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (1, "outrider: There is no such session.")


def test_a_server_that_stays_away_ends_the_waiting(
    fake: Fake, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def turn(server: Fake, task: str) -> None:
        for path in ("GET /api/events", "GET /api/sessions/s/messages"):
            server.answers[path] = HTMLResponse("a proxy's page", 200)
        server.cut()
        server.answers["GET /api/events"] = error(503, "UNAVAILABLE", "Not now.")

    monkeypatch.setattr(cli_chat, "LOOK_S", 0.05)
    monkeypatch.setattr(cli_chat, "AWAY_S", 0.3)
    fake.turn = turn
    result = run("chat", "hi")
    assert (result.exit_code, "is not Outrider" in result.stderr) == (1, True)


def test_a_message_whose_answer_was_lost_is_sent_again_as_the_same(fake: Fake, run: Callable[..., Result]) -> None:
    first = iter([HTMLResponse("half an answer")])
    fake.answers["POST /api/sessions/s/messages"] = lambda _: next(first, None)
    assert run("chat", "hi").stdout == "ok\n"
    ids = [body["message_id"] for body in fake.asked("POST", "/api/sessions/s/messages")]
    assert len(ids) == 2
    assert len(set(ids)) == 1


def test_a_turn_that_failed_says_why(fake: Fake, run: Callable[..., Result]) -> None:
    """With the sentence behind the word, made clean like all that is written elsewhere."""
    fake.turn = speaks("Half", state="failed", reason="MODEL_FAILED", detail="The key\nwas \x1brefused.")
    result = run("chat", "hi")
    assert (result.exit_code, result.stdout) == (1, "Half\n")
    assert result.stderr.splitlines()[-1] == "The turn ended failed: MODEL_FAILED — The key was ␛refused."


def test_a_model_that_is_asked_again_begins_anew_and_its_text_is_read_from_the_log(
    fake: Fake, run: Callable[..., Result]
) -> None:
    """Pieces of a second attempt are never joined to those of the first."""

    async def turn(server: Fake, task: str) -> None:
        server.delta(task, "Owls ar")
        server.delta(task, "Owls ", attempt=2)
        server.delta(task, "are birds", attempt=2)
        server.finish(task, kept[task])

    kept = {"task-1": "Owls are birds", "task-2": "Birds they are"}
    fake.turn = turn
    result = run("chat", "hi")
    assert (result.stdout, result.stderr) == ("Owls are birds\n", "session s\n")
    result = run("chat", "--session", "s", "hi")
    assert result.stdout == "Owls ar\nBirds they are\n"
    assert result.stderr == "The answer that was kept is another than the one above:\n"


# --- silence --------------------------------------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chat that takes a moment for a long time."""
    monkeypatch.setattr(cli_chat, "LOOK_S", 0.03)
    monkeypatch.setattr(cli_chat, "QUIET_S", 0.05)


async def asked_status(server: Fake, times: int) -> None:
    """Waits until the client has asked so often for the state since now."""
    before = len(server.asked("GET", "/api/status"))
    await server.until(lambda: len(server.asked("GET", "/api/status")) >= before + times)


@pytest.mark.usefixtures("impatient")
def test_a_silence_is_explained_by_the_servers_problems_and_again_only_when_they_change(
    fake: Fake, run: Callable[..., Result]
) -> None:
    async def turn(server: Fake, task: str) -> None:
        server.delta(task, "Well")
        for problems in ([], ["WORKER_UNAVAILABLE: no worker\nis live.", "Also this."], ["Another."], [], ["Another."]):
            server.answers["GET /api/status"] = status(problems=problems)
            await asked_status(server, 3)
        server.delta(task, ", here.")
        server.finish(task, "Well, here.")

    fake.turn = turn
    result = run("chat", "hi")
    assert result.stderr.splitlines() == [
        "session s",
        "WORKER_UNAVAILABLE: no worker is live. Also this.",
        "Another.",
        "Another.",
    ]
    assert (result.exit_code, result.stdout) == (0, "Well, here.\n")


@pytest.mark.usefixtures("impatient")
def test_a_silence_while_jobs_are_out_is_explained_too(fake: Fake, run: Callable[..., Result]) -> None:
    async def turn(server: Fake, task: str) -> None:
        server.jobs[JOB] = job(1, batch_id=task)
        server.finish(task, "out")
        await asked_status(server, 2)
        server.jobs[JOB] = told(1, "brief", batch_id=task)
        server.finish("brief", "found")

    fake.answers["GET /api/status"] = status(live=False, problems=["No worker is live."])
    fake.turn = turn
    result = run("chat", "hi")
    assert result.stdout == "out\nfound\n"
    assert result.stderr.splitlines().count("No worker is live.") == 1


@pytest.mark.usefixtures("impatient")
def test_a_state_that_cannot_be_had_ends_no_waiting(fake: Fake, run: Callable[..., Result]) -> None:
    async def turn(server: Fake, task: str) -> None:
        await asked_status(server, 2)
        server.finish(task, "ok")

    fake.answers["GET /api/status"] = error(503, "UNAVAILABLE", "Not now.")
    fake.turn = turn
    result = run("chat", "hi")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "ok\n", "session s\n")


def test_who_hears_something_does_not_ask_for_the_state(fake: Fake, run: Callable[..., Result]) -> None:
    assert run("chat", "hi").exit_code == 0
    assert fake.asked("GET", "/api/status") == []


def test_a_message_that_is_refused_says_why(fake: Fake, run: Callable[..., Result]) -> None:
    fake.answers["POST /api/sessions/s/messages"] = error(503, "WORKER_UNAVAILABLE", "No worker is live.")
    result = run("chat", "hi")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[-1] == "outrider: No worker is live."


# --- jobs of a message ----------------------------------------------------------------------------------------------


async def fan_out(server: Fake, task: str) -> None:
    """A turn that sends out two jobs, which end one after the other and come back as one briefing."""
    first, second = job(1, batch_id=task), job(2, batch_id="its own")
    for row in (first, second):
        server.set_job(row, "background.queued")
    server.delta(task, "They are out.")
    server.finish(task, "They are out.", job_ids=[second["id"]])
    await server.looked()
    await server.looked()
    server.set_job(first | {"status": "running", "started_at": NOW})
    await server.looked()
    server.set_job(ended(1, batch_id=task), "background.completed")
    server.set_job(
        ended(2, "failed", error={"reason": "STALLED", "message": "It stood still."}), "background.completed"
    )
    await server.looked()
    server.log("brief", "nudge", "")
    server.log("brief", "notification", "<task-notification>", job_ids=[first["id"], second["id"]])
    server.delta("brief", "Here is what ")
    for number in (1, 2):
        row = server.jobs[job(number)["id"]]
        told_now = {"notified": True, "notified_in": "brief", "delivery": row["delivery"] | {"state": "delivered"}}
        server.jobs[row["id"]] = row | told_now
    server.finish("brief", "Here is what they found.")


def test_chat_follows_its_jobs_until_the_briefing_was_printed(fake: Fake, run: Callable[..., Result]) -> None:
    fake.jobs["bg-old"] = told(9, "long ago") | {"id": "bg-old"}
    fake.turn = fan_out
    result = run("chat", "look into two things")
    first, second = job(1)["id"], job(2)["id"]
    assert result.stdout == "They are out.\nHere is what they found.\n"
    lines = result.stderr.splitlines()
    assert lines[:2] == ["session s", f"Sent out 2 jobs: {first}, {second}"]
    assert sorted(line for line in lines[2:] if first in line) == [
        f"{first} completed: look into 1",
        f"{first} queued: look into 1",
        f"{first} running: look into 1",
    ]
    assert lines[-1] == f"{second} failed (STALLED): look into 2"
    assert result.exit_code == 0


def test_jobs_of_one_millisecond_stand_in_the_order_they_were_sent_out(fake: Fake, run: Callable[..., Result]) -> None:
    async def turn(server: Fake, task: str) -> None:
        for number in (3, 1, 2):
            server.jobs[str(number)] = told(number, "brief", batch_id=task)
        server.log("brief", "agent", "found")
        server.finish(task, "out")

    fake.turn, fake.page = turn, 2
    sent = [job(number)["id"] for number in (3, 1, 2)]
    assert f"Sent out 3 jobs: {', '.join(sent)}" in run("chat", "hi").stderr.splitlines()


def test_at_a_terminal_the_jobs_move_and_the_answers_stay(fake: Fake) -> None:
    fake.turn = fan_out
    with Terminal(fake, "chat", "look into two things") as terminal:
        assert terminal.ends() == 0
        seen = terminal.seen
    assert "They are out.\r\n" in seen
    assert "running" in seen
    assert f"{job(1)['id']} completed: look into 1\r\n" in seen
    assert seen.count("Here is what they found.\r\n") == 1
    for text in (seen, seen.split("Here is what they found.")[0]):  # the table hides the cursor while it moves
        assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


def test_jobs_that_a_turn_only_told_of_are_not_called_sent_out(fake: Fake, run: Callable[..., Result]) -> None:
    async def turn(server: Fake, task: str) -> None:
        server.jobs[JOB] = told(1, task)
        server.finish(task, "It has ended.", job_ids=[JOB])

    fake.turn = turn
    assert run("chat", "how is it?").stderr == "session s\n"


@pytest.mark.parametrize(
    "row",
    [ended(1, "canceled", canceled_by="user"), ended(1, delivery="undeliverable"), None],
    ids=["stopped by its user", "undeliverable", "gone"],
)
def test_chat_does_not_wait_for_what_will_never_be_briefed(
    fake: Fake, run: Callable[..., Result], row: dict[str, Any] | None
) -> None:
    async def turn(server: Fake, task: str) -> None:
        server.set_job(job(1, batch_id=task), "background.queued")
        server.finish(task, "out")
        await server.looked()
        await server.looked()
        if row:
            server.set_job(row, "background.completed")
        else:
            server.jobs.clear()
            server.emit("reset")

    fake.turn = turn
    result = run("chat", "hi")
    assert (result.exit_code, result.stdout) == (0, "out\n")
    assert "No briefing yet" not in result.stderr


def test_chat_does_not_wait_for_ever_where_reports_wait_for_the_next_turn(
    fake: Fake, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def turn(server: Fake, task: str) -> None:
        server.jobs[JOB] = ended(1, batch_id=task)
        server.finish(task, "out")

    monkeypatch.setattr(cli_chat, "LOOK_S", 0.05)
    monkeypatch.setattr(cli_chat, "BRIEFING_S", 0.1)
    fake.turn = turn
    result = run("chat", "hi")
    assert result.exit_code == 0
    assert result.stderr.splitlines()[-1].endswith("outrider chat --session s")


def test_a_briefing_that_sends_out_more_is_followed_too(fake: Fake, run: Callable[..., Result]) -> None:
    async def turn(server: Fake, task: str) -> None:
        server.jobs[JOB] = ended(1, batch_id=task, delivery="attached")
        server.finish(task, "out")
        await server.looked()
        await server.looked()
        server.jobs[JOB] = told(1, "brief", batch_id=task)
        server.jobs[job(2)["id"]] = ended(2, batch_id="brief", delivery="attached")
        server.finish("brief", "One found, one more is out.")
        await server.looked()
        server.jobs[job(2)["id"]] = told(2, "brief-2", batch_id="brief")
        server.finish("brief-2", "All found.")

    fake.turn = turn
    result = run("chat", "hi")
    assert result.stdout == "out\nOne found, one more is out.\nAll found.\n"
    assert f"Sent out 1 job: {job(2)['id']}" in result.stderr


@pytest.mark.parametrize("answered", [True, False], ids=["in the jobs", "in the answer"])
def test_ctrl_c_leaves_everything_running_and_says_how_to_come_back(fake: Fake, answered: bool) -> None:
    async def turn(server: Fake, task: str) -> None:
        if answered:
            server.jobs[JOB] = job(1, batch_id=task, status="running")
            server.finish(task, "out")
        else:
            server.delta(task, "Well,")

    fake.turn = turn
    chat = process(fake, "chat", "hi")
    assert chat.stdout and chat.stderr
    wait(lambda: fake.asked("GET", "/api/background") if answered else fake.asked("POST", "/api/sessions/s/messages"))
    assert chat.stdout.read(3) == (b"out" if answered else b"Wel")
    if answered:
        while b"running" not in chat.stderr.readline():
            pass
    chat.send_signal(signal.SIGINT)
    _, err = chat.communicate(timeout=20)
    assert chat.returncode == (0 if answered else 1)
    assert err.decode().splitlines()[-1] == "Left; what runs goes on. Come back with: outrider chat --session s"
    assert not [path for method, path, _ in fake.seen if "cancel" in path or method == "DELETE"]


# --- at the prompt --------------------------------------------------------------------------------------------------


def test_a_chat_at_the_prompt_answers_and_briefs_between_its_lines(fake: Fake) -> None:
    """A briefing appears while the prompt waits, and what was typed so far stays."""

    async def turn(server: Fake, task: str) -> None:
        server.set_job(job(1, batch_id=task, status="running"), "background.queued")
        server.delta(task, "It is")
        server.finish(task, "It is out.")

    def brief() -> None:
        fake.log("brief", "agent", "It was \x1b[31mfound.")
        fake.set_job(told(1, "brief"), "background.completed")

    fake.turn = turn
    with Terminal(fake, "chat") as terminal:
        terminal.shows("session s. Commands: /jobs, /stop ID, /report ID, /steer TEXT, /quit")
        terminal.shows("› ")
        terminal.type("look into it\r")
        terminal.shows("It is out.")
        terminal.shows(f"Sent out 1 job: {JOB}")
        terminal.shows("› ")
        terminal.type("half a li")
        terminal.shows("half a li")
        fake.now(brief)
        terminal.shows(f"{JOB} completed: look into 1")
        terminal.shows("It was ␛[31mfound.")
        terminal.shows("› half a li")
        terminal.type("ne\r")
        terminal.shows("It is out.")
        terminal.shows("› ")
        terminal.type("/quit\r")
        terminal.shows("Come back with: outrider chat --session s")
        assert terminal.ends() == 0
    texts = [body["text"] for body in fake.asked("POST", "/api/sessions/s/messages")]
    assert texts == ["look into it", "half a line"]


def test_what_the_users_own_turn_told_is_not_told_again(fake: Fake) -> None:
    async def turn(server: Fake, task: str) -> None:
        server.jobs[JOB] = told(1, task, batch_id="task-1") if task == "task-2" else job(1, batch_id=task)
        server.finish(task, f"the answer of {task}")

    fake.turn = turn
    with Terminal(fake, "chat") as terminal:
        for line, shown in {"one": "Sent out 1 job", "two": f"{JOB} completed", "/jobs": JOB}.items():
            terminal.shows("› ")
            terminal.type(f"{line}\r")
            terminal.shows(shown)
        terminal.type("/quit\r")
        terminal.ends()
        assert terminal.seen.count("the answer of task-2") == 1


def test_the_prompt_has_commands_of_its_own(fake: Fake) -> None:
    fake.jobs[JOB] = told(1, "t")
    fake.answers[f"GET /api/background/{JOB}/report"] = Response("the \x1b[31mreport")
    fake.answers[f"POST /api/background/{JOB}/cancel"] = error(409, "CONFLICT", "The job is completed.")
    with Terminal(fake, "chat") as terminal:
        for line, shown in {
            "/jobs": "look into 1",
            f"/report {JOB}": "the ␛[31mreport",
            f"/stop {JOB}": "The job is completed.",
            "/report bg-none": "There is no such thing.",
            "/nonsense": "Commands: /jobs",
            "": "› ",
        }.items():
            terminal.shows("› ")
            terminal.type(f"{line}\r")
            terminal.shows(shown)
        terminal.type("\x04")
        assert terminal.ends() == 0
    assert fake.asked("POST", "/api/sessions/s/messages") == []


def test_coming_back_says_how_the_last_turn_failed_and_brings_the_answer_of_one_that_runs(fake: Fake) -> None:
    fake.sessions["s"] = {"id": "s"}
    fake.log("t1", "user", "long ago", "failed", reason="STALLED")
    fake.log("t2", "user", "and now", "working")
    with Terminal(fake, "chat", "--session", "s") as terminal:
        terminal.shows("› and now")
        terminal.shows("› ")
        fake.now(lambda: fake.finish("t2", "", "failed", reason="MODEL_FAILED", detail="The key was refused."))
        terminal.shows("The turn ended failed: MODEL_FAILED — The key was refused.")
        terminal.type("/quit\r")
        terminal.ends()
        assert "STALLED" not in terminal.seen


def test_coming_back_shows_what_was_missed_and_what_is_still_out(fake: Fake) -> None:
    fake.sessions["s"] = {"id": "s"}
    for task, kind, text in [
        ("t1", "user", "long ago"),
        ("t1", "agent", "an old answer"),
        ("t2", "user", "look into it"),
        ("t2", "agent", "They are out."),
        ("b", "notification", "<task-notification>"),
        ("b", "agent", "Found while you were away."),
    ]:
        fake.log(task, kind, text)
    fake.jobs = {job(1)["id"]: told(1, "b"), job(2)["id"]: job(2, status="running")}
    with Terminal(fake, "chat", "--session", "s") as terminal:
        terminal.shows("› look into it")
        terminal.shows("They are out.")
        terminal.shows("Found while you were away.")
        terminal.shows(f"{job(2)['id']} running: look into 2")
        assert "long ago" not in terminal.seen
        assert "an old answer" not in terminal.seen
        terminal.shows("› ")
        terminal.process.send_signal(signal.SIGINT)
        terminal.shows("Come back with:")
        assert terminal.ends() == 0


def test_ctrl_c_in_a_turn_leaves_the_turn_and_not_the_chat(fake: Fake) -> None:
    async def turn(server: Fake, task: str) -> None:
        server.delta(task, "Well,")

    fake.turn = turn
    with Terminal(fake, "chat") as terminal:
        terminal.shows("› ")
        terminal.type("hi\r")
        terminal.shows("Well,")
        terminal.process.send_signal(signal.SIGINT)
        terminal.shows("The turn goes on; its answer will be shown.")
        terminal.shows("› ")
        fake.now(lambda: fake.finish("task-1", "Well, here it is."))
        terminal.shows("Well, here it is.")
        terminal.type("/quit\r")
        assert terminal.ends() == 0


def test_a_failure_at_the_prompt_is_said_and_the_chat_goes_on(fake: Fake) -> None:
    fake.answers["POST /api/sessions/s/messages"] = error(429, "LIMIT", "Too many tasks are open.")
    with Terminal(fake, "chat") as terminal:
        terminal.shows("› ")
        terminal.type("hi\r")
        terminal.shows("Too many tasks are open.")
        terminal.shows("› ")
        del fake.answers["POST /api/sessions/s/messages"]
        terminal.type("again\r")
        terminal.shows("ok")
        terminal.type("/quit\r")
        assert terminal.ends() == 0


# --- the stream -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_events_are_read_from_pieces_of_any_size(size: int) -> None:
    """Only a line feed ends a line: U+2028 and U+0085 may stand in JSON as they are."""
    text = ': hello\n\nid: 7\r\nevent: a\r\ndata: {"text": "ä\u2028b\x85c"}\r\n\r\nevent: reset\n\ndata: {"x":\ndata:  1}\n\nevent: cut'
    stream = text.encode()
    pieces = (stream[at : at + size] for at in range(0, len(stream), size))
    assert list(events(lines(pieces))) == [
        Event("a", {"text": "ä\u2028b\x85c"}, "7"),
        Event("reset", {}),
        Event("message", {"x": 1}),
    ]


def test_a_line_without_an_end_is_not_kept_for_ever() -> None:
    with pytest.raises(ValueError, match="too long"):
        list(lines(b"x" * 1_000_000 for _ in range(9)))


@pytest.mark.parametrize("data", ["no json", "[]"])
def test_an_event_that_is_no_object_is_refused(data: str) -> None:
    with pytest.raises(ValueError):
        list(events([f"data: {data}", ""]))
