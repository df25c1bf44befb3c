"""Sending out: from what a caller asked for to the jobs of one batch. Tools, sdk and API all go through here.

What is refused is refused with a word of the contract and a sentence, and nothing is stored.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent.subagents import Registry, UnknownSubagent
from background import ceilings, job_rows, jobs, sessions, tasks
from background.database import Tx
from background.errors import Fault
from background.job_rows import Job
from background.jobs import Spec
from background.sessions import Session
from background.text import clean, clip
from knowledge import trust

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
    description = description or clip(prompt.strip().splitlines()[0], FIRST_LINE)
    return Spec(description, prompt, kind.name, kind.tools, level=registry.level(kind.name))


def _text(asked: dict[str, Any], field: str, most: int) -> str:
    value = asked.get(field)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Fault("invalid", f"{field} must be text.", field=field)
    if len(value) > most:
        raise Fault("invalid", f"{field} has more than {most} characters.", field=field)
    return clean(value)


def require_depth(sender: Job | None, limit: int) -> int:
    """How many levels below its chat stands what a job sends out, or a chat (None). Raises a fault: `DEPTH_LIMIT`."""
    depth = 1 + (sender.depth if sender else 0)
    if depth > limit:
        told = f"Jobs may be {limit} level(s) below a chat, and this would be level {depth}; do the work yourself."
        raise Fault("refused", told, reason="DEPTH_LIMIT", limit=limit, depth=depth)
    return depth


def send_out(
    tx: Tx,
    session: Session,
    batch_id: str,
    specs: Sequence[tuple[str, Spec]],
    *,
    closed: bool,
    level: str,
    sender: Job | None = None,
) -> list[Job]:
    """Send out keyed specs as one batch, all or none, kept at an answer level; by a job, where there is a `sender`.

    What is sent out from a job's own session is its job's, and comes back to the chat that the job is for. What a job sends
    out is incognito where it is, and is made of what the job had read. Raises faults: `DEPTH_LIMIT`, `QUEUE_LIMIT`,
    `RESULT_NOT_STORABLE`, `conflict` for a key used otherwise.
    """
    sender = sender or _job_in(tx, session)
    depth = require_depth(sender, tx.limits.max_depth)
    if sender and session.kind == "background":
        session = sessions.by_uid(tx, sender.session)
    parent = sender.id if sender and sender.session == session.uid else None
    specs = [(key, _handed_down(sender, spec)) for key, spec in specs] if sender else specs
    return jobs.spawn(tx, session, batch_id, specs, closed=closed, level=level, parent=parent, depth=depth)


def _handed_down(sender: Job, spec: Spec) -> Spec:
    made_of = trust.lowest(spec.made_of, sender.made_of)
    return replace(spec, incognito=spec.incognito or sender.incognito, made_of=made_of)


def _job_in(tx: Tx, session: Session) -> Job | None:
    """The job that works in a session of its own; None in a chat."""
    cause = tasks.job_in(tx, session.uid) if session.kind == "background" else None
    return job_rows.known(tx, cause) if cause else None


@dataclass(frozen=True)
class Sent:
    """What came of one spec: its job, and whether that was `running` before, sent out from the same place."""

    job: Job
    running: bool


def send_out_once(
    tx: Tx, session: Session, batch_id: str, specs: Sequence[tuple[str, Spec]], *, level: str, sender: Job | None
) -> list[Sent]:
    """The same for a model's turn, which forgets what it has sent out: what runs already, or comes twice, is not sent again."""
    running = {(job.subagent_type, job.prompt): job for job in _out(tx, session, sender)}
    marks = {key: _mark(tx, level, spec) for key, spec in specs}
    first = {mark: key for key, mark in reversed(marks.items())}
    new = [
        (key, spec)
        for key, spec in specs  # a key that is there is this very step's, which runs again
        if job_rows.has_key(tx, session.owner, key) or (marks[key] not in running and first[marks[key]] == key)
    ]
    sent = send_out(tx, session, batch_id, new, closed=False, level=level, sender=sender)
    made = {key: job for (key, _), job in zip(new, sent, strict=True)}
    return [
        Sent(made[key], running=False) if key in made else Sent(running.get(mark) or made[first[mark]], running=True)
        for key, mark in marks.items()
    ]


def _out(tx: Tx, session: Session, sender: Job | None) -> list[Job]:
    """What has been sent out from the same place and has not ended."""
    if sender:
        return job_rows.children(tx, sender.id)
    return [job for job in job_rows.of_session(tx, session.uid, running=True) if job.parent is None]


def _mark(tx: Tx, level: str, spec: Spec) -> tuple[str, str]:
    """By what two jobs are the same: who is to do what, as it is kept."""
    return spec.subagent_type, ceilings.keep(ceilings.strictest(level, spec.level), spec.prompt, tx.redact)
