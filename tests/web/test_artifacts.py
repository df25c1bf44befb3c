"""An answer that is more than text: `/api` says what there is, gives its content as a download, and the console shows it."""

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.support.console import Console
from tests.support.server import Server
from tests.support.trial import Trial
from web import cli_chat
from web.artifacts import DATA_CHARS

HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=2</script>\u202egnp.exe'
BIG = 12345678901234567890123


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    trial = Trial(tmp_path_factory.mktemp("trial"))
    with Server(trial.data(tmp_path_factory.mktemp("parts") / "data"), env=trial.env()) as server:
        yield server


def answered(server: Server, session: str, text: str) -> list[dict]:
    """The artifacts of what the handler answers, as the log has them."""
    server.ended(server.say(session, text, skill="trial"))
    return server.messages(session)[-1]["artifacts"]


def test_structured_data_stands_in_the_log_as_json_and_can_be_had_whole(server: Server) -> None:
    """Ruling 25: numbers stay as they were, so the JSON is written by the server."""
    (artifact,) = answered(server, "data", f'echo See:; data {{"a": null, "b": [{BIG}, 1.0]}}')
    said, data = artifact["parts"]
    assert artifact["name"] is None and said == {"kind": "text", "text": "See:"}
    assert (data["kind"], data["cut"]) == ("data", False)
    assert data["text"] == json.dumps({"a": None, "b": [BIG, 1.0]}, indent=2)
    whole = server.http.get(data["href"])
    assert (whole.text, whole.headers["content-type"]) == (data["text"], "application/json")
    assert whole.headers["content-disposition"].startswith("attachment; ")


def test_long_data_is_cut_in_the_log_and_whole_in_its_file(server: Server) -> None:
    long = ["word"] * DATA_CHARS
    (artifact,) = answered(server, "long", f"data {json.dumps(long)}")
    (data,) = artifact["parts"]
    assert data["cut"] and len(data["text"]) == DATA_CHARS
    assert server.http.get(data["href"]).json() == long


def test_a_file_is_told_by_name_type_and_size_and_no_browser_opens_it(server: Server) -> None:
    (artifact,) = answered(server, "file", f"file ../../etc/{HOSTILE.split()[0]}.html {HOSTILE}")
    (file,) = artifact["parts"]
    assert (file["kind"], file["media_type"], file["bytes"]) == ("file", "text/html", len(HOSTILE.encode()))
    got = server.http.get(file["href"])
    assert got.content == HOSTILE.encode()
    assert got.headers["content-type"] == "application/octet-stream"
    assert got.headers["x-content-type-options"] == "nosniff" and "sandbox" in got.headers["content-security-policy"]
    assert got.headers["content-disposition"] == "attachment; filename*=UTF-8''%3Cimg.html"


def test_an_artifact_with_a_name_stands_for_itself_and_plain_text_is_a_text_as_ever(server: Server) -> None:
    named, own = answered(server, "named", "echo done; named prices Low.")[::-1]
    assert named["name"] == "prices" and [part["kind"] for part in named["parts"]] == ["text", "data"]
    assert own == {"name": None, "parts": [{"kind": "text", "text": "done"}]}
    assert answered(server, "plain", "echo done") == []


def test_the_command_line_tells_of_it_too(server: Server) -> None:
    (artifact,) = answered(server, "told", "data [1]; file a.txt text")
    log = server.messages("told")
    said = cli_chat.answer(log, log[-1]["task_id"])
    assert said == f"[\n  1\n]\n\n[file: a.txt, text/html, 4 bytes, {artifact['parts'][1]['href']}]"


@pytest.mark.parametrize("place", ["0/1", "2/1", "1/0", "1/3", "1/1", "x/1", "-1/1", "99999999999/1", "\u0661/1"])
def test_a_part_that_is_not_there_or_is_text_is_not_found(server: Server, place: str) -> None:
    (artifact,) = answered(server, f"away-{len(place)}", "echo one; data 2")
    address = artifact["parts"][1]["href"].rpartition("/artifacts/")[0]
    assert server.http.get(f"{address}/artifacts/{place}").status_code == 404


@pytest.mark.parametrize("width", [1280, 390])
def test_the_console_shows_all_of_it_and_runs_nothing(page: Page, server: Server, width: int) -> None:
    session = f"shown-{width}"
    odd = json.dumps({"html": HOSTILE, "long": "x" * 600})
    said = f"echo **Done.**; data {odd}; file {HOSTILE.split()[0]}.html {HOSTILE}; link javascript:alert(1); named prices Low."
    server.ended(server.say(session, said, skill="trial"))
    page.set_viewport_size({"width": width, "height": 844})
    console = Console(page, server).open(session)
    expect(console.the("artifact")).to_have_count(2)
    expect(console.the("artifact").first.locator("strong")).to_have_text("Done.")
    expect(console.the("data-part").first.locator("pre")).to_contain_text('"html": "<img src=x onerror=')
    expect(console.the("data-part").first.locator("pre")).to_contain_text("[U+202E]gnp.exe")
    expect(console.the("file-part")).to_contain_text("<img.html")
    expect(console.the("file-part")).to_contain_text(f"text/html · {len(HOSTILE.encode())} bytes")
    expect(console.the("link-part").locator("a")).to_have_count(0)
    expect(console.the("link-part")).to_contain_text("javascript:alert(1)")
    expect(console.the("artifact").last.get_by_role("heading", name="prices")).to_be_visible()
    with page.expect_download() as download:
        console.the("file-part").get_by_test_id("download-part").click()
    assert download.value.path().read_text() == HOSTILE
    assert page.title() not in ("1", "2")
    wide = page.evaluate("document.documentElement.scrollWidth") <= width
    assert wide and page.locator("#timeline img, #timeline script").count() == 0
    assert console.complaints == []
