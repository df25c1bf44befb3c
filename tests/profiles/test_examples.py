"""The page on profiles and plugins says nothing that does not work: its table can be loaded, its plugin can be used."""

import re
import sys
import types
from collections.abc import Callable
from dataclasses import fields
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from agent import plugins
from agent.handlers import Work
from agent.plugins import Additions
from agent.profiles import Profile
from background.questions import Parks
from web.settings import load

PAGE = (Path(__file__).parents[2] / "docs" / "profiles.md").read_text()


class Nothing:
    """A turn that has stored nothing."""

    def __init__(self) -> None:
        self.stored: dict[str, str] = {}
        self.pieces: list[str] = []

    async def fragment(self, text: str) -> None:
        self.pieces.append(text)

    async def keep(self, name: str, content: str) -> None:
        self.stored[name] = content


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found, language
    return found[1]


def test_the_table_of_the_page_defines_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "outrider.toml").write_text(block("toml"))
    settings = load({"data": str(tmp_path)}, {})
    assert settings.profiles == ("chat", "minutes") and settings.providers == {"openai": "redacted"}
    minutes = settings.defined_profiles["minutes"]
    assert minutes.tools == ("memory_recall",) and minutes.input_schema["required"] == ["notes"]


def test_each_field_of_a_profile_is_on_the_page() -> None:
    rows = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    assert {field.name for field in fields(Profile)} - {"name"} <= rows


def test_each_method_of_a_plugin_is_on_the_page() -> None:
    methods = {name for name, value in vars(Additions).items() if callable(value) and not name.startswith("_")}
    assert {name for name in methods if f"| `{name}(" not in PAGE} == set()


def test_the_plugin_of_the_page_can_be_used(run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("outrider_weather")
    exec(compile(block("python"), "outrider_weather.py", "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, "outrider_weather", module)
    found = plugins.load([EntryPoint("weather", "outrider_weather:register", plugins.GROUP)])
    assert found.problems == []
    handler = found.handlers.get("forecast")
    assert handler and found.guarded and "temperature" in found.tools and "meteorologist" in found.registry.names()

    def forecast(data: Any) -> list[dict[str, Any]]:
        return run(handler.run(Work("t", "s", "local", "m", "", [], data, Nothing())))

    (artifact,) = forecast({"place": "Bergen"})
    assert artifact["parts"][1] == {"data": {"place": "Bergen", "rain": True}}
    with pytest.raises(Parks):
        forecast(None)
    assert run(found.refuses("a guaranteed sun", "chat", "t")) == "no-promises"
