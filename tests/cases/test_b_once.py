"""Theme B: a job's end is told once, and what is told is true when it is told."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from agent.taking_up import Turn
from background import terminal
from background.queue import Run
from background.terminal import Outcome
from background.worker import Handler
from knowledge.backend import StoreFailed
from tests.cases.stories import (
    assert_told_once,
    blocks_in,
    briefing,
    briefings,
    calling,
    chat_requests,
    events_of,
    fan,
    notifications,
    told_in,
    turns_by_outrider,
    when_quiet,
    when_told,
    worker,
    worker_requests,
)
from tests.support.inside import Inside, Ticking
from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel
from tests.support.server import Server, answer_of

MakeInside = Callable[..., Inside]
DAY_S = 86_400


def handled_twice(outrider: Inside) -> None:
    """Each run is worked on twice at once and once more after it; a job's end is reported twice more by its worker."""

    async def once(handler: Handler, run: Run) -> None:
        await asyncio.gather(handler.run(run), handler.run(run), return_exceptions=True)
        await asyncio.gather(handler.run(run), return_exceptions=True)

    async def ended_twice(handler: Handler, begun: tuple[Run, Turn]) -> None:
        await handler.run(begun)
        run, write = begun[0], outrider.outrider.house.db.write
        late = Outcome("completed", [{"artifactId": "late", "parts": [{"text": "Told again."}]}])
        assert not any(await asyncio.gather(write(terminal.settle, run, late), write(terminal.settle, run, late)))

    def around(kind: str, handler: Handler) -> Handler:
        if kind == "job":
            return replace(handler, run=lambda begun: ended_twice(handler, begun))
        if kind in ("dispatch", "report", "nudge"):
            return replace(handler, run=lambda run: once(handler, run))
        return handler

    outrider.around = around


def test_S13_however_often_an_end_is_reported_and_handled_it_is_told_once(
    inside: MakeInside, model: ScriptedModel
) -> None:
    """One completion was briefed for hours: reported twice, handled twice, after reconnects, after restarts."""
    outrider = inside(start=False)
    handled_twice(outrider)
    outrider.start()
    model.rules([Rule(last_user="^s13$", text="Done.", gate="turn"), worker("s13 works"), briefing()])
    turn = outrider.say("s13", "s13")
    model.held_at("turn")
    sent = outrider.spawn("s13", "s13 works")["id"]
    outrider.wait(lambda: turns_by_outrider(outrider, "s13"))
    model.open("turn")
    outrider.ended(turn)
    when_told(outrider, sent)

    def is_as_it_was() -> None:
        when_quiet(outrider, "s13")
        assert_told_once(outrider, "s13", sent)
        assert len(notifications(outrider, "s13", sent)) == 1 and len(briefings(outrider, "s13")) == 1
        assert len(told_in(model, sent)) == 1 and len(worker_requests(model, "s13 works")) == 1
        assert outrider.job(sent)["report"] == "Report on s13 works."
        completed = [data for name, data in events_of(outrider, "s13") if name == "background.completed"]
        assert [data["id"] for data in completed] == [sent]

    is_as_it_was()
    outrider.queue_again("report", "nudge")
    is_as_it_was()
    for _ in range(2):
        outrider.restart()
        is_as_it_was()


def reading(session: str, tool: str, **answer: object) -> list[Rule]:
    """A long turn: the model sends out, is held while the work ends, reads it by `tool`, and then answers."""
    return [
        Rule(
            last_user=f"^{session}$", tool_offered="task", tool_calls=[calling("task", **S16, run_in_background=True)]
        ),
        Rule(last_tool=r"1\. (bg-\w+) .*\(sent out\)", gate="read", tool_calls=[calling(tool, job_id="{1}")]),
        Rule(last_tool="s16 works", **{"text": "Read.", **answer}),  # type: ignore[arg-type]
        worker("s16 works"),
        briefing(),
    ]


S16 = {"description": "S16", "prompt": "s16 works", "subagent_type": "general"}


@pytest.mark.parametrize("tool", ["background_status", "open_report"])
def test_S16_what_the_model_has_read_in_a_turn_starts_no_turn_of_its_own(
    server: Server, model: ScriptedModel, tool: str
) -> None:
    session = f"s16-{tool}"
    model.rules(reading(session, tool))
    turn = server.say(session, session)
    model.held_at("read")
    (sent,) = server.jobs(session)
    server.wait(lambda: server.job(sent["id"])["indexed"])
    model.open("read")
    assert answer_of(server.ended(turn)) == "Read."
    when_quiet(server, session)
    seen = server.job(sent["id"])
    assert seen["notified"] and seen["notified_in"] == turn
    assert not turns_by_outrider(server, session) and not told_in(model, sent["id"])


def test_S16_what_was_read_before_it_could_be_indexed_counts_as_read_too(
    inside: MakeInside, model: ScriptedModel
) -> None:
    """While the index fails, an end waits for it; the model that looks in the meantime has its news all the same."""
    outrider = inside()

    async def broken() -> None:
        raise StoreFailed("no room")

    outrider.outrider.store.before_put = broken
    model.rules(reading("s16-early", "open_report"))
    turn = outrider.say("s16-early", "s16-early")
    model.held_at("read")
    (sent,) = outrider.jobs("s16-early")
    outrider.wait(lambda: outrider.job(sent["id"])["completed_at"])
    model.open("read")
    outrider.ended(turn)
    outrider.outrider.store.before_put = None
    outrider.pass_time(10)
    when_quiet(outrider, "s16-early")
    seen = outrider.job(sent["id"])
    assert seen["notified_in"] == turn and seen["indexed"]
    assert not turns_by_outrider(outrider, "s16-early") and not told_in(model, sent["id"])


def test_S16_what_a_failed_turn_had_read_is_told_all_the_same(inside: MakeInside, model: ScriptedModel) -> None:
    outrider = inside()
    model.rules(reading("s16-fails", "open_report", status=400, text="broken"))
    turn = outrider.say("s16-fails", "s16-fails")
    model.held_at("read")
    (sent,) = outrider.jobs("s16-fails")
    outrider.wait(lambda: outrider.job(sent["id"])["indexed"])
    model.open("read")
    assert outrider.ended(turn)["status"]["state"] == "TASK_STATE_FAILED"
    when_told(outrider, sent["id"])
    outrider.pass_time(60)
    when_quiet(outrider, "s16-fails")
    assert outrider.job(sent["id"])["notified_in"] != turn
    assert_told_once(outrider, "s16-fails", sent["id"])


@pytest.mark.parametrize("auto_resume", [True, False])
def test_S18_an_end_that_is_told_late_says_when_it_was(
    inside: MakeInside, model: ScriptedModel, clock: Ticking, auto_resume: bool
) -> None:
    """Eight days of silence, and a conversation that went on meanwhile: the model must not take it for news of today."""
    outrider = inside(auto_resume=auto_resume)
    model.rules([worker("s18 works", gate="end"), Rule(last_user="^now what$", text="Told."), briefing("Told.")])
    outrider.ask("s18", "hello")
    sent = outrider.spawn("s18", "s18 works")["id"]
    for number in range(3):
        outrider.ask("s18", f"something else {number}")
    outrider.break_posts(unreachable)
    model.open("end")
    outrider.wait(lambda: outrider.job(sent)["indexed"])
    outrider.stop()
    outrider.break_posts(None)
    clock.advance(8 * DAY_S)
    outrider.start()

    if not auto_resume:
        when_quiet(outrider, "s18")
        waiting = outrider.job(sent)
        assert waiting["delivery"]["state"] == "pending" and not told_in(model, sent)
        outrider.ask("s18", "now what")
    when_told(outrider, sent)
    when_quiet(outrider, "s18")
    assert_told_once(outrider, "s18", sent)
    (asked,) = told_in(model, sent)
    (block,) = blocks_in(asked.text)
    ended = outrider.job(sent)["completed_at"]
    assert block["ended"] == ended[:19] + "Z"
    assert "conversation may have gone on since" in asked.text and "report may be out of date" in asked.text


async def unreachable(*_: object) -> None:
    raise ConnectionResetError("the line is dead")


def test_S20_a_nudge_whose_job_a_users_turn_has_taken_up_calls_no_model(server: Server, model: ScriptedModel) -> None:
    model.rules(
        [
            Rule(last_user="^s20 first$", text="One.", gate="first"),
            Rule(last_user="^s20 second$", text="Two."),
            worker("s20 works", gate="end"),
            briefing(),
        ]
    )
    first = server.say("s20", "s20 first")
    model.held_at("first")
    sent = server.spawn("s20", "s20 works")["id"]
    second = server.say("s20", "s20 second")
    model.open("end")
    server.wait(lambda: turns_by_outrider(server, "s20"))
    (nudge,) = turns_by_outrider(server, "s20")
    model.open("first")

    ended = server.ended(nudge["task_id"])
    assert ended["status"]["state"] == "TASK_STATE_COMPLETED" and ended["artifacts"] == []
    assert len(chat_requests(model, "s20")) == 2
    assert answer_of(server.ended(first)) == "One." and server.job(sent)["notified_in"] == second
    assert_told_once(server, "s20", sent)


def test_S20_a_job_that_a_fan_out_told_is_not_told_again_when_its_turn_is_folded_into_a_running_one(
    server: Server, model: ScriptedModel
) -> None:
    """A nudge that comes between two steps of a running turn is taken up by it, and its own turn costs no model call."""
    model.rules(
        [
            Rule(last_user="^s20 long$", tool_calls=[calling("memory_recall", query="weather")], gate="step"),
            Rule(last_tool="(?i)nothing found|reference", text="Cannot be: the news came in between."),
            worker("s20 is quick"),
            briefing("Both at once."),
        ]
    )
    turn = server.say("s20f", "s20 long")
    model.held_at("step")
    sent = server.spawn("s20f", "s20 is quick")["id"]
    server.wait(lambda: turns_by_outrider(server, "s20f"))
    model.open("step")
    assert answer_of(server.ended(turn)) == "Both at once."
    when_quiet(server, "s20f")
    assert server.job(sent)["notified_in"] == turn and not briefings(server, "s20f")
    assert_told_once(server, "s20f", sent)
    (nudge,) = [message for message in server.messages("s20f") if message["kind"] == "nudge"]
    assert server.task(nudge["task_id"])["metadata"]["folded_into"] == turn
    assert len(chat_requests(model, "s20 long")) == 2


def test_S20_a_user_who_speaks_while_a_batch_is_out_hears_of_each_end_once(
    server: Server, model: ScriptedModel
) -> None:
    """A member that a user's turn took up early is not told again when the rest of its batch comes back."""
    model.rules(
        [
            *fan("s20 fans", "s20 early", "s20 late"),
            worker("s20 early"),
            worker("s20 late", gate="late"),
            Rule(last_user="^and now$", text="One is back."),
            briefing(),
        ]
    )
    server.ask("s20b", "s20 fans")
    early, late = (
        next(one for one in server.jobs("s20b") if one["description"] == name) for name in ("S20 EARLY", "S20 LATE")
    )
    server.wait(lambda: server.job(early["id"])["indexed"])
    turn = server.say("s20b", "and now")
    server.ended(turn)
    assert server.job(early["id"])["notified_in"] == turn
    model.open("late")
    when_told(server, late["id"])
    when_quiet(server, "s20b")
    assert_told_once(server, "s20b", early["id"], late["id"])
    (woken,) = told_in(model, late["id"])
    assert [block["job-id"] for block in blocks_in(woken.last_user)] == [late["id"]]
