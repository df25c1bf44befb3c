"""`[mcp.NAME]` of `outrider.toml`: tables to values, each field checked as it is read.

What a server is given may be secret: no refusal repeats it, and it may stand in the environment instead, as `${NAME}`.
Whether a server is there, and what it offers, is not known here.
"""

import re
from collections.abc import Mapping
from typing import Any

from agent.mcp_servers import NAME, Filled, McpServer
from web.profiles import BadTable, Check, fields_of, require_tables, text, wanted
from web.setting_values import http_address

MOST_S = 3600
MOST_VALUES = 100
SECRET = frozenset({"args", "env", "headers", "url"})
NAMED = re.compile(r"\$\{(\w+)\}")


def _texts(value: Any) -> tuple[str, ...]:
    wanted(isinstance(value, list | tuple) and len(value) <= MOST_VALUES)
    return tuple(_line(one) for one in value)


def _line(value: Any) -> str:
    wanted(isinstance(value, str) and len(value) <= 10_000 and "\0" not in value)
    return value


def _values(pattern: str) -> Check:
    def check(value: Any) -> dict[str, str]:
        wanted(isinstance(value, Mapping) and len(value) <= MOST_VALUES)
        wanted(all(re.fullmatch(pattern, name) for name in value))
        return {name: _line(one) for name, one in value.items()}

    return check


def _header(value: Any) -> dict[str, str]:
    given = _values(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")(value)
    wanted(all(one.isascii() and one.isprintable() for one in given.values()))
    return given


def _url(value: Any) -> str:
    address = re.sub(r"\?.*", "", _line(value))  # a query is a server's own affair
    wanted(http_address(address))
    return value


def _seconds(value: Any) -> float:
    wanted(type(value) in (int, float) and 0.1 <= value <= MOST_S)
    return float(value)


def _approval(value: Any) -> tuple[str, ...] | bool:
    return value if isinstance(value, bool) else _texts(value)


FIELDS: Mapping[str, tuple[Check, str]] = {
    "command": (text(1000), "the name or path of a program"),
    "args": (_texts, "a list of texts"),
    "env": (_values(r"[A-Za-z_][A-Za-z0-9_]{0,127}"), "a table of texts, by names of variables"),
    "cwd": (text(1000), "a folder"),
    "url": (_url, "an http or https address"),
    "headers": (_header, "a table of texts, by names of headers"),
    "tools": (_texts, "a list of names of tools, as the server calls them"),
    "needs_approval": (_approval, "true, false, or a list of names of tools, as the server calls them"),
    "timeout_s": (_seconds, f"seconds from 0.1 to {MOST_S:,}"),
}


def read_servers(tables: Any) -> dict[str, McpServer]:
    """The servers that `[mcp.NAME]` tables name. Raises `BadTable`."""
    require_tables("mcp", tables)
    return {name: table if isinstance(table, McpServer) else _server(name, table) for name, table in tables.items()}


def _server(name: str, table: Mapping[str, Any]) -> McpServer:
    at = f"mcp.{name}"
    if not NAME.fullmatch(name):
        raise BadTable(f"{at}: the name of a server is a small letter, then small letters, digits or - (32 at most)")
    given = fields_of(at, table, FIELDS, SECRET)
    if ("command" in given) == ("url" in given):
        raise BadTable(f"{at}: either command or url must be there, and not both")
    for field in ("args", "env", "cwd") if "url" in given else ("headers",):
        if field in given:
            raise BadTable(f"{at}.{field}: only a server with {'a command' if 'url' in given else 'a url'} has it")
    return McpServer(name, **given)


def filled(tables: Any, environ: Mapping[str, str]) -> Any:
    """The same tables, with what `env`, `headers`, `args` and `url` name as `${NAME}` out of the environment. Raises `BadTable`."""
    if not isinstance(tables, Mapping):
        return tables
    return {name: _filled(f"mcp.{name}", table, environ) for name, table in tables.items()}


def _filled(at: str, value: Any, environ: Mapping[str, str]) -> Any:
    match value:
        case str():
            if unknown := [name for name in NAMED.findall(value) if name not in environ]:
                raise BadTable(f"{at}: there is no {unknown[0]} in the environment")
            taken = [environ[name] for name in NAMED.findall(value)]
            return Filled.of(NAMED.sub(lambda found: environ[found[1]], value), taken) if taken else value
        case list():
            return [_filled(at, one, environ) for one in value]
        case Mapping():
            return {name: _filled(f"{at}.{name}", one, environ) for name, one in value.items()}
    return value
