"""F004: what a kill in the middle of work without a model leaves: it is done again where that is harmless, else told."""

from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel
from tests.support.serving import Serving
from tests.support.trial import Trial
from tests.work.conftest import ended, hired


def test_f004_a_kill_in_the_middle_runs_the_idempotent_again_and_tells_the_rest_as_interrupted(
    own: Serving, model: ScriptedModel, trial: Trial
) -> None:
    model.rules([Rule(anywhere="<task-notification>", text="Briefed.")])
    server = own(OUTRIDER_LEASE_S="2")
    session = server.post("/api/sessions")["id"]
    again = hired(server, session, name="k-again", steps=["k-one"], door="k", say="whole")
    once = hired(server, session, "trial-once", name="k-once", steps=["k-two"], door="k", say="never")
    loose = hired(server, session, verb="loose")
    server.wait(lambda: {"did k-one", "did k-two", "loose"} <= {*trial.diary()})
    server.kill()
    trial.open("k")
    server.start()
    assert ended(server, again)["report"] == "whole"
    assert ended(server, once)["error"]["reason"] == ended(server, loose)["error"]["reason"] == "INTERRUPTED"
    assert server.job(once)["report"] == "- k-two: did k-two"
    assert trial.diary().count("labors k-once []") == 1 and trial.diary().count("did k-one") == 1
    assert "labors k-again ['k-one']" in trial.diary()
    server.wait(lambda: all(job["notified"] for job in server.jobs(session)))


def test_what_must_not_run_twice_and_fails_is_not_tried_again(own: Serving, trial: Trial) -> None:
    server = own()
    session = server.post("/api/sessions")["id"]
    job = ended(server, hired(server, session, "trial-once", name="b-once", boom=True))
    assert job["error"]["reason"] == "ATTEMPTS_EXHAUSTED" and "secret" not in job["error"]["message"]
    assert trial.diary().count("labors b-once []") == 1
