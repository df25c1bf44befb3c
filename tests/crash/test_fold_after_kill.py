"""What was folded into a running turn stays in it, however often the turn is taken up again before its next answer."""

from tests.crash.mortal import Mortal
from tests.support.rules import Rule
from tests.support.scripted import Asked, ScriptedModel

RULES = [
    Rule(last_user="first errand", text="The first report.", gate="first"),
    Rule(last_user="second errand", text="The second report.", gate="second"),
    Rule(last_user="<task-notification>", text="Both have come.", gate="briefing"),
    Rule(last_user="Look around", tool_calls=[{"id": "call", "name": "memory_recall"}], gate="look"),
]


def nudges(server: Mortal) -> list[str]:
    """The states of the session's nudges, in order of coming."""
    return [said["state"] for said in server.messages("s") if said["kind"] == "nudge"]


def asked_again(model: ScriptedModel, times: int) -> Asked:
    """The request for the briefing, when it comes for this time."""
    return model.wait_for(lambda all_: [asked for asked in all_ if asked.gate == "briefing"][times - 1 : times])[0]


def test_two_nudges_folded_in_before_the_same_answer_are_both_told(mortal: Mortal, scripted: ScriptedModel) -> None:
    scripted.rules(RULES)
    assert mortal.begin()
    turn = mortal.say("s", "Look around.")
    jobs = [mortal.spawn("s", f"The {which} errand.")["id"] for which in ("first", "second")]
    scripted.held_at("look")
    scripted.open("first")
    mortal.wait(lambda: nudges(mortal) == ["submitted"])
    scripted.open("look")
    asked_again(scripted, 1)  # the first is folded in, and the answer to it does not come
    scripted.open("second")
    mortal.wait(lambda: nudges(mortal) == ["completed", "submitted"])

    for times in (2, 3):  # taken up again, it folds the second in; once more, and it must still know of both
        mortal.kill()
        assert mortal.begin()
        asked = asked_again(scripted, times)
        assert [asked.text.count(f"<job-id>{job}</job-id>") for job in jobs] == [1, 1]

    scripted.open("briefing")
    mortal.ended(turn)
    assert [mortal.job(job)["notified_in"] for job in jobs] == [turn, turn]
    assert nudges(mortal) == ["completed", "completed"]
