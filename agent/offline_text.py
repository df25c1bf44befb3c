"""What the offline model reads: what a person asks, what a search found, which jobs have ended.

Plain text in, small facts out, by rules that stand here as tables. It writes nothing, and knows no model and no tool.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

from agent.notifications import HEADER

_MAX_DESCRIPTION = 80
_MAX_WORDS = 8
_LEAST_PROSE = 80


def _rule(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.DOTALL)


_IT = r"(?:(?:please\s+)?(?:do|run|have)\s+(?:it|this|that|these|them|all|everything)\s+)?"
BACKGROUND = _rule(rf"[\s,;:.–—-]*\b{_IT}in\s+(?:the\s+)?background\b")
SET_OFF = _rule(rf"[,;:.–—]\s*{_IT}in\s+(?:the\s+)?background\W*$|^\W*in\s+(?:the\s+)?background\b")
SMALL_TALK = _rule(
    r"(?:hi|hello|hey|good (?:morning|afternoon|evening)|thanks|thank you|ok|okay|bye|help|"
    r"who are you|what are you|what can you do|what is this)"
    r"(?:[\s,]+(?:there|you|again|all|everyone|outrider|so much|very much|a lot|please|for me))*[\s.!?]*"
)
POLITE = _rule(
    r"(?:(?:please|ok|okay|now|and|hey|hi|hello|let's|(?:can|could|would|will) you|"
    r"i(?: want|'d like| would like| need) you to)\b[\s,]*)+"
)
RESEARCH = _rule(
    r"(?:look(?:ing)? into|(?:have|take) a look at|research|compare|investigate|study|examine|explore|dig into|"
    r"read up on|survey|analy[sz]e|find out(?: more)?(?: about)?|report on|"
    r"write (?:me )?(?:an? )?(?:short |brief )?reports? (?:on|about))\b[\s:]*"
)
LEADING_CONTEXT = _rule(rf"((?:in|for|on|under|within)\s[^,.;:]{{1,60}}),\s+(?={POLITE.pattern}|{RESEARCH.pattern})")
QUESTION = _rule(r"(?:what|why|how|when|where|who|which|whose|is|are|was|were|do|does|did|has|have|should)\b")
LIST_INTRO = _rule(
    r"(?:(?:each|all|every one) of )?(?:these|those|the following|the|some|\w+)?\s*(?:\w+\s+)?"
    r"\b(?:things?|topics?|subjects?|questions?|points?|following|these|those|differences? between)\s*:?\s+"
)
AFTERTHOUGHT = _rule(
    r"(?:,?\s+(?:and|then|and then))\s+(?:please\s+)?"
    r"(?:tell|let|brief|report|write|give|send|summari[sz]e|come back|notify|show|cite|quote)\b.*$"
)
FOR_ME = _rule(r"[\s,]*\b(?:please|for (?:me|us)|thanks|thank you)\W*$")
COMPARED = _rule(r"\s+(?:with|to|against)\s+")
SEPARATOR = _rule(r"\s*,\s*(?:(?:and|or|&|versus|vs)\s+)?|\s+(?:and|&|versus|vs)\s+")
BULLET = _rule(r"\s*(?:[-*•]|\d+[.)])\s+")
CONTEXT = _rule(r"(.+?)\s+((?:in|for|on|under|within|inside|across)\s+.+)")
SENTENCE_END = re.compile(r"(?<=[\w)\"'”`*][.!?…])\s+(?=[^a-z])")
PAIRS_OF_ONE = _rule(
    r"\b(pros|advantages|benefits|strengths|costs|read|reads|research|trial|do's)( and )"
    r"(cons|disadvantages|drawbacks|risks|weaknesses|benefits|write|writes|development|error|don'ts)\b"
)
ANGLES = ("cost", "errors", "crash", "why")
STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
        a about all also an and any are as at be been between but by can could did do does each find for from give had
        has have how i if in into is it its let look looking may me more much my no not of on one or our out over please
        so some such than that the their them then there these they this those through to under up us use using very vs
        was we were what when where which who why will with within would you your
        brief compare describe examine explain explore good investigate knowledge question report reports research said
        say says search short source sources store study summarise summarize tell thing things write
        """,
    )
)


@dataclass(frozen=True)
class Ask:
    """What a person wants: `kind` is `talk`, `send` or `question`; `subjects` are sent out, and `also` goes along."""

    kind: str
    text: str
    subjects: tuple[str, ...] = ()
    also: str = ""
    background: bool = False


def read_ask(text: str) -> Ask:
    """Sorts one message of a person's. What no rule takes for talk or an errand is a question."""
    text = text.strip()
    if not text or SMALL_TALK.fullmatch(text):
        return Ask("talk", text)
    background = BACKGROUND.search(text) is not None
    body = _drop(POLITE, FOR_ME.sub("", BACKGROUND.sub("", text)).strip(" \t\n,;:"))
    context = LEADING_CONTEXT.match(body)
    body = _drop(POLITE, body[context.end() :] if context else body)
    errand = RESEARCH.match(body)
    if background and not errand and QUESTION.match(body) and not SET_OFF.search(text):
        return Ask("question", text)  # "what happens in the background?" speaks about one, and asks for none
    if not (errand or background) or not body:
        return Ask("question", text)
    if not errand:
        return Ask("send", text, (body.rstrip(" .!?"),), background=background)
    rest = body[errand.end() :]
    rest = COMPARED.sub(", ", rest) if errand[0].lower().startswith("compare") else rest
    subjects, also = _subjects(rest, context[1] if context else "")
    return Ask("send", text, subjects, also, background) if subjects else Ask("question", text)


def _drop(rule: re.Pattern[str], text: str) -> str:
    found = rule.match(text)
    return text[found.end() :] if found else text


def _subjects(rest: str, context: str) -> tuple[tuple[str, ...], str]:
    """The things of a list, each with what was said of all of them, and what was said after the list."""
    rest = re.sub(r"\bvs\.", "vs", rest)
    lines = [_drop(BULLET, line) for line in rest.splitlines() if BULLET.match(line)]
    if lines:
        return _with_context(lines, context), ""
    first, *others = SENTENCE_END.split(rest.strip(), maxsplit=1)
    listed = AFTERTHOUGHT.sub("", _drop(LIST_INTRO, first))
    if ";" in listed:
        items = re.split(r"\s*;\s*(?:and\s+)?", listed)
    else:
        whole = PAIRS_OF_ONE.sub(lambda pair: f"{pair[1]}\0{pair[3]}", listed)
        items = [item.replace("\0", " and ") for item in SEPARATOR.split(whole)]
    return _with_context(items, context), others[0].strip() if others else ""


def _with_context(items: list[str], context: str) -> tuple[str, ...]:
    items = list(dict.fromkeys(bare for item in items if (bare := item.strip(" \t\n.!?,;:\"'“”"))))
    last = CONTEXT.fullmatch(items[-1]) if len(items) > 1 else None
    # "A, B and C in D" is about D throughout; where an earlier one has a place of its own, each keeps its own.
    if last and not context and not any(CONTEXT.fullmatch(item) for item in items[:-1]):
        items, context = [*items[:-1], last[1]], last[2]
    return tuple(f"{item} {context[:1].lower()}{context[1:]}".strip() for item in items)


def description_of(subject: str) -> str:
    """A subject as the one line that stands on a job's card."""
    line = " ".join(subject.split())
    return line if len(line) <= _MAX_DESCRIPTION else line[: _MAX_DESCRIPTION - 1] + "…"


def content_words(text: str) -> list[str]:
    """The words worth searching for, in order, at most eight; all words where none of them is."""
    words = [bare for word in re.split(r"[\s,;:!?()\"“”<>\[\]{}]+", text) if (bare := word.strip(".'‘’`*_"))]
    told = list(dict.fromkeys(word for word in words if word.lower() not in STOP_WORDS))
    return (told or words)[:_MAX_WORDS]


def subject_of(task: str) -> str:
    """What a worker's task is about, in the words of its first sentence."""
    return (
        description_of(_drop(RESEARCH, _drop(POLITE, SENTENCE_END.split(task.strip(), maxsplit=1)[0])).rstrip(" .?!"))
        or "this task"
    )


def queries_for(task: str) -> list[str]:
    """One or two searches for a worker's task: its first sentence's words, then only the first two of them."""
    words = content_words(subject_of(task)) or content_words(task)
    return [" ".join(words) or task.strip(), *([" ".join(words[:2])] if len(words) > 2 else [])]


def further_queries(query: str) -> list[str]:
    """The same from other angles: a search brings one passage of each document, so another question brings another."""
    return [f"{query} {angle}" for angle in ANGLES]


@dataclass(frozen=True)
class Hit:
    """One passage that a search brought: its snippet word for word, without marks of headings, and where it is from."""

    heading: str
    origin: str
    snippet: str


_ENTRY = re.compile(r"^\[\d+\]\s+(.*)$", re.MULTILINE)
_HEADING_MARK = re.compile(r"^\s*#{1,6}\s+", re.MULTILINE)  # a snippet on one line would all be the heading's
_ORIGIN = re.compile(r"\s*\((source\s.*)\)\s*$")
_FRAME = re.compile(
    r"\n\s*\n[^\n]*(?:reference|material|instructions|open_report|memory_recall)[^\n]*\Z|\n</[\w-]+>\s*\Z"
)


def read_hits(result: str) -> list[Hit]:
    """The numbered entries of a search's result that hold prose, the README's last; none where it holds none."""
    titles = list(_ENTRY.finditer(result))
    ends = [title.start() for title in titles[1:]]
    hits = []
    for title, end in zip_longest(titles, ends):
        snippet = result[title.end() : end]
        snippet = _HEADING_MARK.sub("", snippet if end is not None else _FRAME.sub("", snippet.rstrip()))
        origin = _ORIGIN.search(title[1])
        heading = title[1][: origin.start()] if origin else title[1]
        source = origin[1].removeprefix("source").strip() if origin else ""
        heading, source, snippet = (unescape(text.strip()) for text in (heading, source, snippet))
        prose = plain(snippet)
        hit = Hit(heading, source, prose)
        # Of a command block or a table nothing is left to quote; what stands around the README's is about commands.
        if prose == snippet or (len(prose) >= _LEAST_PROSE and not is_way_in(hit)):
            hits.append(hit)
    return sorted(hits, key=is_way_in)


_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_LOOKS_LIKE_CODE = re.compile(r"[=(){}\[\];$\\]|--\w")
_TABLE = re.compile(r"\|.*\|(?=[^|]*\Z)", re.DOTALL)
_CELLS = 4  # so many bars make a table, of which a passage shows a piece without its head


def plain(text: str) -> str:
    """The prose of a Markdown passage that may begin and end anywhere: no code blocks, tables, links or emphasis."""
    if text.count("```") % 2 and _begins_in_code(text.partition("```")[0]):
        text = f"``` {text}"
    text = _CODE.sub(" … ", text)
    text = _TABLE.sub(" … ", text) if text.count("|") >= _CELLS else text
    text = re.sub(r"!?\[([^\]]*)\]\([^)\s]*\)", r"\1", text)
    text = re.sub(r"(\*\*|__)(?=\S)(.+?)(?<=\S)\1", r"\2", text)
    text = re.sub(r"(?m)^\s*>\s?", "", text)
    return re.sub(r"[^\S\n]+", " ", re.sub(r"…(?:\s*…)+", "…", text)).strip() if text.strip(" …\n") else ""


def _begins_in_code(text: str) -> bool:
    """Whether what stands before a fence is the end of a code block and not the way to its beginning."""
    return text.startswith("…") and len(_LOOKS_LIKE_CODE.findall(text)) * 40 > len(text)


def is_about(hit: Hit, query: str) -> bool:
    """Whether a passage holds at least half of the words, or such as begin alike.

    A search is content with any one of them, and that may be the least of them.
    """
    text = f"{hit.heading} {hit.snippet}".lower()
    begins = [word[:5] for word in re.findall(r"\w{3,}", query.lower())]
    return 2 * sum(begin in text for begin in begins) >= len(begins)


def is_way_in(hit: Hit) -> bool:
    """Whether it is from the README: the pages that it leads to say more."""
    return hit.heading.startswith("README")


def same_passage(one: Hit, other: Hit) -> bool:
    """Whether two snippets are windows of one passage, cut a little differently."""
    shorter, longer = sorted((one.snippet, other.snippet), key=len)
    third = len(shorter) // 3
    return shorter[third : len(shorter) - third] in longer


def found_nothing(result: str) -> bool:
    """Whether the search says that there is nothing, which is another thing than a search that failed."""
    return "nothing found" in result.lower()


@dataclass(frozen=True)
class EndedJob:
    """One notification block. `reason` is why it failed or who canceled it; `result` is what is shown of its report."""

    job_id: str
    description: str
    status: str
    reason: str
    result: str
    has_report: bool
    partial: bool
    whole_report: bool


_BLOCK = re.compile(r"<task-notification>(.*?)</task-notification>", re.DOTALL)
_MORE = re.compile(r"<more-jobs[^>]*>(.*?)</more-jobs>", re.DOTALL)
_STILL_OUT = re.compile(r"^.*\bstill (?:out|running|queued|at work)\b.*$", re.MULTILINE | re.IGNORECASE)


def is_notification(text: str) -> bool:
    """Whether a message of the user's role is the system's, telling of ended jobs.

    A person can write what it begins with, but none of its tags: `harmless` has made those text.
    """
    return text.startswith(HEADER) and (_BLOCK.search(text) is not None or _MORE.search(text) is not None)


def read_jobs(text: str) -> list[EndedJob]:
    """The ended jobs that a notification tells of, in its order."""
    return [_job(block[1]) for block in _BLOCK.finditer(text)]


def read_remarks(text: str) -> list[str]:
    """What a notification says beside its blocks: further jobs that had no room, and how many are still out."""
    beside = _BLOCK.sub("", text)
    more = [line for found in _MORE.finditer(beside) for line in found[1].splitlines()]
    return [unescape(line.strip()) for line in [*more, *_STILL_OUT.findall(_MORE.sub("", beside))] if line.strip()]


def _job(block: str) -> EndedJob:
    texts, attributes = dict(_fields(block)), dict(_tags(block))
    code = re.search(r'code="([^"]+)"', attributes.get("reason", ""))
    canceled_by = re.search(r'canceled-by="([^"]+)"', attributes.get("reason", ""))
    said = [f"`{code[1]}`" if code else "", f"by the {canceled_by[1]}" if canceled_by else texts.get("reason", "")]
    return EndedJob(
        texts.get("job-id", ""),
        texts.get("description", "") or texts.get("job-id", "a job"),
        texts.get("status", "ended"),
        " ".join(part for part in said if part),
        texts.get("result", ""),
        "result" in attributes,
        'partial="true"' in attributes.get("result", ""),
        "full-report" in texts,
    )


def _fields(block: str) -> Iterator[tuple[str, str]]:
    for found in re.finditer(r"<([a-z-]+)((?:\s[^<>]*)?)>(.*?)</\1>", block, re.DOTALL):
        yield found[1], unescape(found[3].strip())


def _tags(block: str) -> Iterator[tuple[str, str]]:
    for found in re.finditer(r"<([a-z-]+)(\s[^<>]*)>", block):
        yield found[1], unescape(found[2])


def unescape(text: str) -> str:
    """Undoes what notifications and search results do to text, in the order that leaves an escaped escape alone."""
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
