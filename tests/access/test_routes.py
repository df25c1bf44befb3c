"""F074, F075, F175, F178, S26, A67: every route there is, asked by nobody, by its owner, by another, with a share, and
with what was revoked. The tables name each route of the running server, and a route without a row fails.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from starlette.routing import Mount, Route

from tests.access.people import Person
from tests.support.server import Server
from web import a2a_card
from web.a2a_methods import Methods
from web.a2a_rest import ROADS
from web.app import build, routes
from web.setting_fields import Settings

VERSION = {"A2A-Version": "1.0"}
HOOK = "https://93.184.216.34/"  # a public address, as webhooks lead to; nothing is sent there


class Row(NamedTuple):
    """A route, and what its owner, another user, and that user with a share are answered.

    Where another gets 404 it must be, to the byte, what an id that nobody has gets. `body` is JSON; `query` narrows.
    """

    verb: str
    path: str
    owner: int
    other: int
    share: int
    body: dict[str, Any] | None = None
    query: str = ""

    @property
    def name(self) -> str:
        return f"{self.verb} {self.path}{self.query}"


ROWS = [
    # whatever is named belongs to somebody
    Row("GET", "/api/background/{job}", 200, 404, 200),
    Row("GET", "/api/background/{job}/report", 200, 404, 200),
    Row("GET", "/api/background/{job}/story", 200, 404, 404),
    Row("GET", "/api/batches/{batch}", 200, 404, 200),
    Row("GET", "/api/sessions/{session}", 200, 404, 200),
    Row("GET", "/api/sessions/{session}/messages", 200, 404, 200),
    Row("GET", "/api/sessions/{session}/tasks/{task}/artifacts/{artifact}/{part}", 200, 404, 200),
    Row("GET", "/api/sessions/{session}/memory", 200, 404, 404),
    Row("GET", "/api/sessions/{session}/memory/{use}", 200, 404, 404),
    Row("GET", "/api/events", 200, 404, 200, query="?session={session}"),
    Row("GET", "/api/sessions/{session}/export", 200, 404, 404),
    Row("GET", "/api/sessions/{session}/shares", 200, 404, 404),
    Row("GET", "/api/webhooks/{task}/{webhook}/deliveries", 200, 404, 404),
    Row("POST", "/api/webhooks/{task}/{webhook}/deliveries/{event}/again", 404, 404, 404),
    Row("POST", "/api/webhooks/{task}/{webhook}/deliveries/{event}/discard", 404, 404, 404),
    Row("POST", "/api/deliveries/{job}/replay", 409, 404, 404),
    Row("POST", "/api/deliveries/{job}/discard", 409, 404, 404),
    Row("POST", "/api/background", 202, 404, 404, {"session": "{session}", "prompt": "look into x"}),
    Row("POST", "/api/background/{job}/cancel", 409, 404, 404),
    Row("POST", "/api/background/{job}/dismiss", 200, 404, 404),
    Row("POST", "/api/sessions/{session}/stop", 200, 404, 404),
    Row("POST", "/api/sessions/{session}/tasks/{task}/cancel", 409, 404, 404),
    Row("POST", "/api/sessions/{session}/copy", 201, 404, 404),
    Row("POST", "/api/sessions/{session}/shares", 201, 404, 404),
    Row("DELETE", "/api/sessions/{session}/shares/{unused}", 204, 404, 404),
    Row("DELETE", "/api/knowledge/documents/{document}", 204, 404, 404),
    Row("DELETE", "/api/memory/{memory}", 404, 404, 404),
    # a list has only one's own, and what is made is one's own
    Row("GET", "/api/sessions", 200, 200, 200),
    Row("GET", "/api/background", 200, 200, 200),
    Row("GET", "/api/background", 200, 200, 200, query="?session={session}"),
    Row("GET", "/api/knowledge/search", 200, 200, 200, query="?q=owls"),
    Row("GET", "/api/knowledge/search", 200, 200, 200, query="?q=owls&session={session}"),
    Row("GET", "/api/knowledge/documents", 200, 200, 200),
    Row("GET", "/api/memory", 200, 200, 200),
    Row("GET", "/api/webhooks", 200, 200, 200),
    Row("GET", "/api/deliveries", 200, 200, 200),
    Row("GET", "/api/events", 200, 200, 200),
    Row("GET", "/api/login", 200, 200, 200),
    Row("GET", "/api/status", 200, 200, 200),
    Row("GET", "/api/openapi.json", 200, 200, 200),
    Row("GET", "/metrics", 200, 200, 200),
    Row("POST", "/api/sessions", 201, 201, 404, {}),
    Row("POST", "/api/sessions/import", 400, 400, 404, {"session": {"id": "x"}}),
    Row("POST", "/api/sessions/{fresh}/messages", 202, 202, 404, {"text": "mine", "skill": "echo"}),
    Row("POST", "/api/knowledge/documents", 201, 201, 404, {"name": "n", "text": "t"}),
    Row("POST", "/api/knowledge/ingest", 400, 404, 404, {"session": "{session}", "source": "/etc/passwd"}),
    Row("POST", "/api/events/ticket", 201, 201, 404),
]
# What takes things away, in this order and after all else.
LAST = [
    Row("DELETE", "/api/background/{job}/report", 202, 404, 404),
    Row("POST", "/api/background/{job}/ask", 409, 404, 404, {"prompt": "and then?"}),
    Row("POST", "/api/background/{job}/retry", 202, 404, 404),
    Row("DELETE", "/api/sessions/{session}/tasks/{task}", 202, 404, 404),
    Row("DELETE", "/api/sessions/{session}", 202, 404, 404),
]
# What is nobody's: the same for all of them, with whatever they show.
OPEN = [
    ("GET", "/"),
    ("GET", "/static/main.js"),
    ("GET", a2a_card.PATH),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("DELETE", "/api/login"),
]
ELSEWHERE = {("POST", "/api/login")}  # a token is all that it takes: test_login.py
A2A = {("POST", "/a2a"), ("POST", "/a2a/"), ("*", "/a2a/rest"), ("*", "/a2a/rest/{path:path}")}  # by method, below

TASK = {"id": "{task}"}
SAID = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "more"}], "taskId": "{task}"}
CONFIG = {"taskId": "{task}", "id": "{webhook}"}


class Asked(NamedTuple):
    """An A2A method: its params, and the reason that its owner and a share are refused with; empty where they are served."""

    params: dict[str, Any]
    owner: str = ""
    share: str = "TASK_NOT_FOUND"


METHODS = {
    "GetTask": Asked(TASK, share=""),
    "SubscribeToTask": Asked(TASK, owner="UNSUPPORTED_OPERATION", share="UNSUPPORTED_OPERATION"),
    "CancelTask": Asked(TASK, owner="TASK_NOT_CANCELABLE"),
    "SendMessage": Asked({"message": SAID}, owner="UNSUPPORTED_OPERATION"),
    "SendStreamingMessage": Asked({"message": SAID}, owner="UNSUPPORTED_OPERATION"),
    "GetTaskPushNotificationConfig": Asked(CONFIG),
    "ListTaskPushNotificationConfigs": Asked({"taskId": "{task}"}),
    "CreateTaskPushNotificationConfig": Asked({"taskId": "{task}", "id": "more", "url": HOOK}),
    "DeleteTaskPushNotificationConfig": Asked({"taskId": "{task}", "id": "more"}),
}
LISTS = {"ListTasks"}
OWN = {"GetExtendedAgentCard"}  # each has one: test_extended_card.py


class Things(dict[str, str]):
    """What Alice has, by the names that stand in braces above; and as whom it is asked for."""

    people: dict[str, Person]

    def fill(self, value: Any) -> Any:
        """The value with the names in it replaced."""
        if isinstance(value, dict):
            return {key: self.fill(each) for key, each in value.items()}
        return re.sub(r"\{(\w+)\}", lambda name: self[name[1]], value) if isinstance(value, str) else value


# Ids of the same form that nobody has.
UNKNOWN = Things(
    session="nobodys",
    task="0197e2a0-0000-7000-8000-000000000000",
    job="bg-000000000000",
    batch="batch-0000000000000000",
    webhook="nobodys",
    event="1.0",
    unused="shr-000000000000",
    document="doc-999999",
    memory="m-nobodys",
    use="999999",
    artifact="1",
    part="2",
)


@pytest.fixture(scope="module")
def things(guarded: Server, alice: Person, bob: Person, nobody: Person, revoked: Person) -> Iterator[Things]:
    task = alice.echoed("inventory", "words of alice", data={"of": "alice"})["id"]
    alice.rpc("CreateTaskPushNotificationConfig", {"taskId": task, "id": "hook", "url": HOOK})
    job = alice.post("/api/background", session="inventory", prompt="look into owls", description="owls").json()
    guarded.wait(lambda: alice.get(f"/api/background/{job['id']}").json()["notified"])
    alice.post("/api/knowledge/documents", name="alices", text="owls, by alice")
    (document,) = (d for d in alice.get("/api/knowledge/documents").json()["documents"] if d["name"] == "alices")
    alice.post("/api/sessions/inventory/messages", text="What is known of owls?")
    guarded.wait(lambda: alice.get("/api/sessions/inventory/memory").json()["uses"])
    uses = alice.get("/api/sessions/inventory/memory").json()["uses"]
    share, over, unused = (alice.post("/api/sessions/inventory/shares").json() for _ in range(3))
    alice.send("DELETE", f"/api/sessions/inventory/shares/{over['id']}")
    found = Things(
        session="inventory",
        task=task,
        job=job["id"],
        batch=job["batch_id"],
        webhook="hook",
        event="1.0",
        unused=unused["id"],
        document=document["id"],
        memory="m-0",
        use=str(uses[0]["id"]),
        fresh="not-made-yet",
        artifact="1",
        part="2",
    )
    found.people = {
        "owner": alice,
        "other": bob,
        "nobody": nobody,
        "revoked": revoked,
        "share": Person(guarded, bob.token, **{"X-Share-Token": share["token"]}),
        "share over": Person(guarded, bob.token, **{"X-Share-Token": over["token"]}),
    }
    yield found


def ask(person: Person, verb: str, path: str, body: dict[str, Any] | None = None, **headers: str) -> httpx.Response:
    """One request; of an event stream, which has no end, the head alone."""
    http = person.server.http
    http.cookies.clear()
    sent = body if body is not None or verb != "POST" else {}
    answer = http.send(http.build_request(verb, path, headers=person.headers | headers, json=sent), stream=True)
    if answer.is_success and answer.headers.get("content-type", "").startswith("text/event-stream"):
        answer.close()
    else:
        answer.read()
        answer.close()
    return answer


def told(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.text


def try_on_all(things: Things, row: Row) -> None:
    """The row, asked by each; its owner comes last."""

    def asked(who: str, of: Things) -> httpx.Response:
        return ask(things.people[who], row.verb, of.fill(row.path + row.query), of.fill(row.body))

    for who in ("nobody", "revoked", "share over"):
        if row.path != "/api/login" or who == "nobody":
            refused = asked(who, things)
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer"), who
    foreign, shared = asked("other", things), asked("share", things)
    assert foreign.status_code == row.other
    if row.other == 404:
        assert told(foreign) == told(asked("other", UNKNOWN)), "what is another's is as what is not there"
        assert row.share != 404 or told(asked("share", UNKNOWN)) == told(shared)
    assert shared.status_code == row.share
    assert asked("owner", things).status_code == row.owner


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_f175_each_route_answers_each_as_its_row_says(things: Things, row: Row) -> None:
    try_on_all(things, row)


@pytest.mark.parametrize("row", [row for row in ROWS if row.verb == "GET"], ids=lambda row: row.name)
def test_f074_nothing_of_one_s_own_is_in_what_another_reads(things: Things, row: Row) -> None:
    answer = ask(things.people["other"], "GET", things.fill(row.path + row.query))
    if not answer.headers.get("content-type", "").startswith("text/event-stream"):
        named = [*(things[name] for name in ("session", "task", "job", "batch", "unused")), "alice"]
        assert [word for word in named if word in answer.text] == []


@pytest.mark.parametrize(("verb", "path"), OPEN)
def test_what_is_open_is_the_same_for_all(things: Things, verb: str, path: str) -> None:
    answers = [ask(person, verb, path) for person in things.people.values()]
    assert {answer.status_code for answer in answers} <= {200, 204}
    assert len({answer.content for answer in answers}) == 1


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
def test_a67_each_method_answers_each_as_its_row_says(things: Things, binding: str, method: str) -> None:
    row = METHODS[method]
    call: Callable[..., httpx.Response] = rest if binding == "HTTP+JSON" else rpc

    def asked(who: str, of: Things) -> httpx.Response:
        return call(things.people[who], method, of.fill(row.params))

    for who in ("nobody", "revoked", "share over"):
        refused = asked(who, things)
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer"), who
    foreign = asked("other", things)
    assert reason(foreign) == "TASK_NOT_FOUND"
    assert told(foreign) == told(asked("other", UNKNOWN))
    assert reason(asked("share", things)) == row.share
    assert reason(asked("share", UNKNOWN)) == "TASK_NOT_FOUND"
    assert reason(asked("owner", things)) == row.owner


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
def test_f075_another_s_context_is_an_empty_one(things: Things, binding: str) -> None:
    call: Callable[..., httpx.Response] = rest if binding == "HTTP+JSON" else rpc
    asked = [call(things.people["other"], "ListTasks", {"contextId": of["session"]}) for of in (things, UNKNOWN)]
    assert told(asked[0]) == told(asked[1]) and '"tasks":[]' in asked[0].text
    hers = call(things.people["owner"], "ListTasks", {"contextId": things["session"]})
    assert (
        things["task"] in hers.text == call(things.people["share"], "ListTasks", {"contextId": things["session"]}).text
    )


def rpc(person: Person, method: str, params: dict[str, Any]) -> httpx.Response:
    return ask(person, "POST", "/a2a", {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}, **VERSION)


def rest(person: Person, method: str, params: dict[str, Any]) -> httpx.Response:
    """The same over HTTP+JSON: what the path names goes there, and the rest into the body or the query."""
    (road, *_) = (road for road in ROADS if road.method == method)
    named = re.findall(r"\{(\w+)\}", road.path)
    path = re.sub(r"\{(\w+)\}", lambda name: params[name[1]], road.path)
    left = {name: value for name, value in params.items() if name not in named}
    query = f"?{httpx.QueryParams(left)}" if road.verb != "POST" and left else ""
    body = left if road.verb == "POST" else None
    return ask(person, road.verb, f"{a2a_card.REST_PATH}{path}{query}", body, **VERSION)


def reason(answer: httpx.Response) -> str:
    """The reason of an A2A error; empty for none."""
    body = answer.json() if answer.content else {}
    error = body.get("error", {})
    details = error.get("data") or error.get("details") or [{}]
    return details[0].get("reason", "")


def test_no_route_is_without_a_row(run: Callable[..., Any], tmp_path: Path) -> None:
    """Whoever adds a route, or a method, says here who may ask for it."""

    async def story() -> tuple[set[tuple[str, str]], set[str]]:
        async with build(Settings(data=tmp_path), works=False).running() as outrider:
            found: set[tuple[str, str]] = set()
            for route in routes(outrider.house):
                assert isinstance(route, Route | Mount), route
                verbs = {"GET"} if isinstance(route, Mount) else (route.methods or {"*"}) - {"HEAD"}
                found |= {(verb, route.path) for verb in verbs}
            return found, set(Methods(outrider.house).served)

    found, methods = run(story())
    rows = {(row.verb, row.path) for row in [*ROWS, *LAST]} | set(OPEN) | ELSEWHERE | A2A
    assert {(verb, _bare(path)) for verb, path in found} == {(verb, _bare(path)) for verb, path in rows}
    assert methods == METHODS.keys() | LISTS | OWN
    assert methods == {road.method for road in ROADS}


def _bare(path: str) -> str:
    """A route without the names of what stands in it."""
    return "/static" if path.startswith("/static") else re.sub(r"\{\w+\}", "{}", path)


def test_what_a_body_says_of_an_owner_is_nobody_s_business(things: Things) -> None:
    """A71: who owns what is made is who asked; a tenant or an owner in a body is not read, or refused."""
    bob = things.people["other"]
    made = bob.post("/api/sessions", id="claimed", owner="alice")
    assert made.status_code == 201 and "claimed" not in things.people["owner"].sessions()
    assert reason(rpc(bob, "ListTasks", {"tenant": "alice"})) == "INVALID_PARAMS"
    assert json.loads(rpc(bob, "ListTasks", {}).text)["result"]["totalSize"] == len(
        json.loads(rpc(bob, "ListTasks", {}).text)["result"]["tasks"]
    )


@pytest.mark.parametrize("row", LAST, ids=lambda row: row.name)
def test_f175_nobody_but_its_owner_takes_a_thing_away(things: Things, row: Row) -> None:
    try_on_all(things, row)
