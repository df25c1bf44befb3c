"""The protocol's JavaScript client is asked, and answers."""

from tests.a2a import wire
from tests.a2a.javascript import JavaScriptClient
from tests.interrupts.words import PARKED, answer, asking, digest, ending, question
from tests.support.scripted import ScriptedModel
from tests.support.server import Server


def test_it_is_asked_in_a_blocking_send_and_its_answer_ends_the_task(server: Server, model: ScriptedModel) -> None:
    model.rules([asking("Which one?"), ending("The second it is.")])
    with JavaScriptClient(server.url) as client:
        parked = client.call("sendMessage", message=wire.message("go", "asker"))
        assert parked["status"]["state"] == PARKED and question(parked) == "Which one?"
        ended = client.call("sendMessage", message=answer(parked, "the second", digest(parked)))
    assert ended["id"] == parked["id"] and ended["status"]["state"] == wire.COMPLETED
    assert ended["artifacts"][0]["parts"][0]["text"] == "The second it is."


def test_its_stream_ends_with_the_question_and_a_second_one_brings_the_end(
    server: Server, model: ScriptedModel
) -> None:
    model.rules([asking("Which one?"), ending("The second it is.")])
    with JavaScriptClient(server.url) as client:
        *_, last = client.stream("sendMessageStream", message=wire.message("go", "asker"))
        assert last["statusUpdate"]["status"]["state"] == PARKED
        parked = client.call("getTask", id=last["statusUpdate"]["taskId"])
        first, *_, end = client.stream("sendMessageStream", message=answer(parked, "the second"))
    assert first["task"]["id"] == parked["id"]
    assert end["statusUpdate"]["status"]["state"] == wire.COMPLETED
