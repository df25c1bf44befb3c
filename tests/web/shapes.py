"""The shapes of the public surface, field by field, as they are promised; and the one form that errors have."""

import re
from typing import Any

import httpx

Json = dict[str, Any]

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
JOB_ID = re.compile("bg-[0-9a-f]{12}")
STATUSES = {"queued", "running", "input_required", "completed", "failed", "canceled"}
DELIVERIES = {"none", "pending", "attached", "delivered", "undeliverable"}
# What may stand in each field of JOB: types, and None where it may be null.
JOB: dict[str, Any] = {
    "id": str,
    "session": str,
    "batch_id": str,
    "subagent_type": str,
    "description": str,
    "prompt": str,
    "status": str,
    "error": dict | None,
    "partial": bool,
    "canceled_by": str | None,
    "note": str | None,
    "task_id": str | None,
    "created_at": str,
    "started_at": str | None,
    "completed_at": str | None,
    "notified": bool,
    "notified_at": str | None,
    "notified_in": str | None,
    "delivery": dict,
    "indexed": bool,
    "incognito": bool,
    "deterministic": bool,
    "dismissed": bool,
    "attempts": int,
    "usage": dict,
    "report_chars": int,
    "excerpt": str,
    "question": dict | None,
}
HIT: dict[str, Any] = {
    "id": str,
    "heading": str,
    "snippet": str,
    "score": float,
    "source": str,
    "source_type": str,
    "trust": int,
    "trust_label": str,
    "job_id": str | None,
    "created_at": str | None,
}
MESSAGE: dict[str, Any] = {
    "id": int,
    "role": str,
    "kind": str,
    "text": str,
    "task_id": str | None,
    "state": str | None,
    "reason": str | None,
    "detail": str | None,
    "created_at": str,
    "job_ids": list,
    "question": dict | None,
    "steers": str | None,
    "folded_into": str | None,
    "withdrawn": bool,
    "artifacts": list,
}

# method, path, and what is not there when its ids are unknown (None: it has no id, or makes what is not there)
ROUTES: list[tuple[str, str, str | None]] = [
    ("GET", "/api/background", None),
    ("POST", "/api/background", None),
    ("GET", "/api/background/{id}", "job"),
    ("GET", "/api/background/{id}/report", "job"),
    ("POST", "/api/background/{id}/cancel", "job"),
    ("POST", "/api/background/{id}/dismiss", "job"),
    ("POST", "/api/background/{id}/retry", "job"),
    ("POST", "/api/background/{id}/ask", "job"),
    ("GET", "/api/batches/{id}", "batch"),
    ("GET", "/api/sessions", None),
    ("POST", "/api/sessions", None),
    ("GET", "/api/sessions/{id}", "session"),
    ("GET", "/api/sessions/{id}/messages", "session"),
    ("POST", "/api/sessions/{id}/messages", None),
    ("POST", "/api/sessions/{id}/stop", "session"),
    ("DELETE", "/api/sessions/{id}", "session"),
    ("DELETE", "/api/sessions/{id}/tasks/{task_id}", "session"),
    ("GET", "/api/sessions/{id}/export", "session"),
    ("POST", "/api/sessions/{id}/copy", "session"),
    ("POST", "/api/sessions/import", None),
    ("DELETE", "/api/background/{id}/report", "job"),
    ("POST", "/api/sessions/{id}/tasks/{task_id}/cancel", "session"),
    ("GET", "/api/sessions/{id}/tasks/{task_id}/artifacts/{artifact}/{part}", "session"),
    ("GET", "/api/knowledge/search", None),
    ("GET", "/api/knowledge/documents", None),
    ("POST", "/api/knowledge/documents", None),
    ("DELETE", "/api/knowledge/documents/{id}", "document"),
    ("POST", "/api/knowledge/ingest", None),
    ("GET", "/api/webhooks", None),
    ("GET", "/api/webhooks/{task}/{webhook}/deliveries", None),
    ("POST", "/api/webhooks/{task}/{webhook}/deliveries/{event}/again", None),
    ("GET", "/api/events", None),
    ("GET", "/api/status", None),
]


def assert_shaped(value: Json, shape: dict[str, Any]) -> None:
    """Each field of the shape is there, of its type, and no other is."""
    assert value.keys() == shape.keys(), value.keys() ^ shape.keys()
    for field, kind in shape.items():
        # True is an int to Python, and no number to anybody else.
        fits = isinstance(value[field], kind) and (kind is bool or not isinstance(value[field], bool))
        assert fits, (field, value[field])
        if field.endswith("_at") and value[field] is not None:
            assert TIME.fullmatch(value[field]), (field, value[field])


def assert_job(job: Json, *, without: tuple[str, ...] = (), report: bool = False) -> None:
    """A JOB of the contract; `without` some fields where it is an event, with its `report` where it is had by id."""
    told = {field: kind for field, kind in JOB.items() if field not in without}
    assert_shaped(job, told | ({"report": str | None} if report else {}))
    assert JOB_ID.fullmatch(job["id"]) and job["status"] in STATUSES
    assert job["canceled_by"] in (None, "user", "agent", "plugin")
    assert_shaped(job["delivery"], {"state": str, "attempts": int, "last_error": str | None})
    assert job["delivery"]["state"] in DELIVERIES
    assert_shaped(job["usage"], dict.fromkeys(("requests", "input_tokens", "output_tokens", "tool_calls"), int))
    if job["error"] is not None:
        assert_shaped(job["error"], {"reason": str, "message": str})
    ended = job["status"] in ("completed", "failed", "canceled")
    assert ended == (job["completed_at"] is not None)
    assert job["notified"] == (job["notified_in"] is not None) == (job["notified_at"] is not None)


def error(answer: httpx.Response) -> Json:
    """The error of an answer, after a look at its form; it has nothing of our insides."""
    assert answer.headers["content-type"] == "application/json", (answer.status_code, answer.text)
    body = answer.json()
    assert body.keys() == {"error"} and body["error"].keys() == {"code", "message", "details"}, body
    found = body["error"]
    assert re.fullmatch("[A-Z_]+", found["code"]) and found["message"] and isinstance(found["details"], dict)
    for word in ("Traceback", ".py", "sqlite", "site-packages", "Error:", "Exception"):
        assert word not in answer.text, answer.text
    if answer.status_code == 503:
        assert answer.headers["retry-after"].isdigit()
    return found


def told(answer: httpx.Response) -> tuple[int, str]:
    """(status, code) of an error."""
    return answer.status_code, error(answer)["code"]
