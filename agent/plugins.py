"""Plugins: what is installed beside Outrider and adds to it, found by the entry-point group `outrider.plugins`.

A plugin is `register(outrider)`; what it adds counts when it has returned, all of it or nothing. One that is broken is
named as a problem and takes nothing else down. Owns the guard's verdict; runs no handler and no tool.
"""

import asyncio
import functools
import inspect
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, cast

from pydantic_ai import ModelRetry
from pydantic_ai.exceptions import UserError
from pydantic_ai.tools import Tool

from agent import handlers
from agent.handlers import Handler, Handlers, MalformedHandler
from agent.listeners import NAMES, Listener
from agent.on_behalf import as_plugin, incognito_now
from agent.subagents import MalformedSubagent, Registry, SubagentType
from agent.tools import TIMEOUT_S, TOOLS
from agent.works import COROUTINE, INGEST, Kind
from knowledge.backend import Backend

log = logging.getLogger(__name__)

GROUP = "outrider.plugins"
GUARD_TIMEOUT_S = 60.0
UNNAMED = "no rule named"
BUILTIN_STORE = "store"  # the knowledge backend that comes with the product
RULE = re.compile(r"[a-z][a-z0-9_-]{0,31}")
OURS = frozenset({*TOOLS, "ask_user"})
Guard = Callable[
    [str, str, str], Any
]  # text, profile, task id -> bool or the name of the rule that refuses, or to await
Redact = Callable[[str], str]
Open = Callable[[Path], Awaitable[Backend]]  # the data folder -> a knowledge backend, ready


class MalformedPlugin(ValueError):
    """What a plugin wanted to add cannot be used; the text says why."""


@dataclass(frozen=True)
class PluginTool:
    """A tool of a plugin's. One that is not `stoppable` works in a thread, and goes on when its turn is canceled."""

    name: str
    tool: Tool[Any]
    needs_approval: bool
    stoppable: bool


@dataclass
class Plugins:
    """All that plugins have added to this process, and what is wrong with those that could not."""

    registry: Registry = field(default_factory=Registry)
    handlers: Handlers = field(default_factory=Handlers)
    tools: dict[str, PluginTool] = field(default_factory=dict)
    guards: list[Guard] = field(default_factory=list)
    redactor: Redact | None = None
    listeners: dict[str, Listener] = field(default_factory=dict)
    backends: dict[str, Open] = field(default_factory=dict)
    works: dict[str, Kind] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)  # of all that are installed, broken ones too

    @property
    def guarded(self) -> bool:
        """Whether a guard is installed."""
        return bool(self.guards)

    async def refuses(self, text: str, profile: str, task_id: str) -> str | None:
        """The name of the rule by which a guard refuses a whole text, or None where every guard lets it pass.

        A guard that is not there, that raises, takes too long, or says neither yes nor no, refuses. Nothing of the text
        is logged.
        """
        if not self.guards:
            return UNNAMED
        for guard in self.guards:
            verdict = await _verdict(guard, text, profile, task_id)
            if verdict is not True:
                named = isinstance(verdict, str) and RULE.fullmatch(verdict) and verdict not in text
                return str(verdict) if named else UNNAMED
        return None


async def _verdict(guard: Guard, text: str, profile: str, task_id: str) -> Any:
    try:
        async with asyncio.timeout(GUARD_TIMEOUT_S):
            if handlers.is_async(guard):
                return await guard(text, profile, task_id)
            verdict = await handlers.in_thread(guard, text, profile, task_id)
            return await verdict if inspect.isawaitable(verdict) else verdict
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin's; its text may hold what must not get out
        log.error("the output guard failed on task %s: %s", task_id, type(error).__name__)
        return None


def load(found: Iterable[EntryPoint] | None = None) -> Plugins:
    """What is installed, in the order of the names. Takes as long as the plugins do, and never raises for one."""
    plugins = Plugins()
    for entry in sorted(entry_points(group=GROUP) if found is None else found, key=lambda entry: entry.name):
        plugins.names.append(entry.name)
        try:
            _register(plugins, entry)
        except (MalformedPlugin, MalformedHandler, MalformedSubagent) as malformed:
            _name_problem(plugins, entry, str(malformed))
        except (Exception, SystemExit) as error:
            log.error("plugin %s cannot be used", entry.name, exc_info=error)
            _name_problem(plugins, entry, f"{type(error).__name__}; the log has the rest")
    return plugins


def _name_problem(plugins: Plugins, entry: EntryPoint, why: str) -> None:
    problem = f"The plugin {entry.name} ({entry.value}) is not used: {why}"
    plugins.problems.append(problem)
    log.warning(problem)


def _register(plugins: Plugins, entry: EntryPoint) -> None:
    register = entry.load()
    if not callable(register):
        raise MalformedPlugin(f"register(outrider) is wanted, not {type(register).__name__}")
    if handlers.is_async(register):
        raise MalformedPlugin("register(outrider) must be a plain function, not an async one")
    additions = Additions(plugins, entry.name)
    with additions.acting():
        register(additions)
    additions._settle()
    log.info("plugin %s adds %s", entry.name, additions)


class Additions:
    """The `outrider` that a plugin's `register` is given. Each method raises for what cannot be used."""

    def __init__(self, plugins: Plugins, name: str) -> None:
        self._plugins = plugins
        self._name = name
        self._handlers: dict[str, Handler] = {}
        self._tools: dict[str, PluginTool] = {}
        self._guards: list[Guard] = []
        self._redactor: Redact | None = None
        self._types: dict[str, SubagentType] = {}
        self._listeners: dict[str, Listener] = {}
        self._backends: dict[str, Open] = {}
        self._works: dict[str, Kind] = {}

    def __str__(self) -> str:
        added = [
            *(f"handler {name}" for name in self._handlers),
            *(f"tool {name}" for name in self._tools),
            *("an output guard" for _ in self._guards),
            *(["a redactor"] if self._redactor else []),
            *(f"subagent {name}" for name in self._types),
            *(f"listener {name}" for name in self._listeners),
            *(f"knowledge backend {name}" for name in self._backends),
            *(f"work {name}" for name in self._works),
        ]
        return ", ".join(added) or "nothing"

    def handler(self, name: str, function: Any) -> None:
        """Add a handler that profiles may name: `async def function(work)`, see `agent/handlers.py`."""
        made = handlers.make(name, function, self._name)
        if name in self._plugins.handlers.names() or name in self._handlers:
            raise MalformedHandler(f"there is a handler {name!r} already")
        self._handlers[name] = made

    def tool(self, function: Any, needs_approval: bool = False) -> None:
        """Add a tool: its name, description and arguments are the function's name, docstring and annotations."""
        made = _tool(function, needs_approval, self._name)
        if made.name in OURS or made.name in self._plugins.tools or made.name in self._tools:
            raise MalformedPlugin(f"there is a tool {made.name!r} already")
        self._tools[made.name] = made

    def output_guard(self, function: Any) -> None:
        """Add `async def function(text, profile, task_id)`; only True lets a whole text pass."""
        if not callable(function):
            raise MalformedPlugin(f"an output guard is a function, not {type(function).__name__}")
        self._guards.append(function)

    def redactor(self, function: Any) -> None:
        """Replace what masks a text at the level `redacted`: a plain function of a text that returns one. Only one can."""
        if not callable(function) or handlers.is_async(function):
            raise MalformedPlugin("a redactor is a plain function of a text that returns one")
        if self._plugins.redactor is not None or self._redactor is not None:
            raise MalformedPlugin("there is another redactor already, and only one can say what is masked")
        if not isinstance(function("a text without anything to mask"), str):
            raise MalformedPlugin("a redactor must return a text")
        self._redactor = cast(Redact, function)

    def subagent(self, kind: Any) -> None:
        """Add a `SubagentType`."""
        if isinstance(kind, SubagentType) and kind.name in {*self._plugins.registry.names(), *self._types}:
            raise MalformedSubagent(f"{kind.name}: there is a subagent type of this name already")
        if not isinstance(kind, SubagentType):
            raise MalformedSubagent(f"a SubagentType is wanted, not {type(kind).__name__}")
        self._types[kind.name] = kind

    def listener(self, name: str, function: Any, *events: str) -> None:
        """Add `async def function(event)`, which hears `agent.listeners.Event`s of these names, or of all."""
        handler = handlers.make(name, function, self._name)
        if unknown := [event for event in events if event not in NAMES]:
            raise MalformedPlugin(f"listener {name!r}: there is no event {unknown[0]!r}; there are {', '.join(NAMES)}")
        full = f"{self._name}:{name}"
        if full in self._listeners:
            raise MalformedPlugin(f"there is a listener {name!r} of this plugin already")
        self._listeners[full] = Listener(full, handler, frozenset(events or NAMES))

    def knowledge_backend(self, name: str, function: Any) -> None:
        """Add `async def function(folder)`, which opens a `knowledge.backend.Backend`; OUTRIDER_KNOWLEDGE chooses by name."""
        if not (isinstance(name, str) and handlers.NAME.fullmatch(name) and handlers.is_async(function)):
            raise MalformedPlugin(
                "a knowledge backend is a name and an async function of the data folder that opens it"
            )
        if name in {BUILTIN_STORE, *self._plugins.backends, *self._backends}:
            raise MalformedPlugin(f"there is a knowledge backend {name!r} already")
        self._backends[name] = function

    def work(self, name: str, function: Any, idempotent: bool = False) -> None:
        """Add a kind of deterministic work for `spawn_work`: `async def function(work)`, like a handler's; `work.data` are
        its arguments. Only what is `idempotent` is run again after a crash.
        """
        made = handlers.make(name, function, self._name)
        if name in {INGEST, COROUTINE, *self._plugins.works, *self._works}:
            raise MalformedHandler(f"there is a kind of work {name!r} already")
        self._works[name] = Kind(made, idempotent is True)

    def acting(self) -> AbstractContextManager[None]:
        """What runs in this block is this plugin's: for threads and tasks that it starts itself."""
        return as_plugin(self._name)

    def _settle(self) -> None:
        known = {*OURS, *self._plugins.tools, *self._tools}
        for kind in self._types.values():
            if unknown := set(kind.tools) - known:
                raise MalformedSubagent(f"{kind.name}: there is no tool {', '.join(sorted(unknown))}")
        for handler in self._handlers.values():
            self._plugins.handlers.add(handler)
        for kind in self._types.values():
            self._plugins.registry.add(kind)
        self._plugins.tools.update(self._tools)
        self._plugins.listeners.update(self._listeners)
        self._plugins.backends.update(self._backends)
        self._plugins.works.update(self._works)
        self._plugins.guards.extend(self._guards)
        self._plugins.redactor = self._redactor or self._plugins.redactor


def _tool(function: Any, needs_approval: Any, plugin: str) -> PluginTool:
    if not inspect.isroutine(function) or not isinstance(needs_approval, bool):
        raise MalformedPlugin("a tool is a function, and needs_approval true or false")
    try:
        tool: Tool[Any] = Tool(_kept_in(function, plugin), timeout=TIMEOUT_S)
    except (UserError, TypeError, ValueError, NameError) as error:
        raise MalformedPlugin(f"the function cannot be a tool: {type(error).__name__}: {error}") from None
    return PluginTool(tool.name, tool, needs_approval, handlers.is_async(function))


def _kept_in(function: Callable[..., Any], plugin: str) -> Callable[..., Any]:
    """The function as a tool that fails in words: what it raises goes to the log, and an id to the model."""

    @functools.wraps(function)
    async def call(*given: Any, **named: Any) -> Any:
        try:
            with as_plugin(plugin):
                if handlers.is_async(function):
                    return await function(*given, **named)
                return await handlers.in_thread(functools.partial(function, *given, **named))
        except ModelRetry:
            raise
        except (Exception, SystemExit):
            error_id = secrets.token_hex(4)
            log.error("a plugin's tool failed, error %s", error_id, exc_info=not incognito_now())
            return f"The tool failed (error {error_id}); whether it did anything is not known."

    return call
