"""Speaks HTTP to a running Outrider: one request, a list page by page, an open stream of events.

Owns the address, the token, and the one sentence that a failing answer becomes. Prints nothing and decides nothing.
"""

import json
import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Self
from urllib.parse import quote

import httpx

from background.text import clean

LOOPBACK = ("127.0.0.1", "localhost", "::1")
TIMEOUT_S = 30.0
# The server sends at least a comment every 15 s; a stream that is silent for longer has lost its server.
SILENT_S = 40.0


class ClientError(Exception):
    """What was asked of the server did not happen; the message is one sentence for the person who asked."""


class BadAddress(ClientError):
    """The address cannot be one of a server."""


class Away(ClientError):
    """Nobody answered, or not like Outrider. What was asked may still have happened."""


class Refused(ClientError):
    """The server answered with an error: `status` as in HTTP, `code` and `field` as in the body (empty if there was none)."""

    def __init__(self, message: str, status: int, code: str = "", field: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.field = field


def part(identifier: str) -> str:
    """An id as one part of a path, whatever characters it is made of."""
    if not identifier.strip("."):
        raise ClientError(f"'{identifier}' cannot be an id.")
    return quote(clean(identifier), safe="")


def job_path(identifier: str) -> str:
    """Where a job is. Raises `Refused`, as a server would, for what cannot be one's id."""
    return _path("job", "/api/background", identifier)


def session_path(identifier: str) -> str:
    """Where a session is. Raises like `job_path`."""
    return _path("session", "/api/sessions", identifier)


def memory_path(identifier: str) -> str:
    """Where a fact or a summary is. Raises like `job_path`."""
    return _path("memory", "/api/memory", identifier)


def document_path(identifier: str) -> str:
    """Where a document is. Raises like `job_path`."""
    return _path("document", "/api/knowledge/documents", identifier)


def _path(noun: str, root: str, identifier: str) -> str:
    if "/" in identifier:  # a server takes it for another address
        raise Refused(f"There is no such {noun}.", 404, "NOT_FOUND")
    return f"{root}/{part(identifier)}"


class Client:
    """A server's HTTP API. Every method raises `Away` or `Refused`; safe to use from several threads."""

    def __init__(self, url: str, token: str = "", timeout: float = TIMEOUT_S) -> None:
        self.url = url.rstrip("/")
        try:
            address = httpx.URL(self.url)
        except httpx.InvalidURL:
            address = httpx.URL()
        if address.scheme not in ("http", "https") or not address.host:
            raise BadAddress(f"'{url}' is not an address: it has to begin with http:// or https://")
        self._http = httpx.Client(
            base_url=self.url,
            headers=[(b"Authorization", f"Bearer {token}".encode())] if token else None,
            timeout=timeout,
            # A proxy of the environment cannot reach this machine's loopback, and would look like a forwarded request.
            trust_env=address.host not in LOOPBACK,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def get(self, path: str, **params: Any) -> dict[str, Any]:
        """The JSON object at `path`; parameters that are None are left out."""
        return self._object(self._send("GET", path, params=_given(params)))

    def post(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Posts JSON, and returns the JSON object answered."""
        # Not in ASCII, which would make a text up to six times as long, past what a server takes.
        content = json.dumps(body or {}, ensure_ascii=False).encode("utf-8", "replace")
        return self._object(self._send("POST", path, content=content, headers={"Content-Type": "application/json"}))

    def delete(self, path: str) -> dict[str, Any]:
        """Deletes what is at `path`, and returns the JSON object answered."""
        return self._object(self._send("DELETE", path))

    def drop(self, path: str) -> None:
        """Deletes what is at `path`, where nothing is answered but that it is done."""
        self._send("DELETE", path)

    def send(self, path: str, content: bytes, **params: Any) -> dict[str, Any]:
        """Posts JSON as it is, and returns the JSON object answered."""
        more = {"content": content, "headers": {"Content-Type": "application/json"}, "params": _given(params)}
        return self._object(self._send("POST", path, **more))

    def content(self, path: str) -> bytes:
        """What is at `path`, byte for byte."""
        return self._send("GET", path).content

    def pages(self, path: str, name: str, **params: Any) -> Iterator[dict[str, Any]]:
        """Each item of the list `name`, page after page. A cursor that comes again ends it, so that it always ends."""
        cursor, seen = "", set()
        while cursor not in seen:
            seen.add(cursor)
            page = self.get(path, **params, cursor=cursor or None)
            yield from page.get(name, ())
            cursor = page.get("next_cursor") or ""
            if not cursor:
                return

    def events(self, session: str, after: str = "") -> httpx.Response:
        """An open stream of the session's events, after the one with the id `after`; the caller closes it."""
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": after} if after else {})
        request = self._http.build_request("GET", "/api/events", params={"session": session}, headers=headers)
        request.extensions["timeout"] = httpx.Timeout(TIMEOUT_S, read=SILENT_S).as_dict()
        try:
            response = self._http.send(request, stream=True)
            if response.is_success:
                return response
            with closing(response):
                response.read()
        except httpx.RequestError as problem:
            raise self._away(problem) from problem
        raise self._refused(response)

    def _send(self, method: str, path: str, **more: Any) -> httpx.Response:
        try:
            response = self._http.request(method, path, **more)
        except httpx.RequestError as problem:
            raise self._away(problem) from problem
        if response.is_success:
            return response
        raise self._refused(response)

    def _object(self, response: httpx.Response) -> dict[str, Any]:
        try:
            answer = response.json()
        except ValueError:
            answer = None
        if isinstance(answer, dict):
            return answer
        raise Away(f"What answers at {self.url} is not Outrider.")

    def _away(self, problem: httpx.RequestError) -> Away:
        why = "no answer in time" if isinstance(problem, httpx.TimeoutException) else _reason(problem)
        return Away(
            f"No server at {self.url} ({why}); start one with: outrider serve, "
            "or name another with --url or OUTRIDER_URL"
        )

    def _refused(self, response: httpx.Response) -> Refused:
        code, message, field = _error(response)
        if not message:
            return Refused(f"{self.url} answered {response.status_code}, and not like Outrider.", response.status_code)
        sent = "is the token that was sent" if "Authorization" in self._http.headers else "is not set"
        hint = f" (OUTRIDER_TOKEN {sent})" if response.status_code == 401 else ""
        return Refused(f"{message}{hint}", response.status_code, code, field)


def _reason(problem: httpx.RequestError) -> str:
    """What the system said, without its number."""
    return re.sub(r"^\[Errno -?\d+\]\s*", "", str(problem)) or "connection lost"


def _given(params: dict[str, Any]) -> dict[str, Any]:
    return {name: clean(str(value)) for name, value in params.items() if value is not None}


def _error(response: httpx.Response) -> tuple[str, str, str]:
    """Code and message of an error's body, and the field that it names; empty where there are none."""
    try:
        error = response.json()["error"]
        details = error.get("details") or {}
        return str(error["code"]), str(error["message"]), str(details.get("field", ""))
    except (ValueError, KeyError, TypeError, AttributeError):
        return "", "", ""
