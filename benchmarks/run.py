"""Measures the figures one after the other and prints one line each: `make bench`, `make bench ARGS="--only echo"`.

A figure function takes the bench and yields figures; adding one is writing it and naming it in FIGURES.
"""

import argparse
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import completion, echo, growth, idle, large, listing, reports, road, streams
from benchmarks.bench import Bench
from benchmarks.figures import Figure

FIGURES: list[Callable[[Bench], Iterator[Figure]]] = [
    echo.blocking_messages,
    road.spawn,
    road.settled_to_nudge,
    growth.much_stored,
    growth.crowded_lane,
    listing.pages,
    large.card_beside_large_sends,
    completion.settled_turns,
    streams.open_streams,
    streams.waiting_sends,
    streams.many_pieces,
    idle.idle_server,
    reports.index_and_search,
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="part of the name of the figure functions to run")
    parser.add_argument("--seconds", type=float, default=8, help="how long one load lasts (default 8)")
    parser.add_argument("--rounds", type=int, default=3, help="loads a server; the median counts (default 3)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="outrider-bench-") as folder:
        bench = Bench(Path(folder), options.seconds, options.rounds)
        for measure in FIGURES:
            if options.only in f"{measure.__module__}.{measure.__name__}":
                for figure in measure(bench):
                    print(figure, flush=True)


if __name__ == "__main__":
    main()
