"""F048, A15, A38: a question outlives its process; it is answered where it stands, and what comes of it is kept."""

import sqlite3
from collections.abc import Callable
from contextlib import closing

from tests.a2a import wire
from tests.a2a.wire import COMPLETED, WORKING
from tests.interrupts import words
from tests.interrupts.words import PARKED
from tests.support.scripted import ScriptedModel
from tests.support.server import Server, answer_of
from tests.support.trial import Trial


def test_f048_an_approval_is_given_after_a_kill_and_the_result_is_there_after_another(
    own: Callable[..., Server], model: ScriptedModel, trial: Trial
) -> None:
    server = own()
    model.rules([words.paying(8), words.ending("Paid.", last_tool="paid 8")])
    task = words.asked(server)
    server.restart()
    assert wire.get(server, task["id"]) == task
    assert words.answered(server, task, "approve", words.digest(task))["status"]["state"] == COMPLETED
    server.restart()
    ended = wire.get(server, task["id"])
    assert answer_of(ended) == "Paid." and trial.diary() == ["paid 8"]
    assert len(model.requests()) == 2


def test_f093_killed_between_the_answer_and_the_resume_it_goes_on_with_the_answer(
    own: Callable[..., Server], model: ScriptedModel, trial: Trial
) -> None:
    """The answer is taken by a process that works on nothing; the question is not asked, and the model not, again."""
    server = own()
    model.rules([words.paying(8), words.ending("Paid.", last_tool="paid 8")])
    task = words.asked(server)
    server.kill()
    door = own("--no-worker", data=server.data)
    sent = words.answer(task, "approve")
    assert wire.start(door, sent)["status"]["state"] == WORKING
    assert words.refusal(door, words.answer(task, "deny", words.digest(task)))[1] == -32602
    door.kill()
    server.start()
    assert answer_of(server.ended(task["id"])) == "Paid." and trial.diary() == ["paid 8"]
    assert wire.start(server, sent)["id"] == task["id"]
    assert trial.diary() == ["paid 8"] and len(model.requests()) == 2


def paid_is_kept(server: Server) -> bool:
    """The result of one call is kept; the other call has none yet."""
    with closing(sqlite3.connect(server.data / "outrider.db")) as stranger:
        return stranger.execute("select count(*) from checkpoints where name like 'tool:%'").fetchone()[0] == 1


def test_killed_within_the_approved_call_it_is_made_again_on_the_same_approval(
    own: Callable[..., Server], model: ScriptedModel, trial: Trial
) -> None:
    """At least once is what a tool gets that has no place to say that it was made; nobody is asked a second time."""
    server, door = own(OUTRIDER_LEASE_S="1"), wire.fresh("door")
    model.rules([words.calling(("pay", {"amount": 1}), ("dwell", {"door": door})), words.ending("Done.")])
    task = words.asked(server)
    wire.start(server, words.answer(task, "approve"))
    server.wait(lambda: f"dwells at {door}" in trial.diary() and paid_is_kept(server))
    server.restart()
    server.wait(lambda: trial.diary().count(f"dwells at {door}") == 2)
    trial.open(door)
    assert answer_of(server.ended(task["id"])) == "Done." and trial.diary().count("paid 1") == 1


def test_a15_answers_by_two_processes_are_all_in_the_history_in_order_the_same_from_both(
    own: Callable[..., Server],
) -> None:
    first = own()
    second = own(data=first.data)
    task = words.asked(first, "ask One?; ask Two?; echo end", "trial")
    again = words.answered(second, words.parked(second, task["id"]), "red")
    assert again["status"]["state"] == PARKED and words.question(again) == "Two?"
    ended = words.answered(first, words.parked(first, task["id"]), "blue")
    assert ended["status"]["state"] == COMPLETED and answer_of(ended) == "red\nblue\nend"
    assert words.said(ended) == ["ask One?; ask Two?; echo end", "One?", "red", "Two?", "blue"]
    second.wait(lambda: wire.get(second, task["id"]) == ended)


def test_a38_a_stream_of_a_parked_task_stays_open_for_what_comes_next_also_after_a_restart(
    own: Callable[..., Server], model: ScriptedModel
) -> None:
    server = own()
    model.rules([words.asking(), words.ending("Done.")])
    task = words.asked(server)
    server.restart()
    with wire.subscribed(server, task["id"]) as frames:
        assert next(frames)["task"] == task
        words.answered(server, task)
        rest = list(frames)
    states = [frame["statusUpdate"]["status"]["state"] for frame in rest if "statusUpdate" in frame]
    assert states == [WORKING, COMPLETED]


def test_f098_a_nudge_and_messages_wait_behind_a_question_in_order_across_a_restart(
    own: Callable[..., Server], model: ScriptedModel, trial: Trial
) -> None:
    """S75: nothing of it answers the question, and after the answer all of it is told and answered."""
    server, session, prompt = own(), "s", "a job meanwhile"
    model.rules(
        [
            words.worker(prompt, text="The report."),
            {"last_user": "^pay$", **words.paying(3)},
            words.ending("Paid.", last_tool="^paid 3"),
            {"last_user": "^approve$", "text": "You said approve."},
            {"last_user": "<task-notification>", "text": "Briefed."},
        ]
    )
    task = words.asked(server, "pay", contextId=session)
    job = server.spawn(session, prompt)
    words.in_status(server, job["id"], "completed")
    nudged = server.wait(lambda: [said for said in server.messages(session) if said["kind"] == "nudge"])
    later = words.began(server, "approve", contextId=session)
    server.restart()
    assert wire.get(server, task["id"]) == task and trial.diary() == []
    assert [wire.get(server, waiting)["status"]["state"] for waiting in (nudged[0]["task_id"], later["id"])] == [
        "TASK_STATE_SUBMITTED"
    ] * 2
    assert not server.job(job["id"])["notified"] and len(model.requests()) == 2
    assert answer_of(words.answered(server, task, "approve")) in ("Paid.", "Briefed.")
    assert trial.diary() == ["paid 3"]
    server.wait(lambda: server.job(job["id"])["notified"])
    assert answer_of(server.ended(later["id"])) == "You said approve."
