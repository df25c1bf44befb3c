"""A85, F130: at `redacted`, what is large is masked before the transaction that stores it, so that nobody waits to write."""

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from background.redaction import redact
from web import app
from web.setting_fields import Settings

MANY = 3_000
WORDS = "Ask ada@example.com. " * 4_000


@pytest.fixture
def masked_in(monkeypatch: pytest.MonkeyPatch) -> Counter[bool]:
    """How many characters were masked in the thread for what is large (True), and elsewhere."""
    found: Counter[bool] = Counter()

    def watched(text: str) -> str:
        found[threading.current_thread().name.startswith("outrider-large")] += len(text)
        return redact(text)

    monkeypatch.setattr(app, "redact_text", watched)
    return found


def test_a_megabyte_is_masked_while_others_write(
    tmp_path: Path, masked_in: Counter[bool], run: Callable[..., Any]
) -> None:
    parts = [{"text": WORDS}, {"data": [f"bob{n}@example.com" for n in range(MANY)]}]
    message = {"messageId": "m", "role": "ROLE_USER", "parts": parts}
    envelope = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}

    async def story() -> str:
        settings = Settings(data=tmp_path, profiles=("echo",), answer_level="redacted")
        async with app.build(settings).running() as outrider:
            transport = httpx.ASGITransport(outrider.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8420") as http:
                answer = await http.post("/a2a", json=envelope, headers={"A2A-Version": "1.0"}, timeout=30)
                return answer.text

    told = run(story())
    assert "TASK_STATE_COMPLETED" in told and told.count("***") > MANY and "example.com" not in told
    assert masked_in[True] > len(WORDS) and masked_in[False] < 5_000
