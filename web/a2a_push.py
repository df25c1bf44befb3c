"""The push notification configs of the A2A edge: the four methods, and the look at where a webhook would lead.

The address is checked before anything is stored, and nothing is connected to here: workers call. A2A 1.0, sections
3.1.7 to 3.1.10.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from agent import addresses
from agent.addresses import Forbidden
from background import webhooks
from background.database import Tx
from background.webhooks import Webhook
from web import a2a_pages, a2a_webhook, acting
from web.a2a_call import Call
from web.a2a_errors import A2AError, invalid
from web.a2a_fields import Limits
from web.a2a_webhook import Config, Listing
from web.house import House

PLACE = "page.configs"  # what a page token is sealed for
Json = dict[str, Any]
Method = Callable[[Call], Awaitable[Json]]


async def check_address(house: House, asked: Config | None) -> None:
    """Raises -32003 where nothing is pushed, -32602 for an address that must not be called."""
    if asked is None:
        return
    if not house.settings.push:
        raise A2AError("PUSH_NOTIFICATION_NOT_SUPPORTED")
    try:
        await addresses.check(asked.url, house.webhooks_allowed, house.resolve)
    except Forbidden as forbidden:
        raise invalid(f"{asked.at}url", str(forbidden)) from None


class PushConfigs:
    """The four methods, over one house."""

    def __init__(self, house: House, limits: Limits) -> None:
        self._house = house
        self._limits = limits

    def methods(self) -> dict[str, Method]:
        """The methods by name; where nothing is pushed each of them is -32003."""
        served: dict[str, Method] = {
            "CreateTaskPushNotificationConfig": self._create,
            "GetTaskPushNotificationConfig": self._get,
            "ListTaskPushNotificationConfigs": self._list,
            "DeleteTaskPushNotificationConfig": self._delete,
        }
        return served if self._house.settings.push else dict.fromkeys(served, _not_supported)

    async def _create(self, call: Call) -> Json:
        asked, owner = a2a_webhook.create_params(call.params, self._limits), _changer(call)
        await check_address(self._house, asked)
        return a2a_webhook.view(await self._house.db.write(_put, asked.of(asked.task_id or "", owner)))

    async def _get(self, call: Call) -> Json:
        asked = a2a_webhook.named_params(call.params, self._limits)
        return a2a_webhook.view(await self._house.db.read(webhooks.get, call.caller.owner, asked.task_id, asked.id))

    async def _list(self, call: Call) -> Json:
        asked = a2a_webhook.list_params(call.params, self._limits)
        return await self._house.db.read(_page, call.caller.owner, asked)

    async def _delete(self, call: Call) -> Json:
        asked = a2a_webhook.named_params(call.params, self._limits)
        await self._house.db.write(webhooks.delete, _changer(call), asked.task_id, asked.id)
        return {}


def _changer(call: Call) -> str:
    """As whom webhooks are changed: no share opens them, and who shows one changes none. Raises `not_found`."""
    return acting.alone(call.caller, changes=True)


def _page(tx: Tx, owner: str, asked: Listing) -> Json:
    found, whose = webhooks.of_task(tx, owner, asked.task_id), json.dumps([owner, asked.task_id])
    last = a2a_pages.place(tx, PLACE, whose, asked.token) or ""
    rest = [webhook for webhook in found if webhook.id > last]
    page = rest[: asked.size]
    more = {"nextPageToken": a2a_pages.next_token(tx, PLACE, whose, page[-1].id)} if len(rest) > asked.size else {}
    return {"configs": [a2a_webhook.view(webhook) for webhook in page], **more}


def _put(tx: Tx, webhook: Webhook) -> Webhook:
    webhooks.put(tx, webhook)
    return webhook


async def _not_supported(call: Call) -> Json:
    raise A2AError("PUSH_NOTIFICATION_NOT_SUPPORTED")
