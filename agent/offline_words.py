"""What the offline model writes: answers, reports and briefings, made of other people's sentences and a few of its own.

Every passage is quoted word for word and names its source. It judges nothing, and says so where nothing was found.
"""

import re

from agent.offline_text import (
    SENTENCE_END,
    EndedJob,
    Hit,
    found_nothing,
    is_about,
    is_way_in,
    read_hits,
    read_jobs,
    read_remarks,
    same_passage,
    subject_of,
)

_QUOTED_IN_ANSWER = 3
_QUOTED_IN_REPORT = 8
_GIST_CHARS = 420
_TOOL_CHARS = 600

CAN_DO = (
    "I can quote what the knowledge store holds, and send subagents out to search it: "
    "“Compare A, B and C, in the background”."
)
HELLO = (
    "Hello. This is Outrider's offline model: a script, not a language model, so that everything can be tried without "
    f"one. {CAN_DO}\n\n"
    "To use a real model set `OUTRIDER_MODEL`, for example `OUTRIDER_MODEL=openai:gpt-5-mini` together with "
    "`OPENAI_API_KEY`, and start Outrider again."
)
SIGNED = "*Written by the offline model, which quotes and does not interpret.*"


def answer(question: str, result: str) -> str:
    """The answer to a question: the passages that the search brought, or that it brought none."""
    hits = read_hits(result)
    if not hits:
        return f"{_no_passages(question, result)} {CAN_DO}"
    if re.search(r"\breports?\b", question, re.IGNORECASE):  # what the agent's own reports say comes first then
        hits = sorted(hits, key=lambda hit: "agent" not in hit.origin)
    quoted = "\n\n".join(f"{_quote(hit)}\n>\n> — {_cited(hit)}" for hit in hits[:_QUOTED_IN_ANSWER])
    return f"The knowledge store has this on it, quoted:\n\n{quoted}\n\n{SIGNED}"


def report(task: str, queries: list[str], found: list[str], further: list[str]) -> str:
    """A worker's report: summary, quoted passages, sources. Of `further` results only what is about the task counts."""
    subject = subject_of(task)
    more = [hit for result in further for hit in read_hits(result) if is_about(hit, queries[-1])]
    every = [hit for result in found for hit in read_hits(result)] + more
    hits = _distinct(sorted(every, key=is_way_in))[:_QUOTED_IN_REPORT]
    searched = " and ".join(f"“{query}”" for query in queries)
    if not hits:
        unclear = next((result for result in found if not found_nothing(result)), "Nothing found.")
        return (
            f"**Summary.** {_no_passages(subject, unclear)} So this report has no findings.\n\n"
            f"Searched the knowledge store for {searched}. {SIGNED}\n\n## The task\n\n{_as_quote(task)}"
        )
    number = {source: count for count, source in enumerate(dict.fromkeys(map(_cited, hits)), 1)}
    passages = "\n\n".join(f"{_quote(hit)}\n\nSource: [{number[_cited(hit)]}]" for hit in hits)
    listed = "\n".join(f"{count}. {source}" for source, count in number.items())
    return (
        f"**Summary.** On {subject}, the knowledge store has {_count(len(hits), 'passage')} from "
        f"{_count(len(number), 'source')}. The nearest says: {gist(hits[0].snippet)}\n\n"
        f"## Findings\n\n{passages}\n\n## Sources\n\n{listed}\n\nSearched for {searched}. {SIGNED}"
    )


def no_search(subject: str) -> str:
    """What is said where the search itself is not to be had."""
    return f"Nothing can be said on {subject}: this session has no `memory_recall` to search with. {SIGNED}"


def no_task() -> str:
    """What a worker reports that was given nothing to do."""
    return f"**Summary.** There was no task, so there is no report. {SIGNED}"


def sent_out(descriptions: list[str], result: str) -> str:
    """The end of a turn that sent jobs out: what went, and that nothing has come back yet."""
    ids = list(dict.fromkeys(re.findall(r"\bbg-[0-9a-f]{12}\b", result)))
    if len(ids) != len(descriptions):
        lead = f"{len(ids)} of {len(descriptions)} went out." if ids else "Nothing went out."
        return f"{lead} The tool said:\n\n{_as_quote(result[:_TOOL_CHARS])}"
    named = "; ".join(f"{description} ({job_id})" for description, job_id in zip(descriptions, ids, strict=True))
    return f"{_count(len(ids), 'job')} went out to the background: {named}. {_then(result)}"


def _then(result: str) -> str:
    if "This conversation is incognito" in result:
        return "There is no result yet; this chat is incognito, so I brief you when you speak next."
    return "There is no result yet; I will brief you."


def brought_back(result: str) -> str:
    """What subagents that ran inside the turn brought: their reports, as they are."""
    return f"The subagents are back.\n\n{result}"


def briefing(notifications: list[str]) -> str:
    """One section a job that has ended, with the gist of what it brought, or why it failed."""
    jobs = [job for text in notifications for job in read_jobs(text)]
    remarks = [f"- {remark}" for text in notifications for remark in read_remarks(text)]
    counts: dict[str, int] = {}
    for job in jobs:
        counts[job.status] = counts.get(job.status, 0) + 1
    tally = ", ".join(f"{count} {status}" for status, count in counts.items())
    lead = f"{_count(len(jobs), 'job')} {'has' if len(jobs) == 1 else 'have'} ended: {tally}." if jobs else ""
    parts = [lead, *map(_section, jobs), "\n".join(remarks), _where(jobs)]
    return "\n\n".join(part for part in parts if part)


def _section(job: EndedJob) -> str:
    because = f": {job.reason}" if job.reason else ""
    title = f"**{job.description}** — {job.status}{because}"
    if not job.result:
        return f"{title}\n\n{'There was no room here for its report.' if job.has_report else 'It left no report.'}"
    return f"{title}\n\n{'As far as it came: ' if job.partial else ''}{gist(job.result)}"


def _where(jobs: list[EndedJob]) -> str:
    if not any(job.has_report for job in jobs):
        return ""
    searchable = " Ask about them, and I search them." if any(job.whole_report for job in jobs) else ""
    return f"The whole reports can be opened from the jobs' cards.{searchable}"


def gist(text: str) -> str:
    """The first sentences of a text, its summary where it begins with one; cut at a sentence if it can be."""
    first, *_ = paragraphs = text.strip().split("\n\n")
    lines = (first if first.startswith("**Summary.**") else "\n".join(paragraphs)).splitlines()
    lines = [line for line in lines if not line.startswith(">")] or lines
    prose = " ".join(line for line in lines if not line.lstrip().startswith("#")) or " ".join(lines)
    prose = re.sub(r"^\W*summary\W+", "", " ".join(prose.split()), flags=re.IGNORECASE)
    taken = ""
    for sentence in SENTENCE_END.split(prose):
        if taken and len(taken) + len(sentence) >= _GIST_CHARS:
            break
        taken = f"{taken} {sentence}".strip()
    return taken if len(taken) <= _GIST_CHARS else taken[: _GIST_CHARS - 1].rsplit(" ", 1)[0] + "…"


def _distinct(hits: list[Hit]) -> list[Hit]:
    """The hits in order, each passage once."""
    distinct: list[Hit] = []
    for hit in hits:
        if not any(same_passage(hit, other) for other in distinct):
            distinct.append(hit)
    return distinct


def _no_passages(subject: str, result: str) -> str:
    if found_nothing(result):
        return f"Nothing was found in the knowledge store on {subject.rstrip(' .?!')}."
    said = " ".join(result.split())[:_TOOL_CHARS] or "nothing at all"
    return f"The search brought no passages; it said: {said}"


def _quote(hit: Hit) -> str:
    return _as_quote(hit.snippet or hit.heading)


def _as_quote(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def _cited(hit: Hit) -> str:
    return f"{hit.heading} ({hit.origin})" if hit.origin else hit.heading


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
