"""The head of a request, its line and headers, read no further than a limit: the parser itself has none.

What is over it is answered with 431 before anybody else has heard of it, and its connection is closed.
"""

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_LIMIT = 65_536  # bytes, of the line and all headers together
PLACES = 4  # beside a name and its value: a colon, a blank and the end of the line


class _TooLong(Exception):
    """Stops the parser."""


class BoundedHead(HttpToolsProtocol):
    """uvicorn's connection, with that limit."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._in_head, self._read, self._too_long = True, 0, False

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head and not self.transport.is_closing():
            self._read += len(data)
            if self._read > HEAD_LIMIT:  # and its end is not in sight
                self._refuse()

    def on_message_begin(self) -> None:
        self._in_head, self._read = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        if len(self.url) + sum(len(name) + len(value) + PLACES for name, value in self.headers) > HEAD_LIMIT:
            self._too_long = True
            raise _TooLong
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        if self._too_long:
            self._refuse()
        else:
            super().send_400_response(msg)

    def _refuse(self) -> None:
        said = f"The request line and its headers are larger than {HEAD_LIMIT} bytes.".encode()
        head = (
            "HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain; charset=utf-8\r\n"
            f"content-length: {len(said)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + said)
        self.transport.close()
