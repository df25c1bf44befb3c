"""The tools that send work out, in front and in the background, and the one that takes sources in."""

from dataclasses import replace
from typing import Any

from pydantic_ai import RunContext

from agent.desk import Desk, Function
from agent.spawning import MAX_BATCH, Sent, require_depth, send_out_once, spec_of
from agent.subagents import Registry
from background import queue, tasks
from background.database import Tx
from background.errors import Fault
from background.jobs import Spec

NONE_BELOW = "DEPTH_LIMIT: a subagent in the foreground sends out none itself; do the work yourself."


def task_at(desk: Desk) -> Function:
    async def task(ctx: RunContext[Any], **asked: Any) -> str:
        return await _send(desk, ctx, [asked], asked.get("run_in_background"))

    return task


def task_batch_at(desk: Desk) -> Function:
    async def task_batch(ctx: RunContext[Any], **asked: Any) -> str:
        specs = asked.get("tasks")
        if not isinstance(specs, list):
            return "tasks must be a list of objects with description, prompt and subagent_type; nothing was started."
        if not specs:
            return "The list of tasks is empty; nothing was started."
        if len(specs) > MAX_BATCH:
            return f"{len(specs)} tasks in one call are too many, at most {MAX_BATCH} are allowed; nothing was started."
        return await _send(desk, ctx, specs, asked.get("run_in_background"))

    return task_batch


async def _send(desk: Desk, ctx: RunContext[Any], asked: list[Any], background: Any) -> str:
    if not desk.sends:
        return NONE_BELOW
    specs, lines = _sorted_out(desk.registry, asked)
    if not specs:
        return "\n".join([*lines.values(), "Nothing was started."])
    if background is not True:
        try:
            require_depth(desk.job, desk.db.limits.max_depth)
        except Fault as fault:
            return f"{fault.reason}: {fault.message}"
        texts = await desk.foreground([spec for _, spec in specs])
        for (index, spec), text in zip(specs, texts, strict=True):
            lines[index] = f"## {index + 1}. {spec.description}\n\n{text}"
        return "\n\n".join(lines[index] for index in sorted(lines))
    return await _out(desk, ctx, specs, lines)


async def _out(desk: Desk, ctx: RunContext[Any], specs: list[tuple[int, Spec]], lines: dict[int, str]) -> str:
    """Send them out in the background, and say so beside the `lines` of those that could not be."""
    rule = await desk.refuses(_words(specs)) if desk.refuses else None
    if rule:
        return f"OUTPUT_REJECTED: the output guard refused what would be sent out ({rule}). Nothing was started."
    keyed = [(f"step:{desk.task.id}:{desk.step()}:{ctx.tool_call_id}:{index}", spec) for index, spec in specs]
    try:
        sent = await desk.db.write(_spawn, desk, keyed)
    except Fault as fault:
        return f"{fault.reason or 'REFUSED'}: {fault.message}"
    for (index, _), one in zip(specs, sent, strict=True):
        how = "already running; nothing was sent out again" if one.running else "sent out"
        lines[index] = f"{index + 1}. {one.job.id} {one.job.subagent_type}: {one.job.description} ({how})"
    return "\n".join([*(lines[index] for index in sorted(lines)), desk.not_yet])


def knowledge_ingest_at(desk: Desk) -> Function:
    async def knowledge_ingest(ctx: RunContext[Any], **asked: Any) -> str:
        if not desk.sends:
            return NONE_BELOW
        try:
            spec = desk.sources.spec(asked.get("source"), incognito=desk.session.incognito)
        except Fault as fault:
            return f"{fault.message} Nothing was started."
        return await _out(desk, ctx, [(0, spec)], {})

    return knowledge_ingest


def _words(specs: list[tuple[int, Spec]]) -> str:
    return "\n\n".join(f"{spec.description}\n{spec.prompt}" for _, spec in specs)


def _sorted_out(registry: Registry, asked: list[Any]) -> tuple[list[tuple[int, Spec]], dict[int, str]]:
    specs: list[tuple[int, Spec]] = []
    refused: dict[int, str] = {}
    for index, each in enumerate(asked):
        try:
            specs.append((index, spec_of(registry, each)))
        except Fault as fault:
            refused[index] = f"{index + 1}. skipped, {fault.reason or 'INVALID'}: {fault.message}"
    return specs, refused


def _spawn(tx: Tx, desk: Desk, keyed: list[tuple[str, Spec]]) -> list[Sent]:
    queue.fence(tx, desk.run)
    level, made_of = tasks.ceiling_of(tx, desk.task.id), tasks.made_of(tx, desk.task.id)
    keyed = [(key, replace(spec, made_of=made_of)) for key, spec in keyed]
    return send_out_once(tx, desk.session, desk.task.id, keyed, level=level, sender=desk.job)
