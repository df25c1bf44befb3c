"""Theme I: what was reported is found again, once, by whatever words people type, and a broken store says that it is broken."""

from collections.abc import Callable

import pytest

from knowledge.backend import StoreFailed
from tests.cases.stories import assert_told_once, briefing, calling, when_quiet, when_told, worker, worker_requests
from tests.support.inside import Inside
from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel
from tests.support.server import Server

MakeInside = Callable[..., Inside]
REPORT = "Summary: multi-agent POL-358 foo-bar \"baz @nasa don't 20.04 status: done C++ 50% grammar::fa Downloads/transcripts."
IN_THE_TEXT = [
    'foo-bar "baz',
    "multi-agent",
    "POL-358",
    "@nasa",
    "don't",
    "20.04",
    "status: done",
    "C++",
    "50%",
    "grammar::fa",
    "Downloads/transcripts",
    "-foo",
]
ODD = [
    "retry OR",
    "AND",
    "NOT x",
    "NEAR(",
    "*",
    '"',
    "(",
    "a,b",
    "why?",
    "{a b}:x",
    "col:x",
    "x*",
    "^x",
    "😀",
    "\0",
    "x" * 10_000,
    "word " * 500,
]


@pytest.fixture(scope="module")
def reported(server: Server, model: ScriptedModel) -> str:
    """The id of a job whose report stands in the store, for the session `s69`."""
    model.rules([worker("s69 reports", REPORT), briefing()])
    server.ask("s69", "hello")
    sent = server.spawn("s69", "s69 reports")["id"]
    when_told(server, sent)
    return sent


@pytest.mark.parametrize("query", IN_THE_TEXT)
def test_S69_words_that_are_in_a_report_find_it_whatever_signs_are_in_them(
    server: Server, reported: str, query: str
) -> None:
    found = server.get("/api/knowledge/search", q=query, session="s69")["hits"]
    assert [hit["job_id"] for hit in found] == [reported]


@pytest.mark.parametrize("query", ODD, ids=lambda query: repr(query[:12]))
def test_S69_any_text_is_a_search_and_none_is_a_syntax_error(server: Server, reported: str, query: str) -> None:
    answer = server.http.get("/api/knowledge/search", params={"q": query})
    assert answer.status_code == 200 and isinstance(answer.json()["hits"], list)


@pytest.mark.parametrize("query", ["", " \t ", "x" * 10_001], ids=["nothing", "blanks", "too long"])
def test_S69_a_query_that_cannot_be_is_refused_and_the_field_named(server: Server, query: str) -> None:
    answer = server.http.get("/api/knowledge/search", params={"q": query})
    assert answer.status_code == 400 and answer.json()["error"]["details"] == {"field": "q"}


def test_S69_the_model_finds_by_the_same_words_and_is_never_told_a_syntax_error(
    server: Server, model: ScriptedModel, reported: str
) -> None:
    queries = IN_THE_TEXT + [query for query in ODD if "\0" not in query]
    calls = [calling("memory_recall", query=query, limit=5) for query in queries]
    model.rules([Rule(last_user="^s69 recall$", tool_calls=calls), Rule(anywhere="s69 recall", text="Searched.")])
    assert server.ask("s69-recall", "s69 recall") == "Searched."
    results = [message["content"] for message in model.requests()[-1].messages if message["role"] == "tool"]
    assert len(results) == len(queries)
    for query, result in zip(queries, results, strict=True):
        if query in IN_THE_TEXT:
            assert reported in result, query
        assert result.startswith(("Reference material", "Nothing found")), result


def test_a_model_may_ask_for_documents_or_for_reports_alone(
    server: Server, model: ScriptedModel, reported: str
) -> None:
    """So that earlier reports do not crowd out what they were made of."""
    calls = [calling("memory_recall", query="POL-358", only=only) for only in ("reports", "documents", "rumours")]
    model.rules([Rule(last_user="^only some$", tool_calls=calls), Rule(anywhere="only some", text="Searched.")])
    assert server.ask("only-some", "only some") == "Searched."
    reports, documents, rumours = [one["content"] for one in model.requests()[-1].messages if one["role"] == "tool"]
    assert reported in reports and documents.startswith("Nothing found")
    assert rumours == "`only` is one of documents, reports, or left out."


def test_S69_a_store_that_fails_is_an_error_and_never_nothing_found(inside: MakeInside, model: ScriptedModel) -> None:
    outrider = inside()

    async def broken() -> None:
        raise StoreFailed("the disk image is malformed")

    outrider.outrider.store.before_search = broken
    answer = outrider.http.get("/api/knowledge/search", params={"q": "anything"})
    assert answer.status_code == 503 and answer.json()["error"]["code"] == "KNOWLEDGE_UNAVAILABLE"
    assert "malformed" not in answer.text and answer.headers["retry-after"]
    model.rules(
        [
            Rule(last_user="^s69 broken$", tool_calls=[calling("memory_recall", query="anything")]),
            Rule(last_tool="(.*)", text="{1}"),
        ]
    )
    told = outrider.ask("s69b", "s69 broken")
    assert "could not be searched" in told and "does not mean that it has nothing" in told


def test_S73_one_job_is_one_document_of_its_origin_however_often_its_end_is_handled(
    inside: MakeInside, model: ScriptedModel
) -> None:
    """A crash between the index and its recording, and then the report's run handled once more."""
    outrider = inside()
    store, crashed = outrider.outrider.store, []

    async def crash() -> None:
        store.after_put = None
        crashed.append(True)
        raise RuntimeError("the worker is gone")

    store.after_put = crash
    model.rules([worker("s73 reports", "A unique word: quokka."), briefing()])
    outrider.ask("s73", "hello")
    sent = outrider.spawn("s73", "s73 reports", "The quokka")["id"]
    outrider.pass_pause("report")
    when_told(outrider, sent)
    outrider.queue_again("report")
    when_quiet(outrider, "s73")

    assert crashed
    (document,) = outrider.call(store.documents("local", source="s73")).documents
    assert (document.source, document.source_type, document.job_id) == ("s73", "background_report", sent)
    assert document.trust == 2 and document.superseded_at is None
    assert "The quokka" in document.heading and sent in document.heading
    (hit,) = outrider.get("/api/knowledge/search", q="quokka")["hits"]
    assert (hit["source"], hit["source_type"], hit["job_id"], hit["trust"]) == ("s73", "background_report", sent, 2)
    assert len(worker_requests(model, "s73 reports")) == 1
    assert_told_once(outrider, "s73", sent)
