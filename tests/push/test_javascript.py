"""The protocol's JavaScript client keeps webhooks of a task, and what it names is called."""

import pytest

from tests.a2a import wire
from tests.a2a.javascript import JavaScriptClient, Refused
from tests.support.receiver import Receiver
from tests.support.scripted import ScriptedModel
from tests.support.server import Server


@pytest.fixture(params=["JSONRPC", "HTTP+JSON"])
def binding(request: pytest.FixtureRequest) -> str:
    return request.param


def test_it_makes_reads_lists_and_removes_webhooks_and_a_call_reaches_one(
    server: Server, binding: str, model: ScriptedModel
) -> None:
    model.rules([{"gate": "g", "text": "done"}])
    task = wire.start(server, wire.said("slowly"))
    with Receiver() as receiver, JavaScriptClient(server.url, binding) as client:
        made = client.call("createTaskPushNotificationConfig", taskId=task["id"], id="mine", url=receiver.url)
        other = client.call("createTaskPushNotificationConfig", taskId=task["id"], id="other", url=receiver.url)
        assert (made["id"], made["url"]) == ("mine", receiver.url)
        assert client.call("getTaskPushNotificationConfig", taskId=task["id"], id="mine") == made
        assert client.call("listTaskPushNotificationConfig", taskId=task["id"])["configs"] == [made, other]
        client.call("deleteTaskPushNotificationConfig", taskId=task["id"], id="other")
        with pytest.raises(Refused) as gone:
            client.call("getTaskPushNotificationConfig", taskId=task["id"], id="other")
        model.open("g")
        receiver.wait_for("COMPLETED")
        assert {call.told for call in receiver.calls} == {"artifact", "COMPLETED"}
    assert gone.value.name == "TaskNotFoundError"


def test_a_webhook_that_comes_with_a_message_hears_of_all_that_follows(
    server: Server, binding: str, model: ScriptedModel
) -> None:
    model.rules([{"text": "done"}])
    with Receiver() as receiver, JavaScriptClient(server.url, binding) as client:
        configuration = {"taskPushNotificationConfig": {"url": receiver.url}}
        client.call("sendMessage", message=wire.said("now"), configuration=configuration)
        receiver.wait_for("COMPLETED")
        assert [call.told for call in receiver.calls][-2:] == ["artifact", "COMPLETED"]
