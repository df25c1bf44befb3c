"""A stream of an A2A task: what is told in it, and the one way in which any binding writes it.

What is told is the protocol's StreamResponse, one after the other; a binding says what a frame and an error look like.
A stream changes nothing, and closing it cancels nothing. A2A 1.0, sections 3.1.2 and 3.1.6.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, aclosing
from typing import Any, NamedTuple

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from background import journal
from background.database import Tx
from background.journal import View
from background.large import is_large
from web import a2a_views, acting
from web.a2a_call import off_the_loop
from web.a2a_errors import A2AError
from web.a2a_faults import as_error
from web.caller import Caller
from web.callers import require_standing
from web.house import House

log = logging.getLogger("outrider.a2a")

PING_S = 15.0
LOOK_S = 1.0  # the safety net under the bell
PARKED = "input_required"  # a stream ends there; it stays through auth_required
LAST_WORDS_S = 2.0  # how long a stream may outlast its time until its client has read the end
SLOW_S = 10.0  # how long a frame may wait for its client to read
LINGER_S = 60.0  # how long the end of a stream may wait so; it holds no place any more
SSE_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
PING = ": alive\n\n"
Json = dict[str, Any]


class Telling(NamedTuple):
    """A stream that is about to begin, in the place that it keeps until its end.

    `items` are StreamResponses, None where there is nothing new and its client should hear that it is alive; an
    A2AError of theirs says why it ends before the task does.
    """

    items: AsyncGenerator[Json | None, None]
    place: ExitStack
    lasts_s: float


class Stream(StreamingResponse):
    """Server-sent events that hold a place until they end, their client is gone, or it has not read for too long.

    `frame` and `error` write an item and an error as their binding does. A frame is written whole or not at all, so a
    client that reads again finds all that it was sent, and last that it was too slow.
    """

    def __init__(self, telling: Telling, frame: Callable[[Json], str], error: Callable[[A2AError], str]) -> None:
        self._frames = _frames(telling.items, frame, error)
        super().__init__(self._frames, media_type="text/event-stream", headers=SSE_HEADERS)
        self._too_slow = error(A2AError("STREAM_TOO_SLOW"))
        self._held, self._lasts_s = telling.place, telling.lasts_s

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


async def _frames(
    items: AsyncGenerator[Json | None, None], frame: Callable[[Json], str], error: Callable[[A2AError], str]
) -> AsyncGenerator[str, None]:
    """What is told, as it is written, and last why it ends before the task does; closing this changes nothing."""
    try:
        async with aclosing(items) as told:
            async for item in told:
                yield PING if item is None else await off_the_loop(is_large(item), frame, item)
    except Exception as failure:  # noqa: BLE001 - the door: logged with an id, and only the id goes out
        yield error(as_error(failure))


def begin(house: House, caller: Caller, view: View, task: Json, place: ExitStack) -> Telling:
    """A stream of the task as it is in `view`; it takes over the place. Raises `STREAM_LIMIT_REACHED`."""
    place.enter_context(house.streams.of_task(view.task_id))
    return Telling(_told(house, caller, view, task), place.pop_all(), house.settings.stream_max_s + LAST_WORDS_S)


async def _told(house: House, caller: Caller, view: View, task: Json) -> AsyncGenerator[Json | None, None]:
    """The task, then only what came after it."""
    loop = asyncio.get_running_loop()
    expires = loop.time() + house.settings.stream_max_s
    with house.db.bell.listen(f"view:{view.task_id}", "tokens") as ear:
        yield {"task": task}
        pinged = loop.time()
        while not view.ended:
            fresh, entries = await house.db.read(_news, caller, view)
            for entry in entries:
                yield a2a_views.event(fresh, entry)
                if entry.state == PARKED:
                    return  # it has become so: what comes next is for whoever asks again
            view = fresh
            if not view.ended and (house.closed or loop.time() >= expires):
                raise A2AError("STREAM_EXPIRED")
            if entries:
                pinged = loop.time()
            elif loop.time() - pinged >= PING_S - LOOK_S:
                yield None
                pinged = loop.time()
            if not view.ended:
                await ear.wait(min(LOOK_S, max(0.0, expires - loop.time())))


def _news(tx: Tx, caller: Caller, seen: View) -> tuple[View, list[journal.Event]]:
    require_standing(tx, caller)
    view = journal.view(tx, acting.on_task(tx, caller, seen.task_id), seen.task_id, content=False)
    if view is None:  # it was erased
        raise A2AError("TASK_NOT_FOUND")
    if view.revision == seen.revision:
        return view, []
    return view, journal.after(tx, seen.task_id, seen.revision)
