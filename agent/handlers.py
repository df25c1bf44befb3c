"""What does a profile's work: handlers by name, what each is given, and what may come of it.

A handler is `async def handler(work) -> str | list[dict] | None`. After a crash, or an answer, it is run again from its
start, and what it had asked is answered from what was stored. It knows no row; where things are kept is the turn's
affair, and reaches it as a `Hold`.
"""

import asyncio
import base64
import contextvars
import inspect
import json
import logging
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

from agent.on_behalf import as_plugin
from agent.profiles import AGENT
from background.errors import LeaseLost
from background.large import is_large, one_by_one, piece
from background.questions import Answer, Parks, Question
from background.schemas import DEEPEST, Schema
from background.text import clean
from background.values import TooDeep, decode

log = logging.getLogger(__name__)

NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
CONTENT = ("text", "raw", "url", "data")
ABOUT_PART = ("metadata", "filename", "mediaType")
KEY_DIGEST = 12
KEPT = "kept:"

Part = dict[str, Any]
Given = str | list[Part] | None
Function = Callable[[Any], Any]  # of a `Work`: a `Given`, or something to await for one


class BadAnswer(ValueError):
    """What a handler gave cannot be kept or sent; the text names the place, and nothing that stands there."""


class WorkFailed(Exception):
    """Raised by a handler that cannot do what it was asked for; `str()` says why, for whoever asked."""


class MalformedHandler(ValueError):
    """A handler that cannot be used, or whose name is taken; the text says why."""


class Hold(Protocol):
    """What a turn does for the handler that it runs."""

    @property
    def stored(self) -> Mapping[str, str]:
        """The task's checkpoints, by name; an answer stands under `answer:KEY`."""
        ...

    async def fragment(self, text: str) -> None:
        """Commit a piece of the unfinished answer. When the work begins anew, the pieces do too."""
        ...

    async def keep(self, name: str, content: str) -> None:
        """Commit a step of the work under its name; the first write of a name wins."""
        ...


@dataclass
class Work:
    """What a handler is given: who asks, and what for.

    `message_id` is the client's own: the same when the handler runs again, so it can be the key of what it does outside. `text` are the message's text parts, `parts` all of them as the protocol writes them, `data` the value of the first
    data part (of a profile with an `input_schema`: or of a text that is JSON), None where there is none; of a job
    its arguments. `incognito`: nothing of it may be remembered.
    """

    task_id: str
    session: str
    owner: str
    message_id: str
    text: str
    parts: list[Part]
    data: Any
    _hold: Hold = field(repr=False)
    incognito: bool = False
    _asked: int = field(default=0, init=False, repr=False)
    _artifacts: list[tuple[str | None, Any]] = field(default_factory=list, init=False, repr=False)

    async def ask(self, text: str) -> str:
        """The user's answer to a question; the task waits for it as INPUT_REQUIRED, and takes no worker meanwhile."""
        return self._answer("question", text).text

    async def form(self, text: str, schema: dict[str, Any]) -> Any:
        """The data of a form, which fits its JSON Schema. Raises `BadSchema`."""
        return self._answer("form", text, schema=_form(schema)).data

    async def approve(self, text: str, detail: str = "") -> bool:
        """Whether the user approves of exactly this: `detail` says all of what would be done."""
        return self._answer("approval", text, detail).approved is True

    async def authenticate(self, text: str) -> str:
        """What the user answers once the credentials that `text` asks for are there; the task is AUTH_REQUIRED."""
        return self._answer("auth", text).text

    async def fragment(self, text: str) -> None:
        """Commit a piece of the answer before its end. What the handler returns is the whole, these pieces included.

        With an output guard nothing goes out before the whole has passed, and this does nothing.
        """
        await self._hold.fragment(clean(text))

    @property
    def kept(self) -> dict[str, Any]:
        """The steps that were kept so far, by name, those of earlier tries too."""
        begun = {name for name in self._hold.stored if name.startswith(KEPT)}
        return {name.removeprefix(KEPT): json.loads(self._hold.stored[name]) for name in sorted(begun)}

    async def keep(self, name: str, value: Any) -> None:
        """Commit a step: what JSON can hold, under a name of its own, of which the first stays. Raises `BadAnswer`.

        A handler that runs again, after a crash or an answer, finds it in `kept`, and need not do it again.
        """
        name = clean(name)
        await self._hold.keep(f"{KEPT}{name}", json.dumps(_normal(value, f"kept[{name!r}]"), ensure_ascii=False))

    def artifact(self, parts: Given, name: str | None = None) -> None:
        """Add an artifact of its own beside what the handler returns."""
        self._artifacts.append((name, parts))

    def _answer(self, kind: str, text: str, detail: str = "", schema: dict[str, Any] | None = None) -> Answer:
        """The stored answer, or out of here. The key holds the place and the words: an answer serves its question only."""
        self._asked += 1
        asked = Question(kind, f"{kind}:{self._asked}", clean(text), clean(detail), schema)
        question = Question(kind, f"{asked.key}:{asked.digest[:KEY_DIGEST]}", asked.text, asked.detail, schema)
        stored = self._hold.stored.get(f"answer:{question.key}")
        return Answer.of(stored) if stored is not None else _park(question)


def _park(question: Question) -> NoReturn:
    raise Parks(question)


def _form(schema: dict[str, Any]) -> dict[str, Any]:
    document = Schema(schema).document
    return document if isinstance(document, dict) else {}


@dataclass(frozen=True)
class Handler:
    """A handler. One that is not `stoppable` works in a thread, and goes on when its task is canceled."""

    name: str
    function: Function
    stoppable: bool
    plugin: str | None = None

    async def run(self, work: Work) -> list[dict[str, Any]]:
        """The artifacts that came of it, without ids. Raises `BadAnswer`, `Parks`, and whatever the function raises."""
        answer = await self.call(work)
        answers = [(None, answer), *work._artifacts]
        if is_large([given for _, given in answers]):
            return await one_by_one(artifacts_of, answers)
        return artifacts_of(answers)

    async def call(self, work: Any) -> Any:
        """What the function gives, as its plugin's code. What only looks like a signal of ours is an error of its own."""
        try:
            with as_plugin(self.plugin):
                given = self.function(work) if self.stoppable else await in_thread(self.function, work)
                return await given if inspect.isawaitable(given) else given
        except BaseExceptionGroup as group:  # of a task group in it
            raise _signal_in(group) or group from None
        except SystemExit as error:
            raise RuntimeError("the handler wanted to end the process") from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task and task.cancelling():
                raise
            raise RuntimeError("something that the handler waited for was canceled") from error


def _signal_in(group: BaseExceptionGroup) -> BaseException | None:
    """The first of our signals that a group of errors holds."""
    found = group.subgroup((Parks, LeaseLost))
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


class Handlers:
    """The handlers that profiles may name: those built in, and what plugins add. `agent` is the turn's own."""

    def __init__(self) -> None:
        self._handlers = {"echo": Handler("echo", echo, stoppable=True)}

    def names(self) -> tuple[str, ...]:
        """All names that a profile may give."""
        return (AGENT, *self._handlers)

    def get(self, name: str) -> Handler | None:
        """The handler of this name; None for one that is not there, and for `agent`."""
        return self._handlers.get(name)

    def add(self, handler: Handler) -> None:
        """Raises `MalformedHandler` if its name is taken, and then changes nothing."""
        if handler.name in self.names():
            raise MalformedHandler(f"there is a handler {handler.name!r} already")
        self._handlers[handler.name] = handler


def make(name: str, function: Any, plugin: str | None = None) -> Handler:
    """A handler out of what a plugin gave. Raises `MalformedHandler`."""
    if not (isinstance(name, str) and NAME.fullmatch(name)):
        raise MalformedHandler(f"handler {name!r}: a small letter, then small letters, digits, - or _ (64 at most)")
    if not callable(function):
        raise MalformedHandler(f"handler {name!r}: a function is wanted, not {type(function).__name__}")
    return Handler(name, function, is_async(function), plugin)


async def echo(work: Work) -> Given:
    """Gives back what it was sent."""
    return work.parts


def is_async(function: Any) -> bool:
    """Whether calling it only makes a coroutine, so that a cancel reaches what it does."""
    ways = (function, inspect.unwrap(function), getattr(function, "__call__", None))  # noqa: B004 - it may be async
    return any(map(inspect.iscoroutinefunction, ways))


async def in_thread(function: Callable[..., Any], *given: Any) -> Any:
    """Run a function that cannot be awaited. Whoever is canceled meanwhile leaves it alone; it holds no exit up."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def tell(tell: Callable[[Any], None], what: Any) -> None:
        if not done.done():
            tell(what)

    def work() -> None:
        try:
            how, what = done.set_result, context.run(function, *given)
        except BaseException as error:  # noqa: BLE001 - raised again where it is awaited
            how, what = done.set_exception, _raisable(error)
        try:
            loop.call_soon_threadsafe(tell, how, what)
        except RuntimeError:
            log.info("a call that could not be stopped has outlived its process's work")

    threading.Thread(target=work, name="outrider-plugin", daemon=True).start()
    return await done


def _raisable(error: BaseException) -> BaseException:
    # A future refuses StopIteration, and SystemExit in a thread must not end the process.
    return RuntimeError(repr(error)) if isinstance(error, StopIteration | SystemExit | KeyboardInterrupt) else error


# -- what came of it


def artifacts_of(given: Iterable[tuple[str | None, Any]]) -> list[dict[str, Any]]:
    """(name, answer) pairs as protocol artifacts without ids; of nothing (None, "", []) there is none. Raises `BadAnswer`."""
    made = []
    for name, answer in given:
        parts = parts_of(answer)
        if parts:
            made.append(({"name": clean(str(name))} if name else {}) | {"parts": parts})
    return made


def parts_of(answer: Any) -> list[Part]:
    """An answer as protocol parts in JSON's normal form. Raises `BadAnswer` for what no JSON can hold."""
    if answer is None:
        return []
    if isinstance(answer, str):
        return [{"text": clean(answer)}] if answer else []
    if not isinstance(answer, list):
        raise BadAnswer(f"an answer is a text, a list of parts, or None, not {type(answer).__name__}")
    return [_part(part, f"parts[{index}]") for index, part in enumerate(answer)]


def _part(part: Any, at: str) -> Part:
    if not isinstance(part, dict):
        raise BadAnswer(f"{at} is no object but {type(part).__name__}")
    present = [key for key in CONTENT if key in part]
    if len(present) != 1 or not part.keys() <= {*CONTENT, *ABOUT_PART}:
        raise BadAnswer(f"{at} must have exactly one of {', '.join(CONTENT)}, and beside it {', '.join(ABOUT_PART)}")
    for key in part.keys() - {"data", "metadata"}:
        if not isinstance(part[key], str):
            raise BadAnswer(f"{at}.{key} is no text but {type(part[key]).__name__}")
    if not isinstance(part.get("metadata", {}), dict):
        raise BadAnswer(f"{at}.metadata is no object")
    if "raw" in part and not _is_base64(part["raw"]):
        raise BadAnswer(f"{at}.raw is no base64")
    return {key: _normal(value, f"{at}.{key}") for key, value in part.items()}


def _is_base64(text: str) -> bool:
    """Either alphabet, padded or not: the protocol's JSON allows all four."""
    bare = text.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except ValueError:
        return False
    return True


_STRICT = json.JSONEncoder(allow_nan=False, check_circular=False).encode  # of a cycle it is a RecursionError


def _normal(value: Any, at: str) -> Any:
    """The value as JSON has it: no cycle, no NaN, no bytes, and text that can be stored."""
    try:
        with piece(is_large(value)):
            text = _STRICT(value)
        return decode(text.encode(), DEEPEST)
    except TooDeep:
        raise BadAnswer(f"{at} is nested deeper than {DEEPEST} levels") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise BadAnswer(f"{at} cannot be written as JSON ({type(error).__name__})") from None


def text_of(artifacts: list[dict[str, Any]]) -> str:
    """All that artifacts say, for whoever checks the whole text: other parts than text as JSON, names too."""
    said = [artifact["name"] for artifact in artifacts if "name" in artifact]
    for artifact in artifacts:
        for part in artifact["parts"]:
            whole = part.keys() == {"text"}
            said.append(part["text"] if whole else json.dumps(part, ensure_ascii=False, sort_keys=True))
    return "\n\n".join(said)
