"""What is remembered, over HTTP: `/api/memory`, and what of it was put before the models of a session's turns.

For its owner, and with no share: it is made of, and names, sessions beside the one that was shared.
"""

from typing import NamedTuple

from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from agent import memory_tool
from background import job_rows, memories, memory_log, memory_uses, results, retention, sessions
from background.database import Tx
from background.errors import not_found
from background.memories import Memory
from background.memory_uses import Noted
from background.text import clip
from background.times import rfc3339
from knowledge import trust
from web.door import Call, Endpoint, Json, door
from web.house import House
from web.paging import choice, decode_cursor, encode_cursor, number

SNIPPET_CHARS = 200
KINDS = ("fact", "summary")
OF_SESSIONS = ("digest", "session")  # the uses whose items are sessions


class Item(NamedTuple):
    """What a use names, as it is called now, and its text; `text` None for what is no longer stored."""

    name: str | None
    text: str | None


async def list_memories(call: Call) -> Json:
    kind = choice(call.query, "kind", KINDS) or "fact"
    limit = number(call.query, "limit", 50, 1, 200)
    before = decode_cursor(call.query, int, str)
    found = await call.db.read(memories.page, call.owner, kind, limit + 1, before)
    page = found[:limit]
    more = encode_cursor(page[-1].created_at, page[-1].id) if len(found) > limit else ""
    return {"memories": [memory_json(each) for each in page], "next_cursor": more}


def memory_json(memory: Memory) -> Json:
    """`session` is null where retention has taken the chat that it was made of."""
    return {
        "id": memory.id,
        "kind": memory.kind,
        "text": memory.text,
        "session": memory.name,
        "trust": memory.trust,
        "trust_label": trust.label(memory.trust),
        "created_at": rfc3339(memory.created_at),
    }


async def remove_memory(call: Call) -> Response:
    await call.db.write(_remove, call.owner, call.id)
    return Response(status_code=204)


def _remove(tx: Tx, owner: str, memory_id: str) -> None:
    if not memories.remove(tx, owner, memory_id):
        raise not_found("memory")
    retention.clean(tx)


async def list_uses(call: Call) -> Json:
    limit = number(call.query, "limit", 50, 1, 200)
    cursor = decode_cursor(call.query, int)
    found = await call.db.read(_uses, call.owner_of_all, call.id, limit + 1, cursor[0] if cursor else None)
    page = found[:limit]
    more = encode_cursor(page[-1][0].id) if len(found) > limit else ""
    return {"uses": [use_json(noted, name) for noted, name in page], "next_cursor": more}


def _uses(tx: Tx, owner: str, given: str, limit: int, before: int | None) -> list[tuple[Noted, str | None]]:
    session = sessions.get(tx, owner, given)
    return [(noted, _name(tx, noted)) for noted in memory_uses.page(tx, session.uid, limit, before)]


def _name(tx: Tx, noted: Noted) -> str | None:
    """What the item is called now: inside, a session is known by what it can never be called again."""
    return sessions.name_of(tx, noted.item) if noted.kind in OF_SESSIONS else noted.item


def use_json(noted: Noted, name: str | None) -> Json:
    """`item` is the id of a session, null for one that is gone, or of a fact, a document or a job."""
    return {
        "id": noted.id,
        "task_id": noted.task_id,
        "step": noted.step,
        "kind": noted.kind,
        "item": name,
        "offset": noted.place,
        "trust": noted.tier,
        "trust_label": trust.label(noted.tier),
        "tokens": noted.tokens,
        "at": rfc3339(noted.at),
    }


async def get_use(call: Call) -> Json:
    """One use with a snippet of its item as that is stored now; `stored` is false where it is not any more."""
    owner, asked = call.owner_of_all, call.request.path_params["use"]
    noted, item = await call.db.read(_use, owner, call.id, asked)
    text = await _passage(call, owner, noted) if noted.kind == "passage" else item.text
    snippet = None if text is None else clip(text[noted.place : noted.place + 2 * SNIPPET_CHARS], SNIPPET_CHARS)
    return {**use_json(noted, item.name), "stored": text is not None, "snippet": snippet}


def _use(tx: Tx, owner: str, given: str, asked: str) -> tuple[Noted, Item]:
    session = sessions.get(tx, owner, given)
    known = asked.isascii() and asked.isdigit() and len(asked) < 19
    noted = memory_uses.find(tx, session.uid, int(asked)) if known else None
    if noted is None:
        raise not_found("use")
    return noted, Item(_name(tx, noted), _text(tx, owner, noted))


def _text(tx: Tx, owner: str, noted: Noted) -> str | None:
    """The text of what the registry holds; of a passage nothing, which is the knowledge store's."""
    match noted.kind:
        case "digest":
            return sessions.title_of(tx, noted.item)
        case "session":
            chat = memory_log.chat(tx, noted.item)
            return memory_tool.told(tx, chat) if chat else None
        case "fact":
            fact = memories.find(tx, owner, noted.item)
            return fact.text if fact else None
        case "report":
            job = job_rows.find(tx, owner, noted.item)
            found = results.read(tx, job.task_id) if job else None
            return found.text if found and found.text else None
    return None


async def _passage(call: Call, owner: str, noted: Noted) -> str | None:
    """The document's text. A plugin's store that cannot be asked for one shows none."""
    read = getattr(call.house.knowledge, "document", None)
    found = await read(owner, noted.item) if read else None
    return found.text if found else None


def routes(house: House) -> list[BaseRoute]:
    table: list[tuple[str, str, Endpoint]] = [
        ("GET", "/api/memory", list_memories),
        ("DELETE", "/api/memory/{id}", remove_memory),
        ("GET", "/api/sessions/{id}/memory", list_uses),
        ("GET", "/api/sessions/{id}/memory/{use}", get_use),
    ]
    return [Route(path, door(house, endpoint), methods=[method]) for method, path, endpoint in table]
