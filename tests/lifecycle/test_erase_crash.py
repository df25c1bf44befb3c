"""A kill between the commit that hides and the run that cleans: what is hidden stays so, and the bytes go after the start."""

from collections.abc import Callable

from tests.lifecycle.looking import bytes_left, cells, cleaned, places, rows
from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel
from tests.support.server import Server

Own = Callable[..., Server]


def test_bytes_go_after_the_restart(own: Own, model: ScriptedModel, word: str) -> None:
    """RULING 8: the run is in the queue since the commit; the process that would have done it was killed first."""
    model.rules([Rule(last_user="^look", text=f"Found {word}."), Rule(last_user="<task-noti", text="Briefed.")])
    server = own(OUTRIDER_LEASE_S="2")
    server.ask("s", f"Remember {word}.")
    job = server.spawn("s", f"look for {word}")["id"]
    server.wait(lambda: server.job(job)["notified"])
    sealed = cells(server.data, word)
    server.kill()
    door = own("--no-worker", data=server.data)
    assert door.http.delete("/api/sessions/s").status_code == 202
    assert door.http.get(f"/api/background/{job}").status_code == 404
    door.kill()
    assert [run["state"] for run in rows(server.data, "select state from runs where kind = 'erase'")] == ["queued"]
    assert bytes_left(server.data, sealed) != []
    assert "knowledge" in " ".join(places(server.data, word))
    server.start()
    cleaned(server)
    assert places(server.data, word) == [] == bytes_left(server.data, sealed)
    assert server.http.get("/api/sessions/s").status_code == 404
