"""`outrider backup` and `outrider restore`: what they are given, what they say, and with which exit code.

They work on the data folder's own files, and ask no server.
"""

import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated, NoReturn

import typer

from web import settings
from web.cli_help import Plain
from web.cli_views import line, size
from web.setting_fields import Settings

Data = Annotated[str | None, typer.Option("--data", metavar="DIR", help="The data folder.")]
File = Annotated[Path, typer.Argument(metavar="FILE", help="The backup.")]


def add_to(app: typer.Typer) -> None:
    """Makes them commands of the program."""
    app.command(cls=Plain)(backup)
    app.command(cls=Plain)(restore)


def backup(
    file: File,
    force: Annotated[bool, typer.Option("--force", help="Replaces a file that is there.")] = False,
    data: Data = None,
) -> None:
    """Writes registry and knowledge store, as they are at one moment, into one file. A server may run meanwhile.

    The key that seals the registry is not in it, nor are the settings; keep the key elsewhere.
    """
    given = _settings(data, makes=False)
    backups = _backups()
    try:
        taken = backups.back_up(given, file, force=force)
    except backups.NotDone as problem:
        _fail(problem)
    print(
        f"{line(taken.file)}: {size(taken.bytes)}, as of {taken.taken_at}. Sealed with key {taken.key}, which is not in it."
    )


def restore(
    file: File,
    force: Annotated[bool, typer.Option("--force", help="Keeps aside what is there, and takes its place.")] = False,
    data: Data = None,
) -> None:
    """Puts a backup into the data folder; server and workers must be stopped. What was at work then goes on at the next start.

    The key that it was sealed with must be there, in seal.keys or in OUTRIDER_SEAL_KEY.
    """
    given = _settings(data)
    backups = _backups()
    try:
        restored = backups.restore(given, file, force=force)
    except backups.NotDone as problem:
        _fail(problem)
    print(f"Restored as of {restored.taken_at}.")
    if restored.aside:
        print(f"What was there before is in {line(restored.aside)}.", file=sys.stderr)


def _backups() -> ModuleType:
    """What does it. Loading it loads the stores' libraries, and what only asks a server starts without them."""
    from web import backups

    return backups


def _settings(data: str | None, *, makes: bool = True) -> Settings:
    try:
        return settings.load({"data": data}, makes=makes)
    except settings.BadSetting as problem:
        _fail(problem, 2)


def _fail(problem: object, code: int = 1) -> NoReturn:
    print(f"outrider: {line(problem)}", file=sys.stderr)
    raise typer.Exit(code)
