"""People who ask a server, each with a token of its own; and the commands that make and revoke tokens."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
from typer.testing import CliRunner, Result

from tests.support.server import Server
from web.cli import app


def outrider(data: Path | None, *command: str) -> Result:
    """One command in this process, on a data folder or a server; on a thread, as a browser's loop may hold this one."""
    asked = [*command, *(["--data", str(data)] if data else [])]
    with ThreadPoolExecutor(1) as aside:
        return aside.submit(CliRunner().invoke, app, asked).result(30)


def token_for(data: Path, user: str) -> str:
    """A new token of this user."""
    made = outrider(data, "token", "create", "--user", user)
    assert made.exit_code == 0, made.output
    return made.stdout.strip()


def revoke(data: Path, token: str) -> None:
    assert outrider(data, "token", "revoke", token.partition(".")[0]).exit_code == 0


class Person:
    """Somebody who asks a server. Without a token it is anybody."""

    def __init__(self, server: Server, token: str = "", **headers: str) -> None:
        self.server, self.token = server, token
        self.headers = ({"Authorization": f"Bearer {token}"} if token else {}) | headers

    def send(self, method: str, path: str, headers: dict[str, str] | None = None, **more: Any) -> httpx.Response:
        """One request; `headers` beside, or in place of, those that this person always sends."""
        return self.server.http.request(method, path, headers=self.headers | (headers or {}), **more)

    def get(self, path: str, **params: Any) -> httpx.Response:
        return self.send("GET", path, params=params)

    def post(self, path: str, **body: Any) -> httpx.Response:
        return self.send("POST", path, json=body)

    def rpc(self, method: str, params: dict[str, Any], **headers: str) -> dict[str, Any]:
        """One A2A JSON-RPC call of version 1.0: the whole envelope."""
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return self.send("POST", "/a2a", {"A2A-Version": "1.0"} | headers, json=request).json()

    def echoed(self, context: str, text: str = "hello", message_id: str = "", data: Any = None) -> dict[str, Any]:
        """A task of the echo profile in a context of this person's, once it has ended; with `data` of two parts."""
        message = {
            "messageId": message_id or f"{context}-{text}",
            "contextId": context,
            "role": "ROLE_USER",
            "parts": [{"text": text}, *([] if data is None else [{"data": data}])],
            "metadata": {"skill": "echo"},
        }
        answer = self.rpc("SendMessage", {"message": message})
        assert "result" in answer, json.dumps(answer)
        return answer["result"]["task"]

    def sessions(self) -> list[str]:
        return [session["id"] for session in self.get("/api/sessions").json()["sessions"]]
