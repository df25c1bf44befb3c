"""F143, F145, F146: one call of a plugin's is the whole road, from wherever it comes; what is refused is refused in words.

Ruling 30 (in a turn it acts for the turn's owner) is held in `tests/access`.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel
from tests.support.server import Process, Server
from tests.support.serving import Serving
from tests.support.trial import Trial
from web.app import build
from web.settings import BadSetting, load

WORK = [Rule(anywhere="detached, in the background", last_user="^work", text="Report: it is done.")]


def told(server: Server, verb: str, session: str, /, skill: str = "trial", **asked: Any) -> str:
    """What the sdk answered to a handler of the plugin's, in a turn of a session beside."""
    return server.ask("plugin", f"{verb} {json.dumps({'session': session} | asked)}", skill=skill)


@pytest.fixture
def session(server: Server, request: pytest.FixtureRequest) -> str:
    """A chat of the test's own."""
    return server.post("/api/sessions", id=f"{request.node.originalname}"[:100])["id"]


@pytest.mark.parametrize(
    ("verb", "skill"),
    [("send", "trial"), ("thread", "trial"), ("send", "trial-sync")],
    ids=["async code", "a thread of async code", "a plain function"],
)
def test_f143_f146_a_call_is_a_job_that_goes_the_whole_road_and_says_whose_it_is(
    server: Server, model: ScriptedModel, verb: str, skill: str
) -> None:
    model.rules(WORK)
    session = server.post("/api/sessions")["id"]
    job = server.job(told(server, verb, session, skill, prompt="work hard", description="by a plugin"))
    assert (job["session"], job["prompt"], job["plugin"]) == (session, "work hard", "trial")
    server.wait(lambda: server.job(job["id"])["notified"])
    assert server.job(job["id"])["report"] == "Report: it is done."
    assert any(entry["job_ids"] == [job["id"]] for entry in server.messages(session))
    (spawned,) = [line for line in story(server, job["id"]) if line["what"] == "spawned"]
    assert spawned["plugin"] == "trial"


def test_what_a_tool_sends_out_in_a_turn_comes_back_in_one_briefing(
    server: Server, model: ScriptedModel, session: str
) -> None:
    """Two calls of a plugin's tool, each a job of its own, are members of the turn's batch."""
    sent = [{"name": "send", "arguments": {"session": session, "prompt": f"work {part}"}} for part in ("one", "two")]
    model.rules([Rule(last_user="^both by tool", tool_calls=sent), *WORK])
    server.ask(session, "both by tool")
    server.wait(lambda: len(server.jobs(session)) == 2 and all(job["notified"] for job in server.jobs(session)))
    assert len({job["batch_id"] for job in server.jobs(session)}) == 1
    assert len({job["notified_in"] for job in server.jobs(session)}) == 1


def story(server: Server, job_id: str) -> list[dict[str, Any]]:
    return server.get(f"/api/background/{job_id}/story")["story"]


def test_f146_a_thread_of_the_plugin_s_own_acts_for_the_operator_and_says_whose_it_is(
    server: Server, model: ScriptedModel, trial: Trial
) -> None:
    model.rules(WORK)
    server.post("/api/sessions", id="threaded")
    trial.open("thread")
    server.wait(lambda: server.jobs("threaded"))
    (job,) = server.jobs("threaded")
    server.wait(lambda: f"thread {job['id']}" in trial.diary())
    assert job["plugin"] == "trial"


def test_f146_a_plugin_in_a_worker_s_process_sends_out_like_one_in_a_server_s(
    own: Serving, worker_factory: Callable[..., Process], model: ScriptedModel, trial: Trial
) -> None:
    model.rules(WORK)
    server = own("--no-worker")
    worker_factory(server, **trial.env("chat,trial,trial-sync"))
    session = server.post("/api/sessions")["id"]
    for verb, skill in (("send", "trial"), ("send", "trial-sync")):
        job_id = told(server, verb, session, skill, prompt="work far away")
        server.wait(lambda job_id=job_id: server.job(job_id)["notified"])
        assert server.job(job_id)["plugin"] == "trial"


def test_f143_each_refusal_says_why_and_stores_nothing(server: Server, session: str) -> None:
    for asked, why in (
        ({"prompt": ""}, "invalid: prompt must say what is to be done."),
        ({"prompt": "x", "subagent_type": "nosuch"}, "UNKNOWN_SUBAGENT: There is no such subagent_type; there are:"),
        ({"prompt": "x" * 100_001}, "invalid: prompt has more than 100000 characters."),
        ({"prompt": "x", "session": "nobody-s"}, "not_found: There is no such session."),
    ):
        assert told(server, "send", session, **asked).startswith(why)
    for jobs, why in (
        ([], "invalid: A batch needs at least one job."),
        (["no job"], "invalid: A job is an object with prompt, description and subagent_type."),
        ([{"prompt": "x"}, {"prompt": ""}], "invalid: prompt must say what is to be done."),
        (
            [{"prompt": "x", "key": "k"}, {"prompt": "y", "key": "k"}],
            "invalid: Two jobs of one list have the same key.",
        ),
    ):
        assert told(server, "batch", session, jobs=jobs) == why
    assert server.jobs(session) == []


def test_f145_one_key_is_one_job_and_with_another_prompt_a_conflict(
    server: Server, model: ScriptedModel, session: str
) -> None:
    model.rules(WORK)
    once = told(server, "send", session, prompt="work", key="daily")
    assert told(server, "thread", session, prompt="work", key="daily") == once
    assert told(server, "send", session, prompt="play", key="daily") == "conflict: This key was used for another job."
    assert [job["id"] for job in server.jobs(session)] == [once]


def test_f145_over_its_quota_a_plugin_is_refused_and_its_user_is_not(
    server: Server, model: ScriptedModel, session: str
) -> None:
    model.rules([Rule(anywhere="detached, in the background", last_user="^hold", gate="quota", text="Held.")])
    server.spawn(session, "hold the only place")
    model.held_at("quota")
    six = [{"prompt": f"hold {number}"} for number in range(6)]
    refused = told(server, "batch", session, jobs=six)
    assert refused.startswith("QUEUE_LIMIT: 0 jobs that the plugin trial has sent out for you wait already and 6 more")
    assert len(server.jobs(session)) == 1
    assert len(told(server, "batch", session, jobs=six[:5]).split(",")) == 5
    assert told(server, "send", session, prompt="hold the sixth").startswith(
        "QUEUE_LIMIT: 5 jobs that the plugin trial"
    )
    by_hand = server.spawn(session, "hold, by hand")
    assert "plugin" not in by_hand and len(server.jobs(session)) == 7
    (last, *_) = [job["id"] for job in server.jobs(session, status="queued") if job.get("plugin")]
    assert server.ask("plugin", f"stop {last}; stop {last}; stop bg-000000000000", skill="trial").splitlines() == [
        "canceled by plugin",
        "conflict: The job is canceled already.",
        "not_found: There is no such job.",
    ]
    assert told(server, "send", session, prompt="hold the freed place").startswith("bg-")
    model.open("quota")


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ("[plugins.x]\nmax_queued_jobs = 0", "plugins.x.max_queued_jobs: 0 is not a whole number from 1 to 100,000"),
        ("[plugins.x]\nmax_queued = 1", "plugins.x.max_queued: there is no such field"),
        ("[plugins.trail]\nmax_queued_jobs = 1", "plugins.trail: no plugin of this name is installed; there are: none"),
        ("plugins = 1", "plugins: must be tables, one a name"),
    ],
)
def test_a_table_that_means_nothing_stops_the_start_with_one_line(tmp_path: Path, table: str, why: str) -> None:
    (tmp_path / "outrider.toml").write_text(table)
    with pytest.raises(BadSetting) as refused:
        build(load({"data": str(tmp_path)}, {}))
    assert str(refused.value).startswith(why) and "\n" not in str(refused.value)
