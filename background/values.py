"""JSON: bytes from outside to a value, bounded in depth and with clean text; values as text, and back; bytes to go out.

Text is made clean here, once, where it enters: lone surrogates cannot be stored and NUL breaks an index, so each
becomes U+FFFD. Numbers stay as they were sent. It knows no protocol: a caller turns its errors into its own.
Of what is large one piece is worked on at a time, see `large.py`.
"""

import json
import re
from bisect import bisect_left
from typing import Any

from pydantic_core import from_json, to_json

from background.large import LARGE, is_large, piece

UNCLEAN = re.compile("[\x00\ud800-\udfff]")

Path = tuple[str | int, ...]


class NotJson(ValueError):
    """The bytes are no JSON text in UTF-8."""


class LongNumber(ValueError):
    """A number has more digits than can be read."""


class TooDeep(ValueError):
    """The value is nested too deeply. `value` is it, None if it could not even be read; `path` leads to the place."""

    def __init__(self, value: Any = None, path: Path = ()) -> None:
        super().__init__("nested too deeply")
        self.value = value
        self.path = path


def decode(body: bytes, nesting: int) -> Any:
    """The JSON value in `body`, with at most `nesting` lists and objects inside each other.

    NaN and Infinity come through as floats: where one may not stand, `canonical` refuses it. Raises NotJson,
    LongNumber, TooDeep.
    """
    try:
        with piece(len(body) > LARGE):
            value = _parse_within(body, nesting)
        # JSON writes NUL only so, and the fast parser takes no lone surrogate.
        return _clean(value) if b"\\u0000" in body else value
    except ValueError:
        value = _parse_slowly(body)
    path = path_deeper_than(nesting, value)
    if path is not None:
        raise TooDeep(value, path)
    return _clean(value)


def path_deeper_than(nesting: int, value: Any) -> Path | None:
    """The way to a first list or object with more than `nesting - 1` around it; None if there is none."""
    level: list[tuple[Path, Any]] = [((), value)] if isinstance(value, dict | list) else []
    for _ in range(nesting):
        if not level:
            return None
        level = [
            ((*path, key), inner)
            for path, outer in level
            for key, inner in (outer.items() if isinstance(outer, dict) else enumerate(outer))
            if isinstance(inner, dict | list)
        ]
    return level[0][0] if level else None


def canonical(value: Any) -> str:
    """The one text of a value, whatever order its members came in. ValueError for NaN and Infinity, which are not JSON."""
    with piece(is_large(value)):
        return _CANONICAL(value)


def text_of(value: Any) -> str:
    """A value of ours as it is stored."""
    return bytes_of(value).decode()


def value_of(text: str) -> Any:
    """A value as it was stored."""
    with piece(len(text) > LARGE):
        return json.loads(text)


def bytes_of(value: Any) -> bytes:
    """A value of ours as it goes out."""
    with piece(is_large(value)):
        return to_json(value)


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False, check_circular=False).encode


def _parser_refuses(depth: int) -> bool:
    try:
        from_json(b"[" * depth + b"0" + b"]" * depth)
    except ValueError:
        return True
    return False


_TRIED = 1000
# The fast parser has a limit of its own, the same for every call. A body is held to a lower one by brackets set around
# it that use up the rest, which costs nothing: walking a parsed megabyte would take as long as parsing it.
_PARSER_NESTING = bisect_left(range(1, _TRIED), True, key=_parser_refuses)


def _parse_within(body: bytes, nesting: int) -> Any:
    """The value; ValueError where it is no JSON, may be too deep, or for any other reason needs the slow way."""
    if body.count(b"[") + body.count(b"{") <= nesting:
        return from_json(body)
    # One less, because the parser does not count an empty list or object.
    spare = _PARSER_NESTING - nesting + 1
    if spare < 0 or _PARSER_NESTING == _TRIED - 1:
        raise ValueError("the parser's limit does not help")
    value = from_json(b"[" * spare + body + b"]" * spare)
    for _ in range(spare):
        # More or less than one element: the body closed a bracket of ours and opened it again, or was empty.
        (value,) = value
    return value


def _parse_slowly(body: bytes) -> Any:
    try:
        with piece(len(body) > LARGE):
            return json.loads(body.decode())
    except RecursionError:
        raise TooDeep from None
    except (UnicodeDecodeError, json.JSONDecodeError):
        raise NotJson("not JSON") from None
    except ValueError:
        raise LongNumber("a number is too long") from None


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return UNCLEAN.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_clean(key): _clean(inner) for key, inner in value.items()}
    return [_clean(inner) for inner in value] if isinstance(value, list) else value
