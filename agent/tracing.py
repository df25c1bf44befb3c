"""Traces: spans of what happens to a job, all in one trace that its id alone names, over processes and restarts.

It speaks OpenTelemetry's API and nothing else: without an SDK in the process, which is the operator's, nothing is
recorded. No attribute has a word of what was said. It is told of, and decides nothing.
"""

import hashlib
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, StatusCode, TraceFlags, Tracer
from pydantic_ai.messages import ModelResponse

MICROSECOND = 1_000  # of the nanoseconds that spans are told in


def _tracer() -> Tracer:
    return trace.get_tracer("outrider")  # asked each time: a provider may be set after we were imported


def trace_of(job_id: str) -> SpanContext:
    """The context that all spans of a job stand below: made of its id, so that every process makes the same."""
    digest = hashlib.sha256(f"outrider job {job_id}".encode()).digest()
    return SpanContext(
        trace_id=int.from_bytes(digest[:16], "big"),
        span_id=int.from_bytes(digest[16:24], "big"),
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )


def _below(job_id: str) -> Context:
    return trace.set_span_in_context(NonRecordingSpan(trace_of(job_id)))


@contextmanager
def of_jobs(name: str, job_ids: Sequence[str], **facts: Any) -> Iterator[Span]:
    """A span in the trace of the first job, and its like, linked to it, in the others'. Without jobs it is a trace of its own."""
    start = time.time_ns()
    first, others = (job_ids[0], job_ids[1:]) if job_ids else (None, ())
    given = {**facts, "job_id": first}
    context = _below(first) if first else None
    begun = _tracer().start_span(name, context, attributes=_named(given), start_time=start)
    recorded = begun.is_recording()
    try:
        with _current(begun):
            yield begun
    finally:
        links = [Link(begun.get_span_context())]
        for job_id in others if recorded else ():
            named = _named({**facts, "job_id": job_id})
            like = _tracer().start_span(name, _below(job_id), attributes=named, links=links, start_time=start)
            like.end(time.time_ns())


@contextmanager
def step(name: str, **facts: Any) -> Iterator[Span]:
    """A span below the one that is open here."""
    with _current(_tracer().start_span(name, attributes=_named(facts))) as begun:
        yield begun


def moment(name: str, job_id: str, at: int, **facts: Any) -> None:
    """A span without length, of something that was done at a time (microseconds) and is told now."""
    named = _named({**facts, "job_id": job_id})
    span = _tracer().start_span(name, _below(job_id), attributes=named, start_time=at * MICROSECOND)
    span.end(at * MICROSECOND)


def told_of_answer(span: Span, answer: ModelResponse) -> None:
    """Who gave it and what it cost, by the names that OpenTelemetry has for that."""
    facts = {
        "gen_ai.response.model": answer.model_name,
        "gen_ai.usage.input_tokens": answer.usage.input_tokens,
        "gen_ai.usage.output_tokens": answer.usage.output_tokens,
    }
    span.set_attributes({name: value for name, value in facts.items() if value is not None})


@contextmanager
def _current(span: Span) -> Iterator[Span]:
    """It ends with the block; one that is left by an exception says which kind, and none of its words."""
    with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        try:
            yield span
        except BaseException as error:
            span.set_status(StatusCode.ERROR, type(error).__name__)
            raise


def _named(facts: dict[str, Any]) -> dict[str, Any]:
    return {f"outrider.{name}": value for name, value in facts.items() if value is not None}
