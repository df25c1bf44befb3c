"""What must hold of the tasks of `interludes.py`: questions, streams, webhooks, and what was erased.

As in `promises.py`, each is a generator of what breaks it, a line each.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from background.states import A2A
from background.times import rfc3339
from tests.a2a.wire import replayed
from tests.crash.interludes import (
    BEHIND,
    BEHIND_ANSWERS,
    BESIDE,
    CHOICE,
    CHOSEN,
    DOUBT,
    DOUBTS,
    HIDDEN,
    HIDDEN_WORD,
    HOW,
    SO,
    TALE,
    TELL,
    TOLD,
    VAULT,
    WHICH,
    WHOLE,
    has_ended,
    is_of_the_vault,
)
from tests.crash.left import Broken, Left, differ
from tests.crash.listener import Frames
from tests.crash.story import Seen
from tests.support.receiver import Received

TALKS = {"m-doubts": (DOUBT, WHICH, CHOICE, CHOSEN), "m-tale": (TELL, HOW, SO, WHOLE)}
SESSIONS = {"m-doubts": DOUBTS, "m-tale": TALE}
COURSE = ["submitted", "working", "input_required", "working", "completed"]
WHOLES = {DOUBTS: (CHOSEN,), TALE: ("".join(TOLD), WHOLE)}  # what a stream may read, or the beginning of it
WOKEN_LATE_S = 1.0  # what was about to be asked when its session was erased has been asked by then


# --- questions --------------------------------------------------------------------------------------------------------


def a_question_is_asked_once_and_answered_once(seen: Seen, left: Left) -> Broken:
    """The talk is the message, the question, the one answer and the end, and nothing between; another answer is refused."""
    for message_id, talk in TALKS.items():
        task_id = left.turn_of(message_id)
        log = [said for said in seen.messages[SESSIONS[message_id]] if said["task_id"] == task_id]
        yield from differ(f"the words of {message_id}", tuple(said["text"] for said in log), talk)
        states = left.rows("select state from journal where task_id = ? and kind = 'status' order by revision", task_id)
        yield from differ(f"the states of {message_id}", [row["state"] for row in states], COURSE)
        asked = left.rows("select answered_at from questions where task_id = ?", task_id)
        if len(asked) != 1 or asked[0]["answered_at"] is None:
            yield f"{message_id} has {len(asked)} questions"
    for answer in seen.heard.late:
        if "error" not in answer:
            yield f"another answer was taken: {answer}"


def the_answer_is_kept_with_what_came_of_it(seen: Seen, left: Left) -> Broken:
    for message_id, (*_, end) in TALKS.items():
        task = seen.tasks[left.turn_of(message_id)]
        if not has_ended(task) or text_of(task) != end:
            yield f"{message_id} ended as {task['status']} with {text_of(task)!r}"


def what_waited_behind_a_question_follows_in_order(seen: Seen, left: Left) -> Broken:
    """Each turn begins when the one before it has ended, and its model is asked when the one before was answered."""
    answers = [said["text"] for said in seen.messages[DOUBTS] if said["kind"] == "agent"]
    yield from differ("the answers", answers, [WHICH, CHOSEN, *BEHIND_ANSWERS.values()])
    order = [left.turn_of(message_id) for message_id in ("m-doubts", *BEHIND)]
    times = {row["id"]: row for row in left.rows("select id, started_at, ended_at from tasks")}
    for before, after in itertools.pairwise(order):
        if times[after]["started_at"] < times[before]["ended_at"]:
            yield f"turn {after} began while {before} was not over"
    words = [DOUBT, *BEHIND.values()]
    asked = [words.index(each.last_user) for each in seen.asked if each.last_user in words]
    if asked != sorted(asked):
        yield f"the model was asked in the order {asked}"


def what_steers_is_folded_in_once(seen: Seen, left: Left) -> Broken:
    """It waits while the question does; then the turn takes it up before its next answer, and every later one knows of it."""
    ((message_id, words),) = BESIDE.items()
    into = left.pairs("select id, folded_into from tasks")[left.turn_of(message_id)]
    yield from differ("the turn that took it up", into, left.turn_of("m-doubts"))
    times = [each.text.count(words) for each in seen.asked if DOUBT in each.text]
    if times != sorted(times) or max(times) != 1:
        yield f"it stands so many times in what the model was given: {times}"


# --- streams ----------------------------------------------------------------------------------------------------------


def text_of(task: dict[str, Any]) -> str:
    return "".join(part["text"] for artifact in task.get("artifacts", []) for part in artifact["parts"])


def a_stream_only_goes_forward(seen: Seen, left: Left) -> Broken:
    """Each state is one that was committed, later than the one before; whoever comes in again is not told less."""
    for session, told in seen.heard.told.items():
        task_id = told[0][0]["task"]["id"]
        revisions = defaultdict[tuple[str, str], list[int]](list)
        for row in left.rows("select * from journal where task_id = ? and kind <> 'artifact'", task_id):
            revisions[A2A[row["state"]], rfc3339(row["at"])].append(row["revision"])
        latest = 0
        for number, frames in enumerate(told, 1):
            for frame in frames:
                if (status := frame.get("task", frame.get("statusUpdate", {})).get("status")) is None:
                    continue
                revision = max(revisions[status["state"], status["timestamp"]], default=0)
                if not revision:
                    yield f"{session}, time {number}: {status} was never committed"
                elif revision < latest or ("statusUpdate" in frame and revision == latest):
                    yield f"{session}, time {number}: {status} was told behind revision {latest}"
                latest = max(latest, revision)


def a_stream_says_what_get_says(seen: Seen, left: Left) -> Broken:
    """Its task and the events behind it are the task; at no moment more was told than there was, and nothing twice."""
    for session, told in seen.heard.told.items():
        for number, frames in enumerate(told, 1):
            if "task" not in frames[0] or any("task" in frame for frame in frames[1:]):
                yield f"{session}, time {number}: the frames are {[*map(list, frames)]}"
                continue
            for count in range(1, len(frames) + 1):
                text = text_of(replayed(frames[:count]))
                if not any(whole.startswith(text) for whole in WHOLES[session]):
                    yield f"{session}, time {number}: after {count} frames it reads {text!r}"
        yield from _last(session, told[-1], seen.tasks[told[0][0]["task"]["id"]])


def _last(session: str, frames: Frames, task: dict[str, Any]) -> Broken:
    found, expected = ({**each, "history": None} for each in (replayed(frames), task))
    if has_ended(found):  # else it ended while nobody listened
        yield from differ(f"the last frames of {session}", found, expected)


# --- webhooks ---------------------------------------------------------------------------------------------------------


def every_event_is_called_in_order(seen: Seen, left: Left) -> Broken:
    """Each at least once, and none before an earlier one; the last is the end. A piece is not told when the whole is there."""
    for message_id, session in SESSIONS.items():
        task_id, calls = left.turn_of(message_id), _calls(seen, session)
        places = [_place(call)[1:] for call in calls]
        if places != sorted(places):
            yield f"{session} was called in the order {places}"
        rows = left.rows("select * from journal where task_id = ? and kind <> 'fragment'", task_id)
        missing = {(row["revision"], row["number"]) for row in rows} - set(places)
        if missing:
            yield f"{session} was not called with {sorted(missing)}"
        if not calls or calls[-1].told != "COMPLETED":
            yield f"{session} was last called with {[call.told for call in calls[-1:]]}"


def a_delivery_is_the_same_each_time(seen: Seen, left: Left) -> Broken:
    """The same id at each try of the same event, and at no other; each try has a number of its own."""
    events, attempts = dict[str, Any](), dict[str, int]()
    for call in seen.heard.called:
        event, attempt = _without_metadata(call.event), attempts.get(call.delivery, 0)
        if events.setdefault(call.delivery, event) != event:
            yield f"{call.delivery} was {events[call.delivery]} and then {event}"
        if call.attempt <= attempt:
            yield f"{call.delivery} was tried as {call.attempt} after {attempt}"
        attempts[call.delivery] = call.attempt
    states = [(delivery, event["statusUpdate"]) for delivery, event in events.items() if "statusUpdate" in event]
    for (delivery, told), (other, same) in itertools.combinations(states, 2):
        if told == same:  # a piece may well be told anew
            yield f"{delivery} and {other} are {told}"


def nothing_is_called_that_was_never_committed(seen: Seen, left: Left) -> Broken:
    tasks = {session: left.turn_of(message_id) for message_id, session in SESSIONS.items()}
    tasks[VAULT] = seen.heard.erased.task_id
    for call in seen.heard.called:
        session, (task_id, revision, number) = call.path.rpartition("/")[2], _place(call)
        update = call.event[call.kind]
        if {task_id, update["taskId"]} != {tasks[session]} or update["contextId"] != session:
            yield f"{session} was called with {call.event}"
        if session == VAULT:  # its journal is gone
            continue
        sql = "select * from journal where task_id = ? and revision = ? and number = ?"
        rows = left.rows(sql, task_id, revision, number)
        if [_as_told(row) for row in rows] != [_told(update)]:
            yield f"{call.delivery} told of {_told(update)}, and there is {[*map(tuple, rows)]}"


def _calls(seen: Seen, session: str) -> list[Received]:
    return [call for call in seen.heard.called if call.path.endswith(session)]


def _place(call: Received) -> tuple[str, int, int]:
    """The task, revision and number of its event."""
    task_id, _, event = call.delivery.split("/")
    revision, number = map(int, event.split("."))
    return task_id, revision, number


def _told(update: dict[str, Any]) -> tuple[str, ...]:
    return (update["status"]["state"], update["status"]["timestamp"]) if "status" in update else ("artifact",)


def _as_told(row: Any) -> tuple[str, ...]:
    return (A2A[row["state"]], rfc3339(row["at"])) if row["kind"] == "status" else ("artifact",)


def _without_metadata(event: dict[str, Any]) -> dict[str, Any]:
    """What is said of the task as it is at the time of the call is left out."""
    ((kind, update),) = event.items()
    return {kind: {name: value for name, value in update.items() if name != "metadata"}}


# --- what was erased --------------------------------------------------------------------------------------------------


def what_was_erased_is_not_seen_again(seen: Seen, left: Left) -> Broken:
    yield from seen.heard.erased.still_there
    for row in left.rows("select id from sessions where id like ?", f"%{VAULT}%"):
        yield f"there is the session {row['id']}"
    for row in left.rows("select id from tasks where id = ?", seen.heard.erased.task_id):
        yield f"there is the task {row['id']}"
    for job_id in seen.heard.erased.job_ids:
        for table, column in (
            ("sessions", "id"),
            ("jobs", "id"),
            ("tasks", "cause"),
            ("runs", "key"),
            ("runs", "params"),
        ):
            where = f"{column} like ?" + (" and kind <> 'erase'" if table == "runs" else "")
            for row in left.rows(f"select {column} from {table} where {where}", f"%{job_id}%"):
                yield f"the {column} of one of the {table} is {row[0]}"


def what_was_erased_leaves_the_files(seen: Seen, left: Left) -> Broken:
    """Its words, and the name that its user gave it; that there were jobs is remembered, by their ids."""
    for name in ("knowledge.db", "outrider.db"):
        yield from left.holding(name, HIDDEN, HIDDEN_WORD, VAULT)


def nobody_is_woken_for_what_was_erased(seen: Seen, left: Left) -> Broken:
    """No model is asked and no webhook is called for it: but for the one that was about to be when it was erased."""
    erased = seen.heard.erased
    until = min(erased.at + WOKEN_LATE_S, erased.next_life_at or float("inf"))
    for asked in seen.asked:
        if is_of_the_vault(asked) and asked.at > until:
            yield f"{asked.at - erased.at:.3f} s later a model was asked {asked}"
    late = _calls(seen, VAULT)[erased.calls :]
    if len(late) > 1:
        yield f"its webhook was called with {[call.delivery for call in late]}"


PROMISES_OF_TASKS: list[Callable[[Seen, Left], Broken]] = [
    a_question_is_asked_once_and_answered_once,
    the_answer_is_kept_with_what_came_of_it,
    what_waited_behind_a_question_follows_in_order,
    what_steers_is_folded_in_once,
    a_stream_only_goes_forward,
    a_stream_says_what_get_says,
    every_event_is_called_in_order,
    a_delivery_is_the_same_each_time,
    nothing_is_called_that_was_never_committed,
    what_was_erased_is_not_seen_again,
    what_was_erased_leaves_the_files,
    nobody_is_woken_for_what_was_erased,
]
