"""Lists of tasks, as they may be seen: filtered, counted and paged by the database, over indexed columns. Reads only.

The order is the time of the status, newest first, then the id, and a page goes on behind a place in it. So writes in
between repeat nothing, and lose no task that did not change. A page is bounded in bytes too, and what is beyond it is
not even read.
"""

import json
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


class Shape(NamedTuple):
    """What is shown of each task, and how much a page holds: tasks, and bytes, of which one task may be more.

    `history`: so many of its latest messages, None for all. Without `content` no artifact is read.
    """

    tasks: int
    size: int
    history: int | None = None
    content: bool = False


def page(tx: Tx, owner: str, filters: Filters, shape: Shape, behind: Place | None) -> tuple[list[View], Place | None]:
    """The owner's tasks from behind a place on, one at least if there is one, and the place where more of them follow."""
    where, given = _where(owner, filters)
    at, last = behind or (0, "")
    if behind:
        where += " and (v.at < :at or (v.at = :at and v.task_id > :last))"
    found = tx.q(
        f"select v.at, v.task_id from views v where {where} order by v.at desc, v.task_id limit :limit",
        **given,
        at=at,
        last=last,
        limit=shape.tasks + 1,
    )
    places = [(row["at"], row["task_id"]) for row in found]
    shown = _within(tx, places[: shape.tasks], shape)
    rows = tx.q(
        f"{journal.WHOLE_VIEWS if shape.content else journal.VIEWS} "
        "where v.task_id in (select value from json_each(:ids)) order by v.at desc, v.task_id",
        ids=json.dumps([task_id for _, task_id in shown]),
    )
    views = [journal.seen(tx, row, content=shape.content) for row in rows]
    return views, shown[-1] if len(places) > len(shown) else None


# What stands around each task, message and piece of an answer, beside what is stored of it.
_AROUND = {"task": 512, "message": 192, "piece": 32}
_SIZES = (
    "select a.value as id, :around_task + coalesce((select length(detail) from tasks where id = a.value), 0) + "
    "coalesce((select sum(length(m.content) + :around_message) from messages m where m.id in "
    "(select i.id from messages i where i.content is not null and i.task_id in (select a.value union all "
    "select t.id from tasks t where t.folded_into = a.value and t.origin = 'user') "
    "order by i.id desc limit :history)), 0) + iif(:content, "
    "coalesce((select length(artifacts) + coalesce(length(partial), 0) from results where task_id = a.value), 0) + "
    "coalesce((select sum(length(content) + :around_piece) from fragments where task_id = a.value), 0), 0) as size "
    "from json_each(:ids) a order by a.key"
)


def _within(tx: Tx, places: list[Place], shape: Shape) -> list[Place]:
    """As many of the first as a page holds. The database knows how long a value is without reading it."""
    sizes = tx.q(
        _SIZES,
        ids=json.dumps([task_id for _, task_id in places]),
        history=-1 if shape.history is None else shape.history,
        content=shape.content,
        **{f"around_{what}": size for what, size in _AROUND.items()},
    )
    total, fit = 0, 0
    for row in sizes:
        total += row["size"]
        if fit and total > shape.size:
            break
        fit += 1
    return places[:fit]


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
