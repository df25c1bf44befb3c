"""`outrider token`: making, listing and revoking access tokens, on the registry's own file.

They speak with no server: whoever may write the data folder may let others in. A token is printed once, alone on
stdout; a server that runs hears of what is done here by itself.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from rich.table import Table

from background import tokens
from background.database import Database
from background.errors import Fault, StorageUnavailable, UnusableDatabase
from background.sealing import Vault, parse_keys
from background.times import rfc3339, rfc3339_or_none
from background.tokens import Token
from web import settings
from web.cli_help import Plain
from web.cli_views import columns, json_text, line, show, when, width
from web.setting_fields import Settings

T = TypeVar("T")
token_app = typer.Typer(no_args_is_help=True)
Data = Annotated[str | None, typer.Option("--data", metavar="DIR", help="The data folder.")]


@token_app.callback()
def access_tokens() -> None:
    """Access tokens, by which users are known."""


@token_app.command("create", cls=Plain)
def token_create(
    user: Annotated[str, typer.Option("--user", metavar="NAME", help="Whose it is; local owns what was made without.")],
    data: Data = None,
) -> None:
    """Makes a token and prints it, this once. From the first one on nobody is let in without."""
    try:
        tokens.require_name(user)  # what is mistyped opens no registry
    except Fault as fault:
        _fail(fault.message, 2)
    made, text = _changed(data, lambda db: db.write(tokens.make, user))
    print(text)
    print(f"Token {made.id} of {made.owner}. It is kept nowhere; it is sent as OUTRIDER_TOKEN.", file=sys.stderr)


@token_app.command("list", cls=Plain)
def token_list(as_json: Annotated[bool, typer.Option("--json", help="JSON alone.")] = False, data: Data = None) -> None:
    """Lists tokens, revoked ones too. None of them is shown."""
    found = _changed(data, lambda db: db.read(tokens.listed), makes=False)
    if as_json:
        print(json_text({"tokens": [_json(token) for token in found]}))
    elif found:
        show(_table(found))
    else:
        print("No tokens.", file=sys.stderr)


@token_app.command("revoke", cls=Plain)
def token_revoke(
    token_id: Annotated[str, typer.Argument(metavar="ID", help="The token's id, tok-…")], data: Data = None
) -> None:
    """Revokes a token: it lets nobody in from now on, and what was opened with it ends."""
    revoked = _changed(data, lambda db: db.write(tokens.revoke, token_id), makes=False)
    print(f"Token {revoked.id} of {revoked.owner} is revoked.")


def _changed(data: str | None, what: Callable[[Database], Coroutine[Any, Any, T]], *, makes: bool = True) -> T:
    """What comes of a transaction on the registry; what goes wrong ends the command with one line."""

    async def story(given: Settings) -> T:
        async with _registry(given) as db:
            return await what(db)

    try:
        return asyncio.run(story(settings.load({"data": data}, makes=makes)))
    except settings.BadSetting as problem:
        _fail(problem, 2)
    except Fault as fault:
        _fail(fault.message, 2 if fault.kind == "invalid" else 1)
    except (UnusableDatabase, StorageUnavailable) as problem:
        _fail(problem, 1)


@asynccontextmanager
async def _registry(given: Settings) -> AsyncIterator[Database]:
    key = given.seal_key
    db = await Database(given.database_path, vault=Vault(parse_keys(key.get_secret_value())) if key else None).open()
    try:
        yield db
    finally:
        await db.close()


def _fail(problem: object, code: int) -> NoReturn:
    print(f"outrider: {line(problem)}", file=sys.stderr)
    raise typer.Exit(code)


def _json(token: Token) -> dict[str, Any]:
    return {
        "id": token.id,
        "user": token.owner,
        "created_at": rfc3339(token.created_at),
        "used_at": rfc3339_or_none(token.used_at),
        "revoked_at": rfc3339_or_none(token.revoked_at),
    }


def _table(found: list[Token]) -> Table:
    rows = map(_json, found)
    return columns(
        "ID",
        "CREATED",
        "USED",
        "REVOKED",
        "USER",
        room=width(),
        spare=("CREATED", "USED"),
        rows=(
            (row["id"], *(when(row[at]) for at in ("created_at", "used_at", "revoked_at")), row["user"]) for row in rows
        ),
    )
