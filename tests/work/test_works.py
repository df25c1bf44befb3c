"""F004, F145: work without a model is a job like any other, and what comes of it is told whole."""

from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel
from tests.support.server import Server
from tests.support.trial import Trial
from tests.work.conftest import ended, hired


def blocks(model: ScriptedModel, session_mark: str) -> list[str]:
    """What models were told in notifications that speak of this."""
    return [
        asked.text for asked in model.requests() if session_mark in asked.text and "<task-notification>" in asked.text
    ]


def test_f004_f104_a_deliverable_of_9000_characters_is_flagged_stored_and_told_whole(
    server: Server, model: ScriptedModel, session: str
) -> None:
    job_id = hired(server, session, say="begin ", chars=9000, end=" SENTINEL-9000", description="a long one")
    job = ended(server, job_id)
    assert (job["deterministic"], job["status"], job["plugin"]) == (True, "completed", "trial")
    assert job["subagent_type"] == "trial-steps" and job["usage"]["requests"] == 0
    assert job["report"] == "begin " + "x" * 9000 + " SENTINEL-9000"
    server.wait(lambda: server.job(job_id)["notified"])
    (told, *_) = blocks(model, "SENTINEL-9000")
    assert job["report"] in told and "truncated" not in told and "<full-report>" not in told
    assert server.job(job_id)["indexed"] is False
    hits = server.get("/api/knowledge/search", q="SENTINEL-9000")["hits"]
    assert [hit for hit in hits if hit["source"] == session] == []


def test_ruling_18_one_that_fits_no_turn_is_cut_says_so_and_is_opened_whole(
    server: Server, model: ScriptedModel, session: str
) -> None:
    job_id = hired(server, session, say="LARGE-ONE ", chars=30_000)
    server.wait(lambda: server.job(job_id)["notified"])
    (told, *_) = blocks(model, "LARGE-ONE")
    assert 'chars="30010" truncated="true"' in told and f'open_report(job_id="{job_id}")' in told
    assert told.count("x" * 10_000) >= 2, "what fits of it is there"
    assert len(server.job(job_id)["report"]) == 30_010


def test_f145_one_key_is_one_job_and_other_arguments_are_a_conflict(server: Server, session: str) -> None:
    once = hired(server, session, key="daily", say="a")
    assert hired(server, session, key="daily", say="a") == once
    assert hired(server, session, key="daily", say="b") == "conflict: This key was used for another job."


def test_what_is_no_kind_or_no_arguments_is_refused_and_stores_nothing(server: Server, session: str) -> None:
    assert hired(server, session, "nosuch").startswith("invalid: There is no such kind of work; there are: ")
    assert hired(server, session, say="x" * 100_001).startswith("invalid: args have more than 100000 characters")
    assert hired(server, "nobody-s", say="x").startswith("not_found: There is no such session.")
    assert server.jobs(session) == []


def test_s25_a_turn_s_work_and_its_subagents_come_back_in_one_briefing(
    server: Server, model: ScriptedModel, session: str
) -> None:
    """F129: subagents and deterministic jobs join together."""
    sent = {"tasks": [{"description": "by a model", "prompt": "S25 research", "subagent_type": "general"}]}
    hire = {"name": "hire", "arguments": {"session": session, "args": '{"say": "S25 deliverable"}'}}
    batch = {"name": "task_batch", "arguments": sent | {"run_in_background": True}}
    model.rules(
        [
            Rule(last_user="^S25 go", tool_calls=[batch, hire]),
            Rule(anywhere="detached, in the background", last_user="^S25 research", text="S25 report."),
        ]
    )
    server.ask(session, "S25 go")
    server.wait(lambda: len(server.jobs(session)) == 2 and all(job["notified"] for job in server.jobs(session)))
    assert len({job["batch_id"] for job in server.jobs(session)}) == 1
    assert len({job["notified_in"] for job in server.jobs(session)}) == 1
    (told, *_) = blocks(model, "S25 deliverable")
    assert "S25 report." in told


def test_work_that_cannot_be_done_ends_in_the_handler_s_words_with_what_it_kept(server: Server, session: str) -> None:
    job = ended(server, hired(server, session, steps=["one", "two"], fail="There is no third."))
    assert (job["status"], job["error"]) == ("failed", {"reason": "NO_REPORT", "message": "There is no third."})
    assert job["partial"] and job["report"] == "- one: did one\n- two: did two"


def test_a_user_s_cancel_reaches_it_and_one_in_a_thread_is_named(server: Server, trial: Trial, session: str) -> None:
    """Ruling 14."""
    job_id = hired(server, session, name="to-stop", steps=["one"], door="never")
    server.wait(lambda: "did one" in trial.diary())
    assert server.post(f"/api/background/{job_id}/cancel")["status"] == "canceled"
    in_thread = hired(server, session, "trial-thread", name="in-thread", door="thread")
    server.wait(lambda: "labors in-thread" in trial.diary())
    assert "trial-thread" in server.post(f"/api/background/{in_thread}/cancel")["note"]
    trial.open("thread")


def test_it_may_ask_and_goes_on_with_the_answer(server: Server, session: str) -> None:
    job_id = hired(server, session, "trial-once", ask="Which one?")
    server.wait(lambda: server.job(job_id)["status"] == "input_required")
    task_id = server.job(job_id)["task_id"]
    server.post(f"/api/sessions/{session}/messages", text="this one", task_id=task_id)
    assert ended(server, job_id)["report"] == "answered this one"


def test_a_coroutine_runs_once_in_this_process(server: Server, trial: Trial, session: str) -> None:
    job_id = hired(server, session, verb="loose")
    trial.open("loose")
    job = ended(server, job_id)
    assert (job["deterministic"], job["subagent_type"], job["report"]) == (True, "coroutine", "loose and done")
    server.wait(lambda: server.job(job_id)["notified"])
    server.post(f"/api/background/{job_id}/retry")
    assert "ended with the process" in ended(server, job_id)["error"]["message"]


def test_f007_work_of_an_incognito_session_is_incognito(server: Server) -> None:
    session = server.post("/api/sessions", incognito=True)["id"]
    job_id = hired(server, session, say="secret of the work")
    job = ended(server, job_id)
    assert job["incognito"] and job["deterministic"] and job["excerpt"] == ""
    assert job["report"] == "secret of the work"
