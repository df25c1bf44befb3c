"""ListTasks: what may be asked, and a page of the answer. A2A 1.0, section 3.1.4.

Nothing here asks a worker.
"""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from background import listing, messages
from background.database import Tx
from background.journal import View
from background.listing import Filters, Shape
from background.states import A2A
from web import a2a_fields as fields
from web import a2a_pages, a2a_views
from web.a2a_errors import invalid
from web.a2a_fields import Limits

PAGE_BYTES = 3 * 1024 * 1024  # about so many, as stored: what most gRPC clients read at once is 4 MiB
PLACE = "page.tasks"  # what a page token is sealed for
UNSPECIFIED = "TASK_STATE_UNSPECIFIED"
# The enum of the protocol, by number, as its JSON allows it to be written too.
NAMES = (
    UNSPECIFIED,
    "TASK_STATE_SUBMITTED",
    "TASK_STATE_WORKING",
    "TASK_STATE_COMPLETED",
    "TASK_STATE_FAILED",
    "TASK_STATE_CANCELED",
    "TASK_STATE_INPUT_REQUIRED",
    "TASK_STATE_REJECTED",
    "TASK_STATE_AUTH_REQUIRED",
)
OURS = {name: state for state, name in A2A.items()}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)")
Json = dict[str, Any]


class ListRequest(NamedTuple):
    """A page that somebody asks for. `history_length`: None for all of it."""

    filters: Filters
    page_size: int
    page_token: str | None
    history_length: int | None
    artifacts: bool


def list_params(params: Any, limits: Limits) -> ListRequest:
    """Params of ListTasks. A2AError -32602."""
    given = fields.params(params)
    return ListRequest(
        Filters(
            fields.optional_id(given, "contextId", "", limits),
            _state(given.get("status")),
            _since(given.get("statusTimestampAfter")),
        ),
        a2a_pages.size(given),
        a2a_pages.token(given),
        fields.natural(given, "historyLength", ""),
        fields.flag(given, "includeArtifacts", ""),
    )


def _state(asked: Any) -> str | None:
    """Our word for a state; None for no filter. A state that no task of ours can have is a filter all the same."""
    name = NAMES[asked] if type(asked) is int and 0 <= asked < len(NAMES) else asked
    if name in (None, "", UNSPECIFIED):
        return None
    if name not in NAMES:
        raise invalid("status", f"must be one of {', '.join(NAMES)}")
    return OURS.get(name, name)


def _since(asked: Any) -> int | None:
    """Microseconds; a part of one counts up, so that a status of the very time that is asked for is in the list."""
    if asked in (None, ""):
        return None
    found = TIMESTAMP.fullmatch(asked) if isinstance(asked, str) else None
    try:
        if found is None:
            raise ValueError
        fraction = (found[1] or ".0")[1:].ljust(9, "0")
        whole = datetime.fromisoformat(asked.upper().replace(found[1] or "\0", "").replace("Z", "+00:00"))
    except ValueError:
        raise invalid("statusTimestampAfter", "must be a time as in RFC 3339, like 2026-11-30T12:00:00.123Z") from None
    nanoseconds = int((whole - EPOCH) / timedelta(seconds=1)) * 10**9 + int(fraction)
    return -(-nanoseconds // 1000)


def page(tx: Tx, owner: str, asked: ListRequest) -> Json:
    """A ListTasksResponse. A2AError -32602 for a token that was given to somebody else, or for something else.

    It ends early where its tasks are large, and its token goes on from there.
    """
    whose = _whose(owner, asked.filters)
    behind = a2a_pages.place(tx, PLACE, whose, asked.page_token)
    shape = Shape(asked.page_size, PAGE_BYTES, asked.history_length, asked.artifacts)
    shown, last = listing.page(tx, owner, asked.filters, shape, behind)
    said = messages.histories(tx, [view.task_id for view in shown], asked.history_length)
    return {
        "tasks": [_task(view, said.get(view.task_id, []), asked) for view in shown],
        "nextPageToken": a2a_pages.next_token(tx, PLACE, whose, last),
        "pageSize": asked.page_size,
        "totalSize": listing.count(tx, owner, asked.filters),
    }


def _task(view: View, history: list[Json], asked: ListRequest) -> Json:
    made = a2a_views.task(view, None if asked.history_length == 0 else history, artifacts=asked.artifacts)
    return {**made, "artifacts": made.get("artifacts", [])} if asked.artifacts else made


def _whose(owner: str, filters: Filters) -> str:
    return json.dumps([owner, *filters])
