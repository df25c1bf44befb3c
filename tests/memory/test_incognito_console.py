"""Incognito in a real browser: begun beside a new chat, marked quietly, its answers come as they are said, its reports when opened."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.support.console import Console
from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel
from tests.support.server import Server


@pytest.fixture(scope="module")
def server(shared_model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("quiet") / "data", env=shared_model.env) as running:
        yield running


@pytest.fixture
def console(page: Page, server: Server) -> Iterator[Console]:
    console = Console(page, server)
    yield console
    assert console.complaints == []


def test_an_incognito_chat_is_begun_spoken_in_and_known_by_its_mark(console: Console, model: ScriptedModel) -> None:
    """Its words come while they are said; elsewhere neither it nor its job is called by what was said."""
    model.rules(
        [
            Rule(last_user="^Go on$", text="Said piece by piece.", hang_after=8, resumes="on"),
            Rule(last_user="^Research$", text="Summary: found it."),
        ]
    )
    console.open()
    console.the("new-chat").click()
    expect(console.the("incognito")).to_be_hidden()
    console.the("new-incognito").click()
    expect(console.the("welcome-incognito")).to_be_visible()
    expect(console.the("welcome")).to_be_hidden()
    console.say("Go on")
    expect(console.the("preview")).to_contain_text("Said pie")
    model.open("on")
    expect(console.the("message-agent")).to_have_text("Said piece by piece.")
    expect(console.the("incognito")).to_be_visible()
    expect(console.the("title")).to_have_text("Incognito chat")
    (made,) = console.server.get("/api/sessions")["sessions"]
    assert made["incognito"] and made["title"] == ""

    console.server.spawn(made["id"], "Research", "Private matters")
    card = console.job("Private matters")
    expect(card).to_contain_text("Incognito: it is shown where it is opened.")
    card.get_by_test_id("open-report").click()
    expect(console.the("viewer-body")).to_contain_text("found it")
    console.page.keyboard.press("Escape")

    console.the("new-chat").click()
    console.say("An ordinary chat")
    expect(console.the("message-agent")).to_have_text("ok")
    expect(console.the("incognito")).to_be_hidden()
    elsewhere = console.second_tab().open()
    elsewhere.the("jobs-pill").click()
    expect(elsewhere.the("job-row")).to_contain_text("Incognito job")
    expect(elsewhere.the("session", "Incognito chat")).to_contain_text("Incognito")
    assert elsewhere.complaints == []
