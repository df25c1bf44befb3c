"""S85, S86, S87: a model that polls is told to end its turn, and one that forgets what it sent out is told that it runs."""

from tests.cases.stories import (
    assert_told_once,
    background,
    briefing,
    calling,
    chat_requests,
    job,
    sent_out,
    when_quiet,
    when_told,
    worker,
)
from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel
from tests.support.server import Server


def results(model: ScriptedModel, marker: str) -> list[str]:
    """The tools' results in the newest request of a chat that has these words."""
    asked = chat_requests(model, marker)[-1]
    return [message["content"] for message in asked.messages if message["role"] == "tool"]


def test_S85_the_fourth_reading_of_a_job_of_which_nothing_is_new_says_end_your_turn(
    server: Server, model: ScriptedModel
) -> None:
    """Each answer comes at once; a job that has ended can be read as often as one likes."""
    again = calling("background_status", job_id="{1}")
    model.rules(
        [
            Rule(last_user="^poll (bg-.*)$", tool_offered="task", tool_calls=[again], times=1),
            Rule(last_tool="end your turn. You", text="I end it."),
            Rule(last_tool=r"^(bg-\w+) general: .*\nstatus: (?:queued|running)", tool_calls=[again]),
            Rule(last_user="^read (bg-.*)$", tool_offered="task", tool_calls=[again] * 5),
            Rule(last_tool="status: completed", text="I have read it."),
            worker("s85 works", gate="work"),
            briefing(),
        ]
    )
    server.ask("s85", "hello")
    sent = server.spawn("s85", "s85 works")["id"]
    model.held_at("work")
    assert server.ask("s85", f"poll {sent}") == "I end it."
    first, second, third, fourth = results(model, f"poll {sent}")
    assert first == second == third and "No result exists yet" in first and "do not poll" in first
    assert fourth.startswith(f"{sent} is running: unchanged, end your turn.") and "status:" not in fourth
    model.open("work")
    when_told(server, sent)
    assert server.ask("s85", f"read {sent}") == "I have read it."
    assert all("Report on s85 works" in told for told in results(model, f"read {sent}")[-5:])
    when_quiet(server, "s85")


def test_S85_S86_what_is_sent_out_is_answered_with_its_id_and_that_there_is_no_result_yet(
    server: Server, model: ScriptedModel
) -> None:
    model.rules(
        [
            Rule(last_user="^s86$", tool_offered="task", tool_calls=[background("s86 works")]),
            worker("s86 works", gate="work"),
            Rule(last_tool="sent out", text="It went out."),
            briefing(),
        ]
    )
    assert server.ask("s86", "s86") == "It went out."
    (one,) = sent_out(server, "s86", "s86 works")
    (told,) = results(model, "s86")[:1]
    for words in (one["id"], "No result exists yet", "you will be notified", "do not poll, do not send it out again"):
        assert words in told, words
    model.open("work")
    when_told(server, one["id"])


def test_S87_what_runs_already_is_not_sent_out_again(server: Server, model: ScriptedModel) -> None:
    """The same words under another name, twice in one call too; another type is another job, and so is one after the end."""
    twice = {"tasks": [job("s87 new"), job("s87 new"), job("s87 works")], "run_in_background": True}
    other = {"tasks": [job("s87 works", "researcher")], "run_in_background": True}
    one = {**job("s87 works"), "description": "Called otherwise", "run_in_background": True}
    model.rules(
        [
            Rule(last_user="^s87 first$", tool_offered="task", tool_calls=[background("s87 works")]),
            Rule(last_user="^s87 again$", tool_offered="task", tool_calls=[calling("task", **one)]),
            Rule(last_user="^s87 twice$", tool_offered="task", tool_calls=[calling("task_batch", **twice)]),
            Rule(last_user="^s87 other$", tool_offered="task", tool_calls=[calling("task_batch", **other)]),
            Rule(last_tool="", not_anywhere="You work detached", text="So it is."),
            worker("s87 (works|new)", "Done.", gate="work", until="work"),
            worker("s87 (works|new)", "Done."),
            briefing(),
        ]
    )
    server.ask("s87", "s87 first")
    (first,) = sent_out(server, "s87", "s87 works")
    server.ask("s87", "s87 again")
    assert f"{first['id']} general: S87 WORKS (already running" in results(model, "s87 again")[-1]
    server.ask("s87", "s87 twice")
    jobs = server.jobs("s87")
    assert len(jobs) == 2
    new = next(one["id"] for one in jobs if one["prompt"] == "s87 new")
    lines = results(model, "s87 twice")[-1].splitlines()[:3]
    assert [line.split()[1] for line in lines] == [new, new, first["id"]]
    assert ["already running" in line for line in lines] == [False, True, True]
    server.ask("s87", "s87 other")
    assert len(server.jobs("s87")) == 3
    model.open("work")
    out = [one["id"] for one in server.jobs("s87")]
    when_told(server, *out)
    when_quiet(server, "s87")
    server.ask("s87", "s87 first")
    assert len(server.jobs("s87")) == 4
    when_told(server, *(one["id"] for one in server.jobs("s87")))
    assert_told_once(server, "s87", *out)
