"""F019, F032: what a handler is given, what it may give, and what becomes of it when it is run again from its start."""

import asyncio
import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from agent.handlers import BadAnswer, Handlers, MalformedHandler, Work, in_thread, make, text_of
from background.questions import Answer, Parks, Question
from background.schemas import BadSchema

Run = Callable[..., Any]
FORM = {"type": "object"}


class Held:
    """A turn as its handler sees it; what is committed stands in `pieces`."""

    def __init__(self, stored: Mapping[str, str] | None = None) -> None:
        self.stored = dict(stored or {})
        self.pieces: list[str] = []

    async def fragment(self, text: str) -> None:
        self.pieces.append(text)

    async def keep(self, name: str, content: str) -> None:
        self.stored[name] = content


def work(held: Held | None = None, text: str = "hello") -> Work:
    return Work("t-1", "s-1", "local", "m-1", text, [{"text": text}], None, held or Held())


def answered(run: Run, function: Any, given: Work | None = None) -> list[dict[str, Any]]:
    return run(make("mine", function).run(given or work()))


def giving(answer: Any) -> Any:
    async def handler(work: Work) -> Any:
        return answer

    return handler


def parked(run: Run, function: Any, held: Held) -> Question:
    async def until_parked() -> Question:
        try:
            await make("mine", function).run(work(held))
        except Parks as parks:
            return parks.question
        raise AssertionError("it did not park")

    return run(until_parked())


# --- what it may give -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "artifacts"),
    [
        ("text", [{"parts": [{"text": "text"}]}]),
        ("", []),
        ([{"text": ""}], [{"parts": [{"text": ""}]}]),
        (None, []),
        ([], []),
        ([{"data": {"b": (1, 2), "a": None}}], [{"parts": [{"data": {"b": [1, 2], "a": None}}]}]),
        ([{"data": None}], [{"parts": [{"data": None}]}]),
        ([{"raw": "dGNr", "mediaType": "image/png", "filename": "f"}],) * 2,
        ("a\x00b\ud800", [{"parts": [{"text": "a\ufffdb\ufffd"}]}]),
        ([{"data": {"\x00": ["\ud800"]}}], [{"parts": [{"data": {"\ufffd": ["\ufffd"]}}]}]),
    ],
)
def test_an_answer_becomes_artifacts_in_jsons_normal_form(run: Run, answer: Any, artifacts: Any) -> None:
    wanted = [{"parts": answer}] if artifacts is answer else artifacts
    assert answered(run, giving(answer)) == wanted
    json.dumps(wanted)


def cycle() -> list[Any]:
    inner: list[Any] = []
    inner.append(inner)
    return inner


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    "answer",
    [
        b"bytes",
        ("a", "tuple"),
        {"text": "no list"},
        7,
        ["text"],
        [{"text": b"bytes"}],
        [{"text": 7}],
        [{}],
        [{"text": "a", "data": 1}],
        [{"text": "a", "colour": "red"}],
        [{"text": "a", "metadata": "none"}],
        [{"raw": "no base64!"}],
        [{"data": b"bytes"}],
        [{"data": {1, 2}}],
        [{"data": float("nan")}],
        [{"data": [float("inf")]}],
        [{"data": cycle()}],
        [{"data": nested(33)}],
        [{"data": nested(5000)}],
        [{"data": object()}],
    ],
)
def test_f032_what_cannot_be_kept_is_no_answer(run: Run, answer: Any) -> None:
    with pytest.raises(BadAnswer) as refused:
        answered(run, giving(answer))
    assert "bytes" not in str(refused.value).replace("not bytes", "").replace("but bytes", "")


def test_data_may_be_as_deep_as_the_wire_takes(run: Run) -> None:
    assert answered(run, giving([{"data": nested(32)}]))


def test_artifacts_of_their_own_stand_beside_the_answer(run: Run) -> None:
    async def handler(work: Work) -> str:
        work.artifact("first", name="one")
        work.artifact([{"data": 1}])
        return "answer"

    assert answered(run, handler) == [
        {"parts": [{"text": "answer"}]},
        {"name": "one", "parts": [{"text": "first"}]},
        {"parts": [{"data": 1}]},
    ]


def test_the_whole_text_is_all_that_artifacts_say() -> None:
    artifacts = [
        {"name": "title", "parts": [{"text": "one"}, {"data": {"k": "two"}}]},
        {"parts": [{"text": "three", "filename": "four"}, {"url": "https://five.example"}]},
    ]
    told = text_of(artifacts)
    assert all(word in told for word in ("title", "one", "two", "three", "four", "five"))


# --- what it may ask ------------------------------------------------------------------------------------------------


async def asking(work: Work) -> str:
    first = await work.ask("Which?")
    second = await work.form("What?", FORM)
    third = await work.approve("This?", "all of it")
    fourth = await work.authenticate("Who?")
    return json.dumps([first, second, third, fourth])


def test_a_handler_parks_at_its_first_question_and_goes_on_with_each_answer(run: Run) -> None:
    held = Held()
    given = [Answer("red"), Answer("", {"a": 1}), Answer("approve", approved=True), Answer("done")]
    kinds, keys = ["question", "form", "approval", "auth"], []
    for kind, answer in zip(kinds, given, strict=True):
        question = parked(run, asking, held)
        assert question.kind == kind
        keys.append(question.key)
        held.stored[f"answer:{question.key}"] = answer.stored
    assert len(set(keys)) == 4 and keys[3].startswith("auth:4:")
    assert answered(run, asking, work(held)) == [{"parts": [{"text": '["red", {"a": 1}, true, "done"]'}]}]


def test_a_form_has_a_schema_that_can_be_used(run: Run) -> None:
    async def handler(work: Work) -> Any:
        return await work.form("What?", {"type": "objekt"})

    assert parked(run, asking, Held({})).schema is None
    with pytest.raises(BadSchema):
        answered(run, handler)


def test_an_answer_serves_no_other_question(run: Run) -> None:
    """What is asked at the same place, but in other words, is asked again."""
    held = Held()
    question = parked(run, asking, held)
    held.stored[f"answer:{question.key}"] = Answer("red").stored

    async def changed(work: Work) -> str:
        return await work.ask("Which colour?")

    assert parked(run, changed, held).key != question.key


def test_a_denied_approval_is_false(run: Run) -> None:
    async def handler(work: Work) -> str:
        return str(await work.approve("This?"))

    held = Held()
    question = parked(run, handler, held)
    held.stored[f"answer:{question.key}"] = Answer("deny", approved=False).stored
    assert answered(run, handler, work(held)) == [{"parts": [{"text": "False"}]}]


def test_pieces_of_an_answer_are_committed_clean(run: Run) -> None:
    async def handler(work: Work) -> str:
        await work.fragment("a\x00")
        await work.fragment("b")
        return "ab"

    held = Held()
    answered(run, handler, work(held))
    assert held.pieces == ["a\ufffd", "b"]


# --- what can be stopped --------------------------------------------------------------------------------------------


def test_a_plain_function_works_in_a_thread_and_is_known_as_one_that_cannot_be_stopped(run: Run) -> None:
    def plain(work: Work) -> str:
        return threading.current_thread().name

    handler = make("plain", plain)
    assert not handler.stoppable and make("async", giving("x")).stoppable
    (artifact,) = run(handler.run(work()))
    assert artifact["parts"][0]["text"] == "outrider-plugin"


def test_a_function_that_makes_something_to_await_is_awaited(run: Run) -> None:
    assert answered(run, lambda given: giving("late")(given)) == [{"parts": [{"text": "late"}]}]


def test_whoever_leaves_a_call_that_cannot_be_stopped_leaves_at_once_and_it_ends_alone(run: Run) -> None:
    door, ended = threading.Event(), threading.Event()

    def slow() -> None:
        door.wait(20)
        ended.set()

    async def leave() -> None:
        call = asyncio.ensure_future(in_thread(slow))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    run(leave())
    assert not ended.is_set()
    door.set()
    assert ended.wait(20)


@pytest.mark.parametrize("error", [ValueError("x"), StopIteration(), SystemExit(3)])
def test_what_a_thread_raises_is_raised_where_it_is_awaited_and_ends_no_process(run: Run, error: BaseException) -> None:
    def raises(work: Work) -> str:
        raise error

    with pytest.raises((ValueError, RuntimeError)):
        answered(run, raises)


async def parks_in_a_group(work: Work) -> str:
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(work.ask("Which?"))
        group.create_task(work.approve("This?"))
    return asked.result()


def test_a_question_that_is_asked_within_a_task_group_parks_like_any_other(run: Run) -> None:
    held = Held()
    question = parked(run, parks_in_a_group, held)
    held.stored[f"answer:{question.key}"] = Answer("red", approved=True).stored
    question = parked(run, parks_in_a_group, held)
    held.stored[f"answer:{question.key}"] = Answer("approve", approved=True).stored
    assert answered(run, parks_in_a_group, work(held)) == [{"parts": [{"text": "red"}]}]


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError()])
def test_what_looks_like_an_end_of_the_process_or_a_cancel_is_an_error_of_the_handlers_own(
    run: Run, error: BaseException
) -> None:
    async def handler(work: Work) -> str:
        raise error

    with pytest.raises(RuntimeError):
        answered(run, handler)


def test_a_cancel_from_outside_is_one(run: Run) -> None:
    async def handler(work: Work) -> str:
        await asyncio.Event().wait()
        return "never"

    async def canceled() -> None:
        task = asyncio.ensure_future(make("mine", handler).run(work()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(canceled())


# --- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "Mine", "a b", "-x", 7, "x" * 65])
def test_a_handlers_name_is_small_letters(name: Any) -> None:
    with pytest.raises(MalformedHandler):
        make(name, giving("x"))


def test_a_handler_is_a_function_and_its_name_is_free() -> None:
    with pytest.raises(MalformedHandler, match="function is wanted"):
        make("mine", "no function")
    handlers = Handlers()
    for taken in ("agent", "echo"):
        with pytest.raises(MalformedHandler, match="already"):
            handlers.add(make(taken, giving("x")))
    handlers.add(make("mine", giving("x")))
    assert handlers.names() == ("agent", "echo", "mine") and handlers.get("mine")
    assert handlers.get("agent") is None is handlers.get("yours")
