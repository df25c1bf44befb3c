"""Where a webhook or a page may lead: the check of its address, once when it is given and again before each call.

What is public may be called; what is not (this machine, private networks, every other way to spell them) only if the
operator's list names it. An address that could be read in two ways is refused. It resolves names and connects to nothing.
"""

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from urllib.parse import urlsplit

IP = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Resolve = Callable[[str, int], Awaitable[list[str]]]

URL_CHARS = 2048
RESOLVE_S = 5.0
# Visible ASCII without the backslash, which some readers of addresses take for a slash.
_PLAIN = re.compile(r"[!-\[\]-~]+")
_PLACE = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?")
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMERIC = re.compile(r"[0-9]+|0x[0-9a-f]*")
# Names that mean this machine or this network, whatever a name server says of them.
_NEVER_PUBLIC = ("localhost", "local", "internal", "home.arpa")
_PORTS = {"http": 80, "https": 443}


def _networks(listed: str) -> tuple[Network, ...]:
    return tuple(map(ipaddress.ip_network, listed.split()))


# The special-purpose registries of IANA (RFC 6890 and what came after it). Python has a list of its own, which differs
# from release to release; what either of the two holds is not public.
_V4 = _networks(
    "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 "
    "192.31.196.0/24 192.52.193.0/24 192.88.99.0/24 192.168.0.0/16 192.175.48.0/24 198.18.0.0/15 198.51.100.0/24 "
    "203.0.113.0/24 224.0.0.0/4 240.0.0.0/4"
)
# Only this is global unicast. Mapped and translated IPv4 addresses and all that is local lie outside of it; Teredo,
# documentation and 6to4 inside.
_V6_GLOBAL = IPv6Network("2000::/3")
_V6 = _networks("2001::/23 2001:db8::/32 2002::/16 2620:4f:8000::/48 3fff::/20")


class Forbidden(ValueError):
    """Nothing may be called there; `str()` says what is wrong, and holds nothing of the address."""


class Unresolved(Exception):
    """The name leads nowhere now."""


@dataclass(frozen=True)
class Allowed:
    """What an operator has opened: hosts by name, whatever they resolve to, and networks."""

    hosts: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()

    @classmethod
    def of(cls, entries: Iterable[str]) -> "Allowed":
        """From a list like `hooks.intern`, `10.1.0.0/16`, `127.0.0.1`, `::1`. Raises `ValueError` for anything else."""
        hosts, networks = set[str](), list[Network]()
        for entry in entries:
            lowered = entry.lower()
            if "/" in entry or ":" in entry or _is_numeric(lowered):
                networks.append(_network(entry))
            else:
                hosts.add(_name(lowered))
        return cls(frozenset(hosts), tuple(networks))

    def has(self, address: IP) -> bool:
        return any(address in network for network in self.networks)


@dataclass(frozen=True)
class Address:
    """An address that was read. `host` is lower case, IPv6 without brackets; `authority` is what a Host header says."""

    url: str
    scheme: str
    host: str
    port: int
    authority: str


async def resolve(host: str, port: int) -> list[str]:
    """The addresses of a name, as this machine sees them. Raises `OSError`."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def read(url: str, allowed: Allowed) -> Address:
    """What can be said without asking anybody. Raises `Forbidden`."""
    if len(url) > URL_CHARS:
        raise Forbidden(f"must not be longer than {URL_CHARS} characters")
    if not _PLAIN.fullmatch(url):
        raise Forbidden("must be visible ASCII characters without backslashes")
    try:
        parts = urlsplit(url)
    except ValueError:
        raise Forbidden("must be an http or https address") from None
    if parts.scheme not in _PORTS:
        raise Forbidden("must be an http or https address")
    if "@" in parts.netloc:
        raise Forbidden("must not hold a user name or a password")
    if "#" in url:
        raise Forbidden("must not have a fragment")
    place = _PLACE.fullmatch(parts.netloc)
    if place is None:
        raise Forbidden("must have a host, and no other port than a number")
    host = _host(place["host"].lower())
    address = Address(url, parts.scheme, host, int(place["port"] or _PORTS[parts.scheme]), parts.netloc)
    _check_literal(address, allowed)
    _check_port(address, allowed)
    return address


async def places(address: Address, allowed: Allowed, resolve: Resolve) -> list[str]:
    """The addresses to connect to, each of them checked. Raises `Forbidden` for a single bad one, `Unresolved`."""
    if _literal(address.host) is not None:
        return [address.host]
    try:
        async with asyncio.timeout(RESOLVE_S):
            found = await resolve(address.host, address.port)
    except (OSError, TimeoutError, UnicodeError):
        found = []
    if not found:
        raise Unresolved
    if address.host not in allowed.hosts:
        for each in map(ipaddress.ip_address, found):
            if not _is_public(each) and not allowed.has(each):
                raise Forbidden("leads to a network that is not public")
    return found


async def check(url: str, allowed: Allowed, resolve: Resolve) -> None:
    """For an address that is to be registered. Raises `Forbidden`.

    A name that leads nowhere now is taken: it is looked at again before each call, and a server that is cut off from
    the network can still register what its workers reach.
    """
    address = read(url, allowed)
    if address.host in allowed.hosts:
        return
    try:
        await places(address, allowed, resolve)
    except Unresolved:
        return


def _host(given: str) -> str:
    if given.startswith("["):
        try:
            return str(IPv6Address(given[1:-1]))
        except ValueError:
            raise Forbidden("must have a host that is a name or an address") from None
    if _is_numeric(given):
        try:
            return str(IPv4Address(given))
        except ValueError:
            raise Forbidden("must spell an IPv4 address as four decimal numbers") from None
    try:
        return _name(given)
    except ValueError:
        raise Forbidden("must have a host that is a name or an address, without a dot at its end") from None


def _network(given: str) -> Network:
    """A network or an address, IPv6 also in brackets. One with a zone is none: no address that is called can have a zone."""
    bare = given[1:-1] if given.startswith("[") and given.endswith("]") else given
    if "%" in bare:
        raise ValueError("a zone")
    return ipaddress.ip_network(bare)


def _name(given: str) -> str:
    if len(given) > 253 or not all(map(_LABEL.fullmatch, given.split("."))):
        raise ValueError("not a host name")
    return given


def _is_numeric(host: str) -> bool:
    """Whether somebody would read it as an IPv4 address: the last label decides, as in the URL standard."""
    labels = host.removesuffix(".").split(".")
    return _NUMERIC.fullmatch(labels[-1]) is not None


def _literal(host: str) -> IP | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _check_literal(address: Address, allowed: Allowed) -> None:
    literal = _literal(address.host)
    if literal is not None:
        if not _is_public(literal) and not allowed.has(literal):
            raise Forbidden("leads to a network that is not public")
    elif address.host not in allowed.hosts and f".{address.host}".endswith(tuple(f".{name}" for name in _NEVER_PUBLIC)):
        raise Forbidden("has a host that is not public")


def _check_port(address: Address, allowed: Allowed) -> None:
    """Well-known ports belong to services that are no web servers, and some of them do as a request's lines tell them."""
    literal = _literal(address.host)
    opened = address.host in allowed.hosts or (literal is not None and allowed.has(literal))
    usual = address.port in _PORTS.values() or 1024 <= address.port <= 65535
    if not usual and not (opened and 0 < address.port < 1024):
        raise Forbidden("must have the port 80, 443, or one from 1024 to 65535")


def _is_public(address: IP) -> bool:
    if isinstance(address, IPv4Address):
        special = any(address in network for network in _V4)
    else:
        special = address not in _V6_GLOBAL or any(address in network for network in _V6)
    return not special and address.is_global and not address.is_multicast
