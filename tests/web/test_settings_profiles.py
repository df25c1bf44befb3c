"""F019, F042: what `[profiles.NAME]` and `[providers.NAME]` say is what holds, and what cannot be meant stops the start.

Each refusal is one line that names the profile, the field and what is allowed there.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.profiles import Profile
from web.setting_fields import Settings
from web.settings import BadSetting, load

Load = Callable[..., Settings]

WHOLE = """
[profiles]
offered = ["chat", "helper"]

[profiles.helper]
description = "Helps."
handler = "agent"
model = "openai:gpt-5-mini"
instructions = "Help."
tools = ["memory_recall"]
answer_level = "redacted"
output_guard = false
output_schema = '{"type": "object"}'
max_open_tasks = 2
retention_days = 7

[profiles.helper.input_schema]
type = "object"
required = ["topic"]
"""


@pytest.fixture
def load_from(tmp_path: Path) -> Load:
    def load_from(toml: str = "", env: dict[str, str] | None = None) -> Settings:
        (tmp_path / "outrider.toml").write_text(toml)
        return load({"data": str(tmp_path)}, env or {})

    return load_from


def refusal(load_from: Load, toml: str) -> str:
    with pytest.raises(BadSetting) as refused:
        load_from(toml)
    text = str(refused.value)
    assert "\n" not in text and text.endswith("(outrider.toml)")
    return text


def test_a_table_says_all_of_a_profile(load_from: Load) -> None:
    settings = load_from(WHOLE)
    assert settings.profiles == ("chat", "helper")
    assert settings.defined_profiles["helper"] == Profile(
        name="helper",
        description="Helps.",
        handler="agent",
        model="openai:gpt-5-mini",
        instructions="Help.",
        tools=("memory_recall",),
        answer_level="redacted",
        output_guard=False,
        input_schema={"type": "object", "required": ["topic"]},
        output_schema={"type": "object"},
        max_open_tasks=2,
        retention_days=7,
    )


def test_what_a_table_does_not_say_is_open(load_from: Load) -> None:
    assert load_from("[profiles.p]").defined_profiles["p"] == Profile("p", "The profile p.")


def test_only_what_is_named_is_offered_and_the_environment_names_last(load_from: Load) -> None:
    assert load_from("[profiles.p]").profiles == ("chat",)
    assert load_from(WHOLE, {"OUTRIDER_PROFILES": "helper,echo"}).profiles == ("helper", "echo")


def test_a_built_in_profile_takes_fields_too(load_from: Load) -> None:
    chat, echo = (
        load_from("[profiles.chat]\ntools = []\n[profiles.echo]\nmax_open_tasks = 3").defined_profiles[name]
        for name in ("chat", "echo")
    )
    assert (chat.handler, chat.tools) == ("agent", ()) and chat.description.startswith("A conversation")
    assert (echo.handler, echo.max_open_tasks) == ("echo", 3)


def test_a_provider_has_the_level_that_its_table_gives(load_from: Load) -> None:
    assert load_from('[providers.openai]\nanswer_level = "metadata"\n[providers.offline]').providers == {
        "openai": "metadata",
        "offline": "full",
    }


def test_no_table_is_a_setting_of_the_environment(load_from: Load) -> None:
    for name in ("OUTRIDER_PROVIDERS", "OUTRIDER_DEFINED_PROFILES"):
        with pytest.raises(BadSetting, match="no such setting"):
            load_from(env={name: "x"})
    with pytest.raises(BadSetting, match="no such setting"):
        load_from("[defined_profiles]")


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("description", '" "', "a text of at most 2,000 characters"),
        ("handler", '"Not A Name"', "agent, echo, or one that a plugin adds"),
        ("model", "7", "a model name"),
        ("instructions", '""', "a text of at most 100,000 characters"),
        ("tools", '["memory recall"]', "a list of names of tools"),
        ("tools", "true", "a list of names of tools"),
        ("answer_level", '"Full"', "one of full, redacted, metadata, none"),
        ("answer_level", "['full']", "one of full, redacted, metadata, none"),
        ("output_guard", '"false"', "true or false"),
        ("input_schema", '"{"', "a JSON Schema"),
        ("output_schema", "{ when = 2020-01-01 }", "a JSON Schema"),
        ("max_open_tasks", "0", "a whole number from 1 to 100,000"),
        ("max_open_tasks", "true", "a whole number from 1 to 100,000"),
        ("retention_days", "0.5", "a whole number from 1 to 36,500"),
    ],
)
def test_a_bad_field_is_named_with_its_value_and_what_is_allowed(
    load_from: Load, field: str, value: str, allowed: str
) -> None:
    text = refusal(load_from, f"[profiles.helper]\n{field} = {value}")
    assert text.startswith(f"profiles.helper.{field}: ") and allowed in text


@pytest.mark.parametrize(
    ("toml", "told"),
    [
        (
            "[profiles.helper]\nhandlr = 'agent'",
            "profiles.helper.handlr: there is no such field; did you mean handler?",
        ),
        ("[profiles.helper]\nxyz = 1", "profiles.helper.xyz: there is no such field; the fields are description, "),
        ("[profiles.Helper]", "profiles.Helper: a profile's name is a small letter"),
        ("[profiles]\nofferd = ['chat']", "profiles.offerd: only offered and tables"),
        (
            "[profiles.e]\nhandler = 'echo'\nmodel = 'offline'",
            "profiles.e.model: only a profile with the handler agent",
        ),
        ("[profiles.echo]\ntools = ['task']", "profiles.echo.tools: only a profile with the handler agent has one"),
        ("[profiles.chat]\nhandler = 'echo'", "profiles.chat.handler: must be agent"),
        ("[providers.openai]\nlevel = 'full'", "providers.openai.level: there is no such field"),
        ("[providers.openai]\nanswer_level = 'some'", "providers.openai.answer_level: 'some' is not one of full"),
        ("providers = 3", "providers: must be tables"),
        ("[providers]\nopenai = 'full'", "providers.openai: must be a table"),
    ],
)
def test_what_cannot_be_meant_stops_the_start(load_from: Load, toml: str, told: str) -> None:
    assert refusal(load_from, toml).startswith(told)


def test_a_profile_that_nobody_defines_cannot_be_offered(load_from: Load) -> None:
    for toml in ("profiles = ['helper']", "[profiles]\noffered = ['helper']\n[profiles.helpr]"):
        with pytest.raises(
            BadSetting, match=r"profiles \(OUTRIDER_PROFILES, outrider.toml\): .*helper.* is not one or more"
        ):
            load_from(toml)


def test_a_long_value_is_not_repeated_whole(load_from: Load) -> None:
    value: Any = "x" * 5000
    assert len(refusal(load_from, f"[profiles.helper]\nmodel = '{value}'")) < 300
