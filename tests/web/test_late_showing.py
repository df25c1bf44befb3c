"""What was asked for is committed and is not shown in time: the client is told so with the task's id, and may look later."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, FunctionModel

from background import journal
from web import a2a_methods
from web.app import build
from web.setting_fields import Settings

MESSAGE = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}


async def rpc(http: httpx.AsyncClient, method: str, params: dict[str, Any]) -> httpx.Response:
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return await http.post("/a2a", json=request, headers={"A2A-Version": "1.0"})


async def held(*_: Any) -> None:
    """A projector that shows nothing."""
    await asyncio.Event().wait()


@pytest.mark.parametrize("late", ["cancel", "message"])
def test_a_committed_cancel_or_message_that_is_not_shown_in_time_is_an_error_with_the_tasks_id(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, late: str
) -> None:
    """F053's error; what was committed stays so, and is seen once it is projected."""
    monkeypatch.setattr(journal, "run_projector", held)
    monkeypatch.setattr(a2a_methods, "CANCEL_WAIT_S", 0.2)

    async def story() -> None:
        asked, go_on = asyncio.Event(), asyncio.Event()

        async def think(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str]:
            asked.set()
            await go_on.wait()
            yield "done"

        settings = Settings(data=tmp_path, port=18_491)
        async with build(settings, FunctionModel(stream_function=think)).running() as outrider:
            there = httpx.ASGITransport(app=outrider.app, client=("127.0.0.1", 9))
            async with httpx.AsyncClient(transport=there, base_url="http://127.0.0.1:18491") as http:
                sent = {"message": MESSAGE, "configuration": {"returnImmediately": True}}
                task = (await rpc(http, "SendMessage", sent)).json()["result"]["task"]["id"]
                await asked.wait()
                more = {**sent, "message": {**MESSAGE, "messageId": "m-2", "taskId": task}}
                asking = ("CancelTask", {"id": task}) if late == "cancel" else ("SendMessage", more)
                refused = await rpc(http, *asking)
                told = refused.json()["error"]
                assert (refused.status_code, told["code"]) == (504, -32603)
                (info,) = (detail for detail in told["data"] if detail["@type"].endswith("ErrorInfo"))
                assert (info["reason"], info["metadata"]["taskId"]) == ("BLOCKING_DEADLINE_EXCEEDED", task)
                while await outrider.house.db.write(journal.project):
                    pass
                seen = (await rpc(http, "GetTask", {"id": task})).json()["result"]
                if late == "cancel":
                    assert seen["status"]["state"] == "TASK_STATE_CANCELED"
                else:
                    assert [said["messageId"] for said in seen["history"]] == ["m-1", "m-2"]
                go_on.set()

    run(story())
