"""One call of an A2A method, whatever binding it came by: its body, its version, and what a method is given of it.

It reads what every binding reads in the same way, and knows neither an envelope nor a route.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import QueryParams
from starlette.types import Receive, Scope

from background.large import LARGE, is_large, one_by_one
from background.values import bytes_of
from web import bodies
from web.a2a_errors import A2AError
from web.caller import Caller

LARGE_BODY = LARGE  # bytes
PRIVATE = {"cache-control": "no-store"}  # of an answer: it is for who asked, and no cache keeps it


Headers = Iterable[tuple[bytes, bytes]]


@dataclass(slots=True)
class Call:
    """Who asks, and for what; `receive` tells, once the body has been read, when the client is gone.

    `headers` are those of the request, their names in lower case.
    """

    caller: Caller
    params: Any
    large: bool
    receive: Receive
    headers: Headers = ()

    async def checked(self, function: Callable[..., Any], *more: Any) -> Any:
        """What `function` makes of the params. They are let go: nobody keeps a megabyte while its answer is waited for."""
        params, self.params = self.params, None
        return await off_the_loop(self.large, function, params, *more)


async def body_of(scope: Scope, receive: Receive) -> bytes:
    """The whole body. A2AError `REQUEST_TOO_LARGE` as soon as it is, `REQUEST_TOO_SLOW`, -32600 where its client is gone."""
    try:
        return await bodies.whole(scope, receive)
    except bodies.TooLarge as large:
        raise A2AError("REQUEST_TOO_LARGE", f"The request is larger than {large.limit} bytes") from None
    except bodies.TooSlow:
        raise A2AError("REQUEST_TOO_SLOW") from None
    except bodies.CutOff:
        raise A2AError("INVALID_REQUEST", "The body did not come whole") from None


def versions(scope: Scope) -> tuple[str | None, str | None]:
    """A2A-Version in the headers and in the query, which is only looked into where the header is not there."""
    header = version_in(scope["headers"])
    return header, None if header is not None else QueryParams(scope["query_string"]).get("A2A-Version")


def version_in(headers: Headers) -> str | None:
    """A2A-Version. Two that differ are both of them, as a proxy joins them, and no version."""
    said = dict.fromkeys(value for name, value in headers if name == b"a2a-version")
    return b", ".join(said).decode("latin-1") if said else None


async def off_the_loop(large: bool, function: Callable[..., Any], *given: Any) -> Any:
    """In the thread for what is large, if it is: a megabyte of structured data holds nobody up."""
    return await one_by_one(function, *given) if large else function(*given)


async def written(answer: Any) -> bytes:
    """An answer as JSON."""
    return await off_the_loop(is_large(answer), bytes_of, answer)
