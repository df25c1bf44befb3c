"""F166, F167: what an operator sets is what holds, later sources win, and whatever cannot be meant stops the start."""

import base64
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from web.setting_fields import Settings
from web.settings import TABLES, BadSetting, auto_resume_now, client_settings, load, table

Load = Callable[..., Settings]

# key: default, smallest, largest, beyond
BOUNDS: dict[str, tuple[float, float, float, float]] = {
    "port": (8420, 1, 65_535, 65_536),
    "max_jobs": (4, 1, 256, 0),
    "max_turns": (16, 1, 1024, 0),
    "max_depth": (1, 0, 16, 17),
    "job_timeout_s": (3600, 0.1, 604_800, 0),
    "turn_timeout_s": (900, 0.1, 86_400, 0),
    "batch_join_timeout_s": (900, 0.1, 604_800, 0),
    "excerpt_chars": (1500, 1, 100_000, 0),
    "notifications_chars": (24_000, 500, 1_000_000, 499),
    "max_queued_jobs": (512, 1, 100_000, 0),
    "summary_after_s": (1800, 0.1, 2_592_000, 0),
    "harvest_after_s": (86_400, 0.1, 2_592_000, 0),
    "max_unattended_turns": (8, 0, 1000, -1),
    "stall_s": (300, 0.1, 86_400, 0),
    "resume_max_age_s": (86_400, 0, 31_536_000, -1),
    "shutdown_grace_s": (10, 0, 3600, -0.5),
    "blocking_wait_s": (20, 1, 100, 100.5),
    "max_waiting_requests": (256, 1, 100_000, 0),
    "stream_max_s": (300, 0.1, 86_400, 0),
    "max_streams": (1024, 1, 100_000, 0),
    "max_streams_per_task": (16, 1, 100_000, 0),
    "max_streams_per_user": (64, 1, 100_000, 0),
    "max_open_tasks_per_user": (256, 1, 100_000, 0),
    "worker_ttl_s": (120, 0.1, 86_400, 0),
    "lease_s": (30, 0.1, 3600, 0),
    "max_attempts": (3, 1, 100, 0),
    "retention_days": (30, 1, 36_500, 0),
    "incognito_hours": (24, 1, 8760, 0),
}
KEY = base64.b64encode(bytes(range(32))).decode()
# key: default, an accepted text and what it becomes, a refused text
WORDS: dict[str, tuple[Any, str, Any, str]] = {
    "host": ("127.0.0.1", "0.0.0.0", "0.0.0.0", "example.com"),
    "grpc_port": (None, "50051", 50_051, "65536"),
    "job_tokens": (None, "1", 1, "0"),
    "tree_tokens": (None, "1000000000000", 1_000_000_000_000, "1000000000001"),
    "context_tokens": (None, "4000", 4_000, "3999"),
    "model": ("offline", "openai:gpt-5-mini", "openai:gpt-5-mini", " "),
    "fallback_models": ((), "a:b, c:d", ("a:b", "c:d"), "a\x07"),
    "database_url": (None, "sqlite:////tmp/x.db", "sqlite:////tmp/x.db", "postgresql://u:secret@h/db"),
    "knowledge": ("store", "elsewhere", "elsewhere", " "),
    "auto_resume": (True, "False", False, "of"),
    "memory": (True, "false", False, "off"),
    "answer_level": ("full", "redacted", "redacted", "Full"),
    "seal_key": (None, KEY, SecretStr(KEY), "hunter2"),
    "push": (True, "false", False, "off"),
    "webhook_allow": ((), "hooks.intern, 10.0.0.0/8,::1", ("hooks.intern", "10.0.0.0/8", "::1"), "10.0.0.1/8"),
    "fetch": ("off", "public", "public", "on"),
    "fetch_allow": ((), "wiki.intern, 10.0.0.0/8", ("wiki.intern", "10.0.0.0/8"), "http://wiki.intern"),
    "ingest_folders": ((), "/srv/notes, /srv/papers", ("/srv/notes", "/srv/papers"), "notes"),
    "webhook_keys": (None, "k" * 16, SecretStr("k" * 16), "too short"),
    "profiles": (("chat",), "chat,echo", ("chat", "echo"), "chat,ecko"),
    "public_url": (None, "https://a.example/x/", "https://a.example/x", "a.example"),
    "rpc_error_status": ("native", "200", "200", "201"),
}


@pytest.fixture
def load_from(tmp_path: Path) -> Load:
    """Loads with the given sources and nothing of this machine: `load_from(toml="", env={}, max_jobs="2")`."""

    def load_from(toml: str = "", env: Mapping[str, str] | None = None, **command_line: object) -> Settings:
        (tmp_path / "outrider.toml").write_text(toml)
        return load({"data": str(tmp_path)} | command_line, env or {})

    return load_from


def refusal(load_from: Load, **sources: Any) -> str:
    with pytest.raises(BadSetting) as refused:
        load_from(**sources)
    text = str(refused.value)
    assert "\n" not in text
    return text


def test_every_setting_is_in_one_of_the_tables_here() -> None:
    assert {row.key for row in table()} == {"data", *BOUNDS, *WORDS}


@pytest.mark.parametrize("key", BOUNDS)
def test_a_number_has_its_default_and_keeps_its_bounds(load_from: Load, key: str) -> None:
    default, smallest, largest, beyond = BOUNDS[key]
    name = f"OUTRIDER_{key.upper()}"
    assert getattr(load_from(), key) == default
    for value in (smallest, largest):
        assert getattr(load_from(env={name: str(value)}), key) == value
    for bad in (str(beyond), "", "many", "nan", "inf", "-1", str(largest * 10)):
        text = refusal(load_from, env={name: bad})
        assert name in text and repr(bad) in text and f"{largest:,}" in text and f"{smallest:,}" in text


@pytest.mark.parametrize("key", [key for key in BOUNDS if key.endswith("_s")])
def test_seconds_may_be_fractions(load_from: Load, key: str) -> None:
    assert getattr(load_from(env={f"OUTRIDER_{key.upper()}": "2.5"}), key) == 2.5


@pytest.mark.parametrize("key", [key for key in BOUNDS if not key.endswith("_s")])
def test_a_count_is_whole_and_true_is_not_one(load_from: Load, key: str) -> None:
    assert key in refusal(load_from, env={f"OUTRIDER_{key.upper()}": "0.5"})
    assert "true" in refusal(load_from, toml=f"{key} = true")


@pytest.mark.parametrize("key", WORDS)
def test_a_word_has_its_default_and_is_read_strictly(load_from: Load, key: str) -> None:
    default, text, value, bad = WORDS[key]
    name = f"OUTRIDER_{key.upper()}"
    assert getattr(load_from(), key) == default
    assert getattr(load_from(env={name: text}), key) == value
    assert name in refusal(load_from, env={name: bad})


@pytest.mark.parametrize("key", [*BOUNDS, *WORDS])
def test_the_later_source_wins(load_from: Load, key: str) -> None:
    """Each source is given a value of its own; taking the last away brings up the one before."""
    texts = {
        "host": ["::1", "localhost", "127.0.0.2"],
        "auto_resume": ["false", "true", "false"],
        "push": ["false", "true", "false"],
        "memory": ["false", "true", "false"],
        "webhook_allow": ["127.0.0.1", "hooks.intern,localhost", "fd00::/8"],
        "fetch": ["public", "off", "public"],
        "ingest_folders": ["/srv/notes", "/srv/notes,/srv/papers", "/srv"],
        "fetch_allow": ["127.0.0.1", "wiki.intern,localhost", "fd00::/8"],
        "webhook_keys": [letter * 16 for letter in "abc"],
        "database_url": [f"sqlite:////tmp/{name}.db" for name in "abc"],
        "profiles": ["echo", "chat,echo", "echo,chat"],
        "public_url": [f"https://{name}.example" for name in "abc"],
        "rpc_error_status": ["200", "native", "200"],
        "answer_level": ["redacted", "metadata", "none"],
        "seal_key": [base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2, 3)],
        "grpc_port": ["50051", "50052", "50053"],
        "job_tokens": ["5000", "6000", "7000"],
        "tree_tokens": ["5000", "6000", "7000"],
        "context_tokens": ["5000", "6000", "7000"],
    }
    number = BOUNDS.get(key, (0, 0, 0, 0))[1] or 1
    numbers = [f"{number + step:g}" for step in (1, 2, 3)]
    in_file, in_environment, on_command_line = texts.get(key, numbers if key in BOUNDS else ["a:a", "b:b", "c:c"])
    toml, env = f"{key} = '{in_file}'", {f"OUTRIDER_{key.upper()}": in_environment}
    assert shown(load_from(toml), key) == in_file
    assert shown(load_from(toml, env), key) == in_environment
    assert shown(load_from(toml, env, **{key: on_command_line}), key) == on_command_line
    assert shown(load_from(toml, env, **{key: None}), key) == in_environment


def shown(settings: Settings, key: str) -> str:
    value = getattr(settings, key)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return f"{value:g}" if isinstance(value, float | int) else value


def test_the_file_has_types_of_its_own(load_from: Load) -> None:
    settings = load_from(
        "max_jobs = 2\nlease_s = 1.5\nauto_resume = false\nprofiles = ['echo']\nrpc_error_status = 200"
    )
    assert (settings.max_jobs, settings.lease_s, settings.auto_resume) == (2, 1.5, False)
    assert (settings.profiles, settings.rpc_error_status) == (("echo",), "200")


@pytest.mark.parametrize(
    ("sources", "name", "hint"),
    [
        ({"toml": "max_job = 2"}, "max_job", "did you mean max_jobs?"),
        ({"env": {"OUTRIDER_AUTO_RESUMES": "false"}}, "OUTRIDER_AUTO_RESUMES", "did you mean OUTRIDER_AUTO_RESUME?"),
        ({"env": {"OUTRIDER_max_jobs": "2"}}, "OUTRIDER_max_jobs", "no such setting"),
        ({"toml": "[mystery]\nx = 1"}, "mystery", "outrider serve --help"),
        ({"max_jbos": "2"}, "max_jbos", "no such setting"),
        ({"env": {"OUTRIDER_MAX_TREES": "2"}}, "OUTRIDER_MAX_TREES", "outrider serve --help"),
        ({"env": {"OUTRIDER_MAX_DEPTHS": "2"}}, "OUTRIDER_MAX_DEPTHS", "did you mean OUTRIDER_MAX_DEPTH?"),
        ({"toml": "lease = 2"}, "lease", "did you mean lease_s?"),
    ],
)
def test_an_unknown_setting_is_a_typo_and_stops_the_start(
    load_from: Load, sources: Mapping[str, Any], name: str, hint: str
) -> None:
    text = refusal(load_from, **sources)
    assert text.startswith(name) and hint in text


def test_another_programs_variables_and_the_clients_are_left_alone(load_from: Load) -> None:
    env = {"PATH": "/bin", "OUTRIDERS": "x", "OUTRIDER_URL": "http://h", "OUTRIDER_TOKEN": "t"}
    assert load_from(env=env) == load_from()


def test_a_broken_file_is_one_line(load_from: Load, tmp_path: Path) -> None:
    assert str(tmp_path / "outrider.toml") in refusal(load_from, toml="max_jobs = ")
    assert "cannot move it" in refusal(load_from, toml="data = 'elsewhere'")


@pytest.mark.parametrize(
    ("toml", "place"),
    [("model = 'x'\nmax jobs = 4", "line 2, character 5, is not TOML: "), ('x = """', "its end is not TOML: ")],
)
def test_a_broken_line_is_named_by_its_place_and_not_repeated(load_from: Load, toml: str, place: str) -> None:
    text = refusal(load_from, toml=toml)
    assert f"outrider.toml: {place}" in text and "jobs" not in text and "(at " not in text


def test_a_refusal_never_shows_a_databases_password(load_from: Load) -> None:
    text = refusal(load_from, env={"OUTRIDER_DATABASE_URL": "postgresql://user:hunter2@host/db"})
    assert "hunter2" not in text and "postgresql://…" in text and "sqlite:///PATH" in text


def test_a_sealing_key_is_never_shown(load_from: Load) -> None:
    assert KEY not in repr(load_from(seal_key=KEY)) and KEY not in str(load_from(seal_key=KEY).model_dump(mode="json"))
    for bad in ("hunter2", KEY[:-4], f"{KEY},hunter2"):
        text = refusal(load_from, env={"OUTRIDER_SEAL_KEY": bad})
        assert bad not in text and "hunter2" not in text and "base64 of 32 bytes" in text
    assert load_from(seal_key=f"{KEY},{KEY}").seal_key


def test_a_signing_key_is_never_shown(load_from: Load) -> None:
    """F086, F179."""
    first, second = "first-key-of-all", "the-key-behind-it"
    settings = load_from(webhook_keys=f"{first}, {second}")
    assert settings.signing_keys == (first, second) and load_from().signing_keys == ()
    assert first not in repr(settings) and second not in str(settings.model_dump(mode="json"))
    for bad in ("hunter2", f"{first},hunter2", "hunter2-with-an-\u00fcmlaut", "hunter2" * 40):
        text = refusal(load_from, env={"OUTRIDER_WEBHOOK_KEYS": bad})
        assert "hunter2" not in text and first not in text and "16 to 256" in text


@pytest.mark.parametrize(
    "entry", ["10.0.0.1/8", "http://10.0.0.1/", "10.0.0.1:80", "[::1]:80", "fe80::1%eth0", "*.a", " a "]
)
def test_F081_an_entry_that_no_webhook_can_ever_be_stops_the_start_and_is_named(load_from: Load, entry: str) -> None:
    told = refusal(load_from, toml=f"webhook_allow = ['10.0.0.1', '{entry}', 'hooks.intern']")
    assert f"outrider.toml): '{entry}' is none of host names, addresses and networks" in told and "hooks" not in told


def test_a_refusal_spells_values_as_the_file_does(load_from: Load) -> None:
    assert '["chat", "chat"] is not one or more of' in refusal(load_from, toml="profiles = ['chat', 'chat']")
    assert "5 is none of model names" in refusal(load_from, toml="fallback_models = ['openai:x', 5]")
    assert "false is not a text of at most" in refusal(load_from, toml="[profiles.mine]\ndescription = false")


def test_a_refusal_stays_short(load_from: Load) -> None:
    assert len(refusal(load_from, env={"OUTRIDER_MAX_JOBS": "9" * 5000})) < 300


@pytest.mark.parametrize("host", ["example.com", "localhost.example.com", "2130706433", "[::1]", "127.0.0.1:80", ""])
def test_what_is_listened_on_is_an_address(load_from: Load, host: str) -> None:
    """A name may come to mean another machine, or another network of this one."""
    assert "an IP address, or `localhost`" in refusal(load_from, host=host)


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:////no/such/folder/x.db", "x.db"]
)
def test_the_database_is_a_file_in_a_folder_that_is_there(load_from: Load, url: str) -> None:
    assert "sqlite:///PATH" in refusal(load_from, database_url=url)


@pytest.mark.parametrize(
    "url", ["ftp://a", "https://", "https://a/?q", "https://a/#f", "https://u:p@a", "http://a:99999", "/x"]
)
def test_the_public_address_is_a_whole_one(load_from: Load, url: str) -> None:
    assert "public_url" in refusal(load_from, public_url=url)


def test_a_variable_that_is_there_and_empty_leaves_an_optional_setting_alone(load_from: Load) -> None:
    env = {"OUTRIDER_DATABASE_URL": "", "OUTRIDER_PUBLIC_URL": "", "OUTRIDER_FALLBACK_MODELS": ""}
    settings = load_from(env=env)
    assert (settings.database_url, settings.public_url, settings.fallback_models) == (None, None, ())


def test_where_things_lie_and_answer_follows_from_the_settings(load_from: Load, tmp_path: Path) -> None:
    settings = load_from()
    assert (settings.database_path, settings.knowledge_path) == (tmp_path / "outrider.db", tmp_path / "knowledge.db")
    assert settings.address == "http://127.0.0.1:8420"
    elsewhere = load_from(database_url=f"sqlite:///{tmp_path}/b.db", host="::1", port=9000)
    assert (elsewhere.database_path, elsewhere.address) == (tmp_path / "b.db", "http://[::1]:9000")
    assert load_from(public_url="https://a.example/x/").address == "https://a.example/x"
    assert (settings.grpc_address, load_from(grpc_port=9).grpc_address) == (None, "127.0.0.1:9")
    assert load_from(grpc_port=9, host="::1").grpc_address == "[::1]:9"
    assert load_from(grpc_port=9, public_url="https://a.example:8/x").grpc_address == "a.example:9"


@pytest.mark.parametrize("empty", ["", " "])
def test_an_empty_data_folder_is_refused_and_is_not_the_one_that_one_happens_to_be_in(empty: str) -> None:
    given: dict[str, Any] = {"--data": [{"data": empty}, {}], "the environment": [{}, {"OUTRIDER_DATA": empty}]}
    for source, sources in given.items():
        with pytest.raises(BadSetting) as refused:
            load(*sources)
        told = str(refused.value)
        assert told == f"data (OUTRIDER_DATA, {source}): {empty!r} is not a folder that can be made and written"


def test_the_data_folder_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    for given in ({"data": str(tmp_path / "a" / "b")}, {}):
        settings = load(given, {"OUTRIDER_DATA": str(tmp_path / "from-environment")})
        assert stat.S_IMODE(settings.data.stat().st_mode) == 0o700
    assert settings.data == tmp_path / "from-environment"


def test_a_folder_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadSetting, match=r"data \(OUTRIDER_DATA, the environment\): .* is not a folder"):
        load({}, {"OUTRIDER_DATA": str(tmp_path / "file" / "data")})


def test_settings_never_change_once_loaded(load_from: Load) -> None:
    with pytest.raises(ValueError, match="frozen"):
        load_from().max_jobs = 9  # type: ignore[misc]


def test_F167_auto_resume_follows_the_file_without_a_restart(load_from: Load, tmp_path: Path) -> None:
    settings, file = load_from(), tmp_path / "outrider.toml"
    answers = []
    for text in ("auto_resume = false", "max_jobs = 2", "auto_resume = 'false'", "auto_resume = true"):
        file.write_text(text)
        answers.append(auto_resume_now(settings))
    file.unlink()
    assert [*answers, auto_resume_now(settings)] == [False, True, False, True, True]


@pytest.mark.parametrize("typo", ["auto_resume = flase", "auto_resume = 'ture'", "auto_resume = ["])
def test_F167_a_typo_in_the_file_changes_nothing(load_from: Load, tmp_path: Path, typo: str) -> None:
    for held in (False, True):
        settings = load_from(f"auto_resume = {str(held).lower()}")
        (tmp_path / "outrider.toml").write_text(typo)
        assert auto_resume_now(settings) is held


def test_F167_environment_and_command_line_still_win(load_from: Load, tmp_path: Path) -> None:
    for settings in (load_from(env={"OUTRIDER_AUTO_RESUME": "true"}), load_from(auto_resume="true")):
        (tmp_path / "outrider.toml").write_text("auto_resume = false")
        assert auto_resume_now(settings)


def test_the_table_says_each_setting_whole() -> None:
    rows = {row.key: row for row in table()}
    assert list(rows) == [key for key in Settings.model_fields if key not in TABLES]
    assert all(row.default and row.allowed and row.meaning and "\n" not in "".join(row) for row in rows.values())
    assert rows["max_jobs"][:4] == ("OUTRIDER_MAX_JOBS", "max_jobs", "4", "a whole number from 1 to 256")
    assert rows["auto_resume"].default == "true"


def test_the_client_finds_its_server() -> None:
    assert client_settings({}) == ("http://127.0.0.1:8420", None)
    assert client_settings({"OUTRIDER_PORT": "9001"}).url == "http://127.0.0.1:9001"
    assert client_settings({"OUTRIDER_PORT": "9001", "OUTRIDER_HOST": "::1"}).url == "http://[::1]:9001"
    assert client_settings({"OUTRIDER_PORT": "9001", "OUTRIDER_URL": "http://h:1"}).url == "http://h:1"
    assert client_settings({"OUTRIDER_URL": "https://h/x/", "OUTRIDER_TOKEN": "t"}) == ("https://h/x", "t")
    with pytest.raises(BadSetting, match="OUTRIDER_URL"):
        client_settings({"OUTRIDER_URL": "h:1"})
    with pytest.raises(BadSetting, match=r"^OUTRIDER_HOST and OUTRIDER_PORT: "):
        client_settings({"OUTRIDER_PORT": "many"})


def test_the_environment_is_read_when_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("OUTRIDER_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OUTRIDER_MAX_JOBS", "7")
    assert load({"data": str(tmp_path)}).max_jobs == 7
