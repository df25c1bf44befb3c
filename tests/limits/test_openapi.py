"""The OpenAPI document of `/api` names every route, and whatever a tool makes of it is answered in the API's form."""

import asyncio
import json
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.generation import GenerationMode
from starlette.routing import Route

from tests.limits.telling import assert_tells_nothing
from tests.support.server import Server
from web.app import build, routes
from web.openapi import TABLE, document
from web.setting_fields import Settings

CALLED = [(row.method, row.path) for row in TABLE]
SESSION = "s"


def test_f180_the_document_names_every_route_and_method_of_the_api_and_no_other(tmp_path: Path) -> None:
    async def served() -> set[tuple[str, str]]:
        async with build(Settings(data=tmp_path), works=False).running() as outrider:
            there = [route for route in routes(outrider.house) if isinstance(route, Route)]
            return {
                (verb, route.path)
                for route in there
                if route.path.startswith("/api/")
                for verb in (route.methods or set()) - {"HEAD"}
            }

    assert set(CALLED) == asyncio.run(served())
    assert len(set(CALLED)) == len(CALLED)


def test_the_document_is_served_with_the_address_of_its_server(server: Server) -> None:
    assert server.get("/api/openapi.json")["servers"] == [{"url": server.url}]


@cache
def operations(session: str, job: str) -> dict[tuple[str, str], Any]:
    """What schemathesis reads of the document; each id in a path may also be one that there is."""
    described = document("http://127.0.0.1", "1")
    for operation in (each for path in described["paths"].values() for each in path.values()):
        for parameter in operation["parameters"]:
            if parameter["in"] == "path":
                parameter["schema"] = {"anyOf": [{"enum": [session, job]}, {"type": "string", "minLength": 1}]}
    _shorten(described)
    found = schemathesis.openapi.from_dict(described).get_all_operations()
    return {(each.method.upper(), each.path): each for each in (_read(result) for result in found)}


def _read(result: Any) -> Any:
    """An operation; schemathesis says why it cannot read one."""
    return result.ok()


def _shorten(schema: Any) -> None:
    """Long texts take the generator long, and are tried by hand elsewhere."""
    if isinstance(schema, dict) and schema.get("maxLength", 0) > 300:
        schema["maxLength"] = 300
    for inner in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        _shorten(inner)


@pytest.fixture(scope="module")
def job(server: Server) -> str:
    server.post("/api/sessions", id=SESSION)
    return server.spawn(SESSION, "Look into owls.")["id"]


def asked(server: Server, case: Any) -> httpx.Response:
    """The answer to a case; of a stream no more than its head."""
    given = case.as_transport_kwargs(base_url=server.url)
    content = json.dumps(given["json"]).encode() if "json" in given else given.get("data")
    content = content if isinstance(content, bytes) else str(content or "").encode("utf-8", "replace")
    params = {name: str(value).encode("utf-8", "replace") for name, value in (given.get("params") or {}).items()}
    with server.http.stream(given["method"], given["url"], params=params, content=content) as answer:
        if answer.headers.get("content-type", "").startswith("text/event-stream"):
            return httpx.Response(answer.status_code)
        answer.read()
    return answer


def tried(server: Server, called: tuple[str, str], job: str, examples: int) -> None:
    """Each route with as many examples that fit the document, and as many that do not."""
    operation = operations(SESSION, job)[called]
    both = st.one_of([operation.as_strategy(generation_mode=mode) for mode in GenerationMode])

    @settings(
        max_examples=examples,
        phases=[Phase.generate],  # a failure is shown as it was found
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )
    @given(both)
    def each(case: Any) -> None:
        assert_tells_nothing(asked(server, case))

    each()


@pytest.mark.parametrize("called", CALLED, ids=" ".join)
def test_f180_what_is_made_of_the_document_is_answered_without_a_5xx(
    server: Server, called: tuple[str, str], job: str
) -> None:
    tried(server, called, job, 4)


@pytest.mark.slow
@pytest.mark.parametrize("called", CALLED, ids=" ".join)
def test_f180_much_that_is_made_of_the_document_is_answered_without_a_5xx(
    server: Server, called: tuple[str, str], job: str
) -> None:
    tried(server, called, job, 60)
