"""What an operator may set: one frozen object, from defaults, `outrider.toml`, the environment and the command line.

The only module that reads the environment. Each setting stands once, with its default, its bounds and its meaning; the
documentation's table, `--help` and every refusal are made from that. A bad or unknown setting stops the start with one
line. It opens no database and knows nothing of what the values are used for.
"""

import difflib
import logging
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import urlsplit

from annotated_types import Ge, Le
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    SkipValidation,
    ValidationError,
)
from pydantic.fields import FieldInfo

from agent.mcp_servers import McpServer
from agent.profiles import BUILTIN, Profile
from agent.subagents import SubagentType
from background.ceilings import LEVELS
from web.mcp_tables import filled, read_servers
from web.own_address import callable_at, is_wildcard
from web.profiles import BadTable, read_plugins, read_profiles, read_providers, read_subagents, shown, split
from web.setting_values import (
    BadEntry,
    Count,
    Name,
    Names,
    Port,
    Seconds,
    Switch,
    Tokens,
    Window,
    as_text,
    authority,
    database_file,
    folders,
    http_address,
    listening_host,
    offered,
    opened,
    sealing_keys,
    signing_keys,
    split_keys,
    unset_if_empty,
)

logger = logging.getLogger("outrider.settings")

PREFIX = "OUTRIDER_"
FILE = "outrider.toml"
DEFAULT_DATA = "~/.local/share/outrider"
DEFAULT_ADDRESS = "http://127.0.0.1:8420"
# Read by the command-line client, see client_settings(); a server started in the same shell lets them stand.
OF_THE_CLIENT = frozenset({PREFIX + "URL", PREFIX + "TOKEN"})
# Tables of the file, whose fields `web/profiles.py` and `web/mcp_tables.py` know; they have no line of the settings' table.
TABLES = frozenset({"defined_profiles", "mcp", "plugins", "providers", "subagents"})

SECRET = frozenset({"seal_key", "webhook_keys"})  # never repeated, in no refusal


class BadSetting(Exception):
    """A setting that cannot be used; `str()` is one line with its name, its value and what is allowed."""


def _bounded(default: float, least: float, most: float, meaning: str) -> Any:
    return Field(default, ge=least, le=most, description=meaning)


def _told(default: object, allowed: str, meaning: str, *, shown: str | None = None) -> Any:
    """A field bounded by words, not by two numbers; `shown` is the default in words where it is derived."""
    return Field(default, description=meaning, json_schema_extra={"allowed": allowed, "shown": shown})


class Settings(BaseModel):
    """Every setting of this version. Seconds may be fractions. The object never changes; see `auto_resume_now`."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    data: Path = Field(
        description="The data folder, made with mode 0700. Set by `--data` or the environment only.",
        json_schema_extra={"allowed": "a folder that can be made and written", "shown": DEFAULT_DATA},
    )
    host: Annotated[str, AfterValidator(listening_host)] = _told(
        "127.0.0.1",
        "an IP address, or `localhost`",
        "The address to listen on. Any but loopback needs an access token to start with.",
    )
    port: Count = _bounded(8420, 1, 65535, "The port to listen on.")
    grpc_port: Annotated[Port | None, BeforeValidator(unset_if_empty)] = _told(
        None,
        "a whole number from 1 to 65,535",
        "The port to listen on for A2A over gRPC, for which the extra `grpc` is installed.",
        shown="unset: not served",
    )
    model: Name = _told(
        "offline",
        "`offline`, or a model name of the agent library",
        "What answers, e.g. `openai:gpt-5-mini`.",
    )
    fallback_models: Names = _told(
        (), "model names, separated by commas", "Tried in order when a model fails.", shown="empty"
    )
    database_url: Annotated[str | None, BeforeValidator(unset_if_empty), AfterValidator(database_file)] = _told(
        None,
        "`sqlite:///PATH` in a folder that exists; this version has no other engine",
        "The registry of sessions, tasks and jobs.",
        shown="`outrider.db` in the data folder",
    )
    knowledge: Name = _told(
        "store",
        "`store`, or the name of a knowledge backend that a plugin adds",
        "Where reports and documents are found again.",
    )
    auto_resume: Switch = _told(
        True,
        "`true` or `false`",
        "`false`: finished jobs wait for the session's next turn. A change in `outrider.toml` holds without a restart.",
    )
    max_jobs: Count = _bounded(4, 1, 256, "Background runs at once, for each worker process.")
    max_turns: Count = _bounded(16, 1, 1024, "Chat turns at once, for each worker process.")
    max_depth: Count = _bounded(1, 0, 16, "Levels of jobs below a chat turn; at 1 a job cannot spawn jobs.")
    job_timeout_s: Seconds = _bounded(3600, 0.1, 604_800, "A job that runs longer fails, with that reason.")
    turn_timeout_s: Seconds = _bounded(900, 0.1, 86_400, "A chat turn that runs longer fails, with that reason.")
    batch_join_timeout_s: Seconds = _bounded(
        900, 0.1, 604_800, "How long a batch waits for stragglers, counted from its first finished member."
    )
    excerpt_chars: Count = _bounded(1500, 1, 100_000, "Most characters of a report inside a notification.")
    notifications_chars: Count = _bounded(
        24_000, 500, 1_000_000, "Most characters of all notifications of one turn; excerpts shrink to fit."
    )
    max_queued_jobs: Count = _bounded(512, 1, 100_000, "Jobs of one user waiting; a fan-out is taken whole or refused.")
    job_tokens: Annotated[Tokens | None, BeforeValidator(unset_if_empty)] = _told(
        None,
        "a whole number from 1 to 1,000,000,000,000",
        "Most model tokens of a job, for each of its attempts; looked at before each model call.",
        shown="empty: no limit",
    )
    tree_tokens: Annotated[Tokens | None, BeforeValidator(unset_if_empty)] = _told(
        None,
        "a whole number from 1 to 1,000,000,000,000",
        "Most model tokens of all jobs of a session, those of jobs too, until its user speaks again.",
        shown="empty: no limit",
    )
    context_tokens: Annotated[Window | None, BeforeValidator(unset_if_empty)] = _told(
        None,
        "a whole number from 4,000 to 100,000,000",
        "Most tokens of a request to a model, with its answer. Older turns are condensed before it is reached. A model of which the agent "
        "library knows that it takes less is given less.",
        shown="unset: what is known of the model, up to 128,000; 32,000 where nothing is known",
    )
    memory: Switch = _told(
        True,
        "`true` or `false`",
        "`false`: nothing is remembered of chats beside their logs, and no turn is given anything of other sessions by itself.",
    )
    summary_after_s: Seconds = _bounded(
        1800, 0.1, 2_592_000, "A chat in which no model was asked for this long is summarized, for later sessions."
    )
    harvest_after_s: Seconds = _bounded(
        86_400, 0.1, 2_592_000, "A chat in which no model was asked for this long is searched for facts about its user."
    )
    max_unattended_turns: Count = _bounded(
        8, 0, 1000, "Turns in a row that Outrider may start in a session before its user speaks again."
    )
    stall_s: Seconds = _bounded(300, 0.1, 86_400, "A run with no model or tool activity for this long fails.")
    resume_max_age_s: Seconds = _bounded(
        86_400, 0, 31_536_000, "After a restart, an older unfinished run is ended as interrupted, not resumed."
    )
    shutdown_grace_s: Seconds = _bounded(
        10, 0, 3600, "On SIGTERM running work may finish within this; the rest is handed back to the queue."
    )
    blocking_wait_s: Seconds = _bounded(
        20, 1, 100, "How long a blocking send waits; lower than the read timeout of every proxy in front."
    )
    max_waiting_requests: Count = _bounded(256, 1, 100_000, "Blocking sends that may wait at once.")
    stream_max_s: Seconds = _bounded(300, 0.1, 86_400, "A stream is closed after this.")
    max_streams: Count = _bounded(1024, 1, 100_000, "Open streams.")
    max_streams_per_task: Count = _bounded(16, 1, 100_000, "Open streams of one task.")
    max_streams_per_user: Count = _bounded(64, 1, 100_000, "Open streams of one user.")
    max_open_tasks_per_user: Count = _bounded(256, 1, 100_000, "Queued and running tasks of one user.")
    worker_ttl_s: Seconds = _bounded(120, 0.1, 86_400, "A worker heard from within this is live.")
    lease_s: Seconds = _bounded(30, 0.1, 3600, "A run whose lease is older is taken over.")
    max_attempts: Count = _bounded(3, 1, 100, "Times a run is tried before it fails.")
    answer_level: Literal["full", "redacted", "metadata", "none"] = _told(
        "full",
        f"one of {', '.join(LEVELS)}",
        "The most that is kept of answers; a profile or a provider may lower it. Below `redacted` nothing can be asked.",
    )
    retention_days: Count = _bounded(
        30, 1, 36_500, "Ended tasks, with results and journal, are purged after so many days."
    )
    incognito_hours: Count = _bounded(
        24,
        1,
        8760,
        "An incognito session in which nothing has happened for so many hours is erased, with all that it holds.",
    )
    seal_key: Annotated[SecretStr | None, BeforeValidator(unset_if_empty), AfterValidator(sealing_keys)] = _told(
        None,
        "base64 of 32 bytes; several with commas between, of which the first seals",
        "Seals what is said, answered and entrusted.",
        shown="the file `seal.keys` in the data folder, made at the first start with mode 0600",
    )
    defined_profiles: Annotated[Mapping[str, SkipValidation[Profile]], BeforeValidator(read_profiles)] = Field(
        default={}, exclude=True, description="`[profiles.NAME]`, by name."
    )
    plugins: Annotated[Mapping[str, int], BeforeValidator(read_plugins)] = Field(
        default={}, exclude=True, description="How many jobs each `[plugins.NAME]` may have waiting of a user's."
    )
    subagents: Annotated[Mapping[str, SkipValidation[SubagentType]], BeforeValidator(read_subagents)] = Field(
        default={}, exclude=True, description="`[subagents.NAME]`, by name."
    )
    mcp: Annotated[Mapping[str, SkipValidation[McpServer]], BeforeValidator(read_servers)] = Field(
        default={}, exclude=True, description="`[mcp.NAME]`, by name."
    )
    providers: Annotated[Mapping[str, str], BeforeValidator(read_providers)] = Field(
        default={}, description="The answer level of each `[providers.NAME]` that gives one."
    )
    profiles: Annotated[Names, AfterValidator(offered)] = _told(
        ("chat",),
        f"one or more of {', '.join(BUILTIN)} and the profiles that `[profiles.NAME]` defines",
        "What an A2A client may ask for, by `metadata.skill`. Beside tables of profiles in the file it is "
        "`offered` in `[profiles]`.",
    )
    public_url: Annotated[str | None, BeforeValidator(unset_if_empty), AfterValidator(http_address)] = _told(
        None,
        "an http or https address without query or user name",
        "What the agent card says. Where it is not loopback, every request needs an access token. On every address "
        "(`0.0.0.0`, `::`) the card names the one that it was asked at, unless this is set.",
        shown="the address served",
    )
    push: Switch = _told(
        True,
        "`true` or `false`",
        "`false`: no task takes webhooks, the agent card says so, and what still waits to be sent waits on.",
    )
    webhook_allow: Annotated[Names, AfterValidator(opened)] = _told(
        (),
        "host names, addresses and networks, separated by commas",
        "What webhooks may call that is not public. A name is opened wherever it leads.",
        shown="empty",
    )
    webhook_keys: Annotated[SecretStr | None, BeforeValidator(unset_if_empty), AfterValidator(signing_keys)] = _told(
        None,
        "keys of 16 to 256 visible characters, separated by commas; the first signs",
        "Signs the bodies that webhooks get.",
        shown="unset: they are not signed",
    )
    fetch: Literal["off", "public"] = _told(
        "off",
        "`off` or `public`",
        "`public`: researchers, and whoever names the tool `fetch_page`, read pages of the public web.",
    )
    fetch_allow: Annotated[Names, AfterValidator(opened)] = _told(
        (),
        "host names, addresses and networks, separated by commas",
        "What may be read that is not public. A name is opened wherever it leads.",
        shown="empty",
    )
    ingest_folders: Annotated[Names, AfterValidator(folders)] = _told(
        (),
        "absolute folders, separated by commas",
        "Below which files may be taken into the knowledge store by `knowledge_ingest`, whoever asks. `outrider ingest` needs "
        "none: it reads as whoever calls it.",
        shown="empty",
    )
    rpc_error_status: Annotated[Literal["native", "200"], BeforeValidator(as_text)] = _told(
        "native",
        "`native` or `200`",
        "`200` sends every JSON-RPC error in HTTP 200, for clients that drop the body of any other answer.",
    )

    _auto_resume_pinned: bool = PrivateAttr(default=False)
    _auto_resume_last: bool = PrivateAttr(default=True)

    @property
    def database_path(self) -> Path:
        """The file of the registry, absolute."""
        given = (self.database_url or "").removeprefix("sqlite:///")
        return Path(given).resolve() if given else self.data / "outrider.db"

    @property
    def knowledge_path(self) -> Path:
        """The file of the knowledge store; never the registry's, they are opened by two different libraries."""
        return self.data / "knowledge.db"

    @property
    def ingest_roots(self) -> tuple[Path, ...]:
        """The folders below which files may be taken in."""
        return tuple(map(Path, self.ingest_folders))

    @property
    def reads_web(self) -> bool:
        """Whether models may read pages of the web."""
        return self.fetch == "public"

    @property
    def signing_keys(self) -> tuple[str, ...]:
        """The keys for webhook bodies, the one that signs first."""
        return split_keys(self.webhook_keys) if self.webhook_keys else ()

    @property
    def offered_profiles(self) -> list[Profile]:
        """The profiles that a client may ask for."""
        known = {**BUILTIN, **self.defined_profiles}
        return [known[name] for name in self.profiles]

    @property
    def address(self) -> str:
        """Where clients reach this server, without a slash at the end."""
        return self.public_url or f"http://{authority(callable_at(self.host), self.port)}"

    @property
    def guessed(self) -> bool:
        """Whether nobody has said where clients reach this server, and it listens on every address."""
        return self.public_url is None and is_wildcard(self.host)

    def at(self, address: str) -> "Settings":
        """The same, of a server that is reached at this address."""
        return self.model_copy(update={"public_url": address})

    @property
    def grpc_address(self) -> str | None:
        """Where clients reach gRPC: `host:port`, as its libraries take it. None where it is not served."""
        if self.grpc_port is None:
            return None
        return authority(urlsplit(self.address).hostname or self.host, self.grpc_port)


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
