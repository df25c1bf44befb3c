"""F019, F050: what plugins add is there, a broken one is named and takes nothing down, and a guard refuses on any doubt."""

import asyncio
import logging
from collections.abc import Callable
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from agent import plugins
from agent.plugins import GROUP, Plugins
from tests.agent.odd_plugins import SECRET

Run = Callable[..., Any]


def loaded(*names: str, module: str = "tests.agent.odd_plugins") -> Plugins:
    return plugins.load([EntryPoint(name, f"{module}:{name}", GROUP) for name in names])


def test_what_a_plugin_adds_is_there() -> None:
    found = loaded("good")
    assert found.problems == [] and not found.guarded
    assert found.handlers.names() == ("agent", "echo", "good")
    assert found.registry.names() == ("researcher", "general", "good-kind")
    tools = {name: (tool.needs_approval, tool.stoppable) for name, tool in found.tools.items()}
    assert tools == {"good_tool": (False, True), "sync_tool": (True, False), "failing_tool": (False, True)}
    assert found.tools["good_tool"].tool.description == "Says a word."


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("missing", "AttributeError"),
        ("no_function", "register(outrider) is wanted, not str"),
        ("raises", "RuntimeError"),
        ("exits", "SystemExit"),
        ("is_async", "must be a plain function"),
        ("takes_a_name", "handler 'echo' already"),
        ("same_handler", "handler 'good' already"),
        ("same_tool", "tool 'good_tool' already"),
        ("our_tool", "tool 'memory_recall' already"),
        ("no_tool", "a tool is a function"),
        ("odd_tool", "cannot be a tool"),
        ("odd_kind", "SubagentType is wanted"),
        ("same_kind", "subagent type of this name already"),
        ("kind_without_tool", "there is no tool no_such_tool"),
        ("odd_guard", "an output guard is a function"),
        ("odd_redactor", "must return a text"),
        ("async_redactor", "a redactor is a plain function"),
    ],
)
def test_a_broken_plugin_is_named_adds_nothing_and_takes_nothing_down(
    name: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever it had added before it broke is not there either; those before and after it are."""
    caplog.set_level(logging.INFO)
    entries = [("a-good", "good"), ("b-broken", name), ("c-second", "second")]
    found = plugins.load([EntryPoint(entry, f"tests.agent.odd_plugins:{value}", GROUP) for entry, value in entries])
    (problem,) = found.problems
    assert problem.startswith("The plugin b-broken (tests.agent.odd_plugins:") and told in problem
    assert problem in caplog.text and SECRET not in problem
    assert found.handlers.names() == ("agent", "echo", "good", "second")
    assert len(found.tools) == 3 and "half" not in found.handlers.names()


@pytest.mark.parametrize("module", ["tests.agent.no_such_module", "tests.agent.broken plugin"])
def test_a_module_that_cannot_be_imported_is_a_broken_plugin(module: str) -> None:
    found = loaded("register", module=module)
    assert len(found.problems) == 1 and found.handlers.names() == ("agent", "echo")


def test_only_one_plugin_can_say_what_is_masked() -> None:
    found = loaded("redactor", "second_redactor")
    assert found.redactor and found.redactor("x") == "X"
    assert len(found.problems) == 1 and "only one can say" in found.problems[0]


def test_a_plugins_tool_answers_and_one_that_fails_says_so_without_its_text(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    tools = loaded("good").tools

    def call(name: str) -> str:
        return run(tools[name].tool.function(word="it"))  # pyright: ignore[reportCallIssue]

    assert call("good_tool") == call("sync_tool") == "said it"
    said = call("failing_tool")
    assert said.startswith("The tool failed (error ") and SECRET not in said
    assert said.split("error ")[1][:8] in caplog.text and SECRET in caplog.text


# --- the guard ------------------------------------------------------------------------------------------------------


def verdict(run: Run, *guards: Any, text: str = "a text with canary-55") -> str | None:
    return run(Plugins(guards=list(guards)).refuses(text, "chat", "t-1"))


def says(answer: Any) -> Any:
    async def guard(text: str, profile: str, task: str) -> Any:
        return answer

    return guard


def test_only_true_from_every_guard_lets_a_text_pass(run: Run) -> None:
    assert verdict(run, says(True), lambda *_: True) is None
    for answer in (False, None, 0, 1, "", "true", [], object()):
        assert verdict(run, says(True), says(answer)), answer
        assert verdict(run, lambda *_, answer=answer: answer), answer


def test_where_no_guard_is_left_nothing_passes(run: Run) -> None:
    assert verdict(run)


def test_a_guard_is_given_text_profile_and_task(run: Run) -> None:
    seen: list[Any] = []

    async def guard(*given: Any) -> bool:
        seen.append(given)
        return True

    verdict(run, guard, text="whole")
    assert seen == [("whole", "chat", "t-1")]


def test_a_rule_is_told_by_its_name_and_never_by_what_it_found(run: Run) -> None:
    assert verdict(run, says("no-names")) == "no-names"
    for answer in ("canary-55", "Found canary-55 in it", "x" * 40, "text"):
        assert verdict(run, says(answer)) == plugins.UNNAMED


def test_a_guard_that_raises_refuses_and_the_log_has_nothing_of_the_text(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def guard(text: str, profile: str, task: str) -> bool:
        raise ValueError(text)

    assert verdict(run, guard) == plugins.UNNAMED
    assert "ValueError" in caplog.text and "canary-55" not in caplog.text


def test_a_guard_that_would_end_the_process_refuses(run: Run) -> None:
    async def guard(text: str, profile: str, task: str) -> bool:
        raise SystemExit(3)

    assert verdict(run, guard) == plugins.UNNAMED


def test_a_guard_that_never_ends_refuses(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "GUARD_TIMEOUT_S", 0.01)

    async def guard(text: str, profile: str, task: str) -> bool:
        await asyncio.Event().wait()
        return True

    assert verdict(run, guard) == plugins.UNNAMED
