"""The state machines: the schema allows their states and no others, the drawn ones are these, and so are the A2A names."""

import re
from pathlib import Path

import pytest
from a2a.types import TaskState
from hypothesis import given
from hypothesis import strategies as st

from background import states
from background.states import A2A, DELIVERY, INTERRUPTED, JOB, MOVE_TO, RUN, TASK, TASK_ENDS, Machine

ROOT = Path(__file__).parents[2]
SCHEMA = (ROOT / "background" / "schema.sql").read_text()
DOCS = ROOT / "docs" / "states.md"
MACHINES = {"TASK": TASK, "RUN": RUN, "JOB": JOB, "DELIVERY": DELIVERY}
NOUNS = {"TASK": "Tasks", "RUN": "Runs", "JOB": "Jobs", "DELIVERY": "Deliveries"}

every_machine = pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)


def table(name: str) -> str:
    """A table's part of the schema."""
    found = re.search(rf"create table {name} \((.*?)\n\)", SCHEMA, re.DOTALL)
    assert found, name
    return found[1]


def allowed(name: str, column: str) -> set[str]:
    """The values that a table's check allows a column."""
    found = re.search(rf"^    {column} text[^\n]*check \(\s*{column} in \(([^)]*)\)\s*\)", table(name), re.MULTILINE)
    assert found, (name, column)
    return set(re.findall(r"'(\w+)'", found[1]))


def without_end(name: str, time: str, column: str) -> set[str]:
    """The states in which a table's check forbids the time of an end."""
    found = re.search(rf"check \(\({time} is null\) = \({column} in \(([^)]*)\)\)\)", table(name))
    assert found, (name, time)
    return set(re.findall(r"'(\w+)'", found[1]))


@pytest.mark.parametrize(
    ("machine", "name", "column"),
    [
        (TASK, "tasks", "state"),
        (RUN, "runs", "state"),
        (JOB, "jobs", "status"),
        (DELIVERY, "deliveries", "state"),
    ],
)
def test_the_schema_allows_exactly_the_states_of_the_machine(machine: Machine, name: str, column: str) -> None:
    assert allowed(name, column) == set(machine)


@pytest.mark.parametrize(
    ("machine", "name", "time", "column"),
    [
        (TASK, "tasks", "ended_at", "state"),
        (RUN, "runs", "ended_at", "state"),
        (JOB, "jobs", "completed_at", "status"),
    ],
)
def test_the_schema_wants_a_time_for_exactly_the_ends(machine: Machine, name: str, time: str, column: str) -> None:
    assert without_end(name, time, column) == set(machine) - set(states.ended(machine))


def test_a_member_of_a_batch_ends_as_a_job_does() -> None:
    assert allowed("members", "status") == set(states.ended(JOB))


@every_machine
def test_every_move_leads_to_a_state_of_the_machine_and_each_can_be_reached(machine: Machine) -> None:
    start = next(iter(machine))
    reached, ahead = {start}, [start]
    while ahead:
        for target in machine[ahead.pop()].values():
            assert target in machine
            if target not in reached:
                reached.add(target)
                ahead.append(target)
    assert reached == set(machine)


@every_machine
def test_a_move_leads_to_one_state_from_wherever_it_is_made(machine: Machine) -> None:
    moves = {move for targets in machine.values() for move in targets}
    for move in moves:
        assert {targets[move] for targets in machine.values() if move in targets} == {states.target(machine, move)}


@every_machine
def test_nothing_leaves_an_end_but_what_somebody_does_by_hand(machine: Machine) -> None:
    assert {move for end in states.ended(machine) for move in machine[end]} <= {"retry", "replay", "discard"}
    assert states.ended(machine)


@given(
    st.sampled_from(list(MACHINES)),
    st.sampled_from(sorted({m for k in MACHINES.values() for s in k.values() for m in s})),
)
def test_a_guard_names_the_states_that_know_the_move_and_an_unknown_move_is_refused(name: str, move: str) -> None:
    machine = MACHINES[name]
    knowing = [state for state, moves in machine.items() if move in moves]
    if knowing:
        assert re.findall(r"'(\w+)'", states.guard(machine, move)) == knowing
    else:
        for refuses in (states.guard, states.sources):
            with pytest.raises(KeyError):
                refuses(machine, move)


def test_how_a_task_ends_is_a_move_of_its_task_its_run_and_its_job() -> None:
    assert set(TASK_ENDS) == set(MOVE_TO) == set(states.ended(TASK)) == set(states.ended(JOB))
    for end, move in MOVE_TO.items():
        assert states.target(TASK, move) == states.target(JOB, move) == end
    assert set(TASK_ENDS.values()) == set(states.ended(RUN))


def test_a_parked_task_has_neither_ended_nor_does_it_work() -> None:
    """From where it is only an answer, a failure or a cancel leads on."""
    for state in INTERRUPTED:
        assert set(TASK[state]) == {"answer", "fail", "cancel"}
        assert state not in states.ended(TASK)
    assert {states.target(TASK, move) for move in ("park", "authenticate")} == set(INTERRUPTED)


def test_each_task_state_has_the_protocol_s_own_name() -> None:
    assert set(A2A) == set(TASK)
    assert set(A2A.values()) <= set(TaskState.keys())


# -- docs/states.md


def vocabularies() -> str:
    """The one table in which the three vocabularies meet."""
    of_job = {"submitted": "`queued`", "working": "`running`"} | {end: f"`{end}`" for end in TASK_ENDS}
    of_job |= dict.fromkeys(INTERRUPTED, "`input_required`")
    of_run = {
        "submitted": "`waiting`, `queued`; `running` just before it begins",
        "working": "`running`; `queued` between two tries, and after an answer",
    }
    of_run |= dict.fromkeys(INTERRUPTED, "`parked`")
    of_run |= {end: f"`{state}`" for end, state in TASK_ENDS.items()}
    lines = ["| task | its run | its job | A2A |", "|---|---|---|---|"]
    lines += [f"| `{state}` | {of_run[state]} | {of_job[state]} | `{A2A[state]}` |" for state in TASK]
    return "\n".join(lines)


def drawn(machine: Machine) -> str:
    return f"```mermaid\n{states.mermaid(machine)}\n```"


def test_the_docs_draw_the_machines_as_they_are() -> None:
    sections = DOCS.read_text().split("\n## ")
    for name, machine in MACHINES.items():
        section = next(section for section in sections if section.startswith(f"{NOUNS[name]}\n"))
        assert re.findall(r"```mermaid\n.*?\n```", section, re.DOTALL) == [drawn(machine)], (
            f"draw it anew:\n{drawn(machine)}"
        )


def test_the_docs_say_how_the_three_vocabularies_meet() -> None:
    assert vocabularies() in DOCS.read_text(), f"write it anew:\n{vocabularies()}"


def test_a_machine_that_differs_is_drawn_differently() -> None:
    assert states.mermaid({"on": {"switch": "off"}, "off": {}}) == (
        "stateDiagram-v2\n    [*] --> on\n    on --> off: switch\n    off --> [*]"
    )
