"""What the A2A project's conformance kit asks of an agent under test, as a plugin. How it is used: docs/conformance.md.

The kit says by the beginning of a message's id what should come of it. One handler does what its scenarios say, but for
the two that no task of ours can: an answer that is a message without a task, and a task that is rejected.
"""

import base64
from typing import Any

FILE = {"filename": "output.txt", "mediaType": "text/plain"}
ANSWERS: dict[str, str | list[dict[str, Any]]] = {
    "tck-artifact-text": "Generated text content",
    "tck-artifact-file-url": [{"url": "https://example.com/output.txt", **FILE}],
    "tck-artifact-file": [{"raw": base64.b64encode(b"output").decode(), **FILE}],
    "tck-artifact-data": [{"data": {"key": "value", "count": 42}}],
    "tck-stream-001": "Stream hello from TCK",
    "tck-stream-003": "Stream task lifecycle",
    "tck-stream-ordering-001": "Ordered output",
}
ASKS = "tck-input-required"
ASKED_ON = "TCK history message"  # the answers after which the kit wants to be asked again


async def scenario(work: Any) -> str | list[dict[str, Any]]:
    """The answer of the scenario that the message's id begins with."""
    if work.message_id.startswith(ASKS):
        while (await work.ask("What more?")).startswith(ASKED_ON):
            pass
    found = (answer for name, answer in ANSWERS.items() if work.message_id.startswith(name))
    return next(found, "Hello from TCK")


def register(outrider: Any) -> None:
    outrider.handler("kit", scenario)
