"""The example of a plugin, installed into an environment of its own as its page says, and at work in a real server there."""

import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel
from tests.support.server import ROOT, Server

pytestmark = pytest.mark.slow  # an environment is made, and servers begin in it from nothing
WORK = [
    Rule(tool_offered="read_inbox", last_tool="plumber", text="Report: somebody should call the plumber."),
    Rule(tool_offered="read_inbox", last_tool="no such file", text="Report: it cannot be read."),
    Rule(last_user=r"The file is (\S+)", tool_calls=[{"name": "read_inbox", "arguments": {"name": "{1}"}}]),
]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that has the example, and Outrider as it stands here."""
    folder = tmp_path_factory.mktemp("installed")
    shutil.copytree(
        ROOT / "examples" / "inbox", folder / "inbox"
    )  # a build leaves its own folders beside what it builds
    venv.create(folder / "venv")
    python = folder / "venv" / "bin" / "python"
    where = sysconfig.get_path("purelib", vars={"base": str(folder / "venv")})
    ours = sysconfig.get_path("purelib")
    (Path(where) / "outrider-here.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
    install = ["install", "-q", "--no-index", "--no-deps", "--no-build-isolation", str(folder / "inbox")]
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", *install]
    done = subprocess.run(pip, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return python


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("inbox")


@pytest.fixture(scope="module")
def served(
    python: Path, folder: Path, shared_model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("served") / "data", env=shared_model.env | {"INBOX_FOLDER": str(folder)})
    server.fresh, server.python = True, str(python)
    with server:
        yield server


def test_a_file_in_the_folder_is_one_job_and_comes_back_in_the_chat(
    served: Server, model: ScriptedModel, folder: Path
) -> None:
    model.rules(WORK)
    (folder / "note.txt").write_text("Please call the plumber before Friday.")
    served.wait(lambda: served.http.get("/api/sessions/inbox").is_success and served.jobs("inbox"))
    (job,) = served.jobs("inbox")
    assert (job["plugin"], job["subagent_type"], job["description"]) == ("inbox", "clerk", "Inbox: note.txt")
    served.wait(lambda: served.job(job["id"])["notified"])
    report = "Report: somebody should call the plumber."
    assert served.job(job["id"])["report"] == report
    served.wait(lambda: (folder / "note.report.md").exists() and (folder / "note.report.md").read_text() == report)
    served.restart()
    (folder / "second.txt").write_text("The plumber has been.")
    served.wait(lambda: len(served.jobs("inbox")) > 1)
    assert [job["description"] for job in served.jobs("inbox")] == ["Inbox: second.txt", "Inbox: note.txt"]


def test_a_worker_reads_no_other_file(served: Server, model: ScriptedModel, folder: Path) -> None:
    (folder.parent / "secret.txt").write_text("the plumber's number")
    (folder / "link.txt").symlink_to(folder.parent / "secret.txt")
    model.rules(WORK)
    session = served.post("/api/sessions")["id"]
    for name in ("../secret.txt", str(folder.parent / "secret.txt"), "link.txt"):
        job = served.spawn(session, f"The file is {name}", subagent_type="clerk")
        served.wait(lambda job=job: served.job(job["id"])["status"] == "completed")
        assert served.job(job["id"])["report"] == "Report: it cannot be read."


def test_without_its_folder_the_plugin_is_named_and_the_server_serves(python: Path, tmp_path: Path) -> None:
    server = Server(tmp_path / "data", env={"INBOX_FOLDER": "nowhere"})
    server.fresh, server.python = True, str(python)
    with server:
        (problem,) = server.get("/api/status")["problems"]
    assert problem == (
        "The plugin inbox (outrider_inbox:register) is not used: INBOX_FOLDER must name a folder that is there, by its whole path"
    )
