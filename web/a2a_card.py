"""The agent card: what this server promises to A2A clients, and how it may be cached.

It promises only what is served: the enabled profiles as skills, the bindings that answer, no credential that is not
enforced. What clients may send is checked against INPUT_MODES by `web/a2a_requests.py`.
"""

import hashlib
from typing import Any

from web.settings import Settings

PATH = "/.well-known/agent-card.json"
RPC_PATH = "/a2a"
PROTOCOL_VERSION = "1.0"
INPUT_MODES = ("text/plain", "text/markdown", "application/json")
OUTPUT_MODES = ("text/plain", "text/markdown", "application/json")
CACHE_CONTROL = "public, max-age=300"

SKILLS: dict[str, dict[str, Any]] = {
    "chat": {
        "id": "chat",
        "name": "Chat",
        "description": "A conversation that stays live while subagents work in the background; "
        "what they find out comes back as one briefing.",
        "tags": ["chat", "research", "background"],
        "examples": ["Look into these three libraries in the background and brief me when all are done."],
    },
    "echo": {
        "id": "echo",
        "name": "Echo",
        "description": "Answers with what it was sent, without a model; for load and conformance tests.",
        "tags": ["echo", "test"],
        "examples": ["Hello"],
    },
}


def card(settings: Settings, version: str) -> dict[str, Any]:
    """The card as JSON; `version` is Outrider's own."""
    interface = {
        "url": settings.address + RPC_PATH,
        "protocolBinding": "JSONRPC",
        "protocolVersion": PROTOCOL_VERSION,
    }
    return {
        "name": "Outrider",
        "description": "A conversational agent that sends subagents out, stays live, and briefs you once they are back.",
        "version": version,
        "supportedInterfaces": [interface],
        "capabilities": {"streaming": True, "pushNotifications": False, "extendedAgentCard": False},
        "defaultInputModes": list(INPUT_MODES),
        "defaultOutputModes": list(OUTPUT_MODES),
        "skills": [SKILLS[name] for name in settings.profiles],
    }


def cache_headers(body: bytes) -> dict[str, str]:
    """The headers for a card sent as these bytes; the ETag is strong, as the same bytes have the same one."""
    return {"etag": f'"{hashlib.sha256(body).hexdigest()[:32]}"', "cache-control": CACHE_CONTROL}


def not_modified(if_none_match: str | None, etag: str) -> bool:
    """Whether a client that sent this If-None-Match already has the card (RFC 9110, weak comparison): answer 304."""
    given = [tag.strip().removeprefix("W/") for tag in (if_none_match or "").split(",")]
    return etag in given or given == ["*"]
