"""The documentation says what the code does, where that can be compared."""

import os
import re
import subprocess
import sys
from pathlib import Path

from web.settings import table

DOCS = Path(__file__).parents[2] / "docs"


def settings_page() -> str:
    """The table of `docs/settings.md`, made from the settings themselves."""
    lines = ["| environment | in `outrider.toml` | default | allowed | meaning |", "|---|---|---|---|---|"]
    for row in table():
        lines.append(f"| `{row.environment}` | `{row.key}` | {row.default} | {row.allowed} | {row.meaning} |")
    return "\n".join(lines)


def test_the_settings_page_is_the_settings_table() -> None:
    assert settings_page() in (DOCS / "settings.md").read_text()


def test_each_page_that_the_readme_names_is_there() -> None:
    readme = (DOCS.parent / "README.md").read_text()
    named = {part.split(")")[0] for part in readme.split("](")[1:]}
    missing = [page for page in named if not page.startswith("http") and not (DOCS.parent / page).exists()]
    assert missing == []


def test_the_program_in_the_api_page_runs_as_it_is_written_and_ends_with_a_report(tmp_path: Path) -> None:
    page = (DOCS / "api.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    bare = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    program = program.replace("/tmp/outrider", str(tmp_path / "data"))
    command = [sys.executable, "-W", "error", "-c", program]
    ran = subprocess.run(command, cwd=DOCS.parent, env=bare, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("completed **Summary.**") and "## Sources" in ran.stdout


def test_make_run_installs_the_providers_that_are_named_and_starts(tmp_path: Path) -> None:
    """As the README has it; make only says what it would do."""
    for name in ("Makefile", "pyproject.toml"):
        (tmp_path / name).write_text((DOCS.parent / name).read_text())
    for extras, target in {"": "-e '.'", "EXTRAS=openai,google": "-e '.[openai,google]'"}.items():
        command = ["make", "--dry-run", "run", *extras.split()]
        said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=30, check=True).stdout
        assert re.search(rf"pip install [^\n]* {re.escape(target)}$", said, re.MULTILINE)
        assert said.index("pip install") < said.index(".venv/bin/outrider serve")
    assert "make run EXTRAS=openai" in (DOCS.parent / "README.md").read_text()
