"""A story in which something is said wherever something can be said, so that it can be looked for afterwards."""

from collections.abc import Iterator

from background import delivery, events, gists, memories, messages, queue, tasks, terminal
from background.database import Database, Tx
from tests.background.asking import answered, parked, question
from tests.background.factories import (
    OWNER,
    ended_job,
    outcome,
    running,
    sent_by_api,
    settled,
)

CANARY = "kanarienvogel"


def _canaries() -> Iterator[str]:
    number = 0
    while True:
        number += 1
        yield f"{CANARY}-{number:02}-ÄÖ"


async def talkative(db: Database) -> list[str]:
    """Something of everything that can be said, each with a canary in it. Returns them."""
    used: list[str] = []
    source = _canaries()

    def said() -> str:
        used.append(next(source))
        return used[-1]

    turn = await running(db, said())
    session = turn.task.session
    await db.write(tasks.fragment, turn.run, said())
    await db.write(tasks.checkpoint, turn.run, "model:1", said())
    turn = await parked(db, question("form", text=said(), detail=said()), turn=turn)
    await answered(db, turn, said(), data={"size": 2})
    (run,) = await db.write(queue.claim, "w", "turn", 1)
    await db.write(tasks.begin, run)
    await db.write(tasks.fragment, run, said())
    await db.write(queue.release, run, error=said())
    (run,) = await db.write(queue.claim, "w", "turn", 1)
    await db.write(terminal.settle, run, outcome("completed", said(), transcript=said()))
    await settled(db, await running(db, said()), "failed", said(), detail=said())
    jobs_sent = await sent_by_api(db, said())
    await db.write(delivery.pending, jobs_sent[0].id, 1, session)
    await db.write(delivery.held_up, [jobs_sent[0].id], said(), tried=True)
    await ended_job(db, text=said())
    await ended_job(db, "failed", text=said())
    await db.write(messages.log, session, "notice", said())
    await db.write(events.emit, OWNER, session, "a.name", {"text": said()})
    await db.write(gists.put, session, turn.task.id, gists.Gist(turn.task.id, 1, (), said()), "full")
    await db.write(memories.keep, OWNER, session, "fact", said(), memories.AGENT, 1)
    unfinished = await running(db, said(), session_id="another")
    await db.write(tasks.fragment, unfinished.run, said())
    await db.write(webhook, {"url": said(), "token": said(), "scheme": said(), "credentials": said()})
    return used


def webhook(tx: Tx, cells: dict[str, str]) -> None:
    """A webhook's row as its owner seals it."""
    task_id = tx.value("select id from tasks")
    sealed = {name: tx.seal(f"webhooks.{name}", f"{task_id}/w", text) for name, text in cells.items()}
    tx.x(
        "insert into webhooks (id, task_id, owner, url, token, scheme, credentials, created_at) "
        "values ('w', :task, 'local', :url, :token, :scheme, :credentials, 1)",
        task=task_id,
        **sealed,
    )
