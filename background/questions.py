"""Questions: what a parked task has asked, and waits for. Owns `questions`.

A task has at most one that is open. Its answer is a message with the task's id, and becomes a checkpoint of the step
that waits for it; a question that was asked before is not asked again.
"""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from background.database import Row, Tx
from background.errors import Fault
from background.schemas import BadSchema, Schema, Unfit
from background.text import clip
from background.times import rfc3339, rfc3339_or_none

APPROVE, DENY = "approve", "deny"
FIELD = "message.metadata.question"
STALE = "This answers a question that is not open any more."


@dataclass(frozen=True)
class Question:
    """What is asked. `kind`: question, form, approval, auth. `key` is the step that waits, unique in its task.

    `detail` says more, of an approval what exactly would be done; `schema` is the JSON Schema of a form's data.
    """

    kind: str
    key: str
    text: str
    detail: str = ""
    schema: dict[str, Any] | None = None

    @property
    def digest(self) -> str:
        """What an answer may carry to say which question it answers: it changes with anything that was asked."""
        told = json.dumps([self.kind, self.key, self.text, self.detail, self.schema], sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()[:32]


class Parks(BaseException):
    """A signal: the work cannot go on before its user has answered. No `Exception`, so that no tool's `except` eats it."""

    def __init__(self, question: Question) -> None:
        super().__init__(question.key)
        self.question = question


@dataclass(frozen=True)
class Asked:
    """A question as it stands in its row."""

    revision: int
    kind: str
    key: str
    digest: str
    text: str
    detail: str
    schema: dict[str, Any] | None
    run_id: int
    asked_at: int
    deadline: int | None
    answered_at: int | None


@dataclass(frozen=True)
class Answer:
    """What was answered: its text, the data of a form, and of an approval whether it was given."""

    text: str
    data: Any = None
    approved: bool | None = None

    @classmethod
    def of(cls, stored: str) -> "Answer":
        return cls(**json.loads(stored))

    @property
    def stored(self) -> str:
        return json.dumps(vars(self), ensure_ascii=False)


def ask(tx: Tx, task_id: str, revision: int, question: Question, run_id: int, deadline: int | None) -> Asked:
    """The task is parked at this revision, for this question."""
    content = {"text": question.text, "detail": question.detail, "schema": question.schema}
    tx.x(
        "insert into questions (task_id, revision, kind, key, digest, content, run_id, asked_at, deadline) "
        "values (:task, :revision, :kind, :key, :digest, :content, :run, :now, :deadline)",
        task=task_id,
        revision=revision,
        kind=question.kind,
        key=question.key,
        digest=question.digest,
        content=tx.seal("questions.content", f"{task_id}/{revision}", json.dumps(content, ensure_ascii=False)),
        run=run_id,
        now=tx.now,
        deadline=deadline,
    )
    plain = {"key": question.key, "kind": question.kind, "digest": question.digest, "answered_at": None}
    return Asked(revision=revision, run_id=run_id, asked_at=tx.now, deadline=deadline, **plain, **content)


def current(tx: Tx, task_id: str) -> Asked | None:
    """The open question of a task."""
    row = tx.one("select * from questions where task_id = :task and answered_at is null", task=task_id)
    return _asked(tx, row) if row else None


def answers_to(tx: Tx, task_id: str) -> int:
    """How many of its questions are over by now."""
    return tx.value("select count(*) from questions where task_id = :task and answered_at is not null", task=task_id)


def asked_after(tx: Tx, task_id: str, revision: int) -> dict[int, Asked]:
    """The questions of later revisions, by revision."""
    rows = tx.q(
        "select * from questions where task_id = :task and revision > :revision", task=task_id, revision=revision
    )
    return {row["revision"]: _asked(tx, row) for row in rows}


def _asked(tx: Tx, row: Row) -> Asked:
    content = json.loads(tx.unseal("questions.content", f"{row['task_id']}/{row['revision']}", row["content"]))
    plain = {name: row[name] for name in Asked.__dataclass_fields__ if name not in content}
    return Asked(**plain, **content)


def check(asked: Asked, text: str, data: Any, digest: str | None) -> Answer:
    """What an answer says, checked before anything changes. Raises `invalid` faults that name the field."""
    if digest is not None and digest != asked.digest:
        raise Fault("invalid", STALE, field=FIELD)
    if asked.kind == "approval":
        word = text.strip().casefold()
        if word not in (APPROVE, DENY):
            raise Fault("invalid", f"An approval is answered with {APPROVE} or {DENY}.", field="message.parts")
        return Answer(text, approved=word == APPROVE)
    if asked.kind == "form":
        _check_form(asked.schema or {}, data)
    elif not text.strip() and data is None:
        raise Fault("invalid", "An answer must say something.", field="message.parts")
    return Answer(text, data)


def require_one_form(asked: Asked, parts: Sequence[Mapping[str, Any]]) -> None:
    """Raises an `invalid` fault where a form is answered twice: the second answer would be dropped without a word."""
    given = [place for place, part in enumerate(parts) if "data" in part]
    if asked.kind == "form" and len(given) > 1:
        told = "A form is answered with one data part, and this is a further one."
        raise Fault("invalid", told, field=f"message.parts[{given[1]}].data")


def require_none(digest: str | None) -> None:
    """Raises an `invalid` fault for an answer to a question that is not open."""
    if digest is not None:
        raise Fault("invalid", STALE, field=FIELD)


def require_open(tx: Tx, asked: Asked, checkpoints: Collection[str]) -> None:
    """Raises a `refused` fault where its time is over, or where the step that asked is not kept any more."""
    if asked.deadline is not None and tx.now >= asked.deadline:
        raise Fault("refused", "The time to answer this question is over.")
    kind, _, step = asked.key.partition(":")
    if kind == "tool" and f"model:{step.partition(':')[0]}" not in checkpoints:
        raise Fault("refused", "What this question was asked in is not kept any more; cancel the task.")


def _check_form(schema: dict[str, Any], data: Any) -> None:
    if data is None:
        raise Fault("invalid", "A form is answered with a data part.", field="message.parts.data")
    try:
        Schema(schema).check(data)
    except BadSchema:  # a question that was asked by an older version, with a form that could not be used today
        raise Fault("refused", "The form of this question cannot be used any more; cancel the task.") from None
    except Unfit as unfit:
        told = f"The answer does not fit the form: {unfit.why}."
        raise Fault("invalid", told, field=f"message.parts.data{unfit.place}", why=unfit.why) from None


def message(task_id: str, asked: Asked) -> dict[str, Any]:
    """The question as the agent's message, in the protocol's JSON: its text is the first part (A2A 1.0, section 4.1.3).

    The digest that an answer may carry stands in `metadata.question`.
    """
    parts: list[dict[str, Any]] = [{"text": asked.text}]
    parts += [{"text": asked.detail}] if asked.detail else []
    parts += [{"data": asked.schema, "metadata": {"form": True}}] if asked.schema is not None else []
    return {
        "messageId": f"{task_id}-question-{asked.revision}",
        "role": "ROLE_AGENT",
        "parts": parts,
        "metadata": {"question": asked.digest, "kind": asked.kind},
    }


def shown(asked: Asked, chars: int | None = None) -> dict[str, Any]:
    """The question as the API shows it, its `text` and `detail` clipped to so many characters if that is said."""
    return {
        "kind": asked.kind,
        "text": asked.text if chars is None else clip(asked.text, chars),
        "detail": asked.detail if chars is None else clip(asked.detail, chars),
        "schema": asked.schema,
        "question": asked.digest,
        "asked_at": rfc3339(asked.asked_at),
        "deadline": rfc3339_or_none(asked.deadline),
    }


def answered(tx: Tx, task_id: str, asked: Asked) -> bool:
    """The question is answered; False if another answer was first."""
    return (
        tx.x(
            "update questions set answered_at = :now where task_id = :task and revision = :revision and answered_at is null",
            task=task_id,
            revision=asked.revision,
            now=tx.now,
        )
        == 1
    )


def close(tx: Tx, task_id: str) -> int | None:
    """The task has ended: nobody waits for an answer any more. The revision of the question that was open, if one was."""
    return tx.value(
        "update questions set answered_at = :now where task_id = :task and answered_at is null returning revision",
        task=task_id,
        now=tx.now,
    )


def scrub(tx: Tx, task_id: str) -> None:
    """What was asked is not kept any more."""
    tx.x("delete from questions where task_id = :task", task=task_id)


def erase(tx: Tx, task_ids: str) -> None:
    """Take away the questions of these tasks (a JSON list of ids)."""
    tx.x("delete from questions where task_id in (select value from json_each(:ids))", ids=task_ids)
