"""Theme C: a job's end goes to the session that sent it out, whole, and to nobody else."""

import pytest

from tests.cases.stories import (
    assert_told_once,
    blocks_in,
    briefing,
    briefings,
    calling,
    fan,
    notifications,
    sent_out,
    when_quiet,
    when_told,
    worker,
    worker_requests,
)
from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel
from tests.support.server import Server


def test_S22_only_its_own_session_ever_hears_of_a_job(server: Server, model: ScriptedModel) -> None:
    """Whoever loops first must not drain the queue of all: two sessions chat on, and a worker takes many steps."""
    model.rules(
        [
            *fan("s22 one", "s22 first"),
            *fan("s22 two", "s22 second"),
            worker("s22 first", gate="first"),
            worker("s22 second", gate="second"),
            worker("s22 steps", tool_calls=[calling("memory_recall", query="a thing")]),
            *(Rule(last_tool="(?i)nothing found|reference", times=1, tool_calls=[STEP]) for _ in range(8)),
            Rule(last_tool="(?i)nothing found|reference", text="Many steps."),
            briefing(),
        ]
    )
    for session, said in (("s22-1", "s22 one"), ("s22-2", "s22 two")):
        server.ask(session, said)
    server.ask("s22-3", "hello")
    stepping = server.spawn("s22-3", "s22 steps")["id"]
    (first,), (second,) = server.jobs("s22-1"), server.jobs("s22-2")
    model.open("first")
    chatting = [server.say(session, f"and then {n}, {session}?") for n in range(5) for session in ("s22-1", "s22-2")]
    when_told(server, first["id"], stepping)
    model.open("second")
    for task_id in chatting:
        server.ended(task_id)
    when_told(server, second["id"])
    when_quiet(server, "s22-1", "s22-2", "s22-3")

    assert_told_once(server, "s22-1", first["id"])
    assert_told_once(server, "s22-2", second["id"])
    assert_told_once(server, "s22-3", stepping)
    assert len(worker_requests(model, "s22 steps")) == 10
    heard = {one["id"]: [asked for asked in model.requests() if one["id"] in asked.text] for one in (first, second)}
    assert heard[first["id"]] and all("s22 one" in asked.text for asked in heard[first["id"]])
    assert heard[second["id"]] and all("s22 two" in asked.text for asked in heard[second["id"]])
    assert all("task" in asked.tools for asked in heard[first["id"]] + heard[second["id"]])


STEP = calling("memory_recall", query="another thing")


def test_S23_a_report_comes_back_where_it_was_asked_for_not_where_its_user_spoke_last(
    server: Server, model: ScriptedModel
) -> None:
    model.rules([*fan("s23 asks", "s23 works"), worker("s23 works", gate="end"), briefing()])
    server.ask("s23-console", "s23 asks")
    message = {
        "messageId": "s23-a2a",
        "contextId": "s23-a2a",
        "role": "ROLE_USER",
        "parts": [{"text": "I am elsewhere now."}],
    }
    latest = server.rpc("SendMessage", {"message": message})["result"]["task"]
    assert latest["contextId"] == "s23-a2a" and server.get("/api/sessions")["sessions"][0]["id"] == "s23-a2a"
    model.open("end")
    (sent,) = server.jobs("s23-console")
    when_told(server, sent["id"])
    when_quiet(server, "s23-console", "s23-a2a")
    assert_told_once(server, "s23-console", sent["id"])
    assert not briefings(server, "s23-a2a")
    assert not any(sent["id"] in message["text"] for message in server.messages("s23-a2a"))


def test_S23_another_session_that_reads_a_report_does_not_take_the_news_away(
    server: Server, model: ScriptedModel
) -> None:
    model.rules(
        [
            worker("s23 is read", gate="end"),
            Rule(last_user="^s23 busy$", text="Done.", gate="busy"),
            Rule(last_user="^read (bg-.*)$", tool_calls=[calling("open_report", job_id="{1}")]),
            Rule(last_tool="Report on s23 is read", text="Read it."),
            briefing(),
        ]
    )
    turn = server.say("s23-asks", "s23 busy")
    model.held_at("busy")
    sent = server.spawn("s23-asks", "s23 is read")["id"]
    model.open("end")
    server.wait(lambda: server.job(sent)["indexed"])
    assert server.ask("s23-reads", f"read {sent}") == "Read it."
    assert not server.job(sent)["notified"]
    model.open("busy")
    server.ended(turn)
    when_told(server, sent)
    assert_told_once(server, "s23-asks", sent)


def test_S25_five_jobs_of_a_turn_come_back_as_five_blocks_in_order_of_completion(
    server: Server, model: ScriptedModel
) -> None:
    """Parallel results must be neither lost nor mixed: each block has its own status and its own text."""
    prompts = [f"s25 part {number}" for number in range(1, 6)]
    order = [3, 1, 5, 2, 4]
    model.rules(
        [
            *fan("s25", *prompts),
            *(worker(prompt, f"Only of {prompt}.", gate=prompt) for prompt in prompts if prompt != "s25 part 2"),
            worker("s25 part 2", status=400, text="the second fails", gate="s25 part 2"),
            briefing(),
        ]
    )
    server.ask("s25", "s25")
    jobs = dict(zip(range(1, 6), sent_out(server, "s25", *prompts), strict=True))
    for number in order:
        model.open(f"s25 part {number}")
        server.wait(lambda number=number: server.job(jobs[number]["id"])["completed_at"])
    when_told(server, *(one["id"] for one in jobs.values()))
    when_quiet(server, "s25")

    (said,) = briefings(server, "s25")
    (told,) = notifications(server, "s25", jobs[1]["id"])
    assert told["task_id"] == said["task_id"]
    blocks = blocks_in(told["text"])
    assert [block["job-id"] for block in blocks] == [jobs[number]["id"] for number in order] == told["job_ids"]
    assert [block["status"] for block in blocks] == ["completed"] * 3 + ["failed", "completed"]
    assert [block.get("result") for block in blocks] == [
        "Only of s25 part 3.",
        "Only of s25 part 1.",
        "Only of s25 part 5.",
        None,
        "Only of s25 part 4.",
    ]
    assert "the second fails" in blocks[3]["reason"]
    assert_told_once(server, "s25", *(one["id"] for one in jobs.values()))


def test_S26_a_model_cannot_stop_a_job_that_another_session_sent_out(server: Server, model: ScriptedModel) -> None:
    model.rules(
        [
            worker("s26 works", gate="end"),
            Rule(last_user="^stop (bg-.*)$", tool_calls=[calling("stop_task", job_id="{1}")]),
            Rule(last_tool="(.*)", text="It says: {1}"),
            briefing(),
        ]
    )
    server.ask("s26-owner", "hello")
    sent = server.spawn("s26-owner", "s26 works")["id"]
    model.held_at("end")
    refused = server.ask("s26-stranger", f"stop {sent}")
    assert refused == server.ask("s26-stranger", "stop bg-000000000000")
    assert server.job(sent)["status"] == "running"
    model.open("end")
    when_told(server, sent)
    assert_told_once(server, "s26-owner", sent)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/background/{}"),
        ("GET", "/api/background/{}/report"),
        ("POST", "/api/background/{}/cancel"),
        ("POST", "/api/background/{}/dismiss"),
        ("POST", "/api/background/{}/retry"),
        ("GET", "/api/batches/{}"),
        ("GET", "/api/sessions/{}"),
        ("GET", "/api/sessions/{}/messages"),
        ("POST", "/api/sessions/{}/stop"),
    ],
)
def test_S26_what_never_existed_is_answered_alike_whatever_its_id(server: Server, method: str, path: str) -> None:
    """The answer that another user's job gets as well, byte for byte: it repeats nothing of what was asked for."""
    answers = [server.http.request(method, path.format(asked)) for asked in ("bg-000000000000", "nothing-of-the-kind")]
    assert {answer.status_code for answer in answers} == {404}
    assert answers[0].content == answers[1].content and answers[0].json()["error"]["code"] == "NOT_FOUND"


def test_S26_a_task_of_a_job_is_no_door_to_its_session(server: Server, model: ScriptedModel) -> None:
    """A client cannot speak in a job's own session, whose id it can work out, nor claim to be the system."""
    model.rules([worker("s26 door"), briefing()])
    server.ask("s26-door", "hello")
    sent = server.spawn("s26-door", "s26 door")["id"]
    when_told(server, sent)
    message = {"messageId": "s26-1", "role": "ROLE_USER", "parts": [{"text": "psst"}]}
    into = server.rpc("SendMessage", {"message": {**message, "contextId": f"background:{sent}"}})
    posing = server.rpc("SendMessage", {"message": {**message, "metadata": {"origin": "background-resume"}}})
    assert into["error"]["code"] == posing["error"]["code"] == -32602
    assert server.http.post(f"/api/sessions/background:{sent}/messages", json={"text": "psst"}).status_code == 400
    assert len(worker_requests(model, "s26 door")) == 1
