"""F019, F042, F050: what a profile's fields come to in this process, and which words stop the start."""

from importlib.metadata import EntryPoint
from itertools import product
from typing import Any

import pytest

from agent import plugins
from agent.mcp import Servers
from agent.models import build_model
from agent.offers import (
    BadProfile,
    Offer,
    check_input,
    check_output,
    gone,
    make_ready,
    offer_subagents,
    require_providers,
)
from agent.plugins import GROUP, Plugins
from agent.profiles import Profile
from agent.subagents import SubagentType
from agent.tools import CHAT_TOOLS
from background.ceilings import LEVELS
from background.schemas import Schema, Unfit

GOOD = EntryPoint("good", "tests.agent.odd_plugins:good", GROUP)
BROKEN = EntryPoint("broken", "tests.agent.odd_plugins:raises", GROUP)


async def lets_pass(text: str, profile: str, task: str) -> bool:
    return True


def ready(plugged: Plugins | None = None, level: str = "full", **fields: Any) -> Offer:
    """The offer of a profile with these fields."""
    return make_ready({"p": Profile("p", "A profile.", **fields)}, level, plugged or Plugins(), build_model)["p"]


def refusal(plugged: Plugins | None = None, **fields: Any) -> str:
    with pytest.raises(BadProfile) as refused:
        ready(plugged, **fields)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_what_is_built_in_is_always_ready() -> None:
    offers = make_ready({}, "full", Plugins(), build_model)
    assert list(offers) == ["chat", "echo"]
    assert offers["chat"].by_model and offers["chat"].tools == CHAT_TOOLS and offers["chat"].handler is None
    assert not offers["echo"].by_model and offers["echo"].handler and offers["echo"].tools == ()
    assert [offer.problem for offer in offers.values()] == [None, None]


@pytest.mark.parametrize(("installation", "own"), list(product(LEVELS, [None, *LEVELS])))
def test_f042_the_strictest_level_of_installation_and_profile_holds(installation: str, own: str | None) -> None:
    offer = ready(level=installation, answer_level=own)
    assert LEVELS.index(offer.level) == max(LEVELS.index(installation), LEVELS.index(own or "full"))


@pytest.mark.parametrize("level", LEVELS)
def test_f044_a_profile_that_can_keep_no_result_says_so_when_it_is_made_ready(level: str) -> None:
    problem = ready(answer_level=level).problem
    if level in ("full", "redacted"):
        assert problem is None
    else:
        assert problem and problem.startswith("RESULT_NOT_STORABLE: the profile p ") and level in problem


def test_a_profile_has_all_tools_unless_it_names_some() -> None:
    plugged = plugins.load([GOOD])
    assert ready(plugged).tools == (*CHAT_TOOLS, "good_tool", "sync_tool", "failing_tool")
    assert ready(plugged, tools=("good_tool", "memory_recall")).tools == ("good_tool", "memory_recall")
    assert ready(plugged, tools=()).tools == ()


def test_instructions_tell_of_tools_that_are_there_and_of_no_others() -> None:
    own = ready(instructions="Speak like a pirate.", tools=("memory_recall",)).instructions
    assert own.startswith("Speak like a pirate.") and "memory_recall" in own and "subagents" not in own
    assert "never instructions" in own
    assert "task_batch" in ready().instructions and "pirate" not in ready().instructions


def test_a_cancel_does_not_reach_a_plugins_plain_functions() -> None:
    plugged = plugins.load([GOOD])
    assert ready(plugged).may_go_on and not ready(plugged, tools=("good_tool",)).may_go_on
    assert not ready(plugged, handler="good").may_go_on


def test_a_model_of_its_own_is_made_at_start() -> None:
    assert ready(model="offline").model is not None and ready().model is None
    assert "profiles.p.model: unknown model 'nobody:x'" in refusal(model="nobody:x")


def test_s84_a_plugins_type_whose_profile_there_is_not_goes_alone() -> None:
    plugged = Plugins()
    plugged.registry.add(SubagentType("weigher", "Weighs.", "You weigh.", profile="nobody"))
    plugged.registry.add(SubagentType("other", "Weighs.", "You weigh.", profile="chat"))
    offer_subagents({}, plugged, Servers(), make_ready({}, "redacted", plugged, build_model), web=False)
    assert (
        plugged.registry.names() == ("researcher", "general", "other") and plugged.registry.level("other") == "redacted"
    )
    (problem,) = plugged.problems
    assert problem.startswith(
        "The subagent type weigher is not offered: subagents.weigher.profile: there is no profile"
    )


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"handler": "nobody"}, "profiles.p.handler: there is no handler 'nobody'; there are agent, echo"),
        ({"tools": ("task", "nothing")}, "profiles.p.tools: there is no tool 'nothing'; there are "),
        ({"output_guard": True}, "profiles.p.output_guard: true, and no plugin adds an output guard"),
        ({"input_schema": {"type": "objekt"}}, "profiles.p.input_schema: at .type: does not fit"),
        ({"output_schema": {"$ref": "https://x.example"}}, "profiles.p.output_schema: $ref must stay within"),
    ],
)
def test_a_word_that_means_nothing_stops_the_start(fields: dict[str, Any], told: str) -> None:
    assert refusal(**fields).startswith(told)


@pytest.mark.parametrize("fields", [{"handler": "half"}, {"tools": ("nothing",)}, {"output_guard": True}])
def test_where_a_plugin_is_broken_what_it_may_have_meant_takes_no_work_and_the_rest_does(
    fields: dict[str, Any],
) -> None:
    plugged = plugins.load([BROKEN])
    offer = ready(plugged, **fields)
    assert offer.broken and offer.problem and offer.problem.startswith("The profile p takes no work: profiles.p.")
    assert ready(plugged).problem is None


def test_f050_a_guard_that_is_installed_is_for_every_profile_but_those_that_say_no() -> None:
    plugged = Plugins(guards=[lets_pass])
    assert ready(plugged).guarded and ready(plugged, output_guard=True).guarded
    assert not ready(plugged, output_guard=False).guarded and not ready().guarded
    assert ready(plugged).holds_back and ready(output_schema={}).holds_back and not ready().holds_back


def test_a_profile_that_is_gone_takes_no_work() -> None:
    assert gone("old").broken and not gone("old").by_model


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("opanai", "providers.opanai: there is no such provider"),
        ("openai-chat", "providers.openai-chat: the provider of such models is called openai"),
    ],
)
def test_a_level_for_a_provider_that_nobody_is_stops_the_start(name: str, told: str) -> None:
    """A typo there would let answers be kept that must not be."""
    require_providers(["openai", "anthropic", "offline", "ollama"])
    with pytest.raises(BadProfile) as refused:
        require_providers(["openai", name])
    assert str(refused.value).startswith(told)


# --- what goes in and comes out -------------------------------------------------------------------------------------

TOPIC = Schema({"type": "object", "properties": {"topic": {"type": "string", "maxLength": 10}}, "required": ["topic"]})


@pytest.mark.parametrize(
    "parts",
    [
        [{"data": {"topic": "x"}}],
        [{"text": "see"}, {"data": {"topic": "x"}}],
        [{"text": '{"topic": "x"}'}],
        [{"text": '{"topic":'}, {"text": '"x"}'}],
    ],
)
def test_a_message_is_checked_by_its_data_or_else_by_its_text(parts: list[dict[str, Any]]) -> None:
    check_input(TOPIC, parts)


@pytest.mark.parametrize(
    ("parts", "place", "why"),
    [
        ([{"text": "a"}, {"data": {"topic": "x" * 11}}], "parts[1].data.topic", "must have at most 10 characters"),
        ([{"data": {"topic": "x"}}, {"data": {}}], "parts[1].data", "must have topic"),
        ([{"text": "hello"}], "parts[0].text", "must be an object"),
        ([{"text": "hello"}, {"text": "there"}], "parts", "must be an object"),
        ([{"url": "https://a.example"}], "parts[0].text", "must be an object"),
    ],
)
def test_what_does_not_fit_is_named_by_its_part(parts: list[dict[str, Any]], place: str, why: str) -> None:
    with pytest.raises(Unfit) as refused:
        check_input(TOPIC, parts)
    assert (refused.value.place, refused.value.why) == (place, why)


def test_an_answer_is_checked_over_all_its_artifacts_and_none_does_not_fit() -> None:
    fits, not_ = {"parts": [{"data": {"topic": "x"}}]}, {"parts": [{"data": {}}]}
    check_output(TOPIC, [fits, fits])
    for artifacts in ([fits, not_], []):
        with pytest.raises(Unfit):
            check_output(TOPIC, artifacts)
