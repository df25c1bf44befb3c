"""The door of `/api`: who asks and with which words, and every error in the one form that the API has.

One table turns faults into statuses; exception texts never go out. It knows no route.
"""

import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from background.errors import Fault, StorageUnavailable
from background.large import LARGE, is_large, one_by_one
from background.text import clean, clip
from background.values import LongNumber, NotJson, TooDeep, decode
from knowledge.backend import BadQuery, SearchTimeout, StoreFailed
from web import acting, bodies, refusals
from web.a2a_errors import A2AError, headers
from web.access import caller_of
from web.bodies import BODY_LIMIT
from web.caller import Caller
from web.claims import CLAIMS, audit, is_reserved, is_session_id
from web.house import House
from web.paging import bad

log = logging.getLogger("outrider.api")

STATUS = {"invalid": 400, "not_found": 404, "conflict": 409, "refused": 422, "limit": 429, "unavailable": 503}
RETRY_AFTER = {"Retry-After": "5"}
NO_STORE = {"Cache-Control": "no-store"}  # of an answer that lets somebody in: for who asked, and no cache between
READS = frozenset({"GET", "HEAD"})
NESTING = 32
MAX_NAME = 64  # of a parameter that is refused
Json = dict[str, Any]
Endpoint = Callable[["Call"], Awaitable[Any]]


class Call:
    """One request: who asks, with which words."""

    def __init__(self, house: House, request: Request) -> None:
        self.house = house
        self.db = house.db
        self.request = request
        self.query = _query(request.query_params)
        self.id: str = request.path_params.get("id", "")

    @property
    def caller(self) -> Caller:
        """Who asks. KeyError at an address that is open to everybody."""
        return caller_of(self.request.scope)

    @property
    def owner(self) -> str:
        """As whom the caller acts on what is in no session that the request names. Raises `not_found`, see `acting`."""
        return acting.alone(self.caller, changes=self.request.method not in READS)

    @property
    def owner_of_all(self) -> str:
        """As whom the caller acts on the session in the address, in what no share opens. Raises `not_found`, see `acting`."""
        return acting.beyond_shares(self.caller, self.id, changes=self.request.method not in READS)

    def owner_in(self, session_id: str | None, *, changes: bool = False) -> str:
        """As whom the caller acts in the session that the request names. Raises `not_found`, see `acting`."""
        return acting.in_session(self.caller, session_id, changes=changes)

    async def body(self, most: int = BODY_LIMIT) -> Json:
        """The JSON object that was sent, of at most so many bytes; an empty body is an empty one."""
        sent = await bodies.whole(self.request.scope, self.request.receive, most)
        try:
            value = await _decoded(sent) if sent else {}
        except (NotJson, LongNumber, TooDeep):
            raise Fault("invalid", "The body must be JSON, not nested deeper than 32 levels.", field="body") from None
        if not isinstance(value, dict):
            raise Fault("invalid", "The body must be a JSON object.", field="body")
        return value


def _query(given: QueryParams) -> QueryParams:
    """Of two values for one parameter nobody knows which is meant."""
    if len(given) < len(given.multi_items()):
        names = [name for name, _ in given.multi_items()]
        twice = next(name for name in names if names.count(name) > 1)
        raise bad(clip(clean(twice), MAX_NAME), "must be given once")
    return given


async def _decoded(sent: bytes) -> Any:
    """In the thread for what is large, if it is: a megabyte of structured data holds nobody up."""
    return await one_by_one(decode, sent, NESTING) if len(sent) > LARGE else decode(sent, NESTING)


def text(body: Json, field: str, most: int, *, required: bool = False) -> str | None:
    """A text field of a body."""
    value = body.get(field)
    if value is None and not required:
        return None
    if not isinstance(value, str) or (required and not value.strip()):
        raise bad(field, "must be text and not blank" if required else "must be text")
    if len(value) > most:
        raise bad(field, f"at most {most} characters")
    return value


def error(
    status: int, code: str, message: str, details: Json | None = None, headers: dict[str, str] | None = None
) -> Response:
    """The one form of an error of `/api`."""
    refusals.count(code)
    return JSONResponse({"error": {"code": code, "message": message, "details": details or {}}}, status, headers)


def _of_fault(fault: Fault) -> Response:
    code = fault.reason or fault.kind.upper()
    return error(
        STATUS[fault.kind], code, fault.message, fault.details, RETRY_AFTER if fault.kind == "unavailable" else None
    )


def _of_a2a(refused: A2AError) -> Response:
    return error(refused.kind.http, refused.reason, refused.message, refused.metadata, headers(refused))


def _of_store(failed: StoreFailed) -> Response:
    log.error("the knowledge store failed", exc_info=failed)
    return error(503, "KNOWLEDGE_UNAVAILABLE", "The knowledge store cannot be used now.", None, RETRY_AFTER)


def _of_storage(failed: StorageUnavailable) -> Response:
    log.error("the registry cannot be used: %s", failed)
    return error(503, "STORAGE_UNAVAILABLE", "The registry cannot be used now; try again.", None, RETRY_AFTER)


def door(house: House, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint with its errors in the API's form."""

    async def handle(request: Request) -> Response:
        try:
            answer = await endpoint(Call(house, request))
        except Fault as fault:
            return _of_fault(fault)
        except A2AError as refused:
            return _of_a2a(refused)
        except bodies.CutOff:
            return error(400, "INVALID", "The body did not come whole.", {"field": "body"})
        except bodies.TooSlow:
            return error(408, "TOO_SLOW", "The body did not come in time.", {"field": "body"}, {"Connection": "close"})
        except bodies.TooLarge as large:
            return error(413, "TOO_LARGE", f"The body is larger than {large.limit} bytes.")
        except BadQuery as wrong:
            return error(400, "INVALID", f"q: {wrong}", {"field": "q"})
        except SearchTimeout:
            return error(503, "SEARCH_TIMEOUT", "The search took too long and was stopped.", None, RETRY_AFTER)
        except StoreFailed as failed:
            return _of_store(failed)
        except StorageUnavailable as failed:
            return _of_storage(failed)
        except Exception as failed:
            error_id = secrets.token_hex(6)
            log.error("error %s", error_id, exc_info=failed)
            return error(500, "INTERNAL", f"Internal error {error_id}.")
        if isinstance(answer, Response):
            return answer
        return await one_by_one(JSONResponse, answer) if is_large(answer) else JSONResponse(answer)

    return handle


def session_id(given: Any, field: str) -> str:
    """A session's id as a client may name it."""
    if not isinstance(given, str) or not is_session_id(given):
        raise bad(field, "1 to 128 characters out of A-Z a-z 0-9 . _ : -")
    if is_reserved(given):
        audit.warning("refused a reserved session id: field=%s", field)
        raise bad(field, "ids that begin with background: are reserved")
    return given


def no_claims(body: Json) -> None:
    """Where a message comes from is said by who sends it, and not in its body."""
    claimed = next((field for field in CLAIMS if field in body), None)
    if claimed is not None:
        audit.warning("refused a forged claim: field=%s", claimed)
        raise bad(claimed, "is said by Outrider alone")


def incognito(body: Json) -> bool | None:
    """Whether it is to be incognito; None where the body does not say."""
    asked = body.get("incognito")
    if not isinstance(asked, bool | None):
        raise bad("incognito", "true or false")
    return asked
