"""What tasks ended with: written once, with the end itself, and never again. Owns `results`."""

import json
from dataclasses import dataclass
from typing import Any

from background.database import Tx


@dataclass(frozen=True)
class Result:
    """`artifacts` are the protocol's; an empty list is a task that ended with nothing. `partial` is a failed run's text."""

    artifacts: list[dict[str, Any]]
    partial: str | None = None

    @property
    def text(self) -> str:
        """All text of the artifacts, in order; of a failed run, what there was."""
        parts = [part["text"] for artifact in self.artifacts for part in artifact["parts"] if "text" in part]
        return "\n\n".join(parts) if parts else self.partial or ""


def encode(artifacts: list[dict[str, Any]]) -> str:
    """One JSON normal form. Raises `ValueError` or `TypeError` for what cannot be kept: a cycle, NaN, bytes."""
    return json.dumps(artifacts, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))


def record(tx: Tx, task_id: str, artifacts: list[dict[str, Any]], partial: str | None = None) -> bool:
    """Write a task's result; the first write wins, and False says that there was one."""
    added = tx.x(
        "insert into results (task_id, artifacts, partial, created_at) values (:task_id, :artifacts, :partial, :now) "
        "on conflict (task_id) do nothing",
        task_id=task_id,
        artifacts=encode(artifacts),
        partial=partial,
        now=tx.now,
    )
    return added == 1


def read(tx: Tx, task_id: str | None) -> Result | None:
    """A task's result, or None."""
    row = tx.one("select artifacts, partial from results where task_id = :task_id", task_id=task_id)
    return Result(json.loads(row["artifacts"]), row["partial"]) if row else None
