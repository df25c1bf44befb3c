"""The house stays as it was laid out: who may import whom, which tool lives where, who writes which table.

A rule that is broken is named with file and line. The finders are in `tests/support/house.py`.
"""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.support import house

ROOT = Path(__file__).parents[1]
ROOMS = set(house.MAY_IMPORT)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
RULES = [
    house.wrong_way,
    house.foreign,
    house.hidden,
    house.circles,
    house.environment,
    house.wildcards,
    house.undescribed,
    house.busy_inits,
]
# Bringing cells under another key changes no meaning, and must miss no table: it walks the one list of what is sealed.
WRITES_ANY_TABLE = {"background/sealing.py"}


@pytest.fixture(scope="module")
def ours() -> house.House:
    return house.read(ROOT)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names in the wheel, built from a copy: a build leaves its own folders beside what it builds."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for room in ROOMS | {"tests", "benchmarks", "docs"}:
        shutil.copytree(ROOT / room, source / room, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", target, source]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    with zipfile.ZipFile(next(target.glob("*.whl"))) as archive:
        return set(archive.namelist())


def test_the_container_is_made_of_all_that_is_in_the_wheel() -> None:
    """What a link of the source leads to must be there when the wheel is built, or it is left out without a word."""
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    copied = {
        name for line in lines if line.startswith("COPY ") and "--from" not in line for name in line.split()[1:-1]
    }
    assert copied == {"pyproject.toml", "README.md", "LICENSE", "docs", *ROOMS}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_house_keeps_the_rule(ours: house.House, rule: Callable[[house.House], list[str]]) -> None:
    assert rule(ours) == []


BAD = {
    "background/queue.py": '"""Q."""\nfrom agent import turns\nimport starlette.routing\nimport sqlite3',
    "background/tasks.py": '"""T."""\nfrom background.results import write\nfrom os import getenv',
    "background/results.py": '"""R."""\nfrom . import tasks\ndef f():\n    from background.queue import x',
    "agent/turns.py": "import os\nfrom background.queue import *\nhome = os.environ['HOME']",
    "web/__init__.py": '"""W."""\nname = 1',
    "web/settings.py": '"""S."""\nimport os\nhome = os.environ',
}


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        (house.wrong_way, ["background/queue.py:2 imports agent.turns"]),
        (house.foreign, ["background/queue.py:3 imports starlette.routing"]),
        (house.hidden, ["background/results.py:4 imports background.queue.x inside a function"]),
        (
            house.circles,
            ["agent/turns.py <-> background/queue.py", "background/results.py <-> background/tasks.py"],
        ),
        (house.environment, ["background/tasks.py:3 reads the environment", "agent/turns.py:3 reads the environment"]),
        (house.wildcards, ["agent/turns.py:2"]),
        (house.undescribed, ["agent/turns.py"]),
        (house.busy_inits, ["web/__init__.py"]),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_house_that_breaks_the_rule_is_found_out(rule: Callable[[house.House], list[str]], found: list[str]) -> None:
    assert rule({module: ast.parse(text) for module, text in BAD.items()}) == found


def test_no_room_is_empty(ours: house.House) -> None:
    assert {module.split("/")[0] for module in ours} == ROOMS


@pytest.mark.parametrize("room", ["background", "knowledge"])
def test_each_table_is_written_by_one_module_of_its_own_room(ours: house.House, room: str) -> None:
    tables = house.tables(ROOT, room)
    written = house.writers(ours, tables)
    assert tables
    unnamed = written.pop(house.VARIABLE, set()) - WRITES_ANY_TABLE
    assert unnamed == set(), f"write the table's name out in {unnamed}"
    assert {table: modules for table, modules in written.items() if len(modules) > 1} == {}
    assert {module.split("/")[0] for modules in written.values() for module in modules} <= {room}


def test_writers_are_found_in_any_sql_and_not_in_prose() -> None:
    text = '''"""Some prose: delete from runs."""
tx.q("insert or ignore into runs (id) values (:id)")
tx.q(f"update {which} set x = 1; update runs as r set y = {value}")
tx.q("insert into jobs values (1) on conflict (id) do update set x = 1 returning *")
tx.q("DELETE FROM batches where id in (select id from sessions)")
'''
    tables = {"runs", "jobs", "batches", "sessions"}
    written = house.writers({"background/a.py": ast.parse(text)}, tables)
    assert set(written) == {"runs", "jobs", "batches", house.VARIABLE}


def test_every_foreign_tool_is_a_declared_dependency(ours: house.House) -> None:
    """What only comes along with something else is gone one day, when that no longer wants it."""
    declared = _named(PROJECT["project"]["dependencies"])
    distributions = packages_distributions()
    everywhere = {module: tree for module, tree in ours.items() if not module.startswith((house.GRPC, house.MCP))}
    owners = {name: set(distributions[name]) for name in house.foreign_names(everywhere)}  # a name may be several's
    part_of_pydantic = {"pydantic_core"}  # one release of each belongs to one of the other
    assert {name for name, any_of in owners.items() if not any_of & set(declared)} <= part_of_pydantic


def test_what_only_grpc_needs_is_in_its_extra(ours: house.House) -> None:
    """`google` is several distributions' name, so they stand here."""
    where = {module: tree for module, tree in ours.items() if module.startswith(house.GRPC)}
    needed = {name for name, home in house.FOREIGN.items() if home == house.GRPC}
    assert needed <= house.foreign_names(where)
    extra = _named(PROJECT["project"]["optional-dependencies"]["grpc"])
    assert extra == {"a2a-sdk", "grpcio", "protobuf", "googleapis-common-protos"}


def test_what_only_mcp_servers_need_is_in_its_extra(ours: house.House) -> None:
    assert "fastmcp" in house.foreign_names(
        {module: tree for module, tree in ours.items() if module.startswith(house.MCP)}
    )
    assert _named(PROJECT["project"]["optional-dependencies"]["mcp"]) == {"fastmcp-slim", "pydantic-ai-slim"}


def test_a_server_without_grpc_and_mcp_servers_loads_nothing_of_them() -> None:
    unwanted = ("grpc", "web.a2a_grpc", "fastmcp", "mcp", "agent.mcp_client")
    look = f"import sys, web.process; sys.exit(any(name in sys.modules for name in {unwanted}))"
    assert subprocess.run([sys.executable, "-c", look], cwd=ROOT, timeout=60).returncode == 0


def _named(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w-]", line)[0] for line in requirements}


def test_the_wheel_holds_the_four_packages_and_nothing_else(wheel: set[str]) -> None:
    listed = PROJECT["tool"]["setuptools"]["packages"]
    top = {name.split("/")[0] for name in wheel}
    assert set(listed) == ROOMS
    assert {name for name in top if not name.endswith(".dist-info")} == ROOMS


def test_the_wheel_holds_every_file_that_the_packages_need(wheel: set[str]) -> None:
    files = {path.relative_to(ROOT).as_posix() for room in ROOMS for path in (ROOT / room).rglob("*") if path.is_file()}
    assert {name for name in files if "__pycache__" not in name} - wheel == set()
