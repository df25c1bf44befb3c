"""F145, F085's rules for pages: what is not public is read neither at the look-up nor at the connection, nor by a redirect."""

import asyncio
import ssl
from typing import Any

import pytest

from agent import fetching
from agent.addresses import Allowed
from agent.fetching import Fetched, Fetcher, Unfetched
from tests.agent import hostile_addresses as hostile
from tests.support.receiver import Answer, LyingResolver, Receiver
from tests.work import pages

PLAIN = ssl.create_default_context()
OPEN = Allowed.of(["127.0.0.2"])


def fetched(url: str, allowed: Allowed = OPEN, resolve: Any = None) -> Fetched:
    return asyncio.run(Fetcher(allowed, resolve or LyingResolver({}), PLAIN).fetch(url))


def refused(url: str, **given: Any) -> str:
    with pytest.raises(Unfetched) as why:
        fetched(url, **given)
    return str(why.value)


def test_a_page_is_read_with_its_type_and_where_it_was() -> None:
    with Receiver(host="127.0.0.2") as site:
        site.answers = [Answer(302, {"Location": "/über?q=1#part"}), pages.html()]
        found = fetched(f"{site.url}#fragment")
    assert (found.media_type, found.charset) == ("text/html", "utf-8")
    assert found.url.endswith("/%C3%BCber?q=1") and found.body == pages.HTML.encode()
    assert [call.path for call in site.calls] == ["/hook", "/%C3%BCber?q=1"]
    assert not {"cookie", "authorization", "referer"} & site.calls[1].headers.keys()


@pytest.mark.parametrize("url", [*hostile.LOOPBACK, *hostile.SPELLINGS, "file:///etc/passwd", "http://[::1", "x"])
def test_no_address_that_is_not_public_is_read(url: str) -> None:
    assert refused(url, allowed=Allowed()).startswith("the address may not be read: it ")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_to_what_is_not_public_is_not_followed(status: int) -> None:
    with Receiver() as inner, Receiver(host="127.0.0.2") as site:
        site.otherwise = Answer(status, {"Location": inner.url})
        assert refused(site.url) == "the address may not be read: it leads to a network that is not public"
    assert inner.connections == 0


def test_a_name_that_leads_elsewhere_the_second_time_is_connected_to_where_it_was_checked() -> None:
    with Receiver(host="127.0.0.2") as site:
        site.otherwise = pages.html()
        resolve = LyingResolver({"owls.example": [["127.0.0.2"], ["10.0.0.1"]]})
        assert fetched(f"http://owls.example:{site.port}/", resolve=resolve).url == f"http://owls.example:{site.port}/"
        assert resolve.asked == ["owls.example"]
        assert "not public" in refused(f"http://owls.example:{site.port}/", resolve=resolve)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Answer(404), "the answer was HTTP 404"),
        (Answer(304), "the answer was HTTP 304"),
        (Answer(302, {"Location": "/again"}), "it redirects more than 5 times"),
        (Answer(cut=True), "the connection failed"),
        (pages.html("x" * 2000), "it is larger than"),
        (pages.packed("x" * 2000), "it is larger than"),
        (pages.html("no gzip", **{"Content-Encoding": "gzip"}), "the answer cannot be unpacked"),
        (pages.html("br", **{"Content-Encoding": "br"}), "the answer is packed in a way that was not asked for"),
    ],
)
def test_what_is_no_page_is_said_why_without_its_address(
    answer: Answer, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "MAX_BYTES", 1000)
    with Receiver(host="127.0.0.2") as site:
        site.otherwise = answer
        told = refused(site.url)
    assert told.startswith(why) and "127.0.0.2" not in told
