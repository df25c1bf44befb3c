"""F169, A97: the card can be read by the official types of both versions, and promises what is served, at the public address."""

import json
from pathlib import Path
from typing import Any

import pytest
from a2a.client.card_resolver import parse_agent_card
from a2a.compat.v0_3.types import AgentCard as AgentCard03
from a2a.types.a2a_pb2 import AgentCard
from a2a.utils.proto_utils import validate_proto_required_fields
from google.protobuf.json_format import MessageToDict, ParseDict

from web.a2a_card import cache_headers, card, for_both, not_modified
from web.a2a_requests import negotiate
from web.setting_fields import Settings

OF_0_3 = (
    "protocolVersion",
    "url",
    "preferredTransport",
    "additionalInterfaces",
    "supportsAuthenticatedExtendedCard",
    "security",
)


def made(tmp_path: Path, tokens: bool = False, **settings: Any) -> dict[str, Any]:
    return for_both(card(Settings(data=tmp_path, **settings), "0.1.0", tokens=tokens))


@pytest.mark.parametrize("profiles", [("chat",), ("echo",), ("chat", "echo")])
def test_the_official_types_read_all_of_it(tmp_path: Path, profiles: tuple[str, ...]) -> None:
    """But for the fields of 0.3, of which 1.0 says that they are to be passed over."""
    told = made(tmp_path, profiles=profiles)
    current = {name: value for name, value in told.items() if name not in OF_0_3}
    parsed = ParseDict(current, AgentCard(), ignore_unknown_fields=False)
    validate_proto_required_fields(parsed)
    assert MessageToDict(parsed) == current
    assert [skill["id"] for skill in told["skills"]] == list(profiles)


def test_a97_the_official_types_of_0_3_read_the_same_document(tmp_path: Path) -> None:
    told = made(tmp_path, public_url="https://agent.example/out")
    read = AgentCard03.model_validate(told)
    assert (read.protocol_version, read.url) == ("0.3", "https://agent.example/out/a2a")
    assert read.preferred_transport == "JSONRPC" and not read.supports_authenticated_extended_card
    assert [(face.url, face.transport) for face in read.additional_interfaces or []] == [(read.url, "JSONRPC")]
    assert [skill.id for skill in read.skills] == [skill["id"] for skill in told["skills"]]
    assert read.capabilities.streaming and read.capabilities.push_notifications


def test_a97_the_credential_is_on_the_card_once_it_is_enforced_in_the_shape_of_each_version(tmp_path: Path) -> None:
    told = made(tmp_path, tokens=True)
    current = parse_agent_card(json.loads(json.dumps(told)))
    assert MessageToDict(current)["securityRequirements"] == [{"schemes": {"token": {}}}]
    assert current.security_schemes["token"].http_auth_security_scheme.scheme == "Bearer"
    former = AgentCard03.model_validate(told)
    assert former.security == [{"token": []}] and former.security_schemes
    assert former.security_schemes["token"].root.model_dump(exclude_none=True) == {"type": "http", "scheme": "Bearer"}
    assert not {"securitySchemes", "securityRequirements", "security"} & made(tmp_path).keys()


@pytest.mark.parametrize("public_url", [None, "https://agent.example/out"])
def test_addresses_are_absolute_and_public(tmp_path: Path, public_url: str | None) -> None:
    told = made(tmp_path, public_url=public_url)
    address = public_url or "http://127.0.0.1:8420"
    assert [
        (face["protocolBinding"], face["protocolVersion"], face["url"]) for face in told["supportedInterfaces"]
    ] == [
        ("JSONRPC", "1.0", f"{address}/a2a"),
        ("HTTP+JSON", "1.0", f"{address}/a2a/rest"),
        ("JSONRPC", "0.3", f"{address}/a2a"),
    ]
    assert told["url"] == f"{address}/a2a"
    assert "0.0.0.0" not in json.dumps(told)


def test_grpc_is_on_the_card_where_it_is_served_as_its_libraries_take_an_address(tmp_path: Path) -> None:
    for public_url, address in ((None, "127.0.0.1:9"), ("https://agent.example/out", "agent.example:9")):
        told = made(tmp_path, grpc_port=9, public_url=public_url)["supportedInterfaces"]
        assert {"url": address, "protocolBinding": "GRPC", "protocolVersion": "1.0"} in told
        others = [face for face in told if face["protocolBinding"] != "GRPC"]
        assert others == made(tmp_path, public_url=public_url)["supportedInterfaces"]


def test_what_is_declared_is_what_is_served(tmp_path: Path) -> None:
    told = made(tmp_path)
    assert told["capabilities"] == {"streaming": True, "pushNotifications": True, "extendedAgentCard": False}
    assert made(tmp_path, tokens=True)["capabilities"]["extendedAgentCard"] is True
    assert made(tmp_path, push=False)["capabilities"]["pushNotifications"] is False
    subscribing = {"1.0": "SubscribeToTask", "0.3": "tasks/resubscribe"}
    for version in {face["protocolVersion"] for face in told["supportedInterfaces"]} | {told["protocolVersion"]}:
        assert negotiate(version, None, subscribing[version]) == version


def test_a_client_that_has_it_is_told_so() -> None:
    tag = cache_headers(b"card")["etag"]
    assert "max-age" in cache_headers(b"card")["cache-control"]
    assert cache_headers(b"card")["etag"] == tag != cache_headers(b"another")["etag"]
    assert all(not_modified(sent, tag) for sent in (tag, f"W/{tag}", f'"x", {tag}', "*"))
    assert not any(not_modified(sent, tag) for sent in (None, "", '"x"', tag.strip('"'), "W/"))
