"""What a turn did on its way, step by step, without a word of what was said: it outlives the checkpoints. Owns `steps`.

Which facts of a step may be told is the caller's to know.
"""

import json
from collections.abc import Mapping
from typing import Any, Protocol

from background.ceilings import above
from background.database import Tx

ANSWER, RESULT = "model:", "tool:"


class Usage(Protocol):
    """What a turn has cost so far."""

    @property
    def requests(self) -> int: ...
    @property
    def input_tokens(self) -> int: ...
    @property
    def output_tokens(self) -> int: ...


def note(tx: Tx, task_id: str, name: str, facts: Mapping[str, Any], usage: Usage | None) -> None:
    """A step was kept as this checkpoint, if its name is a step's. `facts` are JSON; `usage` is the turn's with it."""
    if not name.startswith((ANSWER, RESULT)):
        return
    cost = _cost(tx, task_id, usage) if usage else {}
    tx.x(
        "insert into steps (task_id, name, at, facts) values (:task, :name, :now, :facts) on conflict do nothing",
        task=task_id,
        name=name,
        now=tx.now,
        facts=json.dumps({**facts, **cost}),
    )


def _cost(tx: Tx, task_id: str, usage: Usage) -> dict[str, int]:
    """What this step has added to what the turn had cost before."""
    before = tx.one("select requests, input_tokens, output_tokens from tasks where id = :id", id=task_id)
    assert before is not None, task_id
    return {name: getattr(usage, name) - before[name] for name in before.keys()}  # noqa: SIM118 - a row's, not a dict's


def of_provider(tx: Tx, provider: str, level: str, limit: int) -> list[str]:
    """Tasks that had this provider asked for an answer, and of which more is kept than a level allows; `limit` at most."""
    rows = tx.q(
        "select distinct t.id from tasks t join steps s on s.task_id = t.id, json_each(s.facts, '$.providers') p "
        "where p.value = :provider and t.ceiling in (select value from json_each(:higher)) limit :limit",
        provider=provider,
        higher=json.dumps(above(level)),
        limit=limit,
    )
    return [row["id"] for row in rows]
