"""Jobs over HTTP: sent out once, listed, read whole, stopped, hidden, tried anew; each in the shape that is promised."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.scripted import ScriptedModel
from tests.support.server import Server
from tests.web import shapes
from tests.web.shapes import Json, assert_job, error, told

REPORT = "Summary: it works.\n\n" + "A line of the report. " * 200 + "\n\nthe very end"


@pytest.fixture
def session(api: Server, model: ScriptedModel) -> str:
    """A chat of the test's own. What its jobs say is up to `model`."""
    return api.post("/api/sessions")["id"]


def ended(api: Server, job: Json) -> Json:
    """The job once its session has been told of its end."""
    api.wait(lambda: api.job(job["id"])["delivery"]["state"] == "delivered")
    return api.job(job["id"])


def running(api: Server, model: ScriptedModel, session: str, prompt: str = "look into it") -> Json:
    """A job whose worker waits at the gate `g`."""
    model.rules([{"last_user": prompt, "gate": "g", "text": REPORT}, {"text": "Told."}])
    job = api.spawn(session, prompt)
    model.held_at("g")
    return api.job(job["id"])


# --- sending out ----------------------------------------------------------------------------------------------------


def test_a_job_has_its_shape_when_it_is_sent_out_when_it_is_listed_and_when_it_has_ended(
    api: Server, model: ScriptedModel, session: str
) -> None:
    model.rules([{"last_user": "look into it", "text": REPORT}, {"text": "Told."}])
    answer = api.http.post(
        "/api/background", json={"session": session, "description": "a look", "prompt": "look into it"}
    )
    sent = answer.json()
    assert answer.status_code == 202
    assert_job(sent)
    assert (sent["session"], sent["description"], sent["prompt"]) == (session, "a look", "look into it")
    assert (sent["status"], sent["attempts"], sent["subagent_type"]) == ("queued", 1, "general")
    job = ended(api, sent)
    assert_job(job, report=True)
    assert job["status"] == "completed" and job["report"] == REPORT and job["report_chars"] == len(REPORT)
    assert job["excerpt"] and len(job["excerpt"]) <= 1500 and job["indexed"] and job["error"] is None
    assert job["usage"]["requests"] == 1
    (listed,) = api.jobs(session)
    assert_job(listed)
    assert listed == {field: value for field, value in job.items() if field != "report"}


def test_a_description_is_the_first_line_of_the_prompt_where_there_is_none(api: Server, session: str) -> None:
    job = api.post("/api/background", session=session, prompt=f"{'x' * 100}\nand more")
    assert job["description"].startswith("x" * 79) and len(job["description"]) <= 80


def test_a_list_is_one_batch_and_closed_at_once(api: Server, model: ScriptedModel, session: str) -> None:
    model.rules(
        [{"last_user": "^bad", "status": 400, "text": "no"}, {"last_user": "^good", "text": "fine"}, {"text": "Told."}]
    )
    jobs = [{"prompt": "good one"}, {"prompt": "bad one"}, {"prompt": "good two"}]
    answer = api.http.post("/api/background", json={"session": session, "jobs": jobs})
    assert answer.status_code == 202
    sent = answer.json()
    assert sent.keys() == {"batch_id", "jobs"}
    assert [job["prompt"] for job in sent["jobs"]] == ["good one", "bad one", "good two"]
    for job in sent["jobs"]:
        assert_job(job)
        assert job["batch_id"] == sent["batch_id"]
        ended(api, job)
    batch = api.get(f"/api/batches/{sent['batch_id']}")
    assert batch.keys() == {"id", "session", "closed", "counts", "jobs", "joins"}
    assert (batch["id"], batch["session"], batch["closed"]) == (sent["batch_id"], session, True)
    assert batch["counts"] == {"completed": 2, "failed": 1}
    assert [job["id"] for job in batch["jobs"]] == [job["id"] for job in sent["jobs"]]
    for job in batch["jobs"]:
        assert_job(job)
    (join,) = batch["joins"]
    shapes.assert_shaped(join, {"generation": int, "task_id": str, "at": str, "counts": dict})
    assert join["counts"] == batch["counts"] and join["task_id"] == batch["jobs"][0]["notified_in"]
    assert len(api.jobs(session, batch=sent["batch_id"])) == 3


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        ({"prompt": "  "}, (400, "INVALID")),
        ({"prompt": "x", "subagent_type": "nosuch"}, (422, "UNKNOWN_SUBAGENT")),
        ({"prompt": "x" * 100_001}, (400, "INVALID")),
        ({"prompt": "x", "key": 5}, (400, "INVALID")),
        ("no object", (400, "INVALID")),
    ],
    ids=["blank", "type", "long", "key", "object"],
)
def test_f006_one_bad_member_refuses_the_whole_list_and_is_named_by_its_place(
    api: Server, session: str, bad: Json | str, expected: tuple[int, str]
) -> None:
    answer = api.http.post("/api/background", json={"session": session, "jobs": [{"prompt": "fine"}, bad]})
    assert told(answer) == expected
    assert error(answer)["details"]["field"].startswith("jobs[1]")
    assert api.jobs(session) == []


def test_f003_over_the_limit_of_waiting_jobs_a_list_is_refused_whole_and_the_limit_named(
    api: Server, session: str
) -> None:
    answer = api.http.post("/api/background", json={"session": session, "jobs": [{"prompt": "x"}] * 9})
    assert told(answer) == (429, "QUEUE_LIMIT")
    assert error(answer)["details"]["limit"] == 8
    assert api.jobs(session) == []


def test_an_unknown_type_names_those_that_there_are(api: Server, session: str) -> None:
    answer = api.http.post("/api/background", json={"session": session, "prompt": "x", "subagent_type": "nosuch"})
    assert told(answer) == (422, "UNKNOWN_SUBAGENT")
    assert "general" in error(answer)["details"]["types"]


def test_a_job_needs_a_session_that_is_there(api: Server) -> None:
    assert told(api.http.post("/api/background", json={"session": "nosuch", "prompt": "x"})) == (404, "NOT_FOUND")
    assert api.http.get("/api/sessions/nosuch").status_code == 404


# --- once -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"prompt": "x", "promt": "y"}, "promt"),
        ({"prompt": "x", "batch": "y"}, "batch"),
        ({"jobs": [{"prompt": "x"}], "prompt": "y"}, "prompt"),
        ({"jobs": [{"prompt": "x"}], "key": "k"}, "key"),
        ({"jobs": [{"prompt": "x"}], "job": "k"}, "job"),
        ({"jobs": [{"prompt": "x"}, {"prompt": "x", "type": "researcher"}]}, "jobs[1].type"),
        ({"jobs": [{"prompt": "x", "session": "another"}]}, "jobs[0].session"),
    ],
)
def test_a_field_that_means_nothing_is_named_and_the_work_is_not_begun_without_it(
    api: Server, given: Json, field: str
) -> None:
    session = api.post("/api/sessions")["id"]
    answer = api.http.post("/api/background", json={"session": session, **given})
    assert told(answer) == (400, "INVALID") and error(answer)["details"] == {"field": field}
    assert field in error(answer)["message"]
    assert api.get("/api/background", session=session)["jobs"] == []


def test_s42_a_key_is_one_job_five_times_at_once_and_once_more_after_a_restart(
    api: Server, model: ScriptedModel, session: str
) -> None:
    model.rules([{"last_user": "once", "not_anywhere": "task-notification", "text": "done once"}, {"text": "Told."}])
    asked = {"session": session, "prompt": "once", "key": f"a:key:of {session}"}
    with ThreadPoolExecutor(5) as pool:
        answers = list(pool.map(lambda _: api.http.post("/api/background", json=asked), range(5)))
    assert {answer.status_code for answer in answers} == {202}
    (job_id,) = {answer.json()["id"] for answer in answers}
    ended(api, {"id": job_id})
    api.restart()
    again = api.http.post("/api/background", json=asked)
    assert again.status_code == 202 and again.json()["id"] == job_id
    assert [job["id"] for job in api.jobs(session)] == [job_id]
    assert len([asked for asked in model.requests() if asked.rule == 0]) == 1, "its worker ran once"
    answer = api.http.post("/api/background", json=asked | {"prompt": "otherwise"})
    assert told(answer) == (409, "CONFLICT") and error(answer)["details"] == {"key": asked["key"]}


# --- stopping, hiding, trying anew ----------------------------------------------------------------------------------


def test_s56_a_running_job_is_canceled_and_an_ended_one_answers_what_it_is(
    api: Server, model: ScriptedModel, session: str
) -> None:
    job = running(api, model, session)
    assert job["status"] == "running" and job["report"] is None
    answer = api.http.post(f"/api/background/{job['id']}/cancel")
    assert answer.status_code == 200
    canceled = answer.json()
    assert_job(canceled)
    assert (canceled["status"], canceled["canceled_by"], canceled["error"]) == ("canceled", "user", None)
    for _ in range(2):
        again = api.http.post(f"/api/background/{job['id']}/cancel")
        assert told(again) == (409, "CONFLICT") and error(again)["details"] == {"status": "canceled"}
    model.open("g")
    assert api.job(job["id"])["status"] == "canceled"


def test_a_queued_job_is_canceled_and_never_begins(api: Server, model: ScriptedModel, session: str) -> None:
    model.rules([{"last_user": "^first", "gate": "g", "text": "x"}])
    held = [api.spawn(session, f"first {number}") for number in range(4)]
    model.wait_for(lambda asked: len(asked) == 4)  # all slots are taken
    waiting = api.spawn(session, "second")
    assert api.http.post(f"/api/background/{waiting['id']}/cancel").json()["status"] == "canceled"
    assert api.post(f"/api/sessions/{session}/stop")["canceled"] == [job["id"] for job in held]
    assert {job["status"] for job in api.jobs(session)} == {"canceled"}
    assert not [asked for asked in model.requests() if "second" in asked.last_user]
    assert api.post(f"/api/sessions/{session}/stop") == {"canceled": []}


def test_f009_an_ended_job_is_hidden_and_still_there_by_id(api: Server, model: ScriptedModel, session: str) -> None:
    job = running(api, model, session)
    answer = api.http.post(f"/api/background/{job['id']}/dismiss")
    assert told(answer) == (409, "CONFLICT") and error(answer)["details"] == {"status": "running"}
    model.open("g")
    ended(api, job)
    dismissed = api.post(f"/api/background/{job['id']}/dismiss")
    assert_job(dismissed)
    assert dismissed["dismissed"] and api.post(f"/api/background/{job['id']}/dismiss") == dismissed
    assert api.jobs(session) == [] and [each["id"] for each in api.jobs(session, dismissed="true")] == [job["id"]]
    assert api.job(job["id"])["report"] == REPORT


def test_s06_an_ended_job_is_tried_anew_under_its_id_in_a_batch_of_its_own_and_told_again(
    api: Server, model: ScriptedModel, session: str
) -> None:
    job = running(api, model, session)
    answer = api.http.post(f"/api/background/{job['id']}/retry")
    assert told(answer) == (409, "CONFLICT") and error(answer)["details"] == {"status": "running"}
    model.open("g")
    first = ended(api, job)
    answer = api.http.post(f"/api/background/{job['id']}/retry")
    assert answer.status_code == 202
    again = answer.json()
    assert_job(again)
    assert (again["id"], again["status"], again["attempts"]) == (job["id"], "queued", 2)
    assert again["batch_id"] != first["batch_id"] and again["prompt"] == first["prompt"] and not again["notified"]
    second = ended(api, job)
    assert second["attempts"] == 2 and second["task_id"] not in (None, first["task_id"])
    assert second["notified_in"] != first["notified_in"]


@pytest.mark.parametrize("move", ["cancel", "dismiss", "retry"])
def test_an_unknown_job_is_not_found_whatever_is_done_to_it(api: Server, move: str) -> None:
    unknown = api.http.post(f"/api/background/bg-000000000000/{move}")
    assert told(unknown) == (404, "NOT_FOUND")
    assert api.http.post(f"/api/background/no-id-at-all/{move}").content == unknown.content


# --- reports --------------------------------------------------------------------------------------------------------


def test_a_report_is_had_whole_as_markdown_and_as_a_file(api: Server, model: ScriptedModel, session: str) -> None:
    job = running(api, model, session)
    assert told(api.http.get(f"/api/background/{job['id']}/report")) == (404, "NOT_FOUND")
    model.open("g")
    ended(api, job)
    plain = api.http.get(f"/api/background/{job['id']}/report")
    assert plain.headers["content-type"] == "text/markdown; charset=utf-8" and plain.text == REPORT
    assert "content-disposition" not in plain.headers and plain.headers["x-content-type-options"] == "nosniff"
    file = api.http.get(f"/api/background/{job['id']}/report", params={"download": "1"})
    assert file.headers["content-disposition"] == f'attachment; filename="{job["id"]}.md"' and file.text == REPORT
    html = api.http.get(f"/api/background/{job['id']}/report", params={"html": "1"})
    assert (
        html.headers["content-type"].startswith("text/html")
        and "default-src 'none'" in html.headers["content-security-policy"]
    )


def test_s47_a_failed_job_tells_why_and_keeps_what_there_was(api: Server, model: ScriptedModel, session: str) -> None:
    model.rules([{"last_user": "half", "text": "Half of it.", "finish_reason": "length"}, {"text": "Told."}])
    job = ended(api, api.spawn(session, "half"))
    assert_job(job, report=True)
    assert job["status"] == "failed" and job["partial"] and job["report"] == "Half of it."
    assert job["error"]["reason"] == "OUTPUT_LIMIT"
    assert api.http.get(f"/api/background/{job['id']}/report").text == "Half of it."


def test_s48_a_job_without_a_report_has_none(api: Server, model: ScriptedModel, session: str) -> None:
    model.rules([{"last_user": "nothing", "text": "  \n"}, {"text": "Told."}])
    job = ended(api, api.spawn(session, "nothing"))
    assert (job["status"], job["error"]["reason"], job["report"]) == ("failed", "NO_REPORT", "")
    assert told(api.http.get(f"/api/background/{job['id']}/report")) == (404, "NOT_FOUND")
