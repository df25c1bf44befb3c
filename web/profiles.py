"""`[profiles.NAME]`, `[providers.NAME]`, `[plugins.NAME]`, `[subagents.NAME]` of `outrider.toml`: tables to values, each field checked as read.
The checks serve `[mcp.NAME]` too (`mcp_tables.py`).

Each field stands once, with what is allowed in it. A refusal is one line that names profile, field and value. Whether
a handler, tool or model of that name exists is not known here: that shows when all is put together.
"""

import difflib
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from agent.mcp_servers import McpServer
from agent.profiles import AGENT, BUILTIN, CHAT, Profile
from agent.subagents import BUILTIN as BUILTIN_TYPES
from agent.subagents import SubagentType
from background.ceilings import LEVELS

OFFERED = "offered"  # beside the tables in `[profiles]`: what the setting `profiles` says where there are none
NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
TOOL = re.compile(r"[A-Za-z_][\w.-]{0,127}\*?")  # with * all of an MCP server's
MOST_TASKS = 100_000
MOST_DAYS = 36_500
MOST_JOBS = 100_000
OF_THE_AGENT = ("model", "instructions", "tools")
Check = Callable[[Any], Any]


class BadTable(ValueError):
    """A table that cannot be used; the text is one line."""


def wanted(holds: object) -> None:
    """Raises ValueError unless it holds."""
    if not holds:
        raise ValueError


def text(most: int) -> Check:
    """A text that says something, of at most so many characters."""

    def check(value: Any) -> str:
        wanted(isinstance(value, str) and value.strip() and len(value) <= most)
        return value

    return check


def named(pattern: re.Pattern[str]) -> Check:
    """A text of this shape."""

    def check(value: Any) -> str:
        wanted(isinstance(value, str) and pattern.fullmatch(value))
        return value

    return check


def _names(value: Any) -> tuple[str, ...]:
    given = [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value
    wanted(isinstance(given, list | tuple) and all(isinstance(name, str) and TOOL.fullmatch(name) for name in given))
    return tuple(dict.fromkeys(given))


def _whole(most: int) -> Check:
    def check(value: Any) -> int:
        wanted(type(value) is int and 1 <= value <= most)
        return value

    return check


def _switch(value: Any) -> bool:
    wanted(isinstance(value, bool))
    return value


def _level(value: Any) -> str:
    wanted(value in LEVELS)
    return value


def _schema(value: Any) -> Any:
    document = json.loads(value) if isinstance(value, str) else value
    wanted(isinstance(document, dict))
    json.dumps(document)  # TOML knows times, JSON does not
    return document


LEVEL = (_level, "one of " + ", ".join(LEVELS))
FIELDS: Mapping[str, tuple[Check, str]] = {
    "description": (text(2000), "a text of at most 2,000 characters"),
    "handler": (named(NAME), "the name of a handler: agent, echo, or one that a plugin adds"),
    "model": (text(256), "offline, or a model name of the agent library"),
    "instructions": (text(100_000), "a text of at most 100,000 characters"),
    "tools": (_names, "a list of names of tools"),
    "answer_level": LEVEL,
    "output_guard": (_switch, "true or false"),
    "input_schema": (_schema, "a JSON Schema, as a table or as JSON text"),
    "output_schema": (_schema, "a JSON Schema, as a table or as JSON text"),
    "max_open_tasks": (_whole(MOST_TASKS), f"a whole number from 1 to {MOST_TASKS:,}"),
    "retention_days": (_whole(MOST_DAYS), f"a whole number from 1 to {MOST_DAYS:,}"),
}

OF_A_SUBAGENT: Mapping[str, tuple[Check, str]] = {
    "description": FIELDS["description"],
    "prompt": FIELDS["instructions"],
    "tools": FIELDS["tools"],
    "parks": FIELDS["output_guard"],
    "memory": FIELDS["output_guard"],
    "profile": (named(NAME), "the name of a profile that a model answers"),
}
OF_A_PLUGIN = {"max_queued_jobs": (_whole(MOST_JOBS), f"a whole number from 1 to {MOST_JOBS:,}")}


def read_profiles(tables: Any) -> dict[str, Profile]:
    """The profiles that `[profiles.NAME]` tables define, over those that are built in. Raises `BadTable`."""
    require_tables("profiles", tables)
    return {
        name: profile if isinstance(profile, Profile) else _profile(name, profile) for name, profile in tables.items()
    }


def _profile(name: str, table: Mapping[str, Any]) -> Profile:
    at = f"profiles.{name}"
    if not NAME.fullmatch(name):
        raise BadTable(f"{at}: a profile's name is a small letter, then small letters, digits, - or _ (64 at most)")
    given = fields_of(at, table, FIELDS)
    profile = replace(BUILTIN.get(name) or Profile(name, f"The profile {name}."), **given)
    if name == CHAT and profile.handler != AGENT:
        raise BadTable(f"{at}.handler: must be {AGENT}: jobs and briefings are of this profile, and a model does them")
    for field in OF_THE_AGENT:
        if profile.handler != AGENT and getattr(profile, field) is not None:
            raise BadTable(f"{at}.{field}: only a profile with the handler {AGENT} has one")
    return profile


def read_providers(tables: Any) -> dict[str, str]:
    """The answer level of each provider that a `[providers.NAME]` table gives one. Raises `BadTable`."""
    require_tables("providers", tables)
    given = {name: fields_of(f"providers.{name}", table, {"answer_level": LEVEL}) for name, table in tables.items()}
    return {name: fields.get("answer_level", LEVELS[0]) for name, fields in given.items()}


def read_plugins(tables: Any) -> dict[str, int]:
    """How many jobs each plugin may have waiting that a `[plugins.NAME]` table says it of. Raises `BadTable`."""
    require_tables("plugins", tables)
    given = {name: fields_of(f"plugins.{name}", table, OF_A_PLUGIN) for name, table in tables.items()}
    return {name: fields["max_queued_jobs"] for name, fields in given.items() if fields}


def read_subagents(tables: Any) -> dict[str, SubagentType]:
    """The types of subagents that `[subagents.NAME]` tables define, or change of those built in. Raises `BadTable`."""
    require_tables("subagents", tables)
    return {name: kind if isinstance(kind, SubagentType) else _subagent(name, kind) for name, kind in tables.items()}


def _subagent(name: str, table: Mapping[str, Any]) -> SubagentType:
    at = f"subagents.{name}"
    if not NAME.fullmatch(name):
        raise BadTable(f"{at}: the name of a type is a small letter, then small letters, digits, - or _ (64 at most)")
    given = fields_of(at, table, OF_A_SUBAGENT)
    for kind in BUILTIN_TYPES:
        if kind.name == name:
            return replace(kind, **given)
    for field in ("description", "prompt"):
        if field not in given:
            raise BadTable(f"{at}: {field} is missing; it is {OF_A_SUBAGENT[field][1]}")
    return SubagentType(name, **given)


def split(value: Any) -> tuple[dict[str, Any], Any]:
    """What `profiles` in the file holds: the tables of profiles, and which are offered (None: not said)."""
    if not isinstance(value, dict):
        return {}, value
    tables = {name: table for name, table in value.items() if isinstance(table, dict)}
    for name in value.keys() - tables.keys() - {OFFERED}:
        raise BadTable(f"profiles.{name}: only {OFFERED} and tables of profiles may stand here")
    return tables, value.get(OFFERED)


def require_tables(at: str, tables: Any) -> None:
    """Raises `BadTable` unless these are tables, one a name."""
    if not isinstance(tables, Mapping):
        raise BadTable(f"{at}: must be tables, one a name: [{at}.NAME]")
    for name, table in tables.items():
        if not isinstance(table, Mapping | Profile | SubagentType | McpServer):
            raise BadTable(f"{at}.{name}: must be a table")


def fields_of(
    at: str, table: Any, fields: Mapping[str, tuple[Check, str]], secret: Collection[str] = ()
) -> dict[str, Any]:
    """The fields of a table, each checked. Raises `BadTable`, which does not repeat the value of a `secret` one."""
    if not isinstance(table, Mapping):
        raise BadTable(f"{at}: must be a table")
    given = {}
    for field, value in table.items():
        if field not in fields:
            raise BadTable(f"{at}.{field}: there is no such field{_hint(field, fields)}")
        check, allowed = fields[field]
        try:
            given[field] = check(value)
        except (ValueError, TypeError, RecursionError):
            told = "what is given" if field in secret else shown(value)
            raise BadTable(f"{at}.{field}: {told} is not {allowed}") from None
    return given


def _hint(field: str, fields: Iterable[str]) -> str:
    close = difflib.get_close_matches(field, fields, n=1, cutoff=0.8)
    return f"; did you mean {close[0]}?" if close else f"; the fields are {', '.join(fields)}"


def shown(value: object) -> str:
    """A value in a refusal: on one line, short, and as the file spells it."""
    text = repr(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else text[:77] + "..."
