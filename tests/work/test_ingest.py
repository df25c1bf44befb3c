"""F145: `knowledge_ingest`, by whoever asks: what is taken in, from where, how far it is to be believed, and what is refused."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support.receiver import Answer, Receiver
from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel
from tests.support.server import Server
from tests.work import pages
from tests.work.conftest import ended, hired
from web import cli


@pytest.fixture
def site() -> Iterator[Receiver]:
    """A web server at an address that the operator has opened."""
    with Receiver(host="127.0.0.2") as site:
        site.otherwise = pages.html()
        yield site


def ingest(server: Server, session: str, source: str, **more: Any) -> dict[str, Any]:
    """The job that has taken it in."""
    return ended(server, server.post("/api/knowledge/ingest", session=session, source=source, **more)["id"])


def found(server: Server, words: str, source: str) -> list[dict[str, Any]]:
    return [hit for hit in server.get("/api/knowledge/search", q=words)["hits"] if hit["source"] == source]


def test_a_page_is_taken_in_by_a_job_as_external_under_its_address(
    server: Server, session: str, site: Receiver
) -> None:
    job = ingest(server, session, f"{site.url}#part", key="owls")
    assert (job["status"], job["deterministic"], job["subagent_type"]) == ("completed", True, "knowledge_ingest")
    assert job["report"] == f"1 document taken, 1 chunk: {site.url}"
    (hit,) = found(server, "owls hunt at night", site.url)
    assert (hit["heading"], hit["trust"], hit["source_type"]) == ("Owls & mice", 1, "document")
    (listed,) = [d for d in server.get("/api/knowledge/documents")["documents"] if d["name"] == site.url]
    assert listed["trust"] == 1
    again = server.post("/api/knowledge/ingest", session=session, source=f"{site.url}#part", key="owls")
    assert again["id"] == job["id"]


def test_a_page_that_leads_to_this_machine_is_not_taken_in_and_the_job_says_why(
    server: Server, session: str, site: Receiver
) -> None:
    site.otherwise = Answer(302, {"Location": f"http://127.0.0.1:{server.port}/api/sessions"})
    job = ingest(server, session, site.url)
    assert job["error"]["reason"] == "NO_REPORT"
    assert job["error"]["message"].endswith("the address may not be read: it leads to a network that is not public.")
    assert found(server, "sessions", site.url) == []


@pytest.fixture
def folder(server: Server) -> Path:
    """A folder that the operator has opened, with all kinds of files, and links that lead out of it."""
    opened = server.data.parent / "opened"
    (opened / "deep").mkdir(parents=True, exist_ok=True)
    (opened / "owls.md").write_text("# Tawny owls\n\nThey hoot in the wood.")
    (opened / "deep" / "page.html").write_text("<title>Snowy</title><p>Snowy owls are white.")
    (opened / "deep" / "paper.pdf").write_bytes(pages.pdf("Eagle owls are large."))
    (opened / "empty.txt").write_text(" ")
    outside = server.data.parent / "outside.md"
    outside.write_text("a secret of the machine")
    if not (opened / "link.md").is_symlink():
        (opened / "link.md").symlink_to(outside)
    return opened


def test_a_folder_that_is_opened_is_taken_in_file_by_file_and_no_link_leads_out_of_it(
    server: Server, session: str, folder: Path
) -> None:
    job = ingest(server, session, str(folder))
    assert job["report"].splitlines()[0] == "3 documents taken, 2 left out."
    assert f"- {folder}/empty.txt: left out, there is no text in it" in job["report"]
    assert f"- {folder}/link.md: left out, it leads out of the folders that may be read" in job["report"]
    for words, name in (("hoot wood", "owls.md"), ("white", "deep/page.html"), ("eagle large", "deep/paper.pdf")):
        (hit,) = found(server, words, str(folder / name))
        assert hit["trust"] == 3
    assert "outside.md" not in str(server.get("/api/knowledge/documents", limit=200))


@pytest.mark.parametrize("source", ["/etc/hostname", "{folder}/../outside.md", "owls.md", "file:///etc/hostname"])
def test_no_other_file_is_read_whoever_asks(server: Server, session: str, folder: Path, source: str) -> None:
    source = source.format(folder=folder)
    answer = server.http.post("/api/knowledge/ingest", json={"session": session, "source": source})
    assert answer.status_code == 400 and "OUTRIDER_INGEST_FOLDERS" in answer.json()["error"]["message"]
    assert server.jobs(session) == []
    job = ended(server, hired(server, session, "knowledge_ingest", source=source))
    assert job["status"] == "failed" and "OUTRIDER_INGEST_FOLDERS" in job["error"]["message"]


def test_from_an_incognito_session_nothing_is_taken_in(server: Server, site: Receiver) -> None:
    """F007."""
    session = server.post("/api/sessions", incognito=True)["id"]
    asked = {"session": session, "source": site.url}
    assert server.http.post("/api/knowledge/ingest", json=asked).status_code == 409
    job = ended(server, hired(server, session, "knowledge_ingest", source=site.url))
    assert job["status"] == "failed" and site.calls == []


def test_a_file_can_be_handed_over_in_place_of_its_text(server: Server) -> None:
    def add(name: str, content: bytes) -> Any:
        body = {"name": name, "content": base64.b64encode(content).decode(), "media_type": "application/pdf"}
        return server.http.post("/api/knowledge/documents", json=body)

    assert add("pygmy.pdf", pages.pdf("Pygmy owls are small.")).status_code == 201
    (hit,) = found(server, "pygmy small", "pygmy.pdf")
    assert (hit["heading"], hit["trust"]) == ("About Pygmy owls are small.", 3)
    refused = add("locked.pdf", pages.pdf("x", "password"))
    assert refused.status_code == 422 and "a PDF with a password" in refused.json()["error"]["message"]


def test_a_model_whose_profile_names_the_tool_takes_in_and_is_told(
    server: Server, model: ScriptedModel, session: str, site: Receiver, folder: Path
) -> None:
    page = {"name": "knowledge_ingest", "arguments": {"source": site.url}}
    other = {"name": "knowledge_ingest", "arguments": {"source": "/etc/hostname"}}
    model.rules([Rule(last_user="^take it in", tool_calls=[page, other])])
    server.ask(session, "take it in", skill="librarian")
    server.wait(lambda: [job["notified"] for job in server.jobs(session)] == [True])
    results = next(asked.text for asked in model.requests() if f"Taking in {site.url} (sent out)" in asked.text)
    assert "OUTRIDER_INGEST_FOLDERS" in results and "Nothing was started." in results
    assert any(f"1 document taken, 1 chunk: {site.url}" in asked.text for asked in model.requests())


def test_outrider_ingest_takes_a_page_by_a_job_and_files_by_itself(
    server: Server, site: Receiver, tmp_path: Path
) -> None:
    (tmp_path / "scops.pdf").write_bytes(pages.pdf("Scops owls whistle."))
    run = CliRunner().invoke(cli.app, ["ingest", site.url, str(tmp_path), "--url", str(server.http.base_url)])
    assert (run.exit_code, run.stdout) == (0, "2 documents taken, 2 chunks; 0 skipped, 0 failed\n")
    (hit,) = found(server, "whistle", str(tmp_path / "scops.pdf"))
    assert hit["trust"] == 3
    site.otherwise = 404
    run = CliRunner().invoke(cli.app, ["ingest", site.url, "--url", str(server.http.base_url)])
    assert run.exit_code == 1 and "The page was not taken in: the answer was HTTP 404." in run.stderr
    assert {job["session"] for job in server.jobs("ingest")} == {"ingest"}
