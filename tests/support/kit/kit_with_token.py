"""A pytest plugin for the conformance kit, which knows no credentials: `-p kit_with_token` shows the token in KIT_TOKEN."""

import os
from typing import Any, NamedTuple

import grpc
import httpx

SHOWN = f"Bearer {os.environ['KIT_TOKEN']}"
build_request, insecure_channel = httpx.Client.build_request, grpc.insecure_channel


def with_token(self: httpx.Client, method: str, url: Any, **more: Any) -> httpx.Request:
    request = build_request(self, method, url, **more)
    request.headers["Authorization"] = SHOWN
    return request


class Details(NamedTuple):
    """Of a call, as its library wants them."""

    method: str
    timeout: float | None
    metadata: Any
    credentials: Any
    wait_for_ready: bool | None
    compression: Any


class Shows(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):
    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return continuation(_shown(client_call_details), request)

    def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return continuation(_shown(client_call_details), request)


def _shown(call: Any) -> Details:
    metadata = [*(call.metadata or ()), ("authorization", SHOWN)]
    return Details(call.method, call.timeout, metadata, call.credentials, call.wait_for_ready, call.compression)


def channel_with_token(target: str, options: Any = None, compression: Any = None) -> grpc.Channel:
    return grpc.intercept_channel(insecure_channel(target, options, compression), Shows())


httpx.Client.build_request = with_token
grpc.insecure_channel = channel_with_token
