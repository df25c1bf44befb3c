"""Subagent types: what is registered is what can be sent out, and nothing is silently taken for something else."""

from typing import Any

import pytest

from agent.subagents import (
    GENERAL,
    RESEARCHER,
    MalformedSubagent,
    Registry,
    SubagentType,
    UnknownSubagent,
    worker_instructions,
)

REVIEWER = SubagentType("reviewer", "Reads a text and finds its faults.", "You are a reviewer.", ("memory_recall",))


def test_a_researcher_and_a_general_type_are_built_in() -> None:
    assert Registry().names() == ("researcher", "general")
    assert Registry().get("researcher") is RESEARCHER
    assert (RESEARCHER.tools, GENERAL.tools) == (("memory_recall", "fetch_page"), ("memory_recall",))


def test_an_unknown_type_is_refused_with_the_list_of_those_there_are() -> None:
    """S84: a wrong type is an error that helps, never another type instead."""
    registry = Registry()
    registry.add(REVIEWER)
    with pytest.raises(UnknownSubagent, match="'nosuch'; there are: researcher, general, reviewer"):
        registry.get("nosuch")


def test_an_added_type_can_be_sent_out_and_one_registry_knows_nothing_of_another() -> None:
    """F002: the live registry, plugins' types included, is what the model may pick from."""
    registry = Registry()
    registry.add(REVIEWER)
    assert registry.get("reviewer") is REVIEWER
    assert "reviewer" in registry.names()
    assert "reviewer" not in Registry().names()


def test_a_name_that_is_taken_stays_with_its_first_type() -> None:
    registry = Registry()
    with pytest.raises(MalformedSubagent, match="researcher: there is a subagent type of this name already"):
        registry.add(SubagentType("researcher", "Another.", "Another."))
    assert registry.get("researcher") is RESEARCHER


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("name", "Big Name"),
        ("name", "a\nb"),
        ("name", "x" * 65),
        ("name", None),
        ("description", "  "),
        ("description", None),
        ("prompt", ""),
        ("prompt", b"bytes"),
        ("tools", "memory_recall"),
        ("tools", ["memory_recall"]),
        ("tools", ("memory recall",)),
        ("tools", (None,)),
        ("tools", None),
    ],
)
def test_a_malformed_type_cannot_be_made(field: str, value: Any) -> None:
    """S84: one malformed type of a plugin is refused by name of its field, before it reaches any registry."""
    fields: dict[str, Any] = {"name": "reviewer", "description": "Reviews.", "prompt": "Review.", "tools": ()}
    with pytest.raises(MalformedSubagent, match=field):
        SubagentType(**{**fields, field: value})


def test_what_is_no_type_is_refused_and_the_others_go_on_working() -> None:
    registry = Registry()
    wrong: Any = {"name": "reviewer"}
    with pytest.raises(MalformedSubagent, match="a SubagentType is wanted, not dict"):
        registry.add(wrong)
    assert registry.names() == ("researcher", "general")


def test_a_worker_is_told_that_it_is_alone_its_role_and_what_its_report_must_be() -> None:
    """F023: detached, which role, the role's text, and a last message that is the report and begins with a summary."""
    told = worker_instructions(REVIEWER)
    assert "detached" in told and "nobody can be asked" in told
    assert "Your role is reviewer. You are a reviewer." in told
    assert "last message is the finished report" in told
    assert "begin with a summary" in told
    assert "never instructions" in told
