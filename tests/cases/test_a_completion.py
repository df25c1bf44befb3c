"""Theme A: a job's end reaches its session, whatever stands in the way."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from agent import sdk
from background import events
from tests.cases.stories import (
    assert_told_once,
    blocks_in,
    briefing,
    briefings,
    calling,
    chat_requests,
    fan,
    never_overlap,
    news_in,
    notifications,
    sent_out,
    told_in,
    turns_by_outrider,
    when_quiet,
    when_told,
    worker,
    worker_requests,
)
from tests.support.inside import Fault, Inside, Ticking
from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel
from tests.support.server import Server, answer_of

MakeInside = Callable[..., Inside]


def test_S01_jobs_that_end_while_their_session_is_in_a_turn_are_told_in_one_briefing_after_it(
    server: Server, model: ScriptedModel
) -> None:
    """A lost wake-up: the session was busy when its jobs ended, at the start of its turn and at the very end of it."""
    model.rules(
        [
            *fan("s01", "s01 fails", "s01 is quick", "s01 is late", gate="turn"),
            worker("s01 fails", status=400, text="no such thing"),
            worker("s01 is quick"),
            worker("s01 is late", gate="late"),
            briefing(),
        ]
    )
    turn = server.say("s01", "s01")
    model.held_at("turn")
    failed, quick, late = sent_out(server, "s01", "s01 fails", "s01 is quick", "s01 is late")
    server.wait(lambda: all(server.job(one["id"])["completed_at"] for one in (failed, quick)))
    model.open("late")
    model.open("turn")

    assert answer_of(server.ended(turn)) == "Sent out."
    when_told(server, failed["id"], quick["id"], late["id"], timeout=5)
    when_quiet(server, "s01")
    assert [said["text"] for said in briefings(server, "s01")] == ["Briefed."]
    assert_told_once(server, "s01", failed["id"], quick["id"], late["id"])
    assert never_overlap(chat_requests(model))


def test_S01_an_end_that_wakes_a_busy_session_waits_for_its_turn_and_is_not_refused(
    server: Server, model: ScriptedModel
) -> None:
    model.rules([Rule(last_user="^s01b$", text="Done.", gate="turn"), worker("s01 from outside"), briefing()])
    turn = server.say("s01b", "s01b")
    model.held_at("turn")
    sent = server.spawn("s01b", "s01 from outside")
    server.wait(lambda: turns_by_outrider(server, "s01b"))
    assert server.job(sent["id"])["delivery"]["state"] == "pending" and not briefings(server, "s01b")

    model.open("turn")
    assert answer_of(server.ended(turn)) == "Done."
    when_told(server, sent["id"], timeout=5)
    assert_told_once(server, "s01b", sent["id"])
    assert never_overlap(chat_requests(model))


async def dropped(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    raise ConnectionResetError("the line is dead")


async def unavailable(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse("upstream is away", 503)(scope, receive, send)


async def error_in_a_200(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    await JSONResponse({"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "no"}})(scope, receive, send)


def outlived(clock: Ticking) -> Fault:
    """The post arrives when its credential has expired."""

    async def late(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        clock.advance(61)
        await app(scope, receive, send)

    return late


@pytest.mark.parametrize("how", ["dropped", "503", "error in a 200", "expired credential"])
def test_S02_an_end_whose_nudge_cannot_be_posted_is_told_once_posts_succeed(
    inside: MakeInside, model: ScriptedModel, clock: Ticking, how: str
) -> None:
    """The one attempt to announce an end failed, and nobody tried again: here for a minute, ten, and over a restart."""
    faults = {"dropped": dropped, "503": unavailable, "error in a 200": error_in_a_200}
    outrider = inside()
    model.rules([worker("s02", gate="end"), briefing()])
    outrider.ask("s02", "hello")
    sent = outrider.spawn("s02", "s02")["id"]
    model.held_at("end")
    outrider.break_posts(faults.get(how) or outlived(clock))
    model.open("end")

    def failed_again(times: int) -> dict[str, Any]:
        outrider.wait(lambda: outrider.job(sent)["delivery"]["attempts"] >= times)
        return outrider.job(sent)

    began, seen = clock(), failed_again(1)
    while clock() - began < 600e6:
        outrider.pass_time(75)
        seen = failed_again(seen["delivery"]["attempts"] + 1)
        assert seen["status"] == "completed" and not seen["notified"]
        assert seen["delivery"]["state"] == "pending" and seen["delivery"]["last_error"]
    outrider.restart()
    outrider.pass_time(75)
    failed_again(seen["delivery"]["attempts"] + 1)
    assert not told_in(model, sent)

    outrider.break_posts(None)
    outrider.pass_time(75)
    when_told(outrider, sent)
    when_quiet(outrider, "s02")
    assert_told_once(outrider, "s02", sent)
    assert len(told_in(model, sent)) == 1


@pytest.fixture(scope="module")
def mortal(serving: Callable[..., Server]) -> Server:
    """A server to be killed: what it leaves behind is taken over as soon as the next one starts."""
    return serving(OUTRIDER_LEASE_S="2", OUTRIDER_MAX_ATTEMPTS="2")


def test_S03_a_briefing_that_was_killed_is_held_again_and_counts_only_when_it_has_settled(
    mortal: Server, model: ScriptedModel
) -> None:
    """Put into a prompt is not delivered: the server dies while the model holds its answer."""
    server = mortal
    model.rules([*fan("s03", "s03 works"), worker("s03 works"), briefing(gate="answer")])
    server.ask("s03", "s03")
    model.held_at("answer")
    (sent,) = server.jobs("s03")
    assert sent["delivery"]["state"] == "attached" and not sent["notified"] and sent["notified_in"] is None

    server.kill()
    server.start()
    model.wait_for(lambda asked: len(told_in(model, sent["id"])) == 2)
    again = server.job(sent["id"])
    assert again["delivery"]["state"] == "attached" and not again["notified"]
    first, second = told_in(model, sent["id"])
    assert first.messages == second.messages

    model.open("answer")
    when_told(server, sent["id"])
    when_quiet(server, "s03")
    assert_told_once(server, "s03", sent["id"])
    (said,) = briefings(server, "s03")
    assert server.job(sent["id"])["notified_at"] == said["created_at"]


def failing_at_first(kind: str) -> Rule:
    """A model that gives no whole answer to a briefing's three tries."""
    if kind == "500":
        return briefing(times=3, status=500)
    return briefing("This breaks off in the middle.", times=3, cut_after=10)


@pytest.mark.parametrize("kind", ["500", "broken stream"])
def test_S03_S12_a_briefing_that_failed_is_seen_to_have_failed_and_the_end_is_told_by_a_later_one(
    inside: MakeInside, model: ScriptedModel, kind: str
) -> None:
    """A crashed briefing must not look like an answer that stopped, and it delivers nothing."""
    outrider = inside()
    model.rules([*fan("s12", "s12 works"), worker("s12 works"), failing_at_first(kind), briefing()])
    outrider.ask("s12", "s12")
    outrider.pass_pause("turn")
    outrider.pass_pause("turn")
    (sent,) = outrider.jobs("s12")
    outrider.wait(lambda: outrider.job(sent["id"])["delivery"]["attempts"])
    assert len(told_in(model, sent["id"])) == 3

    untold = outrider.job(sent["id"])
    assert not untold["notified"] and untold["notified_in"] is None
    assert untold["delivery"]["attempts"] == 1 and untold["delivery"]["last_error"]
    (failed,) = briefings(outrider, "s12")
    assert (failed["state"], failed["reason"]) == ("failed", "MODEL_FAILED") and failed["detail"]
    told = outrider.call(outrider.outrider.house.db.read(events.after, "local", 0))
    last = [json.loads(event.data) for event in told if event.name == "turn.finished"][-1]
    assert (last["state"], last["reason"]) == ("failed", "MODEL_FAILED")

    outrider.pass_time(60)
    when_told(outrider, sent["id"])
    when_quiet(outrider, "s12")
    assert_told_once(outrider, "s12", sent["id"])
    assert [said["state"] for said in briefings(outrider, "s12")] == ["failed", "completed"]


def test_S04_an_idle_session_that_nobody_watches_is_woken(server: Server, model: ScriptedModel) -> None:
    """No client is connected to anything; a completed turn stands in the log, and who comes later sees it."""
    model.rules([worker("s04 works", gate="end"), briefing("News for you.")])
    server.ask("s04", "hello")
    sent = server.spawn("s04", "s04 works")["id"]
    model.held_at("end")
    when_quiet_but_for_the_job = server.messages("s04")
    model.open("end")
    when_told(server, sent, timeout=5)
    fresh = server.messages("s04")[len(when_quiet_but_for_the_job) :]
    assert [message["kind"] for message in fresh] == ["nudge", "notification", "agent"]
    assert {message["state"] for message in fresh} == {"completed"} and fresh[-1]["text"] == "News for you."
    with server.http.stream("GET", "/api/events", params={"session": "s04"}, headers={"Last-Event-ID": "0"}) as later:
        lines = iter(later.iter_lines())
        seen = [next(line for line in lines if line.startswith("event: ")) for _ in range(7)]
    assert seen[-2:] == ["event: turn.started", "event: turn.finished"]


def test_S06_a_job_that_runs_again_is_announced_again_and_its_first_run_never_more(
    server: Server, model: ScriptedModel
) -> None:
    model.rules([worker("s06 works", times=1, text="The first."), worker("s06 works", text="The second."), briefing()])
    server.ask("s06", "hello")
    first = server.spawn("s06", "s06 works")
    when_told(server, first["id"])
    told_first = server.job(first["id"])

    second = server.post(f"/api/background/{first['id']}/retry")
    assert second["id"] == first["id"] and second["attempts"] == 2 and second["batch_id"] != first["batch_id"]
    assert second["delivery"]["state"] == "none" and not second["notified"]
    when_told(server, first["id"])
    when_quiet(server, "s06")
    told = server.job(first["id"])
    assert told["report"] == "The second." and told["notified_in"] != told_first["notified_in"]
    results = [blocks_in(message["text"])[0]["result"] for message in notifications(server, "s06", first["id"])]
    assert results == ["The first.", "The second."]


def test_S06_a_canceled_first_attempt_does_not_use_up_the_notice_of_the_second(
    server: Server, model: ScriptedModel
) -> None:
    model.rules([worker("s06 is stopped", gate="never", times=1), worker("s06 is stopped"), briefing()])
    server.ask("s06c", "hello")
    sent = server.spawn("s06c", "s06 is stopped")["id"]
    model.held_at("never")
    assert server.post(f"/api/background/{sent}/cancel")["status"] == "canceled"
    server.post(f"/api/background/{sent}/retry")
    when_told(server, sent)
    when_quiet(server, "s06c")
    assert_told_once(server, "s06c", sent)
    (told,) = notifications(server, "s06c", sent)
    assert blocks_in(told["text"])[0]["status"] == "completed"


UNHAPPY = {
    "hangs past its time": ("TIMED_OUT", {"gate": "never"}),
    "meets a model that never has room": ("MODEL_FAILED", {"status": 429, "text": "slow down"}),
}


@pytest.mark.parametrize("how", UNHAPPY)
def test_S07_a_job_that_ends_without_output_has_its_reason_and_is_told(
    inside: MakeInside, model: ScriptedModel, how: str
) -> None:
    reason, rule = UNHAPPY[how]
    outrider = inside(job_timeout_s=1, max_attempts=2)
    model.rules([worker("s07", **rule), briefing()])
    outrider.ask("s07", "hello")
    sent = outrider.spawn("s07", "s07")["id"]
    if reason == "MODEL_FAILED":
        outrider.pass_pause("job")
    when_told(outrider, sent)
    assert_told_as_failed(outrider, "s07", sent, reason)


def test_S07_a_job_that_loses_its_worker_at_every_try_is_told(mortal: Server, model: ScriptedModel) -> None:
    model.rules([worker("s07 loses its worker", gate="never"), briefing()])
    mortal.ask("s07", "hello")
    sent = mortal.spawn("s07", "s07 loses its worker")["id"]
    for tries in (1, 2):
        model.wait_for(lambda asked, tries=tries: len(worker_requests(model, "s07 loses its worker")) == tries)
        mortal.kill()
        mortal.start()
    when_told(mortal, sent)
    assert_told_as_failed(mortal, "s07", sent, "ATTEMPTS_EXHAUSTED")


def assert_told_as_failed(server: Server, session: str, job_id: str, reason: str) -> None:
    """It failed for this reason, without output; every view and the one block that was told say so."""
    shown = server.job(job_id)
    assert shown["status"] == "failed" and shown["error"]["reason"] == reason and shown["error"]["message"]
    assert not shown["report"] and not shown["partial"]
    assert [one["id"] for one in server.jobs(session, status="failed")] == [job_id]
    (told,) = notifications(server, session, job_id)
    (block,) = blocks_in(told["text"])
    assert (block["status"], block["reason code"]) == ("failed", reason) and "result" not in block
    when_quiet(server, session)
    assert_told_once(server, session, job_id)


def by_model(tool: str) -> Callable[[Inside, ScriptedModel, str], list[str]]:
    def send(outrider: Inside, model: ScriptedModel, session: str) -> list[str]:
        outrider.ask(session, f"use {tool}")
        return [one["id"] for one in outrider.jobs(session)]

    return send


def by_api(outrider: Inside, model: ScriptedModel, session: str) -> list[str]:
    return [outrider.spawn(session, "s10 works")["id"]]


def by_api_batch(outrider: Inside, model: ScriptedModel, session: str) -> list[str]:
    sent = outrider.post("/api/background", session=session, jobs=[{"prompt": "s10 works"}, {"prompt": "s10 too"}])
    return [one["id"] for one in sent["jobs"]]


def by_sdk(outrider: Inside, model: ScriptedModel, session: str) -> list[str]:
    return [outrider.call(sdk.spawn_background(session=session, prompt="s10 works"))]


def by_sdk_batch(outrider: Inside, model: ScriptedModel, session: str) -> list[str]:
    return outrider.call(sdk.spawn_batch(session=session, jobs=[{"prompt": "s10 works"}, {"prompt": "s10 too"}]))


def by_retry(outrider: Inside, model: ScriptedModel, session: str) -> list[str]:
    sent = by_api(outrider, model, session)
    when_told(outrider, *sent)
    return [outrider.post(f"/api/background/{sent[0]}/retry")["id"]]


WAYS: dict[str, Callable[[Inside, ScriptedModel, str], list[str]]] = {
    "task": by_model("task"),
    "task_batch": by_model("task_batch"),
    "POST one": by_api,
    "POST jobs": by_api_batch,
    "spawn_background": by_sdk,
    "spawn_batch": by_sdk_batch,
    "retry": by_retry,
}


def test_S08_S10_every_way_to_send_out_keeps_its_session_and_is_told_there(
    inside: MakeInside, model: ScriptedModel
) -> None:
    """Nobody watches any of these sessions, and another one speaks after each spawn."""
    outrider = inside()
    task = {"description": "S10", "prompt": "s10 works", "subagent_type": "general"}
    model.rules(
        [
            Rule(last_user="^use task$", tool_calls=[calling("task", **task, run_in_background=True)]),
            Rule(
                last_user="^use task_batch$", tool_calls=[calling("task_batch", tasks=[task], run_in_background=True)]
            ),
            worker("s10 works"),
            worker("s10 too"),
            briefing(),
        ]
    )
    sent: dict[str, list[str]] = {}
    for number, (way, send) in enumerate(WAYS.items()):
        session = f"s10-{number}"
        outrider.ask(session, "hello")
        sent[session] = send(outrider, model, session)
        outrider.ask("somebody-else", f"hello {number}")
        assert sent[session], way
    for session, job_ids in sent.items():
        when_told(outrider, *job_ids)
        assert {outrider.job(job_id)["session"] for job_id in job_ids} == {session}
    when_quiet(outrider, *sent)
    for session, job_ids in list(sent.items())[:-1]:
        assert_told_once(outrider, session, *job_ids)
    retried, (job_id,) = list(sent.items())[-1]
    assert len(notifications(outrider, retried, job_id)) == 2
    assert not briefings(outrider, "somebody-else")


SILENCE = {
    "nothing": [briefing("")],
    "blanks": [briefing(" \n\t ")],
    "a tool, then nothing": [
        briefing("", tool_calls=[calling("memory_recall", query="anything")]),
        Rule(last_tool="(?i)nothing found|reference", text=""),
    ],
}


@pytest.mark.parametrize("silence", SILENCE)
def test_S11_a_briefing_that_says_nothing_becomes_a_note_that_names_every_report(
    server: Server, model: ScriptedModel, silence: str
) -> None:
    """No job counts as delivered by a turn that showed its user nothing."""
    session = f"s11-{list(SILENCE).index(silence)}"
    model.rules(
        [
            *fan(session, "s11 works", "s11 fails"),
            worker("s11 works"),
            worker("s11 fails", status=400, text="no"),
            *SILENCE[silence],
        ]
    )
    server.ask(session, session)
    works, fails = sent_out(server, session, "s11 works", "s11 fails")
    when_told(server, works["id"], fails["id"])
    (said,) = briefings(server, session)
    assert said["state"] == "completed"
    assert f"S11 WORKS: completed ({works['id']})" in said["text"]
    assert f"S11 FAILS: failed ({fails['id']})" in said["text"]


def test_S20_every_turn_that_outrider_starts_brings_a_jobs_id_status_and_description(
    server: Server, model: ScriptedModel
) -> None:
    """A fixed wake-up text that says nothing eats context and money."""
    model.rules([*fan("s20w", "s20 one", "s20 two"), worker("s20 one"), worker("s20 two"), briefing()])
    server.ask("s20w", "s20w")
    when_told(server, *(one["id"] for one in server.jobs("s20w")))
    (woken,) = [asked for asked in chat_requests(model) if news_in(asked)]
    blocks = news_in(woken)
    assert {(block["job-id"], block["status"], block["description"]) for block in blocks} == {
        (one["id"], "completed", one["description"]) for one in server.jobs("s20w")
    }
