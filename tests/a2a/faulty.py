"""`outrider` with faults built in, for what no real process can be asked to do; run as `python -m tests.a2a.faulty`.

A message that says "handler boom" makes the turn's handler raise before it begins, "late boom" once it has begun, and
"model boom" makes the model's own library raise something that it has no word for.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pydantic_ai.models.openai import OpenAIChatModel

from agent import taking_up
from agent.turns import PAST_TURNS, Turns
from background import sessions
from background.queue import Run
from web import cli

SECRET = "secret: /srv/keys/prod.pem https://errors.example.org/x"

handled = Turns.run
streamed = OpenAIChatModel.request_stream


async def run(turns: Turns, run: Run) -> None:
    text, _ = await turns.db.read(sessions.opening, run.task_id or "")
    if "late boom" in text:
        await turns.db.write(taking_up.begin, run, turns.shape, PAST_TURNS)
    if "handler boom" in text or "late boom" in text:
        raise RuntimeError(SECRET)
    await handled(turns, run)


@asynccontextmanager
async def request_stream(model: OpenAIChatModel, messages: Any, *more: Any, **named: Any) -> AsyncIterator[Any]:
    if "model boom" in str(messages[-1]):
        raise RuntimeError(SECRET)
    async with streamed(model, messages, *more, **named) as response:
        yield response


if __name__ == "__main__":
    Turns.run = run  # pyright: ignore[reportAttributeAccessIssue]
    OpenAIChatModel.request_stream = request_stream  # pyright: ignore[reportAttributeAccessIssue]
    cli.main()
