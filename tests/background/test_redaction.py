"""The house's redactor: what it masks, what it must leave alone, and that its time is linear in the text."""

import time
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from background.credentials import MASK, mask_credentials, names_credential
from background.redaction import closing, redact

KEY = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nBKcwggSjAgEAAoIBAQC7\n-----END PRIVATE KEY-----"
CUT_KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"
GITHUB = "ghp_" + "0123456789abcdefABCDEF0123456789abcd"
SLACK = "-".join(["xoxb", "1234567890", "abcdefABCDEF"])
STRIPE = "_".join(["sk", "live", "51HabcDEF123"])

PERSONAL = [
    ("write to ada@example.com.", "write to ***."),
    ("<Ada.Love+x@mail.example.co.uk>", "<***>"),
    ("o'brien@example.ie, 'bob@example.com'", "***, '***'"),
    ("jörg.müller@bücher.example.de schrieb", "*** schrieb"),
    ("请联系test@example.com谢谢", "请联系***谢谢"),
    ("mailto:a_b@x.io", "mailto:***"),
    ("https://h/unsubscribe?u=ada%40example.com", "https://h/unsubscribe?u=***"),
    ("call +49 30 12345678 today", "call *** today"),
    ("+4917612345678", "***"),
    ("+1 (555) 123-4567", "***"),
    ("+44 (0)20 7946 0958", "***"),
    ("+33.1.42.68.53.00", "***"),
    ("tel:+1-555-123-4567", "tel:***"),
    ("0049 30 1234567", "***"),
    ("(555) 123-4567 or 555-123-4567", "*** or ***"),
    ("555.123.4567", "***"),
    ("1-800-555-0199", "***"),
    ("Berlin 030 12345678, Handy 0171/1234567", "Berlin ***, Handy ***"),
    ("(030) 1234567", "***"),
    ("06 12 34 56 78", "***"),
    ("my phone number is 5551234567", "my phone number is ***"),
    ("Tel. 01761234567", "Tel. ***"),
    ("card 4111 1111 1111 1111 12/27", "card *** 12/27"),
    ("4111111111111111", "***"),
    ("5500-0000-0000-0004", "***"),
    ("3782 822463 10005 is an Amex", "*** is an Amex"),
    ("2 x 6011000990139424!", "2 x ***!"),
    ("on 2026-11-30 4242 4242 4242 4242 was charged", "on 2026-11-30 *** was charged"),
]
CREDENTIALS = [
    ("key sk-live-abc123 is wrong", "key *** is wrong"),
    ("sk_test_51H and sk-proj-A1b2_C3", "*** and ***"),
    (f"a sk-ant-api03-AbCdEf-123456 and {STRIPE}.", "a *** and ***."),
    ("sk-abcdefghijklmnop1234", "***"),
    (f"{GITHUB} github_pat_11ABCDEFG0123456789_abcdef", "*** ***"),
    (f"{SLACK} glpat-abcdEFGH12345678", "*** ***"),
    ("AIzaSyD4dGhr81 and ghp_0123456789abcdef", "*** and ***"),
    ("AKIAIOSFODNN7EXAMPLE", "***"),
    (f"tok-0123456789ab.{'aB3_-' * 8}xyz opens shr-0123456789ab.{'aB3_-' * 8}xyz", "*** opens ***"),
    ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "aws_secret_access_key = ***"),
    (f"token {JWT}", "token ***"),
    ("eyJhbGciOiJI.eyJzdWIiOiIx.c2ln", "***"),
    (f"before {KEY} after", "before *** after"),
    (CUT_KEY, "***"),
    ("Authorization: Bearer xyz", "Authorization: Bearer ***"),
    ('{"authorization": "Basic dXNlcjpwdw=="}', '{"authorization": "Basic ***"}'),
    ("sent Bearer abc.def-1", "sent Bearer ***"),
    ("curl -H 'Authorization: Bearer abcdefgh'", "curl -H 'Authorization: Bearer ***'"),
    ("x-api-key: 12345, again", "x-api-key: ***, again"),
    ('{"api_key":"k-1","n":1}', '{"api_key":"***","n":1}'),
    (r'{"arguments": "{\"password\": \"correct horse\"}"}', r'{"arguments": "{\"password\": \"***\"}"}'),
    ('password = "with \\" quote" # why', 'password = "***" # why'),
    ("Incorrect API key provided: zzz9.", "Incorrect API key provided: ***."),
    ("password=hunter2", "password=***"),
    ("DB_PASSWORD=swordfish\nDB_HOST=h", "DB_PASSWORD=***\nDB_HOST=h"),
    ("user: ada\npassword: swordfish\n", "user: ada\npassword: ***\n"),
    ("client_secret: 8f3b2c", "client_secret: ***"),
    ("OPENAI_API_KEY=abcDEF123", "OPENAI_API_KEY=***"),
    ("GET https://h/v1?key=AbC&x=1", "GET https://h/v1?key=***&x=1"),
    ("GET https://h/v1?a=1&access_token=AbC", "GET https://h/v1?a=1&access_token=***"),
    ("at https://user:pa55@host/x", "at https://***@host/x"),
    ("postgresql://outrider:s3cret@db.example.com/x", "postgresql://***@db.example.com/x"),
    ("the key is 9f86d081884c7d659a2feaa0c55ad015", "the key is ***"),
    ("use this token: `Zx9Qm2LpR7tVw4Yk8`", "use this token: `***`"),
    ("bot 123456789:AAH" + "x1" * 16 + "; done", "bot ***; done"),
]
ORDINARY = [
    "hello, world",
    "on 2026-11-30 at 12:34:56",
    "2026-11-30T12:34:56.789Z and 2026-11-30T12:34:56+01:00",
    "am 30.11.2026 um 8.15 Uhr",
    "11/30/2026 and 05/11/2024 1200",
    "20261130123456",
    "from 2019-2024, pages 10-20-30",
    "version 1.2.3, 2.68.0rc1, 20.04 LTS, v0.12.345678901",
    "127.0.0.1:8000 and 192.168.100.200",
    "fe80::1ff:fe23:4567:890a",
    "job bg-01jdz3k4m5n6p7q8 ended",
    "task 123e4567-e89b-12d3-a456-426614174000",
    "idempotency key 123e4567-e89b-12d3-a456-426614174000",
    "commit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b",
    "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "1234567890 seconds since 1970, or 1732972800000000 µs",
    "1 000 000 people, 1,234,567.89 dollars, 3.14159265358979",
    "population 8 336 817, area 783 km²",
    "it costs $1,299.00 or 1.299,00 €",
    "+100 points, -12.5 %, +1.23456789",
    "4111111111111112 is no card",
    "ISBN 978-3-16-148410-0",
    "order 4000 0000 0000 0000",
    "52.520008, 13.404954",
    "0.00012345678 and 1e-12345",
    "12:30-14:00, room 030",
    "mail @ada on example.com",
    "@app.route('/x') and user@localhost",
    "git@github.com:org/repo.git",
    "npm install @scope/package@1.2.3",
    "https://host:8080/path?page=2&sort=name#top",
    "ssh://deploy@host/srv",
    '[a link](https://example.com/docs/api.html "title")',
    "ask-me at https://host:8080/risk-free?page=2",
    "def f(password: str, api_key: str | None = None) -> bool:",
    "connect(password=password, token=token)",
    "api_key = os.environ['OPENAI_API_KEY']",
    "api_key=settings.api_key",
    "def read(self, name, pwd=None):\n    id_token=data.id_token or other",
    "TOKEN_URL = 'https://example.com/oauth/token'; CREDENTIAL_TTL_US = 60_000_000",
    "use `credentials=` or `token=`, `end_token` is 'stop': {'end_token': 'stop'}",
    "h = h * 69069 + 907133923",
    "if secret == other_secret: return",
    "password: required",
    'export TOKEN="$OTHER_TOKEN"; echo "api_key=$API_KEY"',
    'api_key="YOUR_API_KEY", password="<password>"',
    "HTTP 429 retry after 120s",
    "missing bearer token",
    "the bearer of this letter, a bearer certificate",
    "OAuth bearer tokens (RFC 6750)",
    "You used 8000 tokens: the limit is 4096",
    "max_tokens: 4096, n_tokens=128",
    "the secret of good style; the secret: patience and work",
    "a primary key user_id_2024_orders_table",
    "the key getUserAccountByEmailAddress is a function",
    "the key to /usr/lib/python3.11/site-packages/x",
    "scikit-learn and sk-learn, locale sk-SK, struct sk_buff",
    "hf_tokenizer_path, npm_config_registry",
    "a private key begins with -----BEGIN PRIVATE KEY----- in PEM",
    "| a | b |\n|---|---|\n| 1 | 2 |",
    '```python\nprint(f"{x:.2f}")\n```',
    "x = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]",
    "0x7fff5fbff8c0, #1a2b3c, 0b1010",
    "00 01 02 03 04 05 06 07 08 09",
    "1 2 3 4 5 6 7 8 9 10 11 12 13 14",
    'chars="15000" elapsed="1234567"',
    "RFC 9110, ISO 8601, EN 301549, DIN 5008",
    "call 12 people; ring 5 times",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAE",
    "*** and ***",
    "C++ isn't foo-bar \"baz",
    "日本語のテキストと 😀",
    "",
]


@pytest.mark.parametrize(("text", "masked"), PERSONAL + CREDENTIALS)
def test_personal_data_and_credentials_are_masked_and_nothing_else_is(text: str, masked: str) -> None:
    """F043"""
    assert redact(text) == masked


@pytest.mark.parametrize(("text", "masked"), CREDENTIALS)
def test_the_text_of_an_error_loses_credentials_alone(text: str, masked: str) -> None:
    """S67: keys, bearer tokens and credentials in addresses are in no message, card or log."""
    assert mask_credentials(text) == masked
    assert mask_credentials("12 calls of ada@example.com, 030 12345678") == "12 calls of ada@example.com, 030 12345678"


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_stays_to_the_letter(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(("text", "masked"), PERSONAL + CREDENTIALS)
def test_masking_twice_is_masking_once(text: str, masked: str) -> None:
    assert redact(masked) == masked


def test_what_stands_around_a_secret_is_kept_however_long() -> None:
    """F043: never cut to a length."""
    before, after = "An ordinary sentence. " * 400, " And another one." * 400
    assert redact(f"{before}{GITHUB}{after}") == f"{before}{MASK}{after}"


@pytest.mark.parametrize("name", ["password", "api_key", "API-Key", "X-Auth-Token", "openai_api_key", "client_secret"])
def test_a_field_is_known_by_its_name(name: str) -> None:
    assert names_credential(name)


@pytest.mark.parametrize("name", ["text", "max_tokens", "key", "artifactId", "tool_call_id", "secretary", "a" * 1000])
def test_a_field_that_only_sounds_like_it_is_none(name: str) -> None:
    assert not names_credential(name)


def test_another_redactor_that_fails_keeps_nothing_of_the_text(caplog: pytest.LogCaptureFixture) -> None:
    def broken(text: str) -> str:
        raise ValueError(f"cannot mask {text}")

    def silent(text: str) -> str:
        return None  # type: ignore[return-value]

    assert [closing(each)("a secret") for each in (broken, silent, str.upper)] == [MASK, MASK, "A SECRET"]
    assert "ValueError" in caplog.text and "NoneType" in caplog.text and "secret" not in caplog.text


PIECES = ["a", "1", ".", "-", "_", " ", "@", ":", "=", '"', "\\", "/", "+", "(", ")", "\n", "key", "sk-", "eyJ", "***"]


@given(
    st.lists(st.sampled_from([*PIECES, "password", "4111111111111111", "ada@example.com", "+4930123456"]), max_size=30)
)
@example(["sk-", "key", "***", "+", "ada@example.com"])  # what is left of an address made a key of what stood before it
@settings(max_examples=300, deadline=None)
def test_whatever_the_text_masking_it_twice_changes_nothing_more(pieces: list[str]) -> None:
    once = redact("".join(pieces))
    assert redact(once) == once


HOSTILE = {
    "dashes": "-",
    "dots": "a.",
    "locals": "a@",
    "names": "a'",
    "quotes": "a''",
    "domains": "x@a.a.a.",
    "digits": "1",
    "groups": "1 ",
    "plus": "+1",
    "zeros": "0",
    "brackets": "(0",
    "phones": "tel ",
    "jwt": "-eyJ",
    "jwt with dots": "eyJaaaaaaaa.",
    "keys": "-----BEGIN PRIVATE KEY-----",
    "keys with lines": "-----BEGIN PRIVATE KEY-----\nAAAAAAAAAAAAAAAAAAAA\n",
    "sk": "sk-",
    "names of secrets": "password",
    "assignments": "password=",
    "quoted": 'secret="',
    "other quoted": "secret='secret=\"",
    "escaped": '\\"',
    "bearers": "bearer ",
    "headers": "authorization: ",
    "schemes": "a://",
    "users": "://a:",
    "queries": "?key=",
    "talk": "key ",
    "spaces": " ",
    "lines": "\n",
    "cards": "4111 1111 1111 1111 ",
    "letters": "a",
    "mixed": "aA1",
}


@pytest.mark.parametrize("piece", HOSTILE.values(), ids=HOSTILE.keys())
def test_time_is_linear_in_a_hostile_text(piece: str) -> None:
    """Twenty times the text takes about twenty times as long; were it read again and again, four hundred times."""
    assert _growth(piece, 5_000, 100_000) < 100


def test_a_megabyte_of_all_that_is_hostile_takes_its_share_and_no_more() -> None:
    assert _growth("".join(HOSTILE.values()), 25_000, 1_000_000) < 200


def _growth(piece: str, small: int, large: int) -> float:
    """How many times as long the larger text takes."""
    texts = [piece * (size // len(piece)) for size in (small, large)]
    return _best(lambda: redact(texts[1]), 1) / _best(lambda: redact(texts[0]), 5)


def _best(action: Callable[[], object], tries: int) -> float:
    def one() -> float:
        begun = time.process_time()
        action()
        return time.process_time() - begun

    return min(one() for _ in range(tries))
