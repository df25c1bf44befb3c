"""A backup is both stores at one moment in one file; what is restored goes on from there, and tells nothing twice."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from background import connections
from background.migrating import KEY_FILE, UNFINISHED
from knowledge import copies as indexes
from tests.access.people import outrider
from tests.support.life import ROOT
from tests.support.scripted import ScriptedModel
from tests.support.server import Server, wait
from web import archive, backups
from web.archive import KNOWLEDGE, MANIFEST, REGISTRY
from web.cli_views import line

REPORT = "Owls hunt by ear, and their discs gather sound."
BRIEFED = {"anywhere": "task-notification", "text": "Briefed on owls."}


@pytest.fixture(scope="module")
def taken(server: Server, shared_model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A backup of the running server, in which a job was briefed and another is at work."""
    shared_model.rules([BRIEFED, {"last_user": "owls", "text": REPORT}, {"last_user": "slow", "gate": "slow"}])
    session = server.post("/api/sessions", id="birds")["id"]
    told = server.spawn(session, "owls")["id"]
    server.wait(lambda: server.job(told)["notified"])
    server.spawn(session, "slow")
    shared_model.held_at("slow")
    file = tmp_path_factory.mktemp("backups") / "taken"
    made = outrider(server.data, "backup", str(file))
    assert made.exit_code == 0, made.output
    shared_model.rules([])
    yield file


@pytest.fixture
def fresh(server: Server, tmp_path: Path) -> Path:
    """A data folder with nothing in it but the key of the server's."""
    folder = tmp_path / "fresh"
    folder.mkdir(mode=0o700)
    shutil.copy(server.data / KEY_FILE, folder)
    return folder


def refused(data: Path, *command: str) -> str:
    """The one line with which a command was refused; nothing in the folder has changed by it."""
    before = contents(data)
    result = outrider(data, *command)
    assert (result.exit_code, result.stdout) == (1, ""), result.output
    assert contents(data) == before
    return line(result.stderr)


def contents(data: Path) -> dict[str, bytes]:
    """The files of a folder, but for empty ones, such as locks, and where a server that runs notes that it does."""
    files = {path.name: path.read_bytes() for path in data.iterdir() if path.is_file()}
    return {name: content for name, content in files.items() if content and not name.endswith(("-shm", "-wal"))}


def test_a_backup_is_one_file_for_its_owner_alone_and_holds_no_key(taken: Path, server: Server) -> None:
    assert taken.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in taken.parent.iterdir()] == ["taken"]
    with zipfile.ZipFile(taken) as packed:
        assert packed.namelist() == [MANIFEST, REGISTRY, KNOWLEDGE]
        said = json.loads(packed.read(MANIFEST))
        members = [packed.read(name) for name in packed.namelist()]
    key = (server.data / KEY_FILE).read_bytes().strip()
    assert not any(key in member for member in members)
    assert {"form", "program", "taken_at", "schemas", "key", "files", "seal"} == said.keys()


def test_what_was_told_stays_told_and_what_was_at_work_goes_on(
    taken: Path, fresh: Path, model: ScriptedModel, processes: list
) -> None:
    """Given a backup taken in the middle of a job; when it is restored elsewhere, the job ends there, and is told once."""
    restored = outrider(fresh, "restore", str(taken))
    assert restored.exit_code == 0 and restored.stdout.startswith("Restored as of 20")
    model.rules([BRIEFED, {"last_user": "slow", "text": "It was slow."}])
    before = len(model.requests())
    server = Server(fresh, env=model.env | {"OUTRIDER_LEASE_S": "3"})
    processes.append(server)
    server.start()
    jobs = {job["prompt"]: job["id"] for job in server.jobs("birds")}
    server.wait(lambda: server.job(jobs["slow"])["notified"])
    told = [message for message in server.messages("birds") if message["kind"] == "notification"]
    assert sorted(message["job_ids"] for message in told) == sorted([[jobs["owls"]], [jobs["slow"]]])
    asked = [one.last_user for one in model.requests()[before:]]
    assert any(jobs["slow"] in text for text in asked) and not any(jobs["owls"] in text for text in asked)
    (hit,) = server.get("/api/knowledge/search", q="ear", source_type="background_report")["hits"]
    assert hit["job_id"] == jobs["owls"]
    assert server.job(jobs["owls"])["report"] == REPORT


def test_both_stores_are_of_one_moment(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While they are looked at nobody writes the registry, and what is written while they are copied is not in the copy."""
    seen: list[str] = []
    look, copy = indexes.Copier.look, indexes.Copier.copy

    def written(what: str) -> bool:
        with closing(sqlite3.connect(server.data / REGISTRY, timeout=0, isolation_level=None)) as other:
            try:
                other.execute("create table if not exists later (id integer)")
            except sqlite3.OperationalError:
                return False
        seen.append(what)
        return True

    def looking(self: indexes.Copier) -> None:
        assert not written("while it was looked at")
        look(self)

    def copying(self: indexes.Copier, to: Path) -> None:
        wait(lambda: written("while it was copied"))
        copy(self, to)

    monkeypatch.setattr(indexes.Copier, "look", looking)
    monkeypatch.setattr(indexes.Copier, "copy", copying)
    assert outrider(server.data, "backup", str(tmp_path / "taken")).exit_code == 0
    with closing(sqlite3.connect(server.data / REGISTRY, timeout=5, isolation_level=None)) as other:
        other.execute("drop table later")
    assert seen == ["while it was copied"]
    with zipfile.ZipFile(tmp_path / "taken") as packed:
        assert b"create table if not exists later" not in packed.read(REGISTRY)
        assert b"CREATE TABLE later" not in packed.read(REGISTRY)


def test_a_file_that_is_there_is_replaced_only_if_that_is_said(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "notes"
    file.write_text("precious")
    assert "--force replaces it" in refused(server.data, "backup", str(file))
    assert file.read_text() == "precious"
    assert outrider(server.data, "backup", str(file), "--force").exit_code == 0
    assert zipfile.is_zipfile(file) and list(tmp_path.iterdir()) == [file]
    assert "there already" in refused(server.data, "backup", str(tmp_path), "--force")
    assert "No such file" in refused(server.data, "backup", str(tmp_path / "nowhere" / "taken"))


def test_nothing_is_made_where_there_is_nothing_to_back_up(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    assert "no registry" in refused(tmp_path / "data", "backup", str(tmp_path / "taken"))
    assert not (tmp_path / "taken").exists()


def test_a_folder_in_use_is_not_restored_into(taken: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "BUSY_TIMEOUT_MS", 50)
    assert "is there already; --force" in line(outrider(server.data, "restore", str(taken)).stderr)
    told = outrider(server.data, "restore", str(taken), "--force")
    assert told.exit_code == 1 and "is in use: stop its server" in told.stderr
    assert server.get("/readyz") == {"ready": True}


@pytest.mark.parametrize("place", [0.0, 0.001, 0.1, 0.5, 0.9, 0.999, 1.0])
def test_a_damaged_file_is_refused(taken: Path, fresh: Path, tmp_path: Path, place: float) -> None:
    """One byte is another, or the file is cut off there."""
    whole = bytearray(taken.read_bytes())
    at = min(int(len(whole) * place), len(whole) - 1)
    (tmp_path / "cut").write_bytes(whole[:at])
    whole[at] ^= 0x55
    (tmp_path / "damaged").write_bytes(whole)
    assert "damaged" in refused(fresh, "restore", str(tmp_path / "cut"))
    if place < 1:  # the very last bytes are the length of a remark that is not there
        told = refused(fresh, "restore", str(tmp_path / "damaged"))
        assert "damaged" in told or "altered" in told


def altered(taken: Path, to: Path, change: Callable[[dict, dict], None]) -> str:
    """The backup with its manifest and members changed, and packed anew with sums that fit."""
    with zipfile.ZipFile(taken) as packed:
        said = json.loads(packed.read(MANIFEST))
        members = {name: packed.read(name) for name in packed.namelist() if name != MANIFEST}
    change(said, members)
    with zipfile.ZipFile(to, "w") as packed:
        packed.writestr(MANIFEST, json.dumps(said))
        for name, content in members.items():
            packed.writestr(name, content)
    return str(to)


def test_one_that_was_altered_by_somebody_without_the_key_is_refused(taken: Path, fresh: Path, tmp_path: Path) -> None:
    def forge(said: dict, members: dict) -> None:
        members[KNOWLEDGE] = members[KNOWLEDGE].replace(b"Owls hunt by ear", b"Owls pay by card")
        path = tmp_path / "forged"
        path.write_bytes(members[KNOWLEDGE])
        said["files"][KNOWLEDGE] = vars(archive.described(path))

    def wrong_type(said: dict, _: dict) -> None:
        said["files"] = ["x"]

    def unknown_member(said: dict, members: dict) -> None:
        said["files"]["../x"] = said["files"][REGISTRY]
        said["schemas"]["../x"] = 1
        members["../x"] = members[REGISTRY]

    assert "was altered" in refused(fresh, "restore", altered(taken, tmp_path / "a", forge))
    assert "damaged" in refused(fresh, "restore", altered(taken, tmp_path / "b", wrong_type))
    assert "damaged" in refused(fresh, "restore", altered(taken, tmp_path / "c", unknown_member))
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("newer", [{"form": 99}, {"schemas": {REGISTRY: 999, KNOWLEDGE: 2}}])
def test_one_from_a_newer_version_is_refused_as_such(taken: Path, fresh: Path, tmp_path: Path, newer: dict) -> None:
    file = altered(taken, tmp_path / "newer", lambda said, _: said.update(newer))
    assert "newer version" in refused(fresh, "restore", file)


def test_one_whose_key_is_not_there_is_refused_and_says_which_it_was(taken: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(taken) as packed:
        key = json.loads(packed.read(MANIFEST))["key"]
    for folder in (tmp_path / "keyless", tmp_path / "other"):
        folder.mkdir()
    assert key in refused(tmp_path / "keyless", "restore", str(taken))
    (tmp_path / "other" / KEY_FILE).write_text("MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=\n")
    assert f"sealed with key {key}" in refused(tmp_path / "other", "restore", str(taken))


def test_what_was_there_is_kept_aside_even_if_it_is_damaged(taken: Path, fresh: Path) -> None:
    for name in (REGISTRY, f"{REGISTRY}-wal", KNOWLEDGE):
        (fresh / name).write_text(f"not a database: {name}" * 100)
    assert "--force" in refused(fresh, "restore", str(taken))
    restored = outrider(fresh, "restore", str(taken), "--force")
    assert restored.exit_code == 0, restored.output
    (aside,) = [path for path in fresh.iterdir() if path.is_dir()]
    assert str(aside) in restored.stderr and aside.name.startswith("before-restore-")
    assert {path.name for path in aside.iterdir()} >= {REGISTRY, f"{REGISTRY}-wal", KNOWLEDGE}
    assert (aside / KNOWLEDGE).read_text().startswith("not a database")
    assert outrider(fresh, "token", "list").exit_code == 0
    assert (fresh / REGISTRY).stat().st_mode & 0o777 == (fresh / KNOWLEDGE).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("step", range(3))
def test_a_restore_that_was_cut_off_is_known_and_is_run_again(
    taken: Path, fresh: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Given one that ended after the first store, after both, or before either; then nothing starts until it is run again."""
    assert outrider(fresh, "restore", str(taken)).exit_code == 0
    real, calls = os.geteuid, iter(range(9))

    def cut() -> int:
        if next(calls) == step - 1:
            raise KeyboardInterrupt
        return real()

    if step:
        monkeypatch.setattr(backups.os, "geteuid", cut)
    else:
        monkeypatch.setattr(backups, "_set_aside", lambda *_: cut_now())
    with pytest.raises(KeyboardInterrupt):
        backups.restore(backups.Settings(data=fresh), taken, force=True)
    monkeypatch.undo()
    assert (fresh / UNFINISHED).exists()
    assert "a restore of" in line(outrider(fresh, "token", "list").stderr)
    assert outrider(fresh, "restore", str(taken), "--force").exit_code == 0
    assert outrider(fresh, "token", "list").exit_code == 0 and not (fresh / UNFINISHED).exists()
    assert not list(fresh.glob("*.restoring"))


KILLED = """
import os, signal, sys
from pathlib import Path
from web import archive, backups
archive.Archive.unpack = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
backups.restore(backups.Settings(data=Path(sys.argv[1])), Path(sys.argv[2]))
"""


def test_one_that_is_killed_while_it_unpacks_is_known_too(taken: Path, fresh: Path) -> None:
    """A server that then started would have forgotten everything, its tokens too, and say that it is well."""
    killed = subprocess.run([sys.executable, "-c", KILLED, str(fresh), str(taken)], cwd=ROOT, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert "a restore of" in line(outrider(fresh, "token", "list").stderr)
    assert outrider(fresh, "restore", str(taken)).exit_code == 0
    assert outrider(fresh, "token", "list").exit_code == 0


def test_one_that_fails_leaves_the_folder_as_it_was(taken: Path, fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(fresh)
    monkeypatch.setattr(backups.Archive, "unpack", lambda *_: cut_now())
    with pytest.raises(KeyboardInterrupt):
        backups.restore(backups.Settings(data=fresh), taken)
    assert {name: content for name, content in contents(fresh).items() if name != "outrider.lock"} == before


def cut_now() -> None:
    raise KeyboardInterrupt
