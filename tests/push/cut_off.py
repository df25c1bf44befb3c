"""`outrider`, cut off from the network: it can be reached and reaches nobody; run as `python -m tests.push.cut_off`.

Whatever it tries stands in its log.
"""

import asyncio
import socket
from typing import Any

import uvloop

from web import cli


def refused(name: str) -> Any:
    def refuse(*_: Any, **__: Any) -> Any:
        print(f"CUT OFF: {name}", flush=True)
        raise OSError(f"{name}: the network is unreachable")

    async def refuse_later(*_: Any, **__: Any) -> Any:
        refuse()

    return refuse if name in ("connect", "connect_ex", "sendto") else refuse_later


def main() -> None:
    for name in ("create_connection", "sock_connect", "create_datagram_endpoint", "getaddrinfo", "start_tls"):
        for loop in (uvloop.Loop, asyncio.SelectorEventLoop):
            setattr(loop, name, refused(name))
    for name in ("connect", "connect_ex", "sendto"):
        setattr(socket.socket, name, refused(name))
    cli.main()


if __name__ == "__main__":
    main()
