"""Reads the source of the four packages as syntax trees and finds what breaks the rules of the house. Runs none of it.

The rules are data here; `tests/test_layout.py` holds the real house to them, and shows with a bad one that each finder
finds.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

House = dict[str, ast.Module]  # "background/queue.py" → its tree

MAY_IMPORT = {
    "background": set[str](),
    "knowledge": set[str](),
    "agent": {"background", "knowledge"},
    "web": {"agent", "background", "knowledge"},
}
GRPC = "web/a2a_grpc"
MCP = "agent/mcp_client"
# Each foreign tool has one room, or one module of it. The test tools have none, and the protocol's own library is used
# where gRPC is served alone.
FOREIGN = {
    "aiosqlite": "background/database.py",
    "apsw": "knowledge/",
    "pydantic_ai": "agent/",
    "pydantic_graph": "agent/",
    "fastmcp": MCP,
    "opentelemetry": "agent/tracing.py",
    "starlette": "web/",
    "uvicorn": "web/",
    "typer": "web/",
    "a2a": GRPC,
    "google": GRPC,
    "grpc": GRPC,
    "hypothesis": "nowhere/",
    "playwright": "nowhere/",
    "pytest": "nowhere/",
    "tests": "nowhere/",
    "benchmarks": "nowhere/",
}
ENVIRONMENT = "web/settings.py"
# The late imports: a command that only asks a server would otherwise load the agent library, or the stores', for nothing,
# and who serves no gRPC, or has no MCP server, need not have their libraries.
LATE = {
    ("agent/mcp.py", "agent.mcp_connection.Connection"),
    ("web/cli.py", "web.process"),
    ("web/cli.py", "web.rotation"),
    ("web/cli_backup.py", "web.backups"),
    ("web/process.py", "web.a2a_grpc"),
}
WRITES = re.compile(
    r"""\b(?: insert \s+ (?: or \s+ \w+ \s+ )? into
         | replace \s+ into
         | delete \s+ from
         | update (?= \s+ \w+ \s+ (?: as \s+ \w+ \s+ )? set \b )
        ) \s+ (\w+)""",
    re.IGNORECASE | re.VERBOSE,
)
# Stands for what an f-string puts in: a table whose name is not written out has no owner that can be seen.
VARIABLE = "a_variable"
TABLE = re.compile(r"^\s*create\s+(?:virtual\s+)?table\s+(?:if\s+not\s+exists\s+)?(\w+)", re.IGNORECASE | re.MULTILINE)


def read(root: Path) -> House:
    """Every module of the four packages under a folder."""
    paths = sorted(path for room in MAY_IMPORT for path in (root / room).rglob("*.py"))
    return {path.relative_to(root).as_posix(): ast.parse(path.read_text(), str(path)) for path in paths}


def imports(module: str, tree: ast.Module) -> Iterator[tuple[str, int]]:
    """(what is imported, with its full name; the line): inside functions too, and relative ones made absolute."""
    package = module.split("/")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            yield from ((f"{origin}.{alias.name}", node.lineno) for alias in node.names)


def wrong_way(house: House) -> list[str]:
    """Imports of a room by one that stands below it, or beside it."""
    return [
        f"{module}:{line} imports {target}"
        for module, tree in house.items()
        for target, line in imports(module, tree)
        if (first := target.split(".")[0]) in MAY_IMPORT
        and first not in MAY_IMPORT[room := module.split("/")[0]] | {room}
    ]


def foreign(house: House) -> list[str]:
    """Foreign tools outside the room that is theirs."""
    return [
        f"{module}:{line} imports {target}"
        for module, tree in house.items()
        for target, line in imports(module, tree)
        if (home := FOREIGN.get(target.split(".")[0])) and not module.startswith(home)
    ]


def hidden(house: House) -> list[str]:
    """Imports of our own modules inside functions, where a circle would hide."""
    return [
        f"{module}:{line} imports {target} inside a function"
        for module, tree in house.items()
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for target, line in imports(module, ast.Module([function], []))
        if target.split(".")[0] in MAY_IMPORT and (module, target) not in LATE
    ]


def circles(house: House) -> list[str]:
    """Modules that import each other, over however many others."""
    edges = {module: _imported(house, module) for module in house}

    def reach(start: str) -> set[str]:
        seen: set[str] = set()
        ahead = list(edges[start])
        while ahead:
            if (module := ahead.pop()) not in seen:
                seen.add(module)
                ahead += edges[module]
        return seen

    reached = {module: reach(module) for module in house}
    found = {tuple(sorted(m for m in reached[a] if a in reached[m])) for a in house if a in reached[a]}
    return [" <-> ".join(circle) for circle in sorted(found)]


def _imported(house: House, module: str) -> set[str]:
    """The modules of the house that a module imports."""
    files = {path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): path for path in house}
    targets = (target for target, _ in imports(module, house[module]))
    found = {files.get(target) or files.get(target.rpartition(".")[0]) for target in targets}
    return {path for path in found if path and path != module}


def foreign_names(house: House) -> set[str]:
    """The top-level names that the house imports and that are neither ours nor Python's."""
    names = {target.split(".")[0] for module, tree in house.items() for target, _ in imports(module, tree)}
    return names - set(MAY_IMPORT) - set(sys.stdlib_module_names)


def environment(house: House) -> list[str]:
    """Readers of the environment besides the settings."""
    names = {"environ", "environb", "getenv", "getenvb"}
    return [
        f"{module}:{node.lineno} reads the environment"
        for module, tree in house.items()
        if module != ENVIRONMENT
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and node.attr in names and ast.unparse(node.value) == "os")
        or (isinstance(node, ast.ImportFrom) and node.module == "os" and names & {a.name for a in node.names})
    ]


def wildcards(house: House) -> list[str]:
    return [
        f"{module}:{line}"
        for module, tree in house.items()
        for target, line in imports(module, tree)
        if target.endswith(".*")
    ]


def undescribed(house: House) -> list[str]:
    """Modules that do not open by saying what they are."""
    return [module for module, tree in house.items() if not ast.get_docstring(tree)]


def busy_inits(house: House) -> list[str]:
    """`__init__` files that hold more than a docstring."""
    return [module for module, tree in house.items() if module.endswith("__init__.py") and len(tree.body) != 1]


def tables(root: Path, room: str) -> set[str]:
    """The tables that a room's schema creates."""
    return set(TABLE.findall((root / room / "schema.sql").read_text()))


def writers(house: House, room_tables: set[str]) -> dict[str, set[str]]:
    """table (or VARIABLE) → the modules whose SQL inserts into, updates or deletes from it."""
    found: dict[str, set[str]] = {}
    for module, tree in house.items():
        for text in _strings(tree):
            for table in set(WRITES.findall(text)) & (room_tables | {VARIABLE}):
                found.setdefault(table, set()).add(module)
    return found


def _strings(tree: ast.Module) -> Iterator[str]:
    """Every string literal that is not a docstring; of an f-string the fixed parts, with VARIABLE for the others."""
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else VARIABLE for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            yield node.value
