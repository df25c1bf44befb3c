"""Deliveries over hours, on a clock that the test moves: pauses, what is missed and then made up for, death and replay."""

from collections.abc import Callable

import httpx
import pytest
from pydantic import SecretStr

from background.limits import SECOND
from tests.push.hooks import WHOLE, deliveries, echo, hook, method, refused, states
from tests.support.clock import Clock
from tests.support.inside import Inside
from tests.support.receiver import Answer, LyingResolver, Receiver
from web import push, signatures

Make = Callable[..., Inside]


def heads(inside: Inside) -> list[dict[str, int]]:
    """The calls that wait for their time: the head of each webhook's lane."""
    return inside.rows("select tries, due_at from runs where kind = 'push' and state = 'queued' and tries > 0")


def until_it_pauses(inside: Inside, clock: Clock, tries: int) -> float:
    """Waits for the `tries`-th failure, and goes to the time of the next try. The pause, in seconds."""
    (head,) = inside.wait(lambda: [head for head in heads(inside) if head["tries"] == tries])
    seconds = (head["due_at"] - clock()) / SECOND
    inside.pass_time(seconds)
    return seconds


def both_have_failed(inside: Inside, tries: int) -> int:
    """Waits until the heads of two lanes have failed so often. The time at which both are due again."""
    inside.wait(lambda: [head["tries"] for head in heads(inside)] == [tries, tries])
    return max(head["due_at"] for head in heads(inside))


@pytest.mark.parametrize("restarted", [False, True])
def test_A90_a_receiver_that_was_down_for_five_minutes_gets_what_it_missed(
    inside: Make, clock: Clock, restarted: bool
) -> None:
    """F084: exactly that, in order, under names that are all different; also over a restart."""
    outrider, receiver = inside(), Receiver()
    tasks = [echo(outrider, hook(receiver), text) for text in ("one", "two")]
    began, tries = clock(), 1
    due = both_have_failed(outrider, tries)
    while due - began < 300 * SECOND:
        outrider.pass_time((due - clock()) / SECOND)
        tries += 1
        due = both_have_failed(outrider, tries)
    if restarted:
        outrider.restart()
    with receiver:
        outrider.pass_time((due - clock()) / SECOND)
        calls = receiver.wait(8)
        outrider.wait(lambda: [states(outrider, task) for task in tasks] == [["delivered"] * 4] * 2)
    for task in tasks:
        assert [call.told for call in calls if call.event[call.kind]["taskId"] == task] == WHOLE
    assert len({call.delivery for call in calls}) == len(calls) == 8
    assert {call.attempt for call in calls if call.told == "SUBMITTED"} == {tries + 1}


def test_a_call_is_tried_twelve_times_in_about_34_minutes_and_then_is_dead(inside: Make, clock: Clock) -> None:
    """F084, A90: the pauses double from one second, within a fifth; then it stops, and can be seen."""
    outrider = inside()
    with Receiver() as receiver:
        receiver.otherwise = 500
        task = echo(outrider, hook(receiver))
        pauses = [until_it_pauses(outrider, clock, tries) for tries in range(1, push.TRIES)]
        outrider.wait(lambda: states(outrider, task)[0] == "dead")
        first = [call for call in receiver.calls if call.told == "SUBMITTED"]
    for number, pause in enumerate(pauses):
        assert 0.8 * 2**number <= pause <= 1.2 * 2**number
    assert len(set(pauses)) == 11 and 0.8 * 2047 < sum(pauses) < 1.2 * 2047
    assert [call.attempt for call in first] == list(range(1, 13)) and len({call.delivery for call in first}) == 1
    dead = deliveries(outrider, task)[0]
    assert (dead["state"], dead["attempts"], dead["last_error"]) == ("dead", 12, "the answer was HTTP 500")
    (webhook,) = outrider.get("/api/webhooks")["webhooks"]
    assert webhook["deliveries"]["dead"] == 1 and webhook["deliveries"]["delivered"] == 0
    assert "\noutrider_webhook_calls_dead 1\n" in outrider.http.get("/metrics").text


def test_what_comes_after_a_dead_call_has_its_own_tries_and_the_dead_is_called_again_by_hand(
    inside: Make, clock: Clock
) -> None:
    """F084: the later events wait for it, in order; by hand it goes behind them, under its own name."""
    outrider = inside()
    with Receiver() as receiver:
        receiver.answers = [500] * push.TRIES
        task = echo(outrider, hook(receiver))
        for tries in range(1, push.TRIES):
            until_it_pauses(outrider, clock, tries)
        outrider.wait(lambda: states(outrider, task) == ["dead", *["delivered"] * 3])
        again = outrider.post(f"/api/webhooks/{task}/{task}/deliveries/1.0/again")
        assert again["by_hand"] and again["state"] in ("due", "calling")
        outrider.wait(lambda: states(outrider, task) == ["dead", *["delivered"] * 4])
        calls = receiver.calls
    assert [call.told for call in calls[push.TRIES :]] == [*WHOLE[1:], "SUBMITTED"]
    assert calls[-1].delivery == calls[0].delivery == again["id"] and calls[-1].attempt == 1


def test_calling_again_is_for_what_has_ended(inside: Make, clock: Clock) -> None:
    outrider = inside()
    with Receiver() as receiver:
        receiver.answers = [500]
        task = echo(outrider, hook(receiver))
        outrider.wait(lambda: heads(outrider))
        road = f"/api/webhooks/{task}/{task}/deliveries"

        def again(path: str) -> int:
            return outrider.http.post(path).status_code

        assert again(f"{road}/1.0/again") == 409
        assert again(f"{road}/9.0/again") == again(f"/api/webhooks/{task}/none/deliveries/1.0/again") == 404
        assert again(f"{road}/x/again") == 400 and again(f"{road}/1.0/again") == 409
        until_it_pauses(outrider, clock, 1)
        outrider.wait(lambda: states(outrider, task) == ["delivered"] * 4)
        for _ in range(2):
            outrider.post(f"{road}/3.1/again")
            outrider.wait(lambda: set(states(outrider, task)) == {"delivered"})
        assert [call.told for call in receiver.calls[-2:]] == ["COMPLETED"] * 2
        assert len({call.delivery for call in receiver.calls[-3:]}) == 1
        found = outrider.get(road, state="delivered", limit=4)
        assert [delivery["by_hand"] for delivery in found["deliveries"]] == [True, True, False, False]
        rest = outrider.get(road, cursor=found["next_cursor"])
        assert [delivery["event"] for delivery in rest["deliveries"]] == ["2.0", "1.0"]
        assert outrider.http.get(road, params={"state": "lost"}).status_code == 400


@pytest.mark.parametrize(("said", "waits"), [("3600", 3600), ("999999", 86_400)])
def test_a_receiver_says_when_to_come_again_up_to_a_day(inside: Make, clock: Clock, said: str, waits: int) -> None:
    """F084."""
    outrider = inside()
    with Receiver() as receiver:
        receiver.answers = [Answer(429, {"Retry-After": said})]
        echo(outrider, hook(receiver))
        assert until_it_pauses(outrider, clock, 1) == waits
        receiver.wait_for("COMPLETED")


def test_A88_a_name_that_is_public_when_registered_and_private_when_called_is_not_called(
    inside: Make, clock: Clock
) -> None:
    """F085: a name server that changes its mind; the receiver sees no connection, and its owner sees why."""
    outrider = inside(webhook_allow="")
    liar = LyingResolver({"hook.example": [["93.184.215.14"], ["127.0.0.1"], ["93.184.215.14", "10.0.0.1"], ["::1"]]})
    outrider.outrider.house.resolve = liar
    with Receiver() as receiver:
        task = echo(outrider, hook(f"http://hook.example:{receiver.port}/"))
        for tries in (1, 2, 3):
            until_it_pauses(outrider, clock, tries)
        outrider.wait(lambda: len(liar.asked) >= 5)
        assert receiver.connections == 0
    error = deliveries(outrider, task)[0]["last_error"]
    assert error == "the address may not be called: it leads to a network that is not public"


def test_A88_a_name_that_leads_to_this_machine_is_refused_at_once(inside: Make) -> None:
    outrider = inside(webhook_allow="")
    outrider.outrider.house.resolve = LyingResolver({"hook.example": [["93.184.215.14", "127.0.0.1"]]})
    task = outrider.ended(outrider.say("s", "hello"))["id"]
    assert refused(outrider, "Create", taskId=task, **hook("https://hook.example/"))[1] == -32602


def test_a_change_of_keys_loses_no_call(inside: Make, clock: Clock) -> None:
    """F086: what was signed with the old key before, and with the new one after, is known to whoever has both."""
    old, new = "the-old-signing-key", "the-new-signing-key"
    outrider = inside(webhook_keys=old)
    with Receiver() as receiver:
        echo(outrider, hook(receiver))
        before = receiver.wait(4)
        outrider.settings = outrider.settings.model_copy(update={"webhook_keys": SecretStr(f"{new},{old}")})
        outrider.restart()
        echo(outrider, hook(receiver))
        after = receiver.wait(8)[4:]
    now = clock() / SECOND
    for calls, key, other in ((before, old, new), (after, new, old)):
        for call in calls:
            header = call.headers[signatures.HEADER.lower()]
            assert signatures.verify(header, call.body, [key], now) and not signatures.verify(
                header, call.body, [other], now
            )
            assert signatures.verify(header, call.body, [new, old], now + 299)
            assert not signatures.verify(header, call.body + b" ", [new, old], now)


def test_a_config_that_was_replaced_gets_what_still_waits(inside: Make, clock: Clock) -> None:
    outrider = inside()
    with Receiver() as wrong, Receiver() as right:
        wrong.otherwise = 404
        task = echo(outrider, hook(wrong, token="old"))
        outrider.wait(lambda: heads(outrider))
        method(outrider, "Create", taskId=task, **hook(right, token="new"))
        until_it_pauses(outrider, clock, 1)
        calls = right.wait(4)
    assert [call.told for call in calls] == WHOLE
    assert {call.headers["x-a2a-notification-token"] for call in calls} == {"new"}
    assert len(wrong.calls) == 1


def test_the_list_of_webhooks_comes_in_pages_the_newest_first(inside: Make, clock: Clock) -> None:
    outrider = inside()
    with Receiver() as receiver:
        tasks = []
        for number in range(5):
            tasks.append(echo(outrider, hook(receiver), str(number)))
            clock.advance(1)
        first = outrider.get("/api/webhooks", limit=3)
        rest = outrider.get("/api/webhooks", limit=3, cursor=first["next_cursor"])
        receiver.wait(20)
    assert [webhook["task_id"] for webhook in first["webhooks"] + rest["webhooks"]] == tasks[::-1]
    assert rest["next_cursor"] == "" and isinstance(httpx.URL(first["webhooks"][0]["url"]).port, int)
