"""A67, A103, F074: over A2A 0.3 another's task is no task either, and a list has only one's own."""

import json
from typing import Any

import pytest

from tests.a2a import former
from tests.access.people import Person


def asked(person: Person, method: str, params: dict[str, Any]) -> str:
    """The answer to one call of version 0.3, as it was written."""
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return person.send("POST", "/a2a", json=request).text


def message(task_id: str) -> dict[str, Any]:
    sent = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "more"}], "taskId": task_id}
    return former.message(sent)


CONFIG = {"url": "https://93.184.216.34/"}
TASK, UNKNOWN = "<task>", "a-task-that-nobody-has"


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tasks/get", {"id": TASK}),
        ("tasks/cancel", {"id": TASK}),
        ("tasks/resubscribe", {"id": TASK}),
        ("message/send", {"message": message(TASK)}),
        ("message/stream", {"message": message(TASK)}),
        ("tasks/pushNotificationConfig/set", {"taskId": TASK, "pushNotificationConfig": CONFIG}),
        ("tasks/pushNotificationConfig/get", {"id": TASK, "pushNotificationConfigId": "c"}),
        ("tasks/pushNotificationConfig/list", {"id": TASK}),
        ("tasks/pushNotificationConfig/delete", {"id": TASK, "pushNotificationConfigId": "c"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a67_anothers_task_is_answered_byte_for_byte_like_one_that_nobody_has(
    alice: Person, bob: Person, method: str, params: dict[str, Any]
) -> None:
    task = alice.echoed("a67-former")["id"]
    whole = json.dumps(params)
    foreign, unknown = (asked(bob, method, json.loads(whole.replace(TASK, name))) for name in (task, UNKNOWN))
    assert foreign.replace(task, UNKNOWN) == unknown
    assert json.loads(unknown)["error"]["code"] == -32001


def test_a103_a_list_has_only_ones_own_and_a_page_token_is_its_owners(alice: Person, bob: Person) -> None:
    for text in ("one", "two"):
        alice.echoed("a103", text)
    context = {"contextId": "a103", "pageSize": 1}
    page = json.loads(asked(alice, "tasks/list", context))["result"]
    assert page["totalSize"] == 2 and page["tasks"][0]["contextId"] == "a103"
    assert json.loads(asked(bob, "tasks/list", context))["result"]["tasks"] == []
    stolen = json.loads(asked(bob, "tasks/list", context | {"pageToken": page["nextPageToken"]}))
    assert stolen["error"]["code"] == -32602


def test_f074_nobody_is_served_without_a_token(nobody: Person) -> None:
    answer = nobody.send("POST", "/a2a", json={"jsonrpc": "2.0", "id": 1, "method": "tasks/list", "params": {}})
    assert answer.status_code == 401 and answer.json()["error"]["code"] == -32041


def test_a97_the_card_names_the_token_for_clients_of_either_version(nobody: Person) -> None:
    card = nobody.get("/.well-known/agent-card.json").json()
    assert card["security"] == [{"token": []}] and card["securityRequirements"] == [
        {"schemes": {"token": {"list": []}}}
    ]
    assert card["securitySchemes"]["token"] | {"type": "http", "scheme": "Bearer"} == card["securitySchemes"]["token"]
