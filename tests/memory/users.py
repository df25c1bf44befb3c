"""Users of one Outrider, each with sessions of their own, and what the model was told when they spoke."""

import copy
import itertools
import re
from typing import Any, Self

import httpx

from background import tokens
from background.database import Tx
from tests.support.inside import Inside
from tests.support.rules import text_of
from tests.support.scripted import Asked, ScriptedModel

NUMBERS = itertools.count(1)
BLOCK = re.compile(r"<session-memory>\n(.*)\n</session-memory>", re.DOTALL)
QUIET_S = 2000.0  # after which a chat is summarized
RETIRED_S = 90_000.0  # after which its facts are harvested


class User(Inside):
    """An Outrider as one user has it; of the model's requests only those count that name a word of this user's."""

    model: ScriptedModel
    name: str
    others: list["User"]

    @classmethod
    def of(cls, inside: Inside, model: ScriptedModel) -> Self:
        """Somebody new, who has said nothing yet."""
        made = cls.__new__(cls)
        made.__dict__.update(copy.copy(inside.__dict__))
        made.model, made.name, made.others = model, f"user-{next(NUMBERS)}", []
        _, secret = inside.write(tokens.make, made.name)
        made.http = httpx.Client(
            base_url=inside.url, timeout=30, trust_env=False, headers={"Authorization": f"Bearer {secret}"}
        )
        return made

    def another(self) -> "User":
        """Somebody else, who goes with this one."""
        self.others.append(User.of(self, self.model))
        return self.others[-1]

    def leave(self) -> None:
        """Close what was opened to speak; the Outrider stays."""
        for each in (self, *self.others):
            each.http.close()

    def requests(self, word: str) -> list[Asked]:
        """The requests whose last message of the user's role has this word."""
        return [asked for asked in self.model.requests() if word in asked.last_user]

    def given(self, word: str) -> str | None:
        """The block of memory in the first request of the turn that was asked this; None without one."""
        (asked, *_) = self.requests(word)
        users = [text_of(message) for message in asked.messages if message["role"] == "user"]
        blocks = [found[1] for text in users if (found := BLOCK.search(text))]
        assert len(blocks) < 2, blocks
        return blocks[0] if blocks else None

    def tool(self, name: str, word: str, **arguments: Any) -> str:
        """What a call of a tool brings, in a session of its own."""
        self.model.rules(
            [
                {"last_user": word, "tool_calls": [{"name": name, "arguments": arguments}]},
                {"last_tool": "", "text": "I see."},
            ]
        )
        self.ask(f"asking-{next(NUMBERS)}", word)
        (_, after) = self.requests(word)
        return text_of(after.messages[-1])

    def pass_time(self, seconds: float) -> None:
        """The worker is heard from at once: it has been silent for so long."""
        super().pass_time(seconds)
        self.call(self.outrider.worker._renew())

    def fall_quiet(self, seconds: float = QUIET_S) -> None:
        """So much time passes, and what is due then is done."""
        self.pass_time(seconds)
        self.settled()

    def settled(self) -> None:
        """Waits until nothing of memory is due any more."""
        self.pass_time(61)  # the look's own pause
        due = (
            "select kind from runs where kind in ('remember', 'summary', 'harvest') "
            "and (state = 'running' or (state = 'queued' and due_at <= :now))"
        )
        self.wait(lambda: not self.rows(due, now=self._now()))

    def asked_for(self, kind: str, word: str) -> list[str]:
        """The requests for a summary (`Summary`) or for facts (`Facts`) of a chat in which this was said."""
        begins = f"{kind} of a chat session, for memory:"
        return [asked.last_user for asked in self.requests(word) if asked.last_user.startswith(begins)]

    def kept(self, kind: str) -> list[str]:
        """The texts of what is in force for this user."""
        return [each["text"] for each in self.memories() if each["kind"] == kind and each["in_force"]]

    def memories(self) -> list[dict[str, Any]]:
        """All that is kept for this user, superseded or not, in order."""
        return self.write(_kept, self.name)


def _kept(tx: Tx, owner: str) -> list[dict[str, Any]]:
    rows = tx.q("select * from memories where owner = :owner order by created_at, rowid", owner=owner)
    return [
        {
            "kind": row["kind"],
            "text": tx.unseal("memories.content", row["id"], row["content"]),
            "in_force": row["superseded_at"] is None,
            "trust": row["trust"],
        }
        for row in rows
    ]
