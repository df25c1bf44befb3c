"""What a turn did on its way, step by step, without a word of what was said: it outlives the checkpoints. Owns `steps`.

Which facts of a step may be told is the caller's to know.
"""

import json
from collections.abc import Mapping
from typing import Any

from background.ceilings import above
from background.database import Tx

ANSWER, RESULT = "model:", "tool:"


def note(tx: Tx, task_id: str, name: str, facts: Mapping[str, Any]) -> None:
    """A step was kept as this checkpoint, if its name is a step's. `facts` are JSON."""
    if not name.startswith((ANSWER, RESULT)):
        return
    tx.x(
        "insert into steps (task_id, name, at, facts) values (:task, :name, :now, :facts) on conflict do nothing",
        task=task_id,
        name=name,
        now=tx.now,
        facts=json.dumps(facts),
    )


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
