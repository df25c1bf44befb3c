"""Taking up: how the ends of jobs, and messages, become part of a turn, when it begins and between its steps.

All of it is functions of `tx`: what is attached and what the turn's stored input says of it are one commit.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from agent import material
from agent.notifications import Notice, Rendered, escape, harmless, render
from background import (
    ceilings,
    checkpoints,
    delivery,
    earlier,
    gists,
    job_rows,
    messages,
    queue,
    results,
    sessions,
    steering,
    tasks,
    terminal,
)
from background.database import Row, Tx
from background.earlier import Past
from background.gists import Gist
from background.queue import Run
from background.sessions import Session
from background.tasks import Task
from background.times import rfc3339
from knowledge import trust

MOST_OUT = 65  # of the jobs that are out: one more than a model is told of
MODELS = frozenset({"chat"})  # the profiles that a model answers


@dataclass(frozen=True)
class Shape:
    """How much of the reports one turn's notifications may hold, in characters."""

    excerpt_chars: int = 1500
    notifications_chars: int = 24000


@dataclass(frozen=True)
class Turn:
    """A turn as it begins, or as it goes on: `texts` are what its model is given, `stored` its checkpoints.

    `contents` are the protocol messages, for a profile that is answered by a handler of its own: the one that made the
    task, and those that came to it since.
    """

    task: Task
    session: Session
    texts: list[str]
    contents: list[dict[str, Any]]
    stored: dict[str, str]
    past: list[Past]
    job: job_rows.Job | None
    attempt: int
    gist: Gist | None = None  # what stands for the turns before those of `past`
    out: tuple[job_rows.Job, ...] = ()  # what it has sent out, and has not been told the end of

    @property
    def nothing_to_tell(self) -> bool:
        """A nudge whose jobs were told meanwhile, and to which nobody has said anything."""
        said = self.texts or any(name.startswith("fold:") for name in self.stored)
        return self.task.origin == "background-resume" and not said


def begin(tx: Tx, run: Run, shape: Shape, past_limit: int, models: Collection[str] = MODELS) -> Turn:
    """Begin the run's task, or go on with it, with the input that it has once and for all. Raises `LeaseLost`.

    `models` are the profiles that a model answers.
    """
    task, fresh = tasks.begin(tx, run)
    stored = {} if fresh else checkpoints.of_task(tx, task.id)
    session = sessions.by_uid(tx, task.session)
    if task.profile not in models:
        contents = [messages.opening(tx, task.id)[1], *_handed(tx, run, task, stored)]
        return Turn(task, session, [], contents, stored, [], _job(tx, task), run.attempt)
    if "input" not in stored:
        said = messages.waiting(tx, task.id)
        texts = [*_input(tx, task, shape), *(harmless(message.text) for message in said)]
        if said:
            messages.taken_up(tx, task.id)
        stored["input"] = json.dumps(texts, ensure_ascii=False)
        tasks.checkpoint(tx, run, "input", stored["input"])
    job = _job(tx, task)
    gist = None if job else gists.of(tx, task.session)
    out = job_rows.not_told(tx, job.session if job else task.session, job and job.id, MOST_OUT)
    return Turn(
        task=task,
        session=session,
        texts=json.loads(stored["input"]),
        contents=[],
        stored=stored,
        past=_past(tx, task, job, gist, past_limit),
        job=job,
        attempt=run.attempt,
        gist=gist,
        out=tuple(one.said_in(incognito=task.incognito) for one in out),
    )


def _job(tx: Tx, task: Task) -> job_rows.Job | None:
    """The job whose work this task is, if it is one's."""
    return job_rows.by_id(tx, task.cause or "") if task.origin == "background" else None


def _past(tx: Tx, task: Task, job: job_rows.Job | None, gist: Gist | None, limit: int) -> list[Past]:
    """The earlier turns that a turn goes on from: those of its session behind the gist, or the attempts that a job knows."""
    if job:
        return earlier.of_tasks(tx, job.knows)
    after = (gist.upto_at, gist.upto) if gist else (0, "")
    return earlier.turns(tx, task.session, task.id, limit, after)


def _input(tx: Tx, task: Task, shape: Shape) -> list[str]:
    """The user-role messages that a turn begins with; none for a nudge that finds nothing to tell."""
    text, _ = messages.opening(tx, task.id)
    said = harmless(text)
    if task.origin == "background":
        return [said]
    nudge = task.origin == "background-resume"
    taken = _attach(tx, task, shape, delivery.waiting(tx, task.session, fired_only=nudge))
    if not nudge:
        return [taken.text, said] if taken else [said]
    if taken is None:
        return []
    sessions.began_unattended(tx, task.session)
    return [f"{taken.text}\n\n{escape(text)}"]  # a job's description in it is no more the system's than one in a block


def _handed(tx: Tx, run: Run, task: Task, stored: dict[str, str]) -> list[dict[str, Any]]:
    """The messages that came to a handler's task, in order; those that wait are kept beside the ones before them."""
    known = sum(name.startswith("message:") for name in stored)
    said = messages.waiting(tx, task.id)
    for number, message in enumerate(said, known + 1):
        stored[f"message:{number}"] = json.dumps(message.content, ensure_ascii=False)
        tasks.checkpoint(tx, run, f"message:{number}", stored[f"message:{number}"])
    if said:
        messages.taken_up(tx, task.id)
    return [json.loads(stored[f"message:{number}"]) for number in range(1, known + len(said) + 1)]


def take_up(tx: Tx, run: Run, number: int, shape: Shape) -> list[str]:
    """Between two steps: what a waiting nudge of this session would tell is told to this turn, and the nudge is folded;
    then what was sent meanwhile to this task, or to be folded into it, in order of arrival.

    Each is kept under the number and what it was, for a resumed turn whose history lacks it: such a turn stands at
    the same number again, and may find another nudge there.
    """
    queue.fence(tx, run)
    task = tasks.by_id(tx, run.task_id or "")
    told = (_told_by_jobs if task.origin == "background" else _told_by_nudges)(tx, run, task, number, shape)
    said = sorted([*messages.waiting(tx, task.id), *steering.fold(tx, task)], key=lambda message: message.id)
    for message in said:  # behind the nudges, also by name: checkpoints of one commit are read in that order
        tasks.checkpoint(tx, run, f"fold:{number}:m{message.id:012d}", harmless(message.text))
    messages.taken_up(tx, task.id)
    return [*told, *(harmless(message.text) for message in said)]


def _told_by_nudges(tx: Tx, run: Run, task: Task, number: int, shape: Shape) -> list[str]:
    """What waiting nudges have to tell. Nothing if there is too little room: a turn of its own has more."""
    if messages.notified_chars(tx, task.id) > shape.notifications_chars // 2:
        return []
    nudges = tasks.waiting_nudges(tx, task.session)
    taken = _attach(tx, task, shape, delivery.waiting(tx, task.session, fired_only=True)) if nudges else None
    if taken is None:
        return []
    for nudge in nudges:
        terminal.fold(tx, nudge, task)
    tasks.checkpoint(tx, run, f"fold:{number}:{nudges[0].id}", taken.text)
    return [taken.text]


def _told_by_jobs(tx: Tx, run: Run, task: Task, number: int, shape: Shape) -> list[str]:
    """What has ended of that which a job has sent out; what it does not take up comes back to its chat."""
    rows = delivery.waiting_for(tx, task.cause or "")
    taken = _attach(tx, task, shape, rows) if rows else None
    if taken is None:
        return []
    tasks.checkpoint(tx, run, f"fold:{number}:{taken.job_ids[0]}", taken.text)
    return [taken.text]


def something_waits(tx: Tx, task: Task) -> bool:
    """Whether `take_up` may find something; a look that writes nothing."""
    if task.origin == "background":
        told = bool(delivery.waiting_for(tx, task.cause or ""))
    else:
        told = bool(tasks.waiting_nudges(tx, task.session))
    return told or messages.unread(tx, task.id) or steering.waits(tx, task.id)


def reopen(tx: Tx, run: Run, turn: Turn, shape: Shape) -> Turn:
    """The turn again, with what was sent to its task until it came to its end. What it ended with so far is kept."""
    if turn.contents:
        stored = dict(turn.stored)
        for name in [name for name in stored if name.startswith("handled:")]:
            tasks.checkpoint(tx, run, name, stored[name])
        return replace(turn, contents=[turn.contents[0], *_handed(tx, run, turn.task, stored)], stored=stored)
    number = sum(name.startswith("model:") for name in checkpoints.of_task(tx, turn.task.id))
    take_up(tx, run, number, shape)
    return replace(turn, stored=checkpoints.of_task(tx, turn.task.id))


def _attach(tx: Tx, task: Task, shape: Shape, rows: list[Row]) -> Rendered | None:
    if not rows:
        return None
    ended = [(job_rows.by_id(tx, row["job_id"]), row["failed_turns"]) for row in rows]
    notices = [_notice(tx, task, job, failed_turns) for job, failed_turns in ended]
    room = shape.notifications_chars - messages.notified_chars(tx, task.id)
    rendered = render(notices, shape.excerpt_chars, room)
    if not rendered.job_ids:
        return None
    # A report may have been kept at a higher level than this turn's.
    rendered = replace(rendered, text=ceilings.keep(task.ceiling, rendered.text, tx.redact))
    for job, _ in ended:
        if job.id in rendered.job_ids:
            delivery.attach(tx, task.id, job.id)
            tasks.has_read(tx, task.id, material.tier_of(job))
    messages.log(tx, task.session, "notification", rendered.text, task_id=task.id, job_ids=rendered.job_ids)
    delivery.no_room(tx, task.id, [row["job_id"] for row in rows if row["job_id"] not in rendered.job_ids])
    return rendered


def _notice(tx: Tx, task: Task, job: job_rows.Job, failed_turns: int) -> Notice:
    job = job.said_in(incognito=task.incognito)
    result = results.read(tx, job.task_id)
    return Notice(
        job_id=job.id,
        subagent=job.subagent_type,
        description=job.description,
        status=job.status,
        ended=rfc3339(job.completed_at or 0)[:19] + "Z",
        model_calls=job.model_calls,
        tool_calls=job.calls_of_tools,
        report=result.text if result else "",
        partial=job.partial,
        reason=job.reason,
        detail=job.detail,
        canceled_by=job.canceled_by,
        more=_pointer(job),
        textless=failed_turns >= delivery.TEXTLESS_AFTER,
        question=job.follow_up or "",
        external=material.tier_of(job) == trust.EXTERNAL,
        incognito=job.incognito and not task.incognito,
        whole=job.deterministic,
    )


def _pointer(job: job_rows.Job) -> str:
    """How the rest of the report can be had: only ways that really lead there."""
    reading = f'open_report(job_id="{job.id}") reads it whole, a part at a time'
    return f"memory_recall searches it; {reading}." if job.indexed else f"{reading}."
