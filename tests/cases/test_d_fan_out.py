"""Theme D: what one turn sent out comes back as one briefing, and a straggler neither blocks nor loses anything."""

from collections.abc import Callable

from tests.cases.stories import (
    assert_told_once,
    background,
    blocks_in,
    briefing,
    briefings,
    calling,
    events_of,
    fan,
    news_in,
    notifications,
    sent_out,
    told_in,
    turns_by_outrider,
    when_quiet,
    when_told,
    worker,
)
from tests.support.inside import Inside
from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel
from tests.support.server import Server

MakeInside = Callable[..., Inside]
SETTINGS = {"OUTRIDER_MAX_JOBS": "8"}


def test_S31_seven_ends_one_after_the_other_are_one_briefing_and_hold_back_no_other_job(
    server: Server, model: ScriptedModel
) -> None:
    prompts = [f"s31 part {number}" for number in range(1, 8)]
    model.rules(
        [
            *fan("s31", *prompts),
            *fan("s31 alone", "s31 lone"),
            *(worker(prompt, gate=prompt) for prompt in prompts[:-1]),
            worker(prompts[-1], status=400, text="no", gate=prompts[-1]),
            worker("s31 lone"),
            briefing(),
        ]
    )
    server.ask("s31", "s31")
    server.ask("s31", "s31 alone")
    (lone,) = sent_out(server, "s31", "s31 lone")
    jobs = sent_out(server, "s31", *prompts)
    for prompt, one in zip(prompts[:3], jobs, strict=False):
        model.open(prompt)
        server.wait(lambda one=one: server.job(one["id"])["completed_at"])
    when_told(server, lone["id"])
    assert not any(server.job(one["id"])["notified"] for one in jobs)

    for prompt, one in zip(prompts[3:], jobs[3:], strict=True):
        model.open(prompt)
        server.wait(lambda one=one: server.job(one["id"])["completed_at"])
    when_told(server, *(one["id"] for one in jobs))
    when_quiet(server, "s31")
    assert len(turns_by_outrider(server, "s31")) == len(briefings(server, "s31")) == 2
    assert_told_once(server, "s31", lone["id"], *(one["id"] for one in jobs))
    nudge = turns_by_outrider(server, "s31")[-1]
    assert "completed 6, failed 1" in nudge["text"]
    batch = server.get(f"/api/batches/{jobs[0]['batch_id']}")
    assert batch["closed"] and batch["counts"] == {"completed": 6, "failed": 1}
    (join,) = batch["joins"]
    assert (join["generation"], join["counts"], join["task_id"]) == (1, batch["counts"], nudge["task_id"])
    assert {one["id"] for one in batch["jobs"]} == {one["id"] for one in jobs}


def test_S32_a_fast_first_member_is_not_told_before_its_siblings_exist(server: Server, model: ScriptedModel) -> None:
    model.rules(
        [
            Rule(last_user="^s32$", tool_calls=[background("s32 a")]),
            Rule(last_tool="S32 A", gate="thinking", tool_calls=[background("s32 b", "s32 c")]),
            Rule(last_tool="S32 B", text="Sent out."),
            *(worker(f"s32 {letter}") for letter in "abc"),
            briefing(),
        ]
    )
    server.say("s32", "s32")
    model.held_at("thinking")
    (first,) = server.jobs("s32")
    server.wait(lambda: server.job(first["id"])["indexed"])
    assert not turns_by_outrider(server, "s32")
    model.open("thinking")
    server.wait(lambda: len(server.jobs("s32")) == 3)
    jobs = sent_out(server, "s32", "s32 a", "s32 b", "s32 c")
    when_told(server, *(one["id"] for one in jobs))
    when_quiet(server, "s32")
    assert {one["batch_id"] for one in jobs} == {first["batch_id"]}
    (said,) = briefings(server, "s32")
    assert {server.job(one["id"])["notified_in"] for one in jobs} == {said["task_id"]}
    assert_told_once(server, "s32", *(one["id"] for one in jobs))


def test_S32_a_type_that_does_not_exist_is_refused_by_name_and_the_others_go_out(
    server: Server, model: ScriptedModel
) -> None:
    specs = [
        {"description": "S32 GOOD", "prompt": "s32 good", "subagent_type": "general"},
        {"description": "S32 BAD", "prompt": "s32 bad", "subagent_type": "nosuch"},
        {"description": "S32 FINE", "prompt": "s32 fine", "subagent_type": "researcher"},
    ]
    model.rules(
        [
            Rule(last_user="^s32 types$", tool_calls=[calling("task_batch", tasks=specs, run_in_background=True)]),
            Rule(last_tool=r"(2\. .*UNKNOWN_SUBAGENT.*)", text="Sent out; {1}"),
            worker("s32 good"),
            worker("s32 fine"),
            briefing(),
        ]
    )
    answer = server.ask("s32u", "s32 types")
    assert "general" in answer and "researcher" in answer, "the answer lists the types there are"
    good, fine = sent_out(server, "s32u", "s32 good", "s32 fine")
    when_told(server, good["id"], fine["id"])
    assert server.get(f"/api/batches/{good['batch_id']}")["counts"] == {"completed": 2}

    refused = server.http.post("/api/background", json={"session": "s32u", "jobs": specs})
    assert refused.status_code == 422
    error = refused.json()["error"]
    assert error["code"] == "UNKNOWN_SUBAGENT" and "researcher" in error["message"]
    assert len(server.jobs("s32u")) == 2


def test_S33_S34_a_hanging_member_neither_holds_back_nor_loses_what_is_there(
    inside: MakeInside, model: ScriptedModel
) -> None:
    """Three complete, one fails, one hangs: the four are told at the deadline, the straggler when it comes, alone."""
    done = ["s33 one", "s33 two", "s33 three"]
    outrider = inside(max_jobs=5)
    model.rules(
        [
            *fan("s33", *done, "s33 fails", "s33 hangs"),
            *(worker(prompt) for prompt in done),
            worker("s33 fails", status=400, text="no"),
            worker("s33 hangs", "Better late.", gate="hang"),
            briefing(),
        ]
    )
    outrider.ask("s33", "s33")
    *four, hung = sent_out(outrider, "s33", *done, "s33 fails", "s33 hangs")
    for one in four:
        outrider.wait(lambda one=one: outrider.job(one["id"])["completed_at"])
    assert [outrider.job(one["id"])["report"] for one in four[:3]] == [f"Report on {prompt}." for prompt in done]
    assert outrider.job(four[3]["id"])["error"]["reason"] == "MODEL_FAILED"
    assert not turns_by_outrider(outrider, "s33")

    outrider.pass_time(899)
    assert not any(row["kind"] == "nudge" for row in outrider.get("/api/status")["queue"])
    outrider.pass_time(2)
    when_told(outrider, *(one["id"] for one in four))
    (nudge,) = turns_by_outrider(outrider, "s33")
    assert "completed 3, failed 1" in nudge["text"]
    assert "Still out, and without a result yet: 1" in nudge["text"] and hung["id"] in nudge["text"]
    assert outrider.job(hung["id"])["status"] == "running"

    model.open("hang")
    when_told(outrider, hung["id"])
    when_quiet(outrider, "s33")
    assert [len(message["job_ids"]) for message in outrider.messages("s33") if message["kind"] == "notification"] == [
        4,
        1,
    ]
    assert_told_once(outrider, "s33", hung["id"], *(one["id"] for one in four))
    assert (
        "(completed 4, failed 1 in all; 4 of them were told before)" in turns_by_outrider(outrider, "s33")[-1]["text"]
    )
    assert len(briefings(outrider, "s33")) == 2
    joins = outrider.get(f"/api/batches/{hung['batch_id']}")["joins"]
    assert [(join["generation"], join["counts"]) for join in joins] == [
        (1, {"completed": 3, "failed": 1, "out": 1}),
        (2, {"completed": 4, "failed": 1}),
    ]


def test_a_nudge_says_of_how_many_its_users_own_turn_has_told_already(server: Server, model: ScriptedModel) -> None:
    """F123: the counts stand beside the reports that come with them, and must not promise others."""
    model.rules(
        [
            *fan("f123", "f123 early", "f123 late"),
            worker("f123 early"),
            worker("f123 late", gate="late"),
            Rule(last_user="^f123 again$", text="So far one."),
            briefing(),
        ]
    )
    server.ask("f123", "f123")
    early, late = sent_out(server, "f123", "f123 early", "f123 late")
    server.wait(lambda: server.job(early["id"])["delivery"]["state"] == "pending")
    server.ask("f123", "f123 again")
    assert server.job(early["id"])["notified"]
    model.open("late")
    when_told(server, late["id"])
    when_quiet(server, "f123")
    (nudge,) = turns_by_outrider(server, "f123")
    assert "(completed 2 in all; 1 of them was told before)" in nudge["text"]


def test_S33_canceling_the_one_that_hangs_touches_no_other(server: Server, model: ScriptedModel) -> None:
    model.rules(
        [
            *fan("s33 cancel", "s33 is done", "s33 goes on", "s33 is stuck"),
            worker("s33 is done"),
            worker("s33 goes on", gate="on"),
            worker("s33 is stuck", gate="never"),
            briefing(),
        ]
    )
    server.ask("s33c", "s33 cancel")
    done, on, stuck = sent_out(server, "s33c", "s33 is done", "s33 goes on", "s33 is stuck")
    model.held_at("never")
    assert server.post(f"/api/background/{stuck['id']}/cancel")["canceled_by"] == "user"
    model.open("on")
    when_told(server, done["id"], on["id"])
    when_quiet(server, "s33c")
    assert [server.job(one["id"])["status"] for one in (done, on, stuck)] == ["completed", "completed", "canceled"]
    assert_told_once(server, "s33c", done["id"], on["id"], stuck["id"])


def test_S35_an_early_failure_is_seen_at_once_and_told_with_the_rest(server: Server, model: ScriptedModel) -> None:
    model.rules(
        [
            *fan("s35", "s35 fails", "s35 two", "s35 three", "s35 four"),
            worker("s35 fails", status=400, text="the disk is on fire"),
            *(worker(f"s35 {name}", gate="rest") for name in ("two", "three", "four")),
            briefing(),
        ]
    )
    server.ask("s35", "s35")
    failed, *others = sent_out(server, "s35", "s35 fails", "s35 two", "s35 three", "s35 four")
    server.wait(lambda: server.job(failed["id"])["status"] == "failed", 2)
    (event,) = [data for name, data in events_of(server, "s35") if name == "background.completed"]
    for shown in (event, server.job(failed["id"])):
        assert shown["id"] == failed["id"] and shown["status"] == "failed"
        assert shown["error"]["reason"] == "MODEL_FAILED" and "the disk is on fire" in shown["error"]["message"]
    assert not turns_by_outrider(server, "s35")

    model.open("rest")
    when_told(server, failed["id"], *(one["id"] for one in others))
    when_quiet(server, "s35")
    assert len(briefings(server, "s35")) == 1 and "completed 3, failed 1" in turns_by_outrider(server, "s35")[0]["text"]
    assert_told_once(server, "s35", failed["id"], *(one["id"] for one in others))


def test_S35_when_all_fail_at_once_they_are_told_at_once(server: Server, model: ScriptedModel) -> None:
    prompts = ["s35 a fails", "s35 b fails", "s35 c fails"]
    model.rules([*fan("s35 all", *prompts), worker("s35 . fails", status=400, text="no"), briefing()])
    server.ask("s35a", "s35 all")
    jobs = sent_out(server, "s35a", *prompts)
    when_told(server, *(one["id"] for one in jobs), timeout=5)
    when_quiet(server, "s35a")
    assert len(briefings(server, "s35a")) == 1
    assert_told_once(server, "s35a", *(one["id"] for one in jobs))


def test_S37_the_group_message_keeps_who_canceled_what(server: Server, model: ScriptedModel) -> None:
    model.rules(
        [
            *fan("s37", "s37 works", "s37 is stopped"),
            worker("s37 works", gate="end"),
            worker("s37 is stopped", gate="never"),
            briefing(),
        ]
    )
    server.ask("s37", "s37")
    works, stopped = sent_out(server, "s37", "s37 works", "s37 is stopped")
    model.held_at("never")
    server.post(f"/api/background/{stopped['id']}/cancel")
    model.open("end")
    when_told(server, works["id"], stopped["id"])
    when_quiet(server, "s37")
    shown = server.job(stopped["id"])
    assert shown["status"] == "canceled" and shown["canceled_by"] == "user" and shown["error"] is None
    (asked,) = told_in(model, stopped["id"])
    first, second = news_in(asked)
    assert (first["job-id"], first["status"], first["reason canceled-by"]) == (stopped["id"], "canceled", "user")
    assert "do not send it out again" in first["reason"] and "result" not in first
    assert (second["job-id"], second["status"]) == (works["id"], "completed")
    (told,) = notifications(server, "s37", stopped["id"])
    assert len(blocks_in(told["text"])) == 2


def test_S37_a_batch_that_its_user_canceled_wholly_starts_no_turn(server: Server, model: ScriptedModel) -> None:
    model.rules([*fan("s37 all", "s37 one", "s37 two"), worker("s37 (one|two)", gate="never"), briefing()])
    server.ask("s37a", "s37 all")
    model.wait_for(lambda asked: [each.gate for each in asked].count("never") == 2)
    canceled = server.post("/api/sessions/s37a/stop")["canceled"]
    assert set(canceled) == {one["id"] for one in server.jobs("s37a")}
    when_quiet(server, "s37a")
    assert not turns_by_outrider(server, "s37a")
    server.ask("s37a", "hello?")
    assert_told_once(server, "s37a", *canceled)
