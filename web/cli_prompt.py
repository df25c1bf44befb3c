"""The interactive chat: a prompt, its few commands, and what arrives while somebody is at it.

One thread at a time listens: a turn does while it runs, and a teller does while the prompt waits for its next line.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from web.cli_chat import LOOK_S, Chat, come_back, has_ended, how_to_answer, is_told, open_question, open_session
from web.cli_screen import Board, Screen
from web.cli_views import clean, job_line, jobs_table, show
from web.client import Client, ClientError, job_path

try:
    import readline
except ImportError:  # a platform without it edits lines less well
    readline = None

PROMPT = "› "
HELP = "Commands: /jobs, /stop ID, /report ID, /steer TEXT, /quit. While an answer comes, Ctrl-C gives the prompt back for them"
ERASE_LINE = "\r\x1b[K"


def converse(client: Client, session: str | None, *, incognito: bool = False) -> int:
    """Asks for lines and answers them until the user leaves. Returns the exit code."""
    screen = Screen()
    session, new, parked = open_session(client, session, incognito=incognito)
    with Chat(client, session, screen) as chat:
        screen.note(f"session {session}{', incognito' if incognito else ''}. {HELP}")
        if not new:
            recall(chat)
        if parked:
            chat.find_question()
        board = Board(screen, lively=False)
        while (text := ask(chat, board)) != "/quit":
            obey(chat, text)
    screen.note(come_back(session))
    return 0


def recall(chat: Chat) -> None:
    """Shows a session from its user's last word on, and follows what is still out."""
    log = chat.log()
    asked = [number for number, message in enumerate(log) if message["kind"] == "user"]
    for message in log[asked[-1] if asked else 0 :]:
        if message["kind"] == "user":
            chat.screen.note(f"{PROMPT}{message['text']}")
            chat.tell_end(message["task_id"], log)
        elif message["kind"] in ("agent", "notice"):
            chat.screen.answer(message["text"])
            if message.get("question"):
                chat.screen.note(how_to_answer(message["question"]))
    tasks = {message["task_id"] for message in log if message["kind"] in ("user", "agent")}
    chat.shown |= {task for task in tasks if has_ended(log, task)}
    chat.owed |= {task for task in tasks - chat.shown if not open_question(log, task)}
    chat.out |= {job["id"] for job in chat.jobs() if not is_told(job)}


def ask(chat: Chat, board: Board) -> str:
    """The next line; `/quit` for the end of the input and for Ctrl-C."""
    try:
        catch_up(chat, board)
        with Teller(chat, board):
            return input(PROMPT).strip()
    except (EOFError, KeyboardInterrupt):
        print()
        return "/quit"


def catch_up(chat: Chat, board: Board) -> None:
    """Shows what is new, for as long as no prompt is in the way."""
    try:
        chat.look(board)
    except ClientError as problem:
        chat.screen.note(problem)


def obey(chat: Chat, text: str) -> None:
    """Does what one line says; what fails is said, and the chat goes on."""
    try:
        if text.startswith("/"):
            command(chat, text, *text.split())
        elif text:
            chat.say(text)
    except ClientError as problem:
        chat.screen.note(problem)
    except KeyboardInterrupt:
        chat.screen.note(
            "The turn goes on; its answer will be shown. /steer TEXT speaks to it." if chat.owed else "Left."
        )


def command(chat: Chat, line: str, name: str, *arguments: str) -> None:
    """One of the commands; anything else shows which there are."""
    match name, arguments:
        case "/steer", (_, *_):
            chat.say(line.removeprefix(name).strip(), steer=True)
        case "/jobs", ():
            if jobs := chat.jobs():
                show(jobs_table(jobs))
            else:
                chat.screen.note("No jobs.")
        case "/stop", (job,):
            chat.screen.note(job_line(chat.client.post(f"{job_path(job)}/cancel")))
        case "/report", (job,):
            chat.screen.answer(chat.client.content(f"{job_path(job)}/report").decode("utf-8", "replace"))
        case _:
            chat.screen.note(HELP)


class Teller(threading.Thread):
    """Tells of jobs and briefings while the prompt waits for a line."""

    def __init__(self, chat: Chat, board: Board) -> None:
        super().__init__(name="outrider-teller", daemon=True)
        self._chat = chat
        self._board = board
        self._over = threading.Event()
        self._beside = chat.screen.beside(self._above)

    def __enter__(self) -> None:
        self._beside.__enter__()
        self.start()

    def __exit__(self, *failure: Any) -> None:
        self._over.set()
        self._chat.wake()
        self.join()
        self._beside.__exit__(*failure)

    def run(self) -> None:
        try:
            while not self._over.is_set():
                event = self._chat.listen(LOOK_S)
                if event and event.name == "background.queued":
                    self._chat.out.add(event.data["id"])  # somebody else may send jobs out in this session too
                self._chat.look(self._board)
        except ClientError as problem:
            self._chat.screen.note(problem)

    @contextmanager
    def _above(self) -> Iterator[None]:
        """Takes the prompt away, and sets it again below what was printed meanwhile, with what stood typed at it."""
        if sys.stdout.isatty() and not self._over.is_set():
            sys.stdout.write(ERASE_LINE)
            sys.stdout.flush()
        yield
        if sys.stdout.isatty() and not self._over.is_set():
            typed = readline.get_line_buffer() if readline else ""
            sys.stdout.write(f"{PROMPT}{clean(typed)}")
            sys.stdout.flush()
