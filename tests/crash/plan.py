"""When servers are killed: as text that can be given again, made out of a number, and of what a calm run committed.

A plan is one kill for each life but the last: `after terminal.settle 3, 0.412s` dies after the third commit that
settles something, is started, lives 0.412 s, is started, and lives on. `beside another, 0.412s` does so beside a second
server on the same data, which lives all the while. With `stop 0.412s` it is asked to end itself, by SIGTERM, and so it
is with `stop after terminal.settle 3`.
"""

import random
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

# Commits that only time causes: their numbers mean nothing. Kills at a moment of the clock hit them too.
BY_THE_CLOCK = {"worker.beat", "worker.sweep"}
AGAIN = 0.4  # how likely another kill follows
BESIDE = 0.2  # how likely another server works along
BESIDE_TEXT = "beside another"
MOST_KILLS = 3
EARLY = 2  # a recovery is short: its commits with these numbers are the likely ones
RECOVERY = 0.5  # of a calm story's time
STOPPED = 0.25  # how likely the server is asked to end itself, instead of being killed
STOP_TEXT = "stop "


@dataclass(frozen=True)
class Kill:
    """The end of one life: at a commit (`doom`, in the words of `fatal.py`), or after a time; by SIGTERM if `stop`."""

    doom: str = ""
    after_s: float | None = None
    stop: bool = False

    @classmethod
    def parse(cls, text: str) -> "Kill":
        """Raises `ValueError` for what is no kill."""
        moment, stop = text.removeprefix(STOP_TEXT), text.startswith(STOP_TEXT)
        if re.fullmatch(r"[\d.]+s", moment):
            return cls(after_s=float(moment[:-1]), stop=stop)
        if not re.fullmatch(r"(before|after) [\w.<>]+ \d+", moment):
            raise ValueError(f"no kill: {text!r}; there are 'before PLACE N', 'after PLACE N', '0.412s', 'stop 0.412s'")
        return cls(doom=moment, stop=stop)

    def __str__(self) -> str:
        return (STOP_TEXT if self.stop else "") + (self.doom or f"{self.after_s:.3f}s")


@dataclass(frozen=True)
class Plan:
    """The kills of one story, in order, and whether a second server works along."""

    kills: tuple[Kill, ...] = ()
    beside: bool = False

    @classmethod
    def parse(cls, text: str) -> "Plan":
        """Raises `ValueError` for what is no plan."""
        parts = [part.strip() for part in text.split(",") if part.strip()]
        kills = tuple(Kill.parse(part) for part in parts if part != BESIDE_TEXT)
        return cls(kills, beside=BESIDE_TEXT in parts)

    def __str__(self) -> str:
        return ", ".join([*([BESIDE_TEXT] if self.beside else []), *map(str, self.kills)])


@dataclass(frozen=True)
class Calm:
    """What a story does when nobody is killed: its moments, and how long it takes."""

    moments: tuple[str, ...]
    seconds: float

    @classmethod
    def of(cls, diary: Iterable[str], seconds: float) -> "Calm":
        """Out of the lines that `fatal.py` notes."""
        return cls(tuple(line for line in dict.fromkeys(diary) if line.split()[1] not in BY_THE_CLOCK), seconds)


def plans(calm: Calm, count: int, seed: int) -> list[Plan]:
    """`count` plans, the same for the same seed and calm. Every other one begins at a commit, each in its turn.

    Two calm runs differ by a commit or two; their plans then do not differ by more.
    """
    order = sorted(calm.moments, key=lambda moment: random.Random(f"{seed}:{moment}").random())
    return [_plan(random.Random(f"{seed}:{number}"), calm, order, number) for number in range(count)]


def _plan(rng: random.Random, calm: Calm, order: list[str], number: int) -> Plan:
    first = Kill(order[number // 2 % len(order)]) if number % 2 == 0 else _any_time(rng, calm.seconds)
    kills = [first]
    while len(kills) < MOST_KILLS and rng.random() < AGAIN:
        kills.append(_in_recovery(rng, calm) if rng.random() < 0.5 else _any_time(rng, calm.seconds * RECOVERY))
    kills = [replace(kill, stop=rng.random() < STOPPED) for kill in kills]
    return Plan(tuple(kills), beside=rng.random() < BESIDE)


def _any_time(rng: random.Random, seconds: float) -> Kill:
    return Kill(after_s=round(rng.uniform(0, seconds), 3))


def _in_recovery(rng: random.Random, calm: Calm) -> Kill:
    return Kill(rng.choice(sorted(moment for moment in calm.moments if int(moment.split()[2]) <= EARLY)))
