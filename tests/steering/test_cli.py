"""The command line steers too: `outrider chat --steer`, and `/steer` at the prompt; it then waits for the turn that took it up."""

import signal
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from typer.testing import CliRunner

from tests.a2a import wire
from tests.steering import turns
from tests.steering.turns import LAST
from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel
from tests.support.server import Server
from tests.web.test_cli import Terminal
from web.cli import app
from web.cli_chat import Chat
from web.cli_prompt import HELP, obey
from web.cli_screen import Screen
from web.client import Client


def let_go(server: Server, model: ScriptedModel, session: str, done: Future) -> None:
    """The turn goes on once what steers it has come, and whoever sent that sees the end."""
    server.wait(lambda: len(turns.said(server, session)) == 2)
    turns.go_on(model)
    done.result(20)


def test_a_message_steers_from_the_command_line_and_the_answer_is_the_turns(
    server: Server, model: ScriptedModel
) -> None:
    session = wire.fresh("s")
    turns.held(server, model, session)
    command = ["chat", "--session", session, "--steer", "and this", "--url", server.url]
    with ThreadPoolExecutor(1) as aside:
        done = aside.submit(CliRunner().invoke, app, command)
        let_go(server, model, session, done)
    assert (done.result().exit_code, done.result().stdout) == (0, "All of it.\n")
    assert "Taken up by the turn that runs." in done.result().stderr and turns.told(model) == ["work", "and this"]


def test_at_the_prompt_what_comes_too_late_is_answered_by_itself(
    server: Server, model: ScriptedModel, capsys: pytest.CaptureFixture[str]
) -> None:
    session = wire.fresh("s")
    turns.held(server, model, session, LAST, Rule(last_user="^too late$", text="Here is more."))
    with Client(server.url) as client, Chat(client, session, Screen()) as chat, ThreadPoolExecutor(1) as aside:
        let_go(server, model, session, aside.submit(obey, chat, "/steer  too late"))
        obey(chat, "/steer")
    told = capsys.readouterr()
    assert told.out == "Here is more.\n" and HELP in told.err and "Taken up" not in told.err


def test_ctrl_c_gives_the_prompt_back_and_what_is_typed_there_steers_the_prompts_own_turn(
    server: Server, model: ScriptedModel
) -> None:
    session = wire.fresh("s")
    model.rules(turns.two_steps())
    with Terminal(server, "chat", "--session", session) as terminal:  # type: ignore[arg-type]
        terminal.shows("› ")
        terminal.type("work\n")
        model.held_at(turns.STEP)
        terminal.process.send_signal(signal.SIGINT)
        terminal.shows("/steer TEXT speaks to it")
        terminal.shows("› ")
        terminal.type("/steer and this\n")
        server.wait(lambda: len(turns.said(server, session)) == 2)
        turns.go_on(model)
        terminal.shows("Taken up by the turn that runs.")
        terminal.shows("All of it.")
    assert turns.told(model) == ["work", "and this"]


def test_the_answer_that_was_left_stands_before_that_of_the_next_line(
    server: Server, model: ScriptedModel, capsys: pytest.CaptureFixture[str]
) -> None:
    session = wire.fresh("s")
    turn = turns.held(server, model, session)
    with Client(server.url) as client, Chat(client, session, Screen()) as chat, ThreadPoolExecutor(1) as aside:
        chat.owed.add(turn)  # as after Ctrl-C
        let_go(server, model, session, aside.submit(obey, chat, "afterwards"))
    assert capsys.readouterr().out == "All of it.\nok\n"


def test_at_the_prompt_it_answers_no_question(server: Server, model: ScriptedModel) -> None:
    session = wire.fresh("s")
    asks = Rule(last_user="^ask$", tool_calls=[{"name": "ask_user", "arguments": {"question": "Which?"}}], times=1)
    model.rules([asks, Rule(anywhere="by the way", text="Both known.")])
    turn = server.say(session, "ask", skill="asker")
    server.wait(lambda: server.task(turn)["status"]["state"] == "TASK_STATE_INPUT_REQUIRED")
    with Client(server.url) as client, Chat(client, session, Screen()) as chat, ThreadPoolExecutor(1) as aside:
        chat.find_question()
        done = aside.submit(obey, chat, "/steer by the way")
        server.wait(lambda: "by the way" in turns.said(server, session))
        assert chat.asked and server.task(turn)["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        server.say(session, "this one", task_id=turn)
        done.result(20)
    assert turns.answer(server, turn) == "Both known."
