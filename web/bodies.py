"""Request bodies, read whole and never beyond their limit. It knows neither JSON nor a protocol."""

from starlette.types import Receive

BODY_LIMIT = 4 * 1024 * 1024  # bytes


class TooLarge(Exception):
    """A body over `limit` bytes."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.limit = limit


class CutOff(Exception):
    """Its client was gone before the end of the body: nobody is there to be told."""


async def whole(receive: Receive, most: int = BODY_LIMIT) -> bytes:
    """A request's body. Raises TooLarge as soon as it is, and CutOff."""
    body, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise CutOff
        body += message.get("body", b"")
        if len(body) > most:
            raise TooLarge(most)
        more = message.get("more_body", False)
    return bytes(body)
