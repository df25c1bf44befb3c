"""The console in front of a server with users, in a real browser: who is there, and what each of them is shown."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.access.people import Person, revoke, token_for
from tests.support.console import Console
from tests.support.server import Server


@pytest.fixture
def console(page: Page, guarded: Server) -> Iterator[Console]:
    """A tab of somebody who has not logged in."""
    console = Console(page, guarded)
    page.goto(guarded.url)
    yield console
    expected = ("401", "ERR_INCOMPLETE_CHUNKED")  # the browser's own words for being refused
    assert [said for said in console.complaints if not any(word in said for word in expected)] == []


def log_in(console: Console, token: str) -> None:
    console.the("token").fill(token)
    console.the("token").press("Enter")


def test_the_console_asks_who_is_there_and_shows_what_is_theirs(console: Console, guarded: Server) -> None:
    """A wrong token is told so; a right one opens the console, and logging out closes it for the next user."""
    erin, frank = (Person(guarded, token_for(guarded.data, name)) for name in ("erin", "frank"))
    erin.echoed("erins-chat", "what erin said")
    frank.echoed("franks-chat", "what frank said")
    expect(console.the("login")).to_be_visible()
    expect(console.page.get_by_label("Access token")).to_be_focused()
    console.page.keyboard.press("Escape")
    expect(console.the("login")).to_be_visible()
    log_in(console, f"{erin.token[:-3]}abc")
    expect(console.the("login-problem")).to_contain_text("does not hold")
    expect(console.the("token")).to_have_value("")

    log_in(console, erin.token)
    expect(console.the("login")).to_be_hidden()
    expect(console.the("user")).to_have_text("erin")
    expect(console.the("session")).to_have_count(1)
    expect(console.the("message-user")).to_have_text(["what erin said"])
    console.say("Is this mine?")
    expect(console.the("message-user").nth(1)).to_have_text("Is this mine?")
    expect(console.the("message-agent").nth(1)).to_be_visible()
    assert erin.token not in "".join(console.requests), "no token in any address"
    assert (
        console.page.evaluate("document.cookie + JSON.stringify({...localStorage, ...sessionStorage})").find("tok-") < 0
    )

    console.the("log-out").click()
    expect(console.the("login")).to_be_visible()
    log_in(console, frank.token)
    expect(console.the("user")).to_have_text("frank")
    expect(console.the("message-user")).to_have_text(["what frank said"])


def test_a_login_that_ends_while_the_console_is_open_is_asked_for_again(console: Console, guarded: Server) -> None:
    """What was typed is still there for the same user."""
    token = token_for(guarded.data, "grace")
    log_in(console, token)
    expect(console.the("user")).to_have_text("grace")
    console.the("composer").fill("half a thought")
    revoke(guarded.data, token)
    expect(console.the("login")).to_be_visible()
    log_in(console, token_for(guarded.data, "grace"))
    expect(console.the("login")).to_be_hidden()
    expect(console.the("composer")).to_have_value("half a thought")
    console.say("a whole one")
    expect(console.the("message-agent")).to_be_visible()


def test_without_tokens_nobody_is_asked(page: Page, tmp_path_factory: pytest.TempPathFactory) -> None:
    with Server(tmp_path_factory.mktemp("alone") / "data") as server:
        console = Console(page, server).open()
        expect(console.the("composer")).to_be_visible()
        expect(console.the("login")).to_be_hidden()
        expect(console.the("user")).to_be_hidden()
        assert console.complaints == []
