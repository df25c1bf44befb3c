"""F139, A30: what was sent to a busy session outlives its server, in order, and is told once, wherever that was killed."""

from tests.a2a import wire
from tests.crash.mortal import Mortal
from tests.steering import turns
from tests.steering.turns import LAST, STEP
from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel


def test_f139_of_three_that_wait_one_is_withdrawn_and_the_others_are_answered_in_order_after_a_kill(
    mortal: Mortal, scripted: ScriptedModel
) -> None:
    server, model = mortal, scripted
    assert server.begin()
    model.rules(
        [Rule(last_user="^ahead$", text="lost", gate="never", times=1), Rule(last_user="^(.+)$", text="To {1}.")]
    )
    ahead = server.say("s", "ahead")
    model.held_at("never")
    one, two, three = (server.say("s", text) for text in ("one", "two", "three"))
    wire.cancel(server, two)
    server.kill()
    assert server.begin()
    assert [turns.answer(server, task) for task in (ahead, one, three)] == ["To ahead.", "To one.", "To three."]
    assert turns.told(model) == ["ahead", "one", "three"] and len(model.requests()) == 4
    assert turns.said(server, "s", "agent") == [
        "",
        "To ahead.",
        "To one.",
        "To three.",
    ]  # nothing was said to what was withdrawn
    assert server.task(two)["status"]["state"] == wire.CANCELED


def test_a30_what_steers_is_folded_once_wherever_its_turn_is_killed(mortal: Mortal, scripted: ScriptedModel) -> None:
    """Killed before the fold; again when it was folded and its answer was not there; and then another one steers."""
    server, model = mortal, scripted
    assert server.begin()
    turn = turns.held(server, model, "s")
    first = server.say("s", "first", steer=True)
    server.kill()
    model.rules(turns.two_steps())
    assert server.begin()
    model.held_at(STEP)
    model.open(STEP)
    assert model.held_at(LAST).last_user == "first" and turns.folded(server, first) == turn
    server.kill()
    model.rules(turns.two_steps())
    assert server.begin()
    model.held_at(LAST)
    assert turns.told(model) == ["work", "first"]
    second = server.say("s", "second", steer=True)
    wire.cancel(server, server.say("s", "no", steer=True))
    model.open(LAST)
    assert turns.answer(server, turn) == "All of it." and turns.answer(server, second) == "ok"
    assert turns.told(model) == ["work", "first", "second"]
    assert turns.said(server, "s") == ["work", "first", "second", "no"]
