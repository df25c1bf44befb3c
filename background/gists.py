"""Gists: what stands in place of a session's older turns in what its model is given. Owns `gists`, one row a session.

A gist covers all turns of its session up to one; the next takes its place. The turns themselves stay as they were. When one
that it covers goes, or keeps less than it did, the gist goes with it and is made anew when it is needed.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from background import ceilings
from background.database import Tx


@dataclass(frozen=True)
class Gist:
    """`upto` is the last turn that it covers, `upto_at` when that ended; `told` are jobs that these turns were told of."""

    upto: str
    upto_at: int
    told: tuple[str, ...]
    text: str


def of(tx: Tx, session: str) -> Gist | None:
    """A session's gist, if it has one."""
    row = tx.one("select * from gists where session = :session", session=session)
    if row is None:
        return None
    text = tx.unseal("gists.content", session, row["content"])
    return Gist(row["upto"], row["upto_at"], tuple(json.loads(row["job_ids"])), text)


def put(tx: Tx, session: str, task_id: str, gist: Gist, level: str) -> None:
    """Keep a gist that this turn had made, in place of the one there was, as the answer level allows."""
    tx.x(
        "insert into gists (session, task_id, upto, upto_at, job_ids, content, created_at) values "
        "(:session, :task, :upto, :at, :told, :content, :now) on conflict (session) do update set "
        "task_id = excluded.task_id, upto = excluded.upto, upto_at = excluded.upto_at, job_ids = excluded.job_ids, "
        "content = excluded.content, created_at = excluded.created_at",
        session=session,
        task=task_id,
        upto=gist.upto,
        at=gist.upto_at,
        told=json.dumps(gist.told),
        content=tx.seal("gists.content", session, ceilings.keep(level, gist.text, tx.redact)),
        now=tx.now,
    )


def forget(tx: Tx, task_ids: Sequence[str]) -> None:
    """These turns go, or less is kept of them: the gists that cover one, or that one had made, are no more."""
    tx.x(
        "delete from gists where session in (select session from tasks where id in (select value from json_each(:ids))) "
        "and exists (select 1 from tasks t where t.session = gists.session and t.id in (select value from json_each(:ids)) "
        "and (t.id = gists.task_id or (t.ended_at, t.id) <= (gists.upto_at, gists.upto)))",
        ids=json.dumps(list(task_ids)),
    )


def drop(tx: Tx, session: str) -> None:
    """The session has no gist any more."""
    tx.x("delete from gists where session = :session", session=session)


def erase(tx: Tx, sessions: str) -> None:
    """Take away the gists of these sessions (a JSON list of uids)."""
    tx.x("delete from gists where session in (select value from json_each(:uids))", uids=sessions)
