"""One call of a webhook: a POST to the address that was just checked, once, within a fixed time.

The connection goes to the checked address and nowhere else; certificate, SNI and Host header stay the name's. Redirects
are not followed, proxies of the environment not used, and nothing of an answer is read but its status and Retry-After.
It decides nothing about another try.
"""

import asyncio
import email.utils
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC

import httpx

from agent import addresses, pinning
from agent.addresses import Address, Allowed, Forbidden, Resolve, Unresolved
from background.limits import SECOND
from background.webhooks import Webhook
from web import signatures

CALL_S = 10.0
CONNECT_S = 4.0
RETRY_AFTER_MAX_S = 24 * 3600.0
MEDIA_TYPE = "application/a2a+json"


class Undelivered(Exception):
    """The call did not arrive; `str()` says why, without address, credentials or anything that was answered."""

    def __init__(self, why: str, retry_after_s: float = 0.0) -> None:
        super().__init__(why)
        self.retry_after_s = retry_after_s


@dataclass(frozen=True)
class Courier:
    """Calls webhooks. `now` is the time in microseconds; the first of `keys` signs, none of them means no signature."""

    allowed: Allowed
    resolve: Resolve
    now: Callable[[], int]
    tls: ssl.SSLContext
    keys: Sequence[str] = ()
    user_agent: str = "Outrider"

    async def post(self, webhook: Webhook, body: bytes, delivery: str, attempt: int) -> None:
        """Returns once the receiver has answered with success. Raises `Undelivered`."""
        try:
            async with asyncio.timeout(CALL_S):
                address = addresses.read(webhook.url, self.allowed)
                places = await addresses.places(address, self.allowed, self.resolve)
                answer = await self._first_of(places, address, body, self._headers(webhook, body, delivery, attempt))
        except TimeoutError:
            raise Undelivered(f"there was no answer within {CALL_S:g} s") from None
        except Forbidden as forbidden:
            raise Undelivered(f"the address may not be called: it {forbidden}") from None
        except Unresolved:
            raise Undelivered("the host's name leads nowhere") from None
        if not answer.is_success:
            why = "a redirect, which is not followed" if answer.is_redirect else f"HTTP {answer.status_code}"
            raise Undelivered(f"the answer was {why}", self._retry_after(answer))

    def _headers(self, webhook: Webhook, body: bytes, delivery: str, attempt: int) -> dict[str, str]:
        headers = {
            "Connection": "close",
            "Content-Type": MEDIA_TYPE,
            "User-Agent": self.user_agent,
            "X-Outrider-Delivery": delivery,
            "X-Outrider-Attempt": str(attempt),
        }
        if webhook.token:
            headers["X-A2A-Notification-Token"] = webhook.token
        if webhook.scheme and webhook.credentials:
            headers["Authorization"] = f"{webhook.scheme} {webhook.credentials}"
        if self.keys:
            headers[signatures.HEADER] = signatures.sign(self.keys[0], body, self.now() // SECOND)
        return headers

    async def _first_of(
        self, places: list[str], address: Address, body: bytes, headers: dict[str, str]
    ) -> httpx.Response:
        """The next place is tried only where no connection came about, so that nothing is sent twice."""
        for place in places:
            try:
                return await self._post(place, address, body, headers)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue
            except httpx.TimeoutException:
                raise TimeoutError from None
            except httpx.HTTPError as error:
                raise Undelivered(f"the connection failed ({type(error).__name__})") from None
        raise Undelivered("no connection came about")

    async def _post(self, place: str, address: Address, body: bytes, headers: dict[str, str]) -> httpx.Response:
        timeout = httpx.Timeout(CALL_S, connect=CONNECT_S)
        async with pinning.opened("POST", address, place, self.tls, timeout, headers, body) as answer:
            return answer

    def _retry_after(self, answer: httpx.Response) -> float:
        """Seconds; 0 where the receiver does not say, or in words that nobody understands."""
        given = answer.headers.get("retry-after", "").strip()
        if given.isascii() and given.isdigit():
            seconds = float(given[:12])
        else:
            try:
                at = email.utils.parsedate_to_datetime(given)
            except (ValueError, TypeError):
                return 0.0
            seconds = at.replace(tzinfo=at.tzinfo or UTC).timestamp() - self.now() / SECOND
        return min(max(0.0, seconds), RETRY_AFTER_MAX_S)
