"""Webhooks: who is to be called with a task's events, and what has become of each call. Owns `webhooks`.

A call is a run of kind `push`, enqueued in the commit that puts its event into the journal; the webhook's lane keeps
them in order. Address and credentials are sealed. What is sent, and how, is decided elsewhere.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from background import queue
from background.database import Row, Tx
from background.errors import Fault, not_found
from background.limits import SECOND

PER_TASK = 16
SEALED = ("url", "token", "scheme", "credentials")
NEWEST = 1 << 62
DAY = 24 * 3600 * SECOND


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

    @property
    def lane(self) -> str:
        return _lane(self.task_id, self.id)


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
    tx.x(
        "insert into webhooks (task_id, id, owner, url, token, scheme, credentials, created_at) "
        "values (:task_id, :id, :owner, :url, :token, :scheme, :credentials, :now) on conflict (task_id, id) do update "
        "set url = excluded.url, token = excluded.token, scheme = excluded.scheme, credentials = excluded.credentials",
        task_id=webhook.task_id,
        id=webhook.id,
        owner=webhook.owner,
        now=tx.now,
        **_cells(tx, webhook),
    )


def _cells(tx: Tx, webhook: Webhook) -> dict[str, bytes | None]:
    row = f"{webhook.task_id}/{webhook.id}"
    given = {name: getattr(webhook, name) for name in SEALED}
    return {name: tx.seal(f"webhooks.{name}", row, text) if text else None for name, text in given.items()}


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
    at, task_id, webhook_id = before or (NEWEST, "", "")
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
    for run in tx.q(waiting, lane=_lane(task_id, webhook_id)):
        queue.withdraw(tx, run["id"], "canceled")


def _require_task(tx: Tx, owner: str, task_id: str) -> None:
    if not tx.one("select 1 from tasks where id = :id and owner = :owner", id=task_id, owner=owner):
        raise not_found("task")


def _opened(tx: Tx, row: Row) -> Webhook:
    at = f"{row['task_id']}/{row['id']}"
    cells = {name: row[name] for name in SEALED}
    clear = {name: "" if cell is None else tx.unseal(f"webhooks.{name}", at, cell) for name, cell in cells.items()}
    return Webhook(row["task_id"], row["id"], row["owner"], created_at=row["created_at"], **clear)


# -- calls


@dataclass(frozen=True)
class Call:
    """What is to be sent, or was: an event of the journal, to a webhook. `again` counts how often by hand."""

    task: str
    webhook: str
    revision: int
    number: int
    again: int = 0

    @property
    def event(self) -> str:
        """The event's name in its task."""
        return f"{self.revision}.{self.number}"

    @property
    def delivery(self) -> str:
        """The same at every attempt, and at no other event's or webhook's."""
        return f"{self.task}/{self.webhook}/{self.event}"

    @property
    def key(self) -> str:
        key = f"{_lane(self.task, self.webhook)}:{self.revision}:{self.number}"
        return f"{key}:{self.again}" if self.again else key


def _lane(task_id: str, webhook_id: str) -> str:
    return f"push:{task_id}/{webhook_id}"


def announce(tx: Tx, events: Iterable[tuple[str, int, int]]) -> None:
    """New events (task, revision, number) stand in the journal: each of its task's webhooks is to be called with each."""
    news = list(events)
    tasks = {task_id for task_id, _, _ in news}
    sql = "select task_id, id from webhooks where task_id in (select value from json_each(:tasks)) order by task_id, id"
    for row in tx.q(sql, tasks=json.dumps(list(tasks))):
        for task_id, revision, number in news:
            if task_id == row["task_id"]:
                _enqueue(tx, Call(task_id, row["id"], revision, number))


def _enqueue(tx: Tx, call: Call) -> None:
    lane = _lane(call.task, call.webhook)
    queue.enqueue(tx, "push", call.key, lane=lane, task_id=call.task, params=vars(call))


def calls(tx: Tx, webhook: Webhook, limit: int, before: int = NEWEST, state: str | None = None) -> list[Row]:
    """The webhook's runs, newest first, with numbers below `before`; `state` (a run's) narrows."""
    narrow = "and state = :state" if state else ""
    return tx.q(
        f"select * from runs where task_id = :task_id and lane = :lane and id < :before {narrow} "
        "order by id desc limit :limit",
        task_id=webhook.task_id,
        lane=webhook.lane,
        before=before,
        state=state,
        limit=limit,
    )


def counts(tx: Tx, webhook: Webhook) -> dict[str, int]:
    """How many of the webhook's runs are in each state; states without one are left out."""
    rows = tx.q(
        "select state, count(*) as n from runs where task_id = :task_id and lane = :lane group by state",
        task_id=webhook.task_id,
        lane=webhook.lane,
    )
    return {row["state"]: row["n"] for row in rows}


def dead(tx: Tx) -> int:
    """How many calls of all owners were given up in the last day."""
    sql = "select count(*) from runs where kind = 'push' and ended_at > :since and state = 'failed'"
    return tx.value(sql, since=tx.now - DAY)


def call_again(tx: Tx, owner: str, task_id: str, webhook_id: str, event: str) -> Row:
    """Send an event once more whose call has ended, behind what waits already. The new run.

    Raises faults: not_found for an event that was never sent or was forgotten, conflict for one that is on its way.
    """
    webhook = get(tx, owner, task_id, webhook_id)
    runs = [(row, Call(**json.loads(row["params"]))) for row in calls(tx, webhook, limit=-1)]
    same = [(row, call) for row, call in runs if call.event == event]
    if not same:
        raise not_found("delivery")
    if any(row["ended_at"] is None for row, _ in same):
        raise Fault("conflict", "This event is on its way already.")
    latest = max((call for _, call in same), key=lambda call: call.again)
    _enqueue(tx, Call(task_id, webhook_id, latest.revision, latest.number, latest.again + 1))
    return calls(tx, webhook, limit=1)[0]


def discard(tx: Tx, owner: str, task_id: str, webhook_id: str, event: str, by: str) -> Row:
    """Give up a dead call, with a mark of who did. The run. Raises `not_found`, and `conflict` for one that is not dead."""
    webhook = get(tx, owner, task_id, webhook_id)
    same = [row for row in calls(tx, webhook, limit=-1) if Call(**json.loads(row["params"])).event == event]
    if not same:
        raise not_found("delivery")
    if not queue.discard(tx, same[0]["id"], f"Discarded by {by}."):
        raise Fault("conflict", "Only a call that was given up as dead can be discarded.")
    return next(row for row in calls(tx, webhook, limit=-1) if row["id"] == same[0]["id"])


def given_up(tx: Tx, owner: str, limit: int, before: int = NEWEST) -> list[Row]:
    """The dead calls of all of the owner's webhooks, newest first; they are forgotten after a day."""
    return tx.q(
        "select r.* from runs r join tasks t on t.id = r.task_id where r.kind = 'push' and r.ended_at is not null "
        "and r.state = 'failed' and t.owner = :owner and r.id < :before order by r.id desc limit :limit",
        owner=owner,
        before=before,
        limit=limit,
    )


def give_up(tx: Tx, run: queue.Run, why: str) -> bool:
    """The last try has failed: the run is failed, with its error, and the next of the lane has its turn."""
    return queue.release(tx, run, error=why) and queue.withdraw(tx, run.id, "failed")
