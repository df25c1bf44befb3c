"""The console's form that adds to the knowledge store: files are handed over, a page is read by a job of the chat."""

from playwright.sync_api import Page, expect

from tests.support.console import Console
from tests.support.receiver import Receiver
from tests.support.server import Server
from tests.work import pages


def test_files_and_a_page_are_added_and_what_cannot_be_is_named(page: Page, server: Server) -> None:
    console = Console(page, server).open()
    console.the("add-knowledge").click()
    files = {"little.pdf": pages.pdf("Little owls nod."), "locked.pdf": pages.pdf("x", "password")}
    console.the("adding-files").set_input_files(
        [{"name": name, "mimeType": "application/pdf", "buffer": body} for name, body in files.items()]
    )
    console.the("adding-go").click()
    expect(console.the("adding-problem")).to_have_text(
        "locked.pdf: The file was not taken in: it is a PDF with a password."
    )
    expect(console.the("toast", "Added: little.pdf")).to_be_visible()
    (hit, *_) = server.get("/api/knowledge/search", q="little nod")["hits"]
    assert (hit["source"], hit["trust"]) == ("little.pdf", 3)
    with Receiver(host="127.0.0.2") as site:
        site.otherwise = pages.html()
        console.the("adding-address").fill(site.url)
        console.the("adding-go").click()
        expect(console.the("adding")).to_be_hidden()
        expect(console.job(f"Taking in {site.url}")).to_contain_text("1 document taken, 1 chunk")
    assert [said for said in console.complaints if "422" not in said] == []
