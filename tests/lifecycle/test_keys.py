"""Another key, a lost key, a wrong key: what is sealed is read by whoever has the key, and by nobody else."""

import base64
import secrets
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from background import connections
from background.sealing import SEALED, key_file, parse_keys, sealed_by
from tests.support.inside import Inside
from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel
from tests.support.server import ROOT
from web import rotation, settings

Make = Callable[..., Inside]


def key() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode()


def told(outrider: Inside, model: ScriptedModel, word: str) -> list[dict[str, Any]]:
    """A chat and a job with all their texts, and the log as it is read."""
    model.rules([Rule(last_user="^look", text=f"Found {word}."), Rule(last_user="<task-noti", text="Briefed.")])
    outrider.ask("s", f"Remember {word}.")
    job = outrider.spawn("s", "look", "a look")["id"]
    outrider.wait(lambda: outrider.job(job)["notified"])
    return [*outrider.messages("s"), outrider.job(job)]


def read(outrider: Inside) -> list[dict[str, Any]]:
    (job,) = outrider.jobs("s")
    return [*outrider.messages("s"), outrider.job(job["id"])]


def rotate(data: Path, **given: Any) -> str:
    return rotation.rotate_seals(settings.load({"data": str(data), **given}, {}))


def keys(data: Path) -> tuple[bytes, ...]:
    return key_file(data / "seal.keys", make=False).keys


def sealers(data: Path) -> set[str]:
    """The keys that any cell of a registry is sealed with."""
    with closing(sqlite3.connect(data / "outrider.db")) as db:
        return {
            sealed_by(cell)
            for table, (_, columns) in SEALED.items()
            for column in columns
            for (cell,) in db.execute(f"select {column} from {table} where {column} is not null")
        }


def files(data: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in data.iterdir() if path.suffix != ".lock"}


def outrider(*words: str, data: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """A command of its own, which must end by itself."""
    command = [sys.executable, "-m", "web.cli", *words]
    bare = {"PATH": "/usr/bin:/bin", "OUTRIDER_DATA": str(data), **env}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, env=bare)


def test_after_a_rotation_the_old_key_opens_nothing_and_is_not_needed(
    inside: Make, model: ScriptedModel, word: str
) -> None:
    """F049: every sealed column; all that was there is read as before, under one key in a file of mode 0600."""
    house = inside()
    before = told(house, model, word)
    house.stop()
    (old,) = keys(house.data)
    assert "it is in seal.keys.old now" in rotate(house.data)  # for backups and exports that were made before
    (new,) = keys(house.data)
    retired = house.data / "seal.keys.old"
    assert parse_keys(retired.read_text()) == (old,) and retired.stat().st_mode & 0o777 == 0o600
    assert new != old and (house.data / "seal.keys").stat().st_mode & 0o777 == 0o600
    assert len(sealers(house.data)) == 1
    assert read(house.start()) == before
    house.stop()
    kept = files(house.data)
    house.settings = settings.load({**_options(house), "seal_key": base64.b64encode(old).decode()}, {})
    with pytest.raises(AssertionError, match="was sealed with key"):
        house.start()
    assert files(house.data) == kept


def _options(house: Inside) -> dict[str, Any]:
    return {"data": str(house.data), "port": house.port}


@pytest.mark.parametrize("batches", [1, 7])
def test_a_rotation_that_was_killed_is_brought_to_its_end(
    inside: Make, model: ScriptedModel, word: str, batches: int
) -> None:
    """Killed between two of its transactions: both keys are there, everything is read, and the next run needs one."""
    house = inside()
    before = told(house, model, word)
    house.stop()
    (old,) = keys(house.data)
    command = [sys.executable, "-m", "tests.lifecycle.cut_rotation", str(house.data), str(batches)]
    assert subprocess.run(command, cwd=ROOT, timeout=60).returncode == -signal.SIGKILL
    new, second = keys(house.data)
    assert second == old
    if batches == 7:  # nobody has to run it again at once: a server works with both
        assert read(house.start()) == before
        house.stop()
    rotate(house.data)
    assert keys(house.data) == (new,) and len(sealers(house.data)) == 1
    assert read(house.start()) == before


def test_keys_of_the_setting_are_rotated_by_naming_the_new_one_first(
    inside: Make, model: ScriptedModel, word: str
) -> None:
    old, new = key(), key()
    house = inside(seal_key=old)
    before = told(house, model, word)
    house.stop()
    assert "take it out of OUTRIDER_SEAL_KEY" in rotate(house.data, seal_key=f"{new},{old}")
    assert not (house.data / "seal.keys").exists() and not (house.data / "seal.keys.old").exists()
    house.settings = settings.load({**_options(house), "seal_key": new, "profiles": "chat,echo"}, {})
    assert read(house.start()) == before


def test_a_rotation_with_a_key_missing_changes_nothing(inside: Make, model: ScriptedModel, word: str) -> None:
    house = inside(seal_key=key())
    told(house, model, word)
    house.stop()
    before = files(house.data)
    with pytest.raises(rotation.Unrotated, match=r"\Athe registry was sealed with key [0-9a-f]{8}, which [^\n]*\Z"):
        rotate(house.data, seal_key=key())
    with pytest.raises(rotation.Unrotated, match=r"\A[^\n]*seal.keys is not there[^\n]*\Z"):
        rotate(house.data)
    with pytest.raises(rotation.Unrotated, match=r"\Athere is no registry at [^\n]*\Z"):
        rotate(house.data.with_name("nowhere"))
    assert files(house.data) == before


def test_while_a_server_runs_no_key_is_written(
    inside: Make, model: ScriptedModel, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would go on sealing with the old one: refused in one line."""
    house = inside()
    house.ask("s", word)
    before = keys(house.data)
    monkeypatch.setattr(connections, "BUSY_TIMEOUT_MS", 100)
    with pytest.raises(rotation.Unrotated, match=r"\A[^\n]* is in use: stop its server and its workers first\Z"):
        rotate(house.data)
    assert keys(house.data) == before
    assert [path.name for path in house.data.glob("seal.keys*")] == ["seal.keys"]
    assert house.ask("s", "still there?") == "ok"


def test_a_lost_key_refuses_the_start_in_one_line(inside: Make, model: ScriptedModel, word: str) -> None:
    """A new one would hide that the old one is lost: neither is made, and nothing is changed."""
    house = inside()
    house.ask("s", word)
    house.stop()
    (house.data / "seal.keys").unlink()
    before = files(house.data)
    refused = outrider("serve", data=house.data, OUTRIDER_PORT=str(house.port))
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("outrider: ") and refused.stderr.count("\n") == 1, refused.stderr
    assert "seal.keys is not there" in refused.stderr
    assert files(house.data) == before


def test_a_key_file_that_is_no_key_file_refuses_the_start(inside: Make, model: ScriptedModel, word: str) -> None:
    house = inside()
    house.ask("s", word)
    house.stop()
    (house.data / "seal.keys").write_text("not a key\n")
    before = files(house.data)
    with pytest.raises(AssertionError, match="holds no sealing keys"):
        house.start()
    assert files(house.data) == before


def test_keys_are_never_repeated(inside: Make) -> None:
    """F179: not even where one of them cannot be used."""
    good = key()
    with pytest.raises(settings.BadSetting) as caught:
        settings.load({"data": "/nowhere", "seal_key": f"{good},short"}, {})
    assert good not in str(caught.value) and "short" not in str(caught.value)
    assert len(parse_keys(f"{good},{key()}")) == 2
