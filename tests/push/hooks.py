"""The words in which these stories are told: a message with a webhook, the four methods, and what became of the calls."""

from typing import Any

from a2a.types import a2a_pb2 as types

from tests.a2a import wire
from tests.support.receiver import Receiver
from tests.support.server import Server

Json = dict[str, Any]
WHOLE = ["SUBMITTED", "WORKING", "artifact", "COMPLETED"]


def hook(receiver: Receiver | str, **more: Any) -> Json:
    """A config that leads to this receiver, or address."""
    return {"url": receiver if isinstance(receiver, str) else receiver.url, **more}


def inline(config: Json, **more: Any) -> Json:
    """A send's configuration with a webhook in it, which returns at once."""
    return {"taskPushNotificationConfig": config, "returnImmediately": True, **more}


def echo(server: Server, config: Json, text: str = "hello", **configuration: Any) -> str:
    """A message to the echo profile, with a webhook. Its task's id."""
    sent = {"message": wire.message(text), "configuration": inline(config, **configuration)}
    return wire.result(wire.post(server, "SendMessage", sent))["task"]["id"]


def method(server: Server, name: str, **params: Any) -> Json:
    """One of the four methods, which must succeed: `method(server, "Get", taskId=…, id=…)`."""
    whole = f"{name}TaskPushNotificationConfig{'s' if name == 'List' else ''}"
    found = wire.result(wire.post(server, whole, params))
    kinds = {"List": types.ListTaskPushNotificationConfigsResponse()}
    if name != "Delete":
        wire.strictly(found, kinds.get(name) or types.TaskPushNotificationConfig())
    return found


def refused(server: Server, name: str, **params: Any) -> tuple[int, int, str]:
    """(HTTP status, code, reason) of one of the four methods."""
    whole = f"{name}TaskPushNotificationConfig{'s' if name == 'List' else ''}"
    return wire.told(wire.post(server, whole, params))


def deliveries(server: Server, task_id: str, webhook_id: str | None = None, **filters: Any) -> list[Json]:
    """What became of a webhook's calls, the oldest first."""
    found = server.get(f"/api/webhooks/{task_id}/{webhook_id or task_id}/deliveries", **filters)
    return found["deliveries"][::-1]


def states(server: Server, task_id: str, webhook_id: str | None = None) -> list[str]:
    return [delivery["state"] for delivery in deliveries(server, task_id, webhook_id)]
