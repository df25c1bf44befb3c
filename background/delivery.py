"""Delivery: which turn tells of a job's end. Owns `deliveries`, one row an attempt that has ended.

Delivered is what a completed turn has seen, and nothing else is: attach makes a job part of a turn's stored input,
and the turn's end delivers it or releases it. There is no other way.
"""

from background import queue
from background.database import Row, Tx
from background.limits import MINUTE
from background.states import DELIVERY, guard

TEXTLESS_AFTER = 3  # failed turns after which the block goes without its text
GIVE_UP_AFTER = 6
LONGEST_PAUSE = 60 * MINUTE
REPLACED = "The turn that was to tell of it asked its worker further, and did not complete."
INCOGNITO = "It is incognito, which wakes nobody: it is told with the session's next turn."
NO_NEWS = "Its user stopped it, which wakes nobody: it is told with the session's next turn."


def pending(tx: Tx, job_id: str, attempt: int, session: str) -> None:
    """An attempt has ended: its session is to be told, once the report is done."""
    tx.x(
        "insert into deliveries (job_id, attempt, session, state, ended_at) values (:job, :attempt, :session, 'pending', :now)",
        job=job_id,
        attempt=attempt,
        session=session,
        now=tx.now,
    )


def ready(tx: Tx, job_id: str, attempt: int) -> bool:
    """The attempt's report is done, it may be told. False if it was already."""
    return bool(
        tx.x(
            "update deliveries set ready_at = :now where job_id = :job and attempt = :attempt and ready_at is null",
            now=tx.now,
            job=job_id,
            attempt=attempt,
        )
    )


# Held members of a batch wait for its join.
_HAS_FIRED = (
    "exists (select 1 from members m where m.job_id = deliveries.job_id and m.attempt = deliveries.attempt "
    "and m.generation is not null)"
)
_FIRED = f"and {_HAS_FIRED}"
# What a job at work has sent out is the job's to take up, until its batch is told all the same.
_OURS = (
    f"and ({_HAS_FIRED} or not exists (select 1 from jobs j join jobs sender on sender.id = j.parent "
    "where j.id = deliveries.job_id and sender.completed_at is null))"
)


def waiting(tx: Tx, session: str, *, fired_only: bool) -> list[Row]:
    """What may be told in a chat now, in order of completion: job_id, attempt, failed_turns.

    `fired_only` for turns that Outrider began: held members of a batch wait for its join.
    """
    return tx.q(
        "select job_id, attempt, failed_turns from deliveries where session = :session and state = 'pending' "
        f"and ready_at is not null {_FIRED if fired_only else _OURS} order by ended_at, job_id",
        session=session,
    )


def waiting_for(tx: Tx, parent: str) -> list[Row]:
    """The same, of the jobs that a job at work has sent out: they may be told to it."""
    return tx.q(
        "select d.job_id, d.attempt, d.failed_turns from jobs j join deliveries d on d.job_id = j.id "
        "where j.parent = :parent and d.state = 'pending' and d.ready_at is not null order by d.ended_at, d.job_id",
        parent=parent,
    )


def attach(tx: Tx, task_id: str, job_id: str) -> bool:
    """A turn takes up the job's newest end. False if another turn has it, or it is not pending.

    It need not be ready: a model that reads an end before its report is indexed has its news all the same.
    """
    return bool(
        tx.x(
            "update deliveries set state = 'attached', task_id = :task, last_error = null where job_id = :job and "
            f"attempt = (select attempts from jobs where id = :job) and state in {guard(DELIVERY, 'attach')}",
            task=task_id,
            job=job_id,
        )
    )


def deliver(tx: Tx, task_id: str) -> None:
    """The turn completed: what was attached to it is delivered."""
    tx.x(
        f"update deliveries set state = 'delivered', notified_at = :now where task_id = :task and state in {guard(DELIVERY, 'deliver')}",
        task=task_id,
        now=tx.now,
    )


def release(tx: Tx, task_id: str, why: str, *, nudge: bool) -> None:
    """The turn ended otherwise: what was attached waits again, with a nudge due later, or is given up."""
    rows = tx.q(
        "update deliveries set state = 'pending', task_id = null, tries = tries + :failed, "
        "failed_turns = failed_turns + :failed "
        f"where task_id = :task and state in {guard(DELIVERY, 'release')} returning job_id, attempt, failed_turns, "
        "attempt < (select attempts from jobs where id = job_id) as replaced",
        task=task_id,
        failed=int(nudge),
    )
    for row in rows:
        if row["replaced"]:
            drop(tx, row["job_id"], row["attempt"], REPLACED)
        else:
            _note(tx, row["job_id"], row["attempt"], why)
    if nudge:
        _tell_again(tx, task_id, [row for row in rows if not row["replaced"]])


def missed(tx: Tx, task_id: str, why: str) -> None:
    """A nudge's turn failed before it took up anything: another is due later for what its session waits to be told."""
    rows = tx.q(
        "update deliveries set tries = tries + 1, failed_turns = failed_turns + 1 where state = 'pending' and ready_at is "
        f"not null {_FIRED} and session = (select session from tasks where id = :task) "
        "returning job_id, attempt, failed_turns",
        task=task_id,
    )
    for row in rows:
        _note(tx, row["job_id"], row["attempt"], why)
    _tell_again(tx, task_id, rows)


def _tell_again(tx: Tx, task_id: str, rows: list[Row]) -> None:
    """A nudge due later for what a failed turn was to tell; what too many have failed to tell is given up."""
    if not rows:
        return
    tx.x(
        "update deliveries set state = 'undeliverable' where failed_turns >= :limit and "
        f"state in {guard(DELIVERY, 'give_up')} and session = (select session from tasks where id = :task)",
        limit=GIVE_UP_AFTER,
        task=task_id,
    )
    kept = [row for row in rows if row["failed_turns"] < GIVE_UP_AFTER]
    if kept:
        pause = min(MINUTE << max(row["failed_turns"] for row in kept) - 1, LONGEST_PAUSE)
        queue.enqueue(
            tx,
            "nudge",
            f"nudge:again:{task_id}",
            params={"again": task_id, "jobs": sorted(row["job_id"] for row in kept)},
            due_at=tx.now + pause,
        )


def no_room(tx: Tx, task_id: str, job_ids: list[str]) -> None:
    """A turn could not even name these: another one is begun for them."""
    if job_ids:
        rest = f"{task_id}.{job_ids[0]}"
        queue.enqueue(tx, "nudge", f"nudge:rest:{rest}", params={"again": rest, "jobs": job_ids})


def drop(tx: Tx, job_id: str, attempt: int, why: str) -> None:
    """An attempt that was not told and never will be: a later one takes its place."""
    given_up = tx.x(
        "update deliveries set state = 'undeliverable' where job_id = :job and attempt = :attempt "
        f"and state in {guard(DELIVERY, 'give_up')}",
        job=job_id,
        attempt=attempt,
    )
    if given_up:
        _note(tx, job_id, attempt, why)


def replay(tx: Tx, job_id: str, attempt: int, batch_id: str) -> bool:
    """What was given up waits again, and its session is woken for it, unless it is held for its batch. False if it was not.

    It is told by the rules by which everything is: one turn attaches it, and delivers it when it completes.
    """
    named = {"job": job_id, "attempt": attempt}
    again = tx.x(
        "update deliveries set state = 'pending', failed_turns = 0, last_error = null, discarded_at = null, "
        f"discarded_by = null where job_id = :job and attempt = :attempt and state in {guard(DELIVERY, 'replay')}",
        **named,
    )
    fired = "select 1 from members where job_id = :job and attempt = :attempt and generation is not null"
    if again and tx.one(fired, **named):
        once = f"{job_id}.{attempt}.{tx.now}"
        queue.enqueue(tx, "nudge", f"nudge:{batch_id}:replay:{once}", params={"again": once, "jobs": [job_id]})
    return bool(again)


def discard(tx: Tx, job_id: str, attempt: int, by: str) -> bool:
    """Nobody is to be told any more, and who decided that stands there. False for what was told, or is being told."""
    given_up = tx.x(
        "update deliveries set state = 'undeliverable', discarded_at = :now, discarded_by = :by where job_id = :job and "
        f"attempt = :attempt and (state in {guard(DELIVERY, 'give_up')} or (state = 'undeliverable' and discarded_at is null))",
        job=job_id,
        attempt=attempt,
        by=by,
        now=tx.now,
    )
    if given_up:
        _note(tx, job_id, attempt, f"Discarded by {by}.")
    return bool(given_up)


def held_up(tx: Tx, job_ids: list[str], why: str, *, tried: bool) -> None:
    """A nudge for these could not be posted, or was not: say why they wait."""
    for job_id in job_ids:
        rows = tx.q(
            "update deliveries set tries = tries + :tried where job_id = :job and state = 'pending' returning attempt",
            job=job_id,
            tried=int(tried),
        )
        for row in rows:
            _note(tx, job_id, row["attempt"], why)


def _note(tx: Tx, job_id: str, attempt: int, why: str) -> None:
    tx.x(
        "update deliveries set last_error = :why where job_id = :job and attempt = :attempt",
        why=tx.seal("deliveries.last_error", f"{job_id}/{attempt}", why),
        job=job_id,
        attempt=attempt,
    )


def attached_to(tx: Tx, task_id: str) -> list[str]:
    """The jobs that a turn has taken up, delivered or not."""
    return [
        row["job_id"]
        for row in tx.q("select job_id from deliveries where task_id = :task order by ended_at, job_id", task=task_id)
    ]


def delivered_by(tx: Tx, task_id: str) -> list[str]:
    """The jobs that a turn has told of, once it has completed."""
    rows = tx.q("select job_id from deliveries where task_id = :task and state = 'delivered'", task=task_id)
    return [row["job_id"] for row in rows]


_UNTOLD = "d.state in ('pending', 'attached')"  # in the words of its index, by which it is found


def undelivered(tx: Tx) -> Row:
    """How many ends wait to be told that are news to their user, and the age of the oldest: count, oldest_at.

    What its user has canceled, or what is incognito, waits for the next turn, however long that takes, and is nothing to
    worry about: at_next_turn.
    """
    quiet = "(j.canceled_by is 'user' or j.incognito)"
    news = f"filter (where not {quiet})"
    row = tx.one(
        f"select count(*) {news} as count, min(d.ended_at) {news} as oldest_at, "
        f"count(*) filter (where {quiet} and d.state = 'pending') as at_next_turn "
        f"from deliveries d join jobs j on j.id = d.job_id where {_UNTOLD}"
    )
    assert row is not None
    return row


def held_batches(tx: Tx) -> int:
    """How many batches have members that have ended, and wait for the others."""
    return tx.value(  # a cross join is gone about in its order: from what waits to its batches
        "select count(distinct m.batch_id) from deliveries d cross join members m where m.job_id = d.job_id and "
        f"m.attempt = d.attempt and {_UNTOLD} and d.ready_at is not null and m.generation is null and m.withdrawn = 0"
    )


def erase(tx: Tx, job_ids: str) -> None:
    """Take away the deliveries of these jobs (a JSON list of ids)."""
    tx.x("delete from deliveries where job_id in (select value from json_each(:ids))", ids=job_ids)


def forget_tasks(tx: Tx, task_ids: str) -> None:
    """The turns that told are gone (a JSON list of ids): what they delivered stays delivered, what they held waits again."""
    mine = "where task_id in (select value from json_each(:ids))"
    tx.x(f"update deliveries set state = 'pending', task_id = null {mine} and state = 'attached'", ids=task_ids)
    tx.x(f"update deliveries set task_id = null {mine}", ids=task_ids)
