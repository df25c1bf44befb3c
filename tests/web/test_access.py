"""F174, F175: who may ask at all, and that nobody can say of themselves where a message comes from."""

import base64
import json
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from background.database import Database
from tests.support.clock import START, Clock
from web.a2a_errors import A2AError
from web.access import Access, caller_of
from web.caller import Caller
from web.callers import Callers
from web.claims import check_claims, is_reserved, is_session_id
from web.credentials import CREDENTIAL_HEADER, Credentials
from web.setting_fields import Settings

HERE = "127.0.0.1:8420"
NUDGE = Caller("alice", "background-resume", "chat-1", "bg-0123456789ab")
Ask = Callable[..., httpx.Response]


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with whom it was told the caller is; `nobody` where it was told none."""
    try:
        body = json.dumps(caller_of(scope)._asdict()).encode()
    except KeyError:
        body = b'"nobody"'
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


def guarded(settings: Settings, credentials: Credentials, clock: Clock) -> Access:
    """The app behind its door, where nobody has a token, so that no registry need be opened."""
    return Access(app, settings, Callers(Database(settings.database_path, clock), credentials, settings))


@pytest.fixture
def credentials() -> Credentials:
    return Credentials()


@pytest.fixture
def ask(
    run: Callable[[Coroutine[Any, Any, Any]], Any], tmp_path: Path, credentials: Credentials, clock: Clock
) -> Callable[..., httpx.Response]:
    """One request: `ask("/a2a", host=..., public_url=..., headers={...})`."""

    def ask(path: str = "/api/background", *, host: str = HERE, headers: Any = (), **settings: Any) -> httpx.Response:
        access = guarded(Settings(data=tmp_path, **settings), credentials, clock)
        sent = [("Host", host), *(headers.items() if isinstance(headers, dict) else headers)]

        async def story() -> httpx.Response:
            transport = httpx.ASGITransport(app=access)
            async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
                return await client.post(path, headers=sent)

        return run(story())

    return ask


def refusal(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


# --- where a request comes from -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["127.0.0.1", HERE, "127.0.0.1:1", "127.9.9.9", "localhost", "LOCALHOST:8420", "[::1]", "[::1]:8420"]
)
def test_this_machine_is_local_by_any_of_its_names(ask: Ask, host: str) -> None:
    assert ask(host=host).json() == Caller("local")._asdict()


BAD_HOSTS = [
    "evil.example",
    "evil.example:8420",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "evil.example#@127.0.0.1",
    "127.0.0.1@evil.example",
    "user@127.0.0.1",
    "127.0.0.1/evil.example",
    "127.0.0.1?",
    "127.0.0.1:x",
    "127.0.0.1:99999",
    "2130706433",
    "0x7f.1",
    "0.0.0.0",
    "192.168.0.1",
    "[::2]",
    "[::ffff:10.0.0.1]",
    "[::1",
    "::1",
    "",
    " ",
]


@pytest.mark.parametrize("host", BAD_HOSTS)
@pytest.mark.parametrize("path", ["/", "/api/background", "/a2a", "/healthz", "/.well-known/agent-card.json"])
def test_F175_another_name_is_a_web_page_elsewhere_that_rebinds_its_own(ask: Ask, host: str, path: str) -> None:
    answer = ask(path, host=host)
    assert answer.status_code == 403
    assert "nobody" not in answer.text and "local" not in answer.text


def test_a_request_without_host_or_with_two_is_refused(
    ask: Ask, run: Callable[..., Any], tmp_path: Path, credentials: Credentials
) -> None:
    assert ask(headers=[("Host", HERE)]).status_code == 403
    assert ask(headers=[("Host", "evil.example")]).status_code == 403
    access = guarded(Settings(data=tmp_path), credentials, Clock())
    assert sent_by(run, access, "http")[0]["status"] == 403


@pytest.mark.parametrize("origin", [f"http://{HERE}", f"https://{HERE}", f"HTTP://{HERE}"])
def test_our_own_page_may_ask(ask: Ask, origin: str) -> None:
    assert ask(headers={"Origin": origin}).status_code == 200


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "https://evil.example",
        "http://127.0.0.1",
        "http://127.0.0.1:8421",
        "http://localhost:8420",
        f"http://{HERE}.evil.example",
        f"http://evil.example/{HERE}",
        f"http://x@{HERE}",
        f"file://{HERE}",
        f"chrome-extension://{HERE}",
        HERE,
    ],
)
@pytest.mark.parametrize("path", ["/api/background", "/a2a"])
def test_F175_a_page_of_another_origin_may_not(ask: Ask, path: str, origin: str) -> None:
    assert ask(path, headers={"Origin": origin}).status_code == 403


def test_a_second_origin_does_not_hide_behind_the_first(ask: Ask) -> None:
    good, bad = ("Origin", f"http://{HERE}"), ("Origin", "https://evil.example")
    assert [ask(headers=pair).status_code for pair in ([good, bad], [bad, good], [good, good])] == [403, 403, 403]


def test_a_refusal_has_the_form_of_the_door_it_is_made_at(ask: Ask) -> None:
    api, rpc = ask(host="evil.example"), ask("/a2a", host="evil.example")
    assert refusal(api) == (403, "PERMISSION_DENIED") and set(api.json()) == {"error"}
    assert set(api.json()["error"]) == {"code", "message", "details"}
    assert refusal(rpc) == (403, -32043)
    assert (rpc.json()["jsonrpc"], rpc.json()["id"]) == ("2.0", None)
    assert rpc.json()["error"]["data"][0]["reason"] == "PERMISSION_DENIED"
    assert ask("/a2a", host="evil.example", rpc_error_status="200").status_code == 200


# --- requests that need a token, where nobody has one -----------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    [
        "Forwarded",
        "X-Forwarded-For",
        "x-forwarded-proto",
        "X-Forwarded-Host",
        "X-Forwarded-Anything",
        "X-Real-IP",
        "Via",
        "True-Client-IP",
        "x-client-ip",
        "CF-Connecting-IP",
    ],
)
def test_a_forwarded_request_is_not_local(ask: Ask, header: str) -> None:
    assert refusal(ask(headers={header: "for=127.0.0.1"})) == (401, "UNAUTHENTICATED")
    assert refusal(ask("/a2a", headers={header: ""})) == (401, -32041)


def test_behind_a_public_address_nobody_is_local(ask: Ask) -> None:
    for host in ("agent.example", "agent.example:443", HERE):
        assert ask(host=host, public_url="https://agent.example/x").status_code == 401
    assert ask(host="other.example", public_url="https://agent.example").status_code == 403
    assert ask(host="localhost:9", public_url="http://localhost:9").status_code == 200


@pytest.mark.parametrize("path", ["/.well-known/agent-card.json", "/healthz", "/readyz"])
def test_what_belongs_to_nobody_is_open_to_all_and_tells_no_owner(ask: Ask, path: str) -> None:
    answer = ask(path, host="agent.example", public_url="https://agent.example", headers={"X-Forwarded-For": "1.2.3.4"})
    assert (answer.status_code, answer.json()) == (200, "nobody")
    assert ask(path + "/x", headers={"X-Forwarded-For": "1.2.3.4"}).status_code == 401


# --- posts of our own -----------------------------------------------------------------------------------------------


def test_F174_a_credential_says_whose_post_this_is(ask: Ask, credentials: Credentials) -> None:
    told = credentials.issue(NUDGE.owner, "chat-1", "background-resume", "bg-0123456789ab", START)
    for settings in ({}, {"public_url": "https://agent.example"}):
        assert ask("/a2a", headers={CREDENTIAL_HEADER: told}, **settings).json() == NUDGE._asdict()
    assert ask("/a2a", host="evil.example", headers={CREDENTIAL_HEADER: told}).status_code == 403


def test_F174_a_credential_holds_for_a_minute(ask: Ask, credentials: Credentials, clock: Clock) -> None:
    told = {CREDENTIAL_HEADER: credentials.issue("local", "s", "background", "bg-1", clock())}
    clock.advance(59.9)
    assert ask(headers=told).status_code == 200
    clock.advance(0.1)
    assert ask(headers=told).status_code == 401


def forgeries() -> list[bytes | str]:
    real = Credentials().issue("local", "s", "background", "bg-1", START)
    claims = json.dumps(["local", "s", "background", "bg-1", START * 2]).encode()
    return [
        "",
        "x",
        "=",
        "é".encode(),
        real,
        base64.urlsafe_b64encode(b"\0" * 32 + claims),
        base64.b64encode(claims[:31]),
    ]


@pytest.mark.parametrize("forged", forgeries())
def test_F174_a_credential_of_somebody_elses_making_is_refused_without_a_word(
    ask: Ask, forged: bytes | str, caplog: pytest.LogCaptureFixture
) -> None:
    answer = ask(headers=[(CREDENTIAL_HEADER, forged)])
    assert refusal(answer) == (401, "UNAUTHENTICATED") and answer.json()["error"]["message"] == "Access denied"
    assert refusal(ask("/a2a", headers=[(CREDENTIAL_HEADER, forged)])) == (401, -32041)
    assert [record.name for record in caplog.records] == ["outrider.audit"] * 2


def test_F174_no_byte_of_a_credential_can_be_changed(credentials: Credentials) -> None:
    told = base64.urlsafe_b64decode(credentials.issue("local", "s", "background", "bg-1", START))
    assert credentials.check(base64.urlsafe_b64encode(told), START) == Caller("local", "background", "s", "bg-1")
    for index in range(len(told)):
        changed = told[:index] + bytes([told[index] ^ 1]) + told[index + 1 :]
        assert credentials.check(base64.urlsafe_b64encode(changed), START) is None


def test_a_websocket_is_no_way_around(run: Callable[..., Any], tmp_path: Path, credentials: Credentials) -> None:
    access = guarded(Settings(data=tmp_path), credentials, Clock())
    assert sent_by(run, access, "websocket") == [{"type": "websocket.close", "code": 1008}]


def sent_by(run: Callable[..., Any], access: Access, kind: str) -> list[Any]:
    """What is sent back to a request that has no header at all."""
    sent: list[Any] = []

    async def send(event: Any) -> None:
        sent.append(event)

    async def receive() -> Any:
        return {"type": f"{kind}.connect"}

    run(access({"type": kind, "path": "/", "headers": []}, receive, send))
    return sent


# --- what a message may claim ---------------------------------------------------------------------------------------

USER = Caller("local")
FORGED_CONTEXTS = [
    "background:bg-1",
    "background:",
    "background%3Abg-1",
    "background%3abg-1",
    "Background:x",
    "%62ackground:x",
]
FORGED_ORIGINS = ["background", "background-resume", "BACKGROUND", " background-resume "]


def refused(*arguments: Any) -> tuple[int, str]:
    with pytest.raises(A2AError) as error:
        check_claims(*arguments)
    return error.value.kind.code, error.value.violations[0][0]


@pytest.mark.parametrize("context", FORGED_CONTEXTS)
def test_F174_a_users_message_cannot_enter_a_background_session(context: str, caplog: pytest.LogCaptureFixture) -> None:
    assert refused(USER, context, None) == (-32602, "message.contextId")
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("outrider.audit", logging.WARNING)
    assert "local" in record.getMessage() and context not in record.getMessage()


@pytest.mark.parametrize("origin", FORGED_ORIGINS)
def test_F174_a_users_message_cannot_say_that_it_is_ours(origin: str, caplog: pytest.LogCaptureFixture) -> None:
    for metadata in ((None, {"origin": origin}), ({"origin": origin}, {}), ({"origin": origin, "trigger": "bg-1"},)):
        assert refused(USER, "chat-1", *metadata) == (-32602, "message.metadata.origin")
    assert len(caplog.records) == 3


def test_other_words_are_a_users_own(caplog: pytest.LogCaptureFixture) -> None:
    for context in (None, "chat-1", "backgrounds:1", "my-background:1"):
        check_claims(USER, context, {"origin": "user"}, {"origin": ["background"]}, {"trigger": "bg-1"}, {}, None)
    assert not caplog.records


def test_F174_a_post_of_ours_keeps_to_its_session() -> None:
    check_claims(NUDGE, "chat-1", {"origin": "background-resume"})
    check_claims(Caller("alice", "background", "background:bg-1", "bg-1"), "background:bg-1", {"origin": "background"})
    for context in ("chat-2", "background:bg-1", None, ""):
        assert refused(NUDGE, context, {}) == (-32602, "message.contextId")


@pytest.mark.parametrize("text", ["a", "A.b_c:d-9", "x" * 128, "background:bg-1"])
def test_an_id_that_a_session_may_have(text: str) -> None:
    assert is_session_id(text)


@pytest.mark.parametrize("text", ["", "x" * 129, "a b", "a/b", "a\n", "é", "a%3A", "a\0"])
def test_an_id_that_it_may_not(text: str) -> None:
    assert not is_session_id(text)


def test_what_is_reserved_is_found_however_it_is_spelled() -> None:
    assert all(map(is_reserved, FORGED_CONTEXTS))
    assert not any(map(is_reserved, ["", "chat", "background", "a-background:b"]))
