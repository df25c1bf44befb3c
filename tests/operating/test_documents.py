"""`outrider documents`: what was taken in is listed, and is found no more once it was removed."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.support.server import Server
from web import cli
from web.cli_views import line

Command = Callable[..., Result]


@pytest.fixture
def run(server: Server, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs a command against the server."""
    monkeypatch.setenv("OUTRIDER_URL", server.url)
    monkeypatch.delenv("OUTRIDER_TOKEN", raising=False)
    return lambda *words: CliRunner().invoke(cli.app, words)


def listed(run: Command) -> dict[str, dict]:
    return {row["name"]: row for row in json.loads(run("documents", "list", "--json").stdout)["documents"]}


def test_a_document_is_listed_and_removed(server: Server, run: Command, tmp_path: Path) -> None:
    note = tmp_path / "herons.md"
    note.write_text("# Herons\n\nHerons stand still.")
    assert run("ingest", str(note)).exit_code == 0
    (name,) = [name for name in listed(run) if name.endswith("herons.md")]
    document = listed(run)[name]["id"]
    table = run("documents", "list").stdout
    (row,) = [row for row in table.splitlines() if document in row.split()]
    assert name in row and "yours" in row and "operator" in row
    removed = run("documents", "remove", document)
    assert (removed.exit_code, removed.output) == (0, "")
    assert name not in listed(run) and not server.get("/api/knowledge/search", q="herons")["hits"]
    again = run("documents", "remove", document)
    assert (again.exit_code, line(again.stderr)) == (1, "outrider: There is no such document.")


def test_what_is_shared_stays(run: Command) -> None:
    shared = next(row for row in listed(run).values() if row["shared"])
    refused = run("documents", "remove", shared["id"])
    assert (refused.exit_code, line(refused.stderr)) == (1, "outrider: There is no such document.")
    assert shared in listed(run).values()


@pytest.mark.parametrize("odd", ["doc-1/../2", "doc-x", "..", "%2e%2e", "doc-99999999999999999999"])
def test_an_odd_id_is_nobody_s(run: Command, odd: str) -> None:
    refused = run("documents", "remove", odd)
    assert refused.exit_code == 1 and len(refused.stderr.splitlines()) == 1
