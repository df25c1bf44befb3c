"""Who may ask, over real HTTP and on every route there is: this machine, and no web page or proxy that speaks for it."""

import socket
from collections.abc import Iterator

import httpx
import pytest

from tests.a2a.wire import nothing_stored
from tests.support.server import Server
from tests.web.shapes import ROUTES, told

OPEN = ["/healthz", "/readyz", "/.well-known/agent-card.json", "/", "/static/main.js"]
EVERYWHERE = [
    *(
        (method, path.format(id="x", task_id="t", task="t", webhook="w", event="1.0", artifact="1", part="1"))
        for method, path, _ in ROUTES
    ),
    ("POST", "/a2a"),
    ("GET", "/metrics"),
    ("POST", "/api/events/ticket"),
    ("GET", "/nope"),
    *(("GET", path) for path in OPEN),
]
GUARDED = [(method, path) for method, path in EVERYWHERE if path not in OPEN]
BODY = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "t"}, "session": "s", "text": "x", "name": "n"}


def ask(server: Server, method: str, path: str, **headers: str) -> httpx.Response:
    """One request with these headers, as somebody sends it who means well otherwise."""
    sent = {"A2A-Version": "1.0"} | headers
    # The head alone: the event stream has no end.
    request = server.http.build_request(method, path, json=BODY if method == "POST" else None, headers=sent)
    answer = server.http.send(request, stream=True)
    if not answer.headers["content-type"].startswith("text/event-stream"):
        answer.read()
    answer.close()
    return answer


def refusal(answer: httpx.Response) -> tuple[int, str]:
    """(status, code or reason), in the form of whichever surface was asked."""
    if answer.request.url.path == "/a2a":
        error = answer.json()["error"]
        return answer.status_code, error["data"][0]["reason"]
    return told(answer)


def test_this_machine_is_let_in_everywhere(api: Server) -> None:
    for host in ("127.0.0.1", f"127.0.0.1:{api.port}", "localhost", "LOCALHOST:1", "localhost:", f"[::1]:{api.port}"):
        for method, path in GUARDED:
            if method == "GET":
                assert ask(api, method, path, Host=host).status_code not in (401, 403), (host, path)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example:8420",
        "evil.example:127.0.0.1",
        "127.0.0.1@evil.example",
        "evil.example#localhost",
        "0.0.0.0",
        "10.0.0.1",
        "169.254.169.254",
        "[::ffff:10.0.0.1]",
        "localhost:99999",
        "localhost:x",
        "localhost/../x",
        "local host",
        "",
    ],
)
def test_f175_a_request_by_another_name_is_refused_on_every_route(api: Server, host: str) -> None:
    """A name that a stranger's DNS points to this machine must not make a browser speak for it."""
    with nothing_stored(api):
        for method, path in EVERYWHERE:
            assert refusal(ask(api, method, path, Host=host)) == (403, "PERMISSION_DENIED"), (host, path)


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "https://127.0.0.1.evil.example",
        "null",
        "",
        "http://127.0.0.1:1",
        "file://",
        "//x",
        "http://localhost",
    ],
)
def test_f175_a_page_from_elsewhere_drives_no_route(api: Server, origin: str) -> None:
    with nothing_stored(api):
        for method, path in EVERYWHERE:
            assert refusal(ask(api, method, path, Origin=origin)) == (403, "PERMISSION_DENIED"), (origin, path)


def test_the_console_s_own_page_is_let_in(api: Server) -> None:
    assert ask(api, "GET", "/api/sessions", Origin=api.url).status_code == 200
    host = f"localhost:{api.port}"
    assert ask(api, "GET", "/api/sessions", Host=host, Origin=f"http://{host}").status_code == 200
    assert refusal(ask(api, "GET", "/api/sessions", Host=host, Origin=api.url)) == (403, "PERMISSION_DENIED")


@pytest.mark.parametrize(
    "header",
    [
        "Forwarded",
        "X-Forwarded-For",
        "X-Forwarded-Host",
        "X-Forwarded-Proto",
        "x-forwarded-anything",
        "X-Real-IP",
        "Via",
    ],
)
def test_what_a_proxy_forwards_is_not_this_machine_speaking(api: Server, header: str) -> None:
    """A proxy's default Host would otherwise make the internet `local`."""
    with nothing_stored(api):
        for method, path in GUARDED:
            assert refusal(ask(api, method, path, **{header: "for=127.0.0.1"})) == (401, "UNAUTHENTICATED"), path
    for path in OPEN:
        assert ask(api, "GET", path, **{header: "for=127.0.0.1"}).status_code == 200


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that is known by a public address, and has no tokens yet."""
    server = Server(tmp_path_factory.mktemp("public") / "data", env={"OUTRIDER_PUBLIC_URL": "https://outrider.example"})
    with server:
        yield server


def test_f175_where_there_is_a_public_address_nobody_is_taken_for_this_machine(public: Server) -> None:
    for host in ("outrider.example", f"127.0.0.1:{public.port}"):
        for method, path in GUARDED:
            assert refusal(ask(public, method, path, Host=host)) == (401, "UNAUTHENTICATED"), path
        for path in OPEN:
            assert ask(public, "GET", path, Host=host).status_code == 200
    card = public.get("/.well-known/agent-card.json")
    assert card["supportedInterfaces"][0]["url"] == "https://outrider.example/a2a"


@pytest.mark.parametrize(
    "head",
    [
        "Host: localhost\r\nHost: localhost",
        "Host: localhost\r\nHost: evil.example",
        "X: no host at all",
        "Host: localhost\r\nOrigin: null\r\nOrigin: http://localhost",
    ],
    ids=["twice", "two", "none", "two origins"],
)
def test_a_head_that_can_be_read_in_two_ways_is_refused(api: Server, head: str) -> None:
    with socket.create_connection(("127.0.0.1", api.port), timeout=20) as client:
        client.sendall(f"GET /api/sessions HTTP/1.1\r\n{head}\r\nConnection: close\r\n\r\n".encode())
        answer = client.recv(65536).decode()
    assert answer.startswith(("HTTP/1.1 403 ", "HTTP/1.1 400 "))
    assert "sessions" not in answer


def test_f175_without_a_token_nothing_but_this_machine_is_listened_on(tmp_path_factory: pytest.TempPathFactory) -> None:
    server = Server(tmp_path_factory.mktemp("open") / "data", env={"OUTRIDER_HOST": "0.0.0.0"})
    with pytest.raises(AssertionError, match=r"OUTRIDER_HOST.*outrider token create --user NAME"), server:
        pass
