"""The console in a real browser: what a parked turn or job asks stands where a person sees it, and is answered there."""

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.cases import stories
from tests.interrupts import words
from tests.interrupts.conftest import OFFERED, PROFILES
from tests.support.console import Console
from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel
from tests.support.server import Server
from tests.support.trial import Trial


@pytest.fixture(scope="module")
def script() -> Iterator[ScriptedModel]:
    with ScriptedModel() as model:
        yield model


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    return Trial(tmp_path_factory.mktemp("trial"))


@pytest.fixture(scope="module")
def server(script: ScriptedModel, trial: Trial, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data = trial.data(tmp_path_factory.mktemp("asks") / "data", PROFILES)
    with Server(data, env=script.env | trial.env(OFFERED)) as server:
        yield server


@pytest.fixture
def console(page: Page, server: Server, script: ScriptedModel) -> Iterator[Console]:
    script.rules([])
    console = Console(page, server)
    yield console
    script.rules([])
    assert console.complaints == []


def test_a_turn_asks_in_the_chat_and_goes_on_with_the_answer(console: Console, script: ScriptedModel) -> None:
    script.rules([words.asking("Red or blue?"), words.ending("Blue it is.", last_tool="^blue$")])
    console.server.say("colours", "paint it", skill="asker")
    console.open("colours")
    expect(console.the("question-text")).to_have_text("Red or blue?")
    expect(console.the("session")).to_contain_text("Asks you")
    console.the("answer-text").fill("blue")
    console.the("answer-text").press("Enter")
    expect(console.the("message-agent")).to_have_text(["Red or blue?", "Blue it is."])
    expect(console.the("message-user")).to_have_text(["paint it", "blue"])
    expect(console.the("question")).to_have_count(0)
    expect(console.the("session")).not_to_contain_text("Asks you")


@pytest.mark.parametrize("answer", ["approve", "deny"])
def test_an_approval_shows_all_of_what_would_be_done_and_has_two_buttons(
    console: Console, script: ScriptedModel, trial: Trial, answer: str
) -> None:
    session, amount = f"money-{answer}", 1234567 + len(answer)
    script.rules([words.paying(amount), words.ending("So be it.")])
    console.server.say(session, "pay", skill="asker")
    console.open(session)
    expect(console.the("question")).to_have_attribute("data-kind", "approval")
    expect(console.the("question-detail")).to_contain_text(f'"amount": {amount}')
    console.the(answer).click()
    expect(console.the("message-agent")).to_contain_text(["Do you approve", "So be it."])
    assert trial.diary().count(f"paid {amount}") == (answer == "approve")


def test_a_form_has_fields_and_what_does_not_fit_can_be_sent_again(console: Console) -> None:
    task = words.asked(console.server, "form Your name?", "trial", contextId="form")
    console.open("form")
    name, age = console.the("field").nth(0), console.the("field").nth(1)
    problems = console.the("field-problem")
    age.fill("17")
    console.the("send-answer").click()  # the page itself knows what is missing
    expect(problems).to_have_text(["name must be filled in.", ""])
    expect(name).to_be_focused()
    name.fill("a name that is longer than twenty")
    console.the("send-answer").click()  # the rest is the server's to say
    expect(problems).to_have_text(["name must have at most 20 characters.", ""])
    name.fill("Ada")
    expect(problems.nth(0)).to_be_hidden()
    console.the("send-answer").click()
    expect(problems).to_have_text(["", "Your age must be at least 18."])
    expect(age).to_be_focused()
    expect(age).to_have_attribute("aria-invalid", "true")
    age.press_sequentially("e")
    console.the("send-answer").click()
    expect(problems).to_have_text(["", "Your age must be a number."])
    age.fill("18.5")
    console.the("send-answer").click()
    expect(problems).to_have_text(["", "Your age must be a whole number."])
    expect(console.the("toast")).to_have_count(0)
    age.fill("18")
    console.the("send-answer").click()
    expect(console.the("message-agent").last).to_have_text('{"name": "Ada", "age": 18}')
    assert console.server.task(task["id"])["status"]["state"] == "TASK_STATE_COMPLETED"


def test_what_is_typed_stays_while_other_things_happen(console: Console, script: ScriptedModel) -> None:
    script.rules(
        [words.asking("Which?"), words.ending("Done.", last_tool="^half"), {"last_user": "^later$", "text": "Later."}]
    )
    task = words.asked(console.server, "go", contextId="typing")
    console.open("typing")
    console.the("answer-text").fill("half an answer")
    console.the("answer-text").evaluate("(box) => (window.held = box)")
    console.say("later")
    expect(console.the("message-user", "later")).to_have_count(1)
    assert console.the("answer-text").input_value() == "half an answer"
    assert console.the("answer-text").evaluate("(box) => box === window.held")
    console.the("send-answer").click()
    expect(console.the("message-agent").last).to_have_text("Later.")
    assert words.said(console.server.task(task["id"]))[-1] == "half an answer"


def test_a_parked_turn_can_be_canceled_where_it_asks(console: Console, script: ScriptedModel) -> None:
    script.rules([words.asking("Which?")])
    words.asked(console.server, "go", contextId="off")
    console.open("off")
    console.the("cancel-parked").click()
    expect(console.the("turn-canceled")).to_have_count(1)
    expect(console.the("question")).to_have_count(0)


def test_a_parked_job_asks_on_its_card_and_in_the_panel_with_its_name_and_deadline(
    console: Console, script: ScriptedModel, trial: Trial
) -> None:
    prompt = "a payment"
    script.rules(
        [words.worker(prompt, **words.paying(77)), words.worker(prompt, text="Report: paid."), {"text": "Briefed."}]
    )
    console.server.post("/api/sessions", id="job")
    console.open("job")
    job = console.server.spawn("job", prompt, description="Pays the bill", subagent_type="parker")
    card = console.job("Pays the bill").get_by_test_id("question")
    expect(card).to_have_attribute("aria-label", "Waits for your approval: Pays the bill")
    expect(card.get_by_test_id("question-detail")).to_contain_text('"amount": 77')
    expect(card.get_by_test_id("deadline")).to_contain_text("Until ")
    expect(console.the("jobs-pill")).to_contain_text("1 asking")
    console.the("jobs-pill").click()
    console.the("job-row").get_by_test_id("approve").click()
    expect(console.job("Pays the bill")).to_have_attribute("data-status", "completed")
    expect(console.the("question")).to_have_count(0)
    assert "paid 77" in trial.diary()
    console.server.wait(lambda: console.server.job(job["id"])["notified"])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_of_a_question_is_wider_than_its_room(console: Console, script: ScriptedModel, scheme: str) -> None:
    """Nor is a hostile one anything but text."""
    console.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    wide = json.dumps({"question": f"<img src=x onerror=alert(1)> {'w' * 500} \u202egnp.exe"})
    script.rules([words.asking(json.loads(wide)["question"])])
    session = f"wide-{scheme}"
    task = words.asked(console.server, "go", contextId=session)
    for width in (1200, 360):
        console.page.set_viewport_size({"width": width, "height": 800})
        console.open(session)
        expect(console.the("question-text")).to_contain_text("<img src=x onerror=alert(1)>")
        expect(console.the("question-text")).to_contain_text("[U+202E]gnp.exe")
        assert not console.scrolls_sideways()
    console.server.post(f"/api/sessions/{session}/tasks/{task['id']}/cancel")


def test_the_worker_of_a_job_that_is_back_is_asked_on_its_card(console: Console, script: ScriptedModel) -> None:
    script.rules(
        [
            stories.worker("further work", "A long report. " * 20),
            Rule(last_user="^and which[?]$", text="The answer. " * 20),
            stories.briefing(),
        ]
    )
    server = console.server
    server.ask("further", "hello")
    job = server.spawn("further", "further work")["id"]
    stories.when_told(server, job)
    console.open("further")
    console.the("report-card").get_by_test_id("ask-job").click()
    console.the("ask-text").fill("and which?")
    console.the("ask-text").press("Enter")
    expect(console.the("report-card").get_by_test_id("follow-up")).to_have_text("Asked: and which?")
    expect(console.the("report-card")).to_contain_text("The answer.")
    assert server.job(job)["attempts"] == 2
