"""Pages of lists over A2A: how large one may be asked for, and the token by which the next one is asked for.

A token is the place where its page ended, sealed for its caller and for what was listed: whoever else sends it, or with
anything else, is refused.
"""

from typing import Any

from background.database import Tx
from web import a2a_fields as fields
from web.a2a_errors import invalid
from web.sealed import opened, sealed

SIZE, MOST = 50, 100
TOKEN_CHARS = 4096
Json = dict[str, Any]


def size(given: Json) -> int:
    """`pageSize`. A2AError -32602."""
    asked = given.get("pageSize")
    if asked is None:
        return SIZE
    if type(asked) is not int or not 1 <= asked <= MOST:
        raise invalid("pageSize", f"must be a whole number from 1 to {MOST}")
    return asked


def token(given: Json) -> str | None:
    """`pageToken`; None for the first page. A2AError -32602 for what cannot be one."""
    return fields.string(given, "pageToken", "", TOKEN_CHARS)


def next_token(tx: Tx, what: str, whose: str, place: Any) -> str:
    """The token that goes on behind this place in what is listed; the empty one where there is no place."""
    return "" if place is None else sealed(tx, what, whose, place)


def place(tx: Tx, what: str, whose: str, asked: str | None) -> Any:
    """The place that a token leads to, None for the first page. A2AError -32602 for another's token, or of another list."""
    if asked is None:
        return None
    found = opened(tx, what, whose, asked)
    if found is None:
        allowed = "must be the nextPageToken of a page of this very list, asked for with the same filters"
        raise invalid("pageToken", allowed)
    return found
