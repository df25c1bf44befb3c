"""S79: briefings that send out ever more come to an end, the session says so, and its user's next word goes on."""

import pytest

from tests.cases.stories import assert_told_once, background, briefings, fan, when_quiet, when_told, worker
from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel
from tests.support.server import Server
from tests.support.serving import Serving


@pytest.fixture(scope="module")
def two_turns(serving: Serving) -> Server:
    return serving(OUTRIDER_MAX_UNATTENDED_TURNS="2")


def test_S79_after_so_many_turns_without_its_user_a_session_waits_and_says_so(
    two_turns: Server, model: ScriptedModel
) -> None:
    """Each briefing sends out another job: the third that comes back waits, for as long as it takes."""
    server = two_turns
    model.rules(
        [
            *fan("s79 begin", "s79 loops"),
            Rule(last_user="<task-notification>", tool_offered="task", tool_calls=[background("s79 loops")]),
            Rule(last_tool="sent out", text="Another went out."),
            worker("s79 loops"),
        ]
    )
    server.ask("s79", "s79 begin")
    server.wait(lambda: any(one["delivery"]["last_error"] for one in server.jobs("s79")))
    when_quiet(server, "s79")
    waiting, *told = server.jobs("s79")
    assert [one["notified"] for one in told] == [True, True] and len(briefings(server, "s79")) == 2
    assert (waiting["status"], waiting["delivery"]["state"]) == ("completed", "pending")
    assert "OUTRIDER_MAX_UNATTENDED_TURNS (2)" in waiting["delivery"]["last_error"]
    (notice,) = [message for message in server.messages("s79") if message["kind"] == "notice"]
    assert "begun 2 turns" in notice["text"] and "your next message" in notice["text"]

    server.ask("s79", "What is there?")
    when_told(server, waiting["id"])
    assert_told_once(server, "s79", *(one["id"] for one in (waiting, *told)))
    assert server.job(waiting["id"])["delivery"]["last_error"] is None

    server.spawn("s79", "s79 anew", "S79 ANEW")  # and its turns are counted anew
    server.wait(lambda: len(briefings(server, "s79")) == 4)
    when_quiet(server, "s79")
