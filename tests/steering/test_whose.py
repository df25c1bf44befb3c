"""F142: a busy session is spoken into by its owner and by whoever has a writable share; what waits is withdrawn by its owner."""

from collections.abc import Iterator

import pytest

from tests.a2a import wire
from tests.access.people import Person, token_for
from tests.steering import turns
from tests.steering.turns import LAST, STEP
from tests.support.scripted import ScriptedModel
from tests.support.server import Server


@pytest.fixture(scope="module")
def alice(shared_model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    """Somebody with a token, on a server of which others have tokens too."""
    data = tmp_path_factory.mktemp("guarded") / "data"
    token = token_for(data, "alice")
    with Server(data, env=shared_model.env) as server:
        yield Person(server, token)


def said(person: Person, session: str) -> list[str]:
    return [entry["text"] for entry in person.get(f"/api/sessions/{session}/messages").json()["messages"]]


def test_f142_anothers_busy_session_is_steered_by_a_writable_share_and_withdrawn_from_by_its_owner_alone(
    alice: Person, model: ScriptedModel
) -> None:
    model.rules(turns.two_steps())
    session = "busy"
    messages = f"/api/sessions/{session}/messages"
    turn = alice.post(messages, text="work").json()["task_id"]
    model.held_at(STEP)
    waiting = alice.post(messages, text="and this", steer=True).json()["task_id"]
    shares = [alice.post(f"/api/sessions/{session}/shares", writable=writable).json() for writable in (False, True)]
    bob = Person(alice.server, token_for(alice.server.data, "bob"))
    reader, writer = (Person(alice.server, bob.token, **{"X-Share-Token": share["token"]}) for share in shares)
    for person in (bob, reader, writer):
        known = person.post(f"/api/sessions/{session}/tasks/{waiting}/cancel")
        unknown = person.post("/api/sessions/nowhere/tasks/none/cancel")
        assert known.status_code == 404 and known.json() == unknown.json()
        assert person.rpc("CancelTask", {"id": waiting}) == person.rpc("CancelTask", {"id": "none"})
    assert reader.post(messages, text="from bob", steer=True).status_code == 404
    spoken = writer.post(messages, text="from bob", steer=True).json()["task_id"]
    model.open(STEP)
    model.held_at(LAST)
    assert turns.told(model) == ["work", "and this", "from bob"] and said(alice, session) == turns.told(model)
    model.open(LAST)
    task = alice.server.wait(lambda: alice.rpc("GetTask", {"id": spoken})["result"])
    assert task["metadata"]["folded_into"] == turn and task["metadata"]["initiated_by"] == "bob"


def test_f142_steering_a_session_that_is_anothers_steers_ones_own_of_that_name(
    alice: Person, model: ScriptedModel
) -> None:
    model.rules(turns.two_steps())
    turn = alice.post("/api/sessions/mine/messages", text="work").json()["task_id"]
    model.held_at(STEP)
    bob = Person(alice.server, token_for(alice.server.data, "bob"))
    own = bob.post("/api/sessions/mine/messages", text="hello", steer=True).json()["task_id"]
    alice.server.wait(lambda: bob.rpc("GetTask", {"id": own})["result"]["status"]["state"] == wire.COMPLETED)
    model.open(STEP)
    model.open(LAST)
    alice.server.wait(lambda: alice.rpc("GetTask", {"id": turn})["result"]["status"]["state"] == wire.COMPLETED)
    assert said(alice, "mine") == ["work", "All of it."] and said(bob, "mine") == ["hello", "ok"]
