"""A model's answer as it comes, for clients that stream: committed pieces, and then the whole in their place."""

import sqlite3
from contextlib import closing

from tests.a2a import wire
from tests.a2a.wire import CANCELED, FAILED, WORKING, Json, said
from tests.support.scripted import ScriptedModel
from tests.support.server import Server, answer_of

LONG = "It takes a while to say all of this, so that it comes in pieces. "


def piece(frames: wire.Frames) -> Json:
    """The next piece of an answer that is not whole; only that the task is at work may be told before it."""
    while "artifactUpdate" not in (frame := next(frames)):
        assert frame["statusUpdate"]["status"]["state"] == WORKING
    update = frame["artifactUpdate"]
    assert not update.get("lastChunk") and update["artifact"]["metadata"] == {"partial": True}
    return frame


def test_an_answer_that_takes_long_is_told_in_pieces_and_then_whole(shared: Server, model: ScriptedModel) -> None:
    model.rules([{"text": LONG + "The end.", "hang_after": len(LONG), "resumes": "g"}])
    with wire.stream(shared, "SendStreamingMessage", {"message": said()}) as frames:
        told = [next(frames), piece(frames)]
        unfinished = wire.get(shared, told[0]["task"]["id"])
        assert unfinished["status"]["state"] == WORKING
        assert unfinished["artifacts"] == [told[1]["artifactUpdate"]["artifact"]] and answer_of(unfinished) == LONG
        model.open("g")
        told += frames
    task = wire.get(shared, told[0]["task"]["id"])
    assert wire.replayed(told) == task and answer_of(task) == LONG + "The end."
    assert "metadata" not in task["artifacts"][0]


def test_what_was_said_before_a_tool_was_called_is_no_part_of_the_answer(shared: Server, model: ScriptedModel) -> None:
    call = {"name": "memory_recall", "arguments": {"query": "anything"}}
    before, after = f"Before. {LONG}", f"After. {LONG}"
    model.rules(
        [
            {"text": before, "tool_calls": [call], "hang_after": len(before), "resumes": "call", "times": 1},
            {"last_tool": "", "text": after + "The end.", "hang_after": len(after), "resumes": "g"},
        ]
    )
    with wire.stream(shared, "SendStreamingMessage", {"message": said()}) as frames:
        told = [next(frames), piece(frames)]
        model.open("call")
        told.append(piece(frames))
        assert not any(frame["artifactUpdate"].get("append") for frame in told[1:])
        assert answer_of(wire.get(shared, told[0]["task"]["id"])) == after
        model.open("g")
        told += frames
    task = wire.get(shared, told[0]["task"]["id"])
    assert wire.replayed(told) == task and answer_of(task) == after + "The end."


def test_an_answer_that_was_broken_off_says_that_it_is_not_whole(shared: Server, model: ScriptedModel) -> None:
    model.rules([{"text": LONG + "The end.", "hang_after": len(LONG)}])
    with wire.stream(shared, "SendStreamingMessage", {"message": said()}) as frames:
        told = [next(frames), piece(frames)]
        task = wire.cancel(shared, told[0]["task"]["id"])
        told += frames
    assert task["status"]["state"] == CANCELED and answer_of(task) == LONG
    assert task["artifacts"][0]["metadata"] == {"partial": True} and wire.replayed(told) == task


def test_what_a_failed_turn_left_is_a_marked_part_of_its_status_and_no_artifact(
    shared: Server, model: ScriptedModel
) -> None:
    """The text that `/api` shows of it; where pieces were told, as above, those stand for it."""
    model.rules([{"text": "Half of it", "finish_reason": "length"}])
    with wire.stream(shared, "SendStreamingMessage", {"message": said()}) as frames:
        told = list(frames)
    task = wire.get(shared, told[0]["task"]["id"])
    why, left = task["status"]["message"]["parts"]
    assert task["status"]["state"] == FAILED and "length" in why["text"] and "metadata" not in why
    assert left == {"text": "Half of it", "metadata": {"partial": True}} and task["artifacts"] == []
    assert wire.replayed(told) == task
    assert shared.messages(task["contextId"])[-1]["text"] == "Half of it"


def test_a_failed_turn_of_which_pieces_were_told_says_its_text_once(shared: Server, model: ScriptedModel) -> None:
    model.rules([{"text": LONG, "hang_after": len(LONG), "resumes": "g", "finish_reason": "length"}])
    with wire.stream(shared, "SendStreamingMessage", {"message": said()}) as frames:
        told = [next(frames), piece(frames)]
        model.open("g")
        told += frames
    task = wire.get(shared, told[0]["task"]["id"])
    assert task["status"]["state"] == FAILED and answer_of(task) == LONG
    assert task["artifacts"][0]["metadata"] == {"partial": True}
    assert len(task["status"]["message"]["parts"]) == 1 and wire.replayed(told) == task


def test_a_model_that_fails_in_the_middle_and_is_asked_again_begins_its_answer_anew(
    shared: Server, model: ScriptedModel
) -> None:
    """The second try says other words; the stream goes on with them, in place of the first."""
    first, second = f"First. {LONG}", f"Second. {LONG}"
    model.rules(
        [
            {
                "text": first + "The end.",
                "hang_after": len(first),
                "resumes": "fail",
                "cut_after": len(first),
                "times": 1,
            },
            {"text": second + "The end.", "hang_after": len(second), "resumes": "g"},
        ]
    )
    with wire.stream(shared, "SendStreamingMessage", {"message": said()}) as frames:
        told = [next(frames), piece(frames)]
        assert answer_of(wire.get(shared, told[0]["task"]["id"])) == first
        model.open("fail")
        told.append(piece(frames))
        assert answer_of(wire.get(shared, told[0]["task"]["id"])) == second
        model.open("g")
        told += frames
    assert wire.replayed(told) == wire.get(shared, told[0]["task"]["id"])


def test_a_jobs_work_is_told_in_no_pieces(shared: Server, model: ScriptedModel) -> None:
    """Its report is read when it is whole. It has been at work for longer than a turn that has told a piece."""
    model.rules([{"text": LONG * 3, "hang_after": len(LONG), "resumes": "g"}])
    session = wire.fresh("s")
    shared.post("/api/sessions", id=session)
    job = shared.spawn(session, "look into it")
    model.wait_for(lambda asked: any(one.answered_at for one in asked))
    with wire.stream(shared, "SendStreamingMessage", {"message": said()}) as frames:
        task_id = next(frames)["task"]["id"]
        piece(frames)
        with closing(sqlite3.connect(shared.data / "outrider.db")) as stranger:
            told = {told for (told,) in stranger.execute("select task_id from fragments")}
        assert task_id in told and shared.job(job["id"])["task_id"] not in told
        model.open("g")
    shared.wait(lambda: shared.job(job["id"])["status"] == "completed")
    shared.ended(task_id)
