"""F092–F097, A20: a task that asks stands still and says what it asks; the answer goes to the step that asked, once."""

import pytest

from tests.a2a import wire
from tests.a2a.wire import CANCELED, COMPLETED, FAILED
from tests.cases.stories import events_of
from tests.interrupts import words
from tests.interrupts.words import AUTH, PARKED
from tests.support.scripted import ScriptedModel
from tests.support.server import Server, answer_of
from tests.support.trial import Trial


def test_a20_the_question_stands_in_the_status_message_and_in_no_artifact(server: Server, model: ScriptedModel) -> None:
    model.rules([words.asking("Red or blue?"), words.ending()])
    task = words.asked(server)
    told = task["status"]["message"]
    assert told["parts"] == [{"text": "Red or blue?"}] and told["role"] == "ROLE_AGENT"
    assert told["taskId"] == task["id"] and told["contextId"] == task["contextId"]
    assert "artifacts" not in task
    words.answered(server, task)


def test_what_the_user_answers_is_the_result_of_the_call_that_asked(server: Server, model: ScriptedModel) -> None:
    model.rules([words.asking("Red or blue?"), words.ending("Blue it is.", last_tool="^blue$")])
    ended = words.answered(server, words.asked(server), "blue")
    assert ended["status"]["state"] == COMPLETED and answer_of(ended) == "Blue it is."
    assert words.said(ended) == ["go", "Red or blue?", "blue"]
    assert len(model.requests()) == 2


def test_f092_a_gated_tool_runs_only_after_its_approval(server: Server, model: ScriptedModel, trial: Trial) -> None:
    model.rules([words.paying(7), words.ending("Paid.", last_tool="paid 7")])
    task = words.asked(server)
    first, detail = (part["text"] for part in task["status"]["message"]["parts"])
    assert "pay" in first and '"amount": 7' in detail
    assert task["status"]["message"]["metadata"]["kind"] == "approval"
    assert trial.diary() == []
    ended = words.answered(server, task, "approve")
    assert ended["status"]["state"] == COMPLETED and trial.diary() == ["paid 7"]


def test_a_denied_call_is_not_made_and_the_model_is_told_so(server: Server, model: ScriptedModel, trial: Trial) -> None:
    model.rules([words.paying(), words.ending("As you wish.", last_tool="^DENIED: the user did not approve")])
    ended = words.answered(server, words.asked(server), "Deny")
    assert answer_of(ended) == "As you wish." and trial.diary() == []


@pytest.mark.parametrize("text", ["yes", "approve!", "I approve", "approve deny", ""])
def test_only_approve_or_deny_answers_an_approval(
    server: Server, model: ScriptedModel, trial: Trial, text: str
) -> None:
    model.rules([words.paying(), words.ending()])
    task = words.asked(server)
    assert words.refusal(server, words.answer(task, text))[1] == -32602
    assert wire.get(server, task["id"]) == task and trial.diary() == []
    wire.cancel(server, task["id"])


def test_f096_several_calls_of_one_step_are_asked_one_at_a_time_in_order(
    server: Server, model: ScriptedModel, trial: Trial
) -> None:
    """And no tool of the step runs before all are answered; each answer reaches its own."""
    calls = words.calling(
        ("pay", {"amount": 1}), ("shout", {"text": "hey"}), ("ask_user", {"question": "Why?"}), ("pay", {"amount": 2})
    )
    model.rules([calls, words.ending()])
    task = words.asked(server)
    assert '"amount": 1' in words.said(task)[-1]
    task = words.answered(server, task, "deny")
    assert task["status"]["state"] == PARKED and words.question(task) == "Why?"
    task = words.answered(server, task, "because")
    assert '"amount": 2' in words.said(task)[-1] and trial.diary() == []
    ended = words.answered(server, task, "approve")
    assert ended["status"]["state"] == COMPLETED and trial.diary() == ["paid 2"]
    results = [message["content"] for message in model.requests()[-1].messages if message["role"] == "tool"]
    assert [result[:6] for result in results] == ["DENIED", "HEY", "becaus", "paid 2"]


def test_f094_a_task_keeps_its_id_through_three_resumes_and_is_one_open_task(
    server: Server, model: ScriptedModel
) -> None:
    model.rules([words.asking("1?"), *(words.asking(f"{n}?", last_tool="") for n in (2, 3)), words.ending()])
    task = words.asked(server)
    for number in (2, 3):
        again = words.answered(server, task, f"answer {number - 1}")
        assert (again["id"], words.question(again)) == (task["id"], f"{number}?")
        assert server.get(f"/api/sessions/{task['contextId']}")["running"] == 1
    ended = words.answered(server, again, "answer 3")
    assert ended["id"] == task["id"] and ended["status"]["state"] == COMPLETED
    assert words.said(ended) == ["go", "1?", "answer 1", "2?", "answer 2", "3?", "answer 3"]


def test_f094_a_parked_task_is_canceled_like_any_other_and_then_takes_no_answer(
    server: Server, model: ScriptedModel, trial: Trial
) -> None:
    model.rules([words.paying(), words.ending()])
    task = words.asked(server)
    assert wire.cancel(server, task["id"])["status"]["state"] == CANCELED
    assert words.refusal(server, words.answer(task, "approve"))[1] == -32004
    assert wire.get(server, task["id"])["status"]["state"] == CANCELED
    assert trial.diary() == [] and len(model.requests()) == 1


def test_f097_the_mark_of_another_question_is_refused_and_nothing_runs(
    server: Server, model: ScriptedModel, trial: Trial
) -> None:
    """The mark changes with the arguments: an approval of one sum is none of another, at whatever step."""
    model.rules([words.paying(1), words.paying(1000, last_tool="paid 1"), words.ending()])
    first = words.asked(server)
    second = words.answered(server, first, "approve", words.digest(first))
    assert second["status"]["state"] == PARKED and words.digest(second) != words.digest(first)
    assert words.refusal(server, words.answer(second, "approve", words.digest(first)))[1] == -32602
    assert wire.get(server, first["id"]) == second and trial.diary() == ["paid 1"]
    words.answered(server, second, "deny", words.digest(second))
    assert trial.diary() == ["paid 1"]


def test_f093_an_answer_that_was_given_already_is_refused_while_the_task_goes_on(
    server: Server, model: ScriptedModel, trial: Trial
) -> None:
    """The same message again is the same answer; another with the mark of the answered question changes nothing."""
    model.rules([words.paying(), words.ending(gate="on")])
    task = words.asked(server)
    sent = words.answer(task, "approve", words.digest(task))
    wire.start(server, sent)
    model.held_at("on")
    assert wire.start(server, sent)["status"]["state"] == "TASK_STATE_WORKING"
    assert words.refusal(server, words.answer(task, "deny", words.digest(task)))[1] == -32602
    model.open("on")
    ended = server.ended(task["id"])
    assert words.said(ended)[-1] == "approve" and trial.diary() == ["paid 5"]


@pytest.mark.parametrize("given", [{}, {"name": 5}, {"name": "x" * 30}, "text"])
def test_f097_a_form_is_checked_before_anything_changes_so_that_it_can_be_sent_again(
    server: Server, model: ScriptedModel, given: object
) -> None:
    task = words.asked(server, "form Your name?", skill="trial")
    assert task["status"]["message"]["parts"][1]["data"]["required"] == ["name"]
    assert words.refusal(server, words.answer(task, parts=[{"data": given}]))[1] == -32602
    twice = words.answer(task, parts=[{"text": "Both:"}, {"data": {"name": "Ada"}}, {"data": {"name": "Bob"}}])
    assert words.refusal(server, twice)[1] == -32602
    assert "message.parts[2].data" in wire.post(server, "SendMessage", {"message": twice}).text
    assert wire.get(server, task["id"]) == task
    ended = words.answered(server, task, parts=[{"data": {"name": "Ada"}}])
    assert answer_of(ended) == '{"name": "Ada"}'


@pytest.mark.parametrize(
    ("asked", "given", "field"),
    [
        ("form Your name?", {"text": "x"}, "data"),
        ("form Your name?", {"data": {"name": 5}}, "data.name"),
        ("form Your name?", {"data": {"name": "Ada"}, "question": "another"}, "question"),
        ("ask Which?", {"data": "x", "question": "another"}, "question"),
    ],
)
def test_f097_over_the_api_a_refusal_names_the_field_that_its_sender_wrote(
    server: Server, asked: str, given: dict[str, object], field: str
) -> None:
    task = words.asked(server, asked, skill="trial")
    told = server.http.post(f"/api/sessions/{task['contextId']}/messages", json=given | {"task_id": task["id"]})
    assert (told.status_code, told.json()["error"]["details"]["field"]) == (400, field)
    assert "message." not in told.text
    wire.cancel(server, task["id"])


def test_a_task_that_needs_credentials_is_auth_required_and_goes_on_with_the_answer(server: Server) -> None:
    task = words.asked(server, "auth Sign in there.; echo in", skill="trial", state=AUTH)
    assert words.question(task) == "Sign in there."
    ended = words.answered(server, task, "done")
    assert answer_of(ended) == "done\nin"


def test_a_call_with_arguments_that_do_not_fit_is_not_asked_about(
    server: Server, model: ScriptedModel, trial: Trial
) -> None:
    model.rules(
        [words.calling(("pay", {"amount": "lots"})), words.calling(("pay", {}), last_tool="amount"), words.ending()]
    )
    ended = wire.send(server, wire.message("go", "asker"))
    assert ended["status"]["state"] == COMPLETED and trial.diary() == []


def test_two_calls_with_one_id_are_not_made_on_one_approval(server: Server, model: ScriptedModel, trial: Trial) -> None:
    """It could not be told which of them was approved: nobody is asked, and the answer is the model's failure."""
    model.rules([words.calling(("pay", {"amount": 1}, "same"), ("pay", {"amount": 1000}, "same")), words.ending()])
    ended = wire.send(server, wire.message("go", "asker"))
    assert ended["status"]["state"] == FAILED and trial.diary() == []


def test_s78_a_profile_that_does_not_name_it_has_no_tool_that_asks(server: Server, model: ScriptedModel) -> None:
    model.rules([{"text": "ok"}])
    wire.send(server, wire.said("hello"))
    assert "ask_user" not in model.requests()[0].tools


@pytest.mark.parametrize("owner", ["another context", "an unknown task"])
def test_f095_an_answer_that_names_another_context_or_no_task_is_refused(
    server: Server, model: ScriptedModel, owner: str
) -> None:
    model.rules([words.asking(), words.ending()])
    task = words.asked(server)
    sent = words.answer(task) | ({"contextId": "elsewhere"} if owner == "another context" else {"taskId": "nope"})
    assert words.refusal(server, sent)[1] == (-32602 if owner == "another context" else -32001)
    assert words.answered(server, task)["status"]["state"] == COMPLETED


def test_f092_events_bring_the_question_clipped_and_the_log_has_it_whole(server: Server, model: ScriptedModel) -> None:
    session, long = wire.fresh("s"), "why? " * 200
    model.rules([words.asking(long), words.ending(), {"text": "ok"}])
    task = words.asked(server, contextId=session)
    (asked,) = [data for name, data in events_of(server, session) if name == "turn.finished"]
    assert (asked["state"], asked["task_id"]) == ("input_required", task["id"])
    assert len(asked["question"]["text"]) == 300 and asked["question"]["question"] == words.digest(task)
    (entry,) = [said for said in server.messages(session) if said["question"]]
    assert entry["text"] == entry["question"]["text"] == long.strip()
    words.answered(server, task)
    assert [said for said in server.messages(session) if said["question"]] == []
