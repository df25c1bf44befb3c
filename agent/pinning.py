"""A request to one address of those that were checked, and to nowhere else, whatever the name leads to by now.

Certificate, SNI and Host header stay the name's. Redirects are not followed and proxies of the environment not used.
It checks nothing itself: see `addresses.py`.
"""

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import httpx

from agent.addresses import Address


@asynccontextmanager
async def opened(
    method: str,
    address: Address,
    place: str,
    tls: ssl.SSLContext,
    timeout: httpx.Timeout,
    headers: Mapping[str, str],
    body: bytes | None = None,
) -> AsyncIterator[httpx.Response]:
    """The answer, of which nothing has been read but its head. Raises `httpx.HTTPError`."""
    # All that was checked is set, so that nothing depends on two readers of addresses agreeing.
    pinned = httpx.URL(address.url).copy_with(scheme=address.scheme, host=place.partition("%")[0], port=address.port)
    async with (
        httpx.AsyncClient(verify=tls, trust_env=False, follow_redirects=False, timeout=timeout) as client,
        client.stream(
            method,
            pinned,
            content=body,
            headers={"Host": address.authority, **headers},
            extensions={"sni_hostname": address.host},
        ) as answer,
    ):
        yield answer
