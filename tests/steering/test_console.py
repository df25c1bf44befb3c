"""The console in a real browser: while a turn runs one chooses whether it is steered or comes next, and may take it back."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.a2a import wire
from tests.steering import turns
from tests.steering.turns import LAST, STEP
from tests.support.console import Console
from tests.support.scripted import ScriptedModel
from tests.support.server import Server


@pytest.fixture
def console(page: Page, server: Server) -> Iterator[Console]:
    console = Console(page, server)
    yield console
    assert console.complaints == []


def busy(console: Console, model: ScriptedModel) -> str:
    """The chat whose turn is held before a step."""
    session = wire.fresh("chat")
    turns.held(console.server, model, session)
    console.open(session)
    expect(console.the("steer")).to_be_visible()
    return session


def test_enter_sends_what_comes_next_and_the_other_button_what_is_taken_up_now(
    console: Console, model: ScriptedModel
) -> None:
    session = busy(console, model)
    console.say("afterwards")
    expect(console.the("waits")).to_contain_text(["Waits for the answer before it"])
    console.the("composer").fill("at once")
    console.the("steer").click()
    expect(console.the("waits")).to_contain_text(
        ["Waits for the answer before it", "Will be taken up at the next step"]
    )
    console.the("composer").fill("this too")
    console.the("composer").press("Control+Enter")
    expect(console.the("waits")).to_have_count(3)
    assert console.the("composer").input_value() == ""
    model.open(STEP)
    expect(console.the("taken-up")).to_have_count(2)
    expect(console.the("waits")).to_have_count(1)
    expect(console.the("steer")).to_be_visible()  # the turn goes on
    model.open(LAST)
    expect(console.the("message-agent")).to_have_text(["All of it.", "ok"])
    expect(console.the("message-user")).to_have_count(4)
    expect(console.the("steer")).to_be_hidden()
    expect(console.the("send")).to_have_text("Send")
    assert turns.told(model, 1) == ["work", "at once", "this too"]
    assert turns.said(console.server, session) == ["work", "afterwards", "at once", "this too"]


def test_what_waits_can_be_withdrawn_and_says_so(console: Console, model: ScriptedModel) -> None:
    session = busy(console, model)
    console.say("never mind")
    console.the("withdraw").click()
    expect(console.the("turn-canceled")).to_have_text("Withdrawn before it was read.")
    expect(console.the("waits")).to_have_count(0)
    turns.go_on(model)
    expect(console.the("message-agent")).to_have_text(["All of it."])
    assert turns.entry(console.server, session, "never mind")["state"] == "canceled"


def test_on_a_narrow_screen_all_of_it_has_room(console: Console, model: ScriptedModel) -> None:
    console.page.set_viewport_size({"width": 390, "height": 800})
    busy(console, model)
    console.the("composer").fill("a message that is a little longer than the box is wide")
    boxes = [console.the(name).bounding_box() for name in ("composer", "stop-turn", "steer", "send")]
    text, *buttons = [box for box in boxes if box]
    assert len(buttons) == 3 and text["width"] > 300 and not console.scrolls_sideways()
    assert all(button["y"] >= text["y"] + text["height"] - 1 for button in buttons)
    turns.go_on(model)
    expect(console.the("message-agent")).to_have_text(["All of it."])
