"""What a message's profile says before it is accepted: whether it takes work, what it takes, how much may be kept.

It stores nothing: what it finds out goes into the `Incoming`, and counts and levels are checked with the acceptance.
"""

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial

from agent.offers import Offer, check_input, gone
from agent.profiles import CHAT
from agent.subagents import Registry
from agent.works import OFFER
from background import job_rows, sessions, steering, tasks
from background.acceptance import Incoming
from background.beforehand import masked
from background.ceilings import LEVELS, strictest
from background.database import Database, Tx
from background.errors import Fault
from background.job_rows import Job
from background.schemas import Schema, Unfit
from web.a2a_card import INPUT_MODES, input_modes
from web.a2a_errors import A2AError
from web.a2a_message import unreadable

AT_WORK = ("submitted", "working")
Offers = Mapping[str, Offer]


async def admit(db: Database, offers: Offers, message: Incoming) -> Incoming:
    """A client's message, with what its profile allows. Raises `refused` and `invalid` faults, A2AError -32005.

    More for a task at work is held to that task's input schema. An answer is not: its question has a form of its own.
    What steers a turn, and names no profile, is for the profile of that turn.
    """
    if message.steer and message.task_id is None and "skill" not in message.content.get("metadata", {}):
        message = await db.read(_as_steered, offers, message)
    offer = offers[message.profile]
    if message.task_id is not None or offer.by_model:
        _check_files(message)  # of an answer to a question, too, only the words are taken
    if message.task_id is not None:
        takes = await db.read(_takes, offers, message)
        if takes:
            await _check_input(takes, message)
        return message
    if offer.broken:
        raise Fault("refused", f"The profile {message.profile} takes no work now; nothing was stored.")
    _check_modes(offer, message)
    if offer.takes:
        await _check_input(offer.takes, message)
    return replace(message, ceiling=offer.level, max_open=offer.profile.max_open_tasks)


def masked_beforehand(db: Database, message: Incoming) -> AbstractAsyncContextManager[None]:
    """Within the block, what is large of the message and will be masked as it is accepted is masked already."""
    of_answer = [message.data] if message.task_id is not None else []
    return masked(db, partial(_level, message=message), texts=[message.text], trees=[message.content, *of_answer])


def _level(tx: Tx, message: Incoming) -> str:
    if message.task_id is None:
        return message.ceiling
    task = tasks.find(tx, message.owner, message.task_id)
    return task.ceiling if task else LEVELS[0]


def _as_steered(tx: Tx, offers: Offers, message: Incoming) -> Incoming:
    session = sessions.find(tx, message.owner, message.session_id)
    turn = steering.at_work(tx, session.uid) if session else None
    offer = offers.get(turn.profile) if turn else None
    return replace(message, profile=offer.profile.name) if offer and offer.by_model and not offer.broken else message


def _check_files(message: Incoming) -> None:
    """What a model is to read must be words: a file that it would never see is not accepted as if it did."""
    if found := unreadable(message.content):
        field, must = found
        told = {"field": field, "supported": ", ".join(sorted(INPUT_MODES))}
        raise A2AError("CONTENT_TYPE_NOT_SUPPORTED", f"{field}: {must}", metadata=told)


def _takes(tx: Tx, offers: Offers, message: Incoming) -> Schema | None:
    """What the task that a message is for takes, if it is at work."""
    task = tasks.find(tx, message.owner, message.task_id or "")
    offer = offers.get(task.profile) if task and task.state in AT_WORK else None
    return offer.takes if offer else None


async def _check_input(takes: Schema, message: Incoming) -> None:
    try:
        # In a thread: it may take a while, and nobody else should wait for it.
        await asyncio.to_thread(check_input, takes, message.content["parts"])
    except Unfit as unfit:
        raise Fault("invalid", unfit.why, field=f"message.{unfit.place}") from None


def _check_modes(offer: Offer, message: Incoming) -> None:
    modes = input_modes(offer.profile)
    for index, part in enumerate(message.content["parts"]):
        if part.get("mediaType", modes[0]).partition(";")[0].strip().lower() not in modes:
            field, supported = f"message.parts[{index}].mediaType", ", ".join(sorted(modes))
            told = {"field": field, "supported": supported}
            raise A2AError("CONTENT_TYPE_NOT_SUPPORTED", f"{field}: must be one of {supported}", metadata=told)


def of_ours(tx: Tx, offers: Offers, registry: Registry, message: Incoming) -> Incoming:
    """A message of Outrider's own: a job and a briefing have the profile of the turn that sent the work out, but for a job
    whose type has one of its own.

    Else a narrow profile's work would be done, and told, with the tools and the level of a wider one.
    """
    job = job_rows.find(tx, message.owner, message.cause or "")
    turn = tasks.find(tx, message.owner, job.batch_id if job else message.cause or "")
    own = _own_profile(job, registry) if job and message.origin == "background" else None
    offer = offers.get(own or (turn.profile if turn else ""))
    if own and job and job.deterministic:
        offer = offer or gone(own)
    elif offer is None or not offer.by_model or offer.broken:
        offer = offers[CHAT]
    # A job says what its sender said, so no more is kept of it; a briefing tells what is kept by now.
    level = strictest(offer.level, turn.ceiling) if turn and message.origin == "background" else offer.level
    return replace(message, profile=offer.profile.name, ceiling=level)


def _own_profile(job: Job, registry: Registry) -> str | None:
    """The profile that a job has by itself: that of its kind of work, or of its type."""
    return f"{OFFER}{job.subagent_type}" if job.deterministic else registry.profile(job.subagent_type)
