"""`GET /metrics`: the figures, as Prometheus reads them. What is counted in rows is the same in every process.

It reads, and asks no other process. Each figure costs what waits, and not what is stored.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from background import delivery, journal, queue, tallies, webhooks, worker
from background.database import Row, Tx
from background.limits import SECOND
from web import refusals
from web.house import House

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Seen:
    """What one look into the registry has found."""

    now: int
    live: int
    queue: list[Row]
    undelivered: Row
    held: int
    unprojected: Row
    dead_calls: int
    lost_leases: dict[str, int]
    failed_tries: dict[str, int]
    nudge_attempts: int
    index_failures: int
    memory_failures: dict[str, int]


def look(tx: Tx) -> Seen:
    """One moment's figures."""
    return Seen(
        now=tx.now,
        live=sum(row["live"] for row in worker.live(tx)),
        queue=queue.depth(tx),
        undelivered=delivery.undelivered(tx),
        held=delivery.held_batches(tx),
        unprojected=journal.behind(tx),
        dead_calls=webhooks.dead(tx),
        lost_leases=tallies.counted(tx, "lost_leases"),
        failed_tries=tallies.counted(tx, "failed_tries"),
        nudge_attempts=tallies.counted(tx, "nudge_attempts").get("", 0),
        index_failures=tallies.counted(tx, "index_failures").get("", 0),
        memory_failures=tallies.counted(tx, "memory_failures"),
    )


def text(house: House, seen: Seen) -> str:
    """The figures as Prometheus text."""
    return "\n".join([*_of_rows(seen), *_of_queue(seen), *_of_process(house), ""])


def _of_rows(seen: Seen) -> Iterable[str]:
    yield from _gauge("outrider_workers_live", "Workers heard from in time.", seen.live)
    yield from _gauge("outrider_undelivered", "Ended jobs that wait to be told.", seen.undelivered["count"])
    yield from _gauge(
        "outrider_undelivered_oldest_seconds", "Age of the oldest of them.", _age(seen, seen.undelivered["oldest_at"])
    )
    said = "Ended jobs that their user stopped: told with the next turn of their session."
    yield from _gauge("outrider_undelivered_at_next_turn", said, seen.undelivered["at_next_turn"])
    yield from _gauge("outrider_held_batches", "Batches of which some have ended and wait for the others.", seen.held)
    yield from _gauge("outrider_unprojected_tasks", "Tasks whose view is behind.", seen.unprojected["count"])
    yield from _gauge(
        "outrider_projector_lag_seconds",
        "Age of the oldest change that no view shows yet.",
        _age(seen, seen.unprojected["oldest_at"]),
    )
    yield from _gauge("outrider_webhook_calls_dead", "Webhook calls given up in the last day.", seen.dead_calls)
    yield from _total("outrider_nudge_attempts_total", "Nudges posted, each try.", {(): seen.nudge_attempts})
    yield from _total(
        "outrider_index_failures_total", "Times a report could not be indexed.", {(): seen.index_failures}
    )
    said = "Times a model could not be asked for what is remembered of a chat."
    yield from _total("outrider_memory_failures_total", said, _by("kind", seen.memory_failures))
    yield from _total(
        "outrider_lost_leases_total", "Runs taken over from a silent worker.", _by("kind", seen.lost_leases)
    )
    yield from _total(
        "outrider_failed_tries_total", "Tries of runs that came to nothing.", _by("kind", seen.failed_tries)
    )


def _of_queue(seen: Seen) -> Iterable[str]:
    states = ("queued", "waiting", "running", "parked")
    depth = {(("kind", row["kind"]), ("state", state)): row[state] for row in seen.queue for state in states}
    yield from _figures("outrider_runs", "gauge", "Unfinished runs by kind and state.", depth)
    due = {row["kind"]: row["oldest_due_at"] for row in seen.queue if row["oldest_due_at"] is not None}
    ages = {(("kind", kind),): max(0.0, _age(seen, at)) for kind, at in due.items()}
    yield from _figures("outrider_queue_oldest_seconds", "gauge", "How long the run due longest has been due.", ages)
    backlog = [row for row in seen.queue if row["kind"] == "push"]
    waiting = sum(row["queued"] + row["waiting"] + row["running"] for row in backlog)
    yield from _gauge("outrider_webhook_backlog", "Webhook calls that have not arrived yet.", waiting)


def _of_process(house: House) -> Iterable[str]:
    yield from _gauge("outrider_waiting_requests", "Blocking sends that wait.", house.waiting.taken)
    yield from _gauge("outrider_streams", "Open A2A streams.", house.streams.open)
    said = "Requests that this process refused."
    yield from _total("outrider_refusals_total", said, _by("reason", refusals.counts()))


def _age(seen: Seen, at: int | None) -> float:
    return 0 if at is None else (seen.now - at) / SECOND


def _by(label: str, counts: Mapping[str, int]) -> dict[Labels, int]:
    return {((label, value),): count for value, count in sorted(counts.items())}


def _gauge(name: str, meaning: str, value: float) -> list[str]:
    return _figures(name, "gauge", meaning, {(): value})


def _total(name: str, meaning: str, values: Mapping[Labels, int]) -> list[str]:
    return _figures(name, "counter", meaning, values)


def _figures(name: str, kind: str, meaning: str, values: Mapping[Labels, Any]) -> list[str]:
    samples = [f"{name}{_labels(labels)} {value}" for labels, value in values.items()]
    return [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}", *samples]


def _labels(labels: Labels) -> str:
    """Kinds and reasons are words of ours, without quotes or breaks."""
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels) + "}" if labels else ""
