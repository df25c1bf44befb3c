"""Lowering what is kept: every copy of what was said and answered in a task, brought down to a level, in one commit.

The copies are those of the inventory in `sealing.py`; here stands which of them are a task's. State, reason and times
stay. What the search index holds of a job's report is taken along by a `tighten` run of the same commit.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from background import (
    ceilings,
    gists,
    job_rows,
    jobs,
    journal,
    masked,
    memories,
    messages,
    questions,
    queue,
    results,
    sessions,
    tasks,
)
from background.database import Tx
from background.job_rows import Job
from background.sealing import rewrite
from background.tasks import Task

# The sealed cells that are a task's own, by table: which rows, and which of their columns where it is not all.
OF_TASK: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "tasks": ("id = :task", ()),
    "results": ("task_id = :task", ()),
    "checkpoints": ("task_id = :task", ()),
    "questions": ("task_id = :task", ()),
    "messages": ("task_id = :task", ()),
    "runs": ("task_id = :task", ()),
    "failures": ("run_id in (select id from runs where task_id = :task)", ()),
    "jobs": ("task_id = :task", ("detail", "excerpt")),
    "deliveries": ("job_id in (select id from jobs where task_id = :task)", ()),
}
# Those that hang on it in another way, and how.
OTHERWISE: Mapping[str, str] = {
    "fragments": "dropped: a piece cannot be masked, for what is to be masked may be cut in two",
    "sessions": "the title is made of what was said first",
    "events": "its own, and the cards of the job that it worked on and of those that it sent out",
    "memories": "dropped with the turns that they may be made of, and made anew of what is left of them",
    "gists": "dropped with the turns that it covers, and made anew of what is left of them",
    "webhooks": "addresses and credentials; what is sent there is read when it is sent",
}
_REPORTED: Mapping[str, Any] = {"excerpt": "", "report_chars": 0, "question": None}
_ASKED: Mapping[str, Any] = {"description": ""}
Change = Callable[[str], str | None]


def lower(tx: Tx, task: Task, level: str) -> None:
    """Keep of a task what this level allows, and no more."""
    gists.forget(tx, [task.id])
    memories.forget(tx, [task.id])
    opening, _ = messages.opening(tx, task.id)
    if ceilings.can_keep(level):
        keep, answers = _keeping(tx, level), masked.answers(tx, task.id)
        for table, (where, columns) in OF_TASK.items():
            rewrite(tx, table, where, keep, columns, task=task.id)
        masked.mark(tx, task.id, answers)
        journal.drop_fragments(tx, task.id)
    else:
        keep = _without(_REPORTED)
        scrub(tx, task.id)
        for table in ("tasks", "runs", "failures", "deliveries"):
            rewrite(tx, table, OF_TASK[table][0], lambda _: None, task=task.id)
        jobs.not_kept(tx, task.id)
    _rewrite_events(tx, "turn.%", task.session, "task_id", task.id, task.created_at, keep)
    if opening:
        sessions.retitle(tx, task.session, opening, ceilings.keep(level, opening, tx.redact))
    if task.origin == "background":
        job = job_rows.by_id(tx, task.cause or "")
        _rewrite_cards(tx, job, keep)
        if not job_rows.sent_by_a_turn(tx, job.id):  # nobody else has a say in what its sender said
            lower_errand(tx, job, level)
        if task.state in journal.ENDS or job.attempts > 1:  # before an end nothing is in the index
            queue.enqueue(tx, "tighten", f"tighten:{job.id}:{task.id}:{level}", params={"job": job.id})


def lower_errand(tx: Tx, job: Job, level: str) -> None:
    """Keep of what a turn said to a job that it sent out what this level allows."""
    can = ceilings.can_keep(level)
    rewrite(tx, "jobs", "id = :id", _keeping(tx, level), ("description", "prompt", "follow_up"), id=job.id)
    _rewrite_cards(tx, job, _keeping(tx, level) if can else _without(_ASKED))


def scrub(tx: Tx, task_id: str) -> None:
    """Nothing of what was said or answered in this task is kept where only it can be meant."""
    results.scrub(tx, task_id)
    tasks.scrub(tx, task_id)
    messages.scrub(tx, task_id)
    questions.scrub(tx, task_id)
    journal.drop_fragments(tx, task_id)


def _keeping(tx: Tx, level: str) -> Change:
    """What a level keeps of a stored text, which may be JSON."""
    return lambda text: ceilings.keep_json(level, text, tx.redact) or ""


def _without(fields: Mapping[str, Any]) -> Change:
    """An event without these of its fields, and without why something failed: an error may quote what was said."""

    def change(text: str) -> str:
        card = json.loads(text)
        card |= {name: value for name, value in fields.items() if name in card}
        if card.get("error"):
            card["error"] = {**card["error"], "message": None}
        if card.get("delivery"):
            card["delivery"] = {**card["delivery"], "last_error": None}
        return json.dumps(card, ensure_ascii=False)

    return change


def _rewrite_cards(tx: Tx, job: Job, change: Change) -> None:
    """The events that told of a job."""
    _rewrite_events(tx, "background.%", job.session, "id", job.id, job.created_at, change)


def _rewrite_events(tx: Tx, names: str, session: str, field: str, wanted: str, since: int, change: Change) -> None:
    """The events of these names whose `field` is the wanted one."""

    def of_this(text: str) -> str | None:
        return change(text) if json.loads(text).get(field) == wanted else text

    where = "session = :session and name like :names and created_at >= :since"
    rewrite(tx, "events", where, of_this, session=session, names=names, since=since)
