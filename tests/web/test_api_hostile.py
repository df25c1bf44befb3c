"""Every route of the API against missing, wrong, huge and hostile values: a clear error in its form, and no row changes.

The tables here are held against the routes that there are: one that is new and is not in them fails a test.
"""

import base64
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.background.story import everything
from tests.support.server import Server
from tests.web.shapes import ROUTES, Json, error, told
from web import api as jobs_and_batches
from web import api_lifecycle, api_webhooks, documents, events, health

SESSION = "s"
JOB = "bg-0123456789ab"


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with one session, in which nobody works."""
    with Server(tmp_path_factory.mktemp("quiet") / "data") as server:
        server.post("/api/sessions", id=SESSION)
        yield server


@pytest.fixture(autouse=True)
def no_row_changes(request: pytest.FixtureRequest, quiet: Server) -> Iterator[None]:
    """Whatever a test here does, the registry is afterwards as it was before; the fuzz alone may get through."""
    before = registry(quiet)
    yield
    if "fuzz" not in request.node.name:
        assert registry(quiet) == before


def registry(server: Server) -> dict[str, Any]:
    return {table: rows for table, rows in everything(server.data / "outrider.db").items() if table != "workers"}


def test_the_tables_here_know_every_route() -> None:
    rooms = (jobs_and_batches, api_lifecycle, api_webhooks, documents, events, health)
    routes = {
        (method, route.path)  # type: ignore[attr-defined]
        for room in rooms
        for route in room.routes(None)  # type: ignore[arg-type]
        for method in route.methods - {"HEAD"}  # type: ignore[attr-defined]
        if route.path.startswith("/api/")  # type: ignore[attr-defined]
    }
    assert routes == {(method, path) for method, path, _ in ROUTES}


# --- ids ------------------------------------------------------------------------------------------------------------

IDS = [
    JOB,
    "nosuch",
    "x" * 5000,
    "..%2F..%2Fetc%2Fpasswd",
    "%00",
    "a\nb",
    "'; drop table jobs; --",
    "{id}",
    "ü💥",
    "background:",
    "-1",
    "null",
]


@pytest.mark.parametrize(
    ("method", "path", "what"), [route for route in ROUTES if route[2]], ids=lambda value: str(value)
)
def test_f178_whatever_id_is_unknown_answers_alike_to_the_byte(
    quiet: Server, method: str, path: str, what: str
) -> None:
    answers = [
        quiet.http.request(
            method, path.format(id=quote(each, safe=""), task_id="t", webhook="w", event="1.0", artifact="1", part="1")
        )
        for each in IDS
    ]
    assert {told(answer) for answer in answers} == {(404, "NOT_FOUND")}
    assert {answer.content for answer in answers} == {answers[0].content}
    assert error(answers[0])["message"] == f"There is no such {what}."


@pytest.mark.parametrize("given_id", [each for each in IDS if each not in (JOB, "nosuch", "null", "-1")])
def test_a_message_makes_no_session_of_an_id_that_none_may_have(quiet: Server, given_id: str) -> None:
    answer = quiet.http.post(f"/api/sessions/{quote(given_id, safe='')}/messages", json={"text": "hello"})
    assert told(answer) == (400, "INVALID") and error(answer)["details"] == {"field": "session"}
    assert "passwd" not in answer.text and "drop" not in answer.text


# --- queries --------------------------------------------------------------------------------------------------------


def cursor(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


NUMBERS = ["0", "-1", "201", "abc", "", "1.5", " 5", "5 ", "٣", "1e2", "0x10", "9" * 19, "9" * 5000, "\x00"]
CURSORS = [
    "x",
    "é",
    "====",
    cursor("{}"),
    cursor("5"),
    cursor("[]"),
    cursor("[1]"),
    cursor("[1, 2]"),
    cursor('["1", "x"]'),
    cursor('[true, "x"]'),
    cursor('[1.5, "x"]'),
    cursor(f'[{1 << 63}, "x"]'),
    cursor(f'[{"9" * 300}, "x"]'),
    cursor('[[1], "x"]'),
    cursor("[" * 20_000),
    "A" * 50_000,
]
FLAGS = ["maybe", "", "2", "TRUE", "yes"]
QUERIES: list[tuple[str, str, list[str]]] = [
    ("/api/background", "limit", NUMBERS),
    ("/api/background", "cursor", CURSORS),
    ("/api/background", "status", ["nope", "", "COMPLETED", "completed,failed", "' or 1=1"]),
    ("/api/background", "dismissed", FLAGS),
    ("/api/background", "html", FLAGS),
    ("/api/sessions", "limit", NUMBERS),
    ("/api/sessions", "cursor", CURSORS),
    (f"/api/sessions/{SESSION}/messages", "limit", NUMBERS),
    (f"/api/sessions/{SESSION}/messages", "before", [each for each in NUMBERS if each != "201"]),
    (f"/api/sessions/{SESSION}/messages", "cursor", [each for each in NUMBERS if each not in ("201", "")]),
    (f"/api/sessions/{SESSION}/messages", "html", FLAGS),
    ("/api/knowledge/search?q=x", "limit", [each for each in NUMBERS if each != "201"] + ["51"]),
    ("/api/knowledge/search?q=x", "min_trust", ["0", "4", "high", "", "9" * 30]),
    ("/api/knowledge/search?q=x", "source_type", ["nope", "", "Document"]),
    ("/api/knowledge/search", "q", ["", "  ", "x" * 10_001]),
    ("/api/knowledge/documents", "limit", NUMBERS),
    ("/api/knowledge/documents", "cursor", ["x", "doc-", "doc-x", "doc--1", "doc-" + "9" * 30, "٣", "A" * 10_000]),
]


@pytest.mark.parametrize(
    ("path", "field", "values"), QUERIES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_f180_a_bad_query_is_refused_by_the_name_of_its_field_and_not_repeated(
    quiet: Server, path: str, field: str, values: list[str]
) -> None:
    bare, _, more = path.partition("?")
    for value in values:
        answer = quiet.http.get(bare, params={**dict([more.split("=")] if more else []), field: value})
        assert told(answer) == (400, "INVALID"), value
        assert error(answer)["details"] == {"field": field}
        assert len(answer.content) < 400 and error(answer)["message"].startswith(field)


@pytest.mark.parametrize("given_id", ["x", "-1", "1.5", "9" * 16, "", "1 2", "0x1"])
def test_a_last_event_id_that_is_none_is_refused(quiet: Server, given_id: str) -> None:
    answer = quiet.http.get("/api/events", headers={"Last-Event-ID": given_id})
    assert told(answer) == (400, "INVALID") and error(answer)["details"] == {"field": "Last-Event-ID"}


# --- bodies ---------------------------------------------------------------------------------------------------------

SAY = f"/api/sessions/{SESSION}/messages"
SPAWN = "/api/background"
DOCUMENTS = "/api/knowledge/documents"
NO_TEXT: list[Any] = [5, True, [], {}, ["x"]]
NO_JSON = [b"{", b"\xff\xfe", b"{'a': 1}", b"[" * 50_000, b'{"a": ' * 40 + b"1" + b"}" * 40, b"nope", b"{} {}"]
FIELDS: list[tuple[str, Json, str, list[Any], int]] = [
    # path, a good body, the field that is spoilt, with what, and the status
    (SAY, {"text": "x"}, "text", [None, "", " \n", *NO_TEXT, "x" * 1_000_001], 400),
    (SAY, {"text": "x"}, "message_id", [*NO_TEXT, "x" * 257], 400),
    (SAY, {"text": "x"}, "skill", [*NO_TEXT, "nosuch", "x" * 65], 400),
    (SAY, {"text": "x"}, "task_id", [*NO_TEXT, "x" * 257], 400),
    ("/api/sessions", {}, "id", ["", "a b", "x" * 129, "../x", "background:x", "ü", *NO_TEXT], 400),
    ("/api/sessions", {}, "incognito", ["yes", 1, "true"], 400),
    (SPAWN, {"session": SESSION, "prompt": "x"}, "session", [None, "", "a b", "background:x", *NO_TEXT], 400),
    (SPAWN, {"session": SESSION, "prompt": "x"}, "prompt", [None, "", "  ", *NO_TEXT, "x" * 100_001], 400),
    (SPAWN, {"session": SESSION, "prompt": "x"}, "description", [*NO_TEXT, "x" * 2001], 400),
    (SPAWN, {"session": SESSION, "prompt": "x"}, "subagent_type", [*NO_TEXT, "x" * 65], 400),
    (SPAWN, {"session": SESSION, "prompt": "x"}, "subagent_type", ["nosuch", "General", "general "], 422),
    (SPAWN, {"session": SESSION, "prompt": "x"}, "key", [*NO_TEXT, "x" * 201], 400),
    (SPAWN, {"session": SESSION, "prompt": "x"}, "incognito", ["yes", 1, "true"], 400),
    (SPAWN, {"session": SESSION}, "jobs", [None, [], "x", 5, {}, [{"prompt": "x"}] * 65], 400),
    (DOCUMENTS, {"name": "n", "text": "x"}, "name", [None, "", " ", *NO_TEXT, "x" * 501], 400),
    (DOCUMENTS, {"name": "n", "text": "x"}, "text", [None, "", " ", *NO_TEXT, "x" * 4_000_001], 400),
]


@pytest.mark.parametrize(
    ("path", "good", "field", "values", "status"),
    FIELDS,
    ids=[f"{path}-{field}-{status}" for path, _, field, _, status in FIELDS],
)
def test_f180_a_bad_field_is_refused_by_its_name_and_not_repeated(
    quiet: Server, path: str, good: Json, field: str, values: list[Any], status: int
) -> None:
    for value in values:
        answer = quiet.http.post(path, json=good | {field: value})
        assert answer.status_code == status, (value, answer.text)
        assert error(answer)["details"]["field"] == field
        assert len(answer.content) < 600 and "xxxxx" not in answer.text


@pytest.mark.parametrize("path", [SAY, SPAWN, DOCUMENTS, "/api/sessions"])
def test_a_body_that_is_no_json_object_is_refused(quiet: Server, path: str) -> None:
    for body in [*NO_JSON, b"[]", b"5", b'"x"', b"null", b"true"]:
        answer = quiet.http.post(path, content=body)
        assert told(answer) == (400, "INVALID"), body[:20]
        assert error(answer)["details"] == {"field": "body"}


@pytest.mark.parametrize("path", [SAY, SPAWN, DOCUMENTS, "/api/sessions"])
def test_a_body_over_the_limit_is_413(quiet: Server, path: str) -> None:
    answer = quiet.http.post(path, content=b'{"text": "' + b"x" * (4 * 1024 * 1024) + b'"}')
    assert told(answer) == (413, "TOO_LARGE")


# --- addresses ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/nope",
        "/api",
        "/api/nope",
        "/anything/tasks",
        "/api/background/a/b/c",
        "/a2a/tasks",
        "/static/../../x",
        "/.env",
    ],
)
def test_a72_an_address_that_is_none_is_a_404_in_json(quiet: Server, path: str) -> None:
    for method in ("GET", "POST", "DELETE"):
        assert told(quiet.http.request(method, path)) == (404, "NOT_FOUND")


@pytest.mark.parametrize(("method", "path", "what"), ROUTES, ids=[f"{method} {path}" for method, path, _ in ROUTES])
def test_a_method_that_a_route_does_not_take_is_a_405_that_names_those_it_takes(
    quiet: Server, method: str, path: str, what: str | None
) -> None:
    answer = quiet.http.request(
        "PATCH", path.format(id="x", task_id="t", task="t", webhook="w", event="1.0", artifact="1", part="1")
    )
    assert told(answer) == (405, "METHOD_NOT_ALLOWED")
    assert answer.headers["allow"]


def test_asking_for_the_head_of_the_event_stream_ends(quiet: Server) -> None:
    answer = quiet.http.head("/api/events")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream")
    assert quiet.http.get("/healthz").status_code == 200, "on the same connection"


# --- anything -------------------------------------------------------------------------------------------------------

ANY_TEXT = st.text(max_size=40) | st.sampled_from([*IDS, SESSION, "true", "50", "queued", "general", *CURSORS[:8]])
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(
    [
        "id",
        "session",
        "prompt",
        "description",
        "subagent_type",
        "key",
        "jobs",
        "incognito",
        "text",
        "message_id",
        "task_id",
        "skill",
        "name",
    ]
)
ANY_BODY = st.dictionaries(NAMES, ANY_JSON, max_size=5) | ANY_JSON
ANY_QUERY = st.dictionaries(
    st.sampled_from(
        [
            "limit",
            "cursor",
            "before",
            "status",
            "dismissed",
            "html",
            "session",
            "batch",
            "q",
            "min_trust",
            "source_type",
            "download",
        ]
    ),
    ANY_TEXT,
    max_size=4,
)
CALLS = st.sampled_from([(method, path) for method, path, _ in ROUTES if path != "/api/events"])


@settings(max_examples=150, deadline=None, database=None, derandomize=True)
@given(call=CALLS, ids=st.tuples(ANY_TEXT, ANY_TEXT), query=ANY_QUERY, body=ANY_BODY | st.binary(max_size=60))
def test_fuzz_nothing_that_can_be_asked_is_an_error_of_ours(
    quiet: Server, call: tuple[str, str], ids: tuple[str, str], query: dict[str, str], body: Any
) -> None:
    method, path = call
    first, second = (quote(each or "x", safe="", errors="replace") for each in ids)
    there = path.format(id=first, task_id=second, task=first, webhook=second, event="1.0", artifact=second, part=first)
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    clean = {name: value.encode(errors="replace").decode() for name, value in query.items()}
    answer = quiet.http.request(method, there, params=clean, content=content if method == "POST" else None)
    assert answer.status_code < 500 and "Traceback" not in answer.text
    if answer.status_code >= 400:
        error(answer)
