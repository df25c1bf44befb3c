"""One call of a webhook, over real sockets: where it goes, what it carries, and when it is given up."""

import asyncio
import datetime
import ipaddress
import ssl
import threading
from collections.abc import Callable
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from agent.addresses import Allowed
from background.webhooks import Webhook
from tests.support.clock import START, Clock
from tests.support.receiver import Answer, LyingResolver, Receiver
from web import push_call, signatures
from web.push_call import Courier, Undelivered

BODY = b'{"statusUpdate":{"taskId":"t"}}'
LOOPBACK = Allowed.of(["127.0.0.1", "127.0.0.2", "::1"])
NOWHERE = LyingResolver({})
PLAIN = ssl.create_default_context()


def courier(**differences: Any) -> Courier:
    return Courier(**{"allowed": LOOPBACK, "resolve": NOWHERE, "now": Clock(), "tls": PLAIN, **differences})


def call(url: str, made: Courier | None = None, **webhook: Any) -> None:
    hook = Webhook("t", "w", "local", url, **webhook)
    asyncio.run((made or courier()).post(hook, BODY, "t/w/2.0", 3))


def test_a_call_is_one_post_with_the_body_the_credentials_and_its_own_name() -> None:
    """A89, F083, F084."""
    with Receiver() as receiver:
        call(f"{receiver.url}?q=1", token="k", scheme="Bearer", credentials="abc")
    (got,) = receiver.calls
    assert (got.method, got.path, got.body) == ("POST", "/hook?q=1", BODY)
    assert got.headers["authorization"] == "Bearer abc" and got.headers["x-a2a-notification-token"] == "k"
    assert got.headers["content-type"] == "application/a2a+json"
    assert got.headers["x-outrider-delivery"] == "t/w/2.0" and got.headers["x-outrider-attempt"] == "3"
    assert "cookie" not in got.headers and signatures.HEADER.lower() not in got.headers


def test_what_was_not_given_is_not_sent() -> None:
    with Receiver() as receiver:
        call(receiver.url, scheme="Bearer")
    (got,) = receiver.calls
    assert not {"authorization", "x-a2a-notification-token"} & got.headers.keys()


def test_the_first_key_signs() -> None:
    """F086."""
    with Receiver() as receiver:
        call(receiver.url, courier(keys=("new key", "old key")))
    (got,) = receiver.calls
    header, now = got.headers[signatures.HEADER.lower()], START / 1e6
    assert signatures.verify(header, got.body, ["new key"], now)
    assert not signatures.verify(header, got.body, ["old key"], now)


@pytest.mark.parametrize("status", [400, 404, 410, 429, 500, 503])
def test_any_answer_but_success_is_none(status: int) -> None:
    with Receiver() as receiver, pytest.raises(Undelivered, match=f"HTTP {status}"):
        receiver.otherwise = status
        call(receiver.url)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    """A88, F085: neither to a private address nor to any other."""
    with Receiver() as inner, Receiver() as receiver, pytest.raises(Undelivered, match="redirect"):
        receiver.otherwise = Answer(status, {"Location": inner.url})
        call(receiver.url)
    assert len(receiver.calls) == 1 and inner.connections == 0


def test_a_receiver_that_is_down_or_hangs_up_is_told_apart_from_one_that_answers() -> None:
    with pytest.raises(Undelivered, match="no connection"):
        call(Receiver().url)
    with Receiver() as receiver, pytest.raises(Undelivered, match="the connection failed"):
        receiver.otherwise = Answer(cut=True)
        call(receiver.url)


def test_a_slow_receiver_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """F084: a call has a time of its own, 10 s."""
    assert push_call.CALL_S == 10
    monkeypatch.setattr(push_call, "CALL_S", 0.2)
    gate = threading.Event()
    with Receiver() as receiver:
        receiver.otherwise = Answer(gate=gate)
        with pytest.raises(Undelivered, match="no answer within"):
            call(receiver.url)
        gate.set()


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("120", 120.0),
        ("0", 0.0),
        (format_datetime(datetime.datetime.fromtimestamp(START / 1e6 + 90, datetime.UTC), usegmt=True), 90.0),
        (format_datetime(datetime.datetime.fromtimestamp(START / 1e6 - 90, datetime.UTC), usegmt=True), 0.0),
        ("999999999999", 86400.0),
        ("soon", 0.0),
        ("-5", 0.0),
        ("", 0.0),
    ],
)
def test_when_to_come_again_is_understood_up_to_a_day(said: str, seconds: float) -> None:
    """F084: no delay over 24 h."""
    with Receiver() as receiver, pytest.raises(Undelivered) as refused:
        receiver.otherwise = Answer(503, {"Retry-After": said})
        call(receiver.url)
    assert refused.value.retry_after_s == pytest.approx(seconds, abs=1)


# -- where it goes


def test_the_connection_goes_to_the_address_that_was_checked_and_the_host_stays_the_names() -> None:
    """F085: nobody else's name server knows this name."""
    names = LyingResolver({"hook.example": [["127.0.0.1"]]})
    with Receiver() as receiver:
        call(f"http://hook.example:{receiver.port}/hook", courier(resolve=names))
    (got,) = receiver.calls
    assert got.headers["host"] == f"hook.example:{receiver.port}" and names.asked == ["hook.example"]


def test_a_name_that_was_public_when_it_was_registered_is_not_called_once_it_is_private() -> None:
    """A88, F085: a name server that changes its mind, and one that does so between each two questions."""
    for answers in ([["127.0.0.1"]], [["93.184.215.14", "127.0.0.1"]], [["::ffff:127.0.0.1"]]):
        with Receiver() as receiver, pytest.raises(Undelivered, match="may not be called"):
            liar = LyingResolver({"hook.example": answers})
            call(f"http://hook.example:{receiver.port}/hook", courier(resolve=liar, allowed=Allowed()))
        assert receiver.connections == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::1]", "[::ffff:127.0.0.1]"])
def test_an_address_that_came_into_the_registry_somehow_is_still_not_called(host: str) -> None:
    with Receiver() as receiver, pytest.raises(Undelivered, match="may not be called"):
        call(f"http://{host}:{receiver.port}/hook", courier(allowed=Allowed()))
    assert receiver.connections == 0


def test_an_address_of_version_6_is_called_as_it_is_written() -> None:
    try:
        there = Receiver(host="::1")
    except OSError:
        pytest.skip("this machine has no IPv6")
    with there as receiver:
        call(receiver.url)
    assert receiver.calls[0].headers["host"] == f"[::1]:{receiver.port}"


def test_the_next_place_is_tried_where_no_connection_comes_about() -> None:
    names = LyingResolver({"hook.example": [["127.0.0.2", "127.0.0.1"]]})
    with Receiver() as receiver:
        call(f"http://hook.example:{receiver.port}/hook", courier(resolve=names))
        assert len(receiver.calls) == 1


def test_an_answer_that_failed_is_not_asked_for_at_the_next_place() -> None:
    names = LyingResolver({"hook.example": [["127.0.0.1", "127.0.0.1"]]})
    with Receiver() as receiver, pytest.raises(Undelivered):
        receiver.otherwise = 500
        call(f"http://hook.example:{receiver.port}/hook", courier(resolve=names))
    assert len(receiver.calls) == 1


def test_a_proxy_of_the_environment_sees_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy would resolve the name again, and its answer is nobody's that was checked."""
    with Receiver() as proxy, Receiver() as receiver:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        call(receiver.url)
        assert len(receiver.calls) == 1 and proxy.connections == 0


# -- https


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[ssl.SSLContext, ssl.SSLContext]]:
    """(the receiver's side with a certificate for this name, the side of a caller who trusts it)."""
    folder = tmp_path_factory.mktemp("tls")

    def make(name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        path = _certificate(folder, name)
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(path)
        return server, ssl.create_default_context(cafile=str(path))

    return make


def _certificate(folder: Path, name: str) -> Path:
    """A file with a key and a certificate that vouches for itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "receiver")])
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([_general(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = folder / f"{name.replace(':', '_')}.pem"
    path.write_bytes(pem + built.public_bytes(serialization.Encoding.PEM))
    return path


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def test_the_certificate_is_the_names_though_the_connection_goes_to_an_address(certified: Any) -> None:
    """F085: SNI, too, is the name, and never the address."""
    server, trusting = certified("hook.example")
    asked_for: list[str | None] = []
    server.sni_callback = lambda _, name, __: asked_for.append(name)
    names = LyingResolver({"hook.example": [["127.0.0.1"]]})
    with Receiver(tls=server) as receiver:
        call(f"https://hook.example:{receiver.port}/hook", courier(resolve=names, tls=trusting))
        assert len(receiver.calls) == 1 and asked_for == ["hook.example"]


@pytest.mark.parametrize("name", ["other.example", "127.0.0.1"])
def test_a_certificate_of_another_name_is_none_and_gets_nothing(certified: Any, name: str) -> None:
    """F085: also one of the address that the name leads to."""
    server, trusting = certified(name)
    names = LyingResolver({"hook.example": [["127.0.0.1"]]})
    with Receiver(tls=server) as receiver, pytest.raises(Undelivered):
        call(f"https://hook.example:{receiver.port}/hook", courier(resolve=names, tls=trusting), credentials="secret")
    assert receiver.calls == []


def test_a_certificate_that_nobody_vouches_for_is_none() -> None:
    with pytest.raises(Undelivered), Receiver() as receiver:
        call(receiver.url.replace("http:", "https:"))
