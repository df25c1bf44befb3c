"""Where a webhook may lead: nothing private in any spelling, nothing ambiguous, and what an operator has opened."""

import asyncio
from typing import Any

import pytest

from agent import addresses
from agent.addresses import Allowed, Forbidden
from tests.agent import hostile_addresses as hostile
from tests.support.receiver import LyingResolver

NOTHING = Allowed()
PUBLIC = LyingResolver({"hook.example": [["93.184.215.14"]], "six.example": [["2606:2800:21f:cb07::1"]]})


def check(url: str, allowed: Allowed = NOTHING, resolve: Any = PUBLIC) -> None:
    asyncio.run(addresses.check(url, allowed, resolve))


def reached(url: str, allowed: Allowed = NOTHING, resolve: Any = PUBLIC) -> list[str]:
    return asyncio.run(addresses.places(addresses.read(url, allowed), allowed, resolve))


def test_there_are_enough_of_them() -> None:
    """F085 asks for 60."""
    assert len(set(hostile.ALL)) == len(hostile.ALL) >= 60


@pytest.mark.parametrize("url", hostile.ALL)
def test_a_hostile_address_is_refused_before_anybody_is_asked_for_it(url: str) -> None:
    """F085, A88."""
    asked = LyingResolver({"hook.example": [["93.184.215.14"]]})
    with pytest.raises(Forbidden) as refused:
        check(url, resolve=asked)
    assert asked.asked == []
    assert not url.strip() or url not in str(refused.value), "what was sent is not repeated"


@pytest.mark.parametrize("name", hostile.NEEDS_NAMES)
def test_a_name_with_a_single_answer_that_is_not_public_is_refused(name: str) -> None:
    """F085: mixed answers too, since nobody knows which of them a connection would take."""
    with pytest.raises(Forbidden):
        check(f"https://{name}/", resolve=LyingResolver({name: [hostile.NEEDS_NAMES[name]]}))


@pytest.mark.parametrize(
    "url",
    [
        "https://hook.example/path?with=query",
        "http://hook.example",
        "HTTPS://HOOK.EXAMPLE:443/",
        "http://hook.example:8080/",
        "http://8.8.8.8/",
        "https://[2606:4700:4700::1111]:8443/",
        "https://six.example/",
    ],
)
def test_a_public_address_is_taken(url: str) -> None:
    check(url)
    assert reached(url)


def test_a_name_that_leads_nowhere_now_can_be_registered_but_not_called() -> None:
    """F082: a web process that is cut off from the network still takes what its workers reach."""
    nowhere = LyingResolver({})
    check("https://hook.example/", resolve=nowhere)
    with pytest.raises(addresses.Unresolved):
        reached("https://hook.example/", resolve=nowhere)


def test_a_name_server_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "RESOLVE_S", 0.01)

    async def silence(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    check("https://hook.example/", resolve=silence)


@pytest.mark.parametrize(
    ("opened", "url", "answer"),
    [
        ("127.0.0.1", "http://127.0.0.1:81/", []),
        ("10.1.0.0/16", "http://10.1.2.3/", []),
        ("::1", "http://[::1]:9000/", []),
        ("fd00::/8", "https://[fd00::5]/", []),
        ("hooks.intern", "http://hooks.intern:25/", ["10.9.9.9"]),
        ("HOOKS.Intern", "http://hooks.intern/", ["127.0.0.1", "fd00::1"]),
        ("localhost", "http://localhost/", ["127.0.0.1"]),
        ("10.0.0.0/8", "http://private.example/", ["10.0.0.7"]),
    ],
)
def test_an_operator_opens_a_host_or_a_network(opened: str, url: str, answer: list[str]) -> None:
    """F085, A88: and without it the same address is refused."""
    resolve = LyingResolver({name: [answer] for name in ("hooks.intern", "localhost", "private.example")})
    allowed = Allowed.of([opened])
    check(url, allowed, resolve)
    assert reached(url, allowed, resolve)
    with pytest.raises(Forbidden):
        check(url, NOTHING, resolve)


@pytest.mark.parametrize(
    "url",
    [
        "http://10.2.0.1/",
        "http://167837697/",
        "http://[::ffff:10.1.0.1]/",
        "http://other.intern.example/",
        "http://sub.hooks.intern/",
        "http://hooks.intern.example/",
        "ftp://hooks.intern/",
        "http://user@hooks.intern/",
        "http://hooks.intern./",
    ],
)
def test_what_an_operator_has_opened_opens_nothing_beside_it(url: str) -> None:
    allowed = Allowed.of(["10.1.0.0/16", "hooks.intern"])
    inside = {"sub.hooks.intern", "hooks.intern.example", "other.intern.example"}
    with pytest.raises(Forbidden):
        check(url, allowed, LyingResolver({name: [["10.9.9.9"]] for name in inside}))


@pytest.mark.parametrize(
    "entry", ["10.0.0.0/33", "10.1.2.3/8", "a b", "http://x", "*", "", "x:80", "300.1.1.1", "0x7f.1"]
)
def test_a_list_that_cannot_be_read_is_none(entry: str) -> None:
    with pytest.raises(ValueError):
        Allowed.of([entry])
