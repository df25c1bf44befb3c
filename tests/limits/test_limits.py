"""F180: the table of limits in docs/api.md is that of the code, and far over each of them is refused, with memory flat."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from agent import addresses, fetching, ingest, spawning
from background import snapshot_shape, webhooks
from benchmarks.bench import resident_mb
from knowledge import backend
from tests.a2a import wire
from tests.a2a.wire import message
from tests.limits.telling import assert_tells_nothing
from tests.support.server import ROOT, Server
from web import (
    a2a_list,
    a2a_message,
    a2a_pages,
    a2a_requests,
    a2a_webhook,
    api,
    api_lifecycle,
    api_sessions,
    api_shares,
    bodies,
    documents,
    head,
)
from web.a2a_fields import NESTING, Limits
from web.setting_fields import Settings

MEGABYTE = 1024 * 1024
A2A = Limits()
SETTINGS = Settings(data=Path("unused"))
LIMITS: dict[str, int | float] = {
    "head of a request, bytes": head.HEAD_LIMIT,
    "body, bytes": bodies.BODY_LIMIT,
    "body of a snapshot, bytes": api_lifecycle.MOST_BYTES,
    "bodies that are not whole yet, bytes together": bodies.HELD_LIMIT,
    "seconds until a head is whole": int(head.HEAD_S),
    "seconds without a byte of a body": int(bodies.SILENT_S),
    "lists and objects inside each other": NESTING,
    "id of a JSON-RPC request, characters": a2a_requests.MOST_ID,
    "ids of messages and tasks, characters": A2A.id_chars,
    "session id, characters": 128,
    "parts of a message": A2A.parts,
    "text of a message, characters": A2A.text_chars,
    "metadata, characters as JSON": A2A.metadata_chars,
    "`extensions`, `referenceTaskIds`, `acceptedOutputModes`, items": A2A.listed,
    "an item of these, `filename`, `mediaType`, `url`, characters": A2A.name_chars,
    "a file as a model reads it, characters": a2a_message.FILE_CHARS,
    "page of `ListTasks`, tasks; of a task's webhooks": a2a_pages.MOST,
    "page of `ListTasks`, bytes": a2a_list.PAGE_BYTES,
    "page of a session's log, bytes": api_sessions.LOG_BYTES,
    "page token, characters": a2a_pages.TOKEN_CHARS,
    "webhooks of a task": webhooks.PER_TASK,
    "address of a webhook, characters": addresses.URL_CHARS,
    "`token` and `credentials` of a webhook, characters": a2a_webhook.SECRET_CHARS,
    "text of a message to `/api`, characters": api_sessions.MAX_TEXT,
    "prompt of a job, characters": spawning.MAX_PROMPT,
    "description of a job, characters": spawning.MAX_DESCRIPTION,
    "key of a job, characters": api.MAX_KEY,
    "jobs of a batch": spawning.MAX_BATCH,
    "levels of jobs below a chat": SETTINGS.max_depth,
    "waiting jobs of a user": SETTINGS.max_queued_jobs,
    "open tasks of a user": SETTINGS.max_open_tasks_per_user,
    "blocking sends that wait": SETTINGS.max_waiting_requests,
    "open streams, of all, a user, a task": SETTINGS.max_streams,
    "seconds that a share lasts": api_shares.MOST_S,
    "name of a document, characters": documents.MAX_NAME,
    "text of a document, characters": documents.MAX_TEXT,
    "file of a document, characters of base64": documents.MAX_CONTENT,
    "source that is taken in, characters": ingest.MAX_SOURCE,
    "files that one job takes in": ingest.MOST_FILES,
    "arguments of work, characters of JSON": spawning.MAX_PROMPT,
    "page of the web that is read, bytes": fetching.MAX_BYTES,
    "question to a search, characters": backend.MAX_QUERY,
    "turns of a snapshot": snapshot_shape.MOST_TASKS,
    "entries of a snapshot's log": snapshot_shape.MOST_MESSAGES,
}


def documented() -> dict[str, int]:
    """The rows of the table: what is limited, and the first number that stands beside it."""
    text = (ROOT / "docs/api.md").read_text().partition("\n## Limits\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+?) \| ([\d,]+)[^|]*\|", text, re.MULTILINE)
    return {what: int(most.replace(",", "")) for what, most in rows}


def test_f180_the_documented_limits_are_those_of_the_code() -> None:
    assert documented() == LIMITS


TEN = "x" * (10 * MEGABYTE)
MANY = ["x"] * 10_000
FAR_OVER: dict[str, tuple[str, Any]] = {
    "text over A2A": ("/a2a", {"message": message(TEN)}),
    "many parts": ("/a2a", {"message": message(parts=[{"text": "x"}] * 10_000)}),
    "many extensions": ("/a2a", {"message": message(extensions=MANY)}),
    "long id": ("/a2a", {"message": message(messageId="x" * MEGABYTE)}),
    "long context": ("/a2a", {"message": message(contextId="x" * MEGABYTE)}),
    "large metadata": ("/a2a", {"message": message(metadata={"a": MANY * 10})}),
    "text to a session": ("/api/sessions/s/messages", {"text": TEN}),
    "less text to a session": ("/api/sessions/s/messages", {"text": "x" * 2 * MEGABYTE}),
    "prompt": ("/api/background", {"session": "s", "prompt": TEN}),
    "many jobs": ("/api/background", {"session": "s", "jobs": [{"prompt": "x"}] * 10_000}),
    "many fields": ("/api/background", {"session": "s", **{f"f{n}": n for n in range(10_000)}}),
    "document": ("/api/knowledge/documents", {"name": "n", "text": TEN}),
    "name of a document": ("/api/knowledge/documents", {"name": "n" * MEGABYTE, "text": "x"}),
    "token": ("/api/login", {"token": TEN}),
    "snapshot": (
        "/api/sessions/import",
        {"format": "outrider.session", "version": 1, "session": {"id": "i"}, "tasks": [{}] * 20_000},
    ),
    "share": ("/api/sessions/s/shares", {"expires_in_s": 10**300}),
}


def refused(server: Server, path: str, sent: Any) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": sent} if path == "/a2a" else sent
    answer = server.http.post(path, content=json.dumps(body).encode(), headers=wire.VERSION)
    assert_tells_nothing(answer)
    assert "error" in answer.json() and "xxxxx" not in answer.text


@pytest.mark.parametrize("what", FAR_OVER)
def test_f180_what_is_far_over_a_limit_is_refused_and_nothing_is_stored(server: Server, what: str) -> None:
    with wire.nothing_stored(server):
        refused(server, *FAR_OVER[what])


@pytest.mark.slow
def test_f180_memory_is_flat_while_much_is_refused(server: Server) -> None:
    for path, sent in FAR_OVER.values():  # once, for what a process sets up when it is first asked
        refused(server, path, sent)
    before = resident_mb(server.pid)
    for _ in range(30):
        for path, sent in FAR_OVER.values():
            refused(server, path, sent)
    assert resident_mb(server.pid) < before + 60
