"""`outrider` with faults built in, for what no real process can be asked to do; run as `python -m tests.a2a.faulty`.

A message that says "handler boom" makes the turn's handler raise before it begins, "late boom" once it has begun, and
"model boom" makes the model's own library raise something that it has no word for.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pydantic_ai.models.openai import OpenAIChatModel

from agent.taking_up import Turn
from agent.turns import Turns
from background import messages
from background.database import Tx
from background.queue import Run
from web import cli

SECRET = "secret: /srv/keys/prod.pem https://errors.example.org/x"

begins, handled = Turns.begin, Turns.run
streamed = OpenAIChatModel.request_stream


def begin(turns: Turns, tx: Tx, run: Run) -> tuple[Run, Turn]:
    if "handler boom" in messages.opening(tx, run.task_id or "")[0]:
        raise RuntimeError(SECRET)
    return begins(turns, tx, run)


async def run(turns: Turns, begun: tuple[Run, Turn]) -> None:
    if "late boom" in (await turns.db.read(messages.opening, begun[1].task.id))[0]:
        raise RuntimeError(SECRET)
    await handled(turns, begun)


@asynccontextmanager
async def request_stream(model: OpenAIChatModel, messages: Any, *more: Any, **named: Any) -> AsyncIterator[Any]:
    if "model boom" in str(messages[-1]):
        raise RuntimeError(SECRET)
    async with streamed(model, messages, *more, **named) as response:
        yield response


def main() -> None:
    Turns.begin, Turns.run = begin, run  # pyright: ignore[reportAttributeAccessIssue]
    OpenAIChatModel.request_stream = request_stream  # pyright: ignore[reportAttributeAccessIssue]
    cli.main()


if __name__ == "__main__":
    main()
