"""Sessions, their log, and messages over HTTP: a message is taken once, and a log is read page after page."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.scripted import ScriptedModel
from tests.support.server import Server
from tests.web.shapes import MESSAGE, TIME, Json, assert_shaped, error, told

NUMBERS = itertools.count(1)


@pytest.fixture
def session(api: Server) -> str:
    """A chat of the test's own, which nobody has spoken in."""
    return api.post("/api/sessions", id=f"s-{next(NUMBERS)}")["id"]


def tasks(api: Server, session: str) -> list[str]:
    return [message["task_id"] for message in api.messages(session) if message["kind"] == "user"]


# --- sessions -------------------------------------------------------------------------------------------------------


def test_a_session_is_made_with_an_id_or_without_and_made_again_is_the_same(api: Server) -> None:
    given = f"s-{next(NUMBERS)}"
    answer = api.http.post("/api/sessions", json={"id": given})
    assert answer.status_code == 201
    made = answer.json()
    assert made["id"] == given and made["kind"] == "chat" and made["incognito"] is False and made["running"] == 0
    assert TIME.fullmatch(made["created_at"]) and TIME.fullmatch(made["updated_at"])
    assert api.post("/api/sessions", id=given) == made == api.get(f"/api/sessions/{given}")
    ids = [api.http.post("/api/sessions").json()["id"] for _ in range(2)]
    assert ids[0] != ids[1]


def test_sessions_are_listed_the_latest_first_page_after_page_without_those_of_jobs(
    api: Server, model: ScriptedModel
) -> None:
    model.rules([{"text": "ok"}])
    made = [api.post("/api/sessions")["id"] for _ in range(5)]
    for each in (made[3], made[0]):
        api.ask(each, "hello")
    job = api.spawn(made[0], "a job has a session of its own")
    api.wait(lambda: api.job(job["id"])["notified"])
    listed, cursor = [], ""
    while True:
        page = api.get("/api/sessions", limit=3, **({"cursor": cursor} if cursor else {}))
        assert len(page["sessions"]) <= 3
        listed += [each["id"] for each in page["sessions"]]
        if not (cursor := page["next_cursor"]):
            break
    assert listed[:2] == [made[0], made[3]] and len(listed) == len(set(listed)) and set(made) <= set(listed)
    assert not any(each.startswith("background:") for each in listed)
    assert api.get(f"/api/sessions/background:{job['id']}")["kind"] == "background", "it can be looked into by its id"


# --- messages -------------------------------------------------------------------------------------------------------


def test_a_message_makes_its_session_and_its_turn_and_the_log_has_both_sides(api: Server, model: ScriptedModel) -> None:
    model.rules([{"text": "the answer"}])
    session = f"s-{next(NUMBERS)}"
    answer = api.http.post(f"/api/sessions/{session}/messages", json={"text": "the question"})
    assert answer.status_code == 202 and answer.json().keys() == {"task_id"}
    api.ended(answer.json()["task_id"])
    user, agent = api.messages(session)
    for message in (user, agent):
        assert_shaped(message, MESSAGE)
    assert (user["kind"], user["role"], user["text"]) == ("user", "user", "the question")
    assert (agent["kind"], agent["role"], agent["text"]) == ("agent", "agent", "the answer")
    assert user["task_id"] == agent["task_id"] == answer.json()["task_id"] and agent["state"] == "completed"
    assert api.get(f"/api/sessions/{session}")["title"] == "the question"


def test_a_session_whose_user_has_not_spoken_is_called_as_its_first_job_is(api: Server, model: ScriptedModel) -> None:
    model.rules([{"text": "done"}])
    session = api.post("/api/sessions")["id"]
    assert api.get(f"/api/sessions/{session}")["title"] == ""
    for description in ("The first of all", "Another"):
        api.post("/api/background", session=session, prompt="x", description=description)

    def listed() -> str:
        return next(each["title"] for each in api.get("/api/sessions", limit=200)["sessions"] if each["id"] == session)

    assert api.get(f"/api/sessions/{session}")["title"] == listed() == "The first of all"
    api.ask(session, "My own words")
    assert api.get(f"/api/sessions/{session}")["title"] == listed() == "My own words"


def test_the_same_message_id_is_the_same_message_also_at_once(api: Server, session: str) -> None:
    body = {"text": "once", "message_id": f"id of {session}", "skill": "echo"}
    with ThreadPoolExecutor(5) as pool:
        answers = list(pool.map(lambda _: api.post(f"/api/sessions/{session}/messages", **body), range(5)))
    (task_id,) = {answer["task_id"] for answer in answers}
    api.ended(task_id)
    assert api.post(f"/api/sessions/{session}/messages", **body)["task_id"] == task_id
    assert tasks(api, session) == [task_id]
    answer = api.http.post(f"/api/sessions/{session}/messages", json=body | {"text": "otherwise"})
    assert told(answer) == (400, "MESSAGE_ID_REUSED")
    assert tasks(api, session) == [task_id]


def test_a_message_picks_its_profile_by_skill(api: Server, model: ScriptedModel, session: str) -> None:
    assert api.ask(session, "as it is", skill="echo") == "as it is"
    assert not [asked for asked in model.requests() if "as it is" in str(asked.messages)]
    answer = api.http.post(f"/api/sessions/{session}/messages", json={"text": "x", "skill": "nosuch"})
    assert told(answer) == (400, "INVALID") and error(answer)["details"] == {"field": "skill"}


def test_a_message_to_a_task_is_refused_by_what_that_task_is(api: Server, session: str) -> None:
    task_id = api.say(session, "done", skill="echo")
    api.ended(task_id)
    path = f"/api/sessions/{session}/messages"
    assert told(api.http.post(path, json={"text": "more", "task_id": task_id})) == (422, "REFUSED")
    assert told(api.http.post(path, json={"text": "more", "task_id": "nope"})) == (404, "NOT_FOUND")
    assert tasks(api, session) == [task_id]


def test_f139_messages_sent_during_a_turn_wait_in_order(api: Server, model: ScriptedModel, session: str) -> None:
    model.rules([{"last_user": "first", "gate": "g", "text": "1"}, {"text": "n"}])
    ids = [api.say(session, text) for text in ("first", "second", "third")]
    model.held_at("g")
    assert api.get(f"/api/sessions/{session}")["running"] == 3
    model.open("g")
    api.ended(ids[-1])
    assert [asked.last_user for asked in model.requests()] == ["first", "second", "third"]
    assert tasks(api, session) == ids


def test_a_log_is_read_from_its_newest_page_back_to_its_first(api: Server, session: str) -> None:
    for number in range(6):
        api.ask(session, f"message {number}", skill="echo")
    whole = api.get(f"/api/sessions/{session}/messages")
    assert len(whole["messages"]) == 12 and whole["next_cursor"] == ""
    pages: list[list[Json]] = []
    cursor = ""
    while True:
        page = api.get(f"/api/sessions/{session}/messages", limit=5, **({"cursor": cursor} if cursor else {}))
        pages.insert(0, page["messages"])
        if not (cursor := page["next_cursor"]):
            break
    assert [len(page) for page in pages] == [2, 5, 5]
    assert [message for page in pages for message in page] == whole["messages"]
    third = whole["messages"][2]["id"]
    before = api.get(f"/api/sessions/{session}/messages", before=third)
    assert before["messages"] == whole["messages"][:2] and before["next_cursor"] == ""


def test_a_log_for_the_console_is_html_that_is_safe_to_show(api: Server, session: str) -> None:
    api.ask(session, "**bold** <img src=x onerror=alert(1)>", skill="echo")
    shown = api.get(f"/api/sessions/{session}/messages", html=1)["messages"]
    (answer,) = [message for message in shown if message["kind"] == "agent"]
    assert "<strong>bold</strong>" in answer["html"] and "<img" not in answer["html"]
    assert shown[0]["html"] is None, "what its user wrote is text"


# --- stopping a turn ------------------------------------------------------------------------------------------------


def test_s58_a_turn_is_canceled_without_its_jobs_and_jobs_without_the_turn(
    api: Server, model: ScriptedModel, session: str
) -> None:
    model.rules([{"last_user": "the job", "gate": "g", "text": "report"}, {"last_user": "the turn", "gate": "g"}])
    job = api.spawn(session, "the job")
    turn = api.say(session, "the turn")
    model.wait_for(lambda asked: len(asked) == 2)
    path = f"/api/sessions/{session}/tasks/{turn}/cancel"
    assert api.post(path) == {"task_id": turn, "state": "canceled"}
    assert api.job(job["id"])["status"] == "running"
    assert told(api.http.post(path)) == (409, "CONFLICT")
    turn = api.say(session, "the turn")
    model.wait_for(lambda asked: len(asked) == 3)
    assert api.post(f"/api/sessions/{session}/stop") == {"canceled": [job["id"]]}
    assert api.task(turn)["status"]["state"] == "TASK_STATE_WORKING"
    model.open("g")
    api.ended(turn)


def test_a_turn_is_only_canceled_in_its_own_session(api: Server, model: ScriptedModel, session: str) -> None:
    model.rules([{"gate": "g", "text": "x"}])
    turn = api.say(session, "hello")
    other = api.post("/api/sessions")["id"]
    for path in (f"/api/sessions/{other}/tasks/{turn}/cancel", f"/api/sessions/{session}/tasks/nope/cancel"):
        assert told(api.http.post(path)) == (404, "NOT_FOUND")
    model.open("g")
    assert api.ended(turn)["status"]["state"] == "TASK_STATE_COMPLETED"
