"""The words in which questions are told: what a model asks for, what a parked task shows, and how it is answered."""

from typing import Any

from tests.a2a import wire
from tests.a2a.wire import Json
from tests.support.server import Server, wait

PARKED, AUTH = "TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED"


def calling(*calls: tuple[str, dict[str, Any]] | tuple[str, dict[str, Any], str], **how: Any) -> dict[str, Any]:
    """A rule by which the model makes these calls, in one answer, once."""
    made = [dict(zip(("name", "arguments", "id"), call, strict=False)) for call in calls]
    return {"tool_calls": made, "times": 1, **how}


def asking(question: str = "Which one?", **how: Any) -> dict[str, Any]:
    """A rule by which the model asks its user, once."""
    return calling(("ask_user", {"question": question}), **how)


def paying(amount: int = 5, **how: Any) -> dict[str, Any]:
    """A rule by which the model wants to call the tool that needs an approval, once."""
    return calling(("pay", {"amount": amount}), **how)


def ending(text: str = "Done.", **how: Any) -> dict[str, Any]:
    """A rule by which the model ends its turn after a tool's result."""
    return {"last_tool": "", "text": text, **how}


def parked(server: Server, task_id: str, state: str = PARKED, timeout: float = 20) -> Json:
    """The task once it is parked."""
    wait(
        lambda: wire.get(server, task_id)["status"]["state"] == state, timeout, lambda: str(server.task(task_id))[:2000]
    )
    return wire.get(server, task_id)


def began(server: Server, text: str = "go", skill: str = "asker", **fields: Any) -> Json:
    """A task that was sent, and is not waited for."""
    return wire.start(server, wire.message(text, skill, **fields))


def asked(server: Server, text: str = "go", skill: str = "asker", state: str = PARKED, **fields: Any) -> Json:
    """A task that was sent, and is parked with its first question."""
    return parked(server, began(server, text, skill, **fields)["id"], state)


def question(task: Json) -> str:
    """What a parked task asks."""
    return task["status"]["message"]["parts"][0]["text"]


def digest(task: Json) -> str:
    """The mark of a parked task's question."""
    return task["status"]["message"]["metadata"]["question"]


def answer(task: Json, text: str = "that one", mark: str | None = None, **fields: Any) -> Json:
    """A message that answers a parked task's question, with its mark if one is given."""
    marked = {"metadata": {"question": mark}} if mark else {}
    return wire.message(text, None, taskId=task["id"], contextId=task["contextId"], **marked, **fields)


def answered(server: Server, task: Json, text: str = "that one", mark: str | None = None, **fields: Any) -> Json:
    """The task as it is when its question was answered and it has ended, or asks again."""
    return wire.send(server, answer(task, text, mark, **fields))


def refusal(server: Server, sent: Json) -> tuple[int, int, str]:
    """(HTTP status, code, reason) with which a message is refused; nothing of it is stored."""
    with wire.nothing_stored(server):
        return wire.told(wire.post(server, "SendMessage", {"message": sent}))


def said(task: Json) -> list[str]:
    """The texts of a task's history, in order."""
    return ["\n".join(part.get("text", "") for part in message["parts"]) for message in task["history"]]


def job(server: Server, session: str, kind: str, prompt: str) -> Json:
    """A job of this kind, sent out by the API for a session that there is."""
    server.http.post("/api/sessions", json={"id": session})
    return server.spawn(session, prompt, subagent_type=kind)


def in_status(server: Server, job_id: str, *statuses: str) -> Json:
    """The job once it has one of these statuses."""
    wait(lambda: server.job(job_id)["status"] in statuses, 20, lambda: str(server.job(job_id)))
    return server.job(job_id)


def worker(prompt: str, **how: Any) -> dict[str, Any]:
    """A rule for the worker with this prompt; it fits before and after its tools' results."""
    return {"anywhere": f"(?m)^{prompt}$", **how}
