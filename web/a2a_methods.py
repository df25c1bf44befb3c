"""The methods of A2A, which every binding serves: each takes a call and answers with JSON, or with a stream of it.

A request creates a task and its run, or reads; it never runs the agent. What is asked is checked in
`a2a_requests.py`; what is answered is what the projector has written. What an answer or an error looks like on a wire
is the bindings'.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from background import acceptance, ids, journal, messages, sessions, tasks, terminal, webhooks
from background.acceptance import Accepted, Incoming
from background.database import Tx
from background.errors import Fault
from background.journal import View
from web import a2a_fields as fields
from web import a2a_list, a2a_message, a2a_requests, a2a_stream, a2a_views, acting, admission
from web.a2a_call import Call
from web.a2a_cards import Cards
from web.a2a_errors import A2AError, invalid
from web.a2a_fields import Limits
from web.a2a_push import PushConfigs, check_address
from web.a2a_requests import SendRequest, TaskRequest
from web.a2a_stream import LOOK_S, Telling
from web.a2a_webhook import Config
from web.caller import Caller
from web.callers import require_standing
from web.claims import check_claims
from web.house import House

SOON_S = 0.25  # only who waits longer is watched for being gone: most have their answer by then
CANCEL_WAIT_S = 5.0
Json = dict[str, Any]
Method = Callable[[Call], Awaitable[Json | Telling]]


class Seen(NamedTuple):
    """A task's view, and the protocol's Task made of it, at one revision."""

    view: View
    task: Json

    def stopped_since(self, accepted: Accepted) -> bool:
        """Whether it has ended, or is parked, after what was accepted: an answer is not what it answered."""
        return self.view.ended or (self.view.parked and self.view.revision > accepted.revision)


def see(tx: Tx, caller: Caller, task_id: str, history_length: int | None) -> Seen:
    """The caller's task, or one of a session that is shared with him. Raises `TASK_NOT_FOUND`, for another's too.

    What let the caller in must hold still: he may have waited for this. Raises `UNAUTHENTICATED`.
    """
    require_standing(tx, caller)
    view = journal.view(tx, acting.on_task(tx, caller, task_id), task_id)
    if view is None:
        raise A2AError("TASK_NOT_FOUND")
    history = None if history_length == 0 else messages.history(tx, task_id, history_length)
    return Seen(view, a2a_views.task(view, history))


def see_accepted(tx: Tx, caller: Caller, task_id: str, history_length: int | None) -> Seen:
    """A task as it was when it was accepted, however far it has come since: its stream tells the rest."""
    seen = see(tx, caller, task_id, history_length)
    if seen.view.revision == 1:
        return seen
    first, *_ = journal.after(tx, task_id, 0)
    later = {"reason": None, "detail": None, "folded_into": None, "stopped": None, "result": None, "question": None}
    view = replace(seen.view, revision=first.revision, state=first.state, at=first.at, **later)
    return Seen(view, a2a_views.task(view, seen.task.get("history")))


class Methods:
    """The methods, over one house."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._db = house.db
        self._limits = Limits(skills=house.settings.profiles)
        self._cards = Cards(house)
        self.served: dict[str, Method] = {
            "SendMessage": self._send,
            "SendStreamingMessage": self._send_streaming,
            "GetTask": self._get,
            "ListTasks": self._list,
            "CancelTask": self._cancel,
            "SubscribeToTask": self._subscribe,
            "GetExtendedAgentCard": self._extended_card,
            **PushConfigs(house, self._limits).methods(),
        }

    async def _send(self, call: Call) -> Json:
        asked = await call.checked(a2a_requests.send_params, self._limits)
        shown = asked.history_length
        if asked.return_immediately:
            accepted = await self._accept(call.caller, asked)
            seen = await self._reached(call.caller, accepted, shown)
        else:
            with self._house.waiting.place():
                accepted = await self._accept(call.caller, asked)
                del asked  # see `Call.checked`
                seen = await self._until_stopped(call, accepted, shown)
        return {"task": seen.task}

    async def _send_streaming(self, call: Call) -> Telling:
        asked = await call.checked(a2a_requests.send_params, self._limits)
        with ExitStack() as place:
            place.enter_context(self._house.streams.of_user(call.caller.owner))  # before anything is stored
            accepted = await self._accept(call.caller, asked)
            look = see_accepted if accepted.new and accepted.revision == 1 else see
            seen = await self._db.read(look, call.caller, accepted.task_id, asked.history_length)
            return a2a_stream.begin(self._house, call.caller, seen.view, seen.task, place)

    async def _get(self, call: Call) -> Json:
        asked = a2a_requests.get_params(call.params, self._limits)
        return (await self._see(call.caller, asked.id, asked.history_length)).task

    async def _list(self, call: Call) -> Json:
        asked = a2a_list.list_params(call.params, self._limits)
        return await self._db.read(a2a_list.page, acting.in_session(call.caller, asked.filters.context_id), asked)

    async def _cancel(self, call: Call) -> Json:
        asked = a2a_requests.cancel_params(call.params, self._limits)
        await self._db.write(cancel, acting.alone(call.caller, changes=True), asked.id)
        return (await self._ended(call.caller, asked.id)).task

    async def _subscribe(self, call: Call) -> Telling:
        asked: TaskRequest = a2a_requests.subscribe_params(call.params, self._limits)
        seen = await self._see(call.caller, asked.id, None)
        if seen.view.ended:
            raise A2AError("UNSUPPORTED_OPERATION", "The task has ended, and nothing more will come; read it")
        with ExitStack() as place:
            place.enter_context(self._house.streams.of_user(call.caller.owner))
            return a2a_stream.begin(self._house, call.caller, seen.view, seen.task, place)

    async def _extended_card(self, call: Call) -> Json:
        fields.params(call.params)
        return self._cards.extended(call.caller.owner, call.headers)

    # -- what they share

    async def _accept(self, caller: Caller, asked: SendRequest) -> Accepted:
        self._house.require_open()
        check_claims(caller, asked.context_id, asked.message.get("metadata"), asked.metadata)
        owner = caller.owner if caller.share is None else await self._sharer(caller, asked)
        await check_address(self._house, asked.webhook)
        message = Incoming(
            owner=owner,
            session_id=asked.context_id or f"ctx-{ids.uid()}",
            message_id=asked.message_id,
            fingerprint=asked.fingerprint,
            text=asked.words,
            content=asked.message,
            profile=asked.skill,
            origin=caller.origin,
            cause=caller.trigger,
            task_id=asked.task_id,
            data=a2a_message.data_of(asked.message),
            question=a2a_message.question_of(asked.message),
            steer=asked.steer,
            sender=caller.sender,
            within=caller.share and caller.share.uid,
        )
        if caller.origin == "user":
            message = await admission.admit(self._db, self._house.offers, message)
        else:
            message = await self._db.read(admission.of_ours, self._house.offers, self._house.registry, message)
        async with admission.masked_beforehand(self._db, message):
            return await self._db.write(accept, message, asked.context_id, asked.webhook)

    async def _sharer(self, caller: Caller, asked: SendRequest) -> str:
        """Whose session a caller with a share sends into; he has no webhooks there. Raises `not_found`."""
        owner = await self._db.read(acting.sender, caller, asked.context_id, asked.task_id)
        if asked.webhook is not None:
            raise invalid(f"{asked.webhook.at}url", "webhooks are the session's owner's to set")
        return owner

    async def _see(self, caller: Caller, task_id: str, history_length: int | None) -> Seen:
        return await self._db.read(see, caller, task_id, history_length)

    async def _until_stopped(self, call: Call, accepted: Accepted, history_length: int | None) -> Seen:
        """Wait until it has ended or is parked, until the deadline or until the client is gone; that leaves it alone."""
        task_id, patience_s = accepted.task_id, self._house.settings.blocking_wait_s
        began = asyncio.get_running_loop().time()
        with self._db.bell.listen(f"end:{task_id}") as ear:
            if accepted.new:  # it cannot have ended before anybody has heard of it
                await ear.wait(min(SOON_S, patience_s))
                seen = await self._see(call.caller, task_id, history_length)
                if seen.stopped_since(accepted):
                    self._house.waits.ended(None)
                    return seen
            gone = asyncio.ensure_future(call.receive())
            gone.add_done_callback(lambda _: ear.hear())
            try:
                async with asyncio.timeout_at(began + patience_s):
                    while not (seen := await self._see(call.caller, task_id, history_length)).stopped_since(accepted):
                        if gone.done():
                            break
                        if self._house.closed:
                            raise TimeoutError
                        await ear.wait(LOOK_S)
                return seen
            except TimeoutError:
                raise A2AError("BLOCKING_DEADLINE_EXCEEDED", metadata={"taskId": task_id}) from None
            finally:
                self._house.waits.ended(asyncio.get_running_loop().time() - began if gone.done() else None)
                gone.cancel()

    async def _reached(self, caller: Caller, accepted: Accepted, history_length: int | None) -> Seen:
        """A task once the projector has shown what came of a message: an answered question does not stand there any more."""
        with self._db.bell.listen(f"view:{accepted.task_id}") as ear:
            async with _shown_in_time(accepted.task_id):
                while (
                    seen := await self._see(caller, accepted.task_id, history_length)
                ).view.revision < accepted.revision:
                    await ear.wait(LOOK_S)
        return seen

    async def _ended(self, caller: Caller, task_id: str) -> Seen:
        """A task whose end is committed, once the projector has shown it."""
        with self._db.bell.listen(f"end:{task_id}") as ear:
            async with _shown_in_time(task_id):
                while not (seen := await self._see(caller, task_id, None)).view.ended:
                    await ear.wait(LOOK_S)
        return seen


@asynccontextmanager
async def _shown_in_time(task_id: str) -> AsyncIterator[None]:
    """What was asked for is committed; where showing it takes too long, the client is told so, with the task's id."""
    try:
        async with asyncio.timeout(CANCEL_WAIT_S):
            yield
    except TimeoutError:
        raise A2AError("BLOCKING_DEADLINE_EXCEEDED", metadata={"taskId": task_id}) from None


def accept(tx: Tx, message: Incoming, context_id: str | None, webhook: Config | None = None) -> Accepted:
    """Accept, for a client that may name a task: it must be one that takes messages, in the context that is named."""
    if message.task_id is not None and context_id is not None:
        task = tasks.find(tx, message.owner, message.task_id)
        if task is not None and sessions.by_uid(tx, task.session).id != context_id:
            raise Fault("invalid", "not the context of this task", field="message.contextId")
    accepted = acceptance.accept(tx, message)
    if webhook is not None and accepted.new:
        webhooks.put(tx, webhook.of(accepted.task_id, message.owner))
        if message.task_id is None:  # a new task's first event stands in the journal already
            webhooks.announce(tx, [(accepted.task_id, accepted.revision, 0)])
    return accepted


def cancel(tx: Tx, owner: str, task_id: str) -> None:
    """Cancel the owner's task. Raises faults: not_found; conflict for one that has ended."""
    task = tasks.find(tx, owner, task_id)
    if task is None:
        raise Fault("not_found", "Task not found")
    if not terminal.cancel_task(tx, task, "user"):
        raise Fault("conflict", f"The task is {task.state} already.", reason="TASK_NOT_CANCELABLE")
