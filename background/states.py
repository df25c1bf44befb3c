"""The state machines, as tables of data, and the one place where the three vocabularies meet.

No I/O, and nothing imported: the schema's checks, the diagram in the docs and the A2A names are held against these
tables by tests. A pair that does not stand here is a move that does not exist.
"""

Machine = dict[str, dict[str, str]]

TASK: Machine = {
    "submitted": {"begin": "working", "cancel": "canceled", "fail": "failed", "fold": "completed"},
    "working": {
        "complete": "completed",
        "fail": "failed",
        "cancel": "canceled",
        "park": "input_required",
        "authenticate": "auth_required",
    },
    "input_required": {"answer": "working", "fail": "failed", "cancel": "canceled"},
    "auth_required": {"answer": "working", "fail": "failed", "cancel": "canceled"},
    "completed": {},
    "failed": {},
    "canceled": {},
}

RUN: Machine = {
    "waiting": {"promote": "queued", "finish": "done", "fail": "failed", "cancel": "canceled"},
    "queued": {"claim": "running", "finish": "done", "fail": "failed", "cancel": "canceled"},
    "running": {"release": "queued", "park": "parked", "finish": "done", "fail": "failed", "cancel": "canceled"},
    "parked": {"finish": "done", "fail": "failed", "cancel": "canceled"},
    "done": {},
    "failed": {"discard": "canceled"},
    "canceled": {},
}

JOB: Machine = {
    "queued": {"begin": "running", "fail": "failed", "cancel": "canceled"},
    "running": {"complete": "completed", "fail": "failed", "cancel": "canceled", "park": "input_required"},
    "input_required": {"answer": "running", "fail": "failed", "cancel": "canceled"},
    "completed": {"retry": "queued"},
    "failed": {"retry": "queued"},
    "canceled": {"retry": "queued"},
}

DELIVERY: Machine = {
    "pending": {"attach": "attached", "give_up": "undeliverable"},
    "attached": {"deliver": "delivered", "release": "pending"},
    "delivered": {},
    "undeliverable": {"replay": "pending"},
}

# How the end of a task is said of its run and of its job, and what an A2A client reads.
TASK_ENDS = {"completed": "done", "failed": "failed", "canceled": "canceled"}
A2A = {
    "submitted": "TASK_STATE_SUBMITTED",
    "working": "TASK_STATE_WORKING",
    "input_required": "TASK_STATE_INPUT_REQUIRED",
    "auth_required": "TASK_STATE_AUTH_REQUIRED",
    "completed": "TASK_STATE_COMPLETED",
    "failed": "TASK_STATE_FAILED",
    "canceled": "TASK_STATE_CANCELED",
}
INTERRUPTED = ("input_required", "auth_required")  # parked: the task waits for an answer
BY_HAND = {"retry", "replay", "discard"}
MOVE_TO = {"completed": "complete", "failed": "fail", "canceled": "cancel"}


def sources(machine: Machine, move: str) -> tuple[str, ...]:
    """The states from which `move` is allowed. Raises `KeyError` for a move that the machine does not know."""
    found = tuple(state for state, moves in machine.items() if move in moves)
    if not found:
        raise KeyError(move)
    return found


def target(machine: Machine, move: str) -> str:
    """The state that `move` leads to; the same from wherever it is allowed."""
    (end,) = {moves[move] for moves in machine.values() if move in moves}
    return end


def ended(machine: Machine) -> tuple[str, ...]:
    """The states in which the work is over. What somebody does by hand may lead out of one."""
    return tuple(state for state, moves in machine.items() if not set(moves) - BY_HAND)


def _listed(machine: Machine, move: str) -> str:
    return "(" + ", ".join(f"'{state}'" for state in sources(machine, move)) + ")"


_GUARDS = {
    id(machine): {move: _listed(machine, move) for moves in machine.values() for move in moves}
    for machine in (TASK, RUN, JOB, DELIVERY)
}


def guard(machine: Machine, move: str) -> str:
    """The SQL list of the states from which `move` is allowed, for the `where` of its one guarded statement.

    Raises `KeyError` for a move that the machine does not know.
    """
    return _GUARDS[id(machine)][move]


def mermaid(machine: Machine) -> str:
    """The machine as a Mermaid state diagram, as it stands in the docs."""
    start = next(iter(machine))
    lines = ["stateDiagram-v2", f"    [*] --> {start}"]
    for state, moves in machine.items():
        lines += [f"    {state} --> {end}: {move}" for move, end in moves.items()]
        if state in ended(machine):
            lines.append(f"    {state} --> [*]")
    return "\n".join(lines)
