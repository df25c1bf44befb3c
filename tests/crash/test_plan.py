"""Plans can be said and understood again, come out alike for the same seed, and leave out no commit."""

import pytest

from tests.crash.plan import Calm, Plan, plans

DIARY = [f"{when} {place} {number}" for place in ("a.x", "b.y") for number in (1, 2, 3) for when in ("before", "after")]
CALM = Calm.of([*DIARY, "after worker.beat 1"], seconds=2.0)


def test_what_a_plan_says_is_the_plan() -> None:
    for plan in plans(CALM, 200, seed=1):
        assert Plan.parse(str(plan)) == plan


def test_the_same_seed_makes_the_same_plans_and_another_makes_others() -> None:
    assert plans(CALM, 20, seed=1) == plans(CALM, 20, seed=1) != plans(CALM, 20, seed=2)


def test_every_commit_has_its_turn_before_and_after_it() -> None:
    first = [str(plan.kills[0]).removeprefix("stop ") for plan in plans(CALM, 2 * len(DIARY), seed=1)]
    assert sorted(first[::2]) == sorted(DIARY)
    assert all(0 <= float(kill.removesuffix("s")) <= CALM.seconds for kill in first[1::2])


def test_some_are_asked_to_end_themselves_and_most_are_killed() -> None:
    kills = [kill for plan in plans(CALM, 200, seed=1) for kill in plan.kills]
    assert 0.1 < sum(kill.stop for kill in kills) / len(kills) < 0.4


@pytest.mark.parametrize("text", ["3", "during a.x 1", "after a.x", "0.5", "after a.x 1 0.5s", "stop", "stop stop 1s"])
def test_what_is_no_kill_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no kill"):
        Plan.parse(text)
