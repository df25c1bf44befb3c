"""What must hold after a story, however often its server was killed: read from outside, and from the files it left.

Each promise is a generator of what breaks it, a line each; `broken` asks them all.
"""

import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.crash.interludes import ASKING, BEHIND_ANSWERS
from tests.crash.left import Broken, Left, differ
from tests.crash.mortal import FOR_LATER
from tests.crash.promises_of_tasks import PROMISES_OF_TASKS
from tests.crash.story import (
    AGAIN,
    ANSWER,
    BRIEFING,
    ERRAND,
    HOPELESS,
    JOBS,
    NOTHING_ELSE,
    ONE_OUT,
    OUT,
    UNWANTED,
    USER_MESSAGES,
    WHIMS,
    Seen,
    comes_to_nothing,
    conversation_of,
    report_of,
)
from tests.support.server import ROOT

ALL_JOBS = {name for names in JOBS.values() for name in names}
ANSWERS = {
    "m-fan-out": {OUT},
    "m-lone": {ONE_OUT},
    "m-question": {ANSWER, BRIEFING},  # the second where a nudge was folded in before it answered
    "m-musing": {""},  # canceled
    "m-else": {NOTHING_ELSE},
    **{message_id: {answer} for message_id, answer in BEHIND_ANSWERS.items()},
}
HOPELESS_REASONS = {"MODEL_FAILED", "ATTEMPTS_EXHAUSTED"}  # the second where a kill was its last try


def broken(seen: Seen, data: Path) -> list[str]:
    """Every promise that does not hold, in words; none is as it should be."""
    with Left.open(data) as left:
        return [f"{promise.__name__}: {line}" for promise in PROMISES for line in promise(seen, left)]


# --- the files --------------------------------------------------------------------------------------------------------


def files_are_sound(seen: Seen, left: Left) -> Broken:
    for name, connection in (("registry", left.registry), ("knowledge", left.knowledge)):
        for (told,) in connection.execute("pragma integrity_check"):
            if told != "ok":
                yield f"{name}: {told}"
        for row in connection.execute("pragma foreign_key_check"):
            yield f"{name}: {tuple(row)} refers to nothing"
    try:
        left.knowledge.execute("insert into chunk_index (chunk_index, rank) values ('integrity-check', 1)")
    except sqlite3.DatabaseError as error:
        yield f"the index is not what the chunks say: {error}"


def nothing_is_left_to_do(seen: Seen, left: Left) -> Broken:
    for run in left.rows("select * from runs where ended_at is null"):
        if run["kind"] not in FOR_LATER:
            yield f"run {run['key']} is {run['state']}"
    for task in left.rows("select * from tasks where ended_at is null"):
        yield f"task {task['id']} of {task['origin']} is {task['state']}"
    for row in left.rows("select * from revisions where projected = 0"):
        yield f"revision {row['revision']} of task {row['task_id']} is not projected"


def nothing_that_was_said_stands_in_plain_words(seen: Seen, left: Left) -> Broken:
    """In the registry's files, wherever a kill left them: nor in what was written and taken back."""
    said = [
        *USER_MESSAGES.values(),
        *(text for texts in ANSWERS.values() for text in texts if text),
        *map(_work, ALL_JOBS),
    ]
    yield from left.holding("outrider.db", *said)


def _work(name: str) -> str:
    return f"Work on {name}"


# --- jobs -------------------------------------------------------------------------------------------------------------


def every_spawn_happened_once(seen: Seen, left: Left) -> Broken:
    yield from differ("jobs", sorted(left.descriptions().values()), sorted(ALL_JOBS))


def every_attempt_is_one_task(seen: Seen, left: Left) -> Broken:
    of_job = "select id from tasks where origin = 'background' and cause = ? order by created_at"
    names = left.descriptions()
    for job in left.rows("select * from jobs"):
        ran, expected = [task["id"] for task in left.rows(of_job, job["id"])], 1 + (names[job["id"]] == AGAIN)
        if len(ran) != expected or job["attempts"] != expected or ran[-1] != job["task_id"]:
            yield f"{names[job['id']]}, attempt {job['attempts']}, ran as {ran}"


def every_job_ended_as_it_must(seen: Seen, left: Left) -> Broken:
    for jobs in seen.jobs.values():
        for job in jobs:
            name, reason = job["description"], (job["error"] or {}).get("reason")
            if name == HOPELESS:
                if job["status"] != "failed" or reason not in HOPELESS_REASONS:
                    yield f"{name} is {job['status']} {job['error']}"
            elif name == UNWANTED:
                if (job["status"], job["canceled_by"], job["report"]) != ("canceled", "user", ""):
                    yield f"{name} is {job['status']} by {job['canceled_by']} with the report {job['report']!r:.100}"
            elif job["status"] != "completed" or job["report"] != report_of(name):
                yield f"{name} is {job['status']} {job['error']} with the report {job['report']!r:.100}"
            if not (job["started_at"] and job["completed_at"]):
                yield f"{name} began {job['started_at']} and ended {job['completed_at']}"


def every_report_is_found_once(seen: Seen, left: Left) -> Broken:
    """One standing document a completed job, whole; one of each earlier attempt behind it; none for others."""
    documents = left.knowledge.execute(
        "select job_id, text, source, key from document join body on document_id = id "
        "where source_type = 'background_report' and superseded_at is null"
    ).fetchall()
    jobs = {job["id"]: job for jobs in seen.jobs.values() for job in jobs}
    completed = {job_id for job_id, job in jobs.items() if job["status"] == "completed"}
    yield from differ("documents", sorted(row["job_id"] for row in documents), sorted(completed))
    for row in documents:
        job = jobs.get(row["job_id"])
        if job and (row["text"] != job["report"] or row["source"] != job["session"]):
            yield f"{job['description']} is kept as {row['text']!r:.100} from {row['source']}"
    for job in jobs.values():
        if job["indexed"] != (job["id"] in completed):
            yield f"{job['description']} is {job['status']} and indexed: {job['indexed']}"
    (all_documents,) = left.knowledge.execute("select count(*) from document where job_id is not null").fetchone()
    if all_documents != sum(jobs[job_id]["attempts"] for job_id in completed):
        yield f"{all_documents} documents of jobs, {len(documents)} of them standing"


def the_docs_are_there(seen: Seen, left: Left) -> Broken:
    """The pages that come with the product, taken in at the first start: also where that start was not finished."""
    keys = left.knowledge.execute("select key from document where owner is null order by key").fetchall()
    pages = ["README.md", *(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md"))]
    yield from differ("pages", [row["key"] for row in keys], sorted(f"document:{page}" for page in pages))


# --- what comes back --------------------------------------------------------------------------------------------------


def every_end_is_told_once(seen: Seen, left: Left) -> Broken:
    """Of each attempt, by a completed turn of its session whose notification names it; no other of these names it."""
    states = left.pairs("select id, state from tasks")
    for session, jobs in seen.jobs.items():
        told: dict[str, list[str]] = {}
        for said in seen.messages[session]:
            if said["kind"] == "notification" and states[said["task_id"]] == "completed":
                for job_id in said["job_ids"]:
                    told.setdefault(job_id, []).append(said["task_id"])
        for job in jobs:
            turns = told.pop(job["id"], [])
            if len(turns) != job["attempts"] or turns[-1] != job["notified_in"]:
                yield f"{job['description']}, attempt {job['attempts']}, is told in {job['notified_in']}, and in {turns}"
        if told:
            yield f"the log of {session} tells of others' jobs: {told}"
    for row in left.rows("select * from deliveries where state <> 'delivered'"):
        yield f"attempt {row['attempt']} of job {row['job_id']} is {row['state']}"


def every_block_reached_the_model(seen: Seen, left: Left) -> Broken:
    """The turn that told of a job was answered by a model that had been given its block, once an attempt."""
    for session, jobs in seen.jobs.items():
        last = [asked for asked in seen.asked if conversation_of(asked) == session][-1]
        for job in jobs:
            times = last.text.count(f"<job-id>{job['id']}</job-id>")
            if times != job["attempts"]:
                yield f"{job['description']} stands {times} times in what the model of {session} was given"


def every_join_is_one_nudge(seen: Seen, left: Left) -> Broken:
    for batch in left.rows("select * from batches where closed_at is null"):
        yield f"batch {batch['id']} was never closed"
    joins = [row["task_id"] for row in left.rows("select task_id from joins")]
    nudges = [row["id"] for row in left.rows("select id from tasks where origin = 'background-resume'")]
    posted = [task_id for task_id in [*joins, *_repeated(left).values()] if task_id]
    if Counter(posted) != Counter(nudges):
        yield f"joins were posted as {sorted(posted)}, and the nudges are {sorted(nudges)}"
    for row in left.rows("select batch_id, job_id from members where generation is null or status is null"):
        yield f"job {row['job_id']} was in no join of {row['batch_id']}"


def _repeated(left: Left) -> dict[str, str]:
    """The nudges that repeat what a failed turn was to tell, by that turn."""
    return left.pairs(
        "select t.id, r.task_id from tasks t join receipts r on r.message_id = 'nudge.' || t.id where t.state = 'failed'"
    )


def a_briefing_that_failed_is_given_later(seen: Seen, left: Left) -> Broken:
    """The errand's: each turn that failed is followed by one nudge, and the last of them told."""
    nudges = [said for said in seen.messages[ERRAND] if said["kind"] == "nudge"]
    failed = [said["task_id"] for said in nudges if said["state"] == "failed"]
    (job,) = seen.jobs[ERRAND]
    if not failed or [said["task_id"] for said in nudges] != [*failed, job["notified_in"]]:
        yield f"it is told in {job['notified_in']}, after {nudges}"
    repeated = _repeated(left)
    yield from differ("repetitions", [repeated.get(task_id) for task_id in failed], [*failed[1:], job["notified_in"]])
    (delivery,) = left.rows("select * from deliveries where job_id = ?", job["id"])
    yield from differ("failed turns", delivery["failed_turns"], len(failed))


def who_canceled_is_not_woken(seen: Seen, left: Left) -> Broken:
    """And hears of it in the next turn of his own that is not canceled too."""
    (job,) = [job for job in seen.jobs[WHIMS] if job["description"] == UNWANTED]
    for row in left.rows(
        "select id from tasks where origin = 'background-resume' and cause in (?, ?)", job["id"], job["batch_id"]
    ):
        yield f"turn {row['id']} was begun for it"
    yield from differ("turns", job["notified_in"], left.turn_of("m-else"))


# --- what users see ---------------------------------------------------------------------------------------------------


def every_message_is_answered_once(seen: Seen, left: Left) -> Broken:
    receipts = left.pairs("select message_id, task_id from receipts")
    users = [row["id"] for row in left.rows("select id from tasks where origin = 'user'")]
    yield from differ("user's turns", sorted(users), sorted(receipts[key] for key in (*USER_MESSAGES, *ASKING)))
    said = [message for log in seen.messages.values() for message in log]
    for message_id, expected in ANSWERS.items():
        task_id = receipts[message_id]
        answers = [each["text"] for each in said if each["task_id"] == task_id and each["kind"] == "agent"]
        if len(answers) != 1 or answers[0] not in expected:
            yield f"{message_id} was answered with {answers}"
        asked = [each for each in said if each["task_id"] == task_id and each["kind"] == "user"]
        if len(asked) != 1:
            yield f"{message_id} stands {len(asked)} times in the log"


def every_task_can_be_read(seen: Seen, left: Left) -> Broken:
    """Over A2A: completed, with its answer, or folded into the turn that took it up; or as it was made to end."""
    folded = left.pairs("select id, folded_into from tasks")
    otherwise = {left.turn_of("m-musing"): "TASK_STATE_CANCELED"}
    otherwise |= {
        said["task_id"]: "TASK_STATE_FAILED"
        for said in seen.messages[ERRAND]
        if said["kind"] == "nudge" and said["state"] == "failed"
    }
    for task_id, task in seen.tasks.items():
        if task["status"]["state"] != otherwise.get(task_id, "TASK_STATE_COMPLETED"):
            yield f"task {task_id} reads {task['status']}"
        without = folded[task_id] or task_id in otherwise
        if bool(task.get("artifacts")) == bool(without) and not _found_nothing(left, task_id):
            yield f"task {task_id}, folded into {folded[task_id]}, has {task.get('artifacts')}"


def _found_nothing(left: Left, task_id: str) -> bool:
    """A nudge that came when all was told: it ends without a word."""
    return not left.rows("select 1 from messages where task_id = ? and kind <> 'nudge'", task_id)


def nothing_is_heard_twice(seen: Seen, left: Left) -> Broken:
    """The console's events: each once an attempt, each once a turn that began."""
    events = Counter((name, data.get("id") or data["task_id"]) for name, data in left.events())
    attempts = [row["cause"] for row in left.rows("select cause from tasks where origin = 'background'")]
    begun = [
        row["id"] for row in left.rows("select id from tasks where origin <> 'background' and started_at is not null")
    ]
    expected = [(f"background.{name}", job) for job in attempts for name in ("queued", "started", "completed")]
    expected += [(f"turn.{name}", task) for task in begun for name in ("started", "finished")]
    steered = left.rows("select id from tasks where origin = 'user' and folded_into is not null")
    expected += [("turn.finished", row["id"]) for row in steered]
    asking = [row["task_id"] for row in left.rows("select task_id from questions")]
    expected += [(f"turn.{name}", task) for task in asking for name in ("started", "finished")]
    yield from differ("events", events, Counter(expected))


def views_say_what_the_tasks_say(seen: Seen, left: Left) -> Broken:
    tasks = {row["id"]: (row["revision"], row["state"]) for row in left.rows("select id, revision, state from tasks")}
    views = {
        row["task_id"]: (row["revision"], row["state"])
        for row in left.rows("select task_id, revision, state from views")
    }
    yield from differ("views", views, tasks)
    results = left.pairs("select task_id, pieces from results")
    for task_id, (revision, state) in tasks.items():
        entries = left.rows("select revision, kind from journal where task_id = ?", task_id)
        states = sorted(row["revision"] for row in entries if row["kind"] != "artifact")
        artifacts = sum(row["kind"] == "artifact" for row in entries)
        if states != list(range(1, revision + 1)) or artifacts != (results[task_id] if state == "completed" else 0):
            yield f"the journal of {task_id} has the states {states} and {artifacts} artifacts"


def one_checkpoint_stays(seen: Seen, left: Left) -> Broken:
    """Of a turn that a model answered its transcript, of another the last that it had."""
    for row in left.rows(
        "select t.id, t.state, group_concat(c.name) as names from checkpoints c join tasks t on t.id = c.task_id "
        "join results r on r.task_id = t.id group by t.id "
        "having count(*) > 1 or (t.state = 'completed' and r.pieces > 0 and t.profile <> 'trial' and names <> 'transcript')"
    ):
        yield f"{row['state']} task {row['id']} has {row['names']}"


# --- what the model sees ----------------------------------------------------------------------------------------------


def conversations_only_grow(seen: Seen, left: Left) -> Broken:
    """A model is asked the same again, or more, and never less: no answer that was kept is asked for again, and no
    tool that has answered answers differently later."""
    so_far: dict[str, list[dict[str, Any]]] = {}
    for asked in seen.asked:
        name = conversation_of(asked)
        # The instructions say what is out just now.
        before, now = so_far.get(name, []), [each for each in asked.messages if each["role"] != "system"]
        if now[: len(before)] != before:
            place = next(i for i, old in enumerate(before) if now[i : i + 1] != [old])
            yield f"{name}: message {place} was {before[place]}, and then {now[place : place + 1]}"
        if not comes_to_nothing(asked):
            so_far[name] = now


def every_call_has_its_answer(seen: Seen, left: Left) -> Broken:
    """In every request each tool call is followed by one result, in the order of the calls."""
    for asked in seen.asked:
        waiting: list[str] = []
        for message in asked.messages:
            if message["role"] == "tool":
                if not waiting or message["tool_call_id"] != waiting.pop(0):
                    yield f"a result that nobody called for: {message}"
                if "interrupted" in str(message["content"]):
                    yield f"the model is told of an interruption: {message}"
            elif waiting:
                yield f"{waiting} stands without a result in {conversation_of(asked)}"
                break
            else:
                waiting = [call["id"] for call in message.get("tool_calls") or ()]


# --- servers that were told to end ------------------------------------------------------------------------------------


def who_was_told_to_end_has_handed_everything_back(seen: Seen, left: Left) -> Broken:
    for key in seen.left_behind:
        yield f"{key} was still held"


PROMISES: list[Callable[[Seen, Left], Broken]] = [
    files_are_sound,
    nothing_is_left_to_do,
    nothing_that_was_said_stands_in_plain_words,
    every_spawn_happened_once,
    every_attempt_is_one_task,
    every_job_ended_as_it_must,
    every_report_is_found_once,
    the_docs_are_there,
    every_end_is_told_once,
    every_block_reached_the_model,
    every_join_is_one_nudge,
    a_briefing_that_failed_is_given_later,
    who_canceled_is_not_woken,
    every_message_is_answered_once,
    every_task_can_be_read,
    nothing_is_heard_twice,
    views_say_what_the_tasks_say,
    one_checkpoint_stays,
    conversations_only_grow,
    every_call_has_its_answer,
    *PROMISES_OF_TASKS,
    who_was_told_to_end_has_handed_everything_back,
]
