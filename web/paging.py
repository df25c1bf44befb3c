"""What a client may ask of a list, read from the query: limits, cursors, flags. A refusal names the field."""

import base64
import json
from typing import Any

from starlette.datastructures import QueryParams

from background.errors import Fault
from background.values import decode

CURSOR_CHARS = 1000


def bad(field: str, allowed: str) -> Fault:
    """Bad input in `field`; `allowed` says what may stand there."""
    return Fault("invalid", f"{field}: {allowed}.", field=field)


def number(query: QueryParams, field: str, default: int, least: int, most: int) -> int:
    given = query.get(field)
    if given is None:
        return default
    # A number of more digits than the largest has is over it, and Python may refuse to read it at all.
    digits = given.lstrip("0") or "0"
    if not (given.isascii() and given.isdigit() and len(digits) <= len(str(most)) and least <= int(digits) <= most):
        raise bad(field, f"a number from {least} to {most}")
    return int(digits)


def choice(query: QueryParams, field: str, allowed: tuple[str, ...]) -> str | None:
    given = query.get(field)
    if given is not None and given not in allowed:
        raise bad(field, f"one of {', '.join(allowed)}")
    return given


def flag(query: QueryParams, field: str, default: bool | None = False) -> bool | None:
    given = query.get(field)
    if given is None:
        return default
    if given not in ("true", "false", "1", "0"):
        raise bad(field, "true or false")
    return given in ("true", "1")


def encode_cursor(*place: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode()


def decode_cursor(query: QueryParams, *kinds: type) -> tuple[Any, ...] | None:
    """The place in a list that a cursor names; None without one."""
    given = query.get("cursor")
    if not given:
        return None
    place = _place(given)
    if [type(item) for item in place] != list(kinds) or any(
        isinstance(item, int) and not -(1 << 62) < item < 1 << 62 for item in place
    ):
        raise bad("cursor", "one that a page came with")
    return tuple(place)


def _place(cursor: str) -> list[Any]:
    """What a cursor holds; nothing for one that no page came with."""
    if len(cursor) > CURSOR_CHARS:
        return []
    try:
        place = decode(base64.b64decode(cursor, altchars=b"-_", validate=True), nesting=1)
    except ValueError:  # neither base64 nor JSON, or deeper than a list
        return []
    return place if isinstance(place, list) else []
