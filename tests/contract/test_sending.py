from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from delayq import DuplicateMessage, Outgoing, Queue, QueueFull, SentMessage
from delayq.model.message_ids import new_id
from delayq.model.units import from_ms
from delayq.operations import encode, send
from tests.contract.conftest import Make, Now, Take


def test_message_without_a_time_is_due_at_once(queue: Queue, now: Now):
    sent = queue.send({"to": "a@example.org"})
    assert (sent.due_at, sent.created) == (from_ms(now.ms), True)
    (message,) = queue.receive()
    assert (message.id, message.payload, message.lateness) == (sent.id, {"to": "a@example.org"}, 0)


@pytest.mark.parametrize("delay", [30, 30.0, dt.timedelta(seconds=30)], ids=repr)
def test_delayed_message_is_handed_out_at_its_millisecond_and_not_before(queue: Queue, now: Now, delay: Any):
    assert queue.send("x", delay=delay).due_at == from_ms(now.ms + 30_000)
    now.later(29.999)
    assert queue.receive() == []
    now.later(0.001)
    assert [message.lateness for message in queue.receive()] == [0]


def test_message_is_due_at_a_given_time(queue: Queue, now: Now):
    at = from_ms(now.ms + 5000).astimezone(dt.timezone(dt.timedelta(hours=5)))
    assert queue.send("x", at=at).due_at == at
    now.later(4.999)
    assert queue.receive() == []
    now.later(0.001)
    assert len(queue.receive()) == 1


def test_time_in_the_past_is_due_at_once_and_late(queue: Queue, now: Now):
    queue.send("x", at=from_ms(now.ms - 5000))
    assert [message.lateness for message in queue.receive()] == [5]


PAYLOADS = [b"raw \xff bytes", b"", "", 0, None, True, 1.5, "é☃", [1, [2]], {"a": {"b": None}}]


def test_payload_arrives_as_it_was_sent(queue: Queue, subtests: pytest.Subtests):
    payload: Any
    for payload in PAYLOADS:
        with subtests.test(payload=payload):
            queue.send(payload)
            (message,) = queue.receive()
            assert message.payload == payload
            assert type(message.payload) is type(payload)


def test_headers_and_retries_arrive_as_they_were_sent(queue: Queue):
    queue.send("x", headers={"trace": "1", "raw": b"\xff", "n": 5}, max_retries=7)
    (message,) = queue.receive()
    assert (message.headers, message.max_retries, message.queue) == ({"trace": "1", "raw": b"\xff", "n": 5}, 7, "jobs")


def test_message_keeps_its_id(queue: Queue, subtests: pytest.Subtests):
    for id in ["order-42", "a b:{c}#*?[x]\\", "é☃", "x" * 256]:
        with subtests.test(id=id):
            assert queue.send("x", id=id).id == id
            assert [message.id for message in queue.receive()] == [id]


def test_send_leaves_an_existing_id_unchanged(queue: Queue, now: Now, take: Take):
    first = queue.send("first", id="a", delay=5)
    again = queue.send("second", id="a", delay=60)
    assert again == SentMessage("a", first.due_at, created=False)
    now.later(5)
    message = take()
    assert message.payload == "first"
    assert queue.send("third", id="a").created is False
    message.ack()
    assert queue.send("fourth", id="a").created is True


def test_replacement_replaces_a_message_in_any_state(queue: Queue, now: Now, take: Take):
    for state in ("pending", "ready", "unack", "retry", "dead"):
        queue.send(f"old {state}", id="a", delay=1 if state == "pending" else 0)
        if state in ("unack", "retry", "dead"):
            old = take()
            if state == "retry":
                old.nack()
            elif state == "dead":
                old.reject()
        sent = queue.send(f"new {state}", id="a", delay=2, on_conflict="replace")
        assert sent == SentMessage("a", from_ms(now.ms + 2000), created=False)
        info = queue.get("a")
        assert info is not None
        assert (info.state, info.payload, info.reason, info.error) == ("pending", f"new {state}", None, None)
        now.later(2)
        take().ack()
    assert queue.stats().missing == 0


def test_replacing_a_running_message_makes_its_receipt_stale(queue: Queue, take: Take):
    queue.send("old", id="a")
    running = take()
    queue.send("new", id="a", on_conflict="replace")
    assert queue.ack(running) == [False]
    renewed = take()
    assert (renewed.payload, renewed.attempt, renewed.is_last) == ("new", 2, False)


def test_replacing_an_unknown_id_sends_a_new_message(queue: Queue):
    assert queue.send("x", id="a", on_conflict="replace").created is True


def test_conflict_can_be_an_error(queue: Queue):
    assert queue.send("first", id="a", on_conflict="error").created is True
    with pytest.raises(DuplicateMessage, match="'a' exists already: nothing was changed"):
        queue.send("second", id="a", on_conflict="error")
    assert [message.payload for message in queue.receive()] == ["first"]


def test_id_of_a_cancelled_message_is_free_again(queue: Queue, take: Take):
    queue.send("old", id="a")
    queue.cancel("a")
    assert queue.send("new", id="a").created is True
    assert queue.collect_garbage() == 0
    assert take().payload == "new"


def test_expired_message_is_not_started_but_counted(queue: Queue, now: Now):
    queue.send("x", expires_in=10)
    queue.send("y", expires_in=dt.timedelta(seconds=11))
    now.later(10)
    assert [message.payload for message in queue.receive()] == ["y"]
    stats = queue.stats()
    assert (stats.expired, stats.garbage, stats.missing) == (1, 1, 0)


def test_expired_messages_do_not_hide_those_behind_them(queue: Queue, now: Now):
    for _ in range(3):
        queue.send("late", expires_in=1)
    queue.send("fresh", delay=1)
    now.later(2)
    assert [message.payload for message in queue.receive(1)] == ["fresh"]


def test_messages_sent_together_have_their_own_options(queue: Queue, now: Now):
    sents = queue.send_many(
        [
            Outgoing(1, id="a"),
            Outgoing(2, delay=5, id="b", headers={"h": 1}),
            Outgoing(3, id="a"),
            Outgoing(4, id="b", on_conflict="replace", max_retries=0),
            Outgoing(5),
        ]
    )
    assert [sent.created for sent in sents] == [True, True, False, False, True]
    found = {message.id: (message.payload, message.max_retries) for message in queue.receive()}
    assert found == {"a": (1, 2), "b": (4, 0), sents[4].id: (5, 2)}
    assert now.ms == sents[4].due_at.timestamp() * 1000


def test_send_many_sends_any_number_of_messages(queue: Queue):
    sents = queue.send_many(Outgoing(n) for n in range(1234))
    assert len({sent.id for sent in sents}) == 1234
    received = []
    while messages := queue.receive(500):
        received += [message.payload for message in messages]
        assert all(queue.ack(messages))
    assert sorted(received) == list(range(1234))
    assert queue.send_many([]) == []


def test_classic_names_mean_the_same(queue: Queue, now: Now):
    queue.send_delay_msg("a", 5, retry_count=1, id="a")
    queue.send_delay_msg("b", dt.timedelta(seconds=6), id="b")
    queue.send_schedule_msg("c", from_ms(now.ms + 7000), retry_count=0, headers={"h": 1}, id="c")
    now.later(7)
    found = {m.id: (m.payload, m.max_retries, m.lateness, m.headers) for m in queue.receive()}
    assert found == {"a": ("a", 1, 2, {}), "b": ("b", 2, 1, {}), "c": ("c", 0, 0, {"h": 1})}


def test_queues_and_prefixes_share_nothing(make: Make):
    queues = [make("jobs"), make("mail"), make("jobs", prefix="other")]
    for n, queue in enumerate(queues):
        queue.send(n, id="a")
    assert [[message.payload for message in queue.receive()] for queue in queues] == [[0], [1], [2]]


@pytest.mark.parametrize("setting", [{"events": 1000}, {"max_length": 2}], ids=repr)
def test_open_client_heeds_what_another_one_configures(make: Make, setting: dict[str, Any]):
    """Its single sends do without what they need for a limit until they meet one."""
    queue, other = make("bounded", shards=1), make("bounded", shards=1)
    queue.send(1)
    other.configure(**setting)
    second = queue.send(2)
    assert queue._context.may_send_one is ("events" in setting)
    if "events" in setting:
        assert [event.event for event in queue.history(second.id)] == ["sent"]
    else:
        for _ in range(2):
            with pytest.raises(QueueFull):
                queue.send(3)
    assert queue.stats().sent == 2


def test_single_send_that_is_repeated_after_a_lost_reply_is_stored_once(make: Make):
    queue = make()
    queue.send(1)
    assert queue._context.may_send_one
    encoded = encode.encode_one(queue._context, Outgoing(2), new_id())
    (first,), (again,) = (queue.execute(send.send_shared, [encoded]) for _ in range(2))
    assert again == first
    assert queue.stats().sent == 2
