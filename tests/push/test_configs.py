"""The four methods, and the config inside a send: whose they are, what they take, and what they never give back."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as types

from tests.a2a import wire
from tests.agent import hostile_addresses as hostile
from tests.push.hooks import echo, hook, inline, method, refused
from tests.support.receiver import Receiver
from tests.support.server import Server

PUBLIC = "https://203-0-113-1.example/hook"  # a name that leads nowhere
METHODS = ["Create", "Get", "List", "Delete"]


@pytest.fixture
def task(server: Server) -> str:
    """A task that has ended."""
    return wire.send(server, wire.message())["id"]


def test_a_config_is_made_read_listed_and_deleted(server: Server, task: str) -> None:
    """F083."""
    made = method(server, "Create", taskId=task, id="one", **hook(PUBLIC))
    assert made == {"taskId": task, "id": "one", "url": PUBLIC}
    assert method(server, "Get", taskId=task, id="one") == made
    assert method(server, "List", taskId=task) == {"configs": [made]}
    assert method(server, "Delete", taskId=task, id="one") == {}
    assert method(server, "List", taskId=task) == {"configs": []}
    assert refused(server, "Get", taskId=task, id="one") == (200, -32001, "TASK_NOT_FOUND")


def test_deleting_twice_is_deleting(server: Server, task: str) -> None:
    """F083: also what never was there."""
    method(server, "Create", taskId=task, id="one", **hook(PUBLIC))
    assert [method(server, "Delete", taskId=task, id=name) for name in ("one", "one", "never")] == [{}, {}, {}]


def test_a_config_without_an_id_has_the_tasks_and_asking_twice_is_once(server: Server, task: str) -> None:
    first = method(server, "Create", taskId=task, **hook(PUBLIC))
    assert first["id"] == task and method(server, "Create", taskId=task, **hook(PUBLIC)) == first
    assert len(method(server, "List", taskId=task)["configs"]) == 1


def test_a_config_of_the_same_id_replaces_the_one_before(server: Server, task: str) -> None:
    method(server, "Create", taskId=task, id="one", token="t", **hook(PUBLIC))
    method(server, "Create", taskId=task, id="one", **hook(f"{PUBLIC}/new"))
    assert [config["url"] for config in method(server, "List", taskId=task)["configs"]] == [f"{PUBLIC}/new"]


def test_a_list_comes_in_pages(server: Server, task: str) -> None:
    for name in "cadbe":
        method(server, "Create", taskId=task, id=name, **hook(PUBLIC))
    seen, token = "", ""
    while True:
        page = method(server, "List", taskId=task, pageSize=2, pageToken=token)
        seen += "".join(config["id"] for config in page["configs"])
        if not (token := page.get("nextPageToken", "")):
            break
        assert len(page["configs"]) == 2
    assert seen == "abcde"


def test_f073_the_token_of_a_page_holds_for_its_own_task_alone(server: Server, task: str) -> None:
    for name in "ab":
        method(server, "Create", taskId=task, id=name, **hook(PUBLIC))
    other = wire.send(server, wire.message())["id"]
    token = method(server, "List", taskId=task, pageSize=1)["nextPageToken"]
    for asked in ({"taskId": other, "pageToken": token}, {"taskId": task, "pageToken": "a"}):
        assert wire.told(wire.post(server, "ListTaskPushNotificationConfigs", asked))[1] == -32602


def test_a_task_has_sixteen_at_most(server: Server, task: str) -> None:
    for number in range(16):
        method(server, "Create", taskId=task, id=f"w{number}", **hook(PUBLIC))
    assert refused(server, "Create", taskId=task, id="one-more", **hook(PUBLIC))[1] == -32004
    method(server, "Create", taskId=task, id="w3", **hook(f"{PUBLIC}/other"))
    assert len(method(server, "List", taskId=task)["configs"]) == 16


@pytest.mark.parametrize("name", METHODS)
def test_a_task_that_is_not_there_has_none(server: Server, name: str) -> None:
    """A67, F074: and nothing tells it from another's."""
    given: dict[str, Any] = {"taskId": "11111111-2222-4333-8444-555555555555", "id": "one", **hook(PUBLIC)}
    assert refused(server, name, **given) == (200, -32001, "TASK_NOT_FOUND")


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("field", ["taskId", "id", "url"])
def test_what_is_missing_is_named(server: Server, task: str, name: str, field: str) -> None:
    given: dict[str, Any] = {"taskId": task, "id": "one", **hook(PUBLIC)}
    del given[field]
    needed = {"Create": {"taskId", "url"}, "List": {"taskId"}}.get(name, {"taskId", "id"})
    if field in needed:
        found = wire.error(wire.post(server, f"{name}TaskPushNotificationConfig{'s' * (name == 'List')}", given))
        assert found["code"] == -32602 and found["data"][1]["fieldViolations"][0]["field"] == field


# -- addresses


def test_A88_a_hostile_address_is_registered_nowhere(strict: Server) -> None:
    """F085: neither by the method nor inside a send, and nothing is stored."""
    task = wire.send(strict, wire.message())["id"]
    with wire.nothing_stored(strict):
        for url in hostile.ALL:
            assert refused(strict, "Create", taskId=task, **hook(url))[1] == -32602, url
            sent = {"message": wire.message(), "configuration": inline(hook(url))}
            assert wire.told(wire.post(strict, "SendMessage", sent))[1] == -32602, url
    assert method(strict, "List", taskId=task) == {"configs": []}


def test_A88_a_refusal_names_the_field_and_not_the_address(strict: Server) -> None:
    for params, field in (
        ({"message": wire.message(), "configuration": inline(hook("http://10.0.0.1/hush"))}, "SendMessage"),
        ({"message": wire.message(), "configuration": inline(hook("http://10.0.0.1/hush"))}, "SendStreamingMessage"),
    ):
        found = wire.error(wire.post(strict, field, params))
        where = found["data"][1]["fieldViolations"][0]["field"]
        assert where == "configuration.taskPushNotificationConfig.url" and "hush" not in str(found)


def test_A88_what_an_operator_has_opened_is_taken(server: Server, strict: Server, receiver: Receiver) -> None:
    assert echo(server, hook(receiver))
    sent = {"message": wire.message(), "configuration": inline(hook(receiver))}
    assert wire.told(wire.post(strict, "SendMessage", sent))[1] == -32602
    receiver.wait(4)


# -- secrets


def test_A93_credentials_go_in_and_never_come_out(own: Callable[..., Server], receiver: Receiver) -> None:
    """F083, F179: not by any answer, and in clear in neither log nor file, also when calls fail."""
    server = own()
    secrets = {"token": "tok-CANARY-1", "authentication": {"scheme": "Bearer", "credentials": "cre-CANARY-2"}}
    receiver.answers = [500]
    task = echo(server, hook(f"{receiver.url}?key=url-CANARY-3", **secrets))
    made = method(server, "Create", taskId=task, id="two", **hook(receiver, **secrets))
    receiver.wait(5)
    shown = [
        made,
        method(server, "Get", taskId=task, id=task),
        method(server, "List", taskId=task),
        server.get("/api/webhooks"),
        server.get(f"/api/webhooks/{task}/{task}/deliveries"),
        wire.get(server, task),
    ]
    assert made["authentication"] == {"scheme": "Bearer"} and "token" not in made
    for canary in ("tok-CANARY-1", "cre-CANARY-2"):
        assert canary not in str(shown)
    assert server.stop() == 0
    files = [path for path in server.data.rglob("*") if path.is_file()]
    assert any(path.name == "outrider.db" for path in files)
    for canary in (b"CANARY-1", b"CANARY-2", b"CANARY-3"):
        assert canary not in server.log().encode()
        assert [path for path in files if canary in path.read_bytes()] == []


# -- switched off


def test_A94_where_push_is_off_the_card_says_so_and_every_way_is_refused(own: Callable[..., Server]) -> None:
    server = own(OUTRIDER_PUSH="false")
    assert server.get("/.well-known/agent-card.json")["capabilities"]["pushNotifications"] is False
    task = wire.send(server, wire.message())["id"]
    off = (200, -32003, "PUSH_NOTIFICATION_NOT_SUPPORTED")
    with wire.nothing_stored(server):
        for name in METHODS:
            assert refused(server, name, taskId=task, id="one", **hook(PUBLIC)) == off
        for way in ("SendMessage", "SendStreamingMessage"):
            sent = {"message": wire.message(), "configuration": inline(hook(PUBLIC))}
            assert wire.told(wire.post(server, way, sent)) == off


# -- the protocol's own client


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
def test_the_official_client_makes_reads_lists_and_deletes(
    server: Server, task: str, run: Callable[..., Any], binding: str
) -> None:
    async def story() -> None:
        async with httpx.AsyncClient(timeout=20, trust_env=False) as http:
            card = await A2ACardResolver(http, server.url).get_agent_card()
            assert card.capabilities.push_notifications
            spoken = ClientConfig(httpx_client=http, supported_protocol_bindings=[binding])
            client = ClientFactory(spoken).create(card)
            asked = types.TaskPushNotificationConfig(task_id=task, id="official", url=PUBLIC, token="t")
            asked.authentication.scheme, asked.authentication.credentials = "Bearer", "c"
            made = await client.create_task_push_notification_config(asked)
            assert (made.task_id, made.id, made.url, made.token) == (task, "official", PUBLIC, "")
            assert made.authentication.scheme == "Bearer" and not made.authentication.credentials
            named = types.GetTaskPushNotificationConfigRequest(task_id=task, id="official")
            assert await client.get_task_push_notification_config(named) == made
            listed = await client.list_task_push_notification_configs(
                types.ListTaskPushNotificationConfigsRequest(task_id=task)
            )
            assert list(listed.configs) == [made]
            gone = types.DeleteTaskPushNotificationConfigRequest(task_id=task, id="official")
            await client.delete_task_push_notification_config(gone)
            await client.delete_task_push_notification_config(gone)

    run(story())
    assert method(server, "List", taskId=task) == {"configs": []}
