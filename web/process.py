"""Outrider as a process: it serves, or works, until it is told to stop.

Sockets, signals and exit codes are here; what runs is put together in `app.py`.
"""

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from typing import Any

import uvicorn
import uvloop
from starlette.types import ASGIApp

from agent.models import install_command
from background.errors import StorageUnavailable, UnusableDatabase
from knowledge.backend import StoreFailed
from web import health, logs
from web.app import VERSION, build
from web.garbage import collected
from web.head import BoundedHead
from web.house import House
from web.setting_fields import Settings
from web.settings import BadSetting

log = logging.getLogger("outrider")

BACKLOG = 2048


def serve(settings: Settings, worker: bool) -> int:
    """Serve until SIGTERM or SIGINT; the process's exit code."""
    return _process(settings, lambda: _serve(settings, worker))


def work(settings: Settings) -> int:
    """Work without serving until SIGTERM or SIGINT; the process's exit code."""
    return _process(settings, lambda: _work(settings))


def _process(settings: Settings, main: Callable[[], Coroutine[Any, Any, None]]) -> int:
    logs.set_up(masked=settings.answer_level != "full")
    try:
        uvloop.run(main())
    except BadSetting as error:
        print(f"outrider: {error}", file=sys.stderr)
        return 2
    except (UnusableDatabase, StorageUnavailable, StoreFailed) as error:
        print(f"outrider: {error}", file=sys.stderr)
        return 1
    return 0


def _stop_event() -> asyncio.Event:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


class _Server(uvicorn.Server):
    """uvicorn without its own signal handlers: while work is being finished the door stays open, and refuses."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _listen(settings: Settings) -> socket.socket:
    """The listening socket. Raises `BadSetting` where the address cannot be had."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # The protocol is named because asyncio turns Nagle's algorithm off only for sockets that say that they are TCP.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
        listener.listen(BACKLOG)
        return listener
    except OSError as error:
        listener.close()
        address = f"{settings.host}:{settings.port}"
        raise BadSetting(f"OUTRIDER_PORT: cannot listen on {address}: {error.strerror}; choose a free one") from error


def _grpc(settings: Settings) -> Callable[[House], AbstractAsyncContextManager[None]]:
    """What serves gRPC beside the rest, where it is asked for. Raises `BadSetting` where its libraries are not installed."""
    if settings.grpc_port is None:
        return lambda house: nullcontext()
    try:
        from web import a2a_grpc
    except ModuleNotFoundError as missing:
        command = install_command("grpc")
        raise BadSetting(f"OUTRIDER_GRPC_PORT: gRPC needs a library that is not installed: {command}") from missing
    return a2a_grpc.serving


async def _serve(settings: Settings, worker: bool) -> None:
    stop = _stop_event()
    grpc = _grpc(settings)
    outrider = build(settings, works=worker)
    with _listen(settings) as listener:
        async with outrider.running(), grpc(outrider.house), collected():
            server = _Server(_config(outrider.app))
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            print(f"Outrider {VERSION} serves on {settings.address} (console: {settings.address}/)", flush=True)
            if settings.grpc_address is not None:
                print(f"A2A over gRPC on {settings.grpc_address}", flush=True)
            for problem in [*await health.problems(outrider.house), *outrider.house.flaws]:
                log.warning(problem)
            await stop.wait()
            await outrider.stop()
            server.should_exit = True
            await serving


def _config(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=1,
        http=BoundedHead,
        ws="none",
    )


async def _work(settings: Settings) -> None:
    stop = _stop_event()
    async with build(settings, serves=False).running() as outrider, collected():
        print(f"Outrider {VERSION} works on {outrider.settings.data}", flush=True)
        await stop.wait()
