"""The one file that a backup is: a zip with a manifest, and the two stores behind it.

The manifest says what made it, when, with which schemas, under which key, and each member's size and SHA-256. It is
sealed, so that only who has the key can have written it. The key is not in it. It knows nothing of a data folder.
"""

import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from pydantic import TypeAdapter

from background.errors import Unsealable
from background.sealing import Vault

FORM = 1  # of the file
MANIFEST = "manifest.json"
REGISTRY, KNOWLEDGE = "outrider.db", "knowledge.db"
PIECE = 1 << 20
MANIFEST_BYTES = 1 << 16
COMPRESSION = 1  # what is sealed gets no smaller, and the rest is small enough with little effort
# What a file that is no zip, or a damaged one, makes the reading of it raise.
UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    RuntimeError,
)
DAMAGED = "{} is no backup of Outrider's, or it is damaged{}"


class BadArchive(Exception):
    """The file cannot be restored; the text is one line."""


@dataclass(frozen=True)
class Packed:
    """A member as it was put in."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a backup says of itself. `schemas` and `files` are by member; `key` is the id of the key that sealed this."""

    form: int
    program: str
    taken_at: str
    schemas: Mapping[str, int]
    key: str
    files: Mapping[str, Packed]

    @property
    def told(self) -> str:
        """All of it in one form, to be sealed."""
        return json.dumps(asdict(self), sort_keys=True)


_MANIFEST = TypeAdapter(Manifest)


def described(path: Path) -> Packed:
    """A file's size and SHA-256."""
    with path.open("rb") as file:
        return Packed(path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())


def write(to: Path, manifest: Manifest, members: Mapping[str, Path], vault: Vault) -> None:
    """The whole file, which only its owner may read, on the disk when this returns. Raises `FileExistsError`, `OSError`."""
    seal = vault.seal("backup.manifest", manifest.taken_at, manifest.told).hex()
    said = json.dumps({**asdict(manifest), "seal": seal}, indent=2)
    with os.fdopen(os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=COMPRESSION) as archive:
            archive.writestr(MANIFEST, said)
            for name, path in members.items():
                archive.write(path, name)
        file.flush()
        os.fsync(file.fileno())


class Archive:
    """A backup that is read. What of it is given out has been found to be what was put in."""

    def __init__(self, path: Path) -> None:
        """Opens it, and reads its manifest. Raises `BadArchive`."""
        self._path = path
        try:
            self._zip = zipfile.ZipFile(path)
            with self._zip.open(MANIFEST) as file:
                said = json.loads(file.read(MANIFEST_BYTES))
            self._seal = bytes.fromhex(said.pop("seal"))
            self.form = int(said["form"])
            self.manifest = _MANIFEST.validate_python(said) if self.form == FORM else None
        except OSError as error:
            raise BadArchive(f"{path} cannot be read: {error.strerror or error}") from None
        except UNREADABLE:
            raise BadArchive(DAMAGED.format(path, "")) from None

    def close(self) -> None:
        self._zip.close()

    def checked(self, newest: Mapping[str, int]) -> Manifest:
        """The manifest, of a backup that this version, which knows these schemas, can take in. Raises `BadArchive`."""
        manifest = self.manifest
        if manifest is None:
            raise BadArchive(f"{self._path} was written by a newer version (form {self.form}; this one knows {FORM})")
        if REGISTRY not in manifest.files or not set(manifest.files) <= set(newest):
            raise BadArchive(DAMAGED.format(self._path, ""))
        for name in manifest.files:
            if manifest.schemas[name] > newest[name]:
                raise BadArchive(
                    f"{self._path} was written by a newer version ({manifest.program}; its {name} has schema "
                    f"{manifest.schemas[name]}, and this version knows {newest[name]})"
                )
        return manifest

    def require(self, vault: Vault) -> None:
        """Raises `BadArchive` unless the manifest is as whoever has the key wrote it."""
        assert self.manifest is not None
        key = self.manifest.key
        if key not in vault.key_ids:
            raise BadArchive(
                f"{self._path} was sealed with key {key}, and there {'is' if len(vault.key_ids) == 1 else 'are'} "
                f"{', '.join(vault.key_ids)}; put the key of its time back (OUTRIDER_SEAL_KEY, or seal.keys in the data folder)"
            )
        try:
            told = vault.unseal("backup.manifest", self.manifest.taken_at, self._seal)
        except Unsealable:
            told = ""
        if told != self.manifest.told:
            raise BadArchive(f"{self._path} was altered: its manifest is not as it was written")

    def unpack(self, name: str, to: Path) -> None:
        """A member as it was put in, on the disk. Raises `BadArchive`, and `OSError` where there is no room."""
        assert self.manifest is not None
        wanted = self.manifest.files[name]
        try:
            with self._zip.open(name) as packed:
                digest = _copied(packed, to, wanted.bytes)
        except UNREADABLE:
            digest = ""
        if digest != wanted.sha256:
            raise BadArchive(DAMAGED.format(self._path, f": its {name} is not what was put in"))


def _copied(packed: IO[bytes], to: Path, most: int) -> str:
    """Copies so many bytes at most and one more. Their SHA-256."""
    digest, left = hashlib.sha256(), most + 1
    with os.fdopen(os.open(to, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        while piece := packed.read(min(PIECE, left)):
            digest.update(piece)
            file.write(piece)
            left -= len(piece)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()
