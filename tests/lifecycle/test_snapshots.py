"""A session carried elsewhere: sealed on the way, taken in whole or not at all, and never in place of what is there."""

import base64
import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.access import people
from tests.lifecycle.looking import cleaned, rows
from tests.push.hooks import echo, hook
from tests.support.inside import Inside
from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel
from tests.support.server import Server

Json = dict[str, Any]
Make = Callable[..., Inside]


@pytest.fixture(autouse=True)
def tidy(server: Server) -> Any:
    yield
    for one in server.get("/api/sessions")["sessions"]:
        server.http.delete(f"/api/sessions/{one['id']}")
    cleaned(server)


@pytest.fixture
def snapshot(server: Server, model: ScriptedModel, session: str, word: str) -> Json:
    """A session of two turns that is exported; one has an answer, one has failed."""
    model.rules(
        [Rule(last_user="^break", status=400, text=f"broken {word}"), Rule(last_user=word, text=f"Yes, {word}.")]
    )
    server.ask(session, f"Remember {word}.")
    server.ended(server.say(session, f"break {word}"))
    return server.get(f"/api/sessions/{session}/export")


def taken(server: Server, snapshot: Any, **query: str) -> tuple[int, Json]:
    body = snapshot if isinstance(snapshot, bytes) else json.dumps(snapshot).encode()
    answer = server.http.post("/api/sessions/import", content=body, params=query)
    return answer.status_code, answer.json()


def counts(server: Server) -> Json:
    tables = ("sessions", "tasks", "results", "messages", "checkpoints", "views", "journal")
    return rows(server.data, "select " + ", ".join(f"(select count(*) from {one}) as {one}" for one in tables))[0]


def texts(server: Server, session: str) -> list[str]:
    return [message["text"] for message in server.messages(session)]


def gone(server: Server, session: str) -> None:
    assert server.http.delete(f"/api/sessions/{session}").status_code == 202


def test_an_export_shows_no_word_and_no_secret(
    inside: Make, model: ScriptedModel, session: str, word: str, receiver_free: str
) -> None:
    """F164, F179: neither what was said nor any key, token or credential."""
    key = base64.b64encode(secrets.token_bytes(32)).decode()
    server = inside(seal_key=key)
    model.rules([Rule(last_user=word, text=f"Yes, {word}.")])
    server.ask(session, f"Remember {word}.")
    config = hook(receiver_free, token=f"token-{word}", authentication={"scheme": "Bearer", "credentials": f"c-{word}"})
    context = server.ended(echo(server, config, f"say {word}"))["contextId"]
    for one in (session, context):
        answer = server.http.get(f"/api/sessions/{one}/export")
        assert answer.headers["content-disposition"] == f'attachment; filename="{one}.json"'
        assert not [secret for secret in (word, key, key[:16], receiver_free) if secret in answer.text]
        assert "webhook" not in answer.text and "credential" not in answer.text


@pytest.fixture
def receiver_free() -> str:
    """An address where nobody listens."""
    return "http://127.0.0.1:9/never"


def test_what_was_exported_comes_back_as_it_was(server: Server, snapshot: Json, session: str, word: str) -> None:
    """The same ids, texts, results, times and title; and once more changes nothing."""
    before = server.messages(session)
    tasks = [server.task(message["task_id"]) for message in before]
    title = server.get(f"/api/sessions/{session}")["title"]
    gone(server, session)
    assert taken(server, snapshot)[0] == 201
    count = counts(server)
    for _ in range(2):
        assert [{**message, "id": 0} for message in server.messages(session)] == [
            {**message, "id": 0} for message in before
        ]
        assert [server.task(message["task_id"]) for message in before] == tasks
        assert server.get(f"/api/sessions/{session}")["title"] == title == f"Remember {word}."
        assert taken(server, snapshot)[0] == 201
        assert counts(server) == count


def test_under_another_name_it_is_another_session(server: Server, snapshot: Json, session: str) -> None:
    """Its ids are taken here, so its tasks get others, and the same ones when it is taken in again."""
    for _ in range(2):
        assert taken(server, snapshot, id=f"{session}-b")[1]["id"] == f"{session}-b"
        assert texts(server, f"{session}-b") == texts(server, session)
        assert counts(server)["tasks"] == 4
    ours, theirs = ({m["task_id"] for m in server.messages(one)} for one in (session, f"{session}-b"))
    assert not ours & theirs
    assert all(server.task(task)["contextId"] == f"{session}-b" for task in theirs)


def test_it_is_not_put_into_a_session_that_was_not_made_of_it(server: Server, snapshot: Json, session: str) -> None:
    server.ask(f"{session}-c", "another conversation", skill="echo")
    before = server.messages(f"{session}-c")
    status, answer = taken(server, snapshot, id=f"{session}-c")
    assert (status, answer["error"]["code"]) == (409, "CONFLICT")
    assert server.messages(f"{session}-c") == before


def test_a_snapshot_without_results_loads_and_results_without_tasks_are_passed_over(
    server: Server, snapshot: Json, session: str
) -> None:
    """F163."""
    gone(server, session)
    bare = {name: value for name, value in snapshot.items() if name != "results"}
    assert taken(server, bare)[0] == 201
    assert counts(server)["results"] == 0
    assert texts(server, session)[0].startswith("Remember")
    gone(server, session)
    some = next(iter(snapshot["results"].values()))
    orphan = {**snapshot, "results": {**snapshot["results"], "nobodys": some, "odd": 7}}
    assert taken(server, orphan)[0] == 201
    assert counts(server)["results"] == 2
    assert counts(server)["tasks"] == 2


def test_a_result_that_is_there_is_never_replaced(
    server: Server, model: ScriptedModel, snapshot: Json, session: str, word: str
) -> None:
    """F163: the first written stands, whatever a snapshot says; one that is missing is filled in."""
    first, *_ = snapshot["tasks"]
    report = rows(server.data, "select artifacts from results where task_id = :id", id=first["id"])
    assert taken(server, snapshot)[0] == 201
    assert rows(server.data, "select artifacts from results where task_id = :id", id=first["id"]) == report
    gone(server, session)
    bare = {name: value for name, value in snapshot.items() if name != "results"}
    assert taken(server, bare)[0] == 201 and taken(server, snapshot)[0] == 201
    assert texts(server, session)[1] == f"Yes, {word}."


def test_a_cell_that_was_altered_or_moved_refuses_the_whole(server: Server, snapshot: Json, session: str) -> None:
    """F049, F164: each in turn, with its place named, and nothing is stored."""
    gone(server, session)
    before, sealed = counts(server), list(_cells(snapshot))
    assert len(sealed) >= 8
    for place, (holder, name) in sealed:
        whole = holder[name]
        for wrong in (
            _flipped(whole),
            whole[:-8],
            "sealed:",
            "sealed:???",
            whole.removeprefix("sealed:"),
            "plain words",
            7,
        ):
            holder[name] = wrong
            status, answer = taken(server, snapshot)
            assert (status, answer["error"]["code"]) == (400, "INVALID"), place
        holder[name] = whole
        holder[name] = next(other[key] for _, (other, key) in sealed if other[key] != whole)
        status, answer = taken(server, snapshot)
        assert status == 400 and "altered, moved" in answer["error"]["message"]
        assert place.rpartition(".")[2] in answer["error"]["details"]["field"]
        holder[name] = whole
    assert counts(server) == before
    other = {**snapshot, "session": {**snapshot["session"], "id": "another"}}
    assert taken(server, other)[0] == 400  # a snapshot's cells are its session's
    assert taken(server, snapshot)[0] == 201


def _cells(value: Any, place: str = "") -> Any:
    """(place, (what holds it, under which name)) of every cell."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in list(pairs):
        if isinstance(inner, str) and inner.startswith("sealed:"):
            yield f"{place}.{name}", (value, name)
        else:
            yield from _cells(inner, f"{place}.{name}")


def _flipped(cell: str) -> str:
    sealed = bytearray(base64.b64decode(cell.removeprefix("sealed:")))
    sealed[-1] ^= 1
    return "sealed:" + base64.b64encode(bytes(sealed)).decode()


def test_another_installation_opens_it_with_the_key_and_refuses_it_without(
    inside: Make, model: ScriptedModel, session: str, word: str
) -> None:
    """F049, F164: the key is a setting; a second one beside it does no harm."""
    keys = [base64.b64encode(secrets.token_bytes(32)).decode() for _ in range(3)]
    first = inside(seal_key=keys[0])
    model.rules([Rule(last_user=word, text=f"Yes, {word}.")])
    task = first.say(session, f"Remember {word}.")
    first.ended(task)
    snapshot = first.get(f"/api/sessions/{session}/export")
    told = first.task(task)
    first.stop()
    second = inside(seal_key=f"{keys[1]},{keys[0]}")
    assert taken(second, snapshot)[0] == 201
    assert second.task(task) == told
    second.stop()
    stranger = inside(seal_key=keys[2])
    status, answer = taken(stranger, snapshot)
    assert status == 400 and "\n" not in answer["error"]["message"]
    assert answer["error"]["message"].endswith("sealed with a key that is not here.")
    assert counts(stranger)["tasks"] == 0 and stranger.http.get(f"/api/sessions/{session}").status_code == 404


def _changed(snapshot: Json, path: str, value: Any) -> Json:
    changed = json.loads(json.dumps(snapshot))
    *way, last = path.split(".")
    place: Any = changed
    for name in way:
        place = place[int(name) if isinstance(place, list) else name]
    if value is ...:
        del place[last]
    else:
        place[int(last) if isinstance(place, list) else last] = value
    return changed


NUMBERS = [None, True, -1, 1.5, 1e400, float("nan"), 2**63, 10**30, "7", [], {}]
TEXTS = [None, "", 7, True, [], {}, "x" * 5000, ["a"]]
ODD: dict[str, list[Any]] = {
    "format": [None, "", "other", 7],
    "version": [None, 0, 2, "1", True, 1.0, float("nan")],
    "session": [None, 7, [], "s"],
    "session.id": [None, "", 7, "a b", "background:bg-1", "x" * 129, "\ud800", "a\x00b"],
    "session.updated_at": [*NUMBERS[1:]],
    "tasks": [7, "x", {}, [7], [None], [[]], [{}], [{}] * 20_000],
    "results": [7, [], "x"],
    "messages": [7, "x", {}, [7], [{}], [{}] * 60_000],
    "tasks.0": [None, 7, []],
    "tasks.0.id": [*TEXTS, "a/b", "a:b", "a b", "ä", "%2e"],
    "tasks.0.profile": TEXTS,
    "tasks.0.origin": [*TEXTS, "background", "User"],
    "tasks.0.cause": TEXTS[1:],
    "tasks.0.state": [*TEXTS, "working", "submitted", "input_required", "COMPLETED"],
    "tasks.0.ceiling": [*TEXTS, "FULL"],
    "tasks.0.reason": [*TEXTS[1:], "TIMED_OUT"],
    "tasks.0.requests": NUMBERS,
    "tasks.0.tool_calls": NUMBERS,
    "tasks.0.created_at": NUMBERS,
    "tasks.0.started_at": NUMBERS[1:],
    "tasks.0.ended_at": NUMBERS,
    "messages.0": [None, 7, []],
    "messages.0.uid": [*TEXTS, "a/b"],
    "messages.0.task": [*TEXTS[2:]],
    "messages.0.kind": [*TEXTS, "system"],
    "messages.0.job_ids": [None, 7, "x", {}, [7], [None], ["x" * 5000], ["x"] * 5000],
    "messages.0.created_at": NUMBERS,
}


@pytest.mark.parametrize("path", ODD)
def test_nothing_that_is_no_snapshot_of_ours_is_taken_or_breaks_anything(
    server: Server, model: ScriptedModel, session: str, path: str
) -> None:
    """Wrong types, huge numbers, NaN, surrogates, tens of thousands of entries: 400 with the place, and nothing is stored."""
    server.ask(session, "hello")
    snapshot = server.get(f"/api/sessions/{session}/export")
    gone(server, session)
    before = counts(server)
    for value in ODD[path]:
        status, answer = taken(server, _changed(snapshot, path, value))
        assert status == 400, (path, str(value)[:80], answer)
        assert answer["error"]["code"] == "INVALID" and answer["error"]["details"].get("field"), answer
    assert counts(server) == before
    if path not in ("format", "version", "session", "session.id", "results", "tasks", "messages", "session.updated_at"):
        missing = taken(server, _changed(snapshot, path, ...))[0] if not path[-1].isdigit() else 400
        assert missing == (201 if path.rpartition(".")[2] in ("cause", "reason", "started_at", "task") else 400)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"7", b"null", b"{", b'{"a": ' * 500, b"\xff", b'{"format": NaN}', b'"x"']
)
def test_what_is_no_object_is_no_snapshot(server: Server, body: bytes) -> None:
    assert taken(server, body)[0] == 400


def test_a_body_without_end_is_cut_off(server: Server) -> None:
    def endless() -> Any:
        for _ in range(80):
            yield b" " * 1_000_000

    answer = server.http.post("/api/sessions/import", content=endless())
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "TOO_LARGE")


def test_entries_that_come_twice_and_a_task_that_ended_tomorrow(
    server: Server, model: ScriptedModel, session: str
) -> None:
    server.ask(session, "hello")
    snapshot = server.get(f"/api/sessions/{session}/export")
    gone(server, session)
    for name in ("tasks", "messages"):
        assert taken(server, {**snapshot, name: snapshot[name] * 2})[0] == 400
    (task,) = snapshot["tasks"]
    tomorrow = task["ended_at"] + 10**15
    late = {**snapshot, "tasks": [{**task, "created_at": tomorrow, "ended_at": tomorrow}]}
    assert taken(server, late)[0] == 201
    (row,) = rows(server.data, "select created_at, ended_at from tasks")
    assert row["created_at"] <= row["ended_at"] < tomorrow  # else it would never outlive its time


def test_where_less_is_kept_less_is_kept_of_it(inside: Make, model: ScriptedModel, session: str) -> None:
    """An answer level of the installation holds for what comes from elsewhere too."""
    key = base64.b64encode(secrets.token_bytes(32)).decode()
    first = inside(seal_key=key)
    model.rules([Rule(last_user="mail", text="Write to bob@example.com.")])
    task = first.say(session, "mail alice@example.com")
    first.ended(task)
    snapshot = first.get(f"/api/sessions/{session}/export")
    first.stop()
    second = inside(seal_key=key, answer_level="redacted")
    assert taken(second, snapshot)[0] == 201
    shown = json.dumps([second.messages(session), second.task(task), second.get(f"/api/sessions/{session}")])
    assert "Write to" in shown and "example.com" not in shown


def test_the_command_line_carries_a_session_over(server: Server, snapshot: Json, session: str, tmp_path: Path) -> None:
    """Export, import, copy, erase: what is wrong is one line; exit code 2 is for what was typed, 1 for what is in the file."""

    def outrider(*words: str) -> tuple[int, str, str]:
        done = people.outrider(None, "session", *words, "--url", server.url)
        return done.exit_code, done.stdout, done.stderr

    code, printed, _ = outrider("export", session)
    file = tmp_path / "session.json"
    file.write_text(printed)
    assert code == 0 and json.loads(printed)["session"]["id"] == session
    assert outrider("import", str(file), "--as", f"{session}-b") == (0, f"{session}-b\n", "")
    assert outrider("copy", f"{session}-b", "--as", f"{session}-c") == (0, f"{session}-c\n", "")
    assert texts(server, f"{session}-c") == texts(server, session)
    code, _, told = outrider("erase", session)  # nobody is there to be asked
    assert code == 1 and "nothing was erased; --yes does not ask" in told
    assert outrider("erase", session, "--yes") == (0, "", "")
    assert server.http.get(f"/api/sessions/{session}").status_code == 404
    altered = _changed(json.loads(printed), "messages.0.text", "sealed:AAAA")
    for content, words in {
        "{}": 'This is no exported session: its "format" is not "outrider.session".',
        json.dumps({**json.loads(printed), "version": 2}): "exported by a newer Outrider",
        json.dumps(altered): "messages.",
        "no JSON": "must be JSON",
    }.items():
        file.write_text(content)
        code, _, told = outrider("import", str(file))
        assert (code, told.count("\n")) == (1, 1) and told.startswith(f"outrider: {file}: ") and words in told
    file.write_text(printed)
    code, _, told = outrider("import", str(file), "--as", "a b")
    assert (code, told.count("\n")) == (2, 1) and told.startswith("outrider: id: ")


def test_the_command_line_says_what_was_left_out(server: Server, model: ScriptedModel, session: str, word: str) -> None:
    """F162: a turn that still thinks is in no export and no copy, and whoever asked for one reads that."""

    def told(*words: str) -> str:
        done = people.outrider(None, "session", *words, "--url", server.url)
        assert done.exit_code == 0
        return done.stderr

    model.rules([Rule(last_user=word, text="late", gate="late")])
    server.ask(session, "hello")
    assert told("export", session) == ""
    thinking = server.say(session, word)
    assert told("export", session) == "Left out: 1 turn that has not ended yet.\n"
    waiting = server.say(session, "and then")
    assert told("copy", session) == "Left out: 2 turns that have not ended yet.\n"
    model.open("late")
    for one in (thinking, waiting):
        server.ended(one)
