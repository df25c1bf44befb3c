"""Incognito: what is said there is sealed in its session, told in it, and in no other place that anybody reads or keeps."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agent import sdk
from agent.on_behalf import on_behalf_of
from tests.cases.stories import calling, events_of, job, news_in, told_in, turns_by_outrider, worker
from tests.lifecycle.looking import places, rows
from tests.push.hooks import hook
from tests.support.inside import Inside, Ticking, openai_model
from tests.support.receiver import Receiver
from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel
from tests.support.server import Server, answer_of
from tests.support.serving import Serving
from web.cli import app

SECRET, OPEN = "zxsecretincognito91", "zxopenordinary92"
# Where the secret's words may stand: in cells that are sealed, and are the session's own.
OWN = {
    *("checkpoints.content", "results.artifacts", "messages.text", "messages.content"),
    *("jobs.prompt", "jobs.description", "jobs.detail", "tasks.detail", "fragments.content"),
}
SENDER = '[subagents.sender]\ndescription = "Sends."\nprompt = "Send out."\ntools = ["task"]\n'
DAY_S = 24 * 3600


@pytest.fixture(scope="module")
def server(shared_model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for the file, in which jobs may send jobs out."""
    env = {"OUTRIDER_MAX_DEPTH": "2", "OUTRIDER_WEBHOOK_ALLOW": "127.0.0.1", "OUTRIDER_PROFILES": "chat,echo"}
    with Serving(tmp_path_factory.mktemp("incognito"), shared_model.env | env, SENDER) as serving:
        yield serving()


@pytest.fixture
def inside(shared_model: ScriptedModel, tmp_path: Path) -> Iterator[Inside]:
    outrider = Inside(tmp_path / "data", openai_model(shared_model.base_url), Ticking(), profiles="chat,echo").start()
    yield outrider
    outrider.close()


def opened(server: Server, session: str) -> str:
    """An incognito session."""
    made = server.post("/api/sessions", id=session, incognito=True)
    assert (made["id"], made["incognito"], made["title"]) == (session, True, "")
    return session


def ended(server: Server, job_id: str) -> dict[str, Any]:
    """The job once its report has been handled: what could be indexed is."""
    waits = "select ready_at from deliveries where job_id = :id and ready_at is not null"
    server.wait(lambda: rows(server.data, waits, id=job_id))
    return server.job(job_id)


def test_it_is_said_when_a_session_is_made_and_holds_for_good(server: Server) -> None:
    opened(server, "for-good")
    assert server.http.post("/api/sessions", json={"id": "for-good", "incognito": False}).status_code == 409
    assert server.post("/api/sessions", id="for-good")["incognito"] is True
    server.post("/api/sessions", id="ordinary")
    assert server.http.post("/api/sessions", json={"id": "ordinary", "incognito": True}).status_code == 409
    assert server.get("/api/sessions/ordinary")["incognito"] is False


def test_f007_s29_every_kind_of_job_of_an_incognito_session_leaves_its_words_there_alone(
    server: Server, model: ScriptedModel
) -> None:
    """A job by the model's tool, one that it sends out itself, one over /api, and an ordinary one beside them.

    The secret is in what the user says, in prompts, in reports and in an error. A scan of all files and all opened cells
    finds it in the session's own sealed cells; the ordinary session's word is found in the index by the same scan.
    """
    session = opened(server, "s29")
    one = job(f"one {SECRET}", "sender")
    nested = job(f"below {SECRET}") | {"run_in_background": True}
    model.rules(
        [
            Rule(last_user=f"^go {SECRET}$", tool_calls=[calling("task", **one, run_in_background=True)]),
            Rule(last_tool=r"\(sent out\)", anywhere=f"go {SECRET}", tool_offered="stop_task", text="Sent."),
            Rule(last_user=f"^one {SECRET}$", tool_calls=[calling("task", **nested)]),
            Rule(last_tool="sent out", anywhere=f"one {SECRET}", text=f"Report {SECRET}, whole."),
            worker(f"below {SECRET}", f"Nested {SECRET}."),
            worker(f"api {SECRET}", f"From a program {SECRET}."),
            worker("fails", f"refused: {SECRET}", status=400),
            worker("ordinary", f"The report of an ordinary job: {OPEN}."),
        ]
    )
    server.ask(session, f"go {SECRET}")
    by_program = server.spawn(session, f"api {SECRET}", f"described {SECRET}")
    fails = server.spawn(session, "fails", "described")
    server.post("/api/sessions", id="s29-ordinary")
    ordinary = server.spawn("s29-ordinary", "ordinary", "an ordinary job")
    server.wait(lambda: len(server.jobs(session)) == 4)
    jobs = [ended(server, job["id"]) for job in server.jobs(session)]
    assert all(job["incognito"] and not job["indexed"] and job["excerpt"] == "" for job in jobs)
    assert ended(server, ordinary["id"])["indexed"]

    assert {job["status"] for job in jobs if job["id"] != fails["id"]} == {"completed"}
    assert server.job(by_program["id"])["report"] == f"From a program {SECRET}."
    listed = server.get("/api/background", limit=200)["jobs"]
    shown = json.dumps([listed, server.get("/api/sessions"), server.get("/api/deliveries", limit=200)])
    shown += json.dumps(events_of(server, session)) + json.dumps(server.get(f"/api/background/{fails['id']}/story"))
    shown += json.dumps(server.get("/api/knowledge/search", q=SECRET)) + json.dumps(server.rpc("ListTasks", {}))
    shown += server.http.get("/metrics").text + server.log()
    assert server.get(f"/api/batches/{by_program['batch_id']}")["joins"] == []
    assert SECRET not in shown
    assert {job["description"] for job in listed if job["incognito"]} == {""}
    assert turns_by_outrider(server, session) == []

    assert set(places(server.data, SECRET)) <= OWN
    found = places(server.data, OPEN)
    assert "file knowledge.db" in found or "file knowledge.db-wal" in found


def test_s08_f108_it_wakes_nobody_and_is_told_with_its_sessions_next_turn_as_a_whole(
    server: Server, model: ScriptedModel
) -> None:
    """S63: what the block names works: open_report reads the rest in this session, and memory_recall is not named."""
    session = opened(server, "s08")
    long = f"Summary: short. {SECRET}\n\n" + "A sentence that fills the report. " * 200
    model.rules([worker("quiet", long)])
    private = ended(server, server.spawn(session, "quiet")["id"])
    assert private["delivery"]["state"] == "pending" and "incognito" in private["delivery"]["last_error"]
    model.rules(
        [
            Rule(last_user="^hello$", tool_calls=[calling("open_report", job_id=private["id"])]),
            Rule(last_tool="Report of", text="I have read it."),
        ]
    )
    assert server.ask(session, "hello") == "I have read it."
    (block,) = news_in(told_in(model, private["id"])[0])
    assert SECRET in block["result"] and "open_report" in block["full-report"]
    assert "memory_recall" not in block["full-report"]
    assert SECRET in model.requests()[-1].text.rpartition("Report of")[2]
    assert server.job(private["id"])["notified"] and turns_by_outrider(server, session) == []


def test_an_incognito_job_of_an_ordinary_session_is_told_there_by_its_id_and_read_by_its_user_alone(
    server: Server, model: ScriptedModel
) -> None:
    """What is said in an ordinary session is remembered, so nothing of such a report is said in it."""
    model.rules([worker("on the quiet", f"It is {SECRET}.")])
    server.post("/api/sessions", id="beside")
    sent = server.spawn("beside", "on the quiet", f"about {SECRET}", incognito=True)
    private = ended(server, sent["id"])
    model.rules(
        [
            Rule(
                last_user="^what is new$",
                tool_calls=[
                    calling("open_report", job_id=private["id"]),
                    calling("background_status", job_id=private["id"]),
                ],
            ),
            Rule(last_tool="", text="Done."),
        ]
    )
    assert server.ask("beside", "what is new") == "Done."
    said = "\n".join(asked.text for asked in model.requests())
    assert private["id"] in said and SECRET not in said and "its user alone reads its report" in said
    assert server.job(private["id"])["report"] == f"It is {SECRET}." and server.job(private["id"])["notified"]
    assert turns_by_outrider(server, "beside") == []

    model.rules(
        [
            Rule(last_user="^elsewhere$", tool_calls=[calling("background_status", job_id=private["id"])]),
            Rule(last_tool="There is no such job.", text="No."),
        ]
    )
    assert server.ask("another", "elsewhere") == "No."


def test_the_same_key_with_and_without_incognito_is_not_the_same_job(server: Server) -> None:
    server.post("/api/sessions", id="keyed")
    first = server.spawn("keyed", "x", key="incognito-key", incognito=True)
    assert server.spawn("keyed", "x", key="incognito-key", incognito=True)["id"] == first["id"]
    again = {"session": "keyed", "prompt": "x", "description": "a job", "key": "incognito-key"}
    assert server.http.post("/api/background", json=again).status_code == 409


def test_there_is_no_second_copy_and_nobody_else_reads_it(server: Server, model: ScriptedModel) -> None:
    session = opened(server, "no-copy")
    server.ask(session, "hello")
    path = f"/api/sessions/{session}"
    for refused in (
        server.http.get(f"{path}/export"),
        server.http.post(f"{path}/copy", json={}),
        server.http.post(f"{path}/shares", json={}),
    ):
        assert refused.status_code == 409 and "incognito" in refused.json()["error"]["message"]


def test_tasks_are_listed_where_their_context_is_named_and_a_webhook_has_states_without_words(
    server: Server, model: ScriptedModel
) -> None:
    session = opened(server, "wire")
    with Receiver() as receiver:
        sent = server.say(session, f"{SECRET} hello", skill="echo")
        server.ended(sent)
        message = {"messageId": "w-1", "contextId": session, "role": "ROLE_USER", "parts": [{"text": SECRET}]}
        message["metadata"] = {"skill": "echo"}
        params = {"message": message, "configuration": {"taskPushNotificationConfig": hook(receiver)}}
        task = server.rpc("SendMessage", params)["result"]["task"]
        assert answer_of(task) == SECRET
        receiver.wait_for("COMPLETED")
        bodies = [json.dumps(received.event) for received in receiver.wait(1)]
    assert any("TASK_STATE_COMPLETED" in body for body in bodies) and any("artifactUpdate" in body for body in bodies)
    assert not any(SECRET in body for body in bodies) and all(task["id"] in body for body in bodies)
    everywhere = server.rpc("ListTasks", {})["result"]["tasks"]
    named = server.rpc("ListTasks", {"contextId": session})["result"]["tasks"]
    assert {one["contextId"] for one in everywhere}.isdisjoint({session}) and len(named) == 2


def test_pieces_of_an_answer_come_to_who_has_named_the_session(server: Server, model: ScriptedModel) -> None:
    session = opened(server, "pieces")
    model.rules([{"last_user": "speak", "text": f"Words and {SECRET}.", "gate": "speak"}])

    def heard(**query: str) -> str:
        with server.http.stream("GET", "/api/events", params=query) as stream:
            lines = stream.iter_lines()
            next(lines)
            task = server.say(session, "speak")
            model.open("speak")
            said = []
            for line in lines:
                said.append(line)
                if line.startswith("data: ") and task in line and '"state": "completed"' in line:
                    return "\n".join(said)
        return ""

    assert SECRET in heard(session=session)
    assert SECRET not in heard()


def test_the_command_line_begins_one_and_says_how_its_jobs_are_heard_of(server: Server, model: ScriptedModel) -> None:
    sends = calling("task", **job("cli work"), run_in_background=True)
    model.rules(
        [
            Rule(last_user="^cli go$", tool_calls=[sends]),
            Rule(last_tool=r"sent out[\s\S]*with the user's next message", anywhere="cli go", text="It is out."),
            worker("cli work", "Done."),
        ]
    )
    ran = CliRunner().invoke(app, ["chat", "--incognito", "--session", "by-cli", "--url", server.url, "cli go"])
    assert ran.exit_code == 0 and "It is out." in ran.stdout, ran.output
    (sent,) = server.jobs("by-cli")
    assert "incognito" in ran.stderr and f"outrider job {sent['id']} --report" in ran.stderr
    assert sent["incognito"] and sent["delivery"]["state"] == "pending"
    for command in (["jobs"], ["session", "list"]):
        shown = CliRunner().invoke(app, [*command, "--url", server.url]).stdout
        assert "(incognito)" in shown and "CLI WORK" not in shown and "cli go" not in shown
    refused = CliRunner().invoke(app, ["chat", "--incognito", "--session", "ordinary", "--url", server.url, "hello"])
    assert refused.exit_code == 1 and "incognito" in refused.stderr


def test_f144_programs_and_plugins_send_out_incognito_too_and_in_an_incognito_turn_nothing_else(
    inside: Inside, model: ScriptedModel
) -> None:
    model.rules([worker("by a program", f"It is {SECRET}.")])

    async def deliverable() -> str:
        return f"It is {SECRET}."

    async def by_a_plugin_in_an_incognito_turn() -> list[str]:
        with on_behalf_of("local", incognito=True):
            session = await sdk.open_session()
            ordinary = await sdk.open_session("sdk-ordinary")
            return [await sdk.spawn_background(session=one, prompt="by a program") for one in (session, ordinary)]

    async def by_a_program() -> list[str]:
        session = await sdk.open_session("sdk-quiet", incognito=True)
        await sdk.open_session("sdk-ordinary")
        here = await sdk.spawn_background(session=session, prompt="by a program")
        deterministic = await sdk.spawn_work(deliverable(), session=session)
        return [
            here,
            deterministic,
            await sdk.spawn_background(session="sdk-ordinary", prompt="by a program", incognito=True),
        ]

    sent = [*inside.call(by_a_program()), *inside.call(by_a_plugin_in_an_incognito_turn())]
    for one in sent:
        inside.wait(lambda one=one: inside.job(one)["delivery"]["state"] == "pending")
        found = inside.call(sdk.background_status(one))
        assert found and found.report == f"It is {SECRET}." and found.job.incognito and not found.job.indexed
    assert inside.get("/api/sessions/sdk-ordinary")["incognito"] is False
    told = inside.ask("sdk-quiet", "what is new")
    assert told and {job["notified"] for job in inside.jobs("sdk-quiet")} == {True}
    assert set(places(inside.data, SECRET)) <= OWN


def test_all_of_it_goes_a_day_after_the_last_word_and_what_is_out_is_waited_for(
    inside: Inside, model: ScriptedModel
) -> None:
    opened(inside, "left")
    opened(inside, "works")
    inside.post("/api/sessions", id="stays")
    model.rules([worker("slow", f"Late {SECRET}.", gate="slow"), worker("quick", f"Soon {SECRET}.")])
    for session in ("left", "works", "stays"):
        inside.ask(session, f"hello {SECRET}")
    quick = inside.spawn("left", "quick")["id"]
    inside.wait(lambda: inside.job(quick)["status"] == "completed")
    slow = inside.spawn("works", "slow")["id"]
    inside.wait(lambda: inside.job(slow)["status"] == "running")
    inside.pass_time(DAY_S + 60)
    inside.wait(lambda: inside.http.get("/api/sessions/left").status_code == 404)
    assert inside.http.get(f"/api/background/{quick}").status_code == 404
    assert inside.get("/api/sessions/stays")["id"] == "stays" and inside.job(slow)["status"] != "failed"
    model.open("slow")
