"""Servers of one kind: the same settings and profiles, each with a data folder of its own, all closed together.

with Serving(folder, model.env | {"OUTRIDER_MAX_JOBS": "1"}) as serving:
    server = serving()  # runs, and answers
    other = serving("--no-worker", data=server.data, OUTRIDER_LEASE_S="2")
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.support.server import Server


class Serving:
    """Makes servers in a folder; `toml` is what stands in their `outrider.toml`."""

    def __init__(self, folder: Path, env: Mapping[str, str], toml: str = "") -> None:
        self._folder, self._env, self._toml = folder, env, toml
        self._made: list[Server] = []

    def __call__(
        self, *options: str, data: Path | None = None, toml: str | None = None, start: bool = True, **env: str
    ) -> Server:
        """One more, on another's data if it is given some; with options, profiles and settings of its own."""
        folder = data or self._with_profiles(self._folder / f"data-{len(self._made)}", toml)
        self._made.append(server := Server(folder, *options, env={**self._env, **env}))
        return server.start() if start else server

    def at(self, folder: Path) -> "Serving":
        """The same kind elsewhere, to be closed for themselves."""
        return Serving(folder, self._env, self._toml)

    def close(self) -> None:
        for server in self._made:
            server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _with_profiles(self, data: Path, toml: str | None) -> Path:
        if text := self._toml if toml is None else toml:
            data.mkdir(mode=0o700, parents=True)
            (data / "outrider.toml").write_text(text)
        return data
