"""The knowledge store over HTTP: documents taken in, replaced and taken out by hand, and what a search finds of them."""

from typing import Any

import pytest

from tests.support.scripted import ScriptedModel
from tests.support.server import Server
from tests.web.shapes import HIT, Json, assert_shaped, error, told


def take_in(api: Server, name: str, text: str) -> Json:
    answer = api.http.post("/api/knowledge/documents", json={"name": name, "text": text})
    assert answer.status_code == 201, answer.text
    return answer.json()


def hits(api: Server, q: str, **narrow: Any) -> list[Json]:
    found = api.get("/api/knowledge/search", q=q, **narrow)
    assert found.keys() == {"hits"}
    return found["hits"]


def listed(api: Server, **page: Any) -> Json:
    return api.get("/api/knowledge/documents", **page)


def test_a_document_is_taken_in_found_replaced_by_its_name_and_taken_out(api: Server) -> None:
    assert take_in(api, "notes/animals.md", "# Animals\n\nThe quokka smiles.") == {
        "name": "notes/animals.md",
        "chunks": 1,
    }
    (hit,) = hits(api, "quokka smiles")
    assert_shaped(hit, HIT)
    assert (hit["source"], hit["source_type"], hit["trust"]) == ("notes/animals.md", "document", 3)
    assert hit["heading"] == "Animals", "its own, and not its path a second time"
    assert "quokka" in hit["snippet"] and hit["job_id"] is None and hit["score"] > 0
    take_in(api, "notes/animals.md", "The wombat digs.")
    assert hits(api, "quokka smiles") == []
    assert [hit["heading"] for hit in hits(api, "wombat digs")] == ["notes/animals.md"], "it has none of its own"
    (document,) = [each for each in listed(api)["documents"] if each["name"] == "notes/animals.md"]
    assert document["shared"] is False and document["chars"] == len("The wombat digs.")
    assert api.http.delete(f"/api/knowledge/documents/{document['id']}").status_code == 204
    assert hits(api, "wombat digs") == []
    assert told(api.http.delete(f"/api/knowledge/documents/{document['id']}")) == (404, "NOT_FOUND")


def test_documents_are_listed_the_newest_first_page_after_page(api: Server) -> None:
    for number in range(5):
        take_in(api, f"page-{number}.md", f"This is page number {number}.")
    names, cursor = [], ""
    while True:
        page = listed(api, limit=2, **({"cursor": cursor} if cursor else {}))
        assert page.keys() == {"documents", "next_cursor"} and len(page["documents"]) <= 2
        names += [document["name"] for document in page["documents"]]
        if not (cursor := page["next_cursor"]):
            break
    assert names[:5] == [f"page-{number}.md" for number in (4, 3, 2, 1, 0)] and len(names) == len(set(names))


def test_shared_documents_are_listed_and_stay(api: Server) -> None:
    """The project's own docs came at the first start; they belong to nobody who could take them out."""
    shared = [document for document in listed(api, limit=200)["documents"] if document["shared"]]
    assert shared
    assert told(api.http.delete(f"/api/knowledge/documents/{shared[0]['id']}")) == (404, "NOT_FOUND")


def test_a_search_is_narrowed_by_session_source_type_and_trust(api: Server, model: ScriptedModel) -> None:
    model.rules([{"last_user": "zebrafish", "text": "The zebrafish regrows its heart."}, {"text": "Told."}])
    sessions = [api.post("/api/sessions")["id"] for _ in range(2)]
    take_in(api, "fish.md", "A zebrafish is a fish with stripes.")
    jobs = [api.spawn(session, f"zebrafish {number}") for number, session in enumerate(sessions)]
    for job in jobs:
        api.wait(lambda job=job: api.job(job["id"])["indexed"])

    def sources(**narrow: Any) -> set[str]:
        found = hits(api, "zebrafish", **narrow)
        for hit in found:
            assert_shaped(hit, HIT)
        return {hit["job_id"] or hit["source"] for hit in found}

    one, other = (job["id"] for job in jobs)
    assert sources() == {one, other, "fish.md"}
    assert sources(session=sessions[0]) == {one}
    assert sources(source_type="background_report") == {one, other} and sources(source_type="document") == {"fish.md"}
    assert sources(min_trust=2) == {one, other, "fish.md"} and sources(min_trust=3) == {"fish.md"}
    assert len(hits(api, "zebrafish", limit=1)) == 1
    assert sources(session="nosuch") == set()


@pytest.mark.parametrize("q", ["", "   ", "\t\n", "x" * 10_001])
def test_s69_what_is_no_query_names_the_field(api: Server, q: str) -> None:
    answer = api.http.get("/api/knowledge/search", params={"q": q})
    assert told(answer) == (400, "INVALID") and error(answer)["details"] == {"field": "q"}


@pytest.mark.parametrize("q", ['foo-bar "baz', "AND", "NEAR(", "*", '"', "C++", "col:x", "x*", "😀", "\x00", "{a b}:x"])
def test_s69_peoples_words_are_never_a_syntax_error(api: Server, q: str) -> None:
    assert api.http.get("/api/knowledge/search", params={"q": q}).status_code == 200
