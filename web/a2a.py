"""The A2A edge: JSON-RPC 1.0 on `POST /a2a`, and the agent card.

A request creates a task and its run, or reads; it never runs the agent. What is asked is checked in
`a2a_requests.py`; what is answered is what the projector has written.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import ExitStack, aclosing
from dataclasses import replace
from typing import Any, NamedTuple

from pydantic_core import to_json
from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from background import journal, sessions, tasks, terminal, webhooks
from background.database import Tx
from background.errors import Fault, StorageUnavailable
from background.journal import View
from background.tasks import Accepted, Incoming
from web import a2a_card, a2a_list, a2a_message, a2a_requests, a2a_views, admission
from web.a2a_errors import A2AError, RpcId, headers, http_status, internal, invalid, to_jsonrpc
from web.a2a_fields import Limits
from web.a2a_push import PushConfigs, check_address
from web.a2a_requests import SendRequest, TaskRequest
from web.a2a_webhook import Config
from web.access import Caller, caller_of, check_claims
from web.bodies import BODY_LIMIT
from web.house import House

log = logging.getLogger("outrider.a2a")

PING_S = 15.0
LOOK_S = 1.0  # the safety net under the bell
SOON_S = 0.25  # only who waits longer is watched for being gone: most have their answer by then
LARGE_BODY = 32_768  # bytes; checked in a thread, so that nobody waits for it
CANCEL_WAIT_S = 5.0
PARKED = "input_required"  # a stream ends there; it stays through auth_required
LAST_WORDS_S = 2.0  # how long a stream may outlast its time until its client has read the end
SLOW_S = 10.0  # how long a frame may wait for its client to read
LINGER_S = 60.0  # how long the end of a stream may wait so; it holds no place any more
SSE_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
Json = dict[str, Any]


def routes(house: House, version: str) -> list[BaseRoute]:
    edge = Edge(house)
    card = json.dumps(a2a_card.card(house.settings, version), ensure_ascii=False).encode()
    sent = a2a_card.cache_headers(card)

    async def agent_card(request: Request) -> Response:
        if a2a_card.not_modified(request.headers.get("if-none-match"), sent["etag"]):
            return Response(status_code=304, headers=sent)
        return Response(card, media_type="application/json", headers=sent)

    return [Route("/a2a", edge, methods=["POST"]), Route(a2a_card.PATH, agent_card, methods=["GET"])]


class Seen(NamedTuple):
    """A task's view, and the protocol's Task made of it, at one revision."""

    view: View
    task: Json

    def stopped_since(self, accepted: Accepted) -> bool:
        """Whether it has ended, or is parked, after what was accepted: an answer is not what it answered."""
        return self.view.ended or (self.view.parked and self.view.revision > accepted.revision)


def see(tx: Tx, owner: str, task_id: str, history_length: int | None) -> Seen:
    """The owner's task. Raises `TASK_NOT_FOUND`, for another's too."""
    view = journal.view(tx, owner, task_id)
    if view is None:
        raise A2AError("TASK_NOT_FOUND")
    history = None if history_length == 0 else sessions.history(tx, task_id, history_length)
    return Seen(view, a2a_views.task(view, history))


def see_accepted(tx: Tx, owner: str, task_id: str, history_length: int | None) -> Seen:
    """A task as it was when it was accepted, however far it has come since: its stream tells the rest."""
    seen = see(tx, owner, task_id, history_length)
    if seen.view.revision == 1:
        return seen
    first, *_ = journal.after(tx, task_id, 0)
    later = {"reason": None, "detail": None, "folded_into": None, "stopped": None, "result": None, "question": None}
    view = replace(seen.view, revision=first.revision, state=first.state, at=first.at, **later)
    return Seen(view, a2a_views.task(view, seen.task.get("history")))


class _Stream(StreamingResponse):
    """Server-sent events that hold a place until they end, their client is gone, or it has not read for too long.

    A frame is written whole or not at all, so a client that reads again finds all that it was sent, and `too_slow` last.
    """

    def __init__(self, frames: AsyncGenerator[str, None], too_slow: str, place: ExitStack, lasts_s: float) -> None:
        super().__init__(frames, media_type="text/event-stream", headers=SSE_HEADERS)
        self._frames, self._too_slow = frames, too_slow
        self._held, self._lasts_s = place, lasts_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._held:
            await super().__call__(scope, receive, send)

    async def stream_response(self, send: Send) -> None:
        end = ""
        try:
            async with asyncio.timeout(self._lasts_s), aclosing(self._frames) as frames:
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                async for frame in frames:
                    async with asyncio.timeout(SLOW_S):
                        await send({"type": "http.response.body", "body": frame.encode(), "more_body": True})
        except TimeoutError:
            log.info("a stream was dropped: its client does not read")
            end = self._too_slow
        self._held.close()
        try:
            async with asyncio.timeout(LINGER_S):
                await send({"type": "http.response.body", "body": end.encode()})
        except TimeoutError:
            log.info("a stream was cut off: its client has not read even its last frame")


class Edge:
    """The methods, over one house: an ASGI application, since each layer above takes its share of every message."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._db = house.db
        self._limits = Limits(skills=house.settings.profiles)
        self._methods: dict[str, Callable[[Request, Caller, RpcId, Any], Awaitable[Response | Json]]] = {
            "SendMessage": self._send,
            "SendStreamingMessage": self._send_streaming,
            "GetTask": self._get,
            "ListTasks": self._list,
            "CancelTask": self._cancel,
            "SubscribeToTask": self._subscribe,
            **PushConfigs(house, self._limits).methods(),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = await self._rpc(Request(scope, receive))
        await answer(scope, receive, send)

    async def _rpc(self, request: Request) -> Response:
        """One JSON-RPC call. Whatever goes wrong comes back as its envelope; exception texts stay here."""
        rpc_id: RpcId = None
        try:
            body = await _body(request)
            request.state.large = len(body) > LARGE_BODY
            envelope = await _off_the_loop(request, a2a_requests.parse_envelope, body)
            rpc_id = envelope.id
            a2a_requests.negotiate(*_versions(request.scope), envelope.method)
            answer = await self._methods[envelope.method](request, caller_of(request.scope), rpc_id, envelope.params)
        except A2AError as error:
            return self._refusal(error, error.rpc_id if rpc_id is None else rpc_id)
        except Fault as fault:
            return self._refusal(refused(fault), rpc_id)
        except Exception as error:  # noqa: BLE001 - the door: logged with an id, and only the id goes out
            return self._refusal(unexpected(error), rpc_id)
        if isinstance(answer, Response):
            return answer
        return Response(to_json({"jsonrpc": "2.0", "id": rpc_id, "result": answer}), media_type="application/json")

    def _refusal(self, error: A2AError, rpc_id: RpcId) -> Response:
        status = http_status(error, self._house.settings.rpc_error_status)
        return JSONResponse(to_jsonrpc(error, rpc_id), status, headers(error))

    # -- methods

    async def _send(self, request: Request, caller: Caller, rpc_id: RpcId, params: Any) -> Json:
        asked = await _off_the_loop(request, a2a_requests.send_params, params, self._limits)
        if asked.return_immediately:
            accepted = await self._accept(caller, asked)
            seen = await self._reached(caller, accepted, asked.history_length)
        else:
            with self._house.waiting.place():
                accepted = await self._accept(caller, asked)
                seen = await self._until_stopped(request, caller, accepted, asked.history_length)
        return {"task": seen.task}

    async def _send_streaming(self, request: Request, caller: Caller, rpc_id: RpcId, params: Any) -> Response:
        asked = await _off_the_loop(request, a2a_requests.send_params, params, self._limits)
        with ExitStack() as place:
            place.enter_context(self._house.streams.of_user(caller.owner))  # before anything is stored
            accepted = await self._accept(caller, asked)
            look = see_accepted if accepted.new and accepted.revision == 1 else see
            seen = await self._db.read(look, caller.owner, accepted.task_id, asked.history_length)
            return self._stream(caller, rpc_id, seen, place)

    async def _get(self, request: Request, caller: Caller, rpc_id: RpcId, params: Any) -> Json:
        asked = a2a_requests.get_params(params, self._limits)
        return (await self._see(caller, asked.id, asked.history_length)).task

    async def _list(self, request: Request, caller: Caller, rpc_id: RpcId, params: Any) -> Json:
        return await self._db.read(a2a_list.page, caller.owner, a2a_list.list_params(params, self._limits))

    async def _cancel(self, request: Request, caller: Caller, rpc_id: RpcId, params: Any) -> Json:
        asked = a2a_requests.cancel_params(params, self._limits)
        await self._db.write(cancel, caller.owner, asked.id)
        return (await self._ended(caller, asked.id)).task

    async def _subscribe(self, request: Request, caller: Caller, rpc_id: RpcId, params: Any) -> Response:
        asked: TaskRequest = a2a_requests.subscribe_params(params, self._limits)
        seen = await self._see(caller, asked.id, None)
        if seen.view.ended:
            raise A2AError("UNSUPPORTED_OPERATION", "The task has ended; read it with GetTask")
        with ExitStack() as place:
            place.enter_context(self._house.streams.of_user(caller.owner))
            return self._stream(caller, rpc_id, seen, place)

    # -- what they share

    async def _accept(self, caller: Caller, asked: SendRequest) -> Accepted:
        self._house.require_open()
        check_claims(caller, asked.context_id, asked.message.get("metadata"), asked.metadata)
        await check_address(self._house, asked.webhook)
        message = Incoming(
            owner=caller.owner,
            session_id=asked.context_id or f"ctx-{secrets.token_hex(8)}",
            message_id=asked.message_id,
            fingerprint=asked.fingerprint,
            text=a2a_message.in_words(asked.message),
            content=asked.message,
            profile=asked.skill,
            origin=caller.origin,
            cause=caller.trigger,
            task_id=asked.task_id,
            data=a2a_message.data_of(asked.message),
            question=a2a_message.question_of(asked.message),
        )
        if caller.origin == "user":
            message = await admission.admit(self._house.offers, message)
        else:
            message = await self._db.read(admission.of_ours, self._house.offers, message)
        return await self._db.write(accept, message, asked.context_id, asked.webhook)

    async def _see(self, caller: Caller, task_id: str, history_length: int | None) -> Seen:
        return await self._db.read(see, caller.owner, task_id, history_length)

    async def _until_stopped(
        self, request: Request, caller: Caller, accepted: Accepted, history_length: int | None
    ) -> Seen:
        """Wait until it has ended or is parked, until the deadline or until the client is gone; that leaves it alone."""
        task_id, patience_s = accepted.task_id, self._house.settings.blocking_wait_s
        began = asyncio.get_running_loop().time()
        with self._db.bell.listen(f"end:{task_id}") as ear:
            if accepted.new:  # it cannot have ended before anybody has heard of it
                await ear.wait(min(SOON_S, patience_s))
                seen = await self._see(caller, task_id, history_length)
                if seen.stopped_since(accepted):
                    self._house.waits.ended(None)
                    return seen
            gone = asyncio.ensure_future(request.receive())
            gone.add_done_callback(lambda _: ear.hear())
            try:
                async with asyncio.timeout_at(began + patience_s):
                    while not (seen := await self._see(caller, task_id, history_length)).stopped_since(accepted):
                        if gone.done():
                            break
                        if self._house.closed:
                            raise TimeoutError
                        await ear.wait(LOOK_S)
                return seen
            except TimeoutError:
                raise A2AError("BLOCKING_DEADLINE_EXCEEDED", metadata={"taskId": task_id}) from None
            finally:
                self._house.waits.ended(asyncio.get_running_loop().time() - began if gone.done() else None)
                gone.cancel()

    async def _reached(self, caller: Caller, accepted: Accepted, history_length: int | None) -> Seen:
        """A task once the projector has shown what came of a message: an answered question does not stand there any more."""
        with self._db.bell.listen(f"view:{accepted.task_id}") as ear:
            async with asyncio.timeout(CANCEL_WAIT_S):
                while (
                    seen := await self._see(caller, accepted.task_id, history_length)
                ).view.revision < accepted.revision:
                    await ear.wait(LOOK_S)
        return seen

    async def _ended(self, caller: Caller, task_id: str) -> Seen:
        """A task whose end is committed, once the projector has shown it."""
        with self._db.bell.listen(f"end:{task_id}") as ear:
            async with asyncio.timeout(CANCEL_WAIT_S):
                while not (seen := await self._see(caller, task_id, None)).view.ended:
                    await ear.wait(LOOK_S)
        return seen

    def _stream(self, caller: Caller, rpc_id: RpcId, seen: Seen, place: ExitStack) -> Response:
        """A stream in the place that it has been given, which it keeps until its end."""
        place.enter_context(self._house.streams.of_task(seen.view.task_id))
        lasts_s = self._house.settings.stream_max_s + LAST_WORDS_S
        frames = self._frames(caller, rpc_id, seen.view, seen.task)
        return _Stream(frames, _sse(to_jsonrpc(A2AError("STREAM_TOO_SLOW"), rpc_id)), place.pop_all(), lasts_s)

    async def _frames(self, caller: Caller, rpc_id: RpcId, view: View, task: Json) -> AsyncGenerator[str, None]:
        """The task, then only what came after it, and last why it ends before the task does; closing this changes nothing."""
        try:
            async with aclosing(self._told(caller, rpc_id, view, task)) as told:
                async for frame in told:
                    yield frame
        except A2AError as error:
            yield _sse(to_jsonrpc(error, rpc_id))
        except Exception as error:  # noqa: BLE001 - the door: logged with an id, and only the id goes out
            yield _sse(to_jsonrpc(unexpected(error), rpc_id))

    async def _told(self, caller: Caller, rpc_id: RpcId, view: View, task: Json) -> AsyncGenerator[str, None]:
        loop = asyncio.get_running_loop()
        expires = loop.time() + self._house.settings.stream_max_s
        with self._db.bell.listen(f"view:{view.task_id}") as ear:
            yield _frame(rpc_id, {"task": task})
            pinged = loop.time()
            while not view.ended:
                fresh, entries = await self._db.read(_news, caller.owner, view)
                for entry in entries:
                    yield _frame(rpc_id, a2a_views.event(fresh, entry))
                    if entry.state == PARKED:
                        return  # it has become so: what comes next is for whoever asks again
                view = fresh
                if not view.ended and (self._house.closed or loop.time() >= expires):
                    raise A2AError("STREAM_EXPIRED")
                if entries:
                    pinged = loop.time()
                elif loop.time() - pinged >= PING_S - LOOK_S:
                    yield ": alive\n\n"
                    pinged = loop.time()
                if not view.ended:
                    await ear.wait(min(LOOK_S, max(0.0, expires - loop.time())))


def accept(tx: Tx, message: Incoming, context_id: str | None, webhook: Config | None = None) -> Accepted:
    """Accept, for a client that may name a task: it must be one that takes messages, in the context that is named."""
    if message.task_id is not None and context_id is not None:
        task = tasks.find(tx, message.owner, message.task_id)
        if task is not None and sessions.by_uid(tx, task.session).id != context_id:
            raise Fault("invalid", "message.contextId: not the context of this task", field="message.contextId")
    accepted = tasks.accept(tx, message)
    if webhook is not None and accepted.new:
        webhooks.put(tx, webhook.of(accepted.task_id, message.owner))
        if message.task_id is None:  # a new task's first event stands in the journal already
            webhooks.announce(tx, [(accepted.task_id, accepted.revision, 0)])
    return accepted


def cancel(tx: Tx, owner: str, task_id: str) -> None:
    """Cancel the owner's task. Raises faults: not_found; conflict for one that has ended."""
    task = tasks.find(tx, owner, task_id)
    if task is None:
        raise Fault("not_found", "Task not found")
    if not terminal.cancel_task(tx, task, "user"):
        raise Fault("conflict", f"The task is {task.state} already.", reason="TASK_NOT_CANCELABLE")


def refused(fault: Fault) -> A2AError:
    """A fault of the rooms below, as an error of the wire."""
    limit = fault.details.get("limit")
    if fault.reason in ("WORKER_UNAVAILABLE", "OPEN_TASKS_LIMIT_REACHED", "MESSAGE_ID_REUSED", "TASK_NOT_CANCELABLE"):
        return A2AError(fault.reason, fault.message, metadata={"limit": limit})
    if fault.reason == "RESULT_NOT_STORABLE":
        return A2AError(fault.reason, fault.message, metadata={"level": fault.details.get("level")})
    match fault.kind:
        case "not_found":
            return A2AError("TASK_NOT_FOUND")
        case "invalid":
            return invalid(fault.details.get("field", "message"), fault.message)
    return A2AError("UNSUPPORTED_OPERATION", fault.message)


def unexpected(error: Exception) -> A2AError:
    """Anything else: an id for the client, the rest for the log."""
    error_id = secrets.token_hex(6)
    if isinstance(error, StorageUnavailable):
        log.error("error %s: the storage cannot be used: %s", error_id, error)
    else:
        log.error("error %s", error_id, exc_info=error)
    return internal(error_id)


def _news(tx: Tx, owner: str, seen: View) -> tuple[View, list[journal.Event]]:
    view = journal.view(tx, owner, seen.task_id, content=False)
    if view is None:  # it was erased
        raise A2AError("TASK_NOT_FOUND")
    if view.revision == seen.revision:
        return view, []
    return view, journal.after(tx, seen.task_id, seen.revision)


async def _body(request: Request) -> bytes:
    body, more = bytearray(), True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        if len(body) > BODY_LIMIT:
            raise A2AError("REQUEST_TOO_LARGE", f"The request is larger than {BODY_LIMIT} bytes")
        more = message.get("more_body", False)
    return bytes(body)


def _versions(scope: Scope) -> tuple[str | None, str | None]:
    """A2A-Version in the headers and in the query, which is only looked into where the header is not there."""
    for name, value in scope["headers"]:
        if name == b"a2a-version":
            return value.decode("latin-1"), None
    return None, QueryParams(scope["query_string"]).get("A2A-Version")


async def _off_the_loop(request: Request, function: Callable[..., Any], given: Any, *more: Any) -> Any:
    """In a thread where the request is large: a megabyte of structured data holds nobody up."""
    return await asyncio.to_thread(function, given, *more) if request.state.large else function(given, *more)


def _frame(rpc_id: RpcId, result: Json) -> str:
    return _sse({"jsonrpc": "2.0", "id": rpc_id, "result": result})


def _sse(envelope: Json) -> str:
    return f"data: {json.dumps(envelope, ensure_ascii=False)}\n\n"
