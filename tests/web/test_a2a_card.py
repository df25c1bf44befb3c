"""F169, A97: the card can be read by the official types and promises what is served, at the public address."""

import json
from pathlib import Path
from typing import Any

import pytest
from a2a.types.a2a_pb2 import AgentCard
from a2a.utils.proto_utils import validate_proto_required_fields
from google.protobuf.json_format import MessageToDict, ParseDict

from web.a2a_card import PROTOCOL_VERSION, cache_headers, card, not_modified
from web.a2a_requests import negotiate
from web.settings import Settings


def made(tmp_path: Path, **settings: Any) -> dict[str, Any]:
    return card(Settings(data=tmp_path, **settings), "0.1.0")


@pytest.mark.parametrize("profiles", [("chat",), ("echo",), ("chat", "echo")])
def test_the_official_types_read_all_of_it(tmp_path: Path, profiles: tuple[str, ...]) -> None:
    told = made(tmp_path, profiles=profiles)
    parsed = ParseDict(told, AgentCard(), ignore_unknown_fields=False)
    validate_proto_required_fields(parsed)
    assert MessageToDict(parsed) == told
    assert [skill["id"] for skill in told["skills"]] == list(profiles)


@pytest.mark.parametrize("public_url", [None, "https://agent.example/out"])
def test_addresses_are_absolute_and_public(tmp_path: Path, public_url: str | None) -> None:
    told = made(tmp_path, public_url=public_url)
    served = [(entry["protocolBinding"], entry["url"]) for entry in told["supportedInterfaces"]]
    address = public_url or "http://127.0.0.1:8420"
    assert served == [("JSONRPC", f"{address}/a2a"), ("HTTP+JSON", f"{address}/a2a/rest")]
    assert "0.0.0.0" not in json.dumps(told)


def test_what_is_declared_is_what_is_served(tmp_path: Path) -> None:
    told = made(tmp_path)
    assert told["capabilities"] == {"streaming": True, "pushNotifications": True, "extendedAgentCard": False}
    assert made(tmp_path, push=False)["capabilities"]["pushNotifications"] is False
    assert {entry["protocolVersion"] for entry in told["supportedInterfaces"]} == {PROTOCOL_VERSION}
    assert negotiate(PROTOCOL_VERSION, None, "SubscribeToTask") == PROTOCOL_VERSION
    assert "securitySchemes" not in told and "securityRequirements" not in told


def test_a_client_that_has_it_is_told_so() -> None:
    tag = cache_headers(b"card")["etag"]
    assert "max-age" in cache_headers(b"card")["cache-control"]
    assert cache_headers(b"card")["etag"] == tag != cache_headers(b"another")["etag"]
    assert all(not_modified(sent, tag) for sent in (tag, f"W/{tag}", f'"x", {tag}', "*"))
    assert not any(not_modified(sent, tag) for sent in (None, "", '"x"', tag.strip('"'), "W/"))
