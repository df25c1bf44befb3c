"""Posting to ourselves: a job's dispatch and a session's nudge, as A2A messages through the whole stack, without a socket.

Each post carries a credential for its owner, session and purpose that nobody else can make, and a message id that is
the same however often it is posted. It decides nothing about turns; a post that fails is tried again.
"""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
from starlette.types import ASGIApp

from agent import tracing
from background import acceptance, batches, delivery, job_rows, messages, queue, sessions, tallies, terminal
from background.database import Database, Tx
from background.errors import TryAgain
from background.job_rows import Job
from background.queue import Run
from background.sessions import Session
from background.worker import backoff
from web.caller import Origin
from web.credentials import CREDENTIAL_HEADER, Credentials

log = logging.getLogger("outrider.posts")

DISPATCH_TRIES = 20  # about a quarter of an hour
TIMEOUT_S = 10.0
RETRYABLE = (-32000, -32603)  # no worker, no room, an internal error: time may mend these
NO_MORE = (
    "Outrider has begun {} turns here by itself without a word from you and begins no more; "
    "what else comes back waits for your next message."
)


class Refused(Exception):
    """The post was answered with an error that trying again will not mend."""


@dataclass(frozen=True)
class Posts:
    """The handlers of the kinds `dispatch` and `nudge`. `app` is the whole stack; `auto_resume` is asked at each nudge."""

    db: Database
    app: Callable[[], ASGIApp]
    credentials: Credentials
    auto_resume: Callable[[], bool]
    max_unattended: int

    async def dispatch(self, run: Run) -> None:
        """Post the job's prompt, or what its worker is asked further, into its own background session."""
        job = await self.db.read(job_rows.known, run.params["job"])
        attempt = run.params["attempt"]
        if job is None or job.ended or job.attempts != attempt:
            await self.db.write(queue.finish, run)
            return
        if attempt == 1 and run.attempt == 1:
            tracing.moment("spawn", job.id, job.created_at, batch_id=job.batch_id, subagent_type=job.subagent_type)
        session, said = f"{sessions.BACKGROUND}{job.id}", job.follow_up or job.prompt
        try:
            with tracing.of_jobs("dispatch", [job.id], attempt=attempt):
                task_id = await self._post(job.owner, session, "background", job.id, f"{job.id}.{attempt}", said)
        except Refused as error:
            await self.db.write(_fail_dispatch, run, job.id, str(error))
        except TryAgain as error:
            if run.tries < DISPATCH_TRIES:
                raise TryAgain(backoff(run.tries), str(error)) from error
            await self.db.write(_fail_dispatch, run, job.id, str(error))
        else:
            await self.db.write(queue.finish, run)
            sent = f"{job.subagent_type}, sent out from session {job.session_id} in batch {job.batch_id}"
            log.info("job %s (%s) dispatched as task %s, attempt %s", job.id, sent, task_id, attempt)

    async def nudge(self, run: Run) -> None:
        """Wake the origin session for what has come back, unless it must not be woken now."""
        plan = await self.db.write(_plan, run, self.auto_resume(), self.max_unattended)
        if plan is None:
            return
        try:
            with tracing.of_jobs("nudge", plan.job_ids):
                task_id = await self._post(
                    plan.session.owner, plan.session.id, "background-resume", plan.trigger, plan.message_id, plan.text
                )
        except (Refused, TryAgain) as error:
            await self.db.write(delivery.held_up, plan.job_ids, str(error), tried=True)
            raise TryAgain(backoff(run.tries), str(error)) from error
        await self.db.write(_nudged, run, task_id)
        log.info("nudge for %s accepted as task %s", " ".join(plan.job_ids), task_id)

    async def _post(self, owner: str, session: str, origin: Origin, trigger: str, message_id: str, text: str) -> str:
        """SendMessage, return immediately. The task's id. Raises `TryAgain` or `Refused`."""
        metadata = {"origin": origin, "trigger": trigger}
        message = {
            "messageId": message_id,
            "contextId": session,
            "role": "ROLE_USER",
            "parts": [{"text": text}],
            "metadata": metadata,
        }
        params = {"message": message, "configuration": {"returnImmediately": True}}
        credential = self.credentials.issue(owner, session, origin, trigger, self.db.now())
        try:
            # Raising would be a bug of the stack's own, and its text is for the log.
            transport = httpx.ASGITransport(app=self.app(), raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=TIMEOUT_S) as client:
                answer = await client.post(
                    "/a2a",
                    content=json.dumps({"jsonrpc": "2.0", "id": message_id, "method": "SendMessage", "params": params}),
                    headers={"Content-Type": "application/json", "A2A-Version": "1.0", CREDENTIAL_HEADER: credential},
                )
        except httpx.HTTPError as error:
            raise TryAgain(0, f"the post failed: {type(error).__name__}") from error
        return _task_of(answer)


def _task_of(answer: httpx.Response) -> str:
    """The task in an answer. An error inside an HTTP 200 is an error, and so is anything that is no task."""
    try:
        body: Any = answer.json()
    except ValueError:
        raise TryAgain(0, f"the post was answered with HTTP {answer.status_code}") from None
    if error := body.get("error"):
        told = f"the post was refused: {error.get('code')} {error.get('message')}"
        if error.get("code") in RETRYABLE or answer.status_code == 401:  # an expired credential is issued anew
            raise TryAgain(0, told)
        raise Refused(told)
    task = body.get("result", {}).get("task")
    if not task or task["status"]["state"] == "TASK_STATE_REJECTED":
        raise Refused("the post was not answered with a task that was taken")
    return task["id"]


@dataclass(frozen=True)
class Plan:
    """A nudge to be posted."""

    session: Session
    trigger: str
    message_id: str
    text: str
    job_ids: list[str]


def _plan(tx: Tx, run: Run, auto_resume: bool, max_unattended: int) -> Plan | None:
    """What to post, decided now; None when nothing is to be posted, and then the run is done."""
    queue.fence(tx, run)
    told = _members(tx, run)
    if not told:  # erased since
        queue.finish(tx, run)
        return None
    session = sessions.by_uid(tx, told[0].session)
    again = run.params.get("again")
    message_id = f"nudge.{again}" if again else f"nudge.{run.params['batch']}.{run.params['generation']}"
    posted = acceptance.made_by(tx, session.owner, message_id)
    if posted is not None:  # by a worker that ended before it could note it; what it told may be told by now
        _nudged(tx, run, posted)
        return None
    pending = [job for job in told if job.delivery == "pending"]
    reason = _why_not(tx, session, pending, auto_resume, max_unattended)
    if reason is not None:
        delivery.held_up(tx, [job.id for job in pending], reason, tried=False)
        queue.finish(tx, run)
        return None
    tallies.add(tx, "nudge_attempts")
    return Plan(
        session=session,
        trigger=told[0].id if again or len(told) == 1 else run.params["batch"],
        message_id=message_id,
        text=_text(tx, told, None if again else run.params["batch"]),
        job_ids=[job.id for job in pending],
    )


def _members(tx: Tx, run: Run) -> list[Job]:
    """The jobs that a nudge tells of, without those that were erased since."""
    ids = run.params.get("jobs") or batches.generation_of(tx, run.params["batch"], run.params["generation"])
    found = (job_rows.known(tx, job_id) for job_id in ids)
    return [job.said_in(incognito=False) for job in found if job is not None]  # an incognito session is not woken


def _why_not(tx: Tx, session: Session, pending: list[Job], auto_resume: bool, max_unattended: int) -> str | None:
    if all(job.canceled_by == "user" or job.incognito for job in pending):
        return delivery.INCOGNITO if any(job.incognito for job in pending) else delivery.NO_NEWS
    if not auto_resume:
        return "OUTRIDER_AUTO_RESUME is off; it is told with the session's next turn."
    if session.unattended >= max_unattended:
        notice = NO_MORE.format(session.unattended)
        if not messages.noted_since_user(tx, session.uid, notice):
            messages.log(tx, session.uid, "notice", notice)
        return f"OUTRIDER_MAX_UNATTENDED_TURNS ({max_unattended}) is reached; it is told with its user's next message."
    return None


def _text(tx: Tx, told: list[Job], batch_id: str | None) -> str:
    """Small: what ended and how, and what is asked for. The reports come as notifications.

    A batch is counted whole; where some of it was told before, it says of how many there is no report beside it.
    """
    counts = batches.counts(tx, batch_id) if batch_id else {}
    members = job_rows.of_batch(tx, batch_id) if batch_id else []
    out = counts.pop("out", 0)
    ended = ", ".join(f"{status} {n}" for status, n in counts.items()) or "; ".join(
        f"{job.description}: {job.status}" for job in told
    )
    before = sum(job.ended and job.delivery in ("attached", "delivered") for job in members)
    ended += f" in all; {before} of them {'was' if before == 1 else 'were'} told before" if before else ""
    lines = [f"Outrider: background work of this conversation has ended ({ended})."]
    if out:
        names = "; ".join(f"{job.description} ({job.id})" for job in members if not job.ended)
        lines.append(f"Still out, and without a result yet: {out} ({names}).")
    lines.append("Review the reports above and brief the user, once over all of them.")
    return " ".join(lines)


def _nudged(tx: Tx, run: Run, task_id: str) -> None:
    if queue.finish(tx, run) and "generation" in run.params:
        batches.nudged(tx, run.params["batch"], run.params["generation"], task_id)


def _fail_dispatch(tx: Tx, run: Run, job_id: str, why: str) -> None:
    if queue.finish(tx, run, "failed"):
        log.warning("job %s could not be dispatched: %s", job_id, why)
        terminal.fail_undispatched(tx, job_id, "INTERRUPTED", "It could not be started; a retry runs it anew.")
