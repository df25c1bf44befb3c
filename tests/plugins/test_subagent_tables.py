"""`[subagents.NAME]` of `outrider.toml`: types of subagents without a line of Python (ruling 35)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel
from tests.support.server import Server
from tests.support.serving import Serving
from tests.support.trial import PROFILES
from web.app import build
from web.settings import BadSetting, load

TYPES = """
[subagents.shouter]
description = "Says things loudly."
prompt = "You are a shouter: say all of it in capitals."
tools = ["shout"]

[subagents.general]
prompt = "You are general in another way."
"""
WORK = [
    Rule(last_user="^loudly", last_tool="HELLO", text="Report: HELLO."),
    Rule(last_user="^loudly", tool_calls=[{"name": "shout", "arguments": {"text": "hello"}}]),
    Rule(last_user="^work", text="Report: it is done."),
]


def ended(server: Server, prompt: str, kind: str) -> str:
    """The report of a job of a type."""
    job = server.spawn(server.post("/api/sessions")["id"], prompt, subagent_type=kind)["id"]
    server.wait(lambda: server.job(job)["completed_at"])
    return server.job(job)["report"]


def test_ruling_35_a_type_out_of_a_table_has_its_role_and_its_tools_and_a_built_in_one_can_be_changed(
    own: Serving, model: ScriptedModel
) -> None:
    model.rules(WORK)
    server = own(toml=PROFILES + TYPES)
    assert ended(server, "loudly now", "shouter") == "Report: HELLO."
    asked = next(asked for asked in model.requests() if asked.last_user == "loudly now")
    assert "You are a shouter: say all of it in capitals." in asked.text and asked.tools == {"shout"}
    assert ended(server, "work", "general") == "Report: it is done."
    asked = next(asked for asked in model.requests() if asked.last_user == "work")
    assert "You are general in another way." in asked.text and asked.tools == {"memory_recall"}


def test_s84_where_a_plugin_is_broken_a_type_that_needs_its_tool_is_named_and_not_offered(
    own: Serving, model: ScriptedModel
) -> None:
    model.rules(WORK)
    server = own(toml=TYPES, OUTRIDER_PROFILES="chat", TRIAL="breaks")
    assert any(
        line.startswith(
            "The subagent type shouter is not offered: subagents.shouter.tools: there is no tool 'shout'; there are ask_user, "
        )
        for line in server.get("/api/status")["problems"]
    )
    session = server.post("/api/sessions")["id"]
    asked = {"session": session, "prompt": "loudly", "subagent_type": "shouter"}
    refused = server.http.post("/api/background", json=asked)
    assert refused.status_code == 422
    assert refused.json()["error"]["details"]["types"] == ["researcher", "general"]
    assert ended(server, "work", "general") == "Report: it is done."


@pytest.mark.parametrize(
    ("table", "why"),
    [
        (
            "[subagents.x]\nprompt = 'p'",
            "subagents.x: description is missing; it is a text of at most 2,000 characters",
        ),
        (
            "[subagents.x]\ndescription = 'd'",
            "subagents.x: prompt is missing; it is a text of at most 100,000 characters",
        ),
        ("[subagents.x]\ndescription = ' '\nprompt = 'p'", "subagents.x.description: ' ' is not a text of"),
        ("[subagents.x]\ndescription = 'd'\nprompt = 7", "subagents.x.prompt: 7 is not a text of"),
        ("[subagents.general]\ntools = 7", "subagents.general.tools: 7 is not a list of names of tools"),
        ("[subagents.general]\nprofile = 7", "subagents.general.profile: 7 is not the name of a profile"),
        ("[subagents.general]\nparks = 'yes'", "subagents.general.parks: 'yes' is not true or false"),
        ("[subagents.general]\ntool = ['task']", "subagents.general.tool: there is no such field; did you mean tools?"),
        ("[subagents.'Not A Name']\nprompt = 'p'", "subagents.Not A Name: the name of a type is a small letter"),
        ("[subagents]\nx = 1", "subagents.x: must be a table"),
    ],
)
def test_a_type_that_cannot_be_meant_stops_the_start_with_one_line(tmp_path: Path, table: str, why: str) -> None:
    (tmp_path / "outrider.toml").write_text(table)
    with pytest.raises(BadSetting) as refused:
        build(load({"data": str(tmp_path)}, {}))
    assert str(refused.value).startswith(why) and "\n" not in str(refused.value)


OWN_PROFILE = """
[profiles]
offered = ["chat"]

[profiles.careful]
instructions = "Weigh each word."
model = "openai-chat:careful-one"
answer_level = "redacted"

[profiles.silent]
answer_level = "metadata"

[subagents.weigher]
description = "Weighs."
prompt = "You weigh."
profile = "careful"

[subagents.general]
tools = ["nosuch"]

[subagents.nobody]
description = "Has nobody's profile."
prompt = "You are nobody."
profile = "nobody"

[subagents.parrot]
description = "Has a profile without a model."
prompt = "You are a parrot."
profile = "echo"

[subagents.mute]
description = "Keeps nothing."
prompt = "You are mute."
profile = "silent"
"""
NOT_OFFERED = {
    "general": "subagents.general.tools: there is no tool 'nosuch'; there are ask_user, ",
    "nobody": "subagents.nobody.profile: there is no profile 'nobody'; there are chat, echo, careful, silent",
    "parrot": "subagents.parrot.profile: echo is answered by the handler echo, and no model",
    "mute": "subagents.mute.profile: RESULT_NOT_STORABLE: the profile silent takes no work",
}


@pytest.fixture(scope="module")
def profiled(serving: Serving, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving.at(tmp_path_factory.mktemp("profiled")) as own:
        yield own(toml=OWN_PROFILE, OUTRIDER_PROFILES="chat")


def test_ruling_35_a_type_with_a_profile_is_worked_by_its_model_with_its_instructions_at_its_level(
    profiled: Server, model: ScriptedModel
) -> None:
    model.rules([Rule(last_user="^weigh me", text="Report: ask joe@example.org.")])
    assert ended(profiled, "weigh me, jane@example.org", "weigher") == "Report: ask ***."
    (asked,) = [asked for asked in model.requests() if asked.last_user.startswith("weigh me")]
    assert asked.body["model"] == "careful-one" and asked.last_user == "weigh me, ***"
    assert "You weigh." in asked.text and asked.text.index("Weigh each word.") > asked.text.index("You weigh.")


def test_ruling_35_in_the_foreground_too_and_the_turn_that_is_told_keeps_no_more(
    profiled: Server, model: ScriptedModel
) -> None:
    spec = {"description": "w", "prompt": "weigh that", "subagent_type": "weigher"}
    model.rules(
        [
            Rule(last_user="^weigh that", text="Report: call 030 1234567, joe@example.org."),
            Rule(last_user="^please", last_tool="", text="Joe is joe@example.org."),
            Rule(last_user="^please", tool_calls=[{"name": "task", "arguments": spec}]),
        ]
    )
    assert profiled.ask(profiled.post("/api/sessions")["id"], "please") == "Joe is ***."
    (asked,) = [asked for asked in model.requests() if asked.last_user == "weigh that"]
    assert asked.body["model"] == "careful-one" and "Weigh each word." in asked.text


def test_s84_a_type_that_names_what_there_is_not_is_named_and_not_offered_and_the_others_are(profiled: Server) -> None:
    problems = profiled.get("/api/status")["problems"]
    for name, why in NOT_OFFERED.items():
        assert [line for line in problems if line.startswith(f"The subagent type {name} is not offered: {why}")]
    asked = {"session": profiled.post("/api/sessions")["id"], "prompt": "x", "subagent_type": "general"}
    refused = profiled.http.post("/api/background", json=asked)
    types = refused.json()["error"]["details"]["types"]
    assert refused.status_code == 422 and "weigher" in types and not set(NOT_OFFERED) & set(types)


def test_a_name_that_a_plugin_s_type_has_is_not_taken_from_it(own: Serving) -> None:
    taken = "[subagents.trialist]\ndescription = 'd'\nprompt = 'p'\n"
    with pytest.raises(AssertionError, match=r"subagents\.trialist: a plugin adds a subagent type of this name"):
        own(toml=PROFILES + taken)
