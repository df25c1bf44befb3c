"""The plugin of `tests/support/plugin`, and profiles that use it, for servers under test.

    trial = Trial(tmp_path / "trial")
    server = Server(trial.data(tmp_path / "data"), env=trial.env(TRIAL="guard"))
    task = server.say("s", "ask Which one?", skill="trial")
    trial.open("a-door"); trial.diary()

The profiles are `trial` and `trial-sync`; more stand in TOML that a test gives. What the commands do stands in the
plugin's own docstring.
"""

from pathlib import Path

PLUGIN = Path(__file__).parent / "plugin"
PROFILES = """
[profiles.trial]
description = "Does what it is told."
handler = "trial"

[profiles.trial-sync]
description = "Does what it is told, in a thread."
handler = "trial-sync"
"""


class Trial:
    """The plugin's folder of one test: what its handlers write, and what they wait for."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder

    def data(self, data: Path, toml: str = "") -> Path:
        """A data folder whose `outrider.toml` defines the profiles, and `toml` beside them."""
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        (data / "outrider.toml").write_text(PROFILES + toml)
        return data

    def env(self, offered: str = "chat,echo,trial,trial-sync", **more: str) -> dict[str, str]:
        """The environment in which a server has the plugin, and offers the profiles."""
        found = {"PYTHONPATH": str(PLUGIN), "TRIAL_FOLDER": str(self.folder), "OUTRIDER_PROFILES": offered}
        return found | more

    def open(self, door: str) -> None:
        """Whoever waits for the door goes on, and whoever comes to it later."""
        (self.folder / f"door-{door}").touch()

    def diary(self) -> list[str]:
        """What the plugin has written down, a line each."""
        diary = self.folder / "diary"
        return diary.read_text(encoding="utf-8").splitlines() if diary.exists() else []
