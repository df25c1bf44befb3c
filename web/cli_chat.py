"""One session as its user sees it: sends messages, streams answers, follows jobs, brings their briefings.

What was said and what has ended is read from the server's log and rows; events only say when to look, and bring an
answer's text while it grows. So a lost event costs a moment and never an answer. What the server decides is not decided
here again.
"""

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple, Self
from uuid import uuid4

from background.text import clean as storable
from web.cli_screen import Board, Screen
from web.cli_views import ENDED
from web.client import Away, Client, ClientError, Refused, session_path
from web.client_events import Event, Stream

Messages = list[dict[str, Any]]

# How often to look even though nothing was heard.
LOOK_S = 5.0
# For how long nothing is heard before the server is asked whether something is wrong with it.
QUIET_S = 5.0
# How long a server may be away before waiting for it ends.
AWAY_S = 120.0
# A job that has ended is briefed within moments, or else not before the session's next turn.
BRIEFING_S = 30.0
# What is said of incognito work that has ended.
UNTOLD = "It is incognito, so it is told with your next message here. Its report: outrider job {} --report"
# After these events some may be missing.
GAPS = ("lost", "reset")
# A message that may or may not have arrived is sent again; its id makes it one message.
SEND_TRIES, SEND_AGAIN_S = 3, 0.5


class Opened(NamedTuple):
    """A session: whether it was made just now, and whether a turn of it waits for an answer."""

    id: str
    new: bool
    parked: bool


def open_session(client: Client, session: str | None, *, incognito: bool = False) -> Opened:
    """The session of this id; made without an id, or with one that is not there yet.

    An `incognito` one is made so; the server refuses one that is there and is not.
    """
    if session:
        try:
            found = client.get(session_path(session))
            if found.get("incognito") or not incognito:
                return Opened(session, False, bool(found.get("parked")))
        except Refused as problem:
            if problem.status != 404:
                raise
    asked = {"id": session or None, "incognito": incognito or None}
    made = client.post("/api/sessions", {name: value for name, value in asked.items() if value})
    return Opened(made["id"], True, False)


def say_once(client: Client, session: str | None, text: str, *, steer: bool = False, incognito: bool = False) -> int:
    """Sends one message, shows its answer and then what its jobs bring. Returns the exit code."""
    screen = Screen()
    session, new, parked = open_session(client, session, incognito=incognito)
    if new:
        screen.note(f"session {session}{', incognito' if incognito else ''}")
    completed = False
    with Chat(client, session, screen, lines=False) as chat:
        try:
            if parked and not steer:
                chat.find_question()
            completed = chat.say(text, steer=steer)
            chat.follow()
        except KeyboardInterrupt:
            screen.note(f"Left; what runs goes on. {come_back(session)}")
    return 0 if completed else 1


def come_back(session: str) -> str:
    """How to find a session again."""
    return f"Come back with: outrider chat --session {session}"


class Chat:
    """A session, its open stream of events, and what of it has been shown. Methods raise `Away` and `Refused`."""

    def __init__(self, client: Client, session: str, screen: Screen, *, lines: bool = True) -> None:
        self.client = client
        self._lines = lines  # whether another line can be typed here
        self.session = session
        self.screen = screen
        self.shown: set[str] = set()  # tasks whose answer has been printed
        self.owed: set[str] = set()  # tasks of the user's whose answer has not
        self.out: set[str] = set()  # jobs that are out, or back and not told
        self.asked: dict[str, Any] | None = (
            None  # the entry of the log that asks and is not answered; what is said next answers it
        )
        self._patience = Patience(BRIEFING_S)
        self._heard_at = time.monotonic()
        self._problems: list[str] = []  # of the server, as they were last told
        self._stream = Stream(client, session)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    # --- a turn -----------------------------------------------------------------------------------------------------

    def say(self, text: str, *, steer: bool = False) -> bool:
        """Sends a message and prints the answer as it comes. Returns whether the turn completed.

        One that is to `steer` the turn that runs answers nothing, and where that turn takes it up, its answer is waited for.
        """
        task = self._send({"text": storable(text), "steer": True} if steer else self._said(storable(text)))
        self._heard_at = time.monotonic()
        self.owed.add(task)
        streamed, log = self._hear(task)
        if not streamed:
            self._late_answers(but=task)
        if into := taken_up_by(log, task):
            self.screen.note("Taken up by the turn that runs.")
            self._owe_instead(task, into)
            task = into
            streamed, log = self._hear(task, whole=False)
        if open_question(log, task):
            self.screen.answer(answer(log, task))
        else:
            self._complete(streamed, answer(log, task))
        return self._close(task, log)

    def find_question(self) -> None:
        """Looks for a turn of this session that waits for an answer."""
        self.asked = next((message for message in reversed(self.log()) if message.get("question")), None)

    def _owe_instead(self, task: str, into: str) -> None:
        self.owed.discard(task)
        self.owed |= {into} - self.shown

    def _send(self, said: dict[str, Any]) -> str:
        body = {**said, "message_id": uuid4().hex}
        for left in reversed(range(SEND_TRIES)):
            try:
                task = self.client.post(f"{session_path(self.session)}/messages", body)["task_id"]
                self.asked = self.asked if "steer" in said else None
                return task
            except Away:
                if not left:
                    raise
                time.sleep(SEND_AGAIN_S)
        raise AssertionError("unreachable")

    def _said(self, text: str) -> dict[str, Any]:
        """What is sent for a line: a message, or the answer to what is asked; a form's is JSON, if it can be read as such."""
        if self.asked is None:
            return {"text": text}
        question = self.asked["question"]
        answer: dict[str, Any] = {"text": text}
        if question["kind"] == "form":
            with suppress(ValueError):
                answer = {"data": json.loads(text)}
        return {**answer, "task_id": self.asked["task_id"], "question": question["question"]}

    def _hear(self, task: str, *, whole: bool = True) -> tuple[str, Messages]:
        """Prints the turn's text as it comes, until it has ended. Returns what was printed, and the log then.

        Not `whole` for one that has begun to speak before: all of it is then read from the log.
        """
        printed: list[str] = []
        attempt = None
        while True:
            event = self._next(LOOK_S)
            if event and event.name == "turn.delta":
                if event.data["task_id"] != task:
                    continue
                attempt = attempt or event.data.get("attempt")
                whole = whole and event.data.get("attempt") == attempt  # asked again, a model begins its text anew
                if whole:
                    printed.append(event.data["text"])
                    self.screen.piece(event.data["text"])
                continue
            if event and event.name == "turn.finished" and event.data["task_id"] != task:
                self._late_answers(but=task)  # those before it in its lane, before its own begins
            if event and event.name in GAPS:
                whole = False  # the pieces no longer join: the rest of the text comes from the log
            if (event is None or event.name in (*GAPS, "turn.finished")) and (log := self._log_of_end(task)):
                return "".join(printed), log

    def _log_of_end(self, task: str) -> Messages | None:
        try:
            log = self.log()
        except Away as away:
            self._bear(away)
            return None
        return log if has_ended(log, task) or open_question(log, task) else None

    def _complete(self, streamed: str, text: str) -> None:
        """Brings what was printed up to what the log says; earlier remarks of the turn may stand before its answer."""
        if text.startswith(streamed):
            self.screen.piece(text[len(streamed) :])
        elif not squeezed(streamed).endswith(squeezed(text)):
            self.screen.note("The answer that was kept is another than the one above:")
            self.screen.answer(text)
        self.screen.end_line()

    def _close(self, task: str, log: Messages) -> bool:
        """After its answer was printed: what the turn sent out, and how it ended. Returns whether it completed."""
        self.owed.discard(task)
        self.asked = open_question(log, task) or self.asked
        if self.asked and self.asked["task_id"] == task:
            self.screen.note(how_to_answer(self.asked["question"], None if self._lines else self.session))
            return False
        self.shown.add(task)
        self._sent_out(task, log)
        return self.tell_end(task, log)

    def tell_end(self, task: str, log: Messages) -> bool:
        """Says so if the turn ended otherwise than by completing. Returns whether it completed."""
        end, reason = outcome(log, task)
        if end in ENDED and end != "completed":
            why = " — ".join(filter(None, (reason, detail(log, task))))
            self.screen.note(f"The turn ended {end}{f': {why}' if why else ''}")
        return end == "completed"

    # --- jobs and briefings -----------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Shows the jobs that are out until all have ended and been told."""
        if self.out:
            with Board(self.screen, lively=self.screen.lively) as board:
                while self.look(board):
                    self.listen(LOOK_S)

    def look(self, board: Board) -> bool:
        """Shows what has changed, and prints what is new. Returns whether anything is left to wait for."""
        try:
            self._late_answers()
            asked = set(self.out)
            jobs = self.jobs(asked)
            board.show(jobs)
            self._briefings(jobs)
        except Away as away:
            self._bear(away)
            return True
        self._settle(asked, jobs)
        return bool(self.out or self.owed)

    def _late_answers(self, but: str | None = None) -> None:
        """Answers that nobody waited for to their end, in the log's order; all `but` the one that is printed elsewhere."""
        late = self.owed - {but}
        log = self.log() if late else []
        for task in [task for task in dict.fromkeys(message["task_id"] for message in log) if task in late]:
            if into := taken_up_by(log, task):
                self._owe_instead(task, into)
            elif has_ended(log, task) or open_question(log, task):
                self.screen.answer(answer(log, task))
                self._close(task, log)

    def _briefings(self, jobs: Iterable[dict[str, Any]]) -> None:
        """The answers of the turns that told of these jobs, each once."""
        tasks = dict.fromkeys(job["notified_in"] for job in jobs if job["notified"])
        if fresh := [task for task in tasks if task and task not in self.shown]:
            log = self.log()
            for task in fresh:
                self.screen.answer(answer(log, task))
                self._close(task, log)

    def _settle(self, asked: set[str], jobs: Iterable[dict[str, Any]]) -> None:
        """Waits no longer for what was told or is gone, nor for ever for what may wait for the session's next turn."""
        for job in (job for job in jobs if job.get("incognito") and is_pending(job)):
            self.out.discard(job["id"])
            self.screen.note(f"{job['id']} has ended: {job['status']}. {UNTOLD.format(job['id'])}")
        left = {job["id"]: is_pending(job) for job in jobs if job["id"] in self.out and not is_told(job)}
        self.out -= asked - left.keys()
        if left and all(left.values()) and self.out == left.keys() and self._patience.over(sorted(left)):
            self.screen.note(f"No briefing yet: it may wait for the session's next turn. {come_back(self.session)}")
            self.out.clear()

    def _sent_out(self, task: str, log: Messages) -> None:
        """Says which jobs this turn sent out, and follows them. Jobs that it only told of are not among them."""
        named = {job for message in said(log, task) for job in message["job_ids"]}
        fresh = [
            job["id"]
            for job in self.jobs()
            if (job["id"] in named or job["batch_id"] == task) and job["notified_in"] != task
        ]
        if fresh:
            self.out |= set(fresh)
            self.screen.note(f"Sent out {len(fresh)} job{'s' if len(fresh) > 1 else ''}: {', '.join(fresh)}")

    def jobs(self, ids: Iterable[str] | None = None) -> list[dict[str, Any]]:
        """The session's jobs, oldest first; with `ids` only these, and no more pages than they need."""
        left: set[str] | None = None if ids is None else set(ids)
        found: list[dict[str, Any]] = []
        pages = self.client.pages("/api/background", "jobs", session=self.session, limit=200)
        while left is None or left:
            if (job := next(pages, None)) is None:
                break
            if left is None or job["id"] in left:
                found.append(job)
                left = left and left - {job["id"]}
        # The server lists the newest first, and knows the order of jobs that bear the same millisecond.
        return found[::-1]

    # --- listening --------------------------------------------------------------------------------------------------

    def listen(self, timeout: float) -> Event | None:
        """The next event that is more than a piece of text; None after so many seconds, or when woken."""
        until = time.monotonic() + timeout
        while (left := until - time.monotonic()) > 0:
            event = self._next(left)
            if event is None or event.name != "turn.delta":
                return event
        return None

    def _next(self, timeout: float) -> Event | None:
        """The next event. Where something is waited for and none has come for long, what is wrong is said."""
        event = self._stream.next(timeout)
        if event:
            self._heard_at = time.monotonic()
        elif (self.owed or self.out) and time.monotonic() - self._heard_at >= QUIET_S:
            self._heard_at = time.monotonic()
            self._tell_problems()
        return event

    def _tell_problems(self) -> None:
        """Says what the server says is wrong with it, once until that changes."""
        try:
            found = self.client.get("/api/status").get("problems") or []
        except ClientError:
            return  # whether the server is away for too long is decided elsewhere, and the wait needs no status
        if found and found != self._problems:
            self.screen.note(" ".join(map(str, found)), amid=True)
        self._problems = found

    def wake(self) -> None:
        """Ends the `listen` of another thread."""
        self._stream.wake()

    def log(self) -> Messages:
        """All that was said in the session, oldest first."""
        pages = self.client.pages(f"{session_path(self.session)}/messages", "messages", limit=200)
        # What is said while the pages are read may push a message onto two of them.
        once = {message["id"]: message for message in pages}
        return sorted(once.values(), key=lambda message: (message["created_at"], message["id"]))

    def _bear(self, away: Away) -> None:
        """The server may be away for a while; past that its absence is raised."""
        if self._stream.away_s > AWAY_S:
            raise away


class Patience:
    """How long the same thing may be seen."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._seen: object = None
        self._since = 0.0

    def over(self, seen: object) -> bool:
        """Whether this, and nothing else, has been seen for so long."""
        now = time.monotonic()
        if seen != self._seen:
            self._seen, self._since = seen, now
        return now - self._since >= self._seconds


def said(log: Messages, task: str) -> Messages:
    """What the agent said in a turn."""
    return [message for message in log if message["task_id"] == task and message["kind"] == "agent"]


def answer(log: Messages, task: str) -> str:
    """A turn's answer, as it was kept; or what it asks. What it asked before, and was answered, is not it."""
    return "\n\n".join(map(_in_words, said(log, task)[-1:]))


def _in_words(message: dict[str, Any]) -> str:
    """What an entry says, of an approval all of what would be done; of a form also its schema."""
    schema = (message.get("question") or {}).get("schema")
    form = json.dumps(schema, ensure_ascii=False) if schema else ""
    return "\n\n".join(filter(None, [message["text"], form, *_beside(message)]))


def _beside(message: dict[str, Any]) -> Iterator[str]:
    """What of an answer is no text: its data, and which files there are."""
    for part in (part for artifact in message.get("artifacts") or () for part in artifact["parts"]):
        if part["kind"] == "data":
            yield part["text"] + ("…" if part["cut"] else "")
        elif part["kind"] != "text":
            size = f"{part['bytes']} bytes" if "bytes" in part else None
            about = filter(None, (part["name"], part["media_type"], size, part.get("url"), part.get("href")))
            yield f"[{part['kind']}: {', '.join(about)}]"


def open_question(log: Messages, task: str) -> dict[str, Any] | None:
    """The entry with which a turn asks its user, while it waits for the answer."""
    return next((message for message in reversed(said(log, task)) if message.get("question")), None)


def how_to_answer(question: dict[str, Any], session: str | None = None) -> str:
    """What is to be typed next, in words; with a `session` there is no next line here, and how it is answered is said."""
    ways = {"approval": "approve or deny", "form": "JSON that fits the schema above"}
    way = ways.get(question["kind"], "your next line" if session is None else "")
    told = f"It waits for your answer{f': {way}' if way else ''}."
    return told if session is None else f'{told} Give it with: outrider chat --session {session} "…"'


def outcome(log: Messages, task: str) -> tuple[str, str]:
    """A turn's state, and the reason of its end if it has one."""
    ends = [message for message in log if message["task_id"] == task and message.get("state")]
    return (ends[-1]["state"], ends[-1].get("reason") or "") if ends else ("", "")


def detail(log: Messages, task: str) -> str:
    """The sentence that says why a turn ended so, if there is one; it stands at what the agent said."""
    return next((message["detail"] for message in reversed(said(log, task)) if message.get("detail")), "")


def taken_up_by(log: Messages, task: str) -> str | None:
    """The turn that took up what was said, where it did not become a turn of its own."""
    return next(
        (message["folded_into"] for message in log if message["task_id"] == task and message.get("folded_into")), None
    )


def has_ended(log: Messages, task: str) -> bool:
    """Whether the turn is over. A task's ends bear the names of a job's."""
    return outcome(log, task)[0] in ENDED


def squeezed(text: str) -> str:
    """The text without its spaces: how pieces are joined is no difference."""
    return "".join(text.split())


def is_told(job: dict[str, Any]) -> bool:
    """Whether nothing more comes of the job: it was briefed, it cannot be, or its user stopped it and wants no word."""
    over = job["delivery"]["state"] not in ("pending", "attached") or job["canceled_by"] == "user"
    return job["status"] in ENDED and over


def is_pending(job: dict[str, Any]) -> bool:
    """Whether the job has ended and no turn has taken it up."""
    return job["status"] in ENDED and job["delivery"]["state"] == "pending"
