"""What a setting's value may be: each check and each kind of value once.

Pure, but for a look whether a folder is there. A check raises ValueError, and what is allowed stands in `web/settings.py`.
"""

import base64
import ipaddress
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from annotated_types import Ge, Le
from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationInfo

from agent.addresses import Allowed
from agent.profiles import BUILTIN

SEAL_KEY_BYTES = 32


def is_loopback(name: str) -> bool:
    """Whether `name` (a host without port, IPv6 without brackets) can only mean this machine."""
    return name.lower() == "localhost" or (is_address(name) and ipaddress.ip_address(name).is_loopback)


def authority(host: str, port: int) -> str:
    """Host and port as they stand in an address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def no_bool(value: object) -> object:
    # A TOML `true` would otherwise become the number 1, and a limit would silently be something else than meant.
    if isinstance(value, bool):
        raise ValueError("not a number")
    return value


def switch(value: object) -> object:
    # Only these two words: "no guard is ever switched off by a typo" leaves no room for "of" or "ture".
    words = {"true": True, "false": False}
    return words.get(value.lower(), value) if isinstance(value, str) else value


def split_names(value: object) -> object:
    return tuple(name.strip() for name in value.split(",") if name.strip()) if isinstance(value, str) else value


def unset_if_empty(value: object) -> object:
    return None if value == "" else value


def as_text(value: object) -> object:
    # `rpc_error_status = 200` reads naturally in TOML.
    return str(value) if type(value) is int else value


def named(value: str) -> str:
    if not value.strip() or not value.isprintable():
        raise ValueError("blank")
    return value


def is_address(name: str) -> bool:
    """Whether `name` (IPv6 without brackets) is an address, and no name that stands for one."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def listening_host(value: str) -> str:
    if value != "localhost" and not is_address(value):
        raise ValueError("not an address")
    return value


def database_file(value: str | None) -> str | None:
    if value is not None:
        path = value.removeprefix("sqlite:///")
        if path == value or not path or path == ":memory:" or "?" in path or not Path(path).resolve().parent.is_dir():
            raise ValueError("not a SQLite file")
    return value


def http_address(value: str | None) -> str | None:
    if value is None:
        return None
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or "@" in value:
        raise ValueError("not an address")
    _ = parts.port  # raises ValueError where it is no number up to 65535
    return value.rstrip("/")


def offered(value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    known = {*BUILTIN, *info.data.get("defined_profiles", ())}
    if not value or len(set(value)) != len(value) or not set(value) <= known:
        raise ValueError("not profiles")
    return value


def sealing_keys(value: SecretStr | None) -> SecretStr | None:
    if value is not None:
        keys = [base64.b64decode(word, validate=True) for word in value.get_secret_value().replace(",", " ").split()]
        if not keys or any(len(key) != SEAL_KEY_BYTES for key in keys):
            raise ValueError("not sealing keys")
    return value


class BadEntry(ValueError):
    """One of a list cannot be used; `entry` is the one."""

    def __init__(self, entry: object) -> None:
        super().__init__("not an entry")
        self.entry = entry


def opened(value: tuple[str, ...]) -> tuple[str, ...]:
    for entry in value:
        try:
            Allowed.of([entry])
        except ValueError:
            raise BadEntry(entry) from None
    return value


def folders(value: tuple[str, ...]) -> tuple[str, ...]:
    for entry in value:
        if not Path(entry).is_absolute():
            raise BadEntry(entry)
    return value


def split_keys(value: SecretStr) -> tuple[str, ...]:
    return tuple(key.strip() for key in value.get_secret_value().split(",") if key.strip())


def signing_keys(value: SecretStr | None) -> SecretStr | None:
    if value is not None:
        keys = split_keys(value)
        if not keys or any(not 16 <= len(key) <= 256 or not key.isascii() or not key.isprintable() for key in keys):
            raise ValueError("not signing keys")
    return value


Count = Annotated[int, BeforeValidator(no_bool)]
Port = Annotated[int, Ge(1), Le(65_535), BeforeValidator(no_bool)]
Tokens = Annotated[int, Ge(1), Le(1_000_000_000_000), BeforeValidator(no_bool)]
Window = Annotated[int, Ge(4_000), Le(100_000_000), BeforeValidator(no_bool)]
Seconds = Annotated[float, BeforeValidator(no_bool)]
Switch = Annotated[bool, Field(strict=True), BeforeValidator(switch)]
Name = Annotated[str, AfterValidator(named)]
Names = Annotated[tuple[Name, ...], BeforeValidator(split_names)]
