"""F180: the line and the headers of a request have a limit like its body, and what is no HTTP is answered as such."""

import pytest

from tests.limits import raw
from tests.support.server import Server
from web.head import HEAD_LIMIT

GET = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
PIECE = b"x" * 65_536


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (b"GET /healthz?", [PIECE] * 8),
        (GET + b"X-Long: ", [PIECE] * 8),
        (GET, [b"X-Many: y\r\n" * 8000, b"\r\n"]),
        (GET + b"X-Long: ", [PIECE, b"\r\n\r\n"]),
        (b"", [b"\r\n" * 40_000] * 4),
    ],
    ids=["line", "header", "headers", "header that ends", "nothing"],
)
def test_f180_a_head_over_its_limit_is_431_and_its_connection_is_closed(
    server: Server, begin: bytes, more: list[bytes]
) -> None:
    answer = raw.sent(server, begin, *more)
    assert answer.status in (431, 0) and b"xxx" not in answer.body  # 0: closed while we were still sending
    assert server.http.get("/healthz").status_code == 200


def test_f180_the_limit_is_said_and_exact(server: Server) -> None:
    most = HEAD_LIMIT - len("/healthz") - len("host127.0.0.1x") - 2 * 4
    assert raw.sent(server, GET + b"X: " + b"y" * most + b"\r\n\r\n").status == 200
    answer = raw.sent(server, GET + b"X: " + b"y" * (most + 1) + b"\r\n\r\n")
    assert answer.status == 431 and str(HEAD_LIMIT).encode() in answer.body and b"connection: close" in answer.head


def test_a_connection_that_stays_counts_each_request_for_itself(server: Server) -> None:
    for _ in range(4):
        assert server.http.get("/healthz", headers={"X-Long": "y" * 30_000}).status_code == 200


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        GET + b"Content-Length: -1\r\n\r\n",
        b"POST /a2a HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        b"POST /a2a HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: a\x00b\r\n\r\n",
    ],
    ids=["words", "TLS", "length", "two lengths", "chunk", "address", "NUL"],
)
def test_what_is_no_http_is_a_400_without_a_word_of_ours(server: Server, sent: bytes) -> None:
    answer = raw.sent(server, sent)
    assert answer.status in (400, 404) and b"Traceback" not in answer.body and b"Error" not in answer.body


def test_a_parameter_that_is_given_twice_is_refused_by_its_name(server: Server) -> None:
    answer = server.http.get("/api/background?status=completed&status=failed")
    assert answer.status_code == 400 and answer.json()["error"]["details"] == {"field": "status"}


@pytest.mark.parametrize("path", ["/api/sessions/", "/api/background/", "/healthz/"])
def test_an_address_with_a_slash_behind_it_is_none_and_leads_nowhere(server: Server, path: str) -> None:
    """A redirect would name this machine's address, which is not where a client behind a proxy asks."""
    answer = server.http.get(path)
    assert answer.status_code == 404 and "location" not in answer.headers
