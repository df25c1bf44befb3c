"""At `redacted` a turn goes on from a copy that is masked: no tool is ever called with what a mask has left of a call."""

from collections.abc import Callable

import pytest

from tests.a2a import wire
from tests.a2a.wire import COMPLETED
from tests.interrupts import words
from tests.support.scripted import ScriptedModel
from tests.support.server import Server, answer_of
from tests.support.trial import Trial

CARD = 4111111111111111
ADDRESS = "somebody@example.com"
NOT_RUN = "NOT RUN: its arguments were masked by the privacy settings"
NOT_ASKED = "REFUSED: nobody was asked, because the privacy settings mask"


@pytest.fixture(scope="module")
def masking(serving: Callable[..., Server]) -> Server:
    """A server at `redacted` that no test ends."""
    return serving(OUTRIDER_ANSWER_LEVEL="redacted")


def told(model: ScriptedModel) -> list[str]:
    """The results of tools in the newest request to the model, in order."""
    return [message["content"] for message in model.requests()[-1].messages if message["role"] == "tool"]


def test_uninterrupted_a_tool_gets_its_real_arguments(masking: Server, model: ScriptedModel, trial: Trial) -> None:
    model.rules([words.calling(("shout", {"text": ADDRESS}), ("double", {"number": CARD})), words.ending()])
    assert wire.send(masking, wire.message("go", "asker"))["status"]["state"] == COMPLETED
    assert told(model) == [ADDRESS.upper(), str(2 * CARD)] and trial.diary() == [f"doubled {CARD}"]


def test_killed_within_a_call_whose_arguments_are_masked_it_is_not_made_again(
    own: Callable[..., Server], model: ScriptedModel, trial: Trial
) -> None:
    """The call beside it, of which nothing is masked, is made again as ever."""
    server, door = own(OUTRIDER_LEASE_S="1", OUTRIDER_ANSWER_LEVEL="redacted"), wire.fresh("door")
    model.rules([words.calling(("dwell", {"door": ADDRESS}), ("dwell", {"door": door})), words.ending()])
    task = words.began(server)
    server.wait(lambda: sorted(trial.diary()) == sorted([f"dwells at {door}", f"dwells at {ADDRESS}"]))
    trial.open(door)
    server.restart()
    assert server.ended(task["id"])["status"]["state"] == COMPLETED
    assert told(model)[0].startswith(NOT_RUN) and told(model)[1] == f"through {door}"
    assert [line for line in trial.diary() if line.startswith("dwells") and door not in line] == [
        f"dwells at {ADDRESS}"
    ]
    assert len(model.requests()) == 2


def test_behind_a_question_masked_calls_are_not_made_and_what_is_told_of_them_is_kept(
    own: Callable[..., Server], model: ScriptedModel, trial: Trial
) -> None:
    """Also where a masked number would not fit the tool any more; a masked question is asked and answered."""
    server = own(OUTRIDER_LEASE_S="1", OUTRIDER_ANSWER_LEVEL="redacted")
    question = ("ask_user", {"question": f"May I write to {ADDRESS}?"})
    calls = [("double", {"number": CARD}), question, ("shout", {"text": ADDRESS}), ("double", {"number": 4})]
    model.rules([words.calling(*calls), words.ending(gate="end")])
    task = words.asked(server)
    assert words.question(task) == "May I write to ***?" and trial.diary() == []
    wire.start(server, words.answer(task, "yes"))
    model.held_at("end")
    server.restart()
    model.wait_for(lambda asked: len(asked) == 3)
    model.open("end")
    assert server.ended(task["id"])["status"]["state"] == COMPLETED
    for asked in model.requests()[1:]:
        results = [message["content"] for message in asked.messages if message["role"] == "tool"]
        assert [result[: len(NOT_RUN)] for result in results] == [NOT_RUN, "yes", NOT_RUN, "8"]
    assert trial.diary() == ["doubled 4"]


def test_an_approval_whose_arguments_are_masked_is_not_asked_for(
    masking: Server, model: ScriptedModel, trial: Trial
) -> None:
    model.rules([words.paying(CARD), words.ending("Not paid.")])
    ended = wire.send(masking, wire.message("go", "asker"))
    assert ended["status"]["state"] == COMPLETED and answer_of(ended) == "Not paid."
    assert told(model)[0].startswith(NOT_ASKED) and trial.diary() == []


def test_an_approval_of_what_no_mask_touches_is_asked_for_and_made_even_beside_one_that_is_not(
    masking: Server, model: ScriptedModel, trial: Trial
) -> None:
    model.rules([words.calling(("pay", {"amount": CARD}), ("pay", {"amount": 5})), words.ending()])
    task = words.asked(masking)
    assert '"amount": 5' in words.said(task)[-1]
    assert words.answered(masking, task, "approve")["status"]["state"] == COMPLETED
    assert told(model)[0].startswith(NOT_RUN) and told(model)[1] == "paid 5" and trial.diary() == ["paid 5"]


def test_an_approval_given_before_the_level_sank_makes_no_masked_call(
    own: Callable[..., Server], model: ScriptedModel, trial: Trial
) -> None:
    """What was asked with all of its arguments is masked by a stricter start: nobody has approved of what is left."""
    server = own()
    model.rules([words.paying(CARD), words.ending("Not paid.")])
    task = words.asked(server)
    assert str(CARD) in words.said(task)[-1]
    server.kill()
    server.env["OUTRIDER_ANSWER_LEVEL"] = "redacted"
    server.start()
    server.wait(lambda: str(CARD) not in str(wire.get(server, task["id"])))
    ended = words.answered(server, wire.get(server, task["id"]), "approve")
    assert ended["status"]["state"] == COMPLETED and answer_of(ended) == "Not paid."
    assert told(model)[0].startswith(NOT_RUN) and trial.diary() == []
