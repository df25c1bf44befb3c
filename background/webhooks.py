"""Webhooks: who is to be called with a task's events, and what has become of each call. Owns `webhooks`.

A call is a run of kind `push`, enqueued in the commit that puts its event into the journal; the webhook's lane keeps
them in order. Address and credentials are sealed. What is sent, and how, is decided elsewhere.
"""

from dataclasses import dataclass

from background import queue
from background.database import Row, Tx
from background.errors import Fault, not_found

PER_TASK = 16
OPEN = "('waiting', 'queued', 'running')"


@dataclass(frozen=True)
class Webhook:
    """A webhook in clear. What its client did not give is empty. `id` is unique in its task."""

    task_id: str
    id: str
    owner: str
    url: str
    token: str = ""
    scheme: str = ""
    credentials: str = ""
    created_at: int = 0


SEALED = ("url", "token", "scheme", "credentials")


def put(tx: Tx, webhook: Webhook) -> None:
    """Make a webhook, or replace the one of this id: what still waits goes to the new address.

    Raises faults: not_found where the task is not the webhook's owner's, refused past `PER_TASK` of one task.
    """
    _require_task(tx, webhook.owner, webhook.task_id)
    others = tx.value(
        "select count(*) from webhooks where task_id = :task_id and id <> :id", task_id=webhook.task_id, id=webhook.id
    )
    if others >= PER_TASK:
        raise Fault("refused", f"A task has {PER_TASK} push notification configs at most.")
    cells = {name: tx.seal(f"webhooks.{name}", _row(webhook), getattr(webhook, name)) for name in SEALED}
    tx.x(
        "insert into webhooks (task_id, id, owner, url, token, scheme, credentials, created_at) "
        "values (:task_id, :id, :owner, :url, :token, :scheme, :credentials, :now) on conflict (task_id, id) do update "
        "set url = excluded.url, token = excluded.token, scheme = excluded.scheme, credentials = excluded.credentials",
        task_id=webhook.task_id,
        id=webhook.id,
        owner=webhook.owner,
        now=tx.now,
        **cells,
    )


def get(tx: Tx, owner: str, task_id: str, webhook_id: str) -> Webhook:
    """The owner's webhook. Raises not_found; another's does not exist."""
    found = find(tx, task_id, webhook_id)
    if found is None or found.owner != owner:
        raise not_found("push notification config")
    return found


def find(tx: Tx, task_id: str, webhook_id: str) -> Webhook | None:
    """The webhook, whoever has it: for those who call it."""
    row = tx.one("select * from webhooks where task_id = :task_id and id = :id", task_id=task_id, id=webhook_id)
    return _opened(tx, row) if row else None


def of_task(tx: Tx, owner: str, task_id: str) -> list[Webhook]:
    """All webhooks of the owner's task, by id; `PER_TASK` at most. Raises not_found for the task."""
    _require_task(tx, owner, task_id)
    return [_opened(tx, row) for row in tx.q("select * from webhooks where task_id = :id order by id", id=task_id)]


def page(tx: Tx, owner: str, limit: int, before: tuple[int, str, str] | None) -> list[Webhook]:
    """The owner's webhooks, newest first, from behind `before` (created_at, task id, id) on."""
    at, task_id, webhook_id = before or (1 << 62, "", "")
    rows = tx.q(
        "select * from webhooks where owner = :owner and (created_at, task_id, id) < (:at, :task_id, :id) "
        "order by created_at desc, task_id desc, id desc limit :limit",
        owner=owner,
        at=at,
        task_id=task_id,
        id=webhook_id,
        limit=limit,
    )
    return [_opened(tx, row) for row in rows]


def delete(tx: Tx, owner: str, task_id: str, webhook_id: str) -> None:
    """Delete a webhook of the owner's task, and what it still waits for; one that is not there is deleted already."""
    _require_task(tx, owner, task_id)
    _end(tx, task_id, webhook_id)


def end_all(tx: Tx, task_id: str) -> None:
    """The task goes, and its webhooks with it."""
    for row in tx.q("select id from webhooks where task_id = :task_id", task_id=task_id):
        _end(tx, task_id, row["id"])


def _end(tx: Tx, task_id: str, webhook_id: str) -> None:
    tx.x("delete from webhooks where task_id = :task_id and id = :id", task_id=task_id, id=webhook_id)
    waiting = "select id from runs where lane = :lane and ended_at is null order by id desc"  # the head last
    for run in tx.q(waiting, lane=lane(task_id, webhook_id)):
        queue.withdraw(tx, run["id"], "canceled")


# -- calls


def lane(task_id: str, webhook_id: str) -> str:
    return f"push:{task_id}/{webhook_id}"


def enqueue(tx: Tx, task_id: str, revision: int, numbers: range) -> None:
    """New events of a task stand in the journal: each of its webhooks is to be called with each."""
    for row in tx.q("select id from webhooks where task_id = :task_id order by id", task_id=task_id):
        for number in numbers:
            _enqueue(tx, task_id, row["id"], revision, number, again=0)


def _enqueue(tx: Tx, task_id: str, webhook_id: str, revision: int, number: int, *, again: int) -> None:
    place = lane(task_id, webhook_id)
    key = f"{place}:{revision}:{number}"
    queue.enqueue(
        tx,
        "push",
        f"{key}:{again}" if again else key,
        lane=place,
        params={"task": task_id, "webhook": webhook_id, "revision": revision, "number": number, "again": again},
    )


def calls(tx: Tx, webhook: Webhook, limit: int, before: int, state: str | None) -> list[Row]:
    """The webhook's runs, newest first, with numbers below `before`; `state` (a run's) narrows."""
    narrow = "and state = :state" if state else ""
    return tx.q(
        f"select * from runs where {_OF_WEBHOOK} and id < :before {narrow} order by id desc limit :limit",
        limit=limit,
        before=before,
        state=state,
        **_of(webhook),
    )


def counts(tx: Tx, webhook: Webhook) -> dict[str, int]:
    """How many of the webhook's runs are in each state; states without one are left out."""
    rows = tx.q(f"select state, count(*) as n from runs where {_OF_WEBHOOK} group by state", **_of(webhook))
    return {row["state"]: row["n"] for row in rows}


def call_again(tx: Tx, owner: str, task_id: str, webhook_id: str, revision: int, number: int) -> Row:
    """Send an event once more whose call has ended, behind what waits already. The new run.

    Raises faults: not_found for an event that was never sent or was forgotten, conflict for one that is on its way.
    """
    webhook = get(tx, owner, task_id, webhook_id)
    key = f"{lane(task_id, webhook_id)}:{revision}:{number}"
    runs = tx.q(
        "select ended_at from runs where key = :key or (key >= :first and key < :last)",
        key=key,
        first=f"{key}:",
        last=f"{key};",
    )
    if not runs:
        raise not_found("delivery")
    if any(row["ended_at"] is None for row in runs):
        raise Fault("conflict", "This event is on its way already.")
    _enqueue(tx, task_id, webhook_id, revision, number, again=len(runs))
    return calls(tx, webhook, 1, 1 << 62, None)[0]


# A webhook's keys begin alike, and the unique index over keys finds them; an id may begin like another one.
_OF_WEBHOOK = "key >= :first and key < :last and lane = :lane"


def _of(webhook: Webhook) -> dict[str, str]:
    place = lane(webhook.task_id, webhook.id)
    return {"first": f"{place}:", "last": f"{place};", "lane": place}


def _require_task(tx: Tx, owner: str, task_id: str) -> None:
    if not tx.one("select 1 from tasks where id = :id and owner = :owner", id=task_id, owner=owner):
        raise not_found("task")


def _row(webhook: Webhook) -> str:
    return f"{webhook.task_id}/{webhook.id}"


def _opened(tx: Tx, row: Row) -> Webhook:
    at = f"{row['task_id']}/{row['id']}"
    clear = {name: tx.unseal(f"webhooks.{name}", at, row[name]) for name in SEALED}
    return Webhook(row["task_id"], row["id"], row["owner"], created_at=row["created_at"], **clear)
