"""The shape of a snapshot: what may stand in one, checked before any of it is believed or written. Reads no row.

A snapshot comes from outside, whoever made it. Its texts are cells, which only one who has the key can have made; all
else is plain and may be anything, so each field is held to what our own export writes there.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from background.ceilings import LEVELS
from background.errors import Fault
from background.messages import KINDS
from background.states import TASK, ended

FORMAT = "outrider.session"
VERSION = 1
SEALED = "sealed:"
MOST_TASKS = 10_000
MOST_MESSAGES = 50_000
MOST_JOBS = 1000  # that one message names
LATEST = 253_402_300_799_000_000  # the end of the year 9999, the last that RFC 3339 can write
NUMBERS = 1 << 53
Json = dict[str, Any]
Check = Callable[[Any], bool]


@dataclass(frozen=True)
class Given:
    """A snapshot that has the shape of one. `results` are those of its tasks alone."""

    session_id: str
    updated_at: int
    tasks: list[Json]
    results: dict[str, Json]
    messages: list[Json]


def bad(place: str, why: str) -> Fault:
    """An `invalid` fault that names the place."""
    return Fault("invalid", f"{place}: {why}.", field=place)


def checked(snapshot: Any) -> Given:
    """The snapshot, if it is one. Raises an `invalid` fault that names the first place that is not as we write it."""
    recognized(snapshot)
    session = snapshot.get("session")
    if not isinstance(session, dict) or not _text(128)(session.get("id")):
        raise bad("session.id", "must be text of 1 to 128 characters")
    if not _time(session.get("updated_at", 0)):
        raise bad("session.updated_at", "must be a time in microseconds")
    tasks = _entries(snapshot, "tasks", MOST_TASKS, "id", _TASK)
    if any(task["reason"] is not None and task["state"] != "failed" for task in tasks):
        raise bad("tasks.reason", "only a failed task has one")
    messages = _entries(snapshot, "messages", MOST_MESSAGES, "uid", _MESSAGE)
    return Given(session["id"], session.get("updated_at", 0), tasks, _results(snapshot, tasks), messages)


def recognized(snapshot: Any) -> None:
    """Whether it says of itself that it is a snapshot that we can read. Raises an `invalid` fault that says what it is not."""
    if not isinstance(snapshot, dict) or snapshot.get("format") != FORMAT:
        raise Fault("invalid", f'This is no exported session: its "format" is not "{FORMAT}".', field="format")
    version = snapshot.get("version")
    if type(version) is not int or version != VERSION:
        newer = " It was exported by a newer Outrider." if type(version) is int and version > VERSION else ""
        why = f'This export cannot be read here: its "version" is not {VERSION}.{newer}'
        raise Fault("invalid", why, field="version")


def _results(snapshot: Json, tasks: list[Json]) -> dict[str, Json]:
    """Those whose task is here: one without is nobody's."""
    found = snapshot.get("results", {})
    if not isinstance(found, dict):
        raise bad("results", "must be an object of objects")
    ours = {task["id"]: found[task["id"]] for task in tasks if task["id"] in found}
    return {task_id: _entry(f"results.{task_id}", result, _RESULT) for task_id, result in ours.items()}


def _entries(snapshot: Json, name: str, most: int, key: str, fields: Mapping[str, Check]) -> list[Json]:
    found = snapshot.get(name, [])
    if not isinstance(found, list) or len(found) > most:
        raise bad(name, f"must be a list of at most {most} objects")
    entries = [_entry(f"{name}[{place}]", entry, fields) for place, entry in enumerate(found)]
    if len({entry[key] for entry in entries}) < len(entries):
        raise bad(name, f"two have the same {key}")
    return entries


def _entry(place: str, entry: Any, fields: Mapping[str, Check]) -> Json:
    """The fields that we know of an object; others are passed over, and one that may be null may be missing."""
    if not isinstance(entry, dict):
        raise bad(place, "must be an object")
    for name, check in fields.items():
        if not check(entry.get(name)):
            raise bad(f"{place}.{name}", "is not as it is exported")
    return {name: entry.get(name) for name in fields}


def _number(value: Any, most: int = NUMBERS) -> bool:
    return type(value) is int and 0 <= value <= most  # neither true, nor 1e3, nor NaN


def _time(value: Any) -> bool:
    return _number(value, LATEST)


def _text(most: int, pattern: str = "(?s:.+)") -> Check:
    return lambda value: isinstance(value, str) and len(value) <= most and re.fullmatch(pattern, value) is not None


def _one_of(values: Iterable[str]) -> Check:
    known = frozenset(values)
    return lambda value: isinstance(value, str) and value in known


def _or_null(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _cell(value: Any) -> bool:
    """Text that was never sealed is refused: it could be put in anybody's mouth."""
    return isinstance(value, str) and value.startswith(SEALED)


def _job_ids(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= MOST_JOBS and all(map(_text(128), value))


# An id is part of other names, of a lane and of a seal: nothing in it may be taken for what sets those parts apart.
_ID = _text(64, "[A-Za-z0-9-]+")
_COUNTS = ("requests", "input_tokens", "output_tokens", "tool_calls")
_TASK: Mapping[str, Check] = {
    "id": _ID,
    "profile": _text(64),
    "origin": _one_of(("user", "background-resume")),
    "cause": _or_null(_text(128)),
    "state": _one_of(ended(TASK)),
    "ceiling": _one_of(LEVELS),
    "reason": _or_null(_text(64)),
    **dict.fromkeys(_COUNTS, _number),
    "created_at": _time,
    "started_at": _or_null(_time),
    "ended_at": _time,
    "made_of": _or_null(lambda value: _number(value, 3) and value > 0),
    "detail": _or_null(_cell),
    "transcript": _or_null(_cell),
}
_RESULT: Mapping[str, Check] = {"artifacts": _cell, "partial": _or_null(_cell)}
_MESSAGE: Mapping[str, Check] = {
    "uid": _ID,
    "task": _or_null(_ID),
    "kind": _one_of(KINDS),
    "text": _or_null(_cell),
    "content": _or_null(_cell),
    "job_ids": _job_ids,
    "created_at": _time,
}
