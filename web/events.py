"""`GET /api/events`: what happens in the caller's sessions, as server-sent events, from the rows.

Rows are read, and the bell only wakes the reader, so every process tells the same under the same ids. Text deltas come
from turns of this process and carry no id; whoever reads too slowly misses some of them, and no row. Those of an
incognito session are for who has named it.
"""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator

from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from background import events, sessions
from background.database import Tx
from background.events import Event
from web.a2a_errors import A2AError
from web.caller import Caller
from web.callers import require_standing
from web.door import Call, door
from web.house import Delta, House
from web.paging import bad

PING_S = 15.0
LOOK_S = 1.0
PREVIEW = 1000  # deltas that may wait for a slow reader
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


async def stream(call: Call) -> Response:
    """Live from now on, or from behind `Last-Event-ID`; where rows behind it were purged, `reset` comes first."""
    session = call.query.get("session")
    owner = call.owner_in(session)
    uid = await call.db.read(_uid, owner, session) if session is not None else None
    given = call.request.headers.get("last-event-id")
    if given is not None and not (given.isascii() and given.isdigit() and len(given) < 16):
        raise bad("Last-Event-ID", "the id of an event")
    newest, oldest = await call.db.read(lambda tx: (events.newest(tx), events.oldest(tx)))
    last = newest if given is None else int(given)
    reset = given is not None and (last > newest or (last < oldest - 1))
    if call.request.method == "HEAD":  # whoever asks so reads no body, and would wait for the end of one that has none
        return Response(media_type="text/event-stream", headers=HEADERS)
    return StreamingResponse(
        _frames(call.house, call.caller, owner, newest if reset else last, session, uid, reset),
        media_type="text/event-stream",
        headers=HEADERS,
    )


def _uid(tx: Tx, owner: str, session: str) -> str:
    return sessions.get(tx, owner, session).uid


def _after(tx: Tx, caller: Caller, owner: str, last: int, uid: str | None) -> list[Event]:
    require_standing(tx, caller)
    return events.after(tx, owner, last, uid)


async def _frames(
    house: House, caller: Caller, owner: str, last: int, session: str | None, uid: str | None, reset: bool
) -> AsyncIterator[str]:
    preview = Preview()
    loop = asyncio.get_running_loop()
    with house.db.bell.listen("events", "tokens") as ear:

        def hear(of: str, data: Delta) -> None:
            if of == owner and (session == data["session"] or (session is None and "incognito" not in data)):
                preview.fresh.append(data)
                ear.hear()

        with house.deltas.heard_by(hear):
            yield "event: reset\ndata: {}\n\n" if reset else ": open\n\n"
            told = loop.time()
            while not house.stopping:
                preview.ripen()
                try:
                    rows = await house.db.read(_after, caller, owner, last, uid)
                except A2AError:  # its token was revoked, or its login is over; asked again, it is told so
                    return
                for row in rows:
                    last = row.id
                    for data in preview.before(row):
                        yield _delta(data)
                    yield _row(row)
                more = len(rows) == events.PAGE
                pieces = [] if more else preview.ripe()
                for data in pieces:
                    yield _delta(data)
                if rows or pieces:
                    told = loop.time()
                elif loop.time() - told >= PING_S - LOOK_S:
                    yield ": alive\n\n"
                    told = loop.time()
                if not more:
                    await ear.wait(LOOK_S)


class Preview:
    """Text deltas that wait to be sent: each behind the row that says that its turn began, and before the one of its end.

    A delta is heard after its turn's first row was committed and before its last one was. So what was there before
    the rows were read may follow them, and what belongs to an end among them must go before it.
    """

    def __init__(self) -> None:
        self.fresh: deque[Delta] = deque(maxlen=PREVIEW)
        self._ripe: deque[Delta] = deque(maxlen=PREVIEW)

    def ripen(self) -> None:
        """The rows are about to be read."""
        self._ripe += self.fresh
        self.fresh.clear()

    def before(self, row: Event) -> list[Delta]:
        """What must be sent before this row."""
        if row.name != "turn.finished":
            return []
        task_id = json.loads(row.data)["task_id"]
        due = [data for data in (*self._ripe, *self.fresh) if data["task_id"] == task_id]
        for waiting in (self._ripe, self.fresh):
            rest = [data for data in waiting if data["task_id"] != task_id]
            waiting.clear()
            waiting += rest
        return due

    def ripe(self) -> list[Delta]:
        """What may be sent once the rows are sent."""
        due = list(self._ripe)
        self._ripe.clear()
        return due


def _delta(data: Delta) -> str:
    return f"event: turn.delta\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"


def _row(row: Event) -> str:
    return f"id: {row.id}\nevent: {row.name}\ndata: {row.data}\n\n"


def routes(house: House) -> list[BaseRoute]:
    return [Route("/api/events", door(house, stream), methods=["GET"])]
