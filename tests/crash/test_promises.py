"""Each promise of `promises.py` is found broken where it is: otherwise the crash tests would show nothing."""

import copy
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.crash.interludes import CHOSEN, DOUBTS, HIDDEN, TALE, VAULT, is_of_the_vault
from tests.crash.plan import Plan
from tests.crash.promises import PROMISES, broken
from tests.crash.story import CHAT, UNWANTED, WHIMS, Lane, Seen, Story, conversation_of
from tests.support.life import Cradle
from tests.support.scripted import Asked


@dataclass
class Calm:
    """A story in which nobody was killed: what was seen, and what it left."""

    seen: Seen
    data: Path


@pytest.fixture(scope="module")
def calm(cradle: Cradle, tmp_path_factory: pytest.TempPathFactory) -> Calm:
    data = tmp_path_factory.mktemp("calm") / "data"
    with Lane.open(cradle) as lane, closing(Story.make(lane, data)) as story:
        return Calm(story.tell(Plan()), data)


@pytest.fixture
def spoilt(calm: Calm, tmp_path: Path) -> Calm:
    """A copy to be spoilt."""
    shutil.copytree(calm.data, tmp_path / "data")
    return Calm(copy.deepcopy(calm.seen), tmp_path / "data")


def registry(sql: str) -> Callable[[Calm], None]:
    return lambda spoilt: _execute(spoilt.data / "outrider.db", sql)


def knowledge(sql: str) -> Callable[[Calm], None]:
    return lambda spoilt: _execute(spoilt.data / "knowledge.db", sql)


def _execute(path: Path, sql: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(sql).rowcount > 0, sql


def a_job_completed_that_cannot(spoilt: Calm) -> None:
    (hopeless,) = [job for job in spoilt.seen.jobs[CHAT] if job["description"] == "delta"]
    hopeless["status"] = "completed"


def a_job_is_told_again(spoilt: Calm) -> None:
    spoilt.seen.messages[CHAT] += [said for said in spoilt.seen.messages[CHAT] if said["kind"] == "notification"][:1]


def a_block_is_lost(spoilt: Calm) -> None:
    chats = [asked for asked in spoilt.seen.asked if conversation_of(asked) == CHAT]
    spoilt.seen.asked = [asked for asked in spoilt.seen.asked if asked not in chats[1:]]


def an_answer_is_missing(spoilt: Calm) -> None:
    log = spoilt.seen.messages[CHAT]
    log.remove(next(said for said in log if said["kind"] == "agent"))


def a_turn_failed(spoilt: Calm) -> None:
    statuses = [task["status"] for task in spoilt.seen.tasks.values()]
    next(status for status in statuses if status["state"] == "TASK_STATE_COMPLETED")["state"] = "TASK_STATE_FAILED"


def a_step_is_asked_for_again(spoilt: Calm) -> None:
    spoilt.seen.asked.append(next(asked for asked in spoilt.seen.asked if conversation_of(asked) == CHAT))


def a_canceled_job_is_told_elsewhere(spoilt: Calm) -> None:
    (unwanted,) = [job for job in spoilt.seen.jobs[WHIMS] if job["description"] == UNWANTED]
    unwanted["notified_in"] = "another turn"


def a_run_is_left_behind(spoilt: Calm) -> None:
    spoilt.seen.left_behind.append("turn:x")


def a_result_is_kept_from_the_model(spoilt: Calm) -> None:
    spoilt.seen.asked = [_without_results(asked) for asked in spoilt.seen.asked]


def _without_results(asked: Asked) -> Asked:
    told = [message for message in asked.messages if message["role"] != "tool"]
    return replace(asked, body={**asked.body, "messages": told})


def another_answer_is_taken(spoilt: Calm) -> None:
    spoilt.seen.heard.late.append({"result": {}})


def an_answer_is_lost(spoilt: Calm) -> None:
    (task,) = [task for task in spoilt.seen.tasks.values() if task["contextId"] == TALE]
    task["artifacts"].clear()


def who_waits_overtakes(spoilt: Calm) -> None:
    log = spoilt.seen.messages[DOUBTS]
    log.append(log.pop(next(place for place, said in enumerate(log) if said["text"] == CHOSEN)))


def a_stream_begins_anew(spoilt: Calm) -> None:
    told = spoilt.seen.heard.told[DOUBTS]
    told.append(told[0])


def a_piece_is_told_twice(spoilt: Calm) -> None:
    frames = spoilt.seen.heard.told[TALE][-1]
    place = next(place for place, frame in enumerate(frames) if frame.get("artifactUpdate", {}).get("append"))
    frames.insert(place, frames[place])


def an_event_is_not_called(spoilt: Calm) -> None:
    called = spoilt.seen.heard.called
    called[:] = [call for call in called if call.told != "INPUT_REQUIRED"]


def a_try_has_another_name(spoilt: Calm) -> None:
    call = spoilt.seen.heard.called[-1]
    call.headers["x-outrider-delivery"] = spoilt.seen.heard.called[0].delivery


def a_call_tells_what_was_not(spoilt: Calm) -> None:
    call = next(call for call in spoilt.seen.heard.called if call.path.endswith(DOUBTS))
    call.body = call.body.replace(b"SUBMITTED", b"REJECTED")


def it_is_found_again(spoilt: Calm) -> None:
    spoilt.seen.heard.erased.still_there.append("a hit")


def it_is_asked_once_more(spoilt: Calm) -> None:
    log = spoilt.seen.messages[TALE]
    log += [said for said in log if said["kind"] == "agent"][:1]


def a_state_is_told_that_was_not(spoilt: Calm) -> None:
    update = spoilt.seen.heard.told[TALE][-1][-1]["statusUpdate"]
    update["status"]["timestamp"] = "2000-01-01T00:00:00.000Z"


def an_artifact_does_not_come(spoilt: Calm) -> None:
    frames = spoilt.seen.heard.told[DOUBTS][-1]
    frames[:] = [frame for frame in frames if "artifactUpdate" not in frame]


def the_order_of_calls_is_another(spoilt: Calm) -> None:
    called = spoilt.seen.heard.called
    mine = [place for place, call in enumerate(called) if call.path.endswith(TALE)]
    called[mine[-1]], called[mine[-3]] = called[mine[-3]], called[mine[-1]]


def a_try_has_the_number_of_another(spoilt: Calm) -> None:
    again = next(call for call in spoilt.seen.heard.called if call.attempt > 1)
    again.headers["x-outrider-attempt"] = "1"


def its_webhook_is_called_on(spoilt: Calm) -> None:
    called = spoilt.seen.heard.called
    called += [call for call in called if call.path.endswith(VAULT)][:1] * 2


def a_model_is_asked_again(spoilt: Calm) -> None:
    asked = next(asked for asked in spoilt.seen.asked if is_of_the_vault(asked))
    spoilt.seen.asked.append(replace(asked, at=asked.at + 3600))


SPOILINGS: dict[str, Callable[[Calm], None]] = {
    "files_are_sound": knowledge(
        "insert into chunk_index (chunk_index, rowid, heading, text) select 'delete', id, heading, text from chunk limit 1"
    ),
    "nothing_is_left_to_do": registry("update revisions set projected = 0 where revision = 1"),
    "nothing_that_was_said_stands_in_plain_words": registry("update runs set params = 'ANYTHING ELSE?' where id = 1"),
    "every_spawn_happened_once": registry("delete from jobs where created_at = (select max(created_at) from jobs)"),
    "every_attempt_is_one_task": registry("update tasks set cause = 'none' where origin = 'background'"),
    "every_job_ended_as_it_must": a_job_completed_that_cannot,
    "every_report_is_found_once": knowledge("delete from document where job_id is not null"),
    "the_docs_are_there": knowledge("delete from document where key = 'document:README.md'"),
    "every_end_is_told_once": a_job_is_told_again,
    "every_block_reached_the_model": a_block_is_lost,
    "every_join_is_one_nudge": registry("update joins set task_id = null"),
    "a_briefing_that_failed_is_given_later": registry("update deliveries set failed_turns = 0 where failed_turns > 0"),
    "who_canceled_is_not_woken": a_canceled_job_is_told_elsewhere,
    "every_message_is_answered_once": an_answer_is_missing,
    "every_task_can_be_read": a_turn_failed,
    "nothing_is_heard_twice": registry(
        "insert into events (uid, owner, session, name, data, created_at) "
        "select uid, owner, session, name, data, created_at from events where name = 'background.completed' limit 1"
    ),
    "views_say_what_the_tasks_say": registry("update views set revision = revision - 1"),
    "one_checkpoint_stays": registry("update checkpoints set name = 'input' where name = 'transcript'"),
    "conversations_only_grow": a_step_is_asked_for_again,
    "every_call_has_its_answer": a_result_is_kept_from_the_model,
    "a_question_is_asked_once_and_answered_once": another_answer_is_taken,
    "the_answer_is_kept_with_what_came_of_it": an_answer_is_lost,
    "what_waited_behind_a_question_follows_in_order": who_waits_overtakes,
    "what_steers_is_folded_in_once": registry("update tasks set folded_into = null"),
    "a_stream_only_goes_forward": a_stream_begins_anew,
    "a_stream_says_what_get_says": a_piece_is_told_twice,
    "every_event_is_called_in_order": an_event_is_not_called,
    "a_delivery_is_the_same_each_time": a_try_has_another_name,
    "nothing_is_called_that_was_never_committed": a_call_tells_what_was_not,
    "what_was_erased_is_not_seen_again": it_is_found_again,
    "what_was_erased_leaves_the_files": knowledge(f"update body set text = '{HIDDEN}' where document_id = 1"),
    "nobody_is_woken_for_what_was_erased": a_model_is_asked_again,
    "who_was_told_to_end_has_handed_everything_back": a_run_is_left_behind,
}

# The promises that say more than one thing.
OTHERWISE: dict[str, Callable[[Calm], None]] = {
    "a_question_is_asked_once_and_answered_once": it_is_asked_once_more,
    "what_waited_behind_a_question_follows_in_order": registry("update tasks set ended_at = ended_at + 9000000"),
    "a_stream_only_goes_forward": a_state_is_told_that_was_not,
    "a_stream_says_what_get_says": an_artifact_does_not_come,
    "every_event_is_called_in_order": the_order_of_calls_is_another,
    "a_delivery_is_the_same_each_time": a_try_has_the_number_of_another,
    "nothing_is_called_that_was_never_committed": registry("delete from journal where state = 'input_required'"),
    "what_was_erased_is_not_seen_again": registry(f"update sessions set id = '{VAULT}' where id = '{TALE}'"),
    "what_was_erased_leaves_the_files": registry(f"update sessions set id = '{VAULT}' where id = '{DOUBTS}'"),
    "nobody_is_woken_for_what_was_erased": its_webhook_is_called_on,
}


def test_a_calm_story_breaks_nothing(calm: Calm) -> None:
    assert broken(calm.seen, calm.data) == []


def found(spoilt: Calm) -> set[str]:
    return {line.split(":")[0] for line in broken(spoilt.seen, spoilt.data)}


@pytest.mark.parametrize("promise", [promise.__name__ for promise in PROMISES])
def test_a_broken_promise_is_found(spoilt: Calm, promise: str) -> None:
    SPOILINGS[promise](spoilt)
    assert promise in found(spoilt)


@pytest.mark.parametrize("promise", OTHERWISE)
def test_a_promise_that_is_broken_in_another_way_is_found(spoilt: Calm, promise: str) -> None:
    OTHERWISE[promise](spoilt)
    assert promise in found(spoilt)
