"""F179: what opens something is told once to whom it is given, and stands in no answer, list, event, export, log or file.

Not where it belongs, not where it was put by mistake, and not after something that it was needed for has failed.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from background.migrating import KEY_FILE
from tests.access.people import Person, outrider, revoke, token_for
from tests.limits import raw
from tests.support.server import Server
from web.openapi import TABLE

KEYS = {
    "OPENAI_API_KEY": "sk-canary-of-the-model-0123456789",
    "OUTRIDER_WEBHOOK_KEYS": "canary-of-the-signing-key-0123456789",
}
PUSH = {"token": "canary-of-the-push-token", "credentials": "canary-of-the-push-credentials"}
SETTINGS = {
    "OUTRIDER_MODEL": "openai-chat:nobody",
    "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",  # nobody answers there
    "OUTRIDER_MAX_ATTEMPTS": "1",
    "OUTRIDER_PROFILES": "chat,echo",
}


class Holder(Person):
    """Alice, who holds every kind of secret. `ids` are those of what she has, by their names in addresses."""

    def __init__(self, server: Server, token: str) -> None:
        super().__init__(server, token)
        task = self.echoed("home")["id"]
        job = self.post("/api/background", session="home", prompt="Look into owls.").json()
        share = self.post("/api/sessions/home/shares").json()
        login = server.http.post("/api/login", json={"token": token})
        server.http.cookies.clear()
        ticket = self.send("POST", "/api/events/ticket").json()["ticket"]
        gone = token_for(server.data, "alice")
        revoke(server.data, gone)
        authentication = {"scheme": "Bearer", "credentials": PUSH["credentials"]}
        hook = {
            "taskId": task,
            "id": "hook",
            "url": "https://93.184.216.34/hook",
        }  # its task has ended: nobody calls it
        assert "result" in self.rpc(
            "CreateTaskPushNotificationConfig", hook | {"token": PUSH["token"], "authentication": authentication}
        )
        turn = self.post("/api/sessions/home/messages", text="Whom do I reach?").json()["task_id"]
        server.wait(lambda: self.state(turn) == "TASK_STATE_FAILED")
        server.wait(lambda: self.get(f"/api/background/{job['id']}").json()["completed_at"])
        self.ids = {"home": "home", "task": task, "job": job["id"], "batch": job["batch_id"], "turn": turn}
        parts = {
            "token": token.partition(".")[2],
            "revoked token": gone.partition(".")[2],
            "share": share["token"].partition(".")[2],
            "cookie": login.headers["set-cookie"].partition("=")[2].partition(";")[0],
            "ticket": ticket,
        }
        key = (server.data / KEY_FILE).read_text().split()[0]
        self.secrets = parts | PUSH | KEYS | {"seal key": key}

    def state(self, task_id: str) -> str:
        return self.rpc("GetTask", {"id": task_id})["result"]["status"]["state"]


@pytest.fixture(scope="module")
def alice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Holder]:
    data = tmp_path_factory.mktemp("secrets") / "data"
    env = SETTINGS | KEYS
    with Server(data, env=env) as server:
        yield Holder(server, token_for(data, "alice"))


def assert_none(alice: Holder, text: str | bytes, what: str) -> None:
    shown = text.encode() if isinstance(text, str) else text
    assert [name for name, secret in alice.secrets.items() if secret.encode() in shown] == [], what


def test_f179_no_list_view_event_or_export_shows_one(alice: Holder) -> None:
    inside = {
        "task_id": alice.ids["task"],
        "task": alice.ids["task"],
        "webhook": "hook",
        "artifact": "0",
        "part": "0",
        "use": "1",
    }
    for row in TABLE:
        if row.method != "GET" or row.path == "/api/events":
            continue
        kind = "job" if "/background" in row.path else "batch" if "/batches" in row.path else "home"
        answer = alice.get(row.path.format(id=alice.ids[kind], **inside), q="owls")
        assert answer.status_code in (200, 404), row.path
        assert_none(alice, answer.content, row.path)
    for path in ("/metrics", "/healthz", "/readyz", "/.well-known/agent-card.json", "/"):
        assert_none(alice, alice.get(path).content, path)
    for method, params in (
        ("ListTasks", {"includeArtifacts": True}),
        ("GetTask", {"id": alice.ids["turn"]}),
        ("GetExtendedAgentCard", {}),
        ("ListTaskPushNotificationConfigs", {"taskId": alice.ids["task"]}),
        ("GetTaskPushNotificationConfig", {"taskId": alice.ids["task"], "id": "hook"}),
    ):
        told = alice.rpc(method, params)
        assert "result" in told
        assert_none(alice, json.dumps(told), method)


def test_f179_no_event_shows_one(alice: Holder) -> None:
    headers = alice.headers | {"Last-Event-ID": "0"}
    heard = ""
    with alice.server.http.stream("GET", "/api/events", headers=headers) as stream:
        for line in stream.iter_lines():
            heard += line
            if "turn.finished" in line:
                break
    assert "background.completed" in heard or "turn.started" in heard
    assert_none(alice, heard, "events")


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("GET /api/sessions?cursor={}", {}),
    ("GET /api/background?status={}", {}),
    ("GET /api/background/{}", {}),
    ("GET /api/events?ticket=x{}", {"headers": {"Authorization": "Basic x"}}),
    ("GET /api/nothing/{}", {}),
    ("GET /static/{}", {}),
    ("GET /a2a/rest/tasks/{}", {"headers": {"A2A-Version": "1.0"}}),
    ("GET /a2a/rest/tasks?pageToken={}", {"headers": {"A2A-Version": "1.0"}}),
    ("GET /a2a/rest/tasks", {"headers": {"A2A-Version": "{}"}}),
    ("GET /api/sessions", {"headers": {"Authorization": "Bearer x{}"}}),
    ("GET /api/sessions", {"headers": {"Authorization": "Basic x", "Cookie": "outrider_login=x{}"}}),
    ("GET /api/sessions", {"headers": {"X-Share-Token": "shr-0123.x{}"}}),
    ("GET /api/sessions", {"headers": {"Origin": "https://{}"}}),
    ("GET /api/sessions", {"headers": {"X-Outrider-Credential": "{}"}}),
    ("GET /api/events", {"headers": {"Last-Event-ID": "{}"}}),
    ("DELETE /api/sessions/home/shares/{}", {}),
    ("POST /api/login", {"json": {"token": "x{}"}}),
    ("POST /api/login", {"json": {"{}": "x"}}),
    ("POST /api/sessions", {"json": {"id": "{} "}}),
    ("POST /api/sessions/home/messages", {"json": {"text": "x", "skill": "{}"}}),
    ("POST /api/background", {"json": {"session": "home", "prompt": "x", "subagent_type": "{}"}}),
    ("POST /api/background", {"json": {"session": "home", "prompt": 1, "description": "{}"}}),
    ("POST /api/knowledge/documents", {"json": {"name": 1, "text": "{}"}}),
    ("POST /a2a", {"content": '{{"jsonrpc": "{}"'}),
    ("POST /a2a", {"json": {"jsonrpc": "2.0", "id": 1, "method": "{}"}, "headers": {"A2A-Version": "1.0"}}),
    ("POST /a2a", {"json": {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": "{}"}}),
]


def filled(given: Any, secret: str) -> Any:
    if isinstance(given, str):
        return given.replace("{}", secret)
    if isinstance(given, dict):
        return {filled(key, secret): filled(value, secret) for key, value in given.items()}
    return given


def test_f179_one_that_is_put_where_it_does_not_belong_is_not_repeated(alice: Holder) -> None:
    for asked, more in WRONG:
        verb, path = asked.split(" ", 1)
        for secret in alice.secrets.values():
            safe = secret.replace("+", "-").replace("/", "_").replace("=", "")  # in an address and a header as they are
            answer = alice.send(verb, path.replace("{}", safe), **filled(more, secret))
            assert answer.status_code in range(200, 500), (asked, answer.text)
            assert answer.status_code >= 400 or "error" in answer.json(), asked
            assert_none(alice, answer.content, asked)
            assert safe not in answer.text, asked
    for secret in alice.secrets.values():
        answer = raw.sent(alice.server, f"GET / HTTP/9.9 {secret}\r\n{secret}\r\n\r\n".encode())
        assert_none(alice, answer.head + answer.body, "no HTTP")


def test_f179_none_is_in_the_log_in_what_the_commands_show_or_in_a_file(alice: Holder) -> None:
    """Last, after all that was done here; and in files also in no other form, as text that was taken in would be."""
    server = alice.server
    assert "Traceback" not in server.log()
    assert_none(alice, server.log(), "log")
    for command in (["token", "list", "--json"], ["token", "list"]):
        assert_none(alice, outrider(server.data, *command).output, " ".join(command))
    assert server.stop() == 0
    assert_none(alice, server.log(), "log")
    files = [path for path in server.data.rglob("*") if path.is_file()]
    assert {"outrider.db"} <= {path.name for path in files}
    for path in files:
        if path.name == KEY_FILE:
            assert path.stat().st_mode & 0o777 == 0o600
            continue
        assert_none(alice, path.read_bytes(), path.name)
