"""A pytest plugin for the conformance kit, so that more of it can be run: `-p kit_in_order`. See docs/conformance.md.

The kit sends many messages under one id, which ends many of its tests before they have tested anything. Here each
message gets an id of its own.
"""

import secrets
from typing import Any

import httpx
from google.protobuf import json_format

Json = dict[str, Any]
build_request, parse = httpx.Client.build_request, json_format.ParseDict


def in_order(self: httpx.Client, method: str, url: Any, **more: Any) -> httpx.Request:
    if isinstance(sent := more.get("json"), dict):
        more["json"] = {**sent, "params": _with_new_id(sent["params"])} if "jsonrpc" in sent else _with_new_id(sent)
    return build_request(self, method, url, **more)


def _with_new_id(params: Json) -> Json:
    if not params.get("message"):
        return params
    message = params["message"]
    return {**params, "message": {**message, "messageId": f"{message['messageId']}-{secrets.token_hex(4)}"}}


def in_order_over_grpc(sent: Json, message: Any, **more: Any) -> Any:
    return parse(_with_new_id(sent), message, **more)


httpx.Client.build_request = in_order
json_format.ParseDict = in_order_over_grpc
