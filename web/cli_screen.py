"""The screen of a chat: its answers, what is said beside them, and the board of the jobs that are out.

Everything that reaches the terminal passes through here, clean and one after the other. Never speaks to a server.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from web.cli_views import ENDED, brief, clean, job_line, line

Aside = Callable[[], AbstractContextManager[object]]


class Screen:
    """Where a chat's words go: answers to stdout, what is said about them to stderr, both clean."""

    def __init__(self) -> None:
        self.err = Console(stderr=True, highlight=False)
        self._aside: Aside = nullcontext
        self._fresh = True

    @property
    def lively(self) -> bool:
        """Whether something on stderr can move."""
        return self.err.is_terminal and not self.err.is_dumb_terminal

    @contextmanager
    def beside(self, aside: Aside) -> Iterator[None]:
        """While it lasts, whole texts are printed inside `aside()`, which makes room for them and takes it back."""
        before, self._aside = self._aside, aside
        try:
            yield
        finally:
            self._aside = before

    def piece(self, text: str) -> None:
        """A piece of an answer, as it comes."""
        if text := clean(text):
            self._fresh = text.endswith("\n")
            sys.stdout.write(text)
            sys.stdout.flush()

    def answer(self, text: str) -> None:
        """A whole text, on lines of its own."""
        if text.strip():
            with self._aside():
                self.end_line()
                self.piece(text.strip("\n") + "\n")

    def note(self, text: object, *, amid: bool = False) -> None:
        """One line about what happens; `amid` an answer it ends the answer's line only where both are seen."""
        with self._aside():
            if not amid or sys.stdout.isatty():
                self.end_line()
            print(line(text), file=sys.stderr, flush=True)

    def end_line(self) -> None:
        """Ends the line that pieces have begun."""
        if not self._fresh:
            self.piece("\n")


class Board:
    """The jobs being waited for: on a terminal a table that moves, elsewhere a line whenever one changes."""

    def __init__(self, screen: Screen, lively: bool) -> None:
        self._screen = screen
        self._jobs: list[dict[str, Any]] = []
        self._told: dict[str, str] = {}
        self._live = Live(
            console=screen.err,
            transient=True,
            redirect_stdout=False,  # it would send answers to stderr
            redirect_stderr=False,
            get_renderable=self._table,
        )
        self._lively = lively
        self._beside = screen.beside(self._paused) if lively else nullcontext()

    def __enter__(self) -> Self:
        self._beside.__enter__()
        if self._lively:
            self._live.start()
        return self

    def __exit__(self, *failure: Any) -> None:
        self._live.stop()
        self._beside.__exit__(*failure)

    def show(self, jobs: Iterable[dict[str, Any]]) -> None:
        """These are the jobs now. What moves in the table needs no line of its own until it has ended."""
        self._jobs = list(jobs)
        for job in self._jobs:
            if self._told.get(job["id"]) == job["status"]:
                continue
            self._told[job["id"]] = job["status"]
            if job["status"] in ENDED or not self._lively:
                self._screen.note(job_line(job))
        if self._lively:
            self._live.refresh()

    @contextmanager
    def _paused(self) -> Iterator[None]:
        self._live.stop()
        try:
            yield
        finally:
            self._live.start()

    def _table(self) -> Table:
        table = Table.grid(padding=(0, 1))
        for _ in range(4):
            table.add_column(no_wrap=True)  # an id that is cut is of no use; the description gives way
        for job in self._jobs:
            if job["status"] not in ENDED:
                mark = SPINNER if job["status"] == "running" else Text(" ")
                facts = (Text(line(cell)) for cell in (job["id"], job["status"], _age(job)))
                table.add_row(mark, *facts, Text(brief(job), no_wrap=True, overflow="ellipsis"))
        return table


SPINNER = Spinner("dots")


def _age(job: dict[str, Any]) -> str:
    if not job.get("started_at"):
        return ""
    seconds = (datetime.now(UTC) - datetime.fromisoformat(job["started_at"])).total_seconds()
    return f"{max(0, seconds):.0f} s"
