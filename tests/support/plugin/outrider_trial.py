"""A plugin for tests, installed for real: this folder on PYTHONPATH is all it takes. See `tests/support/trial.py`.

The handler `trial` does what the message's text says, one command after another with `; ` between:

    echo X        says X                              data JSON     gives a part of structured data
    sleep S       waits S seconds                     many N        adds N artifacts of their own
    wait DOOR     waits until the door is opened      big N         says N characters
    ask Q         asks, and says the answer           fragment X    commits X as a piece, and says it
    form Q        asks for {"name": a text}           boom X        raises, with X in its text
    approve Q     asks for an approval of Q           cycle, nan, bytes, tuple, deep: gives what cannot be kept
    auth Q        asks for credentials                nothing       returns None
    note X        writes X into the diary
    asked         says what of the work it was given
    file N X      gives a file named N that says X    link URL      gives a link
    named N X     adds an artifact named N: X, and the data {"of": N}
    look JOB      says a job's status, as the sdk tells it; `home ID` opens a session by it, `find Q` counts hits
    stop JOB      cancels a job by it
    work JSON     sends out work of a kind, `loose JSON` a coroutine; says its id, or why not
    send JSON     sends a job out by the sdk, `batch JSON` several; says their ids, or why not. `thread JSON` does it from a thread

Each start of a handler is a line `began TASK TEXT` in the diary. `trial-sync` does the same commands `echo`, `wait`,
`boom`, `send` without being awaitable. The folder TRIAL_FOLDER holds diary and doors; TRIAL names what more is added:
`guard` (refuses a text with "forbidden", says the rule `no-go` for "no go", raises for "explode"), `guard-no` (refuses
everything), `redactor` (masks "hush"), `hears` (the listener `diary` writes each event into the diary as
`heard ID NAME OWNER JOB-OR-TASK`, and fails while the door `deaf` is there and `mended` is not; `ends`, a plain function, writes `ended JOB REPORT` of each job that has
completed, as the sdk tells it, and sends one job out for a job whose description is `follow me`), `breaks` (the plugin is broken), `sender` (the subagent type `sender` that may send jobs
out, by tools and by the sdk: `send(session, prompt)`), `works` (the kinds of work `trial-steps`,
which is idempotent, `trial-once` and `trial-thread`, and the tool `hire`), `second` (the knowledge backend of that name, see `outrider_second.py`), `thread` (a thread of the plugin's own sends a job out for the
session `threaded` once the door `thread` is open, and writes into the diary what came of it). The tools are `shout(text)`, `double(number)`, which writes into the diary, and `pay(amount)`, which needs an approval and writes into the diary, `dwell(door)`, which waits until the door is opened and writes down how it ended, and `linger(door)`,
which does so and cannot be stopped; the subagent type `trialist` has `shout`, `loner` has all others and `ask_user`, and
`parker` has them too, and parks.
"""

import asyncio
import base64
import json
import os
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from outrider_second import open_second

from agent import sdk
from agent.handlers import WorkFailed
from agent.subagents import SubagentType
from background.errors import Fault

SECRET = "secret keys at https://errors.example.org"
AGE = {"type": "integer", "minimum": 18, "title": "Your age"}
FORM = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": AGE},
    "required": ["name"],
}


def folder() -> Path:
    return Path(os.environ.get("TRIAL_FOLDER", "."))


def note(line: str) -> None:
    with (folder() / "diary").open("a", encoding="utf-8") as diary:
        diary.write(line.replace("\n", " ") + "\n")


def is_open(door: str) -> bool:
    return (folder() / f"door-{door}").exists()


async def trial(work: Any) -> Any:
    note(f"began {work.task_id} {work.text}")
    said: list[str] = []
    parts: list[dict[str, Any]] = []
    for command in work.text.split("; "):
        verb, _, rest = command.partition(" ")
        if verb in UNKEEPABLE:
            return UNKEEPABLE[verb]()
        match verb:
            case "echo":
                said.append(rest)
            case "sleep":
                await asyncio.sleep(float(rest))
            case "wait":
                while not is_open(rest):  # noqa: ASYNC110 - the door is a file, opened by another process
                    await asyncio.sleep(0.01)
            case "ask":
                said.append(await work.ask(rest))
            case "form":
                said.append(json.dumps(await work.form(rest, FORM)))
            case "approve":
                said.append("approved" if await work.approve(rest, f"all of {rest}") else "denied")
            case "auth":
                said.append(await work.authenticate(rest))
            case "fragment":
                await work.fragment(rest)
                said.append(rest)
            case "data":
                parts.append({"data": json.loads(rest)})
            case "file":
                name, _, text = rest.partition(" ")
                raw = base64.b64encode(text.encode()).decode()
                parts.append({"raw": raw, "filename": name, "mediaType": "text/html"})
            case "link":
                parts.append({"url": rest, "mediaType": "text/html"})
            case "named":
                name, _, text = rest.partition(" ")
                work.artifact([{"text": text}, {"data": {"of": name}}], name=name)
            case "many":
                for number in range(int(rest)):
                    work.artifact(f"artifact {number}", name=f"piece {number}")
            case "big":
                said.append("x" * int(rest))
            case "note":
                note(rest)
            case "look":
                status = await sdk.background_status(rest)
                said.append(status.status if status else "no such job")
            case "home":
                said.append(await sdk.open_session(rest))
            case "stop":
                said.append(await told(stopped(rest)))
            case "send":
                said.append(await told(sdk.spawn_background(**json.loads(rest))))
            case "work":
                said.append(await told(sdk.spawn_work(**json.loads(rest))))
            case "loose":
                said.append(await told(sdk.spawn_work(loose(), **json.loads(rest))))
            case "batch":
                said.append(await told(sdk.spawn_batch(**json.loads(rest))))
            case "thread":
                said.append(await asyncio.to_thread(asyncio.run, told(sdk.spawn_background(**json.loads(rest)))))
            case "find":
                said.append(f"{len(await sdk.search_knowledge(rest))} hits")
            case "boom":
                raise RuntimeError(f"{rest} {SECRET}")
            case "nothing":
                return None
            case "asked":
                said.append(json.dumps({"session": work.session, "owner": work.owner, "data": work.data}))
            case _:
                said.append(command)
    return [*([{"text": "\n".join(said)}] if said else []), *parts] if parts else "\n".join(said)


async def labor(work: Any) -> Any:
    """The kinds `trial-steps` and `trial-once`: what its arguments say, in this order."""
    args = work.data
    note(f"labors {args.get('name', '')} {sorted(work.kept)}")
    for step in args.get("steps", []):
        if step not in work.kept:
            await work.keep(step, f"did {step}")
            note(f"did {step}")
    if "door" in args:
        while not is_open(args["door"]):  # noqa: ASYNC110 - the door is a file, opened by another process
            await asyncio.sleep(0.01)
    if "ask" in args:
        return f"answered {await work.ask(args['ask'])}"
    if "fail" in args:
        raise WorkFailed(args["fail"])
    if "boom" in args:
        raise RuntimeError(SECRET)
    return args.get("say", "done") + "x" * args.get("chars", 0) + args.get("end", "")


def labor_in_thread(work: Any) -> Any:
    """The kind `trial-thread`."""
    note(f"labors {work.data['name']}")
    while not is_open(work.data["door"]):
        time.sleep(0.01)
    return "done in a thread"


async def loose() -> str:
    """A coroutine to be given as work."""
    note("loose")
    while not is_open("loose"):  # noqa: ASYNC110 - the door is a file, opened by another process
        await asyncio.sleep(0.01)
    return "loose and done"


async def hire(session: str, args: str) -> str:
    """Sends out work of the kind trial-steps with these arguments, as JSON."""
    return await told(sdk.spawn_work("trial-steps", json.loads(args), session=session))


async def told(call: Coroutine[Any, Any, Any]) -> str:
    """What came of a call of the sdk's, in a line."""
    try:
        made = await call
    except Fault as fault:
        return f"{fault.reason or fault.kind}: {fault.message}"
    return ",".join(made) if isinstance(made, list) else str(made)


async def stopped(job_id: str) -> str:
    status = await sdk.cancel_background(job_id)
    return f"{status.status} by {status.canceled_by}"


def threaded(outrider: Any) -> None:
    while not is_open("thread"):
        time.sleep(0.01)
    with outrider.acting():
        note("thread " + asyncio.run(told(sdk.spawn_background(session="threaded", prompt="work"))))


async def hear(event: Any) -> None:
    if is_open("deaf") and not is_open("mended"):
        note(f"deaf to {event.id}")
        raise RuntimeError(SECRET)
    note(f"heard {event.id} {event.name} {event.owner} {event.data.get('id') or event.data.get('task_id')}")


def hear_ends(event: Any) -> None:
    status = asyncio.run(sdk.background_status(event.data["id"]))
    assert status
    note(f"ended {status.id} {status.report}")
    if status.description == "follow me":
        asked = {"session": status.session_id, "prompt": "work on", "key": f"after {status.id}"}
        note("followed by " + asyncio.run(told(sdk.spawn_background(**asked))))


def cycle() -> list[Any]:
    inner: list[Any] = []
    inner.append(inner)
    return [{"data": inner}]


def deep() -> list[Any]:
    value: Any = 0
    for _ in range(40):
        value = [value]
    return [{"data": value}]


UNKEEPABLE: dict[str, Any] = {
    "cycle": cycle,
    "nan": lambda: [{"data": {"x": float("nan")}}],
    "bytes": lambda: [{"data": b"bytes"}],
    "tuple": lambda: ("no", "answer"),
    "deep": deep,
}


def trial_sync(work: Any) -> Any:
    note(f"began {work.task_id} {work.text}")
    said: list[str] = []
    for command in work.text.split("; "):
        verb, _, rest = command.partition(" ")
        if verb == "boom":
            raise RuntimeError(f"{rest} {SECRET}")
        while verb == "wait" and not is_open(rest):
            time.sleep(0.01)
        said += [rest] if verb == "echo" else []
        said += [asyncio.run(told(sdk.spawn_background(**json.loads(rest))))] if verb == "send" else []
    note(f"ended {work.task_id}")
    return "\n".join(said)


async def shout(text: str) -> str:
    """Says a text in capitals."""
    if text == "boom":
        raise RuntimeError(SECRET)
    return text.upper()


async def pay(amount: int) -> str:
    """Pays an amount."""
    note(f"paid {amount}")
    return f"paid {amount}"


async def double(number: int) -> str:
    """Doubles a number."""
    note(f"doubled {number}")
    return str(2 * number)


async def dwell(door: str) -> str:
    """Waits until a door is opened."""
    note(f"dwells at {door}")
    try:
        while not is_open(door):  # noqa: ASYNC110 - the door is a file, opened by another process
            await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        note(f"stopped at {door}")
        raise
    note(f"went through {door}")
    return f"through {door}"


def linger(door: str) -> str:
    """Waits until a door is opened, and cannot be stopped."""
    note(f"lingers at {door}")
    while not is_open(door):
        time.sleep(0.01)
    note(f"went through {door}")
    return f"through {door}"


async def send(session: str, prompt: str) -> str:
    """Sends a job out by the sdk."""
    try:
        return f"sent {await sdk.spawn_background(session=session, prompt=prompt, description=prompt.upper())}"
    except Fault as fault:
        return f"{fault.reason}: {fault.message} {json.dumps(fault.details)}"


async def guard(text: str, profile: str, task: str) -> bool | str:
    if "explode" in text:
        raise RuntimeError(text)
    if "no go" in text:
        return "no-go"
    return "forbidden" not in text


def guard_no(text: str, profile: str, task: str) -> bool:
    return False


def redact(text: str) -> str:
    return text.replace("hush", "[quiet]")


def register(outrider: Any) -> None:
    outrider.handler("trial", trial)
    outrider.handler("trial-sync", trial_sync)
    outrider.tool(shout)
    outrider.tool(pay, needs_approval=True)
    outrider.tool(double)
    outrider.tool(dwell)
    outrider.tool(linger)
    outrider.subagent(
        SubagentType(name="trialist", description="Tries things out.", prompt="Try it.", tools=("shout",))
    )
    for name in ("loner", "parker"):
        role = {"description": f"A {name}.", "prompt": "Ask.", "tools": ("pay", "dwell", "linger", "ask_user")}
        outrider.subagent(SubagentType(name=name, parks=name == "parker", **role))
    more = os.environ.get("TRIAL", "").split(",")
    if "breaks" in more:
        raise RuntimeError(SECRET)
    if "guard" in more:
        outrider.output_guard(guard)
    if "guard-no" in more:
        outrider.output_guard(guard_no)
    if "redactor" in more:
        outrider.redactor(redact)
    if "works" in more:
        outrider.work("trial-steps", labor, idempotent=True)
        outrider.work("trial-once", labor)
        outrider.work("trial-thread", labor_in_thread, idempotent=True)
        outrider.tool(hire)
    if "second" in more:
        outrider.knowledge_backend("second", open_second)
    if "hears" in more:
        outrider.listener("diary", hear)
        outrider.listener("ends", hear_ends, "background.completed")
    if "thread" in more:
        threading.Thread(target=threaded, args=(outrider,), daemon=True).start()
    if "sender" in more:
        outrider.tool(send)
        tools = (
            "task",
            "task_batch",
            "background_status",
            "stop_task",
            "open_report",
            "memory_recall",
            "send",
            "dwell",
        )
        outrider.subagent(SubagentType(name="sender", description="Sends out.", prompt="Send out.", tools=tools))
