"""What tasks ended with: written once, with the end itself, and never again. Owns `results`."""

import json
from dataclasses import dataclass
from typing import Any

from background.database import Row, Tx
from background.large import is_large, piece
from background.values import value_of

# Without the library's own look for cycles, which takes as long as the rest: it ends at the depth of the stack as well.
_NORMAL = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"), check_circular=False
).encode


@dataclass(frozen=True)
class Result:
    """`artifacts` are the protocol's; an empty list is a task that ended with nothing. `partial` is a failed run's text."""

    artifacts: list[dict[str, Any]]
    partial: str | None = None

    @property
    def text(self) -> str:
        """All text of the artifacts, in order; of a failed run, what there was."""
        texts = [text for artifact in self.artifacts if (text := _text(artifact)) is not None]
        return "\n\n".join(texts) if texts else self.partial or ""


def _text(artifact: dict[str, Any]) -> str | None:
    """Its text parts; the pieces of one that is not whole belong together as they are."""
    texts = [part["text"] for part in artifact["parts"] if "text" in part]
    together = "" if artifact.get("metadata", {}).get("partial") else "\n\n"
    return together.join(texts) if texts else None


def artifact_id(task_id: str, number: int = 1) -> str:
    """The id of a task's artifact, from 1 on. No other task of its context has the same (A2A 1.0, section 4.1.7)."""
    return f"{task_id}-{number}"


def encode(artifacts: list[dict[str, Any]]) -> str:
    """One JSON normal form. Raises `ValueError` or `TypeError` for what cannot be kept: a cycle, NaN, bytes."""
    with piece(is_large(artifacts)):
        try:
            return _NORMAL(artifacts)
        except RecursionError:
            raise ValueError("a cycle, or too deep") from None


def decode(text: str) -> list[dict[str, Any]]:
    """Artifacts out of that form, as somebody else wrote it down. Raises `ValueError`."""
    value = json.loads(text)
    whole = isinstance(value, list) and all(
        isinstance(one, dict)
        and isinstance(one.get("parts"), list)
        and all(isinstance(part, dict) for part in one["parts"])
        for one in value
    )
    if not whole:
        raise ValueError("not artifacts")
    return value


def record(tx: Tx, task_id: str, artifacts: list[dict[str, Any]], partial: str | None = None) -> bool:
    """Write a task's result; the first write wins, and False says that there was one."""
    added = tx.x(
        "insert into results (task_id, artifacts, pieces, partial, created_at) "
        "values (:task_id, :artifacts, :pieces, :partial, :now) on conflict (task_id) do nothing",
        task_id=task_id,
        artifacts=tx.seal("results.artifacts", task_id, encode(artifacts)),
        pieces=len(artifacts),
        partial=None if partial is None else tx.seal("results.partial", task_id, partial),
        now=tx.now,
    )
    return added == 1


def read(tx: Tx, task_id: str | None) -> Result | None:
    """A task's result, or None."""
    row = tx.one("select task_id, artifacts, partial from results where task_id = :task_id", task_id=task_id)
    return None if row is None else of(tx, row)


def read_many(tx: Tx, task_ids: list[str]) -> dict[str, Result]:
    """The results of these tasks, by task."""
    rows = tx.q(
        "select task_id, artifacts, partial from results where task_id in (select value from json_each(:ids))",
        ids=json.dumps(task_ids),
    )
    return {row["task_id"]: of(tx, row) for row in rows}


def of(tx: Tx, row: Row) -> Result:
    """The result in a row with its `task_id`, `artifacts` and `partial`."""
    partial = row["partial"]
    return Result(
        value_of(tx.unseal("results.artifacts", row["task_id"], row["artifacts"])),
        None if partial is None else tx.unseal("results.partial", row["task_id"], partial),
    )


def scrub(tx: Tx, task_id: str) -> None:
    """The task ended with something that is not kept any more: nothing of it is."""
    tx.x(
        "update results set artifacts = :empty, pieces = 0, partial = null where task_id = :task_id",
        task_id=task_id,
        empty=tx.seal("results.artifacts", task_id, "[]"),
    )


def erase(tx: Tx, task_ids: str) -> None:
    """Take away the results of these tasks (a JSON list of ids)."""
    tx.x("delete from results where task_id in (select value from json_each(:ids))", ids=task_ids)
