"""Lists of tasks, as they may be seen: filtered, counted and paged by the database, over indexed columns. Reads only.

The order is the time of the status, newest first, then the id, and a page goes on behind a place in it. So writes in
between repeat nothing, and lose no task that did not change.
"""

from typing import Any, NamedTuple

from background import journal
from background.database import Tx
from background.journal import View

Place = tuple[int, str]  # time of the status and id of the last task of a page


class Filters(NamedTuple):
    """Which tasks are asked for; what is None narrows nothing. `since`: status of that time (microseconds) or later.

    Without a context a job's own task is in no list.
    """

    context_id: str | None = None
    state: str | None = None
    since: int | None = None


def page(tx: Tx, owner: str, filters: Filters, limit: int, behind: Place | None, *, content: bool) -> list[View]:
    """The owner's tasks, `limit` at most, from behind a place on. Without `content` no artifact is read."""
    where, given = _where(owner, filters)
    at, last = behind or (0, "")
    if behind:
        where += " and (v.at < :at or (v.at = :at and v.task_id > :last))"
    rows = tx.q(
        f"{journal.WHOLE_VIEWS if content else journal.VIEWS} where {where} order by v.at desc, v.task_id limit :limit",
        **given,
        at=at,
        last=last,
        limit=limit,
    )
    return [journal.seen(tx, row, content=content) for row in rows]


def count(tx: Tx, owner: str, filters: Filters) -> int:
    """How many tasks there are, of all pages."""
    where, given = _where(owner, filters)
    return tx.value(f"select count(*) from views v where {where}", **given)


def _where(owner: str, filters: Filters) -> tuple[str, dict[str, Any]]:
    wheres = ["v.owner = :owner"]
    if filters.context_id is None:
        wheres.append("v.listed = 1")
    else:
        wheres.append("v.session = (select uid from sessions where owner = :owner and id = :context)")
    wheres += ["v.state = :state"] if filters.state is not None else []
    wheres += ["v.at >= :since"] if filters.since is not None else []
    given = {"owner": owner, "context": filters.context_id, "state": filters.state, "since": filters.since}
    return " and ".join(wheres), given
