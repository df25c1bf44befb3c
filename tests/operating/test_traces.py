"""What happens to a job is one OpenTelemetry trace, over restarts; without an SDK it is nothing, and no word of what was said is in it."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from agent import tracing
from background.database import wall_clock
from tests.cases.stories import briefing, calling, worker
from tests.support.inside import Inside, openai_model
from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel

SECRET = "the heron's nest"


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """What an operator's SDK is given."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_tracer", lambda: provider.get_tracer("outrider"))
    yield exporter
    provider.shutdown()


@pytest.fixture
def inside(tmp_path: Path, model: ScriptedModel) -> Iterator[Inside]:
    made = Inside(tmp_path / "data", openai_model(model.base_url), wall_clock, shutdown_grace_s=0).start()
    yield made
    made.close()


def in_trace_of(exported: InMemorySpanExporter, job_id: str) -> list[ReadableSpan]:
    wanted = tracing.trace_of(job_id).trace_id
    spans = [span for span in exported.get_finished_spans() if span.context and span.context.trace_id == wanted]
    return sorted(spans, key=lambda span: span.start_time or 0)


def names(spans: list[ReadableSpan]) -> list[str]:
    return [span.name for span in spans]


def test_a_job_is_one_trace_over_a_restart(
    inside: Inside, model: ScriptedModel, exported: InMemorySpanExporter
) -> None:
    """Given a job whose process stops in its second step; when the next goes on with it, that is the same trace."""
    model.rules(
        [
            Rule(last_user="^herons$", tool_calls=[calling("memory_recall", query=SECRET)]),
            Rule(last_tool="", until="on", anywhere="(?m)^herons$", hang_after=0, times=1),
            Rule(last_tool="", anywhere="(?m)^herons$", text=f"A report on {SECRET}."),
            briefing(f"Briefed on {SECRET}."),
        ]
    )
    session = inside.post("/api/sessions")["id"]
    job = inside.spawn(session, "herons", description=SECRET)["id"]
    model.wait_for(lambda asked: len(asked) >= 2)
    inside.restart()
    inside.wait(lambda: inside.job(job)["notified"])
    inside.wait(lambda: "briefing" in names(in_trace_of(exported, job)))
    spans = in_trace_of(exported, job)
    assert names(spans) == [
        "spawn",
        "dispatch",
        "run",
        "model call",
        "tool call",
        "model call",
        "run",
        "model call",
        "report",
        "nudge",
        "briefing",
        "model call",
    ]
    runs = [span for span in spans if span.name == "run"]
    assert [span.status.is_ok or span.status.is_unset for span in runs] == [False, True]
    below = {span.name for span in spans if span.parent and span.parent.span_id == tracing.trace_of(job).span_id}
    assert below == {"spawn", "dispatch", "run", "report", "nudge", "briefing"}
    assert [span.attributes["outrider.tool"] for span in spans if span.attributes and span.name == "tool call"] == [
        "memory_recall"
    ]
    answered = dict(spans[-1].attributes or {})
    assert answered["gen_ai.usage.input_tokens"] == 10 and answered["gen_ai.response.model"]
    assert not any(SECRET in span.to_json() for span in exported.get_finished_spans())


def test_what_is_told_of_several_is_in_the_trace_of_each(
    inside: Inside, model: ScriptedModel, exported: InMemorySpanExporter
) -> None:
    model.rules([worker("rooks"), worker("crows"), briefing()])
    session = inside.post("/api/sessions")["id"]
    asked = [{"prompt": prompt} for prompt in ("rooks", "crows")]
    jobs = [job["id"] for job in inside.post("/api/background", session=session, jobs=asked)["jobs"]]
    inside.wait(lambda: all("briefing" in names(in_trace_of(exported, job)) for job in jobs))
    for job in jobs:
        assert names(in_trace_of(exported, job)).count("nudge") == 1
    first, other = (
        next(span for span in in_trace_of(exported, job) if span.name == "briefing")
        for job in sorted(jobs, key=lambda job: names(in_trace_of(exported, job)).count("model call"), reverse=True)
    )
    assert first.context and [link.context for link in other.links] == [first.context] and not first.links


def test_without_an_sdk_it_costs_nothing_that_could_be_measured() -> None:
    """A thousand spans take less than the commit that any one of them stands beside, times ten."""
    began = time.perf_counter()
    for _ in range(1000):
        with tracing.of_jobs("run", ["bg-0123456789ab"]), tracing.step("model call") as span:
            assert not span.is_recording()
    assert time.perf_counter() - began < 1
