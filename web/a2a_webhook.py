"""A push notification config as an A2A client sends it and gets it back. Pure, and strict: -32602 names the field.

Token and credentials go in and never come out again. Where an address may lead is checked elsewhere, by asking for it.
A2A 1.0, sections 3.1.7 to 3.1.10 and 4.3.
"""

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from agent import addresses
from background.webhooks import Webhook
from web import a2a_fields as fields
from web import a2a_pages
from web.a2a_errors import invalid
from web.a2a_fields import Limits

Json = dict[str, Any]

AT_SEND = "configuration.taskPushNotificationConfig."
SECRET_CHARS = 4096
ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
# What RFC 9110 allows in a header: a scheme is a token, and nothing may end the line.
SCHEME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
SECRET = re.compile(r"[!-~](?:[ -~]*[!-~])?")


@dataclass(frozen=True, slots=True)
class Config:
    """A config as a client sent it. `task_id` is None where the message's task is meant, `id` where the client has none."""

    task_id: str | None
    id: str | None
    url: str
    token: str
    scheme: str
    credentials: str
    at: str = ""

    def of(self, task_id: str, owner: str) -> Webhook:
        """The webhook of this task. A client that names none gets the task's own id, so that asking twice is once."""
        return Webhook(task_id, self.id or task_id, owner, self.url, self.token, self.scheme, self.credentials)


def config(given: Json, at: str, limits: Limits) -> Config:
    """A TaskPushNotificationConfig. A2AError -32602."""
    authentication = fields.object_at(given, "authentication", at)
    url = fields.string(given, "url", at, addresses.URL_CHARS)
    if url is None:
        raise invalid(f"{at}url", "is required")
    scheme = credentials = None
    if authentication is not None:
        scheme = fields.string(authentication, "scheme", f"{at}authentication.", limits.name_chars)
        if scheme is None or not SCHEME.fullmatch(scheme):
            raise invalid(f"{at}authentication.scheme", "must be the name of an HTTP authentication scheme")
        credentials = _secret(authentication, "credentials", f"{at}authentication.")
    return Config(
        fields.optional_id(given, "taskId", at, limits),
        _id(given, at, limits),
        url,
        _secret(given, "token", at) or "",
        scheme or "",
        credentials or "",
        at,
    )


class Named(NamedTuple):
    """One config of a task."""

    task_id: str
    id: str


class Listing(NamedTuple):
    """A page of a task's configs: `size` at most, from where `token` leads on."""

    task_id: str
    size: int
    token: str | None


def create_params(params: Any, limits: Limits) -> Config:
    """Params of CreateTaskPushNotificationConfig: `task_id` is there. A2AError -32602."""
    asked = config(fields.params(params), "", limits)
    if asked.task_id is None:
        raise invalid("taskId", "is required")
    return asked


def named_params(params: Any, limits: Limits) -> Named:
    """Params of GetTaskPushNotificationConfig and DeleteTaskPushNotificationConfig. A2AError -32602."""
    given = fields.params(params)
    return Named(fields.required_id(given, "taskId", "", limits), fields.required_id(given, "id", "", limits))


def list_params(params: Any, limits: Limits) -> Listing:
    """Params of ListTaskPushNotificationConfigs. A2AError -32602."""
    given = fields.params(params)
    return Listing(fields.required_id(given, "taskId", "", limits), a2a_pages.size(given), a2a_pages.token(given))


def inline(configuration: Json, limits: Limits) -> Config | None:
    """The config of a send's configuration, or None. A2AError -32602."""
    given = fields.object_at(configuration, "taskPushNotificationConfig", "configuration.")
    return None if given is None else config(given, AT_SEND, limits)


def _id(given: Json, at: str, limits: Limits) -> str | None:
    value = fields.string(given, "id", at, limits.id_chars)
    if value is not None and not ID.fullmatch(value):
        raise invalid(f"{at}id", "must be 1 to 128 of the characters A-Z a-z 0-9 . _ : -")
    return value


def _secret(given: Json, key: str, at: str) -> str | None:
    value = fields.string(given, key, at, SECRET_CHARS)
    if value is not None and not SECRET.fullmatch(value):
        raise invalid(at + key, "must be visible ASCII characters, with spaces only between them")
    return value


def view(webhook: Webhook) -> Json:
    """A config as it goes out: without its token and credentials."""
    made: Json = {"taskId": webhook.task_id, "id": webhook.id, "url": webhook.url}
    return made | ({"authentication": {"scheme": webhook.scheme}} if webhook.scheme else {})
