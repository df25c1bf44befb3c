"""The agent card in its two forms: for everybody, and the extended one, which a user is told who has shown a token.

The extended card says beside it, as an extension of the protocol's, who the caller is here and what each skill takes and
keeps. It is offered exactly where tokens are in force: without them there is nobody to tell apart. It never says how
something is done: no model, no tool, no instruction. A2A 1.0, sections 3.1.11 and 8.
"""

import json
from functools import lru_cache
from importlib.metadata import version
from typing import Any

from starlette.responses import Response

from agent.offers import Offer
from web import a2a_card
from web.a2a_call import Headers
from web.a2a_errors import A2AError
from web.a2a_fields import Limits
from web.bodies import BODY_LIMIT
from web.house import House
from web.own_address import asked_at
from web.setting_fields import Settings

Json = dict[str, Any]

VERSION = version("outrider")
EXTENSION = "urn:outrider:caller"
MEANING = (
    "What this server does for the caller: his name, each skill's rules, the limits, and who can be sent out over /api."
)
KEPT = 64  # cards, for so many addresses that one was asked at


class Cards:
    """The cards of one house; `headers` are those of the request for one, as it may depend on the name it was asked by."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._idle = {offer.profile.name for offer in house.offered if offer.problem}
        self._public = lru_cache(KEPT)(self._made)

    def public(self, headers: Headers) -> "Card":
        """The card for everybody."""
        address = asked_at(_host(headers)) if self._house.settings.guessed else None
        return self._public(self._house.callers.required, address)

    def extended(self, owner: str, headers: Headers) -> Json:
        """The owner's. Raises A2AError `UNSUPPORTED_OPERATION` where no tokens are in force."""
        if not self._house.callers.required:
            raise A2AError(
                "UNSUPPORTED_OPERATION", "An extended card is each user's own, and without tokens there is one user"
            )
        card = self.public(headers).told
        address = card["supportedInterfaces"][0]["url"].removesuffix(a2a_card.RPC_PATH)
        told = {"uri": EXTENSION, "description": MEANING, "required": False, "params": self._told(owner, address)}
        return card | {"capabilities": card["capabilities"] | {"extensions": [told]}}

    def _made(self, tokens: bool, address: str | None) -> "Card":
        settings = self._house.settings.at(address) if address else self._house.settings
        told = a2a_card.card(settings, VERSION, tokens=tokens, without=self._idle)
        return Card(told, by_host=self._house.settings.guessed)

    def _told(self, owner: str, address: str) -> Json:
        settings = self._house.settings
        offers = [offer for offer in self._house.offered if not offer.problem]
        types = map(self._house.registry.get, self._house.registry.names())
        return {
            "user": owner,
            "skills": {offer.profile.name: _rules(offer, settings) for offer in offers},
            "limits": _limits(settings),
            "api": f"{address}/api",
            "subagents": {kind.name: kind.description for kind in types},
        }


class Card:
    """A card of 1.0, and it written once for both versions; `by_host`: which one depends on the name that it was asked by."""

    def __init__(self, told: Json, *, by_host: bool) -> None:
        self.told = told
        self._body = json.dumps(a2a_card.for_both(told), ensure_ascii=False).encode()
        self._headers = a2a_card.cache_headers(self._body) | ({"vary": "Host"} if by_host else {})

    def answer(self, if_none_match: str | None) -> Response:
        """304 where its client has it."""
        if a2a_card.not_modified(if_none_match, self._headers["etag"]):
            return Response(status_code=304, headers=self._headers)
        return Response(self._body, media_type="application/json", headers=self._headers)


def _host(headers: Headers) -> str:
    return next((value.decode("latin-1") for name, value in headers if name == b"host"), "")


def _rules(offer: Offer, settings: Settings) -> Json:
    """What a client can know of a skill before it asks; what is not bounded by itself is left out."""
    profile = offer.profile
    told = {
        "answerLevel": offer.level,
        "inputSchema": offer.takes and offer.takes.document,
        "outputSchema": offer.gives and offer.gives.document,
        "maxOpenTasks": profile.max_open_tasks,
        "retentionDays": profile.retention_days or settings.retention_days or None,
    }
    return {name: value for name, value in told.items() if value is not None}


def _limits(settings: Settings) -> Json:
    of_messages = Limits()
    return {
        "requestBytes": BODY_LIMIT,
        "parts": of_messages.parts,
        "textCharacters": of_messages.text_chars,
        "openTasks": settings.max_open_tasks_per_user,
        "openStreams": settings.max_streams_per_user,
        "waitingJobs": settings.max_queued_jobs,
        "blockingSeconds": settings.blocking_wait_s,
        "streamSeconds": settings.stream_max_s,
    }
