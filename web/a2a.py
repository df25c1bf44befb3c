"""The JSON-RPC binding of A2A 1.0 and 0.3, on `POST /a2a`, and the agent card.

It reads envelopes and writes them, and decides nothing: the methods are in `a2a_methods.py`, those of 0.3 in
`a2a_03_methods.py`. A2A 1.0, section 9; the envelope of 0.3 is the same.
"""

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from web import a2a_03_methods, a2a_card, a2a_requests
from web.a2a_call import LARGE_BODY, PRIVATE, Call, body_of, off_the_loop, versions, written
from web.a2a_cards import Cards
from web.a2a_errors import A2AError, RpcId, headers, http_status, to_jsonrpc
from web.a2a_faults import as_error
from web.a2a_methods import Methods
from web.a2a_stream import Stream, Telling
from web.access import caller_of
from web.house import House

Json = dict[str, Any]


def routes(house: House) -> list[BaseRoute]:
    edge = Edge(house)
    cards = Cards(house)

    async def agent_card(request: Request) -> Response:
        return cards.public(request.scope["headers"]).answer(request.headers.get("if-none-match"))

    # Some clients put a slash behind whatever address a card gives, and follow no redirect.
    addresses = (a2a_card.RPC_PATH, f"{a2a_card.RPC_PATH}/")
    return [
        *(Route(address, edge, methods=["POST"]) for address in addresses),
        Route(a2a_card.PATH, agent_card, methods=["GET"]),
    ]


class Edge:
    """An ASGI application, since each layer above takes its share of every message."""

    def __init__(self, house: House) -> None:
        self._settings = house.settings
        served = Methods(house).served
        self._methods = served | a2a_03_methods.twins(served)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = await self._answer(scope, receive)
        await answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Response:
        """One JSON-RPC call. Whatever goes wrong comes back as its envelope; exception texts stay here."""
        rpc_id: RpcId = None
        try:
            body = await body_of(scope, receive)
            large = len(body) > LARGE_BODY
            envelope = await off_the_loop(large, a2a_requests.parse_envelope, body)
            rpc_id = envelope.id
            a2a_requests.negotiate(*versions(scope), envelope.method)
            method = self._methods[envelope.method]
            call = Call(caller_of(scope), envelope.params, large, receive, scope["headers"])
            del body, envelope  # see `Call.checked`
            answer = await method(call)
        except Exception as failure:  # noqa: BLE001 - the door: logged with an id, and only the id goes out
            error = as_error(failure)
            return self._refusal(error, error.rpc_id if rpc_id is None else rpc_id)
        if isinstance(answer, Telling):
            return _stream(answer, rpc_id)
        told = await written({"jsonrpc": "2.0", "id": rpc_id, "result": answer})
        return Response(told, media_type="application/json", headers=PRIVATE)

    def _refusal(self, error: A2AError, rpc_id: RpcId) -> Response:
        status = http_status(error, self._settings.rpc_error_status)
        return JSONResponse(to_jsonrpc(error, rpc_id), status, headers(error))


def _stream(telling: Telling, rpc_id: RpcId) -> Response:
    return Stream(
        telling,
        lambda item: _sse({"jsonrpc": "2.0", "id": rpc_id, "result": item}),
        lambda error: _sse(to_jsonrpc(error, rpc_id)),
    )


def _sse(envelope: Json) -> str:
    return f"data: {json.dumps(envelope, ensure_ascii=False)}\n\n"
