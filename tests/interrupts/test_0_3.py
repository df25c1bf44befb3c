"""A client of A2A 0.3 is asked and answers: A20, A38, over the wire of that version."""

from tests.a2a import former, wire
from tests.a2a.former import Former
from tests.interrupts import words
from tests.support.scripted import ScriptedModel
from tests.support.server import Server

FORMER = Former()


def test_a20_a_question_ends_the_stream_with_a_final_status_and_its_answer_goes_on(
    server: Server, model: ScriptedModel
) -> None:
    model.rules([words.asking("Red or blue?"), words.ending("Blue it is.", last_tool="^blue$")])
    with FORMER.stream(server, "SendStreamingMessage", {"message": wire.message("go", "asker")}) as told:
        *_, last = told  # the reader looks that it is the final one
    status = last["statusUpdate"]["status"]
    assert status["state"] == words.PARKED and status["message"]["parts"] == [{"text": "Red or blue?"}]
    parked = former.post(server, "tasks/get", {"id": last["statusUpdate"]["taskId"]}).json()["result"]
    assert (parked["status"]["state"], parked["status"]["message"]["role"]) == ("input-required", "agent")
    mark = parked["status"]["message"]["metadata"]["question"]
    ended = FORMER.ask(server, "SendMessage", {"message": words.answer(former.task(parked), "blue", mark)}).task
    assert ended["id"] == parked["id"] and words.said(ended) == ["go", "Red or blue?", "blue"]


def test_a38_a_stream_that_is_opened_on_a_parked_task_brings_what_follows_the_answer(
    server: Server, model: ScriptedModel
) -> None:
    model.rules([words.asking("Which?"), words.ending("That one.", last_tool="^this$")])
    task = words.asked(server)
    with FORMER.stream(server, "SubscribeToTask", {"id": task["id"]}) as told:
        first = next(told)
        words.answered(server, task, "this")
        rest = list(told)
    assert first["task"]["status"]["state"] == words.PARKED
    sum_of_all, read = wire.replayed([first, *rest]), wire.get(server, task["id"])
    assert (sum_of_all["status"], sum_of_all["artifacts"]) == (read["status"], read["artifacts"])


def test_auth_required_is_spelled_with_a_hyphen_and_is_not_the_end(server: Server) -> None:
    task = words.asked(server, "auth Sign in; echo in", "trial", words.AUTH)
    told = former.post(server, "tasks/get", {"id": task["id"]}).json()["result"]
    assert told["status"]["state"] == "auth-required" and former.task(told) == task
    with FORMER.stream(server, "SubscribeToTask", {"id": task["id"]}) as frames:
        next(frames)
        words.answered(server, task, "here")
        *_, last = frames
    assert last["statusUpdate"]["status"]["state"] == wire.COMPLETED
