"""What may stand in `[mcp.NAME]`, and how it is refused: in one line, which repeats no secret (S84)."""

import sys
from pathlib import Path

import pytest

from tests.support.clock import Clock
from web.app import build
from web.mcp_tables import read_servers
from web.settings import BadSetting, load

SECRET = "sesame-4711-open"


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ("[mcp.x]\ntimeout_s = 5", "mcp.x: either command or url must be there, and not both"),
        ("[mcp.x]\ncommand = 'a'\nurl = 'http://b'", "mcp.x: either command or url must be there, and not both"),
        (
            "[mcp.x_y]\ncommand = 'a'",
            "mcp.x_y: the name of a server is a small letter, then small letters, digits or -",
        ),
        ("[mcp.x]\ncommand = ['a', 'b']", 'mcp.x.command: ["a", "b"] is not the name or path of a program'),
        ("[mcp.x]\ncommand = 'a'\nenv = 7", "mcp.x.env: what is given is not a table of texts, by names of variables"),
        (f"[mcp.x]\ncommand = 'a'\nargs = '{SECRET}'", "mcp.x.args: what is given is not a list of texts"),
        (f"[mcp.x]\nurl = 'ftp://{SECRET}'", "mcp.x.url: what is given is not an http or https address"),
        (
            f"[mcp.x]\nurl = 'http://b'\nheaders = {{ 'a b' = '{SECRET}' }}",
            "mcp.x.headers: what is given is not a table",
        ),
        ("[mcp.x]\nurl = 'http://b'\nargs = ['c']", "mcp.x.args: only a server with a command has it"),
        ("[mcp.x]\ncommand = 'a'\nheaders = {}", "mcp.x.headers: only a server with a url has it"),
        (
            "[mcp.x]\ncommand = 'a'\nneeds_approval = 'write'",
            "mcp.x.needs_approval: 'write' is not true, false, or a list",
        ),
        ("[mcp.x]\ncommand = 'a'\ntimeout_s = 0", "mcp.x.timeout_s: 0 is not seconds from 0.1 to 3,600"),
        (
            "[mcp.x]\ncommand = 'a'\nneed_approval = true",
            "mcp.x.need_approval: there is no such field; did you mean needs_",
        ),
        ("[mcp.x]\ncommand = 'a'\nenv = { K = '${NO_SUCH}' }", "mcp.x.env.K: there is no NO_SUCH in the environment"),
        ("[mcp]\nx = 1", "mcp.x: must be a table"),
    ],
)
def test_a_server_that_cannot_be_meant_stops_the_start_with_one_line(tmp_path: Path, table: str, why: str) -> None:
    (tmp_path / "outrider.toml").write_text(table)
    with pytest.raises(BadSetting) as refused:
        load({"data": str(tmp_path)}, {})
    assert str(refused.value).startswith(why) and "\n" not in str(refused.value) and SECRET not in str(refused.value)


def test_secrets_come_from_the_environment_and_are_shown_nowhere(tmp_path: Path) -> None:
    (tmp_path / "outrider.toml").write_text(
        "[mcp.x]\nurl = 'http://b/?k=${K}'\nheaders = { Authorization = 'Bearer ${K}' }\n"
        "[mcp.y]\ncommand = 'c'\nenv = { A = '${K}', LEVEL = 'warning' }"
    )
    settings = load({"data": str(tmp_path)}, {"K": SECRET})
    assert settings.mcp["x"].url == f"http://b/?k={SECRET}" and settings.mcp["y"].env == {
        "A": SECRET,
        "LEVEL": "warning",
    }
    assert settings.mcp["x"].secrets == settings.mcp["y"].secrets == [SECRET]
    assert SECRET not in repr(settings) + settings.model_dump_json() + repr(dict(settings.mcp))


def test_where_the_extra_is_missing_the_start_says_how_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [name for name in sys.modules if name.startswith(("fastmcp", "agent.mcp_c"))]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "fastmcp", None)
    (tmp_path / "outrider.toml").write_text("[mcp.notes]\ncommand = 'notes'")
    with pytest.raises(BadSetting, match=r"^mcp\.notes: .* install it with: pip install 'outrider\[mcp\]'$"):
        build(load({"data": str(tmp_path)}, {}), now=Clock())


def test_a_profile_that_names_a_server_that_there_is_not_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "outrider.toml").write_text("[profiles]\noffered = ['chat', 'p']\n[profiles.p]\ntools = ['nosuch_*']")
    with pytest.raises(BadSetting, match=r"^profiles\.p\.tools: there is no tool 'nosuch_\*'; there are ask_user, "):
        build(load({"data": str(tmp_path)}, {}), now=Clock())


def test_what_is_a_server_already_stays_one() -> None:
    """Settings are made of values too."""
    servers = read_servers({"x": {"command": "c", "tools": ["a"], "needs_approval": True, "timeout_s": 3}})
    assert read_servers(servers) == servers and servers["x"].asks("anything")
