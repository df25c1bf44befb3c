"""Backing up and restoring: both stores at one moment, into one file and back, on the data folder itself.

No server is asked: one may run while a backup is taken, and none may while one is restored. What goes wrong is one
line, and then nothing was changed; a restore that was cut off in the middle is known by a mark, and no start passes that.
"""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from background import copies as registries
from background.connections import require_unused
from background.database import wall_clock
from background.errors import StorageUnavailable, UnusableDatabase
from background.migrating import KEY_FILE, UNFINISHED
from background.sealing import Vault, key_file, parse_keys
from background.times import rfc3339
from knowledge import copies as indexes
from knowledge.backend import StoreFailed
from web.archive import FORM, KNOWLEDGE, REGISTRY, Archive, BadArchive, Manifest, described, write
from web.setting_fields import Settings

NEWEST = {REGISTRY: registries.NEWEST, KNOWLEDGE: indexes.NEWEST}
BESIDE = ("", "-wal", "-shm")  # the files that a database may consist of


class NotDone(Exception):
    """It was not done, and nothing was changed; the text is one line."""


@dataclass(frozen=True)
class Taken:
    """A backup that was taken: the file, its size, its moment, the id of its key."""

    file: Path
    bytes: int
    taken_at: str
    key: str


@dataclass(frozen=True)
class Restored:
    """A backup that was restored: its moment, and where what was there before is kept, if anything was."""

    taken_at: str
    aside: Path | None


def back_up(settings: Settings, file: Path, *, force: bool = False) -> Taken:
    """Both stores of the data folder, as they are at one moment, in one file. Raises `NotDone`."""
    if not settings.database_path.exists():
        raise NotDone(f"there is no registry at {settings.database_path}")
    if file.exists() and not (force and file.is_file()):
        raise NotDone(f"{file} is there already" + ("" if force or not file.is_file() else "; --force replaces it"))
    with _told(), tempfile.TemporaryDirectory(dir=file.parent, prefix=f".{file.name}.") as folder:
        vault = _vault(settings)
        registries.require_keys(settings.database_path, vault)
        copied = _copied(settings, Path(folder))
        taken_at = rfc3339(wall_clock())
        manifest = Manifest(
            form=FORM,
            program=f"outrider {version('outrider')}",
            taken_at=taken_at,
            schemas={name: _schema(name, path) for name, path in copied.items()},
            key=vault.key_id,
            files={name: described(path) for name, path in copied.items()},
        )
        whole = Path(folder) / "whole"
        write(whole, manifest, copied, vault)
        whole.replace(file)
        _synced(file.parent)
    return Taken(file, file.stat().st_size, taken_at, vault.key_id)


def _copied(settings: Settings, folder: Path) -> dict[str, Path]:
    """The stores' copies, of one moment: the registry stands still while both are looked at, and no longer."""
    with ExitStack() as stack:
        copiers: dict[str, registries.Copier | indexes.Copier] = {
            REGISTRY: stack.enter_context(registries.reading(settings.database_path))
        }
        if settings.knowledge_path.exists():
            copiers[KNOWLEDGE] = stack.enter_context(indexes.reading(settings.knowledge_path))
        with registries.standing_still(settings.database_path):
            for copier in copiers.values():
                copier.look()
        for name, copier in copiers.items():
            copier.copy(folder / name)
        return {name: folder / name for name in copiers}


def _schema(name: str, path: Path) -> int:
    return registries.version(path) if name == REGISTRY else indexes.version(path)


def restore(settings: Settings, file: Path, *, force: bool = False) -> Restored:
    """A backup's stores in place of what the data folder has, which is kept aside and only with `force`. Raises `NotDone`."""
    places = {REGISTRY: settings.database_path, KNOWLEDGE: settings.knowledge_path}
    with _told(), ExitStack() as stack:
        archive = stack.enter_context(closing(Archive(file)))
        manifest = archive.checked(NEWEST)
        vault = _vault(settings, manifest.key)
        archive.require(vault)
        there = [place for place in places.values() if place.exists()]
        if there and not force:
            raise NotDone(f"{there[0]} is there already; --force puts the backup in its place and keeps what is there")
        stack.enter_context(_alone(settings.database_path))
        unpacked = {name: place.with_name(f"{place.name}.restoring") for name, place in places.items()}
        for path in unpacked.values():
            stack.callback(path.unlink, missing_ok=True)
        with _marked(places[REGISTRY].with_name(UNFINISHED)):
            for name in manifest.files:
                archive.unpack(name, unpacked[name])
            registries.require_keys(unpacked[REGISTRY], vault)
        aside = _exchanged(places, {name: unpacked[name] for name in manifest.files})
    return Restored(manifest.taken_at, aside)


@contextmanager
def _marked(mark: Path) -> Iterator[None]:
    """From here on nothing starts in the folder. Where this block fails, nothing was changed, and the mark is as it was."""
    was_there = mark.exists()
    mark.touch(mode=0o600)
    _synced(mark.parent)
    try:
        yield
    except BaseException:
        if not was_there:
            mark.unlink()
        raise


def _exchanged(places: dict[str, Path], unpacked: dict[str, Path]) -> Path | None:
    """What was there goes aside, and what was unpacked takes its place. Returns where the registry that was there is."""
    aside = f"before-restore-{rfc3339(wall_clock())[:19].replace(':', '')}Z"
    kept = [moved for name, place in places.items() if (moved := _set_aside(place, place.with_name(aside), name))]
    for name, path in unpacked.items():
        if os.geteuid() == 0:  # whoever owns the folder runs the server
            owner = places[name].parent.stat()
            os.chown(path, owner.st_uid, owner.st_gid)
        path.replace(places[name])
    for folder in {place.parent for place in places.values()}:
        _synced(folder)
    places[REGISTRY].with_name(UNFINISHED).unlink()
    return kept[0] if kept else None


def _set_aside(place: Path, folder: Path, name: str) -> Path | None:
    """Moves a database with all its files. Returns the folder, or None where there was nothing."""
    parts = [part for end in BESIDE if (part := place.with_name(f"{place.name}{end}")).exists()]
    if not parts:
        return None
    folder.mkdir(mode=0o700, exist_ok=True)
    for part in reversed(parts):  # the database last, so that one that was cut off is gone on with
        part.replace(folder / part.name)
    return folder


def _vault(settings: Settings, wanted: str = "") -> Vault:
    """The keys of the data folder, or of the setting. Raises `NotDone` where there are none: a backup brings none."""
    if settings.seal_key:
        return Vault(parse_keys(settings.seal_key.get_secret_value()))
    path = settings.database_path.with_name(KEY_FILE)
    if not path.exists():
        key = f" key {wanted}, with which the backup was sealed" if wanted else " the key that seals the registry"
        raise NotDone(f"{path} is not there; put back{key}, or set OUTRIDER_SEAL_KEY")
    return key_file(path, make=False)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Nobody has the registry open, and nobody opens it meanwhile. Raises `NotDone`, `StorageUnavailable`."""
    with path.with_suffix(".lock").open("w") as lock:
        os.fchmod(lock.fileno(), 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NotDone(f"{path} is in use: a server or a worker is starting") from None
        if path.exists():
            require_unused(path)
        yield


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except (BadArchive, StorageUnavailable, UnusableDatabase, StoreFailed) as problem:
        raise NotDone(str(problem)) from problem
    except OSError as error:
        raise NotDone(f"{error.filename or 'the file'}: {error.strerror or error}") from error


def _synced(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
