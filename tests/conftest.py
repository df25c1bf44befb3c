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
from tests.support.scripted import ScriptedModel
from tests.support.server import Process, Server

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


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    """What is put in here is gone after the test, with all that it started."""
    started: list[Process] = []
    yield started
    for process in started:
        process.close()


@pytest.fixture
def model_env(scripted: ScriptedModel) -> dict[str, str]:
    """The settings by which a server's model is `scripted`."""
    return {
        "OUTRIDER_MODEL": "openai-chat:scripted",
        "OPENAI_BASE_URL": scripted.base_url,
        "OPENAI_API_KEY": "none",
    }


@pytest.fixture
def server_factory(tmp_path: Path, processes: list[Process], model_env: dict[str, str]) -> Callable[..., Server]:
    """Makes running servers: `server_factory("--no-worker", data=folder, OUTRIDER_MAX_JOBS="1")`.

    Each has a data folder of its own unless it is given one, to share a database.
    """

    def make(*options: str, data: Path | None = None, **env: str) -> Server:
        server = Server(data or tmp_path / f"data-{len(processes)}", *options, env=model_env | env)
        processes.append(server)
        return server.start()

    return make


@pytest.fixture
def worker_factory(processes: list[Process], model_env: dict[str, str]) -> Callable[..., Process]:
    """Makes running workers on a server's data: `worker_factory(server, OUTRIDER_MAX_JOBS="1")`.

    Returns once the server has heard of a worker: before that it takes no messages.
    """

    def make(server: Server, *options: str, **env: str) -> Process:
        worker = Process(server.data, "worker", *options, env=model_env | env)
        processes.append(worker)
        worker.start()
        server.wait(lambda: server.http.get("/readyz").is_success or not worker.running)
        assert worker.running, f"it ended instead of working\n{worker.log()}"
        return worker

    return make


@pytest.fixture
def server(server_factory: Callable[..., Server]) -> Server:
    """One running server with the default settings."""
    return server_factory()


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
