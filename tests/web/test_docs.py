"""The documentation says what the code does, where that can be compared."""

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
