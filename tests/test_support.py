"""The scripted model and the test clock keep their word: everything else that is tested rests on them."""

import json
import threading
from collections.abc import Iterator
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from pydantic_ai import Agent

from tests.support.clock import START, Clock
from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel
from tests.support.server import free_port, wait


@pytest.fixture
def client(scripted: ScriptedModel) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=scripted.base_url, timeout=10, trust_env=False) as client:
        yield client


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def ask(client: httpx.Client, *messages: dict[str, Any], **more: Any) -> httpx.Response:
    return client.post("/chat/completions", json={"model": "m", "messages": list(messages), **more})


def said(response: httpx.Response) -> str:
    return response.json()["choices"][0]["message"]["content"]


def streamed(response: httpx.Response) -> list[dict[str, Any]]:
    """The chunks of a stream that came to its proper end."""
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def test_the_first_rule_that_fits_answers_as_often_as_it_may(scripted: ScriptedModel, client: httpx.Client) -> None:
    scripted.rules(
        [
            {"last_user": "weather in (\\w+)", "text": "rain in {1}", "times": 1},
            {"last_user": "weather", "text": "no more weather"},
            {"anywhere": "system says", "text": "heard the system"},
        ]
    )
    assert said(ask(client, user("weather in Ghent?"))) == "rain in Ghent"
    assert said(ask(client, user("weather in Ghent?"))) == "no more weather"
    assert said(ask(client, {"role": "system", "content": "the system says"}, user("x"))) == "heard the system"
    assert said(ask(client, user([{"type": "text", "text": "else"}]))) == "ok"  # type: ignore[arg-type]
    assert [asked.rule for asked in scripted.requests()] == [0, 1, 2, None]


def test_a_rule_for_the_users_words_does_not_answer_a_tools_result(
    scripted: ScriptedModel, client: httpx.Client
) -> None:
    scripted.rules([Rule(last_user="look", text="again"), Rule(last_tool="found (\\d+)", text="so {1}")])
    call = {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "look", "arguments": "{}"}}]}
    result = {"role": "tool", "tool_call_id": "c", "content": "found 12"}
    assert said(ask(client, user("look"))) == "again"
    assert said(ask(client, user("look"), call, result)) == "so 12"


def test_a_rule_can_ask_for_a_tool_on_offer_and_for_words_that_are_absent(
    scripted: ScriptedModel, client: httpx.Client
) -> None:
    scripted.rules([Rule(tool_offered="task", not_anywhere="done", text="chat")])
    tools = [{"type": "function", "function": {"name": "task", "parameters": {}}}]
    assert said(ask(client, user("x"), tools=tools)) == "chat"
    assert said(ask(client, user("done"), tools=tools)) == "ok"
    assert said(ask(client, user("x"))) == "ok"
    assert scripted.requests()[0].tools == {"task"}


def test_tool_calls_have_the_ids_that_the_script_gives_and_else_their_own(
    scripted: ScriptedModel, client: httpx.Client
) -> None:
    scripted.rules(
        [
            Rule(last_user="same (\\w+)", tool_calls=[{"name": "look", "arguments": {"at": "{1}"}, "id": "call_0"}]),
            Rule(last_user="own", tool_calls=[{"name": "look"}, {"name": "look"}]),
        ]
    )
    calls = [
        call
        for text in ("same a", "same b", "own", "own")
        for call in ask(client, user(text)).json()["choices"][0]["message"]["tool_calls"]
    ]
    assert [call["id"] for call in calls[:2]] == ["call_0", "call_0"]
    assert json.loads(calls[1]["function"]["arguments"]) == {"at": "b"}
    assert len({call["id"] for call in calls[2:]}) == 4


def test_a_stream_carries_reasoning_text_calls_usage_and_the_reason(
    scripted: ScriptedModel, client: httpx.Client
) -> None:
    scripted.rules(
        [
            Rule(
                reasoning="hm",
                text="long: ",
                repeat=("ab", 5000),
                tool_calls=[{"name": "look", "id": "c1"}],
                usage={"prompt_tokens": 7, "completion_tokens": 3},
                finish_reason="length",
            )
        ]
    )
    chunks = streamed(ask(client, user("x"), stream=True))
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    assert "".join(delta.get("content", "") for delta in deltas) == "long: " + "ab" * 5000
    assert [delta["reasoning_content"] for delta in deltas if "reasoning_content" in delta] == ["hm"]
    assert [delta["tool_calls"][0]["id"] for delta in deltas if "tool_calls" in delta] == ["c1"]
    assert chunks[-2]["choices"][0]["finish_reason"] == "length"
    assert chunks[-1]["usage"] == {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


def test_an_answer_of_reasoning_alone_has_no_text(scripted: ScriptedModel, client: httpx.Client) -> None:
    scripted.rules([Rule(reasoning="only thought")])
    message = ask(client, user("x")).json()["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("only thought", "")


def test_a_status_comes_with_its_headers(scripted: ScriptedModel, client: httpx.Client) -> None:
    scripted.rules([Rule(status=429, headers={"Retry-After": "2"}, text="slow down", times=1)])
    refused = ask(client, user("x"))
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "2")
    assert refused.json()["error"]["message"] == "slow down"
    assert said(ask(client, user("x"))) == "ok"


@pytest.mark.parametrize("stream", [True, False])
def test_a_cut_answer_ends_in_a_dropped_connection(scripted: ScriptedModel, client: httpx.Client, stream: bool) -> None:
    scripted.rules([Rule(text="0123456789" * 100, cut_after=105)])
    body = {"messages": [user("x")], "stream": stream}
    got = ""
    with (
        client.stream("POST", "/chat/completions", json=body) as response,
        pytest.raises(httpx.RemoteProtocolError),
    ):
        for piece in response.iter_text():
            got += piece
    if stream:
        deltas = [json.loads(line[6:])["choices"][0]["delta"] for line in got.splitlines() if line]
        got = "".join(delta.get("content", "") for delta in deltas)
    assert len(got) == 105


def test_an_answer_that_hangs_keeps_the_line_open_until_the_caller_hangs_up(
    scripted: ScriptedModel, client: httpx.Client
) -> None:
    scripted.rules([Rule(text="x" * 100, hang_after=50)])
    with pytest.raises(httpx.ReadTimeout):
        ask_briefly = httpx.Timeout(10, read=0.3)
        client.post("/chat/completions", json={"messages": [user("x")], "stream": True}, timeout=ask_briefly)
    assert scripted.wait_for(lambda asked: asked[0].gone_at)


def test_a_gate_holds_the_answer_until_the_test_opens_it(
    scripted: ScriptedModel, client: httpx.Client, pool: ThreadPoolExecutor
) -> None:
    scripted.rules([Rule(last_user="slow", gate="g", text="at last"), Rule(text="at once")])
    answer: Future[httpx.Response] = pool.submit(ask, client, user("slow"))
    held = scripted.held_at("g")
    assert held.answered_at is None and not answer.done()
    assert said(ask(client, user("quick"))) == "at once"
    scripted.open("g")
    assert said(answer.result(10)) == "at last"
    assert held.answered_at is not None and held.answered_at >= held.at
    assert said(ask(client, user("slow again"))) == "at last"


def test_what_is_to_recover_does_so_once_the_test_says_so(scripted: ScriptedModel, client: httpx.Client) -> None:
    scripted.rules([Rule(until="well", status=500), Rule(text="well again")])
    assert [ask(client, user("x")).status_code for _ in range(2)] == [500, 500]
    scripted.open("well")
    assert said(ask(client, user("x"))) == "well again"


def test_a_caller_that_is_gone_no_longer_stands_at_the_gate(scripted: ScriptedModel, client: httpx.Client) -> None:
    scripted.rules([Rule(gate="g")])
    with pytest.raises(httpx.ReadTimeout):
        client.post("/chat/completions", json={"messages": [user("x")]}, timeout=httpx.Timeout(10, read=0.3))
    assert scripted.wait_for(lambda asked: asked[0].gone_at)
    with pytest.raises(AssertionError, match="hung up on"):
        scripted.held_at("g", timeout=0.05)


def test_new_rules_forget_what_was_asked_and_let_the_waiting_go(
    scripted: ScriptedModel, client: httpx.Client, pool: ThreadPoolExecutor
) -> None:
    scripted.rules([Rule(gate="g", text="old")])
    answer = pool.submit(ask, client, user("x"))
    scripted.held_at("g")
    scripted.rules([])
    assert said(answer.result(10)) == "old"
    assert scripted.requests() == []


def test_waiting_for_a_request_ends_with_what_was_asked_instead(scripted: ScriptedModel, client: httpx.Client) -> None:
    later = threading.Timer(0.05, ask, (client, user("knock knock")))
    later.start()
    assert scripted.wait_for(lambda asked: [one.last_user for one in asked]) == ["knock knock"]
    later.join()
    with pytest.raises(AssertionError, match="knock knock"):
        scripted.wait_for(lambda asked: len(asked) == 2, timeout=0.05)


def test_closing_the_model_leaves_nobody_waiting(pool: ThreadPoolExecutor) -> None:
    with ScriptedModel([Rule(gate="never")]) as model:
        waiting = pool.submit(httpx.post, f"{model.base_url}/chat/completions", json={"messages": [user("x")]})
        model.held_at("never")
    assert not futures.wait([waiting], timeout=10).not_done


def test_the_agent_library_understands_the_model(
    scripted: ScriptedModel, monkeypatch: pytest.MonkeyPatch, run: Any
) -> None:
    """The real client of the protocol, streaming, with a tool: what the product will send and read."""
    monkeypatch.setenv("OPENAI_BASE_URL", scripted.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    scripted.rules(
        [
            Rule(last_user="six", tool_calls=[{"name": "times_seven", "arguments": {"number": 6}}]),
            Rule(last_tool="(\\d+)", text="it is {1}"),
        ]
    )
    agent = Agent("openai-chat:scripted")
    agent.tool_plain(name="times_seven")(lambda number: str(int(number) * 7))

    async def story() -> tuple[str, int]:
        # Entering the agent closes its connections; what is left open is a warning, and warnings are errors.
        async with agent, agent.run_stream("six times seven?") as answer:
            return await answer.get_output(), answer.usage.input_tokens

    assert run(story()) == ("it is 42", 20)
    assert [asked.body["stream"] for asked in scripted.requests()] == [True, True]


def test_the_clock_moves_only_when_told() -> None:
    clock = Clock()
    assert clock() == clock() == START
    assert clock.advance(1.5) == clock() == START + 1_500_000


def test_waiting_returns_the_answer_or_says_what_it_saw() -> None:
    answers = iter([0, "", "here"])
    assert wait(lambda: next(answers), timeout=5) == "here"
    with pytest.raises(AssertionError, match=r"still \[\] after 0\.05 s\nthe log"):
        wait(list, timeout=0.05, what=lambda: "the log")


def test_a_free_port_can_be_bound() -> None:
    assert free_port() != free_port()
