"""By which address others reach this machine, where a server listens on all of its addresses.

It asks the machine's own routing table, and sends nothing.
"""

import ipaddress
import socket
from contextlib import suppress
from functools import cache
from urllib.parse import urlsplit

# Addresses of no machine (RFC 5737, RFC 3849): which of ours a packet to them would bear is what is looked up.
_ELSEWHERE = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}
_LOOPBACK = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}


def is_wildcard(host: str) -> bool:
    """Whether to listen there is to listen on every address; nobody can be called by it."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


@cache
def callable_at(host: str) -> str:
    """`host`, or in a wildcard's place this machine's first address that others have for it; loopback if it has none."""
    if not is_wildcard(host):
        return host
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Who listens on every IPv6 address does so on every IPv4 address too.
    found = _outward(family) or (_outward(socket.AF_INET) if family == socket.AF_INET6 else None)
    return found or _LOOPBACK[family]


def asked_at(host: str) -> str | None:
    """The address of a server that was asked by this Host header, which the door has let in; None for a wildcard's."""
    parts = urlsplit(f"//{host}")
    name = parts.hostname or ""
    if not name or is_wildcard(name):
        return None
    name = f"[{name}]" if ":" in name else name
    return f"http://{name}:{parts.port}" if parts.port else f"http://{name}"


def _outward(family: socket.AddressFamily) -> str | None:
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as asking:
        asking.connect((_ELSEWHERE[family], 9))
        name = str(asking.getsockname()[0])
        return None if is_wildcard(name) else name
    return None
