"""The console in a real browser, in front of a real server: what a person sees of background work, and when.

One browser, two servers: one with the offline model, as a newcomer has it, and one whose model says what a test says.
"""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, Route, expect

from tests.support.console import ENDS, HOSTILE, LONG, SENTINEL, Console, ended, look, send_out
from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel
from tests.support.server import Server

EXAMPLE = "Compare write-ahead logging, rollback journals and memory-mapped I/O in SQLite, in the background"
LOOK = {"name": "background_status", "arguments": {"job_id": "bg-000000000000"}}  # a step more, and nothing done
AT_WORK = re.compile("Answering|Briefing|Working")


@pytest.fixture(scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server as a newcomer has it."""
    with Server(tmp_path_factory.mktemp("offline") / "data") as server:
        yield server


@pytest.fixture(scope="module")
def script() -> Iterator[ScriptedModel]:
    with ScriptedModel() as model:
        yield model


@pytest.fixture(scope="module")
def scripted_server(script: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Two jobs at once, and what a killed process held is soon taken over."""
    env = script.env | {
        "OUTRIDER_MAX_JOBS": "2",
        "OUTRIDER_MAX_ATTEMPTS": "2",
        "OUTRIDER_LEASE_S": "2",
    }
    with Server(tmp_path_factory.mktemp("scripted") / "data", env=env) as server:
        yield server


@pytest.fixture
def console(page: Page, scripted_server: Server, script: ScriptedModel) -> Iterator[Console]:
    """A tab that has not been opened yet; each test begins with the script `ENDS`, and leaves nobody waiting."""
    script.rules(ENDS)
    console = Console(page, scripted_server)
    yield console
    script.rules([])
    assert console.complaints == []


def test_the_main_road(page: Page, offline: Server) -> None:
    """Asked once: three jobs in the order asked, one briefing without another word, whole reports, and an answer on them."""
    console = Console(page, offline).open()
    page.evaluate("""() => {
        window.raw = new Set();
        const look = () => document.querySelectorAll(".excerpt").forEach((one) => /[*`]/.test(one.textContent) && window.raw.add(one.textContent));
        new MutationObserver(look).observe(document.body, {childList: true, subtree: true});
    }""")
    page.get_by_text(EXAMPLE).click()
    console.the("composer").press("Enter")
    expect(console.the("job-batch")).to_have_count(1)
    expect(console.the("batch-counts")).to_have_text("3 done")
    titles = ["write-ahead logging in SQLite", "rollback journals in SQLite", "memory-mapped I/O in SQLite"]
    expect(console.the("report-card").get_by_role("heading")).to_have_text(titles)
    expect(console.the("notification")).to_have_text(["3 jobs reported back"])
    expect(console.the("message-agent")).to_have_text([re.compile("3 jobs went out"), re.compile("3 jobs have ended")])
    expect(console.the("message-user")).to_have_text([EXAMPLE])
    expect(console.the("excerpt").locator("strong").first).to_have_text("Summary.")
    assert page.evaluate("[...window.raw]") == [], "Markdown is never shown as it is written"

    report = console.read(titles[0])
    expect(console.the("viewer")).to_have_attribute("data-stage", "ready")
    expect(report.locator("blockquote", has_text="appends it to a log")).not_to_have_count(0)
    expect(report.get_by_role("heading", name="Sources")).to_be_visible()
    page.keyboard.press("Escape")

    console.say("What does a checkpoint do in write-ahead logging?")
    expect(console.the("message-agent").nth(2)).to_contain_text("docs/storage.md")
    expect(console.the("message-agent")).to_have_count(3)
    assert console.complaints == []


def test_an_answer_is_seen_while_it_is_written_and_stands_once_in_the_end_s90(
    console: Console, script: ScriptedModel
) -> None:
    asked = Rule(last_user="^What is it", text="First I look.", tool_calls=[LOOK])
    script.rules([asked, Rule(last_tool=".", gate="end", text="It is **this**.")])
    console.server.post("/api/sessions", id="streaming")
    console.open("streaming").say("What is it?")
    expect(console.the("preview")).to_have_text("First I look.")
    expect(console.the("activity")).to_have_text("Answering")
    expect(console.the("message-agent")).to_have_count(0)
    console.page.evaluate("""() => {
        window.answers = new Set();
        const look = () => window.answers.add(document.querySelectorAll(".message.agent").length);
        new MutationObserver(look).observe(document.body, {childList: true, subtree: true});
    }""")
    script.open("end")
    expect(console.the("message-agent")).to_have_text(["It is this."])
    expect(console.the("message-agent").locator("strong")).to_have_text("this")
    expect(console.the("preview")).to_have_count(0)
    expect(console.the("activity")).to_be_empty()
    assert console.page.evaluate("[...window.answers]") == [1]


def test_stop_ends_the_answer_and_leaves_its_jobs(console: Console, script: ScriptedModel) -> None:
    task = {"description": "the long way", "prompt": "Go slow", "subagent_type": "general", "run_in_background": True}
    asked = Rule(last_user="^Send", tool_calls=[{"name": "task", "arguments": task}])
    script.rules([asked, Rule(last_tool="bg-", gate="never"), *ENDS])
    console.server.post("/api/sessions", id="stopped")
    console.open("stopped").say("Send one out")
    script.held_at("never")
    expect(console.the("job-line")).to_have_attribute("data-status", "running")
    console.the("stop-turn").click()
    expect(console.the("turn-canceled")).to_have_text("The answer was stopped.")
    expect(console.the("stop-turn")).to_be_hidden()
    expect(console.the("job-line")).to_have_attribute("data-status", "running")
    script.open("slow")
    expect(console.the("report-card")).to_have_attribute("data-status", "completed")


def test_every_way_to_end_looks_like_what_it_is_s91_s47(console: Console) -> None:
    """One group with a live count, then five ends that nobody takes for one another; no raw block is ever shown."""
    ways = {"whole": "Go long", "brief": "Go short", "broken": "Go wrong", "cut": "Go half", "called back": "Go slow"}
    send_out(console.server, "ends", **ways)
    console.open("ends")
    expect(console.the("batch-counts")).to_have_text("1 running · 2 done · 1 partial · 1 failed")
    expect(console.the("job-line").get_by_role("heading")).to_have_text([*ways])
    console.job("called back").get_by_test_id("stop-job").click()
    expect(console.the("batch-counts")).to_have_text("2 done · 1 partial · 1 failed · 1 canceled")
    expect(console.job("whole")).to_contain_text("Background report")
    expect(console.job("brief")).to_have_attribute("data-testid", "job-note")
    expect(console.job("broken")).to_contain_text(re.compile("^Failed.*no such model"))
    expect(console.job("broken").get_by_test_id("open-report")).to_have_count(0)
    expect(console.job("cut")).to_contain_text(re.compile("^Partial report.*length limit.*Half a report"))
    expect(console.job("called back")).to_contain_text("Canceled by you")
    assert len({look(console.job(name)) for name in ways}) == len(ways)
    expect(console.the("message-agent")).to_have_text(["ok"])
    assert "task-notification" not in console.page.content()


def test_two_tabs_agree_through_a_jobs_whole_life_s88_f152(console: Console, script: ScriptedModel) -> None:
    tabs = [console, console.second_tab()]
    send_out(console.server, "tabs", first="Go slow", second="Go slow", third="Go slow")
    for tab in tabs:
        tab.open("tabs")

    def all_show(status: str, shape: str = "job-line", job: str = "third") -> None:
        for tab in tabs:
            expect(tab.job(job)).to_have_attribute("data-status", status)
            expect(tab.job(job)).to_have_attribute("data-testid", shape)

    all_show("queued")
    console.job("first").get_by_test_id("stop-job").click()
    all_show("running")
    script.open("slow")
    all_show("completed", "report-card")
    console.server.wait(lambda: all(job["notified"] for job in console.server.jobs("tabs")))
    script.rules(ENDS)  # the gate is shut again
    console.server.post(f"/api/background/{console.server.jobs('tabs')[0]['id']}/retry")
    all_show("running")
    tabs[1].say("And meanwhile?")
    expect(console.the("message-user")).to_have_text(["And meanwhile?"])
    tabs[1].job("third").get_by_test_id("stop-job").click()
    all_show("canceled", "report-card")
    console.job("second").get_by_test_id("dismiss-job").click()
    all_show("completed", "job-note", "second")
    tabs[1].page.reload()
    all_show("completed", "job-note", "second")
    all_show("canceled", "report-card")
    expect(tabs[1].read("second")).to_contain_text(SENTINEL)
    assert tabs[1].complaints == []


def test_a_list_that_comes_late_brings_nothing_back_s88(console: Console, script: ScriptedModel) -> None:
    """A list read before a job ended, or was dismissed, arrives behind the news of it."""
    send_out(console.server, "late", work="Go slow")
    work = console.open("late").job("work")
    expect(work).to_have_attribute("data-status", "running")
    for news, shape in (
        (lambda: script.open("slow"), "report-card"),
        (lambda: work.get_by_test_id("dismiss-job").click(), "job-note"),
    ):
        lists = console.hold("**/api/background?session=*")
        console.server.say("late", "Anything new?")
        console.until(lambda lists=lists: len(lists) == 1)
        news()
        expect(work).to_have_attribute("data-testid", shape)
        for number in (0, 1):  # what is not dismissed and what is; behind both the page asks anew
            lists[number]()
            console.until(lambda lists=lists, number=number: len(lists) == number + 2)
        expect(work).to_have_attribute("data-testid", shape)
        console.page.unroute_all()


def test_a_job_that_ends_with_nobody_there_has_its_card_f152(console: Console) -> None:
    ended(console.server, "alone", work="Go long")
    expect(console.open("alone").job("work")).to_have_attribute("data-testid", "report-card")
    expect(console.the("report-card")).to_have_count(1)
    expect(console.the("message-agent")).to_have_text(["ok"])


def test_nothing_in_a_report_runs_loads_or_restyles_s77_f155(console: Console) -> None:
    """Report, description and what people write: all of it can be read, and nothing of it does anything."""
    evil = "<img src=x onerror=alert(2)> [b](javascript:alert(2)) \u202etxt.exe"
    console.server.post("/api/sessions", id="hostile")
    console.server.spawn("hostile", "Go hostile", evil)
    console.server.say("hostile", HOSTILE)
    console.server.wait(lambda: console.server.jobs("hostile")[0]["notified"])
    console.open("hostile")
    card = console.the("report-card")
    expect(card.get_by_role("heading").first).to_have_text(evil.replace("\u202e", "[U+202E]"))
    card.get_by_test_id("open-report").click()
    report = console.the("viewer-body")
    expect(report).to_contain_text("<img src=x onerror=alert(1)> <style>body{display:none}</style>")
    expect(report).to_contain_text("[U+001B][31mred [U+202E]gnp.exe")
    expect(report.locator("th")).to_have_count(500)
    page = console.page
    page.keyboard.press("Escape")
    console.the("jobs-pill").click()
    expect(console.the("job-row").first).to_contain_text("<img src=x")
    assert page.locator("main :is(img, style, script, iframe), [onerror], [href^=javascript]").count() == 0
    assert not console.scrolls_sideways()
    assert {url for url in console.requests if not url.startswith((console.server.url, "about:blank"))} == set()


def test_what_goes_on_in_another_chat_stays_there_s90(console: Console, script: ScriptedModel) -> None:
    asked = Rule(last_user="^Elsewhere", text="Over there.", tool_calls=[LOOK])
    script.rules([asked, Rule(last_tool=".", gate="end", text="Done over there."), *ENDS])
    console.server.post("/api/sessions", id="here")
    console.open("here")
    console.server.say("there", "Elsewhere please")
    other = console.the("session", "Elsewhere please")
    expect(other).to_contain_text("Answering")
    script.held_at("end")
    console.server.spawn("there", "Go short", "a thing over there")
    expect(console.the("toast")).to_contain_text("“a thing over there” is back.")
    expect(console.the("timeline")).to_be_empty()
    expect(console.the("activity")).to_be_empty()
    console.the("toast").get_by_role("button").click()
    console.the("job-row", "a thing over there").get_by_test_id("go-to-chat").click()
    expect(console.job("a thing over there")).to_be_focused()
    expect(console.the("preview")).to_have_text("Over there.")
    script.open("end")
    expect(console.the("message-agent").first).to_have_text("Done over there.")
    expect(other).not_to_contain_text("Answering")


def test_the_reader_shows_what_was_asked_for_last_and_can_try_again_f151(console: Console) -> None:
    page = console.page
    jobs = ended(console.server, "reader", slow="Go long", quick="Go half")
    console.open("reader")
    held = console.hold(f"**/{jobs['slow']['id']}/report?html=1")
    console.read("slow")
    expect(console.the("viewer")).to_have_attribute("data-stage", "loading")
    page.keyboard.press("Escape")
    expect(console.read("quick")).to_have_text("Half a report")
    held[0]()
    expect(console.the("viewer-body")).to_have_text("Half a report")
    page.keyboard.press("Escape")
    expect(console.the("viewer-body")).to_be_empty()
    expect(console.job("quick").get_by_test_id("open-report")).to_be_focused()
    page.unroute_all()

    page.route("**/report?html=1", lambda route: route.fulfill(status=500, json={"error": {"message": "Out of ink."}}))
    report = console.read("slow")
    expect(console.the("viewer")).to_have_attribute("data-stage", "error")
    expect(report.get_by_role("alert")).to_contain_text("Out of ink.")
    page.unroute_all()
    console.the("viewer-retry").click()
    expect(report).to_contain_text(SENTINEL)


def test_a_long_report_is_whole_in_the_reader_and_the_clipboard_and_not_in_the_card_f149(console: Console) -> None:
    console.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    ended(console.server, "long", everything="Go long")
    card = console.open("long").job("everything")
    expect(card).to_contain_text("much was found")
    expect(card).not_to_contain_text(SENTINEL)
    assert console.asked_for("/report") == 0
    expect(console.read("everything")).to_contain_text(SENTINEL)
    assert console.asked_for("/report") == 1
    console.the("viewer-copy").click()
    expect(console.the("toast")).to_have_text("Copied.")
    assert console.page.evaluate("navigator.clipboard.readText()") == LONG
    console.page.keyboard.press("Escape")
    expect(console.the("viewer")).to_be_hidden()
    console.draw_over(card.get_by_test_id("excerpt"))  # who selects text does not want it opened
    card.get_by_test_id("excerpt").click()
    expect(console.the("viewer-body")).to_contain_text(SENTINEL)
    assert console.asked_for("/report?html=1") == 2


def test_it_fits_a_narrow_window(console: Console) -> None:
    console.page.set_viewport_size({"width": 380, "height": 800})
    word = "a" * 190  # a description without a place to break
    ended(console.server, "narrow", **{word: "Go hostile", "broken": "Go wrong", "cut": "Go half"})
    console.open("narrow")
    expect(console.the("report-card")).to_have_count(3)
    assert not console.scrolls_sideways()
    expect(console.read(word).locator("th")).to_have_count(500)
    assert not console.scrolls_sideways()
    console.page.keyboard.press("Escape")
    console.the("jobs-pill").click()
    expect(console.the("job-row")).not_to_have_count(0)
    assert not console.scrolls_sideways()


def test_everything_said_is_said_with_the_keyboard(console: Console) -> None:
    console.open()
    console.the("new-chat").press("Enter")
    expect(console.the("composer")).to_be_focused()
    keyboard = console.page.keyboard
    keyboard.type("One line")
    keyboard.press("Shift+Enter")
    keyboard.type("and another")
    expect(console.the("message-user")).to_have_count(0)
    keyboard.press("Enter")
    expect(console.the("message-user")).to_have_text(["One line\nand another"], use_inner_text=True)
    expect(console.the("message-agent")).to_have_text(["ok"])
    keyboard.press("Enter")  # there is nothing to send
    expect(console.the("composer")).to_be_focused()
    expect(console.the("message-user")).to_have_count(1)


def test_clearing_takes_the_open_chats_finished_jobs_and_asks_twice(console: Console) -> None:
    ended(console.server, "clear-here", one="Go short", two="Go long")
    ended(console.server, "clear-there", other="Go long")
    console.open("clear-here")
    expect(console.job("two")).to_have_attribute("data-testid", "report-card")
    console.the("jobs-pill").click()
    clear = console.the("clear-finished")
    expect(clear).to_have_text("Clear finished here")
    clear.click()
    expect(clear).to_have_text("Clear 2 jobs?")
    assert not any(job["dismissed"] for job in console.server.jobs("clear-here"))
    clear.click()
    expect(console.job("two")).to_have_attribute("data-testid", "job-note")
    expect(clear).to_be_hidden()
    assert all(job["dismissed"] for job in console.server.jobs("clear-here"))
    assert not any(job["dismissed"] for job in console.server.jobs("clear-there"))
    expect(console.the("job-row", "other")).to_be_visible()


def test_a_row_of_the_panel_says_at_what_time_its_job_ended(console: Console) -> None:
    ended(console.server, "times", work="Go long")
    console.open("times")
    console.the("jobs-pill").click()
    time = console.the("job-row", "work").first.get_by_test_id("job-time")
    expect(time).to_have_text(re.compile(r"^\d{1,2}:\d\d"))
    (job,) = console.server.jobs("times")
    expect(time).to_have_attribute("datetime", job["completed_at"])


def test_a_chat_that_does_not_exist_has_no_title_and_nothing_to_write_in(console: Console) -> None:
    console.open("nosuch-chat")
    expect(console.the("problem")).to_contain_text("This chat does not exist")
    expect(console.the("composer")).to_be_hidden()
    expect(console.the("title")).to_have_text("")
    console.page.get_by_test_id("new-chat").click()
    expect(console.the("composer")).to_be_visible()
    expect(console.the("title")).to_have_text("New chat")


def test_the_way_to_the_latest_messages_covers_none_of_them(console: Console) -> None:
    ended(console.server, "tall", **{f"work {number}": "Go long" for number in range(6)})
    console.open("tall")
    expect(console.job("work 5")).to_be_visible()
    console.page.locator("#scroll").evaluate("(box) => (box.scrollTop = 0)")
    latest = console.page.get_by_role("button", name="Latest messages")
    expect(latest).to_be_visible()
    pill, text = latest.bounding_box(), console.page.locator("#scroll").bounding_box()
    box = console.page.locator("#composer").bounding_box()
    assert pill and text and box
    assert pill["y"] >= text["y"] + text["height"] and pill["y"] + pill["height"] <= box["y"]


def test_who_is_refused_reads_why(console: Console) -> None:
    """The server's words, and no word of a lost connection; and when it is let in, it goes on by itself."""

    def refuse(route: Route) -> None:
        status = 401 if "/events" in route.request.url else 403
        route.fulfill(status=status, json={"error": {"code": "REFUSED", "message": f"Access denied: {status}."}})

    console.page.route("**/api/**", refuse)
    with console.page.expect_event("requestfinished", lambda request: console.asked_for("/api/events") > 2):
        console.page.goto(console.server.url)
    expect(console.the("problem")).to_have_text("Access denied: 403.")
    console.page.unroute_all()
    expect(console.the("problem")).to_be_hidden()


def test_a_server_that_is_killed_leaves_nothing_hanging_f156_f119(console: Console, script: ScriptedModel) -> None:
    """Two briefings run in two chats, the server dies: both signs go, and come to their end when it is back."""
    script.rules([Rule(last_user="task-notification", gate="brief", text="Here is what came."), *ENDS])
    console.server.post("/api/sessions", id="one")
    console.open("one")
    for session in ("one", "two"):
        console.server.say(session, f"This is chat {session}")
        console.server.spawn(session, "Go short", f"work for {session}")
    chats = [console.the("session", f"This is chat {session}") for session in ("one", "two")]
    for chat in chats:
        expect(chat).to_contain_text("Briefing")
    expect(console.the("activity")).to_have_text("Briefing")
    console.page.reload()
    expect(chats[0]).to_contain_text("Briefing")
    expect(chats[1]).to_contain_text("Working")  # which kind is not known of a chat that is not open
    console.server.kill()
    expect(console.the("problem")).to_have_text("Connection lost. Trying again…")
    for sign in [*chats, console.the("activity")]:
        expect(sign).not_to_contain_text(AT_WORK)
    expect(console.the("stop-turn")).to_be_hidden()
    script.open("brief")
    console.server.start()
    expect(console.the("problem")).to_be_hidden()
    expect(console.the("message-agent").last).to_have_text("Here is what came.")
    for chat in chats:
        expect(chat).not_to_contain_text(AT_WORK)
    expect(console.the("activity")).to_be_empty()
