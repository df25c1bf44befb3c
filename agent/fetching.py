"""Reading one page of the web: a GET to an address that was just checked, and to each that it redirects to, checked alike.

What is not public is refused, unless the operator's list names it, at the look-up and at the connection: it goes to the
address that was checked. Time, size and redirects have a bound. It makes no sense of what it reads; `converting.py` does.
"""

import asyncio
import ssl
import zlib
from dataclasses import dataclass, field
from email.message import Message
from urllib.parse import quote, urldefrag, urljoin

import httpx

from agent import addresses, pinning
from agent.addresses import Address, Allowed, Forbidden, Resolve, Unresolved

FETCH_S = 30.0  # for all of it, redirects too
CONNECT_S = 5.0
MAX_BYTES = 10 * 1024 * 1024  # also of what comes out of a compressed answer
MAX_REDIRECTS = 5
ACCEPT = "text/html, text/markdown, text/plain, application/pdf;q=0.9, */*;q=0.5"
_KEPT = "!#$%&'()*+,/:;=?@[]~"  # what an address may hold beside letters and digits


class Unfetched(Exception):
    """The page could not be read; `str()` says why, without the address and without anything that was answered."""


@dataclass(frozen=True)
class Fetched:
    """What was answered. `url` is where it was at last, `media_type` lower case and without parameters."""

    url: str
    media_type: str
    charset: str | None
    body: bytes = field(repr=False)


@dataclass(frozen=True)
class Fetcher:
    """Reads pages. `allowed` is what the operator has opened beside what is public."""

    allowed: Allowed
    resolve: Resolve
    tls: ssl.SSLContext
    user_agent: str = "Outrider"

    async def fetch(self, url: str) -> Fetched:
        """The page there. Raises `Unfetched`."""
        try:
            async with asyncio.timeout(FETCH_S):
                return await self._follow(url)
        except TimeoutError:
            raise Unfetched(f"it did not come within {FETCH_S:g} s") from None
        except Forbidden as forbidden:
            raise Unfetched(f"the address may not be read: it {forbidden}") from None
        except Unresolved:
            raise Unfetched("the host's name leads nowhere") from None

    async def _follow(self, url: str) -> Fetched:
        for _ in range(MAX_REDIRECTS + 1):
            address = addresses.read(_written(url), self.allowed)
            found = await self._first_of(await addresses.places(address, self.allowed, self.resolve), address)
            if isinstance(found, Fetched):
                return found
            url = _beside(address.url, found)
        raise Unfetched(f"it redirects more than {MAX_REDIRECTS} times")

    async def _first_of(self, places: list[str], address: Address) -> Fetched | str:
        """The page, or where it redirects to; the next place is tried where no connection came about."""
        for place in places:
            try:
                return await self._read(place, address)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue
            except httpx.TimeoutException:
                raise TimeoutError from None
            except httpx.HTTPError as error:
                raise Unfetched(f"the connection failed ({type(error).__name__})") from None
        raise Unfetched("no connection came about")

    async def _read(self, place: str, address: Address) -> Fetched | str:
        headers = {
            "Accept": ACCEPT,
            "Accept-Encoding": "gzip",
            "Connection": "close",
            "User-Agent": self.user_agent,
        }
        timeout = httpx.Timeout(FETCH_S, connect=CONNECT_S)
        async with pinning.opened("GET", address, place, self.tls, timeout, headers) as answer:
            if answer.has_redirect_location:
                return answer.headers["location"]
            if not answer.is_success:
                raise Unfetched(f"the answer was HTTP {answer.status_code}")
            media_type, charset = _type_of(answer.headers.get("content-type", ""))
            return Fetched(address.url, media_type, charset, await _body(answer))


def _written(url: str) -> str:
    """The address as it goes over the wire: without a fragment, and what is no ASCII percent-encoded."""
    return quote(_beside("", url.strip()), safe=_KEPT)


def _beside(base: str, given: str) -> str:
    """What an address means on the page `base`, without its fragment."""
    try:
        return urldefrag(urljoin(base, given)).url
    except ValueError:
        raise Forbidden("must be an http or https address") from None


def _type_of(header: str) -> tuple[str, str | None]:
    said = Message()
    said["content-type"] = header or "application/octet-stream"
    return said.get_content_type(), said.get_content_charset()


async def _body(answer: httpx.Response) -> bytes:
    """As it came, so that nothing is unpacked beyond the bound."""
    read = bytearray()
    async for piece in answer.aiter_raw():
        read += piece
        _require_size(len(read))
    packed = answer.headers.get("content-encoding", "identity").strip().lower()
    if packed in ("", "identity"):
        return bytes(read)
    if packed not in ("gzip", "x-gzip"):
        raise Unfetched("the answer is packed in a way that was not asked for")
    return await asyncio.to_thread(_unpacked, bytes(read))


def _unpacked(body: bytes) -> bytes:
    unpacking = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        unpacked = unpacking.decompress(body, MAX_BYTES + 1)
    except zlib.error:
        raise Unfetched("the answer cannot be unpacked") from None
    _require_size(len(unpacked))
    if not unpacking.eof:
        raise Unfetched("the answer broke off")
    return unpacked


def _require_size(size: int) -> None:
    if size > MAX_BYTES:
        raise Unfetched(f"it is larger than {MAX_BYTES // 1024 // 1024} MiB")
