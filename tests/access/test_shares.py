"""F076–F078, F176, A70: a share opens one session, for reading or for speaking in it, and nothing else."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.access.people import Person, token_for
from tests.support.server import Server

SHARE = "X-Share-Token"
VERSION = {"A2A-Version": "1.0"}


class Shared:
    """Alice's session `id` with a task, an ended job and a task at work; and Bob, with a share of it or without."""

    def __init__(self, server: Server, alice: Person, bob: Person) -> None:
        self.alice, self.bob, self.id = alice, bob, "shared"
        self.task = alice.echoed(self.id, "words for the shared")["id"]
        other = alice.echoed("other", "words for the other")
        self.other_task = other["id"]
        job = alice.post("/api/background", session=self.id, description="owls", prompt="look into owls").json()
        server.wait(lambda: alice.get(f"/api/background/{job['id']}").json()["notified"])
        self.job = alice.get(f"/api/background/{job['id']}").json()
        self.other_job = alice.post("/api/background", session="other", description="x", prompt="look into x").json()

    def share(self, **given: Any) -> dict[str, Any]:
        made = self.alice.post(f"/api/sessions/{self.id}/shares", **given)
        assert made.status_code == 201, made.text
        return made.json()

    def bob_with(self, share: dict[str, Any]) -> Person:
        return Person(self.bob.server, self.bob.token, **{SHARE: share["token"]})

    def revoke(self, share: dict[str, Any]) -> None:
        assert self.alice.send("DELETE", f"/api/sessions/{self.id}/shares/{share['id']}").status_code == 204


@pytest.fixture(scope="module")
def shared(guarded: Server, alice: Person, bob: Person) -> Iterator[Shared]:
    yield Shared(guarded, alice, bob)


@pytest.fixture(scope="module")
def reader(shared: Shared) -> Person:
    """Bob with a share to read."""
    return shared.bob_with(shared.share())


@pytest.fixture(scope="module")
def writer(shared: Shared) -> Person:
    """Bob with a share to speak."""
    return shared.bob_with(shared.share(writable=True))


def reason(envelope: dict[str, Any]) -> str:
    return envelope["error"]["data"][0]["reason"]


def listed(person: Person, **params: Any) -> list[str]:
    return [task["id"] for task in person.rpc("ListTasks", params)["result"]["tasks"]]


# --- what it opens ----------------------------------------------------------------------------------------------------


def test_f076_with_a_share_bob_reads_the_session_that_he_names_as_alice_would(shared: Shared, reader: Person) -> None:
    assert shared.task in listed(reader, contextId=shared.id)
    for method, params in (("GetTask", {"id": shared.task}), ("ListTasks", {"contextId": shared.id})):
        assert reader.rpc(method, params) == shared.alice.rpc(method, params)
    session, job, batch = f"/api/sessions/{shared.id}", shared.job["id"], shared.job["batch_id"]
    named = {"session": shared.id}
    for path, query in (
        (session, {}),
        (f"{session}/messages", {}),
        ("/api/background", named),
        (f"/api/background/{job}", {}),
        (f"/api/background/{job}/report", {}),
        (f"/api/batches/{batch}", {}),
        ("/api/knowledge/search", named | {"q": "owls"}),
        (f"/a2a/rest/tasks/{shared.task}", VERSION),
        ("/a2a/rest/tasks", VERSION | {"contextId": shared.id}),
    ):
        mine, hers = reader.get(path, **query), shared.alice.get(path, **query)
        assert (mine.status_code, mine.text) == (hers.status_code, hers.text) and mine.status_code == 200, path


def test_f076_a_share_widens_nothing_that_names_no_session_and_opens_no_other(shared: Shared, reader: Person) -> None:
    own = shared.bob.echoed("bobs", "words of bob")["id"]
    for method, params in (
        ("ListTasks", {}),
        ("ListTasks", {"contextId": "other"}),
        ("ListTasks", {"contextId": "bobs"}),
        ("GetTask", {"id": shared.other_task}),
        ("GetTask", {"id": own}),
    ):
        assert reader.rpc(method, params) == shared.bob.rpc(method, params), (method, params)
    for path, query in (
        ("/api/sessions", {}),
        ("/api/sessions/other", {}),
        ("/api/sessions/other/messages", {}),
        (f"/api/background/{shared.other_job['id']}", {}),
        (f"/api/batches/{shared.other_job['batch_id']}", {}),
        ("/api/background", {}),
        ("/api/background", {"session": "other"}),
        ("/api/knowledge/search", {"q": "owls"}),
        ("/api/knowledge/documents", {}),
        ("/api/webhooks", {}),
        ("/api/events", {"session": "other"}),
        (f"/api/sessions/{shared.id}/export", {}),
        (f"/api/sessions/{shared.id}/shares", {}),
    ):
        with_it, without = reader.get(path, **query), shared.bob.get(path, **query)
        assert (with_it.status_code, with_it.text) == (without.status_code, without.text), path


def test_what_no_share_opens_of_the_session_is_never_that_of_another_of_its_name(
    shared: Shared, guarded: Server
) -> None:
    """Carol has a session of her own that is called as the shared one is: it is not what she has named."""
    share = shared.share()
    carol = Person(guarded, token_for(guarded.data, "carol"))
    carol.echoed(shared.id, "words of carol")
    with_it = Person(guarded, carol.token, **{SHARE: share["token"]})
    for path in ("export", "shares"):
        assert carol.get(f"/api/sessions/{shared.id}/{path}").status_code == 200
        told = with_it.get(f"/api/sessions/{shared.id}/{path}")
        assert (told.status_code, told.json()["error"]["code"]) == (404, "NOT_FOUND"), path
    assert "words for the shared" in with_it.get(f"/api/sessions/{shared.id}/messages").text


def test_the_jobs_own_task_is_not_opened_with_the_session(shared: Shared, reader: Person) -> None:
    """What it did on its way is its owner's; the report is what the session has of it."""
    task = shared.job["task_id"]
    assert shared.alice.rpc("GetTask", {"id": task})["result"]["id"] == task
    assert reason(reader.rpc("GetTask", {"id": task})) == "TASK_NOT_FOUND"
    context = f"background:{shared.job['id']}"
    assert listed(reader, contextId=context) == [] != listed(shared.alice, contextId=context)


def test_a_document_that_bears_the_session_s_name_is_not_shared_with_it(shared: Shared, reader: Person) -> None:
    shared.alice.post("/api/knowledge/documents", name=shared.id, text="The zyzzyva is a weevil.")
    query = {"q": "zyzzyva", "session": shared.id}
    assert len(shared.alice.get("/api/knowledge/search", **query).json()["hits"]) == 1
    for more in ({}, {"source_type": "document"}):
        assert reader.get("/api/knowledge/search", **query, **more).json() == {"hits": []}


# --- what it does not change ------------------------------------------------------------------------------------------


def message(context: str | None = None, task: str | None = None, **more: Any) -> dict[str, Any]:
    """A message of the echo profile, with an id of its own."""
    named = {"contextId": context} if context else {}
    named |= {"taskId": task} if task else {}
    parts = [{"text": "from bob"}]
    return {
        "messageId": f"m-{time.monotonic_ns()}",
        "role": "ROLE_USER",
        "parts": parts,
        "metadata": {"skill": "echo"},
        **named,
        **more,
    }


HOOK = {"url": "http://127.0.0.1:9/hook"}
# Each changes something in a session C, or of its task T or job J; `{D}` is another session of Alice's.
RPC: dict[str, Callable[[Shared], tuple[str, dict[str, Any]]]] = {
    "send": lambda s: ("SendMessage", {"message": message(s.id)}),
    "send at once": lambda s: ("SendMessage", {"message": message(s.id), "configuration": {"returnImmediately": True}}),
    "send on a stream": lambda s: ("SendStreamingMessage", {"message": message(s.id)}),
    "send to a task": lambda s: ("SendMessage", {"message": message(s.id, s.task)}),
    "send to a task alone": lambda s: ("SendMessage", {"message": message(None, s.task)}),
    "cancel": lambda s: ("CancelTask", {"id": s.task}),
    "webhook": lambda s: ("CreateTaskPushNotificationConfig", {"taskId": s.task, **HOOK}),
    "webhook away": lambda s: ("DeleteTaskPushNotificationConfig", {"taskId": s.task, "id": "x"}),
    "webhooks read": lambda s: ("ListTaskPushNotificationConfigs", {"taskId": s.task}),
    "webhook read": lambda s: ("GetTaskPushNotificationConfig", {"taskId": s.task, "id": "x"}),
    "send elsewhere": lambda s: ("SendMessage", {"message": message("other")}),
    "send to a task elsewhere": lambda s: ("SendMessage", {"message": message(None, s.other_task)}),
    "send to a task elsewhere as if here": lambda s: ("SendMessage", {"message": message(s.id, s.other_task)}),
    "send anew": lambda s: ("SendMessage", {"message": message()}),
    "cancel elsewhere": lambda s: ("CancelTask", {"id": s.other_task}),
    "webhook elsewhere": lambda s: ("CreateTaskPushNotificationConfig", {"taskId": s.other_task, **HOOK}),
}
SPEAKS = {"send", "send at once", "send on a stream", "send to a task", "send to a task alone"}
API: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "/api/sessions/{C}/messages", {"text": "from bob", "skill": "echo"}),
    ("POST", "/api/sessions/{C}/stop", {}),
    ("POST", "/api/sessions/{C}/tasks/{T}/cancel", {}),
    ("DELETE", "/api/sessions/{C}/tasks/{T}", {}),
    ("DELETE", "/api/sessions/{C}", {}),
    ("POST", "/api/sessions/{C}/copy", {}),
    ("POST", "/api/sessions/{C}/shares", {}),
    ("POST", "/api/sessions/import", {"session": {"id": "imported"}}),
    ("POST", "/api/sessions", {"id": "new"}),
    ("POST", "/api/background", {"session": "{C}", "prompt": "look into x", "description": "x"}),
    ("POST", "/api/background/{J}/cancel", {}),
    ("POST", "/api/background/{J}/dismiss", {}),
    ("POST", "/api/background/{J}/retry", {}),
    ("DELETE", "/api/background/{J}/report", {}),
    ("POST", "/api/knowledge/documents", {"name": "n", "text": "t"}),
    ("POST", "/api/events/ticket", {}),
    ("POST", "/api/sessions/other/messages", {"text": "from bob", "skill": "echo"}),
]


def change(person: Person, shared: Shared, method: str, path: str, body: dict[str, Any]) -> httpx.Response:
    for name, value in {"{C}": shared.id, "{T}": shared.task, "{J}": shared.job["id"]}.items():
        path = path.replace(name, value)
        body = {key: value if given == name else given for key, given in body.items()}
    return person.send(method, path, json=body) if method == "POST" else person.send(method, path)


def state(shared: Shared) -> list[Any]:
    """All that Alice has there, and what Bob has."""
    asked = [("ListTasks", {"contextId": context, "includeArtifacts": True}) for context in (shared.id, "other")]
    told = [shared.alice.rpc(*each)["result"]["tasks"] for each in asked]
    paths = [f"/api/sessions/{shared.id}/messages", "/api/background", "/api/webhooks", "/api/knowledge/documents"]
    return [*told, *(shared.alice.get(path).json() for path in paths), shared.bob.sessions()]


@pytest.fixture(scope="module")
def settled(shared: Shared) -> Shared:
    """Nothing of Alice's moves by itself any more."""
    other = f"/api/background/{shared.other_job['id']}"
    shared.alice.server.wait(lambda: shared.alice.get(other).json()["notified"])
    return shared


@pytest.mark.parametrize("name", RPC)
def test_f077_read_only_every_method_that_changes_is_answered_like_what_is_not_there(
    settled: Shared, reader: Person, name: str
) -> None:
    before = state(settled)
    assert reason(reader.rpc(*RPC[name](settled))) == "TASK_NOT_FOUND"
    assert state(settled) == before


def test_a70_over_the_api_the_same(settled: Shared, reader: Person) -> None:
    before = state(settled)
    for method, path, body in API:
        answer = change(reader, settled, method, path, body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "NOT_FOUND"), (method, path)
    assert state(settled) == before


@pytest.mark.parametrize("name", [name for name in RPC if name not in SPEAKS])
def test_f176_a_writable_share_changes_nothing_but_what_is_said(settled: Shared, writer: Person, name: str) -> None:
    before = state(settled)
    assert reason(writer.rpc(*RPC[name](settled))) == "TASK_NOT_FOUND"
    assert state(settled) == before


def test_f176_and_nothing_over_the_api(settled: Shared, writer: Person) -> None:
    before = state(settled)
    for method, path, body in API[1:]:
        answer = change(writer, settled, method, path, body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "NOT_FOUND"), (method, path)
    assert state(settled) == before


def test_a_share_takes_no_webhook_along_with_a_message(settled: Shared, writer: Person) -> None:
    before = state(settled)
    given = {"message": message(settled.id), "configuration": {"taskPushNotificationConfig": HOOK}}
    assert reason(writer.rpc("SendMessage", given)) == "INVALID_PARAMS"
    assert state(settled) == before


# --- speaking ---------------------------------------------------------------------------------------------------------


def test_f077_a_writable_share_speaks_in_its_session_and_everybody_sees_who_it_was(
    shared: Shared, writer: Person
) -> None:
    """The task is Alice's; that Bob sent it is said by Outrider, on every binding."""
    sent = writer.rpc("SendMessage", {"message": message(shared.id)})["result"]["task"]
    over_rest = writer.send("POST", "/a2a/rest/message:send", VERSION, json={"message": message(shared.id)})
    by_api = writer.post(f"/api/sessions/{shared.id}/messages", text="by api", skill="echo").json()["task_id"]
    shared.alice.server.wait(lambda: "artifacts" in shared.alice.rpc("GetTask", {"id": by_api})["result"])
    for task_id in (sent["id"], over_rest.json()["task"]["id"], by_api):
        seen = shared.alice.rpc("GetTask", {"id": task_id})["result"]
        assert seen["metadata"]["initiated_by"] == "bob"
        assert seen["history"][0]["metadata"]["initiated_by"] == "bob"
        assert task_id not in listed(shared.bob)
    assert "initiated_by" not in str(shared.alice.rpc("GetTask", {"id": shared.task}))


def test_an_id_that_alice_used_elsewhere_tells_bob_nothing(shared: Shared, writer: Person) -> None:
    shared.alice.echoed("private", "a secret", message_id="the-same")
    told = writer.rpc("SendMessage", {"message": message(shared.id) | {"messageId": "the-same"}})
    assert told["result"]["task"]["contextId"] == shared.id
    again = writer.rpc("SendMessage", {"message": message(shared.id) | {"messageId": "the-same"}})
    assert again["result"]["task"]["id"] == told["result"]["task"]["id"], "his own is known again"


def test_f174_nobody_can_say_for_himself_who_sent_it(shared: Shared, writer: Person) -> None:
    for person in (shared.alice, shared.bob, writer):
        for forged in (
            {"message": message(shared.id, metadata={"skill": "echo", "initiated_by": "carol"})},
            {"message": message(shared.id), "metadata": {"initiated_by": None}},
        ):
            told = person.rpc("SendMessage", forged)
            assert (told["error"]["code"], reason(told)) == (-32602, "INVALID_PARAMS")
            rest = person.send("POST", "/a2a/rest/message:send", VERSION, json=forged)
            assert rest.status_code == 400
    assert "field=message.metadata.initiated_by" in shared.alice.server.log()


def test_a_stream_of_a_shared_session_is_heard(shared: Shared, writer: Person) -> None:
    request = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {"message": message(shared.id)}}
    told = writer.send("POST", "/a2a", VERSION, json=request).text
    assert "TASK_STATE_COMPLETED" in told and '"initiated_by": "bob"' in told


# --- its life -------------------------------------------------------------------------------------------------------


def test_f078_a_share_is_shown_once_and_each_use_is_written_down(shared: Shared) -> None:
    made = shared.share(writable=True, expires_in_s=60)
    assert made["writable"] is True and made["revoked_at"] is None
    bob = shared.bob_with(made)
    for _ in range(3):
        assert bob.get(f"/api/sessions/{shared.id}").status_code == 200
    found = shared.alice.get(f"/api/sessions/{shared.id}/shares")
    (mine,) = (share for share in found.json()["shares"] if share["id"] == made["id"])
    (use,) = mine["used_by"]
    assert (use["user"], use["uses"]) == ("bob", 3) and use["first_at"] <= use["last_at"]
    secret = made["token"].partition(".")[2]
    assert secret not in found.text + shared.alice.server.log()
    files = [path for path in shared.alice.server.data.rglob("*") if path.is_file()]
    assert not any(secret.encode() in path.read_bytes() for path in files)


def told_off(person: Person, path: str) -> bool:
    answer = person.get(path)
    return (answer.status_code, answer.headers.get("www-authenticate")) == (401, "Bearer")


def test_f078_revoked_it_is_401_whatever_is_asked(shared: Shared) -> None:
    made = shared.share()
    bob = shared.bob_with(made)
    assert bob.get("/api/sessions").status_code == 200
    shared.revoke(made)
    shared.revoke(made)
    for path in ("/api/sessions", f"/api/sessions/{shared.id}", "/a2a/rest/tasks"):
        assert told_off(bob, path)
    forged = Person(bob.server, bob.token, **{SHARE: f"shr-0123456789ab.{'x' * 43}"})
    assert told_off(forged, "/api/sessions")
    assert told_off(Person(bob.server, **{SHARE: shared.share()["token"]}), "/api/sessions"), (
        "a share is no access token"
    )
    assert told_off(Person(bob.server, bob.token, **{SHARE: shared.alice.token}), "/api/sessions")


def test_f078_it_dies_with_its_session_and_opens_none_that_is_made_again(shared: Shared) -> None:
    shared.alice.post("/api/sessions", id="mortal")
    made = shared.alice.post("/api/sessions/mortal/shares").json()
    bob = shared.bob_with(made)
    assert bob.get("/api/sessions/mortal").status_code == 200
    shared.alice.send("DELETE", "/api/sessions/mortal")
    shared.alice.post("/api/sessions", id="mortal")
    assert told_off(bob, "/api/sessions/mortal")
    assert shared.alice.get("/api/sessions/mortal/shares").json() == {"shares": []}


def test_a70_a_stream_that_a_share_opened_ends_with_it(shared: Shared) -> None:
    made = shared.share()
    bob = shared.bob_with(made)
    http = bob.server.http
    request = http.build_request("GET", "/api/events", params={"session": shared.id}, headers=bob.headers)
    opened = http.send(request, stream=True)
    told = opened.iter_text()
    assert next(told) == ": open\n\n"
    shared.revoke(made)
    assert list(told) == []


def test_a70_a_page_token_got_with_a_share_is_no_use_without(shared: Shared, reader: Person) -> None:
    shared.alice.echoed(shared.id, "one more")
    params = {"contextId": shared.id, "pageSize": 1}
    page = reader.rpc("ListTasks", params)["result"]["nextPageToken"]
    assert page and "result" in reader.rpc("ListTasks", params | {"pageToken": page})
    assert reason(shared.bob.rpc("ListTasks", params | {"pageToken": page})) == "INVALID_PARAMS"


@pytest.mark.parametrize(
    "given", [{"writable": 1}, {"writable": "yes"}, {"expires_in_s": 0}, {"expires_in_s": 1.5}, {"expires_in_s": 10**9}]
)
def test_what_a_share_is_to_be_is_said_rightly(shared: Shared, given: dict[str, Any]) -> None:
    answer = shared.alice.post(f"/api/sessions/{shared.id}/shares", **given)
    assert (answer.status_code, answer.json()["error"]["details"]["field"]) == (400, next(iter(given)))


def test_only_what_is_one_s_own_is_shared(shared: Shared) -> None:
    for path in (f"/api/sessions/{shared.id}/shares", "/api/sessions/nothing/shares"):
        told = [shared.bob.send(method, path) for method in ("GET", "POST")]
        told.append(shared.bob.send("DELETE", f"{path}/shr-0123456789ab"))
        assert {(answer.status_code, answer.text) for answer in told} == {(404, told[0].text)}
    missing = shared.alice.send("DELETE", f"/api/sessions/{shared.id}/shares/shr-0123456789ab")
    assert missing.status_code == 404
    own = f"/api/sessions/background:{shared.job['id']}/shares"
    assert shared.alice.post(own).status_code == 409


def test_f007_an_incognito_job_of_a_shared_session_is_read_by_its_owner_alone(shared: Shared, reader: Person) -> None:
    given = {"prompt": "quiet words", "description": "quietly", "incognito": True}
    job = shared.alice.post("/api/background", session=shared.id, **given).json()
    path = f"/api/background/{job['id']}"
    shared.alice.server.wait(lambda: shared.alice.get(path).json()["status"] == "completed")
    assert shared.alice.get(f"{path}/report").status_code == 200
    assert reader.get(path).status_code == reader.get(f"{path}/report").status_code == 404
    listed = reader.get("/api/background", session=shared.id).json()["jobs"]
    (seen,) = [one for one in listed if one["id"] == job["id"]]
    assert (seen["description"], seen["prompt"], seen["excerpt"]) == ("", "", "")
    assert shared.alice.get(path).json()["description"] == "quietly"
