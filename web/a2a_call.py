"""One call of an A2A method, whatever binding it came by: its body, its version, and what a method is given of it.

It reads what every binding reads in the same way, and knows neither an envelope nor a route.
"""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from starlette.datastructures import QueryParams
from starlette.types import Receive, Scope

from web.a2a_errors import A2AError
from web.bodies import BODY_LIMIT
from web.caller import Caller

LARGE_BODY = 32_768  # bytes; checked in a thread, so that nobody waits for it


class Call(NamedTuple):
    """Who asks, and for what; `receive` tells, once the body has been read, when the client is gone."""

    caller: Caller
    params: Any
    large: bool
    receive: Receive

    async def checked(self, function: Callable[..., Any], *more: Any) -> Any:
        """What `function` makes of the params."""
        return await off_the_loop(self.large, function, self.params, *more)


async def body_of(receive: Receive) -> bytes:
    """The whole body. A2AError `REQUEST_TOO_LARGE` as soon as it is, -32600 where its client is gone before its end."""
    body, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise A2AError("INVALID_REQUEST", "The body did not come whole")  # nobody is there to be told
        body += message.get("body", b"")
        if len(body) > BODY_LIMIT:
            raise A2AError("REQUEST_TOO_LARGE", f"The request is larger than {BODY_LIMIT} bytes")
        more = message.get("more_body", False)
    return bytes(body)


def versions(scope: Scope) -> tuple[str | None, str | None]:
    """A2A-Version in the headers and in the query, which is only looked into where the header is not there."""
    for name, value in scope["headers"]:
        if name == b"a2a-version":
            return value.decode("latin-1"), None
    return None, QueryParams(scope["query_string"]).get("A2A-Version")


async def off_the_loop(large: bool, function: Callable[..., Any], *given: Any) -> Any:
    """In a thread where the request is large: a megabyte of structured data holds nobody up."""
    return await asyncio.to_thread(function, *given) if large else function(*given)
