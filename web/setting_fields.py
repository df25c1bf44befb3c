"""The settings in force: one frozen object with each setting once, its default, its bounds and its meaning.

Where they come from, and how a bad one is refused, is `settings.py`'s.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    SkipValidation,
)

from agent.mcp_servers import McpServer
from agent.profiles import BUILTIN, Profile
from agent.subagents import SubagentType
from background.ceilings import LEVELS
from web.mcp_tables import read_servers
from web.own_address import callable_at, is_wildcard
from web.profiles import read_plugins, read_profiles, read_providers, read_subagents
from web.setting_values import (
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

DEFAULT_DATA = "~/.local/share/outrider"


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
