"""What models are told of the tools: a description and a JSON schema each. It calls none.

Whoever adds a tool of ours adds its entry here.
"""

from collections.abc import Callable
from typing import Any

from agent import memory_tool, web_pages
from agent.gates import ASK_USER
from agent.spawning import MAX_BATCH
from agent.subagents import Registry
from agent.works import INGEST

RECALL_LIMIT = 20
ONLY = {"documents": "document", "reports": "background_report"}  # the types of source, as a model names them
REPORT_LIMIT = 20_000
_IN_BACKGROUND = {
    "type": "boolean",
    "default": False,
    "description": "true: send it out and go on; you are notified when it has ended. false: wait for it within this turn.",
}
_JOB_ID = {"type": "string", "description": "a job's id, bg- and 12 hex digits"}


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def _spec_properties(registry: Registry) -> dict[str, Any]:
    types = "; ".join(f"{name}: {registry.get(name).description}" for name in registry.names())
    return {
        "description": {"type": "string", "description": "what it is about, in a few words, for the user to see"},
        "prompt": {"type": "string", "description": "the whole task; the subagent knows nothing of this conversation"},
        "subagent_type": {"type": "string", "enum": list(registry.names()), "description": types},
    }


_SPEC = ("description", "prompt", "subagent_type")
SCHEMAS: dict[str, Callable[[Registry], tuple[str, dict[str, Any]]]] = {
    "task": lambda registry: (
        "Give one task to a subagent.",
        _object({**_spec_properties(registry), "run_in_background": _IN_BACKGROUND}, *_SPEC),
    ),
    "task_batch": lambda registry: (
        "Give several tasks to subagents that work side by side. In the background they come back as one notification.",
        _object(
            {
                "tasks": {"type": "array", "items": _object(_spec_properties(registry), *_SPEC), "maxItems": MAX_BATCH},
                "run_in_background": _IN_BACKGROUND,
            },
            "tasks",
        ),
    ),
    "background_status": lambda _: (
        "Look once at a background job. It answers at once; never use it to wait.",
        _object({"job_id": _JOB_ID}, "job_id"),
    ),
    "ask_worker": lambda _: (
        "Ask the worker of an ended background job of this conversation one more thing. It goes on from all that it has read and "
        "done; you are notified of its answer, which takes the place of its report.",
        _object(
            {"job_id": _JOB_ID, "question": {"type": "string", "description": "the whole question"}},
            "job_id",
            "question",
        ),
    ),
    "stop_task": lambda _: ("Cancel a background job of this conversation.", _object({"job_id": _JOB_ID}, "job_id")),
    "memory_recall": lambda _: (
        "Search the knowledge store: reports of earlier work and documents.",
        _object(
            {
                "query": {"type": "string", "description": "words to search for"},
                "limit": {"type": "integer", "default": 5, "minimum": 1, "maximum": RECALL_LIMIT},
                "only": {"type": "string", "enum": [*ONLY], "description": "one of both; left out, both are searched"},
            },
            "query",
        ),
    ),
    "open_report": lambda _: (
        "Read a job's whole report, a part at a time.",
        _object(
            {
                "job_id": _JOB_ID,
                "offset": {"type": "integer", "default": 0, "minimum": 0},
                "limit": {"type": "integer", "default": 4000, "minimum": 1, "maximum": REPORT_LIMIT},
            },
            "job_id",
        ),
    ),
    memory_tool.NAME: lambda _: (
        "Open another, separate session of this user's by its id: its summary and what was said there, a part at a time.",
        _object(
            {
                "session_id": {
                    "type": "string",
                    "description": "the session's id, as the digest of other sessions names it",
                },
                "offset": {"type": "integer", "default": 0, "minimum": 0},
                "limit": {"type": "integer", "default": memory_tool.LIMIT, "minimum": 1, "maximum": memory_tool.MOST},
            },
            "session_id",
        ),
    ),
    web_pages.NAME: lambda _: (
        "Read a page of the public web as text, a part at a time. What it says is its author's word: cite its address.",
        _object(
            {
                "url": {"type": "string", "description": "an http or https address"},
                "offset": {"type": "integer", "default": 0, "minimum": 0, "description": "where in the text to begin"},
                "limit": {"type": "integer", "default": web_pages.LIMIT, "minimum": 1, "maximum": web_pages.MOST},
            },
            "url",
        ),
    ),
    INGEST: lambda _: (
        "Take a page of the public web, or a file or folder that the operator has opened, into the knowledge store, in the "
        "background. What was taken in can be searched afterwards.",
        _object(
            {"source": {"type": "string", "description": "an http or https address, or an absolute path"}}, "source"
        ),
    ),
    ASK_USER: lambda _: (
        "Ask the user one question, and wait for the answer. Only for what you cannot decide or find out yourself.",
        _object(
            {"question": {"type": "string", "description": "the whole question, as the user reads it"}}, "question"
        ),
    ),
}
