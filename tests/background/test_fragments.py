"""Pieces of an answer that is not finished: whoever looks at any moment and reads on from there ends with the same text."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from background import journal, queue, results, tasks, terminal
from background.database import Database, Tx
from background.errors import LeaseLost
from background.journal import Event, View
from background.results import artifact_id
from tests.background.asking import answered, goes_on, parked
from tests.background.factories import OWNER, Turn, begun, outcome, running, settled
from tests.background.story import everything, listened_to, story, value
from tests.support.clock import Clock

PIECES = ["One, ", "two, ", "Ünï ☃, ", "", "three.\n", "  "]


async def says(db: Database, turn: Turn, *pieces: str, anew: bool = False) -> None:
    """The turn has said these, each in a commit of its own, and all of it can be seen; `anew`: from the start."""
    for number, piece in enumerate(pieces):
        await db.write(partial(tasks.fragment, anew=anew and number == 0), turn.run, piece)
    while await db.write(journal.project):
        pass


async def seen(db: Database, turn: Turn) -> View:
    view = await db.read(journal.view, OWNER, turn.task.id)
    assert view is not None
    return view


def text_of(view: View) -> str:
    return view.result.text if view.result else ""


def read_on(text: str, told: list[Event]) -> str:
    """What a client has that had `text` and is told these: pieces go behind, and all else takes the place of what was."""
    for event in told:
        if event.artifact is not None:
            said = "".join(part["text"] for part in event.artifact["parts"])
            text = text + said if event.append else said
    return text


async def caught_up(db: Database, turn: Turn, cut: View) -> str:
    """What a client has now that looked at `cut` and has read on since."""
    return read_on(text_of(cut), await db.read(journal.after, turn.task.id, cut.revision))


# -- looked at, and read on from there


@story
async def test_wherever_a_client_comes_in_it_ends_with_what_was_said(db: Database) -> None:
    """A36: while the turn is at work, and when the whole answer has come."""
    turn = await running(db)
    await says(db, turn)
    cuts = [await seen(db, turn)]
    for number, piece in enumerate(PIECES, start=1):
        await says(db, turn, piece)
        cuts.append(await seen(db, turn))
        so_far = "".join(PIECES[:number])
        assert text_of(cuts[-1]) == so_far
        assert [await caught_up(db, turn, cut) for cut in cuts] == [so_far] * len(cuts)
    assert [cut.revision for cut in cuts] == list(range(2, 2 + len(cuts)))
    await settled(db, turn, text="".join(PIECES))
    await says(db, turn)
    assert [await caught_up(db, turn, cut) for cut in cuts] == ["".join(PIECES)] * len(cuts)
    assert text_of(await seen(db, turn)) == "".join(PIECES)


@story
async def test_pieces_are_of_the_artifact_that_the_answer_will_be_and_say_that_it_is_not_whole(db: Database) -> None:
    turn = await running(db)
    await says(db, turn, "One, ", "two")
    first, second = await db.read(journal.after, turn.task.id, 2)
    assert [(piece.whole, piece.append, piece.state) for piece in (first, second)] == [
        (False, False, "working"),
        (False, True, "working"),
    ]
    assert {piece.artifact["artifactId"] for piece in (first, second) if piece.artifact} == {artifact_id(turn.task.id)}
    answer = {"artifactId": artifact_id(turn.task.id), "parts": [{"text": "One, two"}]}
    await db.write(terminal.settle, turn.run, outcome(artifacts=[answer]))
    await says(db, turn)
    whole, end = await db.read(journal.after, turn.task.id, second.revision)
    assert (whole.artifact, whole.whole, whole.append) == (answer, True, False)
    assert (end.state, end.artifact) == ("completed", None)


@story
async def test_pieces_that_were_not_projected_yet_are_not_seen_and_all_are_told_then(db: Database) -> None:
    turn = await running(db)
    await says(db, turn)
    cut = await seen(db, turn)
    for piece in PIECES:
        await db.write(tasks.fragment, turn.run, piece)
    assert (await seen(db, turn)).revision == cut.revision
    assert await db.read(journal.after, turn.task.id, cut.revision) == []
    await says(db, turn)
    told = await db.read(journal.after, turn.task.id, cut.revision)
    assert [event.revision for event in told] == [cut.revision + number for number in range(1, 1 + len(PIECES))]


@story
async def test_a_piece_does_not_change_since_when_its_task_is_at_work(db: Database, clock: Clock) -> None:
    """A18: a list that asks for what has changed since then would else have it again and again."""
    turn = await running(db)
    await db.write(tasks.fragment, turn.run, "told in the same moment as the beginning, ")
    await says(db, turn)
    began = (await seen(db, turn)).at
    clock.advance(60)
    await says(db, turn, "told later")
    view = await seen(db, turn)
    assert (view.at, text_of(view)) == (began, "told in the same moment as the beginning, told later")
    await settled(db, turn)
    await says(db, turn)
    assert (await seen(db, turn)).at == clock()


# -- begun anew


@story
async def test_what_is_said_again_takes_the_place_of_what_was_said_before(db: Database) -> None:
    """The worker died in the middle of its answer; the next attempt says it from the start, in other words and shorter.

    Until it does, what was told stands: streams cannot take it back, and who looks sees no other task than they do.
    """
    turn = await running(db)
    await says(db, turn, "One, ", "two, ", "three")
    cuts = [await seen(db, turn)]
    await db.write(queue.release, turn.run, error="its worker stopped")
    again = await begun(db, turn.task)
    await says(db, again)
    cuts.append(await seen(db, again))
    assert text_of(cuts[-1]) == "One, two, three"
    await says(db, again, "Uno, ", anew=True)
    cuts.append(await seen(db, again))
    await says(db, again, "due")
    assert [await caught_up(db, again, cut) for cut in cuts] == ["Uno, due"] * 3
    await settled(db, again, text="Uno, due.")
    await says(db, again)
    assert [await caught_up(db, again, cut) for cut in cuts] == ["Uno, due."] * 3


@story
async def test_an_answered_question_begins_the_answer_anew_too(db: Database) -> None:
    turn = await running(db)
    await says(db, turn, "Let me ask. ")
    cut = await seen(db, turn)
    turn = await parked(db, turn=turn)
    await answered(db, turn)
    again = await goes_on(db, turn)
    await says(db, again, "Now I ", "know.", anew=True)
    assert await caught_up(db, turn, cut) == "Now I know."


@story
async def test_an_attempt_that_is_over_says_nothing_more(db: Database) -> None:
    turn = await running(db)
    await db.write(queue.release, turn.run)
    again = await begun(db, turn.task)
    await says(db, again, "two", anew=True)
    before = everything(db.path)
    with pytest.raises(LeaseLost):
        await db.write(tasks.fragment, turn.run, "one")
    assert everything(db.path) == before


@pytest.mark.parametrize("ceiling", ["redacted", "metadata", "none"])
@story
async def test_where_not_all_is_kept_no_piece_is(db: Database, ceiling: str) -> None:
    """What is to be masked may be cut in two; the whole answer is masked at the end."""
    turn = await running(db)
    await db.write(Tx.x, "update tasks set ceiling = :ceiling", ceiling=ceiling)
    await says(db, turn)
    before = await seen(db, turn)
    await says(db, turn, "ada@exam", "ple.org")
    assert await seen(db, turn) == before
    assert await value(db, "select count(*) from fragments") == 0
    assert await value(db, "select max(revision) from revisions") == await value(db, "select revision from tasks")


# -- over


@story
async def test_a_whole_answer_leaves_no_pieces(db: Database) -> None:
    turn = await running(db)
    await says(db, turn, "One, ", "two")
    cut = await seen(db, turn)
    await says(db, turn, ", three")
    await settled(db, turn, text="One, two, three.")
    await says(db, turn)
    assert await value(db, "select count(*) from fragments") == 0
    told = await db.read(journal.after, turn.task.id, cut.revision)
    assert [event.whole for event in told if event.artifact] == [True]
    assert told[-1].state == "completed"
    with pytest.raises(LeaseLost):
        await db.write(tasks.fragment, turn.run, "late")


@pytest.mark.parametrize("state", ["failed", "canceled", "completed"])
@story
async def test_where_the_end_brings_no_artifact_the_pieces_stand(db: Database, state: str) -> None:
    """A13: nothing takes back what was told on a stream, so whoever looks sees the same; that it is not whole as well."""
    turn = await running(db)
    await says(db, turn)
    cuts = [await seen(db, turn)]
    for piece in ("One, ", "two"):
        await says(db, turn, piece)
        cuts.append(await seen(db, turn))
    await db.write(tasks.fragment, turn.run, ", three")
    if state == "canceled":
        await db.write(terminal.cancel_task, turn.task, "user")
    else:
        await db.write(terminal.settle, turn.run, outcome(state, artifacts=[], partial="One, two, three, fo"))
    await says(db, turn)
    end = await seen(db, turn)
    assert (end.state, text_of(end)) == (state, "One, two, three")
    assert [await caught_up(db, turn, cut) for cut in cuts] == ["One, two, three"] * 3
    told = await db.read(journal.after, turn.task.id, cuts[0].revision)
    assert not any(event.whole for event in told if event.artifact) and told[-1].state == state
    if state == "failed":
        assert end.result and end.result.partial == "One, two, three, fo"
    with pytest.raises(LeaseLost):
        await db.write(tasks.fragment, turn.run, "late")


@story
async def test_an_attempt_that_dies_after_a_piece_has_come_no_step_further(db: Database) -> None:
    """Else a turn that tells something and then kills its worker would be tried for ever."""
    turn = await running(db)
    before = await db.read(queue.tries, turn.run)
    await db.write(queue.release, turn.run, error="its worker stopped")
    again = await begun(db, turn.task)
    await says(db, again, "One, ")
    assert await db.read(queue.tries, again.run) == before + 1


@story
async def test_a_scrubbed_task_leaves_no_pieces_and_no_text(db: Database) -> None:
    turn = await running(db)
    await says(db, turn, "One, ", "two")
    cut = await seen(db, turn)
    await db.write(terminal.scrub, turn.task.id)
    assert await value(db, "select count(*) from fragments") == 0
    assert (await seen(db, turn)).result is None
    assert await db.read(journal.after, turn.task.id, 2) == []
    await db.write(Tx.x, "update tasks set ceiling = 'none'")
    await settled(db, turn, text="One, two.")
    await says(db, turn)
    told = await db.read(journal.after, turn.task.id, cut.revision)
    assert [(event.state, event.artifact) for event in told] == [("failed", None)]
    assert await db.read(results.read, turn.task.id) == results.Result([], None)


# -- many


def _cost(tx: Tx, function: Callable[..., Any], *args: Any) -> tuple[int, int]:
    """How many statements a call makes, and how many steps SQLite's machine takes for them."""
    steps = 0

    def one_more() -> int:
        nonlocal steps
        steps += 1
        return 0

    tx._connection.set_progress_handler(one_more, 1)
    try:
        with listened_to(tx) as heard:
            function(tx, *args)
    finally:
        tx._connection.set_progress_handler(None, 0)
    return len(heard), steps


@story
async def test_the_five_hundredth_piece_costs_what_the_tenth_did(db: Database) -> None:
    """To keep it, to project it, and to tell it to whoever has all those before; counted, not timed."""
    turn = await running(db)
    await says(db, turn)

    def one(tx: Tx, number: int) -> list[tuple[int, int]]:
        last = tx.value("select revision from views where task_id = :id", id=turn.task.id)
        return [
            _cost(tx, tasks.fragment, turn.run, f"piece {number:03} "),
            _cost(tx, journal.project),
            _cost(tx, journal.after, turn.task.id, last),
        ]

    costs = [await db.write(one, number) for number in range(500)]
    for early, late in zip(costs[10], costs[499], strict=True):
        assert late[0] == early[0], "statements"
        assert late[1] <= early[1] * 1.2 + 20, "steps"
    assert text_of(await seen(db, turn)) == "".join(f"piece {number:03} " for number in range(500))


@story
async def test_a_commit_of_many_pieces_is_projected_in_bounded_transactions(db: Database) -> None:
    turn = await running(db)
    await says(db, turn)
    for number in range(journal.BATCH + 5):
        await db.write(tasks.fragment, turn.run, f"{number},")
    assert [await db.write(journal.project) for _ in range(3)] == [journal.BATCH, 5, 0]
    assert text_of(await seen(db, turn)).count(",") == journal.BATCH + 5
