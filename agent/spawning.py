"""Sending out: from what a caller asked for to the jobs of one batch. Tools, sdk and API all go through here.

What is refused is refused with a word of the contract and a sentence, and nothing is stored.
"""

from collections.abc import Sequence
from typing import Any

from agent.subagents import Registry, UnknownSubagent
from background import jobs
from background.database import Tx
from background.errors import Fault
from background.jobs import Job, Spec
from background.sessions import Session
from background.text import clean, clip

MAX_DESCRIPTION = 2000  # characters that are taken; a label is made of them
LABEL = 200
MAX_PROMPT = 100_000
MAX_BATCH = 64
FIRST_LINE = 80
DEFAULT_TYPE = "general"


def spec_of(registry: Registry, asked: Any) -> Spec:
    """A job's spec out of `{description?, prompt, subagent_type?}`. Raises a fault that names the field."""
    if not isinstance(asked, dict):
        raise Fault("invalid", "A job is an object with prompt, description and subagent_type.", field="jobs")
    prompt = _text(asked, "prompt", MAX_PROMPT)
    if not prompt.strip():
        raise Fault("invalid", "prompt must say what is to be done.", field="prompt")
    description = clip(_text(asked, "description", MAX_DESCRIPTION), LABEL)
    name = _text(asked, "subagent_type", 64) or DEFAULT_TYPE
    try:
        kind = registry.get(name)
    except UnknownSubagent:
        types = list(registry.names())
        message = f"There is no such subagent_type; there are: {', '.join(types)}."
        raise Fault("refused", message, reason="UNKNOWN_SUBAGENT", field="subagent_type", types=types) from None
    return Spec(description or clip(prompt.strip().splitlines()[0], FIRST_LINE), prompt, kind.name, kind.tools)


def _text(asked: dict[str, Any], field: str, most: int) -> str:
    value = asked.get(field)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Fault("invalid", f"{field} must be text.", field=field)
    if len(value) > most:
        raise Fault("invalid", f"{field} has more than {most} characters.", field=field)
    return clean(value)


def send_out(
    tx: Tx, session: Session, batch_id: str, specs: Sequence[tuple[str, Spec]], *, closed: bool, level: str
) -> list[Job]:
    """Send out keyed specs as one batch, all or none, kept at an answer level.

    Raises faults: `DEPTH_LIMIT` from a session that is a job's own, `QUEUE_LIMIT`, `RESULT_NOT_STORABLE`, `conflict` for
    a key used otherwise.
    """
    depth = 1 if session.kind == "background" else 0
    if depth >= tx.limits.max_depth:
        raise Fault(
            "refused",
            f"Jobs may be {tx.limits.max_depth} level(s) below a chat, and this would be level {depth + 1}; do the work yourself.",
            reason="DEPTH_LIMIT",
            limit=tx.limits.max_depth,
        )
    return jobs.spawn(tx, session, batch_id, specs, closed=closed, level=level)
