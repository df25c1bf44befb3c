"""A pytest plugin for the conformance kit, so that more of it can be run: `-p kit_in_order`. See docs/conformance.md.

Two habits of the kit end many of its tests before they have tested anything: one message id for many messages, and over
JSON-RPC field names in snake case. Here each message gets an id of its own, and each field its name in JSON.
"""

import re
import secrets
from typing import Any

import httpx

Json = dict[str, Any]
build_request = httpx.Client.build_request


def in_order(self: httpx.Client, method: str, url: Any, **more: Any) -> httpx.Request:
    if isinstance(sent := more.get("json"), dict):
        more["json"] = {**sent, "params": _params(sent["params"])} if "jsonrpc" in sent else _params(sent)
    return build_request(self, method, url, **more)


def _params(params: Json) -> Json:
    """The same with new ids and the names of JSON."""
    named = {re.sub("_([a-z])", lambda found: found[1].upper(), name): value for name, value in params.items()}
    message = named.get("message")
    return {**named, "message": _with_new_id(message)} if message else named


def _with_new_id(message: Json) -> Json:
    return {**message, "messageId": f"{message['messageId']}-{secrets.token_hex(4)}"}


httpx.Client.build_request = in_order
