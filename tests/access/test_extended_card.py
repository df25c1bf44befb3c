"""A96: the extended card is each user's own, for who shows a token, over every binding; it says no more than it should."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.client import Client
from a2a.compat.v0_3.types import AgentCard as AgentCard03
from a2a.types import a2a_pb2 as types
from google.protobuf.json_format import MessageToDict, ParseDict

from tests.a2a.javascript import JavaScriptClient
from tests.a2a.over_grpc import Grpc
from tests.access.people import Person
from tests.support.server import Server
from web import a2a_card

Json = dict[str, Any]
Ask = Callable[[Person], httpx.Response]
VERSION = {"A2A-Version": "1.0"}


def envelope(method: str) -> Json:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {}}


def by_jsonrpc(person: Person) -> httpx.Response:
    return person.send("POST", "/a2a", VERSION, json=envelope("GetExtendedAgentCard"))


def by_rest(person: Person) -> httpx.Response:
    return person.send("GET", "/a2a/rest/extendedAgentCard", VERSION)


def by_0_3(person: Person) -> httpx.Response:
    return person.send("POST", "/a2a", json=envelope("agent/getAuthenticatedExtendedCard"))


ROADS: list[Ask] = [by_jsonrpc, by_rest, by_0_3]


def card(answer: httpx.Response) -> Json:
    assert answer.status_code == 200, answer.text
    return answer.json().get("result", answer.json())


def own(told: Json) -> Json:
    """What the card says of its user alone."""
    (extension,) = told["capabilities"]["extensions"]
    assert not extension.get("required")
    return extension["params"]


@pytest.mark.parametrize("road", ROADS)
def test_a96_who_shows_no_token_that_holds_gets_none(nobody: Person, revoked: Person, road: Ask) -> None:
    for person in (nobody, revoked):
        answer = road(person)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert "subagents" not in answer.text


@pytest.mark.parametrize("road", ROADS)
def test_a96_each_user_gets_his_own_and_no_cache_keeps_it(alice: Person, bob: Person, road: Ask) -> None:
    answers = {name: road(person) for name, person in (("alice", alice), ("bob", bob))}
    for name, answer in answers.items():
        assert own(card(answer))["user"] == name
        assert answer.headers["cache-control"] == "no-store" and "etag" not in answer.headers


def test_a96_over_grpc_it_is_the_same(guarded: Server, nobody: Person, alice: Person) -> None:
    grpc = Grpc()
    assert grpc.ask(guarded, "GetExtendedAgentCard", {}).reason == "UNAUTHENTICATED"
    told = grpc.ask(guarded, "GetExtendedAgentCard", {}, authorization=f"Bearer {alice.token}").result
    other = card(by_jsonrpc(alice))
    assert own(told) == own(other)
    assert told["supportedInterfaces"] == other["supportedInterfaces"]


def test_a97_the_card_for_everybody_offers_it_in_the_words_of_both_versions(nobody: Person, alice: Person) -> None:
    public = nobody.get(a2a_card.PATH).json()
    assert public["capabilities"]["extendedAgentCard"] is public["supportsAuthenticatedExtendedCard"] is True
    assert "extensions" not in public["capabilities"]
    extended, former = card(by_rest(alice)), card(by_0_3(alice))
    ParseDict(extended, types.AgentCard(), ignore_unknown_fields=False)  # each version in its own words alone
    assert AgentCard03.model_validate(former).supports_authenticated_extended_card
    former["capabilities"].pop("extensions")
    assert former == public


def test_what_it_says_is_what_holds(guarded: Server, alice: Person) -> None:
    """The skills that she may use, what may be kept of each, what bounds her; and nothing of how it is done."""
    told = own(card(by_rest(alice)))
    assert told["skills"].keys() == {skill["id"] for skill in card(by_rest(alice))["skills"]} == {"chat", "echo"}
    assert {rules["answerLevel"] for rules in told["skills"].values()} == {"full"}
    assert told["subagents"].keys() >= {"researcher", "general"}
    assert told["api"] == f"{guarded.url}/api" and alice.get("/api/sessions").status_code == 200
    assert told["limits"]["parts"] == 64
    text = by_rest(alice).text
    assert not [word for word in ("offline", "memory_recall", "You are", alice.token) if word in text]


@asynccontextmanager
async def talking(person: Person, binding: str) -> AsyncIterator[Client]:
    """The official client with this person's token."""
    async with httpx.AsyncClient(timeout=20, trust_env=False, headers=person.headers) as http:
        public = await A2ACardResolver(http, person.server.url).get_agent_card()
        if binding == "0.3":
            former = [face for face in public.supported_interfaces if face.protocol_version == "0.3"]
            del public.supported_interfaces[:]
            public.supported_interfaces.extend(former)
            binding = "JSONRPC"
        config = ClientConfig(httpx_client=http, supported_protocol_bindings=[binding])
        async with ClientFactory(config).create(public) as client:
            yield client


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON", "0.3"])
def test_the_official_client_fetches_it(alice: Person, binding: str, run: Callable[..., Any]) -> None:
    async def story() -> types.AgentCard:
        async with talking(alice, binding) as client:
            return await client.get_extended_agent_card(types.GetExtendedAgentCardRequest())

    assert own(MessageToDict(run(story())))["user"] == "alice"


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON", "0.3"])
def test_the_javascript_client_fetches_it(alice: Person, binding: str) -> None:
    with JavaScriptClient(alice.server.url, binding, alice.token) as client:
        assert own(client.call("extendedCard"))["user"] == "alice"
