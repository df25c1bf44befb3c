"""The words in which the cases are told: what a model is scripted to do, and what came of it as the public surface shows it.

A chat turn is known by the tool `task`, which no worker is offered. A worker is known by its prompt, which must be
nobody else's words.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from tests.support.rules import Rule
from tests.support.scripted import Asked, ScriptedModel
from tests.support.server import Server

BLOCK = re.compile(r"<task-notification>\n.*?\n</task-notification>", re.DOTALL)
Block = dict[str, str]


# --- what the model is scripted to do -------------------------------------------------------------------------------


def job(prompt: str, subagent_type: str = "general") -> dict[str, Any]:
    """A job as a model asks for it; its description is its prompt in capitals."""
    return {"description": prompt.upper(), "prompt": prompt, "subagent_type": subagent_type}


def background(*prompts: str) -> dict[str, Any]:
    """A tool call that sends these out in the background."""
    return {
        "name": "task_batch",
        "arguments": {"tasks": [job(prompt) for prompt in prompts], "run_in_background": True},
    }


def calling(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def fan(said: str, *prompts: str, then: str = "Sent out.", gate: str | None = None) -> list[Rule]:
    """The user says `said`, the model sends these out and ends its turn; at `gate` it is held before its last words."""
    return [
        Rule(last_user=f"^{said}$", tool_offered="task", tool_calls=[background(*prompts)]),
        Rule(last_tool=r"\(sent out\)", anywhere=f"(?m)^{said}$", text=then, gate=gate),
    ]


def worker(prompt: str, text: str = "", **how: Any) -> Rule:
    """A worker with this prompt ends with `text`, or as `how` says."""
    return Rule(last_user=f"^{prompt}$", text=text or f"Report on {prompt}.", **how)


def briefing(text: str = "Briefed.", **how: Any) -> Rule:
    """The model answers whatever turn it is woken for."""
    return Rule(last_user="<task-notification>", tool_offered="task", text=text, **how)


# --- what came of it ------------------------------------------------------------------------------------------------


def blocks_in(text: str) -> list[Block]:
    """The notification blocks of a text, each as its elements: `job-id`, `status`, `result`, `reason`, and their attributes."""
    return [_block(found) for found in BLOCK.findall(text)]


def _block(text: str) -> Block:
    elements = re.finditer(r"<([a-z-]+)( [^>]*?)?(?:/>|>(.*?)</\1>)", text[len("<task-notification>") :], re.DOTALL)
    block = {"text": text}
    for element in elements:
        name, attributes, content = element.groups()
        block[name] = (content or "").strip("\n")
        for attribute, value in re.findall(r'([a-z-]+)="([^"]*)"', attributes or ""):
            block[f"{name} {attribute}"] = value
    return block


def news_in(asked: Asked) -> list[Block]:
    """The blocks in what a request brings that no answer followed yet."""
    fresh = []
    for message in reversed(asked.messages):
        if message["role"] == "assistant":
            break
        fresh.append(str(message.get("content") or ""))
    return blocks_in("\n".join(reversed(fresh)))


def told_in(model: ScriptedModel, job_id: str) -> list[Asked]:
    """The requests that brought the model a job's block as news."""
    return [asked for asked in model.requests() if any(block["job-id"] == job_id for block in news_in(asked))]


def chat_requests(model: ScriptedModel, marker: str = "") -> list[Asked]:
    """The requests of chat turns, those with `marker` in their conversation."""
    return [asked for asked in model.requests() if "task" in asked.tools and marker in asked.text]


def worker_requests(model: ScriptedModel, prompt: str) -> list[Asked]:
    """The requests of the workers with this prompt."""
    return [asked for asked in model.requests() if "task" not in asked.tools and asked.messages[1]["content"] == prompt]


def sent_out(server: Server, session: str, *prompts: str) -> list[dict[str, Any]]:
    """A session's jobs with these prompts, in this order."""
    found = {one["description"]: one for one in server.jobs(session)}
    return [found[prompt.upper()] for prompt in prompts]


def turns_by_outrider(server: Server, session: str) -> list[dict[str, Any]]:
    """The session's nudges that are no part of another turn, as they stand in the log."""
    found = [message for message in server.messages(session) if message["kind"] == "nudge"]
    return [message for message in found if "folded_into" not in server.task(message["task_id"]).get("metadata", {})]


def briefings(server: Server, session: str) -> list[dict[str, Any]]:
    """What the model said in turns that Outrider began, as it stands in the log."""
    begun = {message["task_id"] for message in turns_by_outrider(server, session)}
    return [
        message for message in server.messages(session) if message["kind"] == "agent" and message["task_id"] in begun
    ]


def notifications(server: Server, session: str, job_id: str) -> list[dict[str, Any]]:
    """The log's notifications of a job."""
    return [
        message
        for message in server.messages(session)
        if message["kind"] == "notification" and job_id in message["job_ids"]
    ]


def events_of(server: Server, session: str) -> list[tuple[str, dict[str, Any]]]:
    """All that a client hears of a session when it connects and asks for what it missed: names and data, in order."""
    heard: list[tuple[str, dict[str, Any]]] = []
    with server.http.stream("GET", "/api/events", headers={"Last-Event-ID": "0"}) as stream:
        end = server.say(
            "the-end-of-the-events", "hello"
        )  # what has happened before this turn has been heard before it
        name = ""
        for line in stream.iter_lines():
            field, _, value = line.partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                data = json.loads(value)
                if name == "turn.finished" and data["task_id"] == end:
                    break
                if name != "turn.delta" and data["session"] == session:
                    heard.append((name, data))
    return heard


def when_told(server: Server, *job_ids: str, timeout: float = 20) -> None:
    """Waits until a turn that saw each of these has completed."""
    server.wait(lambda: all(server.job(job_id)["notified"] for job_id in job_ids), timeout)


def when_quiet(server: Server, *sessions: str, timeout: float = 20) -> None:
    """Waits until nothing runs or waits in these sessions, and no job of theirs is out or still to be announced."""

    def quiet() -> bool:
        return not any(
            server.get(f"/api/sessions/{session}")["running"]
            or any(one["completed_at"] is None for one in server.jobs(session))
            for session in sessions
        ) and not any(
            row["queued"] + row["waiting"] + row["running"]
            for row in server.get("/api/status")["queue"]
            if row["kind"] not in ("join", "purge", "remember")  # due later, whatever happens
        )

    server.wait(quiet, timeout)


def assert_told_once(server: Server, session: str, *job_ids: str) -> None:
    """Exactly one completed turn of the session has the job's block as new input, and `notified_in` names that turn."""
    for job_id in job_ids:
        shown = server.job(job_id)
        assert shown["notified"] and shown["delivery"]["state"] == "delivered", shown
        told = [message for message in notifications(server, session, job_id) if message["state"] == "completed"]
        assert [message["task_id"] for message in told] == [shown["notified_in"]], told


def never_overlap(requests: Sequence[Asked]) -> bool:
    """Whether each request was answered before the next one came."""
    ends = [asked.answered_at or asked.gone_at for asked in requests]
    return all(end is not None and end <= after.at for end, after in zip(ends, requests[1:], strict=False))
