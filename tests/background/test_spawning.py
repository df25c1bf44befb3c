"""Sending out: a job, its batch and the run that posts it, whole or not at all, once for each key."""

import asyncio
import json
from dataclasses import replace

import pytest

from background import batches, job_rows, jobs, queue
from background.database import Database
from background.errors import Fault
from background.job_rows import Job
from background.jobs import Spec
from tests.background.factories import (
    OWNER,
    at_work,
    brought_to_end,
    chat,
    spec,
)
from tests.background.story import everything, opened, rows, story, value, within
from tests.support.clock import Clock


async def spawn(db: Database, *specs: tuple[str, Spec], batch: str = "b", owner: str = OWNER) -> list[Job]:
    session = await chat(db, owner=owner)
    return await db.write(jobs.spawn, session, batch, specs, closed=True)


async def refused(db: Database, *specs: tuple[str, Spec]) -> Fault:
    await chat(db)
    before = everything(db.path)
    with pytest.raises(Fault) as caught:
        await spawn(db, *specs)
    assert everything(db.path) == before
    return caught.value


@story
async def test_f004_work_whose_arguments_would_be_masked_is_refused_and_any_other_is_kept_whole(db: Database) -> None:
    work = Spec("A look", '{"to": "ann@example.org"}', "mails", (), level="redacted", deterministic=True)
    assert (await refused(db, ("k", work))).reason == "RESULT_NOT_STORABLE"
    (job,) = await spawn(db, ("k", replace(work, prompt='{"to": "ann"}')))
    assert job.deterministic and job.prompt == '{"to": "ann"}'


@story
async def test_a_spawn_is_the_job_its_batch_and_the_run_that_will_post_it(db: Database, clock: Clock) -> None:
    (job,) = await spawn(db, ("k", Spec("A look", "Look into it.", "researcher", ("memory_recall",))))
    assert (job.status, job.attempts, job.task_id, job.created_at) == ("queued", 1, None, clock())
    assert (job.subagent_type, job.tools, job.delivery) == ("researcher", ("memory_recall",), "none")
    (run,) = await rows(db, "select kind, key, params, state from runs")
    assert run == {
        "kind": "dispatch",
        "key": f"dispatch:{job.id}:1",
        "params": json.dumps({"job": job.id, "attempt": 1}),
        "state": "queued",
    }
    batch, members, joins = await db.read(batches.get, OWNER, "b")
    assert (batch["closed_at"], [member["job_id"] for member in members], joins) == (clock(), [job.id], [])


@story
async def test_an_id_says_nothing_and_has_the_form_that_is_promised(db: Database) -> None:
    found = await spawn(db, *((f"k{number}", spec()) for number in range(20)))
    assert len({job.id for job in found}) == 20
    for job in found:
        prefix, _, digits = job.id.partition("-")
        assert prefix == "bg"
        assert len(bytes.fromhex(digits)) == 6


@story
async def test_jobs_of_one_call_stand_start_and_are_listed_in_the_order_in_which_they_were_asked_for(
    db: Database,
) -> None:
    asked = [f"look {number}" for number in range(10)]
    sent = await spawn(db, *((f"key {text}", spec(text)) for text in asked))
    assert [job.description for job in sent] == asked
    assert [job.description for job in await db.read(job_rows.of_batch, "b")] == asked
    assert [job.description for job in await db.read(job_rows.page, OWNER, limit=50)] == asked[::-1]
    for job in sent:
        (run,) = await db.write(queue.claim, "w", "dispatch", 50)
        assert run.params["job"] == job.id
        await db.write(queue.finish, run)


@story
async def test_the_same_key_again_is_the_same_job(db: Database, clock: Clock) -> None:
    """S42: one row and one run, however often, at once, through two processes, and after its end."""
    await chat(db)
    async with opened(db.path, clock) as other:
        asked = [spawn(here, ("k", spec()), batch=f"b{n}") for n, here in enumerate([db, other] * 5)]
        found = await asyncio.gather(*asked)
    assert len({job.id for (job,) in found}) == 1
    job = await brought_to_end(db, found[0][0])
    assert await spawn(db, ("k", spec()), batch="later") == [job]
    assert await value(db, "select count(*) from runs where kind = 'dispatch'") == 1
    assert await value(db, "select count(*) from batches") == 1


@story
async def test_keys_that_are_there_and_new_ones_can_come_together(db: Database) -> None:
    (old,) = await spawn(db, ("old", spec()), batch="first")
    found = await spawn(db, ("new", spec("new")), ("old", spec()), batch="second")
    assert [job.description for job in found] == ["new", "a look"]
    assert found[1].id == old.id
    members = await rows(db, "select batch_id, job_id from members order by batch_id")
    assert members == [
        {"batch_id": "first", "job_id": old.id},
        {"batch_id": "second", "job_id": found[0].id},
    ]


@story
async def test_a_key_with_another_prompt_refuses_the_whole(db: Database) -> None:
    await spawn(db, ("api:k", spec(prompt="one")))
    fault = await refused(db, ("new", spec()), ("api:k", spec(prompt="another")))
    assert (fault.kind, fault.details) == ("conflict", {"key": "k"})


@story
async def test_one_key_twice_in_a_list_refuses_the_whole(db: Database) -> None:
    assert (await refused(db, ("k", spec()), ("k", spec()))).kind == "invalid"


@story
async def test_a_key_is_its_owner_s(db: Database) -> None:
    (mine,) = await spawn(db, ("k", spec()))
    (theirs,) = await spawn(db, ("k", spec(prompt="another")), batch="c", owner="bob")
    assert mine.id != theirs.id


@story
async def test_a_key_that_was_used_in_another_session_is_refused_there(db: Database) -> None:
    """Its answer would be a job that the asking session never hears of."""
    await spawn(db, ("api:k", spec()))
    elsewhere = await chat(db, "elsewhere")
    with pytest.raises(Fault) as caught:
        await db.write(jobs.spawn, elsewhere, "c", [("api:k", spec())], closed=True)
    assert (caught.value.kind, caught.value.details) == ("conflict", {"key": "k"})


@within(max_queued_jobs=3)
async def test_a_fan_out_past_the_limit_is_refused_whole_and_the_limit_is_exact(db: Database) -> None:
    """S80."""
    await spawn(db, ("a", spec()))
    fault = await refused(db, *((f"k{number}", spec()) for number in range(3)))
    assert (fault.kind, fault.reason, fault.details["limit"]) == ("limit", "QUEUE_LIMIT", 3)
    await spawn(db, ("b", spec()), ("c", spec()), ("a", spec()), batch="fits")
    assert (await refused(db, ("d", spec()))).reason == "QUEUE_LIMIT"
    await spawn(db, ("theirs", spec()), batch="bob's", owner="bob")
    assert len(await spawn(db, ("a", spec()), ("b", spec()), ("c", spec()), batch="nothing new")) == 3


@within(max_queued_jobs=1)
async def test_what_has_begun_does_not_count_as_waiting(db: Database) -> None:
    (job,) = await spawn(db, ("a", spec()))
    await at_work(db, job)
    await spawn(db, ("b", spec()), batch="c")
