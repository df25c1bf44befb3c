"""Memories: what is remembered of chats beside their logs, a summary of each and facts about their user. Owns `memories`.

They are of one owner and never leave it. A newer one supersedes: the older is kept and left out. A summary goes with its
session; a fact outlives what retention takes, and goes where its session, or a turn that it may be made of, is erased.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from background import ids, queue, sessions
from background.database import Row, Tx

DIGEST_LINES = 10
FACTS = 20
LANE = "memory:"  # of all that is made of one session's log, behind which its turns are kept
AGENT = 2  # the tier of what an agent has written down, or its user has said


@dataclass(frozen=True)
class Memory:
    """A summary or a fact, or (kind `digest`) another session's topic. `session` is a uid, `name` its id, None for one that
    is gone.
    """

    id: str
    session: str
    name: str | None
    kind: str
    text: str
    trust: int
    upto: int
    created_at: int


_DIGEST = (
    "select uid as id, uid as session, id as name, 'digest' as kind, title as content, 2 as trust, 0 as upto, updated_at as created_at "
    "from sessions where owner = :owner and kind = 'chat' and incognito = 0 and title is not null "
    "and uid not in (select value from json_each(:apart)) order by updated_at desc, uid limit :lines"
)
_MEMORY = (
    "select m.id, m.session, s.id as name, m.kind, m.content, m.trust, m.upto, m.created_at from memories m "
    "left join sessions s on s.uid = m.session where m.owner = :owner"
)
_FACTS = f"{_MEMORY} and m.kind = 'fact' and m.superseded_at is null order by m.created_at desc, m.id limit :facts"


def before_turn(tx: Tx, owner: str, apart: Sequence[str]) -> list[Memory]:
    """What an owner's turn may be given by itself: the newest chats but those `apart`, and the newest facts."""
    rows = tx.q(
        f"select * from ({_DIGEST}) union all select * from ({_FACTS})",
        owner=owner,
        apart=json.dumps(list(apart)),
        lines=DIGEST_LINES,
        facts=FACTS,
    )
    return [_memory(tx, row) for row in rows]


def _memory(tx: Tx, row: Row) -> Memory:
    column = "sessions.title" if row["kind"] == "digest" else "memories.content"
    plain = {name: row[name] for name in Memory.__dataclass_fields__ if name != "text"}
    return Memory(**plain, text=tx.unseal(column, row["id"], row["content"]))


def summary_of(tx: Tx, owner: str, session: str) -> Memory | None:
    """A session's summary that is in force."""
    row = tx.one(
        f"{_MEMORY} and m.session = :session and m.kind = 'summary' and m.superseded_at is null",
        owner=owner,
        session=session,
    )
    return None if row is None else _memory(tx, row)


def facts_of(tx: Tx, owner: str, limit: int) -> list[Memory]:
    """The newest facts of an owner that are in force."""
    return [_memory(tx, row) for row in tx.q(_FACTS, owner=owner, facts=limit)]


def find(tx: Tx, owner: str, memory_id: str) -> Memory | None:
    """An owner's summary or fact, superseded or not, or None."""
    row = tx.one(f"{_MEMORY} and m.id = :id", owner=owner, id=memory_id)
    return None if row is None else _memory(tx, row)


def page(tx: Tx, owner: str, kind: str, limit: int, before: tuple[int, str] | None) -> list[Memory]:
    """An owner's memories of a kind that are in force, the newest first."""
    at, last = before or (1 << 62, "")
    rows = tx.q(
        f"{_MEMORY} and m.kind = :kind and m.superseded_at is null and (m.created_at < :at or (m.created_at = :at "
        "and m.id > :last)) order by m.created_at desc, m.id limit :limit",
        owner=owner,
        kind=kind,
        at=at,
        last=last,
        limit=limit,
    )
    return [_memory(tx, row) for row in rows]


def keep(tx: Tx, owner: str, session: str, kind: str, text: str, trust: int, upto: int) -> str:
    """Write one down. Returns its id."""
    memory_id = f"m-{ids.uid()}"
    tx.x(
        "insert into memories (id, owner, session, kind, content, trust, upto, created_at) "
        "values (:id, :owner, :session, :kind, :content, :trust, :upto, :now)",
        id=memory_id,
        owner=owner,
        session=session,
        kind=kind,
        content=tx.seal("memories.content", memory_id, text),
        trust=trust,
        upto=upto,
        now=tx.now,
    )
    return memory_id


def supersede(tx: Tx, owner: str, memory_ids: Sequence[str]) -> None:
    """These are kept, and left out from now on."""
    tx.x(
        "update memories set superseded_at = :now where owner = :owner and superseded_at is null "
        "and id in (select value from json_each(:ids))",
        owner=owner,
        now=tx.now,
        ids=json.dumps(list(memory_ids)),
    )


def remove(tx: Tx, owner: str, memory_id: str) -> bool:
    """Take one of an owner's away for good; False if there is none."""
    return tx.x("delete from memories where owner = :owner and id = :id", owner=owner, id=memory_id) == 1


def forget(tx: Tx, task_ids: Sequence[str]) -> None:
    """These turns go, or less is kept of them: what may be made of one is no more, and is made anew of what is left."""
    for row in tx.q(
        "select session, min(id) as first from messages where task_id in (select value from json_each(:ids)) group by session",
        ids=json.dumps(list(task_ids)),
    ):
        made = tx.q(
            "delete from memories where session = :session and upto >= :first returning kind",
            session=row["session"],
            first=row["first"],
        )
        if any(one["kind"] == "fact" for one in made):
            left = "select max(upto) from memories where session = :session and kind = 'fact'"
            sessions.harvest(tx, row["session"], tx.value(left, session=row["session"]) or 0)
        for kind in {"summary" if one["kind"] == "summary" else "harvest" for one in made}:
            enqueue(tx, kind, row["session"], tx.now)


def forget_summary(tx: Tx, session: str) -> None:
    """A report that the session was told of is gone: its summary may hold words of it, and is made anew."""
    if tx.x("delete from memories where session = :session and kind = 'summary'", session=session):
        enqueue(tx, "summary", session, tx.now)


def enqueue(tx: Tx, kind: str, session: str, mark: int) -> None:
    """A summary or a harvest of a session is to be made, of what it was at `mark`; twice is once."""
    queue.enqueue(tx, kind, f"{kind}:{session}:{mark}", lane=f"{LANE}{session}", params={"session": session})


def erase(tx: Tx, uids: str) -> None:
    """Take away all that is remembered of these sessions (a JSON list of uids)."""
    tx.x("delete from memories where session in (select value from json_each(:uids))", uids=uids)


def outlived(tx: Tx, uids: str, before: int, limit: int) -> int:
    """What retention takes: the summaries of these sessions, and what was superseded before a time. Returns how many."""
    gone = tx.x(
        "delete from memories where kind = 'summary' and session in (select value from json_each(:uids))", uids=uids
    )
    return gone + tx.x(
        "delete from memories where id in (select id from memories where superseded_at < :before limit :limit)",
        before=before,
        limit=limit,
    )
