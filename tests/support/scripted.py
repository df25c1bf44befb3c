"""A model endpoint that says exactly what a test scripts, over real HTTP (OpenAI chat completions, streamed or not).

It runs in a thread of the test run, so it outlives any server under test that is killed, and the test reads back
what the model was told. It decides nothing: the first rule that fits a request answers it, else the answer is "ok".
What a rule may hold is in `rules.py`.
"""

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.support.rules import OTHERWISE, Answer, Rule, fit, offered, text_of


class Cut(Exception):
    """Raised inside a response to make the server drop the connection, as a provider that dies does."""


@dataclass
class Asked:
    """One request to the model, as it came. Times are seconds of one monotonic clock."""

    body: dict[str, Any]
    at: float
    rule: int | None = None  # the index of the rule that answered; None: no rule fitted
    gate: str | None = None  # the gate at which it is or was held
    answered_at: float | None = None  # None while the answer is being held
    gone_at: float | None = None  # when the caller hung up on an answer that was held or that hung

    @property
    def messages(self) -> list[dict[str, Any]]:
        return self.body["messages"]

    @property
    def text(self) -> str:
        """The whole conversation as text, system prompt and tool arguments included."""
        return "\n".join(text_of(message) for message in self.messages)

    @property
    def last_user(self) -> str:
        users = [text_of(message) for message in self.messages if message["role"] == "user"]
        return users[-1] if users else ""

    @property
    def tools(self) -> set[str]:
        """Names of the tools that the model was offered."""
        return offered(self.body)

    def __str__(self) -> str:
        state = "hung up on" if self.gone_at else "answered" if self.answered_at else "held"
        return f"[rule {self.rule}, {state}] {self.messages[-1]['role']}: {text_of(self.messages[-1])[:300]}"


@dataclass
class _Script:
    """The rules in force, how often each was used, its gates, and the requests since they were set."""

    rules: list[Rule] = field(default_factory=list)
    used: dict[int, int] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    gates: dict[str, asyncio.Event] = field(default_factory=dict)

    def pick(self, body: dict[str, Any]) -> tuple[int | None, Answer]:
        for index, rule in enumerate(self.rules):
            if self.used.get(index, 0) < rule.times and not self._over(rule) and (answer := fit(rule, body)):
                self.used[index] = self.used.get(index, 0) + 1
                return index, answer
        return None, OTHERWISE

    def _over(self, rule: Rule) -> bool:
        return rule.until is not None and rule.until in self.gates and self.gates[rule.until].is_set()


class ScriptedModel:
    """A running endpoint; `base_url` is what OPENAI_BASE_URL wants. Close it, or use it as a context manager."""

    def __init__(self, rules: Iterable[Rule | dict[str, Any]] = ()) -> None:
        self._changed = threading.Condition()
        self._script = _Script()
        self._calls = 0
        self.rules(rules)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.base_url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1"
        # "critical": a cut is an exception inside the response, and uvicorn would print each one's traceback.
        self._server = uvicorn.Server(uvicorn.Config(self._app(), log_level="critical", lifespan="off", ws="none"))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="scripted-model")
        self._thread.start()

    @property
    def env(self) -> dict[str, str]:
        """The settings by which a server asks this model."""
        return {"OUTRIDER_MODEL": "openai-chat:scripted", "OPENAI_BASE_URL": self.base_url, "OPENAI_API_KEY": "none"}

    # --- what a test says -------------------------------------------------------------------------------------------

    def rules(self, rules: Iterable[Rule | dict[str, Any]]) -> None:
        """Replaces the script: forgets the requests and the counts, and shuts all gates. Who waits at one goes on."""
        fresh = _Script([rule if isinstance(rule, Rule) else Rule(**rule) for rule in rules])
        with self._changed:
            old, self._script = self._script, fresh
            for gate in old.gates.values():
                self._loop.call_soon_threadsafe(gate.set)

    def open(self, gate: str) -> None:
        """Lets everybody who waits at a gate go on, and everybody who comes to it later."""
        with self._changed:
            event = self._gate(gate)
        self._loop.call_soon_threadsafe(event.set)

    # --- what a test reads ------------------------------------------------------------------------------------------

    def requests(self) -> list[Asked]:
        """Every request since the script was set, oldest first."""
        with self._changed:
            return list(self._script.asked)

    def wait_for(self, predicate: Callable[[list[Asked]], Any], timeout: float = 20) -> Any:
        """Waits until the predicate of `requests()` is true, and returns its value; AssertionError at the deadline.

        It blocks: a test on an event loop that the model's caller needs as well uses `until`.
        """
        with self._changed:
            value = self._changed.wait_for(lambda: predicate(list(self._script.asked)), timeout)
            told = "\n".join(map(str, self._script.asked)) or "nothing"
        assert value, f"the model was not asked what was waited for within {timeout} s; it was asked:\n{told}"
        return value

    async def until(self, predicate: Callable[[list[Asked]], Any], timeout: float = 20) -> Any:
        """`wait_for`, for tests that share the event loop with what they test."""
        return await asyncio.to_thread(self.wait_for, predicate, timeout)

    def held_at(self, gate: str, timeout: float = 20) -> Asked:
        """The oldest request that stands at this gate, once there is one."""
        return self.wait_for(
            lambda asked: next((a for a in asked if a.gate == gate and not a.answered_at and not a.gone_at), None),
            timeout,
        )

    def settle(self, quiet_s: float = 0.15, timeout: float = 5) -> None:
        """Returns once nobody has asked for a while; whoever was held at a gate has come to his end then."""
        end = time.monotonic() + timeout
        seen, since = -1, time.monotonic()
        while time.monotonic() < min(since + quiet_s, end):
            if (now := len(self.requests())) != seen:
                seen, since = now, time.monotonic()
            time.sleep(0.01)

    def close(self) -> None:
        """Ends the server, whoever still waits for an answer."""
        self._server.should_exit = self._server.force_exit = True
        self._thread.join()
        self._socket.close()

    def __enter__(self) -> "ScriptedModel":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- the server, on its own thread ------------------------------------------------------------------------------

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._server.serve(sockets=[self._socket]))

    def _app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
                Route("/v1/models", _models),
            ]
        )

    async def _chat(self, request: Request) -> Response:
        asked, answer, gate = self._take(await request.json())
        if not await _held(request, gate, answer.rule.delay_s):
            self._mark(asked, gone_at=time.monotonic())
            return Response(status_code=499)  # nobody reads it
        self._mark(asked, answered_at=time.monotonic())
        return self._response(asked, answer)

    def _mark(self, asked: Asked, **when: float) -> None:
        with self._changed:
            vars(asked).update(when)
            self._changed.notify_all()

    def _take(self, body: dict[str, Any]) -> tuple[Asked, Answer, asyncio.Event | None]:
        """Records a request and picks its answer, in one step, so that a rule's `times` counts exactly."""
        with self._changed:
            asked = Asked(body, time.monotonic())
            asked.rule, answer = self._script.pick(body)
            asked.gate = answer.rule.gate
            self._script.asked.append(asked)
            self._changed.notify_all()
            return asked, answer, self._gate(asked.gate) if asked.gate else None

    def _gate(self, name: str) -> asyncio.Event:
        return self._script.gates.setdefault(name, asyncio.Event())

    def _response(self, asked: Asked, answer: Answer) -> Response:
        rule = answer.rule
        if rule.status:
            failure = {"error": {"message": rule.text or "scripted failure", "type": "scripted", "code": "scripted"}}
            return JSONResponse(failure, rule.status, rule.headers)
        gate = self._gate(rule.resumes) if rule.resumes else None
        self._calls += 1
        head = {"id": f"chatcmpl-{self._calls}", "created": 0, "model": asked.body.get("model", "scripted")}
        message = _message(answer, self._calls)
        if asked.body.get("stream"):
            pieces = _stream(head, message, answer, gate)
            return StreamingResponse(self._told(asked, pieces), media_type="text/event-stream")
        choice = {"index": 0, "message": message, "finish_reason": answer.finish_reason}
        whole = {**head, "object": "chat.completion", "choices": [choice], "usage": rule.usage_counts}
        return StreamingResponse(
            self._told(asked, _interrupted(json.dumps(whole), rule, gate)),
            media_type="application/json",
        )

    async def _told(self, asked: Asked, pieces: AsyncIterator[str]) -> AsyncIterator[str]:
        try:
            async for piece in pieces:
                yield piece
        except asyncio.CancelledError:
            self._mark(asked, gone_at=time.monotonic())
            raise


async def _held(request: Request, gate: asyncio.Event | None, delay_s: float) -> bool:
    """Holds an answer back; False when the caller hung up before it was due."""

    async def due() -> None:
        if gate:
            await gate.wait()
        await asyncio.sleep(delay_s)

    # The body has been read: the next thing that this request can bring is its end.
    due_, hung_up = asyncio.ensure_future(due()), asyncio.ensure_future(request.receive())
    await asyncio.wait((due_, hung_up), return_when=asyncio.FIRST_COMPLETED)
    in_time = due_.done()
    for waiting in (due_, hung_up):
        waiting.cancel()
    return in_time


async def _models(request: Request) -> Response:
    return JSONResponse({"object": "list", "data": [{"id": "scripted", "object": "model", "owned_by": "tests"}]})


def _message(answer: Answer, number: int) -> dict[str, Any]:
    calls = [
        {
            "id": call.get("id", f"call_{number}_{position}"),
            "type": "function",
            "function": {"name": call["name"], "arguments": json.dumps(call.get("arguments", {}))},
        }
        for position, call in enumerate(answer.tool_calls)
    ]
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or (None if calls else "")}
    if answer.rule.reasoning:
        message["reasoning_content"] = answer.rule.reasoning
    if calls:
        message["tool_calls"] = calls
    return message


async def _interrupted(text: str, rule: Rule, resumes: asyncio.Event | None) -> AsyncIterator[str]:
    """The text in pieces, broken off where the rule says that the provider dies or falls silent, maybe for a while.

    Which piece ends there is exact: the caller has been sent that many characters and no more.
    """
    begun = 0
    if rule.hang_after is not None:
        for piece in _pieces(text[: rule.hang_after]):
            yield piece
            await asyncio.sleep(0)
        await (resumes or asyncio.Event()).wait()
        begun = rule.hang_after
    for piece in _pieces(text[begun : rule.cut_after]):
        yield piece
        await asyncio.sleep(0)
    if rule.cut_after is not None:
        raise Cut


def _pieces(text: str) -> Iterator[str]:
    """At most fifty or so, so that a report of a megabyte does not take a thousand chunks."""
    step = max(40, len(text) // 50)
    return (text[start : start + step] for start in range(0, len(text), step))


async def _stream(
    head: dict[str, Any], message: dict[str, Any], answer: Answer, resumes: asyncio.Event | None
) -> AsyncIterator[str]:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return f"data: {json.dumps({**head, 'object': 'chat.completion.chunk', 'choices': [choice]})}\n\n"

    yield chunk({"role": "assistant"})
    if "reasoning_content" in message:
        yield chunk({"reasoning_content": message["reasoning_content"]})
    async for piece in _interrupted(message["content"] or "", answer.rule, resumes):
        yield chunk({"content": piece})
    for index, call in enumerate(message.get("tool_calls", ())):
        yield chunk({"tool_calls": [{"index": index, **call}]})
    yield chunk({}, answer.finish_reason)
    total = {**head, "object": "chat.completion.chunk", "choices": [], "usage": answer.rule.usage_counts}
    yield f"data: {json.dumps(total)}\n\n"
    yield "data: [DONE]\n\n"
