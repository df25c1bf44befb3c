"""The sealing key changed for another: everything in the registry is sealed anew, while nobody has it open."""

from pathlib import Path

from background.connections import require_unused
from background.database import wall_clock
from background.errors import StorageUnavailable, UnusableDatabase
from background.migrating import KEY_FILE, reseal
from background.sealing import Vault, key_file, new_key, parse_keys, write_keys
from web.setting_fields import Settings


class Unrotated(Exception):
    """The registry could not be sealed anew; the text is one line."""


def rotate_seals(settings: Settings) -> str:
    """Seal everything anew: with a new key in the key file, or with the first key of the setting. What was done, in words.

    Raises `Unrotated`. The new key is in the file before anything is sealed with it, the old ones until nothing needs them.
    """
    path = settings.database_path
    if not path.exists():
        raise Unrotated(f"there is no registry at {path}")
    try:
        require_unused(path)  # before a key is written that a running server does not know
        key, file = settings.seal_key, path.with_name(KEY_FILE)
        keys = parse_keys(key.get_secret_value()) if key else key_file(file, make=False).keys
        if not key and len(keys) == 1:  # else a rotation was cut off, and is brought to its end
            keys = (new_key(), *keys)
            write_keys(file, keys)
        vault = Vault(keys)
        changed = reseal(path, vault, wall_clock())
        if not key:
            _retire(file, keys[1:])
            write_keys(file, keys[:1])
    except (UnusableDatabase, StorageUnavailable) as error:
        raise Unrotated(str(error)) from error
    old = ", ".join(vault.key_ids[1:]) or "another"
    moved = "take it out of OUTRIDER_SEAL_KEY" if key else f"it is in {_retired(file).name} now"
    return (
        f"{changed} rows are sealed with key {vault.key_id} now. The registry does not need key {old} any more ({moved}); "
        "backups and exports that were made before still do."
    )


def _retired(file: Path) -> Path:
    return file.with_name(f"{file.name}.old")


def _retire(file: Path, keys: tuple[bytes, ...]) -> None:
    """Keys that nothing in the registry needs, kept for what was made before."""
    old = _retired(file)
    known = parse_keys(old.read_text()) if old.exists() else ()
    write_keys(old, dict.fromkeys((*keys, *known)))
