"""The gRPC binding of A2A 1.0: a server on a port of its own, in the process and the loop that serve HTTP.

It reads metadata and messages into a method's call and writes what comes of it, and decides nothing: the methods are in
`a2a_methods.py`, who asks is found by `callers.py`. Only a process that serves gRPC loads it, since what it needs is
an extra. A2A 1.0, section 10.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, NoReturn

import grpc
from a2a.types import a2a_pb2
from google.protobuf.descriptor import MethodDescriptor
from grpc import aio
from starlette.types import Receive

from background.large import is_large
from web import a2a_grpc_messages as messages
from web import a2a_requests
from web.a2a_call import LARGE_BODY, Call, off_the_loop, version_in
from web.a2a_errors import A2AError
from web.a2a_faults import as_error
from web.a2a_methods import Methods
from web.a2a_stream import LAST_WORDS_S, LINGER_S, PING_S, SLOW_S, Telling
from web.bodies import BODY_LIMIT
from web.house import House
from web.setting_fields import Settings
from web.setting_values import authority
from web.settings import BadSetting

log = logging.getLogger("outrider.a2a")

SERVICE = a2a_pb2.DESCRIPTOR.services_by_name["A2AService"]
DETAILS = "grpc-status-details-bin"
LIBRARY = "grpc._cython.cygrpc"  # its logger
STOP_S = 1.0  # what is still being answered at the end of a shutdown gets this
CONNECTION_S = 600.0  # a client is then asked to connect anew, and what it never reads ends with the connection
Json = dict[str, Any]
Context = aio.ServicerContext[bytes, bytes]
Metadata = list[tuple[bytes, bytes]]


@asynccontextmanager
async def serving(house: House) -> AsyncIterator[None]:
    """Serve gRPC until the end of the block. Raises `BadSetting` where the address cannot be had."""
    logging.getLogger(LIBRARY).addFilter(_in_a_line)
    server = aio.server(options=_options(house.settings))
    server.add_generic_rpc_handlers([Edge(house)])
    address = authority(house.settings.host, house.settings.grpc_port or 0)
    try:
        server.add_insecure_port(address)
    except RuntimeError:
        raise BadSetting(f"OUTRIDER_GRPC_PORT: cannot listen on {address}; choose a free one") from None
    await server.start()
    try:
        yield
    finally:
        await server.stop(STOP_S)


def _in_a_line(record: logging.LogRecord) -> bool:
    """What the library logs as a failure of ours, with its traceback: a client is gone, or takes no answer of this size."""
    if str(record.msg).startswith("ExecuteBatchError"):
        record.levelno, record.levelname, record.exc_info = logging.INFO, "INFO", None
        record.msg, record.args = "a client did not take its answer: gone, or its limit is lower", ()
    return True


def _options(settings: Settings) -> list[tuple[str, int]]:
    longest_s = settings.stream_max_s + LAST_WORDS_S + LINGER_S
    return [
        ("grpc.so_reuseport", 0),  # two servers on one port would share its clients without a word
        # What is somewhat too large is refused in our words, and what is larger by the library.
        ("grpc.max_receive_message_length", 2 * BODY_LIMIT),
        # A limit on what is sent is none on what it inflates to. Over HTTP nothing compressed is taken either.
        ("grpc.compression_enabled_algorithms_bitset", 1),
        ("grpc.keepalive_time_ms", int(PING_S * 1000)),
        ("grpc.max_connection_age_ms", int(CONNECTION_S * 1000)),
        ("grpc.max_connection_age_grace_ms", int(longest_s * 1000)),
    ]


class Edge(grpc.GenericRpcHandler):
    """The service's methods, each by the name that it has on every binding.

    Requests stay bytes until their caller is known, so that what is no message is refused in the same form as all else.
    """

    def __init__(self, house: House) -> None:
        self._house = house
        self._methods = Methods(house).served
        self._handlers = {f"/{SERVICE.full_name}/{method.name}": self._handler(method) for method in SERVICE.methods}
        self._told_to: set[asyncio.Future[bytes | A2AError]] = set()  # the loop alone would not keep them

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        """What answers a call, by the path that it names."""
        return self._handlers.get(handler_call_details.method) or grpc.stream_stream_rpc_method_handler(_nothing_here)

    def _handler(self, method: MethodDescriptor) -> grpc.RpcMethodHandler:
        async def answer(request: bytes, context: Context) -> bytes:
            return await self._answer(method, request, context)

        async def stream(request: bytes, context: Context) -> None:
            await self._stream(method, request, context)

        if method.server_streaming:
            return grpc.unary_stream_rpc_method_handler(stream)
        return grpc.unary_unary_rpc_method_handler(answer)

    async def _answer(self, method: MethodDescriptor, request: bytes, context: Context) -> bytes:
        """One answer. A client that is gone, or whose deadline is over, ends the wait and nothing else, as over HTTP."""
        gone = asyncio.Event()

        async def hang_up() -> Json:
            await gone.wait()
            return {"type": "http.disconnect"}

        told = asyncio.ensure_future(self._told(method, request, _metadata(context), hang_up))
        self._told_to.add(told)
        told.add_done_callback(self._told_to.discard)
        try:
            answer = await asyncio.shield(told)
        except asyncio.CancelledError:
            gone.set()
            raise
        return await _refuse(context, answer) if isinstance(answer, A2AError) else answer

    async def _told(
        self, method: MethodDescriptor, request: bytes, metadata: Metadata, receive: Receive
    ) -> bytes | A2AError:
        try:
            return await _encoded(method, await self._asked(method, request, metadata, receive))
        except Exception as failure:  # noqa: BLE001 - the door: logged with an id, and only the id goes out
            return as_error(failure)

    async def _stream(self, method: MethodDescriptor, request: bytes, context: Context) -> None:
        """A stream, in the bounds of one over HTTP; that its client is alive is asked by the connection itself."""
        try:
            telling: Telling = await self._asked(method, request, _metadata(context), _never)
        except Exception as failure:  # noqa: BLE001 - the door: logged with an id, and only the id goes out
            await _refuse(context, as_error(failure))
        with telling.place:
            error = await _write(method, telling, context)
        if error is not None:
            await _refuse(context, error)

    async def _asked(self, method: MethodDescriptor, request: bytes, metadata: Metadata, receive: Receive) -> Any:
        caller = await self._house.callers.of(metadata)
        a2a_requests.negotiate(version_in(metadata), None, method.name)
        if len(request) > BODY_LIMIT:
            raise A2AError("REQUEST_TOO_LARGE", f"The request is larger than {BODY_LIMIT} bytes")
        large = len(request) > LARGE_BODY
        call = Call(caller, await off_the_loop(large, messages.params, method.input_type, request), large, receive)
        return await self._methods[method.name](call)


async def _write(method: MethodDescriptor, telling: Telling, context: Context) -> A2AError | None:
    """Write what is told, and return why it ended before the task did. A message is written whole or not at all."""
    try:
        async with asyncio.timeout(telling.lasts_s), aclosing(telling.items) as told:
            await context.send_initial_metadata(())  # with a first message that is not read, no end could be sent
            async for item in told:
                if item is not None:
                    message = await _encoded(method, item)
                    async with asyncio.timeout(SLOW_S):
                        await context.write(message)
    except TimeoutError:
        log.info("a stream was dropped: its client does not read")
        return A2AError("STREAM_TOO_SLOW")
    except aio.BaseError:
        raise  # the call is over, and nobody is there to be told
    except Exception as failure:  # noqa: BLE001 - the door: logged with an id, and only the id goes out
        return as_error(failure)
    return None


async def _encoded(method: MethodDescriptor, answer: Json) -> bytes:
    return await off_the_loop(is_large(answer), messages.encoded, method.output_type, answer)


async def _refuse(context: Context, error: A2AError) -> NoReturn:
    """End the call with the error's status. Raises what the library ends a call by."""
    code = grpc.StatusCode[error.kind.grpc]
    number: int = code.value[0]
    await context.abort(code, error.message, ((DETAILS, messages.status(error, number)),))


async def _nothing_here(requests: object, context: Context) -> None:
    await _refuse(context, A2AError("METHOD_NOT_FOUND"))


async def _never() -> Json:
    """For a method that does not ask whether its client is there."""
    return await asyncio.get_running_loop().create_future()


def _metadata(context: Context) -> Metadata:
    """As HTTP has headers; what is not text is none of ours."""
    sent = context.invocation_metadata() or ()
    return [(name.encode(), value.encode()) for name, value in sent if isinstance(value, str)]
