"""S83, F172: a job, and all jobs of a chat, have so many model tokens; the call that would exceed them is not made."""

from collections.abc import Sequence

import pytest

from tests.autonomy.spending import CALL, COST, FOUND, SEARCH, endless, in_front, sums
from tests.cases.stories import (
    assert_told_once,
    blocks_in,
    briefing,
    notifications,
    when_quiet,
    when_told,
    worker,
    worker_requests,
)
from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel
from tests.support.server import Server
from tests.support.serving import Serving

FIVE = "5000"


@pytest.fixture(scope="module")
def of_job(serving: Serving) -> Server:
    """Five calls a job; and a fallback that must not be asked instead."""
    return serving(OUTRIDER_JOB_TOKENS=FIVE, OUTRIDER_FALLBACK_MODELS="openai-chat:instead")


@pytest.fixture(scope="module")
def of_tree(serving: Serving) -> Server:
    """Five calls a job, twelve for all of a chat, one job after the other."""
    return serving(OUTRIDER_JOB_TOKENS=FIVE, OUTRIDER_TREE_TOKENS="12000", OUTRIDER_MAX_JOBS="1")


def sent(server: Server, session: str, prompts: Sequence[str]) -> list[str]:
    jobs = [{"prompt": prompt, "description": prompt.upper()} for prompt in prompts]
    return [job["id"] for job in server.post("/api/background", session=session, jobs=jobs)["jobs"]]


def over(server: Server, job_id: str) -> str:
    """Why this job went no further; its reason is the budget."""
    job = server.job(job_id)
    assert (job["status"], job["error"]["reason"]) == ("failed", "BUDGET_EXCEEDED"), job
    return job["error"]["message"]


def test_S83_a_job_makes_no_call_past_its_tokens_and_keeps_what_it_has_written(
    of_job: Server, model: ScriptedModel
) -> None:
    model.rules([*endless("s83 endless"), briefing()])
    of_job.ask("s83", "hello")
    job = of_job.spawn("s83", "s83 endless")["id"]
    when_told(of_job, job)
    assert "5,000" in over(of_job, job) and "OUTRIDER_JOB_TOKENS" in over(of_job, job)
    asked = worker_requests(model, "s83 endless")
    assert len(asked) == 5 and {each.body["model"] for each in asked} == {"scripted"}
    shown = of_job.job(job)
    assert sums(shown["usage"]) == {"requests": 5, "input_tokens": 4500, "output_tokens": 500}
    assert shown["partial"] and shown["report"].startswith("The first part.\n\nMore.")
    (told,) = notifications(of_job, "s83", job)
    (block,) = blocks_in(told["text"])
    assert (block["status"], block["reason code"], block["result partial"]) == ("failed", "BUDGET_EXCEEDED", "true")
    assert_told_once(of_job, "s83", job)


def test_S83_a_retry_has_the_whole_budget_of_an_attempt(of_job: Server, model: ScriptedModel) -> None:
    model.rules([*endless("s83 again"), briefing()])
    of_job.ask("s83-again", "hello")
    job = of_job.spawn("s83-again", "s83 again")["id"]
    when_told(of_job, job)
    of_job.post(f"/api/background/{job}/retry")
    of_job.wait(lambda: of_job.job(job)["attempts"] == 2 and of_job.job(job)["notified"])
    assert over(of_job, job)
    assert len(worker_requests(model, "s83 again")) == 10 and of_job.job(job)["usage"]["requests"] == 10


def test_S83_what_a_job_has_done_in_the_foreground_counts_and_stops_with_it(own: Serving, model: ScriptedModel) -> None:
    """At its limit a subagent in the foreground is not asked either, and its job ends with it."""
    server = own(OUTRIDER_JOB_TOKENS=FIVE, OUTRIDER_MAX_DEPTH="2")
    model.rules(
        [
            Rule(last_user="^s83 sends$", text="I have it done.", tool_calls=[in_front("s83 front")], usage=COST),
            *endless("s83 front"),
            briefing(),
        ]
    )
    server.ask("s83-front", "hello")
    job = server.spawn("s83-front", "s83 sends", subagent_type="sender")["id"]
    when_told(server, job)
    assert over(server, job) and server.job(job)["report"] == "I have it done."
    assert len(worker_requests(model, "s83 front")) == 4 and server.job(job)["usage"]["requests"] == 5


def test_S83_all_jobs_of_a_chat_stop_at_its_tokens_until_its_user_speaks(of_tree: Server, model: ScriptedModel) -> None:
    """The third of four goes on until the twelfth call, the fourth makes none; after the user's word it is done."""
    prompts = [f"s83 tree {number}" for number in range(4)]
    model.rules([*(rule for prompt in prompts[:3] for rule in endless(prompt)), worker(prompts[3]), briefing()])
    of_tree.ask("s83-tree", "hello")
    jobs = sent(of_tree, "s83-tree", prompts)
    when_told(of_tree, *jobs)
    assert [len(worker_requests(model, prompt)) for prompt in prompts] == [5, 5, 2, 0]
    assert ["OUTRIDER_TREE_TOKENS" in over(of_tree, job) for job in jobs] == [False, False, True, True]
    assert of_tree.get("/api/sessions/s83-tree")["usage"]["tree_tokens"] == 12 * CALL
    assert of_tree.job(jobs[2])["partial"] and not of_tree.job(jobs[3])["partial"]
    assert of_tree.ask("s83-other", "s83 tree elsewhere") == "ok"  # turns, and other sessions, go on

    when_quiet(of_tree, "s83-tree")
    of_tree.ask("s83-tree", "Go on.")
    of_tree.post(f"/api/background/{jobs[3]}/retry")
    of_tree.wait(lambda: of_tree.job(jobs[3])["status"] == "completed")


def test_S83_a_job_that_is_taken_up_again_after_a_crash_has_spent_what_it_had(
    own: Serving, model: ScriptedModel
) -> None:
    rules = [
        Rule(last_user="^s83 crash$", text="The first part.", tool_calls=[SEARCH], usage=COST),
        Rule(last_tool=FOUND, anywhere="(?m)^s83 crash$", text="More.", tool_calls=[SEARCH], usage=COST, times=2),
        Rule(last_tool=FOUND, anywhere="(?m)^s83 crash$", tool_calls=[SEARCH], usage=COST, gate="fourth"),
    ]
    model.rules([*rules, briefing()])
    server = own(OUTRIDER_JOB_TOKENS=FIVE, OUTRIDER_LEASE_S="1")
    server.ask("s83-crash", "hello")
    job = server.spawn("s83-crash", "s83 crash")["id"]
    held = model.held_at("fourth")
    server.kill()
    model.wait_for(lambda _: held.gone_at)
    model.open("fourth")
    server.restart()
    when_told(server, job)
    assert over(server, job) and server.job(job)["usage"]["requests"] == 5
    assert len([asked for asked in worker_requests(model, "s83 crash") if not asked.gone_at]) == 5
