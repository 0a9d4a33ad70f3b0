from __future__ import annotations

from typing import Any

import pytest

from delayq import Ack, DuplicateMessage, InvalidInput, Message, Outgoing, Queue, StaleReceipt
from delayq.errors import OtherShard
from delayq.model.delivery import OnConflict
from delayq.model.outcome import AckAndSend
from delayq.model.placement import shard_of
from delayq.model.units import from_ms
from delayq.operations import encode, settle
from tests.contract.conftest import Drain, Make, Now, Take


def near(id: str, start: str = "b") -> str:
    """An id on the same shard as another one."""
    return next(each for n in range(1000) if shard_of(each := f"{start}{n}", 3) == shard_of(id, 3))


def far(id: str) -> str:
    """An id on another shard."""
    return next(each for n in range(1000) if shard_of(each := f"b{n}", 3) != shard_of(id, 3))


def test_ack_sends_the_follow_ups(queue: Queue, now: Now, take: Take):
    queue.send(1, id="a")
    message = take()
    message.ack(then=[Outgoing(2), Outgoing(3, delay=5, headers={"h": 1}, max_retries=7)])
    assert message.settled
    (second,) = queue.receive()
    assert (second.payload, second.attempt) == (2, 1)
    now.later(5)
    (third,) = queue.receive()
    assert (third.payload, third.headers, third.max_retries, third.lateness) == (3, {"h": 1}, 7, 0)
    assert queue.ack([second, third]) == [True, True]
    stats = queue.stats()
    assert (stats.sent, stats.acked, stats.inside, stats.missing) == (3, 3, 0, 0)


def test_fencing_token_rises_with_each_delivery_of_an_id_however_the_last_one_ended(queue: Queue, now: Now, take: Take):
    queue.send("x", id="a")
    attempts, tokens = [], []
    ends: list[Any] = [
        lambda message: message.nack(delay=0),
        lambda message: message.release(),
        lambda message: message.ack(then=[Outgoing("y", id="a")]),
        lambda _: now.later(60),  # its lease ends
        lambda message: message.ack(),
    ]
    for end in ends:
        message = take()
        attempts.append(message.attempt)
        tokens.append(message.fencing_token)
        now.later(0.000_001)
        end(message)
    assert attempts == [1, 2, 2, 1, 2]
    assert tokens == sorted(set(tokens))


def test_ack_with_a_stale_receipt_sends_nothing(queue: Queue, take: Take):
    queue.send("x", id="a")
    message = take()
    message.nack(delay=0)
    again = take()
    for _ in range(2):
        with pytest.raises(StaleReceipt):
            message.ack(then=[Outgoing("y", id=near("a")), Outgoing("z")])
    assert (queue.stats().sent, queue.stats().inside) == (1, 1)
    again.ack()


def test_settling_again_after_a_lost_reply_succeeds_and_sends_nothing_twice(queue: Queue, take: Take):
    queue.send("x", id="a")
    message, outcome = take(), AckAndSend([Outgoing("y"), Outgoing("z", id=near("a"))])
    for _ in range(2):
        assert queue.execute(settle.settle, [(message, outcome)]) == [True]
    assert (queue.stats().sent, queue.stats().acked) == (3, 1)


def test_message_can_send_itself_again(queue: Queue, now: Now, take: Take):
    queue.send(0, id="a")
    for round_ in range(3):
        message = take()
        assert (message.payload, message.attempt) == (round_, 1)
        message.ack(then=[Outgoing(round_ + 1, id="a", delay=60)])
        assert queue.receive() == []
        now.later(60)
    assert queue.stats().acked == 3


def test_on_conflict_of_a_follow_up_works_as_in_send(queue: Queue, now: Now, take: Take):
    other = near("a")
    choices: list[tuple[OnConflict, str]] = [("ignore", "old"), ("error", "old"), ("replace", "new")]
    for choice, payload in choices:
        queue.purge()
        queue.send("old", id=other, delay=60)
        queue.send("x", id="a")
        message = take()
        then = [Outgoing("new", id=other, delay=9, on_conflict=choice)]
        if choice == "error":
            with pytest.raises(DuplicateMessage, match=f"{other} exists already: nothing was changed"):
                message.ack(then=then)
            assert not message.settled
            message.ack()
        else:
            message.ack(then=then)
        info = queue.get(other)
        assert info is not None
        assert info.payload == payload
        assert info.due_at == from_ms(now.ms + (9000 if payload == "new" else 60_000))
    assert queue.stats().missing == 0


def test_follow_up_id_on_another_shard_is_refused_with_the_reason(kind: str, queue: Queue, take: Take):
    queue.send("x", id="a")
    message = take()
    if not kind.endswith("shards"):
        message.ack(then=[Outgoing("y", id=far("a"))])
        return
    with pytest.raises(OtherShard, match=r"'b\d+' belongs to another shard than 'a'.* leave the id out"):
        message.ack(then=[Outgoing("w"), Outgoing("y", id=far("a"))])
    assert queue.stats().sent == 1
    message.ack(then=[Outgoing("y", id=near("a"))])
    assert queue.get(near("a")) is not None


def test_at_most_100_follow_ups_are_allowed(queue: Queue, take: Take):
    queue.send("x", id="a")
    message = take()
    with pytest.raises(InvalidInput, match="then= has more than 100 messages for 'a'"):
        message.ack(then=[Outgoing(n) for n in range(101)])
    assert queue.stats().sent == 1
    message.ack(then=(Outgoing(n) for n in range(100)))
    assert sorted(message.payload for message in queue.receive(200)) == list(range(100))


BAD: list[tuple[Any, str]] = [
    (Outgoing("x"), "Outgoing.* is not a list"),
    ("text", "then=.text. is not a list"),
    (7, "then=7 is not a list"),
    (["x"], "'x' is not an Outgoing: give then= messages for this queue"),
    ([Outgoing(object())], "is not bytes and cannot be written as JSON"),
    ([Outgoing("x", delay=-1)], "delay -1"),
    ([Outgoing("x", id="")], "must not be empty"),
    ([Outgoing("x", id="a"), Outgoing("y", id="a")], "'a' is twice in then= of 'a'"),
    ([Outgoing("x", on_conflict="merge")], "on_conflict 'merge'"),  # type: ignore[arg-type]  # that is the point
]


def test_bad_follow_up_is_refused_and_the_message_stays_held(queue: Queue, take: Take, subtests: pytest.Subtests):
    queue.send("x", id="a")
    message = take()
    for then, why in BAD:
        with subtests.test(why):
            with pytest.raises(InvalidInput, match=why):
                message.ack(then=then)
            assert (queue.stats().sent, queue.stats().unack, message.settled) == (1, 1, False)
    message.ack()


def test_follow_ups_with_too_many_bytes_are_refused(queue: Queue, take: Take, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(encode, "MAX_THEN_BYTES", 1000)
    queue.send("x", id="a")
    message = take()
    with pytest.raises(InvalidInput, match="more than 1,000 bytes"):
        message.ack(then=[Outgoing(b"x" * 500), Outgoing(b"x" * 500)])
    message.ack(then=[Outgoing(b"x" * 500)])


def test_handler_can_return_follow_ups(queue: Queue, drain: Drain):
    handled: list[Any] = []

    def count_down(message: Message) -> Ack | None:
        handled.append(message.payload)
        if message.payload == 0:
            return None
        return Ack(then=[Outgoing(message.payload - 1)])

    queue.send(3)
    assert drain(queue, count_down, concurrency=1) == 4
    assert handled == [3, 2, 1, 0]
    assert (queue.stats().acked, queue.stats().missing) == (4, 0)


def test_return_value_used_for_several_messages_sends_for_each(queue: Queue, drain: Drain):
    follow = Ack(then=[Outgoing("end")])
    queue.send_many([Outgoing("begin") for _ in range(3)])
    assert drain(queue, lambda message: follow if message.payload == "begin" else None, concurrency=1) == 6
    assert queue.stats().acked == 6


def test_handler_that_returns_an_unsendable_follow_up_fails(make: Make, drain: Drain):
    queue = make(max_retries=0)
    queue.send("x", id="a")
    queue.send("y", id="b", delay=60)
    bad = {"a": Ack(then=[Outgoing(object())]), "c": Ack(then=[Outgoing("z", id="c"), Outgoing("z", id="c")])}
    queue.send("x", id="c")
    assert drain(queue, lambda message: bad[message.id], concurrency=1) == 2
    errors = {letter.id: letter.error for letter in queue.dead.list()}
    assert errors.keys() == {"a", "c"}
    assert "is not bytes and cannot be written as JSON" in str(errors["a"])
    assert "is twice in then=" in str(errors["c"])


def test_handler_fails_if_its_follow_up_exists_and_on_conflict_is_error(make: Make, drain: Drain):
    queue = make(max_retries=0)
    other = near("a")
    queue.send("old", id=other, delay=60)
    queue.send("x", id="a")
    assert drain(queue, lambda _: Ack(then=[Outgoing("z", id=other, on_conflict="error")]), concurrency=1) == 1
    (letter,) = queue.dead.list()
    assert "exists already" in str(letter.error)


def test_returning_an_empty_list_is_a_plain_ack(queue: Queue, take: Take, drain: Drain):
    queue.send("x", id="a")
    take().ack(then=[])
    queue.send("x", id="a")
    assert drain(queue, lambda _: Ack(), concurrency=1) == 1
    assert (queue.stats().acked, queue.stats().inside) == (2, 0)


def test_handler_fails_if_making_its_follow_ups_raises(queue: Queue, drain: Drain):
    def handle(_: Message) -> Ack:
        return Ack(then=(Outgoing(1 // each) for each in (1, 0)))

    queue.send("x", id="a", max_retries=0)
    assert drain(queue, handle, concurrency=1) == 1
    (letter,) = queue.dead.list()
    assert letter.error is not None
    assert letter.error.startswith("ZeroDivisionError")
