"""The HTTP+JSON binding of A2A 1.0, under `/a2a/rest`: which address stands for which method, and how it is spelled.

It reads addresses, queries and bodies into a method's params and writes what comes of it, and decides nothing: the
methods are in `a2a_methods.py`. There is no address with a tenant in it. A2A 1.0, section 11.
"""

import json
import re
from typing import Any, Literal, NamedTuple
from urllib.parse import parse_qsl

from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from web import a2a_card, a2a_requests
from web.a2a_call import LARGE_BODY, PRIVATE, Call, body_of, off_the_loop, versions, written
from web.a2a_errors import A2AError, headers, invalid, to_rest
from web.a2a_faults import as_error
from web.a2a_fields import PROTO_NAMES
from web.a2a_methods import Methods
from web.a2a_stream import Stream, Telling
from web.access import caller_of
from web.house import House

MEDIA_TYPE = "application/a2a+json"
Json = dict[str, Any]


class Road(NamedTuple):
    """An address, and the method that it stands for. What the path names in braces is a field of the params."""

    verb: Literal["GET", "POST", "DELETE"]
    path: str
    method: str
    body: Literal["none", "may", "must"] = "none"


TASK, CONFIGS = "/tasks/{id}", "/tasks/{taskId}/pushNotificationConfigs"
ROADS = (
    Road("POST", "/message:send", "SendMessage", "must"),
    Road("POST", "/message:stream", "SendStreamingMessage", "must"),
    Road("GET", "/tasks", "ListTasks"),
    Road("POST", f"{TASK}:cancel", "CancelTask", "may"),
    Road("POST", f"{TASK}:subscribe", "SubscribeToTask", "may"),
    Road("GET", f"{TASK}:subscribe", "SubscribeToTask"),
    Road("GET", TASK, "GetTask"),
    Road("POST", CONFIGS, "CreateTaskPushNotificationConfig", "must"),
    Road("GET", CONFIGS, "ListTaskPushNotificationConfigs"),
    Road("GET", f"{CONFIGS}/{{id}}", "GetTaskPushNotificationConfig"),
    Road("DELETE", f"{CONFIGS}/{{id}}", "DeleteTaskPushNotificationConfig"),
    Road("GET", "/extendedAgentCard", "GetExtendedAgentCard"),
)
PATTERNS = [(re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", road.path)), road) for road in ROADS]
NUMBERS, FLAGS = frozenset({"historyLength", "pageSize"}), {"true": True, "false": False}
WHOLE = re.compile(r"-?[0-9]{1,20}")


def routes(house: House) -> list[BaseRoute]:
    edge = Edge(house)
    return [Route(a2a_card.REST_PATH, edge), Route(f"{a2a_card.REST_PATH}/{{path:path}}", edge)]


class NoRoad(Exception):
    """No method has this address; `verbs` are those that it does have."""

    def __init__(self, verbs: list[str]) -> None:
        super().__init__()
        self.verbs = verbs


class Edge:
    """An ASGI application that answers everything under its path, in the binding's own form."""

    def __init__(self, house: House) -> None:
        self._methods = Methods(house).served

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = await self._answer(scope, receive)
        await answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Response:
        """One call. Whatever goes wrong comes back with its own status; exception texts stay here."""
        try:
            road, named = _road(scope["method"], scope["path"].partition(a2a_card.REST_PATH)[2])
            a2a_requests.negotiate(*versions(scope), road.method)
            query = _query(scope["query_string"])
            large, given = False, query
            if road.body != "none":
                body = await body_of(scope, receive)
                large = len(body) > LARGE_BODY
                given = await off_the_loop(large, a2a_requests.parse_body, body, road.body == "may")
                del body
                given |= {"tenant": query["tenant"]} if query.get("tenant") else {}
            call = Call(caller_of(scope), _whole(given, named), large, receive, scope["headers"])
            del given  # see `Call.checked`
            answer = await self._methods[road.method](call)
        except NoRoad as lost:
            return _nothing_here(lost.verbs)
        except Exception as failure:  # noqa: BLE001 - the door: logged with an id, and only the id goes out
            error = as_error(failure)
            return JSONResponse(to_rest(error), error.kind.http, headers(error))
        if isinstance(answer, Telling):
            return Stream(answer, _frame, _last_frame)
        return Response(await written(answer), media_type=MEDIA_TYPE, headers=PRIVATE)


def _road(verb: str, path: str) -> tuple[Road, Json]:
    """The road that leads there by this verb, and the fields that its path names. Raises NoRoad."""
    there = [(road, found.groupdict()) for pattern, road in PATTERNS if (found := pattern.fullmatch(path))]
    there = [(road, named) for road, named in there if road.path == there[0][0].path]  # what is said in full goes first
    for road, named in there:
        if road.verb == verb:
            return road, named
    raise NoRoad([road.verb for road, _ in there])


def _query(query: bytes) -> Json:
    """The fields in a query, numbers and flags as what they are; what is none stays text, and its field refuses it."""
    given: Json = {}
    for spelled, text in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        name = PROTO_NAMES.get(spelled, spelled)
        if name in given:
            raise invalid(name, "must be given once")
        given[name] = text
        if name in NUMBERS and WHOLE.fullmatch(text):
            given[name] = int(text)
        elif name == "includeArtifacts":
            given[name] = FLAGS.get(text, text)
    return given


def _whole(given: Json, named: Json) -> Json:
    """The params: a field of the path may be said again, and not otherwise."""
    for name, value in named.items():
        if given.get(name) not in (None, "", value):
            raise invalid(name, "must be the one in the path, or be left out")
    return given | named


def _nothing_here(verbs: list[str]) -> Response:
    """The table has 404 for tasks alone; an address that is none never came to a method."""
    status, name, said = (
        (405, "UNIMPLEMENTED", "This address takes another method")
        if verbs
        else (404, "NOT_FOUND", "There is nothing here")
    )
    told = to_rest(A2AError("METHOD_NOT_FOUND", said))
    told["error"] |= {"code": status, "status": name}
    return JSONResponse(told, status, {"Allow": ", ".join(verbs)} if verbs else None)


def _frame(item: Json) -> str:
    return f"data: {json.dumps(item, ensure_ascii=False)}\n\n"


def _last_frame(error: A2AError) -> str:
    """An error after the first frame, by the name under which the official clients look for it."""
    return f"event: error\n{_frame(to_rest(error))}"
