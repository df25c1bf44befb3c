"""F175, ruling 29: a browser's login and the tickets of event streams, as a browser and as a thief would use them."""

from collections.abc import Iterator
from http.cookies import SimpleCookie

import httpx
import pytest

from tests.access.people import Person, revoke, token_for
from tests.support.server import Server
from web.logins import COOKIE


@pytest.fixture
def browser(guarded: Server) -> Iterator[httpx.Client]:
    """What keeps cookies."""
    with httpx.Client(base_url=guarded.url, timeout=30, trust_env=False) as client:
        yield client


def logged_in(browser: httpx.Client, token: str) -> httpx.Response:
    answer = browser.post("/api/login", json={"token": token})
    assert answer.status_code == 200, answer.text
    return answer


def cookie_of(answer: httpx.Response) -> SimpleCookie:
    return SimpleCookie(answer.headers["set-cookie"])


def test_a_login_lasts_half_a_day_out_of_every_script_s_reach(browser: httpx.Client, alice: Person) -> None:
    answer = logged_in(browser, alice.token)
    assert answer.json() == {"user": "alice", "required": True}
    cookie = cookie_of(answer)[COOKIE]
    assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "strict", "/")
    assert cookie["max-age"] == str(12 * 3600) and not cookie["secure"]
    assert alice.token.partition(".")[2] not in answer.headers["set-cookie"] + answer.text
    alice.post("/api/sessions", id="by-token")
    assert "by-token" in str(browser.get("/api/sessions").json())
    assert browser.post("/api/sessions", json={"id": "by-cookie"}).status_code == 201
    assert "by-cookie" in alice.sessions()


def test_who_is_there_is_told_to_who_is_there(browser: httpx.Client, bob: Person, nobody: Person) -> None:
    assert nobody.get("/api/login").status_code == 401
    assert bob.get("/api/login").json() == {"user": "bob", "required": True}
    logged_in(browser, bob.token)
    assert browser.get("/api/login").json() == {"user": "bob", "required": True}


def test_a_logout_takes_the_cookie_away(browser: httpx.Client, bob: Person) -> None:
    logged_in(browser, bob.token)
    assert browser.delete("/api/login").status_code == 204
    assert COOKIE not in browser.cookies and browser.get("/api/sessions").status_code == 401


def test_a_login_ends_with_its_token(browser: httpx.Client, guarded: Server) -> None:
    token = token_for(guarded.data, "carol")
    logged_in(browser, token)
    assert browser.get("/api/sessions").status_code == 200
    revoke(guarded.data, token)
    assert browser.get("/api/sessions").status_code == 401
    assert browser.post("/api/login", json={"token": token}).status_code == 401


@pytest.mark.parametrize("body", [{}, {"token": ""}, {"token": 1}, {"token": None}, {"token": "x" * 300}])
def test_what_is_no_token_is_bad_input(nobody: Person, body: dict[str, object]) -> None:
    answer = nobody.send("POST", "/api/login", json=body)
    assert (answer.status_code, answer.json()["error"]["details"]) == (400, {"field": "token"})


def test_a_cookie_that_was_made_or_altered_elsewhere_is_as_good_as_none(
    browser: httpx.Client, guarded: Server, alice: Person
) -> None:
    cookie = cookie_of(logged_in(browser, alice.token))[COOKIE].value
    ticket = alice.post("/api/events/ticket").json()["ticket"]
    changed = f"{cookie[:-4]}{'AAAA' if not cookie.endswith('AAAA') else 'BBBB'}"
    for forged in ("", "x", "=", changed, cookie[:-8], ticket, f"{cookie}.", alice.token):
        person = Person(guarded, Cookie=f"{COOKIE}={forged}")
        assert person.get("/api/sessions").status_code == 401, forged
    assert Person(guarded, Cookie=f"a=b; {COOKIE}={cookie}; c=d").get("/api/sessions").status_code == 200


def test_f175_a_cookie_is_no_use_to_another_page(browser: httpx.Client, alice: Person) -> None:
    """It goes along by itself: so the page must be ours, by a name that is ours."""
    logged_in(browser, alice.token)
    for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"}):
        assert browser.get("/api/sessions", headers=headers).status_code == 403
        assert browser.post("/api/login", json={"token": alice.token}, headers=headers).status_code == 403


def test_behind_tls_the_cookie_goes_over_nothing_else(tmp_path_factory: pytest.TempPathFactory) -> None:
    data = tmp_path_factory.mktemp("public") / "data"
    token = token_for(data, "alice")
    with Server(data, env={"OUTRIDER_PUBLIC_URL": "https://outrider.example"}) as server:
        person = Person(server, Host="outrider.example", Origin="https://outrider.example")
        answer = person.post("/api/login", token=token)
        assert cookie_of(answer)[COOKIE]["secure"] is True
        cookie = cookie_of(answer)[COOKIE].value
        server.http.cookies.clear()
        there = Person(server, Host="outrider.example", Cookie=f"{COOKIE}={cookie}")
        assert there.get("/api/sessions").status_code == 200
        server.restart()
        assert there.get("/api/sessions").status_code == 200, "every process of an installation knows its logins"


# --- tickets ----------------------------------------------------------------------------------------------------------


def heard(server: Server, ticket: str, **headers: str) -> int:
    """The status of an event stream that is opened with a ticket."""
    request = server.http.build_request("GET", "/api/events", params={"ticket": ticket}, headers=headers)
    answer = server.http.send(request, stream=True)
    answer.close()
    return answer.status_code


def test_f175_an_event_stream_has_a_ticket_of_half_a_minute_in_its_address(guarded: Server, alice: Person) -> None:
    made = alice.post("/api/events/ticket")
    assert (made.status_code, made.json()["expires_in_s"]) == (201, 30)
    ticket = made.json()["ticket"]
    assert heard(guarded, ticket) == 200
    assert heard(guarded, "x") == heard(guarded, ticket[:-4]) == heard(guarded, "") == 401
    assert heard(guarded, ticket, Origin="http://evil.example") == 403


def test_what_lets_somebody_in_stays_in_no_cache(browser: httpx.Client, alice: Person) -> None:
    session = alice.post("/api/sessions").json()["id"]
    answers = [
        logged_in(browser, alice.token),
        alice.post("/api/events/ticket"),
        alice.post(f"/api/sessions/{session}/shares"),
    ]
    assert [answer.headers.get("cache-control") for answer in answers] == ["no-store"] * 3


def test_a_ticket_opens_nothing_but_events(guarded: Server, alice: Person, nobody: Person) -> None:
    ticket = alice.post("/api/events/ticket").json()["ticket"]
    for path in ("/api/sessions", "/api/background", "/a2a/rest/tasks"):
        assert nobody.get(path, ticket=ticket).status_code == 401
    assert nobody.post("/api/events/ticket").status_code == 401
    assert Person(guarded, Cookie=f"{COOKIE}={ticket}").get("/api/sessions").status_code == 401


def test_f175_what_was_opened_with_a_token_ends_with_it(guarded: Server) -> None:
    """An event stream has no end of its own, however it was opened."""
    token = token_for(guarded.data, "dave")
    dave = Person(guarded, token)
    ticket = dave.post("/api/events/ticket").json()["ticket"]
    opened = [
        guarded.http.send(guarded.http.build_request("GET", "/api/events", params=params, headers=headers), stream=True)
        for params, headers in (({}, dave.headers), ({"ticket": ticket}, {}))
    ]
    told = [answer.iter_text() for answer in opened]
    assert [next(text) for text in told] == [": open\n\n"] * 2
    revoke(guarded.data, token)
    assert [list(text) for text in told] == [[], []]
    assert heard(guarded, ticket) == 401
