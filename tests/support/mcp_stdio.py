"""An MCP server on standard input and output, without a library: it can hang, die, and count what it was asked.

    python mcp_stdio.py DIARY

Its diary has a line for each start (`up PID`) and each call (`echo hello`). `KEY` of its environment is a secret.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

DIARY = Path(sys.argv[1])
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS = {
    "echo": "Says the same.",
    "write": "Changes something.",
    "leak": "Says what it should not.",
    "fail": "Fails.",
    "long": "Says very much.",
    "picture": "Shows a picture.",
    "hang": "Never answers, and does not listen.",
    "die": "Ends without a word.",
}
PICTURE = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}


def note(line: str) -> None:
    with DIARY.open("a") as diary:
        diary.write(line + "\n")


def called(name: str, text: str) -> dict[str, Any]:
    """The result of a call, if there is one."""
    note(f"{name} {text}".strip())
    if name == "die":
        os._exit(3)
    while name == "hang":
        time.sleep(1)
    said = {"leak": os.environ.get("KEY", ""), "fail": "it is broken", "long": "word " * 20_000}.get(name, text)
    shown = [{"type": "text", "text": said}, *([PICTURE] if name == "picture" else [])]
    return {"content": shown, "isError": name == "fail"}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """What a request is answered with; None for a method that there is not."""
    match method:
        case "initialize":
            about = {"serverInfo": {"name": "notes", "version": "1"}, "capabilities": {"tools": {}}}
            return {"protocolVersion": params["protocolVersion"], **about}
        case "tools/list":
            return {"tools": [{"name": name, "description": TOOLS[name], "inputSchema": TEXT} for name in TOOLS]}
        case "tools/call":
            return called(params["name"], params["arguments"].get("text", ""))
    return None


def main() -> None:
    note(f"up {os.getpid()}")
    print("the key is", os.environ.get("KEY"), file=sys.stderr, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked:
            continue
        result = answer(asked["method"], asked.get("params") or {})
        told = {"result": result} if result is not None else {"error": {"code": -32601, "message": "no such method"}}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **told}), flush=True)


main()
