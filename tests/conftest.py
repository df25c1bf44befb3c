"""What every test may ask for: a scripted model, servers that are always cleaned up, a browser, an event loop.

Nothing here decides what is true; the helpers themselves are in `tests/support`.
"""

import asyncio
import shutil
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.support.clock import Clock
from tests.support.life import Cradle
from tests.support.scripted import ScriptedModel
from tests.support.server import Process, Server
from tests.support.serving import Serving

# Their files are short, so two workers that end with them end together.
LAST = {"agent", "background", "knowledge"}
CHROMIUM_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--crashes", type=int, default=10, help="how many stories with a kill are told (default 10)")
    parser.addoption("--crash-seed", type=int, default=0, help="which kills they have (default 0)")
    parser.addoption("--kill", default="", help="these instead, with commas: see tests/crash/plan.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Folder by folder, as servers are shared within one; the folders of short files last."""
    items.sort(key=lambda item: item.path.parent.name in LAST)


@pytest.fixture(scope="session", autouse=True)
def cradle() -> Iterator[Cradle]:
    """What all processes under test are forked from. It begins with the first of them."""
    with Cradle() as cradle:
        Process.cradle = cradle
        yield cradle
        Process.cradle = None


@pytest.fixture
def run() -> Callable[..., Any]:
    """Runs a coroutine to its end on an event loop of its own: `run(story())`. Fails after `timeout` seconds."""

    def run(story: Coroutine[Any, Any, Any], timeout: float = 60) -> Any:
        return asyncio.run(asyncio.wait_for(story, timeout))

    return run


@pytest.fixture
def clock() -> Clock:
    """Time that moves only when the test says so."""
    return Clock()


@pytest.fixture
def scripted() -> Iterator[ScriptedModel]:
    """A model endpoint that says "ok" until it is given rules."""
    with ScriptedModel() as model:
        yield model


@pytest.fixture(scope="session")
def shared_model() -> Iterator[ScriptedModel]:
    """The model of all servers that tests share."""
    with ScriptedModel() as model:
        yield model


@pytest.fixture
def model(shared_model: ScriptedModel) -> Iterator[ScriptedModel]:
    """The model of the servers that a test shares with others, with nothing scripted yet. What it left at gates goes on."""
    shared_model.rules([])
    yield shared_model
    held = any(asked.answered_at is None and asked.gone_at is None for asked in shared_model.requests())
    shared_model.rules([])
    if held:  # what goes on now is to ask nothing in the next test
        shared_model.settle()


@pytest.fixture
def own(serving: Serving, tmp_path: Path) -> Iterator[Serving]:
    """Makes servers for one test, of the kind that its folder calls `serving`: `own("--no-worker", OUTRIDER_MAX_JOBS="1")`."""
    with serving.at(tmp_path) as own:
        yield own


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    """What is put in here is gone after the test, with all that it started."""
    started: list[Process] = []
    yield started
    for process in started:
        process.close()


@pytest.fixture
def worker_factory(processes: list[Process], shared_model: ScriptedModel) -> Callable[..., Process]:
    """Makes running workers on a server's data: `worker_factory(server, OUTRIDER_MAX_JOBS="1")`.

    Returns once the server has heard of a worker: before that it takes no messages.
    """

    def make(server: Server, *options: str, **env: str) -> Process:
        worker = Process(server.data, "worker", *options, env=shared_model.env | env)
        processes.append(worker)
        worker.start()
        server.wait(lambda: server.http.get("/readyz").is_success or not worker.running)
        assert worker.running, f"it ended instead of working\n{worker.log()}"
        return worker

    return make


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium without a screen. It lives for one module: while it does, its event loop blocks every `asyncio.run`."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no browser here: the package chromium is not installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A fresh page; the test fails for any script error that it did not expect."""
    context = browser.new_context()
    context.set_default_timeout(10_000)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    context.close()
    assert not errors, f"errors in the page: {errors}"
