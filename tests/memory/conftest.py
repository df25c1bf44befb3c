"""One Outrider inside this process for all stories of memory, on a clock that moves; each story has an owner of its own."""

from collections.abc import Iterator

import pytest

from tests.memory.users import User
from tests.support.inside import Inside, Ticking, openai_model
from tests.support.scripted import ScriptedModel


@pytest.fixture(scope="package")
def remembering(shared_model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    """Runs, with the settings as they are by default, but for a type of subagents that asks for memory."""
    data = tmp_path_factory.mktemp("remembering") / "data"
    data.mkdir()
    (data / "outrider.toml").write_text(
        '[subagents.confidant]\ndescription = "Knows."\nprompt = "Know."\ntools = ["recall_session"]\nmemory = true\n'
        '[profiles.masked]\nanswer_level = "redacted"\n'
    )
    inside = Inside(data, openai_model(shared_model.base_url), Ticking(), profiles="chat,echo,masked").start()
    yield inside
    inside.close()


@pytest.fixture
def user(remembering: Inside, shared_model: ScriptedModel) -> Iterator[User]:
    """Somebody who has said nothing yet, and a model that says what a test scripts."""
    shared_model.rules([])
    somebody = User.of(remembering, shared_model)
    yield somebody
    somebody.leave()
