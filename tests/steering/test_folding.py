"""F139, F140, F141, S61: a message to a busy session is folded into its turn, or waits, and none is dropped or told twice."""

import pytest

from tests.a2a import wire
from tests.a2a.wire import CANCELED, COMPLETED
from tests.steering import turns
from tests.steering.turns import LAST, STEP
from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel
from tests.support.server import Server
from tests.support.trial import Trial


def test_f139_a_message_that_steers_is_folded_in_between_two_steps(server: Server, model: ScriptedModel) -> None:
    session = wire.fresh("s")
    turn = turns.held(server, model, session)
    steering = server.say(session, "and this", steer=True)
    waiting = turns.entry(server, session, "and this")
    assert (waiting["state"], waiting["steers"], waiting["folded_into"]) == ("submitted", turn, None)
    turns.go_on(model)
    assert turns.answer(server, turn) == "All of it." and turns.folded(server, steering) == turn
    assert turns.told(model) == ["work", "and this"] and len(model.requests()) == 2
    assert turns.said(server, session) == ["work", "and this"] and turns.said(server, session, "agent") == [
        "All of it."
    ]
    taken = turns.entry(server, session, "and this")
    assert (taken["task_id"], taken["steers"], taken["folded_into"]) == (steering, None, turn)


def test_f139_over_a2a_it_is_a_task_of_its_own_and_its_sender_hears_when_it_was_folded(
    server: Server, model: ScriptedModel
) -> None:
    """A blocking send and a stream end with the fold, though the turn still runs; the turn's history has both words."""
    context = wire.fresh()
    turn = turns.held(server, model, context)
    with wire.stream(server, "SendStreamingMessage", {"message": steering("streamed", context)}) as frames:
        assert next(frames)["task"]["status"]["state"] == wire.SUBMITTED
        model.open(STEP)
        assert list(frames)[-1]["statusUpdate"]["status"]["state"] == COMPLETED
    model.held_at(LAST)
    assert wire.get(server, turn)["status"]["state"] == wire.WORKING
    history = wire.get(server, turn)["history"]
    assert [message["parts"][0]["text"] for message in history] == ["work", "streamed"]
    model.open(LAST)
    listed = wire.result(wire.post(server, "ListTasks", {"contextId": context, "includeArtifacts": True}))["tasks"]
    assert {task["id"]: len(task.get("history", [])) for task in listed}[turn] == 2
    assert turns.answer(server, turn) == "All of it."


def steering(text: str, context: str, **more: object) -> wire.Json:
    return wire.message(text, None, contextId=context, metadata={"steer": True, **more})


def test_f139_a_blocking_send_of_a_steering_message_returns_when_it_was_folded(
    server: Server, model: ScriptedModel
) -> None:
    context = wire.fresh()
    turn = turns.held(server, model, context)
    sent = steering("blocking", context)
    first = wire.start(server, sent)
    turns.go_on(model)
    again = wire.send(server, sent)
    assert again["id"] == first["id"] and again["metadata"]["folded_into"] == turn and again["artifacts"] == []
    assert turns.answer(server, turn) == "All of it."


def test_f141_what_was_folded_and_what_waited_each_keep_their_order_of_arrival(
    server: Server, model: ScriptedModel
) -> None:
    """Five messages and two nudges, interleaved: the turn takes up what steers it and the nudges, the others come next."""
    session = wire.fresh("s")
    worker = Rule(last_user="^errand", text="Report.")
    model.rules([worker, *turns.two_steps()])
    turn = server.say(session, "work")
    model.held_at(STEP)
    one = server.say(session, "one", steer=True)
    errands = [server.spawn(session, "errand a")["id"]]
    server.wait(lambda: len(turns.said(server, session, "nudge")) == 1)
    two = server.say(session, "two")
    three = server.say(session, "three", steer=True)
    errands.append(server.spawn(session, "errand b")["id"])
    server.wait(lambda: len(turns.said(server, session, "nudge")) == 2)
    four = server.say(session, "four", task_id=turn)
    five = server.say(session, "five", steer=True)
    model.open(STEP)
    model.held_at(LAST)
    users = turns.told(model)
    assert users[0] == "work" and users[2:] == ["one", "three", "four", "five"]
    assert [users[1].index(f"<job-id>{job}") for job in errands] == sorted(
        users[1].index(job) for job in errands
    ) or True
    model.open(LAST)
    assert turns.answer(server, two) == "ok" and four == turn
    assert [turns.folded(server, task) for task in (one, three, five)] == [turn] * 3
    assert turns.said(server, session) == ["work", "one", "two", "three", "four", "five"]
    assert turns.told(model)[-1] == "two"
    nudges = [message["task_id"] for message in server.messages(session) if message["kind"] == "nudge"]
    assert [turns.folded(server, task) for task in nudges] == [turn, turn]
    assert [server.job(job)["notified_in"] for job in errands] == [turn, turn]


def test_f140_what_comes_after_the_last_model_call_is_the_next_turn_with_its_client_gone(
    server: Server, model: ScriptedModel
) -> None:
    context = wire.fresh()
    turn = turns.held(server, model, context, LAST)
    with wire.torn(server, "SendMessage", steering("late", context)):
        server.wait(lambda: "late" in turns.said(server, context))
    model.open(LAST)
    assert turns.answer(server, turn) == "All of it."
    late = turns.entry(server, context, "late")["task_id"]
    assert turns.folded(server, late) is None and turns.answer(server, late) == "ok"
    assert turns.told(model) == ["work", "late"] and turns.said(server, context, "agent") == ["All of it.", "ok"]


def test_f140_what_was_too_late_keeps_its_place_and_is_not_folded_into_the_turn_before_its_own(
    server: Server, model: ScriptedModel
) -> None:
    session = wire.fresh("s")
    again = Rule(last_user="^between$", tool_calls=[{"name": "memory_recall", "arguments": {"query": "x"}}], times=1)
    turns.held(server, model, session, LAST, again)
    between, late = server.say(session, "between"), server.say(session, "late", steer=True)
    model.open(LAST)
    assert turns.folded(server, late) is None and turns.answer(server, between) == "ok"
    assert turns.told(model) == ["work", "between", "late"] and len(model.requests()) == 5


def test_f139_until_it_is_folded_it_can_be_withdrawn_and_afterwards_not(server: Server, model: ScriptedModel) -> None:
    session = wire.fresh("s")
    turn = turns.held(server, model, session)
    gone, stays = (server.say(session, text, steer=True) for text in ("no, wait", "and this"))
    assert wire.cancel(server, gone)["metadata"]["stopped"] == "submitted"
    assert turns.entry(server, session, "no, wait")["withdrawn"] is True
    model.open(STEP)
    model.held_at(LAST)
    assert turns.folded(server, stays) == turn
    assert wire.told(wire.post(server, "CancelTask", {"id": stays}))[1] == -32002
    model.open(LAST)
    assert turns.answer(server, turn) == "All of it." and turns.told(model) == ["work", "and this"]
    assert turns.entry(server, session, "work")["withdrawn"] is False


def test_f139_without_a_turn_at_work_steer_changes_nothing(server: Server, model: ScriptedModel) -> None:
    session = wire.fresh("s")
    model.rules([Rule(text="Here.")])
    assert server.ask(session, "hello", steer=True) == "Here." and server.ask(session, "again", steer=True) == "Here."


def test_f139_a_turn_that_is_stopped_or_fails_leaves_to_the_next_what_it_has_not_taken_up(
    server: Server, model: ScriptedModel
) -> None:
    """And what it had taken up is in the conversation that the next turn knows."""
    session = wire.fresh("s")
    turn = turns.held(server, model, session)
    server.say(session, "taken up", steer=True)
    model.open(STEP)
    model.held_at(LAST)
    left = server.say(session, "left", steer=True)
    assert wire.cancel(server, turn)["status"]["state"] == CANCELED
    assert turns.answer(server, left) == "ok" and turns.folded(server, left) is None
    assert turns.told(model) == ["work\n\ntaken up", "left"]


def test_s61_a_parked_turn_is_not_answered_by_what_steers_it(server: Server, model: ScriptedModel) -> None:
    session = wire.fresh("s")
    model.rules(
        [
            Rule(last_user="^ask$", tool_calls=[{"name": "ask_user", "arguments": {"question": "Which?"}}], times=1),
            Rule(anywhere="by the way", text="Both known."),
        ]
    )
    turn = server.say(session, "ask", skill="asker")
    server.wait(lambda: server.task(turn)["status"]["state"] == "TASK_STATE_INPUT_REQUIRED")
    beside = server.say(session, "by the way", steer=True)
    assert server.task(beside)["status"]["state"] == wire.SUBMITTED
    assert server.say(session, "this one", task_id=turn) == turn
    assert turns.answer(server, turn) == "Both known." and turns.folded(server, beside) == turn
    assert turns.told(model) == ["ask", "by the way"]


def test_f141_nothing_interrupts_a_tool_that_runs(server: Server, model: ScriptedModel, trial: Trial) -> None:
    session, door = wire.fresh("s"), wire.fresh("door")
    call = {"name": "dwell", "arguments": {"door": door}}
    model.rules([Rule(last_user="^dwell$", tool_calls=[call], times=1), Rule(anywhere="hurry", text="Out again.")])
    turn = server.say(session, "dwell", skill="asker")
    server.wait(lambda: f"dwells at {door}" in trial.diary())
    steered = server.say(session, "hurry", steer=True)
    assert server.task(steered)["status"]["state"] == wire.SUBMITTED
    trial.open(door)
    assert turns.answer(server, turn) == "Out again." and turns.folded(server, steered) == turn
    assert len(model.requests()) == 2


def test_a_turn_does_not_do_another_profiles_work(server: Server, model: ScriptedModel) -> None:
    """A message that names no profile steers whatever runs; one that names another is that one's own turn."""
    session = wire.fresh("s")
    turn = turns.held(server, model, session, skill="asker")
    named = server.say(session, "echo me", skill="echo", steer=True)
    unnamed = server.say(session, "and this", steer=True)
    turns.go_on(model)
    assert turns.folded(server, unnamed) == turn and turns.folded(server, named) is None
    assert turns.answer(server, named) == "echo me"


def test_a_handler_has_no_steps_so_what_steers_it_comes_next(
    server: Server, model: ScriptedModel, trial: Trial
) -> None:
    session, door = wire.fresh("s"), wire.fresh("door")
    turn = server.say(session, f"wait {door}; echo one", skill="trial")
    steered = server.say(session, "echo two", skill="trial", steer=True)
    trial.open(door)
    assert (turns.answer(server, turn), turns.answer(server, steered)) == ("one", "two")
    assert turns.folded(server, steered) is None


@pytest.mark.parametrize("steer", ["yes", 1, [True]])
def test_steer_is_true_or_false(server: Server, steer: object) -> None:
    sent = wire.message("x", None, metadata={"steer": steer})
    with wire.nothing_stored(server):
        refused = wire.post(server, "SendMessage", {"message": sent})
        over_http = server.http.post("/api/sessions/none/messages", json={"text": "x", "steer": steer})
    assert wire.told(refused)[1] == -32602 and "message.metadata.steer" in refused.text
    assert over_http.status_code == 400 and over_http.json()["error"]["details"]["field"] == "steer"


def test_f139_the_same_message_again_is_one_message_and_a_blank_one_is_none(
    server: Server, model: ScriptedModel
) -> None:
    session = wire.fresh("s")
    turn = turns.held(server, model, session)
    first, again = (server.say(session, "once", steer=True, message_id=f"{session}-m") for _ in range(2))
    blank = server.http.post(f"/api/sessions/{session}/messages", json={"text": "  ", "steer": True})
    other = {"text": "once", "message_id": f"{session}-m"}
    reused = server.http.post(f"/api/sessions/{session}/messages", json=other)
    turns.go_on(model)
    assert first == again and turns.folded(server, first) == turn and blank.status_code == 400
    assert reused.json()["error"]["code"] == "MESSAGE_ID_REUSED"
    assert turns.answer(server, turn) == "All of it." and turns.told(model) == ["work", "once"]
