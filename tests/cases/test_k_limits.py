"""Theme K: a flood is taken in, works through a few slots, and is refused whole where it is too much."""

from tests.cases.stories import (
    assert_told_once,
    background,
    briefing,
    sent_out,
    when_quiet,
    when_told,
    worker,
)
from tests.support.rules import Rule
from tests.support.scripted import Asked, ScriptedModel
from tests.support.server import Server

SETTINGS = {
    "OUTRIDER_MAX_JOBS": "3",
    "OUTRIDER_MAX_QUEUED_JOBS": "37",
    "OUTRIDER_MAX_UNATTENDED_TURNS": "100",  # ten lone jobs may come back in as many turns
}


def at_once(requests: list[Asked]) -> int:
    """How many of these the model had before it at one time, at most."""
    moments = [(asked.at, 1) for asked in requests] + [
        (asked.answered_at or asked.gone_at or 0.0, -1) for asked in requests
    ]
    most = now = 0
    for _, step in sorted(moments):
        now += step
        most = max(most, now)
    return most


def test_S80_a_flood_of_jobs_works_through_three_slots_in_order_and_disturbs_no_chat(
    server: Server, model: ScriptedModel
) -> None:
    """Forty by all roads; while they hold every slot a chat is answered, and what is too much is refused whole."""
    listed, fanned = [f"s80 listed {n:02}" for n in range(20)], [f"s80 fanned {n:02}" for n in range(10)]
    single = [f"s80 single {n:02}" for n in range(10)]
    too_many = [f"s80 too many {n}" for n in range(4)]
    model.rules(
        [
            Rule(last_user="^s80 fan$", tool_calls=[background(*fanned)]),
            Rule(last_user="^s80 more$", tool_calls=[background(*too_many)]),
            Rule(last_tool="QUEUE_LIMIT", text="Refused."),
            Rule(last_tool="sent out", text="Sent out."),
            worker("s80 .*", "Done.", gate="work", delay_s=0.01),
            briefing(),
        ]
    )
    server.ask("s80", "hello")
    server.post(
        "/api/background", session="s80", jobs=[{"prompt": prompt, "description": prompt.upper()} for prompt in listed]
    )
    model.wait_for(lambda asked: [each.gate for each in asked].count("work") == 3)
    server.ask("s80", "s80 fan")
    for prompt in single:
        server.spawn("s80", prompt, prompt.upper())

    refused = server.http.post("/api/background", json={"session": "s80", "jobs": [{"prompt": p} for p in too_many]})
    assert refused.status_code == 429 and refused.json()["error"]["code"] == "QUEUE_LIMIT"
    assert server.ask("s80-model", "s80 more") == "Refused."
    assert len(server.jobs("s80")) == 40 and not server.jobs("s80-model")
    assert [len(server.jobs("s80", status=status)) for status in ("running", "queued")] == [3, 37]
    assert server.ask("s80-chat", "Is anybody there?", timeout=5) == "ok"

    model.open("work")
    jobs = server.jobs("s80")
    when_told(server, *(one["id"] for one in jobs), timeout=60)
    when_quiet(server, "s80")
    workers = [asked for asked in model.requests() if asked.gate == "work"]
    assert len(workers) == 40 and at_once(workers) == 3
    for batch in (listed, fanned):
        started = [server.job(one["id"])["started_at"] for one in sent_out(server, "s80", *batch)]
        assert started == sorted(started)
    assert_told_once(server, "s80", *(one["id"] for one in jobs))
