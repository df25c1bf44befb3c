"""Checkpoints: how far a turn has come, step by step, and what stays of it. Owns `checkpoints`.

The first write of a name wins, so a step that runs again changes nothing. It knows no step's meaning beyond its name.
"""

import json
from collections.abc import Callable
from typing import Any

from background import queue
from background.database import Tx
from background.queue import Run


def keep(tx: Tx, task_id: str, name: str, content: str) -> None:
    """Keep one; the first write of a name wins."""
    tx.x(
        "insert into checkpoints (task_id, name, content, created_at) values (:task, :name, :content, :now) on conflict do nothing",
        task=task_id,
        name=name,
        content=tx.seal("checkpoints.content", f"{task_id}/{name}", content),
        now=tx.now,
    )


def put_beside(tx: Tx, task_id: str, beside: str, name: str, content: str) -> None:
    """Keep or replace one that belongs to another: it is as old as that is, so that it is never the last step."""
    tx.x(
        "insert into checkpoints (task_id, name, content, created_at) "
        "select task_id, :name, :content, created_at from checkpoints where task_id = :task and name = :beside "
        "on conflict do update set content = excluded.content",
        task=task_id,
        name=name,
        beside=beside,
        content=tx.seal("checkpoints.content", f"{task_id}/{name}", content),
    )


def of_task(tx: Tx, task_id: str) -> dict[str, str]:
    """All checkpoints of a task, by name, in order of writing."""
    rows = tx.q("select name, content from checkpoints where task_id = :task order by created_at, name", task=task_id)
    return {row["name"]: opened(tx, task_id, row["name"], row["content"]) for row in rows}


def one(tx: Tx, task_id: str, name: str) -> str | None:
    """One checkpoint of a task, if it has that."""
    row = tx.one("select content from checkpoints where task_id = :task and name = :name", task=task_id, name=name)
    return None if row is None else opened(tx, task_id, name, row["content"])


def begin_call(tx: Tx, run: Run, key: str, name: str) -> None:
    """A call of `name` begins at step `key` that goes on when its turn is stopped. No progress: it may be its worker's end."""
    queue.fence(tx, run)
    keep(tx, run.task_id or "", f"call:{key}", json.dumps(name))


def going_on(tx: Tx, task_id: str) -> list[str]:
    """What a task at work has called that a cancel does not reach, by name."""
    if tx.one("select 1 from runs where task_id = :task and state = 'running'", task=task_id) is None:
        return []
    kept = of_task(tx, task_id)
    begun = {name for name in kept if name.startswith("call:")}
    return sorted({json.loads(kept[name]) for name in begun if name.removeprefix("call:") not in kept})


def names(tx: Tx, task_id: str) -> list[str]:
    """The names of a task's checkpoints."""
    return [row["name"] for row in tx.q("select name from checkpoints where task_id = :task", task=task_id)]


def opened(tx: Tx, task_id: str, name: str, cell: bytes) -> str:
    """The content in a cell."""
    return tx.unseal("checkpoints.content", f"{task_id}/{name}", cell)


def keep_last(tx: Tx, task_id: str, transcript: str | None) -> None:
    """At the end one checkpoint stays, for whoever looks into it: the whole turn as the model saw it, or the last step."""
    if transcript is not None:
        tx.x("delete from checkpoints where task_id = :task", task=task_id)
        keep(tx, task_id, "transcript", transcript)
        return
    tx.x(
        "delete from checkpoints where task_id = :task and name <> "
        "(select name from checkpoints where task_id = :task order by created_at desc, name desc limit 1)",
        task=task_id,
    )


def rewrite_all(tx: Tx, task_id: str, rewrite: Callable[[str], str]) -> None:
    """Change the texts, however deep in JSON, that a task's checkpoints hold."""
    for name, content in of_task(tx, task_id).items():
        if name.startswith("fold:"):  # what was taken up stands there as it was said
            changed = rewrite(content)
        else:
            changed = json.dumps(_rewritten(json.loads(content), rewrite), ensure_ascii=False)
        tx.x(
            "update checkpoints set content = :content where task_id = :task and name = :name",
            content=tx.seal("checkpoints.content", f"{task_id}/{name}", changed),
            task=task_id,
            name=name,
        )


def _rewritten(value: Any, rewrite: Callable[[str], str]) -> Any:
    match value:
        case str():
            return rewrite(value)
        case list():
            return [_rewritten(item, rewrite) for item in value]
        case dict():
            return {key: _rewritten(item, rewrite) for key, item in value.items()}
    return value


def drop(tx: Tx, task_id: str) -> None:
    """Take away all checkpoints of a task."""
    tx.x("delete from checkpoints where task_id = :task", task=task_id)


def erase(tx: Tx, task_ids: str) -> None:
    """Take away the checkpoints of these tasks (a JSON list of ids)."""
    tx.x("delete from checkpoints where task_id in (select value from json_each(:ids))", ids=task_ids)
