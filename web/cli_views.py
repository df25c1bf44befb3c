"""How the command line shows what a server answered: tables, pages, and text made clean for a terminal.

Reports, answers and descriptions were written by models and strangers: nothing in them moves a cursor, colours a line
or turns its direction. Never speaks to a server.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from background import states
from background.text import clip
from web.setting_fields import DEFAULT_DATA, Settings

ENDED = states.ended(states.JOB)
EXTERNAL = 1  # the lowest tier of trust
DESCRIPTION_CHARS = 60
# Of a cell in a table; ids are shorter.
CELL_CHARS = 200
# What a table's last column keeps at the least, where others can be left out instead.
LAST_COLUMN = 24
# Where nothing tells the width, as in a pipe, a row stays on one line, and all of it is there.
PIPE_COLUMNS = 400


def _signs() -> dict[int, str]:
    """Control characters, direction overrides and half characters, each with the sign that shows it."""
    controls = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"} | {0x0D: ""}
    named = [*range(0x7F, 0xA0), *range(0x2028, 0x202F), *range(0x2066, 0x206A)]
    return controls | {code: f"[U+{code:04X}]" for code in named} | dict.fromkeys(range(0xD800, 0xE000), "\ufffd")


SIGNS = _signs()


def clean(text: str) -> str:
    """The text with all that a terminal would obey shown as a sign; a carriage return is dropped.

    Goes character by character, so that a text may come in any pieces: no sequence can hide in the cut.
    """
    return text.translate(SIGNS)


def line(value: object, limit: int = 10_000) -> str:
    """Anything as clean text on one line."""
    return clip(clean("" if value is None else str(value)), limit)


def when(time: str | None) -> str:
    """A time of the API to the second; `-` for none."""
    return line(time)[:19].replace("T", " ") + "Z" if time else "-"


def size(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def json_text(value: object) -> str:
    """JSON in pure ASCII: it needs no cleaning, and no encoding of a terminal can fail on it."""
    return json.dumps(value, indent=2, ensure_ascii=True)


def width() -> int:
    """Columns of the terminal; of a pipe so many that nothing is cut."""
    return Console().width if sys.stdout.isatty() else PIPE_COLUMNS


def show(table: Table) -> None:
    """Prints a table as wide as the terminal, or on long lines where there is none."""
    Console(width=width(), highlight=False).print(table)


def columns(*names: str, rows: Iterable[Iterable[object]], room: int, spare: tuple[str, ...] = ()) -> Table:
    """A table of plain cells for `room` columns. Only the last is cut, with an ellipsis, to no less than its minimum.

    Where that is not enough the columns in `spare` are left out, in their order: what is shown can be copied whole.
    """
    cells = [dict(zip(names, (line(cell, CELL_CHARS) for cell in row), strict=True)) for row in rows]
    needs = {name: max(map(cell_len, [name, *(row[name] for row in cells)])) for name in names}
    last = names[-1]
    shown = list(names)
    while spare and _left(needs, shown, room) < min(needs[last], LAST_COLUMN):
        shown.remove(spare[0])
        spare = spare[1:]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in shown[:-1]:
        table.add_column(name, no_wrap=True, overflow="fold", min_width=needs[name])
    table.add_column(last, no_wrap=True, overflow="ellipsis", max_width=max(1, _left(needs, shown, room)))
    for row in cells:
        table.add_row(*(Text(row[name]) for name in shown))
    return table


def _left(needs: dict[str, int], shown: list[str], room: int) -> int:
    """What the columns before the last one leave to it; two spaces stand between each two."""
    return room - sum(needs[name] + 2 for name in shown[:-1])


def jobs_table(jobs: Iterable[dict[str, Any]], room: int | None = None) -> Table:
    """Jobs, one a row, for so many columns or those of the terminal."""
    return columns(
        "ID",
        "STATUS",
        "TYPE",
        "CREATED",
        "SESSION",
        "DESCRIPTION",
        room=room or width(),
        spare=("SESSION", "CREATED", "TYPE"),
        rows=(
            (job["id"], job["status"], job["subagent_type"], when(job["created_at"]), job["session"], brief(job))
            for job in jobs
        ),
    )


def sessions_table(sessions: Iterable[dict[str, Any]], room: int | None = None) -> Table:
    """Sessions, one a row, for so many columns or those of the terminal."""
    return columns(
        "ID",
        "UPDATED",
        "STATE",
        "TITLE",
        room=room or width(),
        spare=("UPDATED", "STATE"),
        rows=((row["id"], when(row["updated_at"]), _doing(row), _title(row)) for row in sessions),
    )


def _title(session: dict[str, Any]) -> str:
    return session["title"] or ("(incognito)" if session.get("incognito") else "")


def _doing(session: dict[str, Any]) -> str:
    """What its turns do: one that asks its user holds up all the others."""
    return "asks you" if session.get("parked") else "running" if session["running"] else "idle"


def brief(job: dict[str, Any]) -> str:
    """A job's description, short enough for a row."""
    return line(job["description"] or ("(incognito)" if job.get("incognito") else ""), DESCRIPTION_CHARS)


def job_line(job: dict[str, Any]) -> str:
    """A job's state in one line."""
    reason = f" ({line(job['error']['reason'])})" if job.get("error") else ""
    return f"{line(job['id'])} {line(job['status'])}{reason}: {brief(job)}"


def job_page(job: dict[str, Any]) -> str:
    """All that a reader asks of one job; its full report is not among it."""
    error, usage = job.get("error") or {}, job.get("usage") or {}
    stopped = f" by {line(job['canceled_by'])}" if job.get("canceled_by") else ""
    facts = {
        "job": line(job["id"]),
        "description": line(job["description"]),
        "type": line(job["subagent_type"]),
        "status": line(job["status"]) + stopped,
        "reason": ": ".join(filter(None, (line(error.get("reason")), line(error.get("message"))))),
        "attempts": line(job["attempts"]) if job.get("attempts", 1) > 1 else "",
        "session": line(job["session"]),
        "incognito": "yes" if job.get("incognito") else "",
        "sent out by": line(job.get("parent")),
        "created": when(job["created_at"]),
        "started": when(job.get("started_at")),
        "ended": when(job.get("completed_at")),
        **_delivery(job),
        "usage": usage_line(usage),
        "report": _report(job),
        "made of": "external material" if job.get("made_of") == EXTERNAL else "",
    }
    head = "\n".join(f"{name + ':':<13}{value}" for name, value in facts.items() if value)
    texts = {"prompt": job.get("prompt"), "excerpt": job.get("excerpt")}
    return "\n\n".join([head, *(f"{name}:\n{clean(text).strip()}" for name, text in texts.items() if text)])


def usage_line(usage: dict[str, Any]) -> str:
    """What model calls have cost."""
    return ", ".join(f"{line(name).replace('_', ' ')} {line(count)}" for name, count in usage.items())


def _delivery(job: dict[str, Any]) -> dict[str, str]:
    """Whether an ended job was told of; of another, what keeps it from going on, where something does."""
    delivery = job.get("delivery") or {}
    if job["status"] not in ENDED:
        return {"waits": line(delivery.get("last_error"))}
    state = f"{line(delivery.get('state'))} {when(job['notified_at']) if job.get('notified_at') else ''}".strip()
    tries = delivery.get("attempts") or 0
    tried = [f"tried {tries} time{'' if tries == 1 else 's'}"] if tries else []
    notes = "; ".join([*tried, *([line(delivery["last_error"])] if delivery.get("last_error") else [])])
    return {"told": f"{state} ({notes})" if notes else state}


def _report(job: dict[str, Any]) -> str:
    if job.get("erased"):
        return "erased"
    if not job.get("report_chars"):
        return "none"
    kind = "partial, " if job.get("partial") else ""
    return f"{kind}{job['report_chars']} characters; the whole of it: outrider job {line(job['id'])} --report"


def _trust(hit: dict[str, Any]) -> str:
    """How far what was found may be relied on, in words."""
    external = hit.get("made_of") == EXTERNAL < hit["trust"]
    return f"{hit['trust_label']}, made of external material" if external else hit["trust_label"]


def hits_text(hits: Iterable[dict[str, Any]]) -> str:
    """Search hits, best first, a paragraph each."""
    return "\n\n".join(
        f"{number}. {line(hit['heading'])}\n"
        f"   {line(hit['source'])} ({line(hit['source_type'])}, {line(_trust(hit))}, {when(hit['created_at'])})\n"
        f"   {line(hit['snippet'])}"
        for number, hit in enumerate(hits, 1)
    )


def status_table(status: dict[str, Any]) -> Table:
    """The server's state, a fact a row."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _status_rows(status):
        table.add_row(Text(line(name)), Text(line(value)))
    return table


def _status_rows(status: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "state", "live" if status["live"] else "no live worker"
    yield from _workers(status["workers"])
    for kind in status["queue"]:
        oldest = f", oldest due {when(kind['oldest_due_at'])}" if kind["oldest_due_at"] else ""
        counts = f"{kind['queued']} queued, {kind['waiting']} waiting, {kind['running']} running"
        yield f"queue {kind['kind']}", counts + oldest
    yield "not told yet", _untold(status["undelivered"])
    if spent := status.get("usage_of_a_day"):
        yield "spent within a day", usage_line(spent)
    for name, store in status["stores"].items():
        yield f"store {name}", _store(store)
    for problem in status["problems"]:
        yield "problem", problem
    yield from _settings(status["settings"])


def _untold(untold: dict[str, Any]) -> str:
    count, stopped = untold["count"], untold.get("at_next_turn") or 0
    said = f"{count} job{'' if count == 1 else 's'}" + (f" since {when(untold['oldest_at'])}" if count else "")
    return f"{said}, and {stopped} that their users stopped, with the next turn" if stopped else said


ALWAYS = ("data", "blocking_wait_s")


def _settings(settings: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Those that somebody has set, and two always.

    Where the data folder lies by default depends on who asks; how long a send blocks, every proxy in front must know.
    """
    defaults = Settings.model_construct(data=Path(DEFAULT_DATA)).model_dump(mode="json")
    changed = {name: value for name, value in settings.items() if name in ALWAYS or value != defaults.get(name)}
    for name, value in changed.items():
        yield f"setting {name}", json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value
    yield "settings", f"{len(settings) - len(changed)} others are as by default; --json has all"


def _workers(workers: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Those that live, or all where none does; beside live ones the dead are history, and one line."""
    live = [worker for worker in workers if worker["live"]]
    for worker in live or workers:
        yield f"worker {worker['id']}", _worker(worker)
    if live and (silent := [worker for worker in workers if not worker["live"]]):
        last = max(worker["beat_at"] for worker in silent)
        yield "silent workers", f"{len(silent)} within an hour, the last heard {when(last)}"


def _worker(worker: dict[str, Any]) -> str:
    """Both of its ticks are told: the heartbeat says that it lives, the sweep that it looks after what others left."""
    swept = f", swept {when(worker['swept_at'])}" if worker.get("swept_at") else ""
    kinds = f": {' '.join(worker['kinds'])}" if worker.get("kinds") else ""
    state = "live" if worker["live"] else "silent"
    return f"{state}, heard {when(worker['beat_at'])}{swept}, {worker['host']} pid {worker['pid']}{kinds}"


def _store(store: dict[str, Any]) -> str:
    if not store["ok"]:
        return "cannot be read"
    counts = "".join(f"{store[name]} {name}, " for name in ("documents", "chunks") if name in store)
    return f"{counts}{size(store['bytes'])}"
