"""What else happens in the story of `story.py`: two tasks ask their user, and a session is erased with work in it.

In session `doubts` a model asks before it acts, two more messages come while it waits, between them one that steers, and
then the answer; another answer comes too late. In session `tale` a handler tells its answer in pieces and asks in the middle. A client listens to
both tasks and comes in again whenever its stream ends, and webhooks are called for both. In session `vault` a turn and a
job are held at work, a report is kept and calls wait that nobody takes, when all of it is erased.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.crash.listener import Frames, Listener
from tests.crash.mortal import Mortal
from tests.support.receiver import Answer, Received, Receiver
from tests.support.rules import Rule
from tests.support.scripted import Asked, ScriptedModel
from tests.support.server import ENDED
from tests.support.trial import Trial

DOUBTS, TALE, VAULT = "doubts", "tale", "vault-of-the-quaggamire"
NEVER = "never"  # a gate that nobody opens
PARKED = "TASK_STATE_INPUT_REQUIRED"
PROFILES = """
[profiles.asker]
description = "May ask its user."
tools = ["ask_user"]
"""
DOUBT, WHICH, CHOICE, CHOSEN = "HAVE DOUBTS, please.", "Which of the two?", "The left one.", "Then it is the left one."
BEHIND = {"m-behind-1": "FIRST BEHIND the question.", "m-behind-2": "SECOND BEHIND the question."}
BEHIND_ANSWERS = {"m-behind-1": "First after it.", "m-behind-2": "Second after it."}
BESIDE = {"m-beside": "BESIDE this, mind the gap."}
TOLD, HOW, SO = ("Once ", "upon ", "a time."), "How does it go on?", "Well."
TELL = f"fragment {TOLD[0]}; ask {HOW}; sleep 0.03; fragment {TOLD[1]}; sleep 0.03; fragment {TOLD[2]}"
WHOLE = "\n".join((TOLD[0], SO, TOLD[1], TOLD[2]))
ASKING = {"m-doubts": DOUBT, "m-tale": TELL}
ANSWERING = {"m-choice": CHOICE, "m-so": SO}
CONFIDED, HIDDEN = "I CONFIDE this: it lies in the quaggamire.", "The quaggamire lies behind the old mill."
HIDDEN_WORD = "quaggamir"  # as a stemmer leaves it
KEPT, UNFINISHED = "sigma", "tau"  # the jobs of the vault

RULES = [
    Rule(last_user=f"Work on {KEPT}", text=HIDDEN),
    Rule(last_user=f"Work on {UNFINISHED}", gate=NEVER),
    Rule(last_user=f"<description>{KEPT}", gate=NEVER),
    Rule(last_user="I CONFIDE", text="It is safe here."),
    Rule(last_user=DOUBT, tool_calls=[{"name": "ask_user", "arguments": {"question": WHICH}}]),
    Rule(last_user="^BESIDE", text=CHOSEN),
    *[Rule(last_user=text, text=BEHIND_ANSWERS[message_id]) for message_id, text in BEHIND.items()],
]
Deed = tuple[str, Callable[[], bool], Callable[[], object]]


class Hooks(Receiver):
    """Takes webhook calls, a path a session. The first on each path is refused, and the vault's always are.

    What breaks off because its sender has died is no call.
    """

    def take(self, received: Received) -> Answer:
        if len(received.body) < int(received.headers["content-length"]):
            return Answer(cut=True)
        first = all(call.path != received.path for call in self.calls)
        answer = super().take(received)
        return Answer(503) if first or received.path.endswith(VAULT) else answer


@dataclass
class Erased:
    """The vault as it was when its erasure was answered, and what was to be seen of it at the end."""

    task_id: str
    job_ids: list[str]
    at: float  # seconds of the clock that `Asked` has
    calls: int  # how many its webhook had had
    next_life_at: float | None = None  # when the server lived again after its next end
    still_there: list[str] = field(default_factory=list)


@dataclass
class Heard:
    """What came of it all: what the listeners were told by session, what the webhooks were, how late answers were taken."""

    told: dict[str, list[Frames]]
    called: list[Received]
    late: list[dict[str, Any]]
    erased: Erased


@dataclass
class Interludes:
    """What the users do here, one deed after the other. `done` and `tasks` (by message id) are the story's."""

    server: Mortal
    other: Mortal
    model: ScriptedModel
    tasks: dict[str, str]
    done: set[str]
    hooks: Hooks = field(default_factory=Hooks)
    listeners: dict[str, Listener] = field(default_factory=dict)
    erased: Erased | None = None
    _jobs: list[str] = field(default_factory=list)
    _late: list[dict[str, Any]] = field(default_factory=list)
    _asking: set[str] = field(default_factory=set)
    _erasing: bool = False

    def __post_init__(self) -> None:
        self.hooks.up()

    @staticmethod
    def env(data: Path) -> dict[str, str]:
        """The settings of a server for this; its data folder is made, with the profiles in it."""
        trial = Trial(data.parent)
        trial.data(data, PROFILES)
        allowed = {"OUTRIDER_WEBHOOK_ALLOW": "127.0.0.1"}
        return trial.env("chat,asker,trial", **allowed)

    def close(self) -> None:
        """After the servers."""
        for listener in self.listeners.values():
            listener.leave()
        self.hooks.down()

    def deeds(self) -> list[Deed]:
        return [
            ("have doubts", lambda: True, lambda: self._begin(DOUBTS, "m-doubts", "asker", self.server)),
            ("first behind", lambda: self._has_asked("m-doubts"), lambda: self._say("m-behind-1")),
            ("beside", self._is_done("first behind"), lambda: self._say("m-beside", steer=True)),
            ("second behind", self._is_done("beside"), lambda: self._say("m-behind-2")),
            ("choose", self._may_choose, lambda: self._answer(DOUBTS, "m-doubts", "m-choice")),
            ("choose too late", self._is_done("choose"), self._answer_again),
            ("tell", lambda: True, lambda: self._begin(TALE, "m-tale", "trial", self.other)),
            ("go on", self._may_go_on, lambda: self._answer(TALE, "m-tale", "m-so")),
            ("confide", lambda: True, lambda: self._begin(VAULT, "m-confided", "chat", None)),
            ("bury", self._is_done("confide"), self._bury),
            ("erase", self._is_buried, self._erase),
        ]

    def reborn(self) -> None:
        """The server is there again."""
        if self.erased and self.erased.next_life_at is None:
            self.erased.next_life_at = time.monotonic()

    def at_rest(self) -> bool:
        """Nobody listens any more, and nobody works on what was erased."""
        listening = any(listener.is_alive() for listener in self.listeners.values())
        return not listening and all(asked.answered_at or asked.gone_at for asked in self.model.requests())

    def look(self) -> Heard:
        assert self.erased
        self.erased.still_there = self._still_there(self.erased)
        told = {session: listener.heard for session, listener in self.listeners.items()}
        return Heard(told, list(self.hooks.calls), self._late, self.erased)

    def _is_done(self, deed: str) -> Callable[[], bool]:
        return lambda: deed in self.done

    def _begin(self, session: str, message_id: str, skill: str, listened_to: Mortal | None) -> None:
        """A new task with a webhook, and with a listener if there is to be one; where it lives along, on that server."""
        text = (ASKING | {"m-confided": CONFIDED})[message_id]
        webhook = {"taskPushNotificationConfig": {"url": f"{self.hooks.url}/{session}"}}
        task = self._send(session, message_id, text, {"metadata": {"skill": skill}}, webhook)
        self.tasks[message_id] = task["id"]
        if listened_to:
            server = listened_to if listened_to.running else self.server
            self.listeners[session] = Listener(server.url, task["id"])

    def _say(self, message_id: str, **how: bool) -> None:
        text = (BEHIND | BESIDE)[message_id]
        self.tasks[message_id] = self.server.say(DOUBTS, text, message_id=message_id, skill="asker", **how)

    def _has_asked(self, message_id: str) -> bool:
        """Whether its task was seen to wait for an answer; it does no more where the answer came and was lost on its way."""
        if message_id in self.tasks and self._task(message_id)["status"]["state"] == PARKED:
            self._asking.add(message_id)
        return message_id in self._asking

    def _task(self, message_id: str) -> dict[str, Any]:
        return self.server.task(self.tasks[message_id])

    def _may_choose(self) -> bool:
        return "second behind" in self.done and bool(self.listeners[DOUBTS].heard)

    def _may_go_on(self) -> bool:
        return self._has_asked("m-tale") and bool(self.listeners[TALE].heard)

    def _answer(self, session: str, message_id: str, answer_id: str) -> None:
        self._send(session, answer_id, ANSWERING[answer_id], {"taskId": self.tasks[message_id]})

    def _answer_again(self) -> None:
        """In a message of its own, with the mark of the question that was answered before."""
        (asked,) = [said for said in self._task("m-doubts")["history"] if "question" in said.get("metadata", {})]
        mark = {"question": asked["metadata"]["question"]}
        answer = self._post(DOUBTS, "m-late", "The right one.", {"taskId": self.tasks["m-doubts"], "metadata": mark})
        self._late.append(answer)

    def _bury(self) -> None:
        for name in (KEPT, UNFINISHED):
            errand = {"prompt": f"Work on {name}.", "description": name, "subagent_type": "general"}
            job_id = self.server.spawn(VAULT, key=f"script-{name}", **errand)["id"]
            self._jobs += [job_id] if job_id not in self._jobs else []

    def _is_buried(self) -> bool:
        """Its report is about to be told, its other job at work, and its webhook was called in vain; whatever came then."""
        held = [asked.last_user for asked in self.model.requests() if asked.gate == NEVER]
        waits = all(any(words in text for text in held) for words in (f"<description>{KEPT}", f"Work on {UNFINISHED}"))
        return waits and any(call.path.endswith(VAULT) for call in list(self.hooks.calls))

    def _erase(self) -> None:
        again, self._erasing = self._erasing, True
        answer = self.server.http.delete(f"/api/sessions/{VAULT}")
        assert answer.status_code == 202 or (again and answer.status_code == 404), answer.text
        calls = sum(call.path.endswith(VAULT) for call in list(self.hooks.calls))
        self.erased = Erased(self.tasks["m-confided"], self._jobs, time.monotonic(), calls)

    def _still_there(self, erased: Erased) -> list[str]:
        """Where it can be seen; what a client would look at."""
        paths = [f"/api/sessions/{VAULT}", f"/api/sessions/{VAULT}/messages", f"/api/sessions/{VAULT}/export"]
        paths += [f"/api/background/{job_id}" for job_id in erased.job_ids]
        found = [path for path in paths if self.server.http.get(path).status_code != 404]
        if "result" in (answer := self.server.rpc("GetTask", {"id": erased.task_id})):
            found.append(f"{answer['result']}")
        listed = self.server.get("/api/sessions", limit=200)["sessions"]
        found += [f"{session}" for session in listed if session["id"] == VAULT]
        webhooks = self.server.get("/api/webhooks", limit=200)["webhooks"]
        found += [f"{webhook}" for webhook in webhooks if webhook["task_id"] == erased.task_id]
        hits = self.server.get("/api/knowledge/search", q="old mill quaggamire")["hits"]
        return found + [f"{hit}" for hit in hits if hit["job_id"] in erased.job_ids]

    def _send(self, session: str, message_id: str, text: str, more: dict[str, Any], how: Any = None) -> dict[str, Any]:
        """A message that must be taken; its task, which is not waited for."""
        answer = self._post(session, message_id, text, more, how)
        assert "result" in answer, answer
        return answer["result"]["task"]

    def _post(self, session: str, message_id: str, text: str, more: dict[str, Any], how: Any = None) -> dict[str, Any]:
        message = {
            "messageId": message_id,
            "contextId": session,
            "role": "ROLE_USER",
            "parts": [{"text": text}],
            **more,
        }
        configuration = {"returnImmediately": True, **(how or {})}
        return self.server.rpc("SendMessage", {"message": message, "configuration": configuration})


def is_of_the_vault(asked: Asked) -> bool:
    """Whether a model was asked this for the vault: for one of its turns, or of its jobs."""
    return any(words in asked.text for words in (CONFIDED, f"Work on {KEPT}", f"Work on {UNFINISHED}"))


def has_ended(task: dict[str, Any]) -> bool:
    return task["status"]["state"] in ENDED
