"""Sealing: a cell is read in its own place with its own key or not at all, and nothing that was said stands in a file otherwise."""

import base64
import re
import sqlite3
import stat
import threading
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from background import migrating, results, sealing
from background.database import Database, Tx
from background.errors import Unsealable, UnusableDatabase
from background.sealing import SEALED, Vault
from tests.background.factories import running, settled
from tests.background.story import everything, opened, rows, story
from tests.background.talk import CANARY, talkative
from tests.support.clock import Clock

SCHEMA = (migrating.MIGRATIONS.parent / "schema.sql").read_text()
OLD, NEW = b"o" * 32, b"n" * 32
HERE = ("results.artifacts", "t1")


@pytest.fixture(scope="module")
def vault() -> Vault:
    return Vault([OLD])


# -- a cell


@given(st.text(st.characters(exclude_categories=("Cs",))))
def test_what_was_sealed_is_read_again_and_never_stands_in_the_cell(text: str) -> None:
    vault = Vault([OLD])
    cell = vault.seal(*HERE, text)
    assert vault.unseal(*HERE, cell) == text
    assert len(text) < 4 or text.encode() not in cell


def test_the_same_text_twice_is_two_cells(vault: Vault) -> None:
    """Equal cells would tell that the same was said."""
    assert vault.seal(*HERE, "yes") != vault.seal(*HERE, "yes")


@pytest.mark.parametrize(
    "elsewhere",
    [("results.artifacts", "t2"), ("results.partial", "t1"), ("fragments.content", "t1"), ("results.artifact", "st1")],
    ids=["another row", "another column", "another table", "the same letters otherwise cut"],
)
def test_a_cell_that_was_moved_cannot_be_read(vault: Vault, elsewhere: tuple[str, str]) -> None:
    with pytest.raises(Unsealable, match="altered, or moved"):
        vault.unseal(*elsewhere, vault.seal(*HERE, "The answer."))


def test_a_cell_of_which_any_byte_was_altered_cannot_be_read(vault: Vault) -> None:
    cell = vault.seal(*HERE, "The answer.")
    for place in range(len(cell)):
        altered = bytearray(cell)
        altered[place] ^= 1
        with pytest.raises(Unsealable):
            vault.unseal(*HERE, bytes(altered))
    for length in range(len(cell)):
        with pytest.raises(Unsealable):
            vault.unseal(*HERE, cell[:length])


def test_a_key_that_is_not_there_is_named_and_nothing_else_is(vault: Vault) -> None:
    with pytest.raises(Unsealable, match=f"key {vault.key_id}, which is not there") as caught:
        Vault([NEW]).unseal(*HERE, vault.seal(*HERE, "The answer."))
    assert "answer" not in str(caught.value)


@pytest.mark.parametrize("plain", ["The answer.", b"The answer.", b"", None, 7])
def test_plain_text_is_never_taken_for_a_cell(vault: Vault, plain: object) -> None:
    with pytest.raises(Unsealable, match=r"results\.artifacts of t1 is not sealed"):
        vault.unseal(*HERE, plain)  # type: ignore[arg-type]


def test_the_first_key_seals_and_the_others_only_open(vault: Vault) -> None:
    both = Vault([NEW, OLD])
    assert both.unseal(*HERE, vault.seal(*HERE, "old")) == "old"
    cell = both.seal(*HERE, "new")
    assert sealing.sealed_by(cell) == both.key_id == Vault([NEW]).key_id
    with pytest.raises(Unsealable):
        vault.unseal(*HERE, cell)


@pytest.mark.parametrize("keys", [[], [b"short"], [OLD, b""]])
def test_a_vault_wants_whole_keys(keys: list[bytes]) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Vault(keys)


# -- keys


def test_a_key_file_is_made_for_its_owner_alone_and_is_the_same_ever_after(tmp_path: Path) -> None:
    path = tmp_path / "seal.keys"
    made = sealing.key_file(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sealing.key_file(path).keys == made.keys
    assert [file.name for file in tmp_path.iterdir()] == ["seal.keys"]


def test_makers_at_the_same_moment_have_the_same_key(tmp_path: Path) -> None:
    for number in range(20):
        path = tmp_path / str(number) / "seal.keys"
        path.parent.mkdir()
        start, found = threading.Barrier(4), []

        def make(path: Path = path, start: threading.Barrier = start, found: list[Vault] = found) -> None:
            start.wait()
            found.append(sealing.key_file(path))

        makers = [threading.Thread(target=make) for _ in range(4)]
        for maker in makers:
            maker.start()
        for maker in makers:
            maker.join()
        assert len({vault.keys for vault in found}) == 1
        assert len(found) == 4
        assert [file.name for file in path.parent.iterdir()] == ["seal.keys"]


def test_keys_are_written_whole_with_the_one_that_seals_first(tmp_path: Path) -> None:
    path = tmp_path / "seal.keys"
    sealing.key_file(path)
    sealing.write_keys(path, [NEW, OLD])
    assert sealing.key_file(path).keys == (NEW, OLD)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    sealing.write_keys(path, [b"x" * 32], new=True)
    assert sealing.key_file(path).keys == (NEW, OLD), "a new one never replaces what is there"


def test_a_setting_may_hold_several_keys() -> None:
    old, new = base64.b64encode(OLD).decode(), base64.b64encode(NEW).decode()
    assert sealing.parse_keys(f"{new},{old}") == sealing.parse_keys(f" {new}\n{old}\n") == (NEW, OLD)


BAD_KEYS = {
    "nothing": " \n",
    "no base64": "kanari!kanari!kanari!kanari!kanari!kanari!=",
    "too short": base64.b64encode(b"kanari").decode(),
    "padding": "kanari",
    "no ASCII": "känari",
    "a second that is none": f"{base64.b64encode(OLD).decode()},kanari",
}


@pytest.mark.parametrize("text", BAD_KEYS.values(), ids=BAD_KEYS)
def test_what_is_no_key_is_refused_without_being_repeated(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError) as caught:
        sealing.parse_keys(text)
    assert "nari" not in str(caught.value)
    path = tmp_path / "seal.keys"
    path.write_text(text)
    with pytest.raises(UnusableDatabase, match="holds no sealing keys") as told:
        sealing.key_file(path)
    assert "nari" not in str(told.value)
    assert path.read_text() == text


def test_a_key_file_that_is_no_text_is_refused_too(tmp_path: Path) -> None:
    path = tmp_path / "seal.keys"
    path.write_bytes(b"\xff" * 44)
    with pytest.raises(UnusableDatabase, match="holds no sealing keys"):
        sealing.key_file(path)


# -- a registry and its keys


async def _refused(path: Path, clock: Clock, vault: Vault | None = None) -> str:
    """The one line with which a registry is not opened; every file of its folder is as it was."""
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    with pytest.raises(UnusableDatabase) as caught:
        await Database(path, clock, vault=vault).open()
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before
    (line,) = str(caught.value).splitlines()
    return line


@story
async def test_without_its_key_a_registry_is_not_opened_and_no_new_key_hides_that(db: Database, clock: Clock) -> None:
    await running(db)
    await db.close()
    keys = db.path.with_name(migrating.KEY_FILE)
    lost = keys.read_text()
    keys.unlink()
    sealed = f"the registry was sealed with key {Vault(sealing.parse_keys(lost)).key_id}; put back the file"
    line = await _refused(db.path, clock)
    assert line.startswith(f"{keys} is not there; ") and sealed in line
    keys.write_text("none")
    line = await _refused(db.path, clock)
    assert line.startswith(f"{keys} holds no sealing keys; ") and sealed in line
    keys.write_text(lost)
    async with opened(db.path, clock) as again:
        assert await rows(
            again, "select unsealed('messages.text', session || '/' || uid, text) as said from messages"
        ) == [{"said": "hello"}]


@story
async def test_with_another_key_a_registry_is_not_opened(db: Database, clock: Clock) -> None:
    await running(db)
    await db.close()
    right = sealing.key_file(db.path.with_name(migrating.KEY_FILE)).key_id
    line = await _refused(db.path, clock, Vault([NEW]))
    assert f"sealed with key {right}, which is not among those given ({Vault([NEW]).key_id})" in line
    sealing.write_keys(db.path.with_name(migrating.KEY_FILE), [NEW])
    assert await _refused(db.path, clock) == line


@story
async def test_a_key_that_once_sealed_here_is_missed_though_another_seals_now(db: Database, clock: Clock) -> None:
    """What it sealed is still there, until everything was brought over."""
    await db.close()
    (old,) = sealing.key_file(db.path.with_name(migrating.KEY_FILE)).keys
    both = await Database(db.path, clock, vault=Vault([NEW, old])).open()
    await running(both)
    await both.close()
    await _refused(db.path, clock, Vault([NEW]))
    await _refused(db.path, clock, Vault([old]))


@story
async def test_a_cell_that_somebody_altered_is_an_error_and_no_answer(db: Database) -> None:
    turn = await running(db)
    await settled(db, turn, text="The answer.")
    await db.write(Tx.x, "update results set artifacts = (select content from messages where content is not null)")
    with pytest.raises(Unsealable, match=f"results.artifacts of {turn.task.id} was altered, or moved"):
        await db.read(results.read, turn.task.id)


# -- the inventory


def test_every_blob_of_the_schema_is_in_the_inventory_and_nothing_else_is() -> None:
    """`seals.mark` is the known text that shows that a key is there, and digests of secrets are none: no cells of anybody's."""
    blobs = set()
    for table, columns in re.findall(r"^create table (\w+) \((.*?)^\)", SCHEMA, re.DOTALL | re.MULTILINE):
        blobs |= {(table, column) for column in re.findall(r"^    (\w+) blob", columns, re.MULTILINE)}
    listed = {(table, column) for table, sealed in SEALED.items() for column in sealed.columns}
    assert blobs - {("seals", "mark"), ("tokens", "digest"), ("shares", "digest")} == listed


@story
async def test_what_names_a_row_to_its_seals_names_one_row(db: Database) -> None:
    """Two rows of one name could change their cells unnoticed."""
    await talkative(db)
    with closing(sqlite3.connect(db.path)) as stranger:
        for table, (row, _) in SEALED.items():
            names = ", ".join(row)
            unique = stranger.execute(f"select count(*), count(distinct {' || char(0) || '.join(row)}) from {table}")
            every, apart = unique.fetchone()
            assert every == apart, (table, names)


# -- the bytes of the files


def _bytes_of(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.parent.glob(f"{path.name}*")}


@story
async def test_nothing_that_was_said_stands_in_any_byte_of_the_registry_s_files(db: Database) -> None:
    assert len(await talkative(db)) > 20
    filled = everything(db.path)
    assert {table for table in SEALED if not filled[table]} == set(), "a table that was left out shows nothing"
    for name, content in _bytes_of(db.path).items():
        assert CANARY.encode() not in content, name
        assert CANARY.encode("utf-16-le") not in content, name
        assert b"Look into it." not in content, name
    await db.write(Tx.x, "update sessions set owner = :plain where id = 's'", plain=CANARY)
    assert any(CANARY.encode() in content for content in _bytes_of(db.path).values()), "the search finds what is there"
