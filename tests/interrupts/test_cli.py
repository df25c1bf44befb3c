"""At the command line a turn that asks says so, and the next line answers it."""

import subprocess
import sys

from tests.a2a import wire
from tests.interrupts import words
from tests.support.scripted import ScriptedModel
from tests.support.server import ROOT, Server
from tests.support.trial import Trial
from tests.web.test_cli import Terminal


def chat(server: Server, session: str, *text: str, lines: str = "") -> subprocess.CompletedProcess[str]:
    """`outrider chat` with this session: one message, or lines at its prompt."""
    command = [sys.executable, "-m", "web.cli", "chat", "--url", server.url, "--session", session, *text]
    return subprocess.run(command, cwd=ROOT, env=server.env, input=lines, capture_output=True, text=True, timeout=60)


def test_an_approval_is_shown_whole_and_given_with_the_next_message(
    server: Server, model: ScriptedModel, trial: Trial
) -> None:
    session = wire.fresh("s")
    model.rules([words.paying(5), words.ending("Paid.", last_tool="paid 5")])
    asked = chat(server, session, "pay")
    assert "wants to call pay" in asked.stdout and asked.stdout.count('"amount": 5') == 1
    told = f'approve or deny. Give it with: outrider chat --session {session} "…"\n'
    assert asked.stderr.endswith(told) and asked.returncode == 1
    refused = chat(server, session, "well, yes")
    assert refused.returncode == 2 and "approve or deny" in refused.stderr and trial.diary() == []
    answered = chat(server, session, "approve")
    assert (answered.returncode, answered.stdout.strip()) == (0, "Paid.") and trial.diary() == ["paid 5"]


def test_at_the_prompt_the_next_line_answers(server: Server, model: ScriptedModel, trial: Trial) -> None:
    session = wire.fresh("s")
    model.rules([words.paying(7), words.ending("As you wish.", last_tool="DENIED"), {"text": "Hello there."}])
    with Terminal(server, "chat", "--session", session) as terminal:  # type: ignore[arg-type]
        for line, shown in (("pay", "approve or deny"), ("deny", "As you wish."), ("hello", "Hello there.")):
            terminal.shows("› ")
            terminal.type(f"{line}\n")
            terminal.shows(shown)
    assert trial.diary() == []


def test_a_form_is_answered_with_json(server: Server) -> None:
    session = wire.fresh("s")
    words.asked(server, "form Your name?", "trial", contextId=session)
    assert chat(server, session, "Ada").returncode == 2
    answered = chat(server, session, '{"name": "Ada"}')
    assert (answered.returncode, answered.stdout.strip()) == (0, '{"name": "Ada"}')
