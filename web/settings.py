"""Where settings come from: defaults, `outrider.toml`, the environment, the command line. What they are is in `setting_fields.py`.

The only module that reads the environment. The documentation's table, `--help` and every refusal are made from the fields;
a bad or unknown setting stops the start with one line.
"""

import difflib
import logging
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from annotated_types import Ge, Le
from pydantic import (
    ValidationError,
)
from pydantic.fields import FieldInfo

from web.mcp_tables import filled
from web.profiles import BadTable, shown, split
from web.setting_fields import DEFAULT_DATA, Settings
from web.setting_values import (
    BadEntry,
    http_address,
)

logger = logging.getLogger("outrider.settings")

PREFIX = "OUTRIDER_"
FILE = "outrider.toml"
DEFAULT_ADDRESS = "http://127.0.0.1:8420"
# Read by the command-line client, see client_settings(); a server started in the same shell lets them stand.
OF_THE_CLIENT = frozenset({PREFIX + "URL", PREFIX + "TOKEN"})
# Tables of the file, whose fields `web/profiles.py` and `web/mcp_tables.py` know; they have no line of the settings' table.
TABLES = frozenset({"defined_profiles", "mcp", "plugins", "providers", "subagents"})

SECRET = frozenset({"seal_key", "webhook_keys"})  # never repeated, in no refusal


class BadSetting(Exception):
    """A setting that cannot be used; `str()` is one line with its name, its value and what is allowed."""


class Row(NamedTuple):
    """One line of the settings table, all of it text."""

    environment: str
    key: str
    default: str
    allowed: str
    meaning: str


class ClientSettings(NamedTuple):
    """What the command-line client needs to find a server."""

    url: str
    token: str | None


def load(
    command_line: Mapping[str, object], environ: Mapping[str, str] = os.environ, *, makes: bool = True
) -> Settings:
    """The settings in force; later wins: defaults, `outrider.toml` in the data folder, environment, command line.

    `command_line` holds the options by setting name; one that was not given is absent or None. Makes the data folder
    where there is none, if it `makes` one: who only reads would not see that its name was mistyped. Raises BadSetting.
    """
    options = {key: value for key, value in command_line.items() if value is not None}
    named = _from_environment(environ)
    data = _data_folder(*_asked_data(options, named), makes=makes)
    layers = [("the command line", options), ("the environment", named), (FILE, _from_file(data, environ))]
    given = {key: (value, source) for source, layer in reversed(layers) for key, value in layer.items()}
    values: dict[str, Any] = {key: value for key, (value, _) in given.items()} | {"data": data}
    try:
        settings = Settings(**values)
    except ValidationError as invalid:
        raise _refusal(invalid, given) from None
    settings._auto_resume_pinned = "auto_resume" in named or "auto_resume" in options
    settings._auto_resume_last = settings.auto_resume
    return settings


def auto_resume_now(settings: Settings) -> bool:
    """Whether a finished job may wake its session at this moment.

    Reads `outrider.toml` again, so that a change there holds without a restart; environment and command line still
    win. While the file cannot be used the last answer stands, so that a typo changes nothing.
    """
    if settings._auto_resume_pinned:
        return settings.auto_resume
    try:
        asked = _toml(settings.data / FILE).get("auto_resume", True)
        settings._auto_resume_last = Settings(data=settings.data, auto_resume=_plain(asked)).auto_resume
    except (BadSetting, ValidationError):
        logger.warning("auto_resume stays %s: %s cannot be used", settings._auto_resume_last, settings.data / FILE)
    return settings._auto_resume_last


def client_settings(environ: Mapping[str, str] = os.environ) -> ClientSettings:
    """`OUTRIDER_URL` and `OUTRIDER_TOKEN`, for commands that speak with a running server. Raises BadSetting.

    Without the first it is the address at which `outrider serve` would listen, as far as the environment says.
    """
    given = environ.get(PREFIX + "URL")
    url = given or _address_here(environ)
    try:
        return ClientSettings(http_address(url) or DEFAULT_ADDRESS, environ.get(PREFIX + "TOKEN") or None)
    except ValueError:
        named = f"{PREFIX}URL" if given else f"{PREFIX}HOST and {PREFIX}PORT"
        raise BadSetting(f"{named}: {shown(url)} is not an http or https address") from None


def _address_here(environ: Mapping[str, str]) -> str:
    """Where a server listens that was started in the same environment."""
    default = urlsplit(DEFAULT_ADDRESS)
    host = environ.get(PREFIX + "HOST") or str(default.hostname)
    return f"http://{f'[{host}]' if ':' in host else host}:{environ.get(PREFIX + 'PORT') or default.port}"


def table() -> list[Row]:
    """Every setting, for the documentation and `--help`."""
    return [
        Row(PREFIX + key.upper(), key, _default(field), _allowed(field), field.description or "")
        for key, field in _simple().items()
    ]


def _simple() -> dict[str, FieldInfo]:
    """The settings that are one value each."""
    return {key: field for key, field in Settings.model_fields.items() if key not in TABLES}


def _from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    names = {PREFIX + key.upper(): key for key in _simple()}
    found = {name: value for name, value in environ.items() if name.startswith(PREFIX) and name not in OF_THE_CLIENT}
    for name in found:
        _known(name, "the environment", names)
    return {names[name]: value for name, value in found.items()}


def _from_file(data: Path, environ: Mapping[str, str]) -> dict[str, Any]:
    found = _toml(data / FILE)
    if "data" in found:
        raise BadSetting(f"data: {FILE} lies in the data folder and cannot move it; use --data or {PREFIX}DATA")
    for name in found:
        _known(name, FILE, [*_simple(), "mcp", "plugins", "providers", "subagents"])
    try:
        defined, named = split(found.pop("profiles", None))
        found |= {"mcp": filled(found["mcp"], environ)} if "mcp" in found else {}
    except BadTable as bad:
        raise BadSetting(f"{bad} ({FILE})") from None
    found |= {"defined_profiles": defined} if defined else {}
    found |= {"profiles": named} if named is not None else {}
    return {key: _plain(value) for key, value in found.items()}


def _known(name: str, source: str, names: Iterable[str]) -> None:
    if name not in names:
        raise BadSetting(f"{name} ({source}): this version has no such setting{_hint(name, names)}")


def _hint(name: str, names: Iterable[str]) -> str:
    near = {_stem(known): known for known in names}
    close = [near[stem] for stem in difflib.get_close_matches(_stem(name), near, n=1, cutoff=0.85)]
    return f"; did you mean {close[0]}?" if close else "; the settings are listed by `outrider serve --help`"


def _stem(name: str) -> str:
    """A name without what many have in common: of the rest only a slip of the finger is close."""
    return name.removeprefix(PREFIX).lower().removesuffix("_s")


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except tomllib.TOMLDecodeError as wrong:
        raise BadSetting(f"{path}: {_in_words(str(wrong))}") from None
    except (OSError, UnicodeDecodeError) as unreadable:
        raise BadSetting(f"{path}: {' '.join(str(unreadable).split())}") from None


def _in_words(wrong: str) -> str:
    """What the reader of TOML found wrong, with its place first. The line itself may hold a key, and is not repeated."""
    found = re.fullmatch(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", " ".join(wrong.split()))
    if found is None:
        return f"it is not TOML: {wrong}"
    what, at, column = found.groups()
    return f"{f'line {at}, character {column},' if at else 'its end'} is not TOML: {what}"


def _plain(value: Any) -> Any:
    # TOML has lists where the environment has commas.
    return tuple(value) if isinstance(value, list) else value


def _asked_data(options: Mapping[str, object], named: Mapping[str, str]) -> tuple[object, str]:
    """The data folder that is asked for, and where."""
    for source, layer in (("--data", options), ("the environment", named)):
        if "data" in layer:
            return layer["data"], source
    return DEFAULT_DATA, "the default"


def _data_folder(given: object, source: str, *, makes: bool) -> Path:
    if not str(given).strip():  # as a path it would be the folder one happens to be in
        raise _bad("data", {"data": (given, source)})
    path = Path(str(given)).expanduser().absolute()
    try:
        if makes:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        elif not path.is_dir():
            raise BadSetting(f"data (OUTRIDER_DATA): there is no folder {path} ({source})")
        usable = os.access(path, os.R_OK | os.W_OK | os.X_OK)
    except OSError:
        usable = False
    if not usable:
        raise _bad("data", {"data": (str(path), source)})
    return path


def _refusal(invalid: ValidationError, given: Mapping[str, tuple[object, str]]) -> BadSetting:
    first = invalid.errors()[0]
    key = str(first["loc"][0])
    error = first.get("ctx", {}).get("error")
    if isinstance(error, BadTable):
        return BadSetting(f"{error} ({given[key][1]})")
    if isinstance(error, BadEntry):
        return _bad(key, given, error.entry)
    of_list = len(first["loc"]) > 1 and isinstance(given[key][0], tuple)
    return _bad(key, given, *([first["input"]] if of_list else []))


def _bad(key: str, given: Mapping[str, tuple[object, str]], *entry: object) -> BadSetting:
    """The refusal of a setting; of a list, for the sake of one `entry`."""
    value, source = given[key]
    if key not in _simple():
        return BadSetting(f"{key} ({source}): this version has no such setting")
    # A database address may hold a password, and a refusal ends up in logs.
    if key == "database_url" and "://" in str(value):
        value = str(value).split("://")[0] + "://…"
    told = "what is given" if key in SECRET else shown(*entry or (value,))
    allowed = _allowed(Settings.model_fields[key])
    if entry and key not in SECRET:
        return BadSetting(f"{key} ({PREFIX}{key.upper()}, {source}): {told} is none of {allowed}")
    return BadSetting(f"{key} ({PREFIX}{key.upper()}, {source}): {told} is not {allowed}")


def _allowed(field: FieldInfo) -> str:
    least: Any = next((bound.ge for bound in field.metadata if isinstance(bound, Ge)), None)
    most: Any = next((bound.le for bound in field.metadata if isinstance(bound, Le)), None)
    if least is None:
        return _extra(field)["allowed"]
    return f"{'a whole number' if field.annotation is int else 'seconds'} from {least:,} to {most:,}"


def _default(field: FieldInfo) -> str:
    shown = _extra(field).get("shown")
    if shown:
        return shown
    default = field.default
    if isinstance(default, bool):
        return str(default).lower()
    return ",".join(default) if isinstance(default, tuple) else str(default)


def _extra(field: FieldInfo) -> dict[str, Any]:
    extra = field.json_schema_extra
    return dict(extra) if isinstance(extra, dict) else {}
