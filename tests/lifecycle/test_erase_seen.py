"""What a person at the console sees of a report that was erased: its card and the reader say that it is gone."""

from playwright.sync_api import Page, expect

from tests.support.console import Console
from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel
from tests.support.server import Server


def test_card_and_reader_say_that_the_report_is_gone(
    page: Page, server: Server, model: ScriptedModel, session: str, word: str
) -> None:
    """F165: another tab still shows the card that was; its button leads to the reader's gone-state, with nothing to retry."""
    model.rules(
        [
            Rule(last_user="^look", text=f"Summary: {word}.\n\n" + f"All of {word}. " * 40),
            Rule(last_user="<task-notification>", text="Briefed."),
        ]
    )
    server.post("/api/sessions", id=session)
    job = server.spawn(session, "look", "the look")
    server.wait(lambda: server.job(job["id"])["notified"])
    console = Console(page, server).open(session)
    expect(console.job("the look")).to_contain_text(word)
    assert server.http.delete(f"/api/background/{job['id']}/report").status_code == 202
    expect(console.read("the look").get_by_test_id("erased")).to_have_text("The report of this job was erased.")
    expect(console.the("viewer-retry")).to_have_count(0)
    page.keyboard.press("Escape")
    console.open(session)
    card = console.job("the look")
    expect(card.get_by_test_id("erased")).to_have_text("The report was erased.")
    expect(card.get_by_test_id("open-report")).to_have_count(0)
    expect(page.locator("body")).not_to_contain_text(word)
    model.rules([Rule(last_user="^look", text=f"Again {word}. " * 40), Rule(last_user="<task-noti", text="Briefed.")])
    assert server.http.post(f"/api/background/{job['id']}/retry").status_code == 202
    expect(card).to_contain_text(f"Again {word}")
    expect(card.get_by_test_id("erased")).to_have_count(0)
    server.wait(lambda: server.job(job["id"])["notified"])
    server.http.delete(f"/api/sessions/{session}")
