"""What a request has no room for is left out of that request alone: what is kept of the turn has it whole."""

from collections.abc import AsyncIterator, Callable
from typing import Any

from pydantic_ai.messages import ModelMessage, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.toolsets import FunctionToolset

from agent.loop import Progress, Unkept, drive, user_message
from agent.windows import tokens_of

ROOM = 4000
PAGE = "word " * 1600  # 2,000 tokens


def brought(messages: list[ModelMessage]) -> list[str]:
    """What tools brought, in order, as a request or a turn has it."""
    return [
        part.model_response_str() for message in messages for part in message.parts if isinstance(part, ToolReturnPart)
    ]


class Reader:
    """A model that reads page after page, and what it was sent."""

    def __init__(self, pages: int) -> None:
        self.pages, self.sent = pages, list[list[ModelMessage]]()

    async def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        self.sent.append(list(messages))
        if len(self.sent) <= self.pages:
            yield {0: DeltaToolCall("page", json_args=f'{{"number": {len(self.sent)}}}')}
        else:
            yield "Done."


def read(run: Callable[..., Any], pages: int, page: str = PAGE) -> tuple[Reader, Progress]:
    async def page_(number: int) -> str:
        return f"page {number} of bg-0123456789ab: {page}"

    reader, progress = Reader(pages), Progress([])
    tools = FunctionToolset(id="pages")
    tools.add_function(page_, name="page")
    model = FunctionModel(stream_function=reader)
    run(drive(model, "Read.", tools, progress, user_message("go"), Unkept(), 60, room=ROOM))
    return reader, progress


def test_requests_fit_and_what_is_kept_is_whole(run: Callable[..., Any]) -> None:
    reader, progress = read(run, 5)
    assert progress.final_texts == ["Done."]
    assert all(tokens_of(sent) <= ROOM for sent in reader.sent)
    assert [text[:6] for text in brought(progress.turn)] == [f"page {number}" for number in range(1, 6)]
    assert all(PAGE in text for text in brought(progress.turn))
    *older, newest = brought(reader.sent[-1])
    assert all("left out to make room" in text and "bg-0123456789ab" in text for text in older)
    assert PAGE in newest


def test_what_was_cut_once_stays_cut_so_that_a_provider_can_cache_the_rest(run: Callable[..., Any]) -> None:
    reader, _ = read(run, 6)
    for before, after in zip(reader.sent, reader.sent[1:], strict=False):
        cut = [text for text in brought(before) if "left out" in text]
        assert brought(after)[: len(cut)] == cut


def test_a_result_that_alone_is_too_long_is_shortened(run: Callable[..., Any]) -> None:
    reader, progress = read(run, 1, PAGE * 4)
    (shown,) = brought(reader.sent[-1])
    assert shown.startswith("page 1") and "The rest of this result" in shown
    assert tokens_of(reader.sent[-1]) <= ROOM
    assert PAGE * 4 in brought(progress.turn)[0]
