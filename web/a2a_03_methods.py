"""The methods of A2A 0.3 as they are served: each asks its twin of 1.0, and tells its answer in the words of 0.3.

It translates on the way in and out, decides nothing, and knows no envelope.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

from background.errors import Fault
from web.a2a_03 import TWINS, Twin
from web.a2a_call import Call
from web.a2a_errors import A2AError
from web.a2a_faults import as_error
from web.a2a_stream import Telling

Json = dict[str, Any]
Method = Callable[[Call], Awaitable[Any]]
Items = AsyncGenerator[Json | None, None]


def twins(served: Mapping[str, Method]) -> dict[str, Method]:
    """The methods of 0.3 by name, over those of 1.0."""
    return {name: _spoken(twin, served[twin.method]) for name, twin in TWINS.items() if twin.method in served}


def _spoken(twin: Twin, method: Method) -> Method:
    async def serve(call: Call) -> Any:
        call.params = await call.checked(twin.params)
        try:
            answer = await method(call)
        except (A2AError, Fault) as failure:
            raise _renamed(as_error(failure), twin) from None
        if isinstance(answer, Telling):
            return answer._replace(items=_translated(answer.items, twin.answer))
        return twin.answer(answer)

    return serve


async def _translated(items: Items, answer: Callable[[Json], Json]) -> Items:
    async with aclosing(items) as told:
        async for item in told:
            yield None if item is None else answer(item)


def _renamed(error: A2AError, twin: Twin) -> A2AError:
    """The error that 0.3 has for it, with each field named as the client wrote it, at the head of its sentence too."""
    if error.reason in twin.reasons:
        return A2AError(twin.reasons[error.reason])
    name = twin.field
    fields = [field for field, _ in error.violations] or [error.metadata.get("field", "")]
    head, rest = fields[0], error.message.removeprefix(fields[0])
    metadata = error.metadata | ({"field": name(head)} if "field" in error.metadata else {})
    return A2AError(
        error.reason,
        name(head) + rest if head and rest.startswith(": ") else error.message,
        metadata=metadata,
        violations=[(name(field), description) for field, description in error.violations],
        retry_after_s=error.retry_after_s,
        rpc_id=error.rpc_id,
    )
