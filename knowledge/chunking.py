"""Where a text is cut for the index: at its Markdown headings, then at paragraphs, sentences, words.

Owns the sizes. Chunks are spans of the text and never change it; together they hold all of it, in order, and a
little twice, so that a sentence across a cut is whole in one of them.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

TARGET = 1200  # characters; a chunk is at most TARGET + LEAST
OVERLAP = 150  # characters that a chunk repeats of the one before it
LEAST = 200  # characters; what is shorter joins its neighbour

_SHORTEST_CUT = TARGET * 2 // 3  # a nearer break is passed over for a later, rougher one
_LONGEST_TITLE = 200
_BREAKS = (("\n\n",), ("\n",), (". ", "! ", "? ", "。", "！", "？"), (" ", "\t", "、", "，"))
_SPACE = re.compile(r"\s")
_MARK = re.compile(
    r"^ {0,3}(?:(?P<fence>`{3,}|~{3,})|(?P<level>#{1,6})[ \t]+(?P<title>.*)|(?P<under>=+|-+)[ \t\r]*$)", re.M
)


@dataclass(frozen=True, slots=True)
class Chunk:
    """`text[start:end]`, and the headings that it stands under, outermost first, joined by ` › `."""

    start: int
    end: int
    headings: str

    def __len__(self) -> int:
        return self.end - self.start


def chunks(text: str) -> list[Chunk]:
    """The chunks of a text in order; of an empty text, one empty chunk, so that its heading can be found."""
    sections = list(_sections(text))
    if len(sections) > 1 and len(sections[-1]) < LEAST:
        last = sections.pop()
        sections.append(replace(sections.pop(), end=last.end))
    return [piece for section in sections for piece in _cut(text, section)]


def title(text: str) -> str:
    """The first heading of a text; empty where it has none."""
    return next((title for _, _, title in _headings(text) if title), "")


def _sections(text: str) -> Iterator[Chunk]:
    """Spans from heading to heading, but for headings that come too soon after the last: they go on with its span.

    So a short section joins the next one, under whose headings it then stands. Only the last may be short.
    """
    start, above = 0, []
    for at, level, title in _headings(text):
        if at - start >= LEAST:
            yield Chunk(start, at, _path(above))
            start = at
        above = [one for one in above if one[0] < level] + [(level, title)]
    yield Chunk(start, len(text), _path(above))


def _headings(text: str) -> Iterator[tuple[int, int, str]]:
    """Position, level and title of each heading, in both of Markdown's spellings, outside fenced code."""
    fence = ""
    for mark in _MARK.finditer(text):
        if mark["fence"]:
            fence = _fence_after(fence, mark["fence"])
        elif fence:
            continue
        elif mark["level"]:
            yield mark.start(), len(mark["level"]), _title(mark["title"].rstrip().rstrip("#"))
        else:
            line = text.rfind("\n", 0, max(mark.start() - 1, 0)) + 1
            if title := _title(text[line : mark.start()]):
                yield line, 1 if mark["under"][0] == "=" else 2, title


def _fence_after(open_fence: str, fence: str) -> str:
    """The fence that is open after this one was met: only a fence at least as long, of its kind, closes one."""
    if not open_fence:
        return fence
    return "" if fence.startswith(open_fence) else open_fence


def _title(line: str) -> str:
    return line.strip()[:_LONGEST_TITLE]


def _path(above: Iterable[tuple[int, str]]) -> str:
    return " › ".join(title for _, title in above)


def _cut(text: str, section: Chunk) -> Iterator[Chunk]:
    """A section in pieces of about TARGET. What would leave less than LEAST for a last piece stays with this one."""
    start = section.start
    while section.end - start > TARGET + LEAST:
        end = _break(text, start + _SHORTEST_CUT, start + TARGET)
        yield replace(section, start=start, end=end)
        start = _word_start(text, end - OVERLAP, end)
    yield replace(section, start=start)


def _break(text: str, low: int, high: int) -> int:
    """Where to cut within `low..high`: behind the last break of the best kind that there is, or at `high`."""
    for kind in _BREAKS:
        ends = [at + len(sign) for sign in kind if (at := text.rfind(sign, low, high)) >= 0]
        if ends:
            return max(ends)
    return high


def _word_start(text: str, low: int, high: int) -> int:
    space = _SPACE.search(text, low, high)
    return space.end() if space else low
