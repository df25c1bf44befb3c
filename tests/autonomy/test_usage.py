"""F172: what model calls cost is put to turn, job, session and cause, to the last token that the provider has counted."""

from tests.autonomy.spending import COST, FOUND, SEARCH, added, answered, billed, in_front, sums
from tests.cases.stories import briefing, calling, fan, sent_out, when_quiet, when_told, worker
from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel
from tests.support.server import Server
from tests.support.serving import Serving


def usage(server: Server, session: str) -> dict:
    return server.get(f"/api/sessions/{session}")["usage"]


def story(server: Server, job_id: str) -> dict:
    return server.get(f"/api/background/{job_id}/story")


def test_F172_the_sums_are_the_provider_s_totals(server: Server, model: ScriptedModel) -> None:
    """A turn with a subagent in the foreground, a job that has one too, its retry, and the briefings over both."""
    rules = [
        *fan("f172", "f172 job"),
        Rule(last_user="^f172 ask$", tool_offered="task", tool_calls=[in_front("f172 front")]),
        Rule(last_tool="Report on f172 front", text="So it is."),
        Rule(last_user="^f172 front$", tool_calls=[SEARCH], usage=COST),
        Rule(last_tool=FOUND, anywhere="(?m)^f172 front$", text="Report on f172 front.", usage=COST),
        worker("f172 job", usage={"prompt_tokens": 7, "completion_tokens": 3}),
        briefing(usage={"prompt_tokens": 50, "completion_tokens": 5}),
    ]
    model.rules(rules)
    assert server.ask("f172", "f172 ask") == "So it is."
    in_the_front = usage(server, "f172")
    assert sums(in_the_front) == billed(model, rules) and in_the_front["requests"] == 4
    assert in_the_front["causes"] == {
        "turn": {name: in_the_front[name] for name in (*sums(in_the_front), "tool_calls")}
    }
    assert (in_the_front["tool_calls"], in_the_front["tree_tokens"]) == (2, 0)

    server.ask("f172", "f172")
    (job,) = sent_out(server, "f172", "f172 job")
    when_told(server, job["id"])
    when_quiet(server, "f172")
    first = server.job(job["id"])
    server.post(f"/api/background/{job['id']}/retry")
    server.wait(lambda: server.job(job["id"])["attempts"] == 2 and server.job(job["id"])["notified"])
    when_quiet(server, "f172")
    again, session = server.job(job["id"]), usage(server, "f172")
    assert sums(first["usage"]) == {"requests": 1, "input_tokens": 7, "output_tokens": 3}
    assert sums(again["usage"]) == {"requests": 2, "input_tokens": 14, "output_tokens": 6}
    assert [(entry["cause"], entry["part"]) for entry in story(server, job["id"])["expenses"]] == [
        ("job", 1),
        ("retry", 1),
    ]
    assert list(session["causes"]) == ["turn", "briefing", "job", "retry"]
    assert sums(session) == billed(model, rules) == added(*session["causes"].values())
    assert sums(session["causes"]["briefing"]) == {"requests": 2, "input_tokens": 100, "output_tokens": 10}
    assert session["tree_tokens"] == 20
    server.ask("f172", "hello")
    assert usage(server, "f172")["tree_tokens"] == 0


def test_F172_usage_grows_while_a_job_runs_and_a_canceled_one_has_cost_what_it_had(
    server: Server, model: ScriptedModel
) -> None:
    model.rules(
        [
            Rule(last_user="^f172 grows$", tool_calls=[SEARCH], usage=COST),
            Rule(last_tool=FOUND, anywhere="(?m)^f172 grows$", text="Done.", gate="never"),
            briefing(),
        ]
    )
    server.ask("f172-grows", "hello")
    job = server.spawn("f172-grows", "f172 grows")
    assert sums(job["usage"]) == {"requests": 0, "input_tokens": 0, "output_tokens": 0}
    model.held_at("never")
    grown = server.job(job["id"])["usage"]
    assert grown == {"requests": 1, "input_tokens": 900, "output_tokens": 100, "tool_calls": 1}
    assert server.post(f"/api/background/{job['id']}/cancel")["usage"] == grown
    assert usage(server, "f172-grows")["causes"]["job"] == grown


def test_F172_a_parked_part_is_an_entry_of_its_own(server: Server, model: ScriptedModel) -> None:
    rules = [
        Rule(last_user="^f172 parks$", tool_calls=[calling("ask_user", question="Which one?")], usage=COST),
        Rule(last_tool="", anywhere="(?m)^f172 parks$", text="That one."),
    ]
    model.rules([*rules, briefing()])
    server.ask("f172-parks", "hello")
    job = server.spawn("f172-parks", "f172 parks", subagent_type="parker")["id"]
    server.wait(lambda: server.job(job)["status"] == "input_required")
    server.say("f172-parks", "The red one.", task_id=server.job(job)["task_id"])
    when_told(server, job)
    parts = story(server, job)["expenses"]
    assert [(entry["part"], entry["cause"], entry["task_id"]) for entry in parts] == [
        (number, "job", server.job(job)["task_id"]) for number in (1, 2)
    ]
    assert [sums(entry) for entry in parts] == [
        {"requests": 1, "input_tokens": 900, "output_tokens": 100},
        {"requests": 1, "input_tokens": 10, "output_tokens": 10},
    ]
    assert sums(server.job(job)["usage"]) == added(*parts)


def test_F172_after_a_crash_what_was_spent_before_it_is_counted_and_nothing_twice(
    own: Serving, model: ScriptedModel
) -> None:
    """It is killed while a subagent in the foreground makes its second call; that is then run again from its start."""
    rules = [
        Rule(
            last_user="^f172 crash$", tool_offered="task", tool_calls=[in_front("f172 front"), in_front("f172 quick")]
        ),
        Rule(last_tool="Report on f172", text="So it is.", usage=COST),
        Rule(last_user="^f172 quick$", text="Report on f172 quick.", usage=COST),
        Rule(last_user="^f172 front$", tool_calls=[SEARCH], usage=COST),
        Rule(last_tool=FOUND, anywhere="(?m)^f172 front$", text="Report on f172 front.", gate="second"),
    ]
    model.rules(rules)
    server = own(OUTRIDER_LEASE_S="1")
    turn = server.say("f172-crash", "f172 crash")
    held = model.held_at("second")
    server.wait(lambda: usage(server, "f172-crash")["requests"] == 3)
    server.kill()
    model.wait_for(lambda _: held.gone_at)
    model.open("second")
    server.restart()
    server.ended(turn)
    assert len(answered(model)) > len(rules)  # something was asked twice
    assert sums(usage(server, "f172-crash")) == billed(model, rules)


def test_F172_what_a_turn_has_cost_stays_its_session_s_when_the_turn_is_erased_and_goes_with_the_session(
    server: Server, model: ScriptedModel
) -> None:
    turn = server.say("f172-erased", "hello")
    server.ended(turn)
    before = usage(server, "f172-erased")
    assert before["requests"] == 1
    assert server.http.delete(f"/api/sessions/f172-erased/tasks/{turn}").status_code == 202
    assert usage(server, "f172-erased") == before
    assert server.http.delete("/api/sessions/f172-erased").status_code == 202
    server.ask("f172-erased", "hello")
    assert usage(server, "f172-erased") == before  # of the one turn that there is now


def test_F172_the_status_tells_what_a_day_has_cost(server: Server, model: ScriptedModel) -> None:
    before = server.get("/api/status")["usage_of_a_day"]
    server.ask("f172-day", "hello")
    after = server.get("/api/status")["usage_of_a_day"]
    assert {name: after[name] - before[name] for name in sums(after)} == sums(usage(server, "f172-day"))
