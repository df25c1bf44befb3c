"""What happens between two people and a server that is killed now and then: the model's part, and the users'.

In session `chat` a user sends four subagents out in one turn, over two steps whose tool calls bear the same id; one
of them can never succeed. A script sends one more out there. While they work the user asks something, and the turn
that answers is held until a nudge waits for it to take up. In session `errand` another lone job goes out and comes
back, and the model is down for the turn that is to tell of it, until that has failed. In session `whims` a script sends
two out; its user has one done again, cancels the other, cancels the turn in which that is told, and then asks. What
happens beside all this is in `interludes.py`.

Whoever speaks with the server repeats what was not answered, with the same id, as a client does; and looks first where
there is no id.
"""

import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.crash import interludes
from tests.crash.interludes import BEHIND, BESIDE, CONFIDED, DOUBT, DOUBTS, NEVER, TALE, VAULT, Heard, Interludes
from tests.crash.mortal import Lost, Mortal
from tests.crash.plan import Calm, Kill, Plan
from tests.support.life import Cradle
from tests.support.rules import Rule
from tests.support.scripted import Asked, ScriptedModel

CHAT, ERRAND, WHIMS = "chat", "errand", "whims"
FAN_OUT, LONE, QUESTION = "FAN OUT, please.", "RUN AN ERRAND, please.", "QUESTION: what is known so far?"
MUSING, ELSE = "MUSE about it at length.", "ANYTHING ELSE?"
USER_MESSAGES = {"m-fan-out": FAN_OUT, "m-lone": LONE, "m-question": QUESTION, "m-musing": MUSING, "m-else": ELSE}
USER_MESSAGES |= BEHIND | BESIDE
WORKS = ("alpha", "beta", "gamma", "epsilon", "omega", "kappa")
HOPELESS, UNWANTED, AGAIN = "delta", "zeta", "kappa"
JOBS = {CHAT: {"alpha", "beta", "gamma", "delta", "epsilon"}, ERRAND: {"omega"}, WHIMS: {"zeta", "kappa"}}
SESSIONS = (*JOBS, DOUBTS, TALE)
BRIEFING, OUT, ONE_OUT, ANSWER = "Briefing: this came back.", "Four are out.", "One is out.", "Answer: this is known."
NOTHING_ELSE = "Nothing else."
SAME_ID = "call_1"  # providers number the calls of each answer anew
BOUND_S = 60.0  # after which a story that has not come to rest is stuck
PAUSE_S = 0.02


def report_of(name: str) -> str:
    """The report of a job that succeeds: what its model says."""
    return f"Report on {name}. {_DETAILS[name]}".strip()


_DETAILS = dict.fromkeys(WORKS, "") | {"alpha": "\n\n" + "## Findings\n\nMuch was found out about alpha. " * 150}


def _sends(tool: str, **arguments: Any) -> list[dict[str, Any]]:
    return [{"id": SAME_ID, "name": tool, "arguments": arguments}]


def _spec(name: str) -> dict[str, str]:
    return {"description": name, "prompt": f"Work on {name}.", "subagent_type": "general"}


# What it finds grows with every report that comes in: a call that is made again is answered differently.
RECALL = _sends("memory_recall", query="report", limit=20)
RULES = [
    *interludes.RULES,
    # Workers: each is known by its prompt.
    Rule(last_user=f"Work on {HOPELESS}", status=500, text="the provider is down"),
    Rule(last_user="Work on beta", tool_calls=RECALL),
    Rule(last_user="Work on omega", text=report_of("omega")),
    Rule(last_user=f"Work on {AGAIN}", text=report_of(AGAIN)),
    Rule(last_user=f"Work on {UNWANTED}", gate=NEVER),
    *[Rule(last_user=f"Work on {name}", text=report_of(name), gate="work") for name in ("alpha", "gamma", "epsilon")],
    Rule(anywhere=r"\AYou work detached[\s\S]*Work on beta", text=report_of("beta"), gate="work"),
    # Ends of jobs, however they come: as a turn of their own, or into one that runs.
    Rule(last_user="<description>omega", status=500, text="the provider is down", until="the model is up again"),
    Rule(last_user=f"<description>(omega|{AGAIN})", text=BRIEFING),
    Rule(last_user="<task-notification>", text=BRIEFING, gate="briefing"),
    # The user's turns.
    Rule(
        last_user=FAN_OUT,
        tool_calls=_sends("task_batch", tasks=[*map(_spec, ("alpha", "beta", "gamma"))], run_in_background=True),
    ),
    Rule(last_tool=r"gamma \(sent out\)", tool_calls=_sends("task", **_spec(HOPELESS), run_in_background=True)),
    Rule(last_tool=r"delta \(sent out\)", text=OUT),
    Rule(last_user=LONE, tool_calls=_sends("task", **_spec("omega"), run_in_background=True)),
    Rule(last_tool=r"omega \(sent out\)", text=ONE_OUT),
    Rule(last_user="QUESTION", tool_calls=RECALL, gate="question"),
    Rule(last_tool="Reference material|Nothing found", text=ANSWER),
    Rule(last_user="MUSE", gate=NEVER),
    Rule(last_user=ELSE, text=NOTHING_ELSE),
]


@dataclass
class Lane:
    """What it takes to tell stories, one after the other."""

    cradle: Cradle
    model: ScriptedModel

    @classmethod
    @contextmanager
    def open(cls, cradle: Cradle) -> Iterator["Lane"]:
        with ScriptedModel() as model:
            yield cls(cradle, model)


@dataclass
class Seen:
    """What a story came to, as its users and its model saw it: the answers of the public routes, and the requests."""

    jobs: dict[str, list[dict[str, Any]]]
    messages: dict[str, list[dict[str, Any]]]
    tasks: dict[str, dict[str, Any]]
    asked: list[Asked]
    heard: Heard
    left_behind: list[str]  # what servers that ended themselves still held then, as the registry says


@dataclass
class Story:
    """One telling. The servers are dead before it and after it; `deaths` are the kills that found something to end.

    `server` is the one that is killed and the one that is spoken to; `other` lives beside it where the plan says so.
    """

    server: Mortal
    other: Mortal
    model: ScriptedModel
    deaths: list[str] = field(default_factory=list)
    seconds: float = 0
    left_behind: list[str] = field(default_factory=list)
    _done: set[str] = field(default_factory=set)
    _tasks: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._beside = Interludes(self.server, self.other, self.model, self._tasks, self._done)

    @classmethod
    def make(cls, lane: Lane, data: Path) -> "Story":
        lane.model.rules(RULES)
        env = Interludes.env(data)
        server, other = (Mortal(lane.cradle, data, lane.model, **env) for _ in range(2))
        return cls(server, other, lane.model)

    def close(self) -> None:
        self.server.close()
        self.other.close()
        self._beside.close()

    def tell(self, plan: Plan) -> Seen:
        """Live through all lives of a plan, and one more that comes to rest. AssertionError if none ever does."""
        began = time.monotonic()
        seen = None
        if plan.beside:
            assert self.other.begin()
        for kill in (*plan.kills, Kill()):
            if seen := self._live(kill, began):
                break  # at the latest in the life that nothing ends; a kill that comes later finds nothing to do
            self.deaths.append(str(kill))
            self.left_behind += held_by_nobody(self.server) if kill.stop else []
        assert seen, "it died without being killed"
        self.seconds = time.monotonic() - began
        assert self.other.running == plan.beside, "the other server died"
        self.server.kill()
        self.other.kill()
        return seen

    def calm(self) -> Calm:
        """What this story committed in the time it took."""
        return Calm.of(self.server.diary.read_text().splitlines(), self.seconds)

    def _live(self, kill: Kill, began: float) -> Seen | None:
        """One life: what was to be seen once the story had come to rest, or None if it was killed before."""
        if not self.server.begin(kill.doom, kill.after_s, stop=kill.stop):
            return None
        self._beside.reborn()
        try:
            while not self._step():
                assert time.monotonic() < began + BOUND_S, f"no rest after {BOUND_S} s\n{self._state()}"
                time.sleep(PAUSE_S)
                if not self.server.running:
                    return None
            return self._look()
        except Lost:
            if not self.server.dead():
                raise
            return None

    def _step(self) -> bool:
        """Do whatever is due and not done; True once everything has come to rest."""
        for deed, due, do in self._deeds():
            if deed not in self._done and due():
                do()
                self._done.add(deed)
        return len(self._done) == len(self._deeds()) and self._at_rest()

    def _deeds(self) -> list[tuple[str, Callable[[], bool], Callable[[], object]]]:
        return [
            ("fan out", lambda: True, lambda: self._say(CHAT, "m-fan-out")),
            ("lone", lambda: True, lambda: self._say(ERRAND, "m-lone")),
            ("script", self._fanned_out, lambda: self.server.spawn(CHAT, **_by_script("epsilon"))),
            ("question", lambda: self._asked("Work on"), lambda: self._say(CHAT, "m-question")),
            ("let work end", lambda: "question" in self._done, lambda: self.model.open("work")),
            ("let the question be answered", self._nudge_waits_for("QUESTION"), lambda: self.model.open("question")),
            ("let the briefing be given", self._nudge_waits_for("<task-not"), lambda: self.model.open("briefing")),
            ("let the model be up again", self._briefing_failed, lambda: self.model.open("the model is up again")),
            *self._whims(),
            *self._beside.deeds(),
        ]

    def _whims(self) -> list[tuple[str, Callable[[], bool], Callable[[], object]]]:
        return [
            ("open whims", lambda: True, lambda: self.server.post("/api/sessions", id=WHIMS)),
            ("unwanted", lambda: True, lambda: self.server.spawn(WHIMS, **_by_script(UNWANTED))),
            ("wanted", lambda: True, lambda: self.server.spawn(WHIMS, **_by_script(AGAIN))),
            ("again", lambda: self._told(AGAIN, attempt=1), self._retry),
            ("cancel the job", lambda: self._asked(UNWANTED) and self._told(AGAIN, attempt=2), self._cancel_job),
            ("muse", self._end_may_be_told, lambda: self._say(WHIMS, "m-musing")),
            ("cancel the turn", lambda: self._asked(MUSING), self._cancel_turn),
            ("else", lambda: "cancel the turn" in self._done, lambda: self._say(WHIMS, "m-else")),
        ]

    def _whim(self, name: str) -> dict[str, Any]:
        (job,) = [job for job in self.server.jobs(WHIMS) if job["description"] == name]
        return job

    def _told(self, name: str, attempt: int) -> bool:
        """Whether this attempt, or a later one, has been told."""
        job = self._whim(name)
        return (job["attempts"], job["notified"]) >= (attempt, True)

    def _retry(self) -> None:
        job = self._whim(AGAIN)
        if job["attempts"] == 1:
            self.server.post(f"/api/background/{job['id']}/retry")

    def _cancel_job(self) -> None:
        job = self._whim(UNWANTED)
        if job["status"] != "canceled":
            self.server.post(f"/api/background/{job['id']}/cancel")

    def _end_may_be_told(self) -> bool:
        reports = any(row["kind"] == "report" for row in self.server.get("/api/status")["queue"])
        return "cancel the job" in self._done and not reports

    def _cancel_turn(self) -> None:
        task_id = self._tasks["m-musing"]
        if self.server.task(task_id)["status"]["state"] != "TASK_STATE_CANCELED":
            answer = self.server.rpc("CancelTask", {"id": task_id})
            assert answer["result"]["status"]["state"] == "TASK_STATE_CANCELED", answer

    def _briefing_failed(self) -> bool:
        return any(said["kind"] == "nudge" and said["state"] == "failed" for said in self.server.messages(ERRAND))

    def _say(self, session: str, message_id: str) -> None:
        self._tasks[message_id] = self.server.say(session, USER_MESSAGES[message_id], message_id=message_id)

    def _asked(self, words: str) -> bool:
        return any(words in asked.last_user for asked in self.model.requests())

    def _fanned_out(self) -> bool:
        return self.server.task(self._tasks["m-fan-out"])["status"]["state"] == "TASK_STATE_COMPLETED"

    def _nudge_waits_for(self, words: str) -> Callable[[], bool]:
        """Whether a nudge waits behind the turn that was asked this; or none will, as turns have taken up all jobs."""

        def waits() -> bool:
            if not self._asked(words):
                return False
            jobs = self.server.jobs(CHAT)
            told = {job["description"] for job in jobs if job["delivery"]["state"] in ("attached", "delivered")}
            nudges = [said for said in self.server.messages(CHAT) if said["kind"] == "nudge"]
            return told == JOBS[CHAT] or any(nudge["state"] == "submitted" for nudge in nudges)

        return waits

    def _at_rest(self) -> bool:
        """Every job has been told, and nothing is left to do."""
        return (
            self._beside.at_rest()
            and self.server.idle()
            and all(
                {job["description"] for job in self.server.jobs(session) if job["notified"]} == names
                for session, names in JOBS.items()
            )
        )

    def _look(self) -> Seen:
        messages = {session: self.server.messages(session) for session in SESSIONS}
        turns = {said["task_id"] for log in messages.values() for said in log if said["task_id"]}
        return Seen(
            jobs={session: [self.server.job(job["id"]) for job in self.server.jobs(session)] for session in JOBS},
            messages=messages,
            tasks={task_id: self.server.task(task_id) for task_id in turns},
            asked=[without_memory(asked) for asked in self.model.requests()],
            heard=self._beside.look(),
            left_behind=self.left_behind,
        )

    def _state(self) -> str:
        """For a story that is stuck: what was done, what the jobs are at, what the model was asked."""
        jobs = [
            f"{job['description']}: {job['status']} {job['error']} {job['delivery']}"
            for session in JOBS
            for job in self.server.jobs(session)
        ]
        asked = [str(asked) for asked in self.model.requests()]
        queue = [f"{row['kind']}: {row}" for row in self.server.get("/api/status")["queue"]]
        return "\n".join([f"done: {sorted(self._done)}", *jobs, *queue, *asked[-20:]])


def _by_script(name: str) -> dict[str, str]:
    spec = _spec(name)
    return {"prompt": spec["prompt"], "description": name, "subagent_type": "general", "key": f"script-{name}"}


def without_memory(asked: Asked) -> Asked:
    """A request as its conversation is: what it is given of other sessions changes with them."""
    messages = [message for message in asked.messages if "<session-memory>" not in str(message.get("content"))]
    return replace(asked, body={**asked.body, "messages": messages})


def conversation_of(asked: Asked) -> str:
    """Whose request it is: a session's name, or a worker's."""
    if asked.text.startswith("You work detached"):
        (name,) = set(re.findall(r"Work on (\w+)", asked.last_user))
        return name
    for words, session in ((LONE, ERRAND), (DOUBT, DOUBTS), (CONFIDED, VAULT)):
        if words in asked.text:
            return session
    return WHIMS if f"<description>{AGAIN}" in asked.text else CHAT


def comes_to_nothing(asked: Asked) -> bool:
    """Whether the turn that asks this ends without an answer: nothing of it is told to the model again."""
    rule = RULES[asked.rule] if asked.rule is not None else None
    return rule is not None and (rule.gate == NEVER or rule.until is not None)


def held_by_nobody(server: Mortal) -> list[str]:
    """What the last life of a server, which has ended itself, did not hand back. Killed workers still have a row."""
    with closing(sqlite3.connect(server.data / "outrider.db")) as registry:
        if not registry.execute("select 1 from sqlite_master where name = 'workers'").fetchone():
            return []  # it was asked to end itself before it had made anything
        held = registry.execute(
            "select key from runs where state = 'running' and worker not in (select id from workers where pid <> :pid)",
            {"pid": server.pid},
        )
        live = registry.execute("select 'worker ' || id from workers where pid = :pid", {"pid": server.pid})
        return [key for (key,) in (*held, *live)]
