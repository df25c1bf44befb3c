"""The agent card: what this server promises to A2A clients, and how it may be cached.

It promises only what is served: the enabled profiles that take work as skills, the bindings that answer, the credential that is
enforced. At its address it is one document for both versions of the protocol. What clients may send is checked against INPUT_MODES by
`web/a2a_requests.py`.
"""

import hashlib
from collections.abc import Container
from typing import Any

from agent.profiles import Profile
from web.setting_fields import Settings

PATH = "/.well-known/agent-card.json"
RPC_PATH, REST_PATH = "/a2a", "/a2a/rest"
BINDINGS = {"JSONRPC": RPC_PATH, "HTTP+JSON": REST_PATH}  # in the order in which we would be spoken to
PROTOCOL_VERSION, FORMER_VERSION = "1.0", "0.3"
INPUT_MODES = ("text/plain", "text/markdown", "application/json")
OUTPUT_MODES = ("text/plain", "text/markdown", "application/json")
CACHE_CONTROL = "public, max-age=300"

STRUCTURED_INPUT = ("application/json", "text/plain")  # a text is taken for the JSON that it spells
STRUCTURED_OUTPUT = ("application/json", "text/plain")

KNOWN: dict[str, dict[str, Any]] = {
    "chat": {
        "tags": ["chat", "research", "background"],
        "examples": ["Look into these three libraries in the background and brief me when all are done."],
    },
    "echo": {"tags": ["echo", "test"], "examples": ["Hello"]},
}

# What lets a client in, as each version spells it: they share a name, and each leaves alone what it does not know.
BEARER = {"httpAuthSecurityScheme": {"scheme": "Bearer"}}
GUARDED: dict[str, Any] = {
    "securitySchemes": {"token": BEARER},
    "securityRequirements": [{"schemes": {"token": {"list": []}}}],
}
FORMER_GUARDED: dict[str, Any] = {
    "securitySchemes": {"token": BEARER | {"type": "http", "scheme": "Bearer"}},
    "security": [{"token": []}],
}


def input_modes(profile: Profile) -> tuple[str, ...]:
    """The media types that a message to this profile may have."""
    return STRUCTURED_INPUT if profile.input_schema is not None else INPUT_MODES


def skill(profile: Profile) -> dict[str, Any]:
    """A profile as a skill; what it says of modes stands only where it differs from the card's."""
    made: dict[str, Any] = {
        "id": profile.name,
        "name": profile.name.replace("-", " ").replace("_", " ").capitalize(),
        "description": profile.description,
        **KNOWN.get(profile.name, {"tags": [profile.name]}),
    }
    made |= {"inputModes": list(STRUCTURED_INPUT)} if profile.input_schema is not None else {}
    made |= {"outputModes": list(STRUCTURED_OUTPUT)} if profile.output_schema is not None else {}
    return made


def card(settings: Settings, version: str, *, tokens: bool = False, without: Container[str] = ()) -> dict[str, Any]:
    """The card as JSON, as 1.0 has it; `version` is Outrider's own, `tokens` whether nobody is let in without one: then there is an
    extended one, see `a2a_cards.py`.

    `without`: the names of profiles that take no work, and are not offered.
    """
    served = [(binding, settings.address + path, PROTOCOL_VERSION) for binding, path in BINDINGS.items()]
    if settings.grpc_address is not None:
        served.append(("GRPC", settings.grpc_address, PROTOCOL_VERSION))
    interfaces = [
        {"url": url, "protocolBinding": binding, "protocolVersion": protocol}
        for binding, url, protocol in [*served, ("JSONRPC", settings.address + RPC_PATH, FORMER_VERSION)]
    ]
    return {
        "name": "Outrider",
        "description": "A conversational agent that sends subagents out, stays live, and briefs you once they are back.",
        "version": version,
        "supportedInterfaces": interfaces,
        "capabilities": {"streaming": True, "pushNotifications": settings.push, "extendedAgentCard": tokens},
        "defaultInputModes": list(INPUT_MODES),
        "defaultOutputModes": list(OUTPUT_MODES),
        "skills": [skill(profile) for profile in settings.offered_profiles if profile.name not in without],
        **(GUARDED if tokens else {}),
    }


def for_both(card: dict[str, Any]) -> dict[str, Any]:
    """A card with what a client of 0.3 looks for beside what one of 1.0 does, as the address that both know has it."""
    url = next(face["url"] for face in card["supportedInterfaces"] if face["protocolVersion"] == FORMER_VERSION)
    former = {
        "protocolVersion": FORMER_VERSION,
        "url": url,
        "preferredTransport": "JSONRPC",
        "additionalInterfaces": [{"url": url, "transport": "JSONRPC"}],
        "supportsAuthenticatedExtendedCard": card["capabilities"]["extendedAgentCard"],
    }
    return card | former | (FORMER_GUARDED if "securitySchemes" in card else {})


def cache_headers(body: bytes) -> dict[str, str]:
    """The headers for a card sent as these bytes; the ETag is strong, as the same bytes have the same one."""
    return {"etag": f'"{hashlib.sha256(body).hexdigest()[:32]}"', "cache-control": CACHE_CONTROL}


def not_modified(if_none_match: str | None, etag: str) -> bool:
    """Whether a client that sent this If-None-Match already has the card (RFC 9110, weak comparison): answer 304."""
    given = [tag.strip().removeprefix("W/") for tag in (if_none_match or "").split(",")]
    return etag in given or given == ["*"]
