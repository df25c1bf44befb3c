"""What is a message of protocol buffers over gRPC and JSON everywhere else: requests, answers and errors, there and back.

It goes by the JSON of protocol buffers, and what a request says is read where a body's is, so nothing is checked in two
ways. Numbers in structured data are doubles here: there are no others in a Struct. It knows no server.
"""

from typing import Any

from google.protobuf.descriptor import Descriptor
from google.protobuf.json_format import Error, MessageToDict, ParseDict
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2 as _error_details  # noqa: F401 - the types of the details, found by their names
from google.rpc.status_pb2 import Status
from pydantic_core import to_json

from web import a2a_requests
from web.a2a_errors import A2AError, details, invalid
from web.a2a_fields import NESTING

Json = dict[str, Any]


def params(kind: Descriptor, request: bytes) -> Json:
    """The params in a request of this kind. A2AError -32602.

    What the parser refuses cannot be told apart: an object in an object takes three of its hundred levels, so that one
    too deep is no message to it.
    """
    try:
        message = GetMessageClass(kind).FromString(request)
    except DecodeError:
        allowed = f"must be a message of this method, its data not nested deeper than {NESTING} levels"
        raise invalid("request", allowed) from None
    try:
        given = MessageToDict(message)
    except (Error, ValueError):
        raise invalid("request", "NaN, Infinity and times beyond the year 9999 are not JSON") from None
    return a2a_requests.parse_body(to_json(given), may_be_empty=False)


def encoded(kind: Descriptor, answer: Json) -> bytes:
    """An answer as a message of this kind. A2AError -32004 for one with a number that no double comes near."""
    try:
        return ParseDict(answer, GetMessageClass(kind)()).SerializeToString()
    except OverflowError:
        raise A2AError(
            "UNSUPPORTED_OPERATION", "It holds a number that gRPC cannot carry; read it over another binding"
        ) from None


def status(error: A2AError, code: int) -> bytes:
    """What goes into `grpc-status-details-bin`: the code's number, the message, and the details alike on every binding."""
    return ParseDict({"code": code, "message": error.message, "details": details(error)}, Status()).SerializeToString()
