"""What of a chat's log may be remembered: who said what, and of what Outrider told, the jobs' ids alone. Reads, writes nothing.

What a report says becomes memory as a report, in the index, and in no other way: answers of turns that were told of one
are left out. So is what was withdrawn unread, and every turn of which less than all is kept.
"""

import json
from dataclasses import dataclass

from background import results
from background.database import Row, Tx

MOST = 1000  # entries, the latest


@dataclass(frozen=True)
class Said:
    """An entry: `who` is user, agent or outrider; `text` of the last is a list of jobs."""

    id: int
    who: str
    text: str
    at: int


@dataclass(frozen=True)
class Chat:
    """A session that may be remembered. `made_of` is the lowest tier of what its turns have read, where that is known."""

    uid: str
    owner: str
    id: str
    made_of: int | None


def chat(tx: Tx, uid: str) -> Chat | None:
    """The session, if it stands and is one that is remembered: a chat, and not incognito. Told by its row, never by its id."""
    row = tx.one(
        "select uid, owner, id, (select min(made_of) from tasks t where t.session = s.uid) as made_of from sessions s "
        "where uid = :uid and kind = 'chat' and incognito = 0",
        uid=uid,
    )
    return Chat(**dict(row)) if row else None


def find(tx: Tx, owner: str, session_id: str) -> Chat | None:
    """The owner's session of this id, if it is one that is remembered."""
    uid = tx.value("select uid from sessions where owner = :owner and id = :id", owner=owner, id=session_id)
    return chat(tx, uid) if uid else None


_ENTRIES = (
    "select m.*, t.ceiling, exists (select 1 from messages told where told.task_id = m.task_id and told.kind = 'notification') "
    "or t.origin = 'background-resume' as briefed from messages m join tasks t on t.id = m.task_id "
    "where m.session = :session and m.id > :after and m.kind in ('user', 'agent', 'notification') "
    "and (t.state <> 'canceled' or t.started_at is not null)"
)


def to_remember(tx: Tx, uid: str, after: int) -> list[Said]:
    """What was said in a session behind an entry of its log, and may be remembered, in order."""
    where = "ceiling = 'full' and (kind <> 'agent' or not briefed)"
    return _said(tx, f"select * from ({_ENTRIES}) where {where} order by id desc limit :most", uid, after)


def whole(tx: Tx, uid: str) -> list[Said]:
    """What was said in a session, as it is kept, the agent's briefings too."""
    return _said(tx, f"select * from ({_ENTRIES}) order by id desc limit :most", uid, 0)


def _said(tx: Tx, sql: str, uid: str, after: int) -> list[Said]:
    rows = tx.q(sql, session=uid, after=after, most=MOST)
    answers = results.read_many(tx, [row["task_id"] for row in rows if row["kind"] == "agent" and row["text"] is None])
    said = [Said(row["id"], _who(row), _words(tx, row, answers), row["created_at"]) for row in reversed(rows)]
    return [each for each in said if each.text.strip()]


def _who(row: Row) -> str:
    return "outrider" if row["kind"] == "notification" else row["kind"]


def _words(tx: Tx, row: Row, answers: dict[str, results.Result]) -> str:
    if row["kind"] == "notification":
        return ", ".join(json.loads(row["job_ids"]))
    if row["text"] is not None:
        return tx.unseal("messages.text", f"{row['session']}/{row['uid']}", row["text"])
    answer = answers.get(row["task_id"])
    return answer.text if answer else ""


def quiet(tx: Tx, since: int, until: int, limit: int) -> list[tuple[str, int]]:
    """Chats whose last model call for a turn was between two times, and when that was, the longest quiet first.

    Those in which no model was asked are in none of this.
    """
    turns = "cause in ('turn', 'briefing')"
    rows = tx.q(
        f"select e.session, max(e.at) as last from expenses e where e.{turns} and e.at >= :since and e.at <= :until "
        f"and not exists (select 1 from expenses later where later.session = e.session and later.{turns} and later.at > :until) "
        "and exists (select 1 from sessions s where s.uid = e.session and s.kind = 'chat' and s.incognito = 0) "
        "group by e.session order by last, e.session limit :limit",
        since=since,
        until=until,
        limit=limit,
    )
    return [(row["session"], row["last"]) for row in rows]
