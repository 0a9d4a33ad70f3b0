from __future__ import annotations

import datetime as dt

import pytest
import redis

from delayq import InvalidInput, Outgoing, Queue
from delayq.model.placement import STATES
from delayq.model.units import from_ms
from delayq.protocol.queue_commands import MAX_IDS
from tests.contract.conftest import Make, Now, Take, examine

PLACES = ("unack", "retry", "dead", "ready", "pending")  # in this order: ready messages are handed out next


def bring(queue: Queue, take: Take, state: str, id: str = "a") -> None:
    """Send a message and bring it into a state."""
    queue.send("x", id=id, delay=60 if state == "pending" else 0)
    if state == "ready":
        take(id).release()
    elif state != "pending":
        message = take(id)
        if state == "retry":
            message.nack(60)
        elif state == "dead":
            message.reject()


@pytest.mark.parametrize("state", PLACES[1:])
def test_message_that_is_not_running_can_be_cancelled(queue: Queue, take: Take, client: redis.Redis, state: str):
    bring(queue, take, state)
    assert queue.cancel("a") == "cancelled"
    assert queue.get("a") is None
    assert queue.cancel("a") == "unknown"
    assert queue.collect_garbage() == 1
    assert client.exists(queue._context.shard("a").keys.message("a")) == 0
    stats = queue.stats()
    assert (stats.cancelled, stats.collected, stats.inside, stats.missing) == (1, 1, 0, 0)


@pytest.mark.parametrize("state", ["retry", "ready", "pending"])
def test_waiting_message_can_be_buried_and_requeued(queue: Queue, take: Take, now: Now, state: str):
    bring(queue, take, state)
    assert queue.dead.bury("a", reason="unwanted") == "buried"
    (letter,) = queue.dead.list()
    assert (letter.id, letter.reason, letter.died_at) == ("a", "unwanted", from_ms(now.ms))
    assert (queue.receive(), queue.stats().died, queue.stats().missing) == ([], 1, 0)
    assert queue.dead.bury("a") == "dead"
    assert queue.dead.requeue("a") == 1
    assert take("a").payload == "x"


def test_running_or_unknown_message_cannot_be_buried(queue: Queue, take: Take):
    queue.send("x", id="a")
    message = take()
    assert [queue.dead.bury("a"), queue.dead.bury("b")] == ["in_flight", "unknown"]
    message.ack()
    assert (queue.stats().acked, queue.stats().dead) == (1, 0)


def test_reason_of_a_buried_message_is_never_empty(queue: Queue):
    queue.send("x", id="a", delay=60)
    queue.dead.bury("a", reason="")
    assert [each.reason for each in queue.dead.list()] == ["buried"]


@pytest.mark.parametrize("end", ["nack", "last-nack", "release", "reject", "lease"])
def test_running_message_that_is_cancelled_is_not_delivered_again(queue: Queue, take: Take, now: Now, end: str):
    queue.send("x", id="a", max_retries=0 if end == "last-nack" else 5)
    message = take(lease=5)
    assert [queue.cancel("a"), queue.cancel("a")] == ["in_flight", "in_flight"]
    info = queue.get("a")
    assert info is not None
    assert (info.state, info.cancelled) == ("unack", True)
    if end != "lease":
        {"nack": message.nack, "last-nack": message.nack, "release": message.release, "reject": message.reject}[end]()
    now.later(100)
    assert queue.receive() == []
    assert queue.get("a") is None
    assert (queue.stats().cancelled, queue.stats().missing) == (1, 0)


def test_running_message_that_is_cancelled_can_be_acked(queue: Queue, take: Take):
    queue.send("x", id="a")
    message = take()
    queue.cancel("a")
    message.ack()
    stats = queue.stats()
    assert (stats.acked, stats.cancelled, stats.missing) == (1, 0, 0)


def test_cancel_of_an_unknown_message_returns_unknown(queue: Queue):
    assert queue.cancel("a") == "unknown"
    assert queue.reschedule("a", delay=5) == "unknown"
    assert queue.get("a") is None


@pytest.mark.parametrize("state", ["pending", "ready", "retry"])
def test_rescheduled_message_keeps_its_attempts(queue: Queue, take: Take, now: Now, state: str):
    bring(queue, take, state)
    assert queue.reschedule("a", at=from_ms(now.ms + 20_000)) == "rescheduled"
    assert queue.reschedule("a", delay=10) == "rescheduled"
    now.later(9.999)
    assert queue.receive() == []
    now.later(0.001)
    assert take().attempt == (2 if state == "retry" else 1)


@pytest.mark.parametrize("state", ["pending", "ready", "retry"])
def test_waiting_message_becomes_due_now_and_keeps_its_attempts(queue: Queue, take: Take, state: str):
    bring(queue, take, state)
    assert queue.now("a") == {"a": "rescheduled"}
    assert take().attempt == (2 if state == "retry" else 1)


def test_now_reports_the_outcome_of_each_id_in_their_order(queue: Queue, take: Take):
    for state in ("unack", "dead", "pending"):
        bring(queue, take, state, state)
    assert queue.now(iter(["none", "pending", "dead", "pending", "unack"])) == {
        "none": "unknown",
        "pending": "rescheduled",
        "dead": "dead",
        "unack": "in_flight",
    }
    assert [*queue.now(["pending", "none"])] == ["pending", "none"]
    assert queue.now([]) == {}


@pytest.mark.parametrize("wrong", [None, 5, ["a", ""], ["a", None]])
def test_now_changes_nothing_if_one_id_is_invalid(queue: Queue, wrong):
    queue.send("x", id="a", delay=60)
    before = queue.get("a")
    with pytest.raises(InvalidInput):
        queue.now(wrong)
    assert queue.get("a") == before


@pytest.mark.parametrize(("state", "answer"), [("unack", "in_flight"), ("dead", "dead")])
def test_running_or_dead_message_cannot_be_rescheduled(queue: Queue, take: Take, state: str, answer: str):
    bring(queue, take, state)
    before = queue.get("a")
    assert queue.reschedule("a", delay=5) == answer
    assert queue.get("a") == before


@pytest.mark.parametrize("state", PLACES)
def test_get_and_peek_find_a_message_in_each_state(queue: Queue, take: Take, now: Now, state: str):
    bring(queue, take, state)
    info = queue.get("a")
    assert info is not None
    assert (info.id, info.queue, info.state, info.payload) == ("a", "jobs", state, "x")
    assert (info.body, info.headers, info.max_retries, info.created_at) == (b'"x"', {}, 2, from_ms(now.ms))
    assert {each: [found.id for found in queue.peek(each)] for each in STATES} == {
        each: ["a"] if each == state else [] for each in STATES
    }
    assert queue.peek(state)[0] == info  # type: ignore[arg-type]  # one of STATES


def test_peek_returns_the_first_messages(queue: Queue):
    queue.send_many([Outgoing(n, id=str(n), delay=100 - n) for n in range(30)])
    assert [info.payload for info in queue.peek("pending", 5)] == [29, 28, 27, 26, 25]
    assert len(queue.peek(limit=100)) == 30


@pytest.mark.parametrize("state", ["pending", "ready", "retry", "dead", None])
def test_purge_deletes_the_messages_of_one_state_only(queue: Queue, take: Take, client: redis.Redis, state):
    for each in PLACES:
        bring(queue, take, each, each)
    assert queue.purge(state) == (1 if state else 4)
    assert {each for each in PLACES if queue.get(each)} == ({*PLACES} - {state} if state else {"unack"})
    assert len(client.keys("*msg:*")) == (4 if state else 1)
    assert (queue.stats().purged, queue.stats().missing) == ((1 if state else 4), 0)


def test_purge_deletes_any_number_of_messages(queue: Queue):
    queue.send_many([Outgoing(n) for n in range(1200)])
    assert queue.purge() == 1200
    assert queue.stats().inside == 0


def test_requeued_dead_letters_get_their_retries_back_and_keep_counting_attempts(queue: Queue, take: Take, now: Now):
    for id in ("a", "b", "c"):
        queue.send("x", id=id)
        take(id).reject("no")
    assert queue.dead.requeue("a") == 1
    assert queue.dead.requeue(["b", "nobody", "b"], delay=5) == 1
    message = take("a")
    assert (message.attempt, message.retries_used) == (2, 0)
    now.later(5)
    assert take("b").attempt == 2
    assert queue.dead.requeue() == 1
    assert queue.dead.list() == []
    assert queue.dead.requeue("all") == 0


@pytest.mark.parametrize(("ids", "back"), [("all", {"all", "a"}), (["all"], {"all"})], ids=["word", "id"])
def test_requeue_all_means_all_dead_letters_but_a_list_means_the_id_all(
    queue: Queue, take: Take, ids: str | list[str], back: set[str]
):
    for id in ("all", "a"):
        queue.send("x", id=id)
        take(id).reject("no")
    assert queue.dead.requeue(ids) == len(back)
    assert {message.id for message in queue.receive()} == back


def test_requeue_of_all_skips_dead_letters_without_a_payload(queue: Queue, client: redis.Redis):
    queue.send_many([Outgoing(number) for number in range(MAX_IDS + 1)])
    for message in queue.receive(MAX_IDS):
        message.reject()
        client.delete(queue._context.shard(message.id).keys.message(message.id))
    queue.receive()[0].reject()
    assert queue.dead.requeue("all") == 1
    assert (queue.stats().dead, queue.stats().pending) == (MAX_IDS, 1)


def test_dead_letters_are_listed_longest_dead_first(queue: Queue, take: Take, now: Now):
    for id in ("a", "b", "c"):
        queue.send("x", id=id)
        take(id).reject()
        now.later(1)
    assert [letter.id for letter in queue.dead.list()] == ["a", "b", "c"]
    assert [letter.id for letter in queue.dead.list(2)] == ["a", "b"]


def test_old_dead_letters_are_purged(queue: Queue, take: Take, now: Now):
    for id in ("a", "b"):
        queue.send("x", id=id)
        take(id).reject()
        now.later(10)
    assert queue.dead.purge(older_than=20.001) == 0
    assert queue.dead.purge(older_than=20) == 1
    assert [letter.id for letter in queue.dead.list()] == ["b"]
    assert queue.dead.purge() == 1


def test_purge_with_an_age_before_the_epoch_deletes_nothing(queue: Queue, take: Take, now: Now):
    queue.send("x", id="a")
    take("a").reject()
    now.later(10)
    assert queue.dead.purge(older_than=now.ms / 1000 + 5) == 0
    assert queue.stats().dead == 1


def test_stats_count_everything(queue: Queue, take: Take, now: Now):
    for state in PLACES:
        bring(queue, take, state, state)
    queue.send("x", delay=50, id="gone")
    queue.cancel("gone")
    stats = queue.stats()
    assert (stats.pending, stats.ready, stats.unack, stats.retry, stats.dead, stats.garbage) == (1, 1, 1, 1, 1, 1)
    assert (stats.scheduled, stats.due, stats.running, stats.retrying) == (1, 1, 1, 1)
    assert (stats.sent, stats.delivered, stats.released, stats.nacked, stats.died, stats.cancelled) == (
        6,
        4,
        1,
        1,
        1,
        1,
    )
    assert (stats.queue, stats.inside, stats.missing) == ("jobs", 5, 0)
    assert stats.next_due_at == from_ms(now.ms + 60_000)
    assert sum(stats.lateness.values()) == 4


def test_overdue_messages_count_as_due_in_every_state(queue: Queue, now: Now):
    queue.send("fails", max_retries=1)
    queue.receive()[0].nack(delay=10)
    queue.send_many(Outgoing("x", delay=delay) for delay in (5, 5, 60))
    assert (queue.stats().scheduled, queue.stats().due, queue.stats().retrying) == (3, 0, 1)
    now.later(10)
    stats = queue.stats()
    assert (stats.scheduled, stats.due, stats.retrying, stats.pending, stats.retry) == (1, 3, 0, 3, 1)


def test_stats_show_when_the_queue_was_paused(queue: Queue, now: Now):
    assert queue.stats().paused_since is None
    queue.pause()
    since = from_ms(now.ms)
    now.later(5)
    queue.pause()
    assert queue.stats().paused_since == since
    queue.resume()
    queue.resume()
    assert queue.stats().paused_since is None


def test_pause_for_a_time_ends_by_itself(queue: Queue, now: Now):
    queue.send("x")
    queue.pause(5)
    since, until = from_ms(now.ms), from_ms(now.ms + 5000)
    assert queue.receive() == []
    stats = queue.stats()
    assert (stats.paused_since, stats.paused_until) == (since, until)
    now.later(5)
    stats = queue.stats()
    assert (stats.paused_since, stats.paused_until) == (None, None)
    assert len(queue.receive()) == 1


def test_second_pause_replaces_the_end_of_the_first(queue: Queue, now: Now):
    queue.pause(5)
    queue.pause(dt.timedelta(seconds=60))
    now.later(30)
    since = queue.stats().paused_since
    assert since == from_ms(now.ms - 30_000)
    queue.pause()
    now.later(90)
    stats = queue.stats()
    assert (stats.paused_since, stats.paused_until) == (since, None)
    queue.resume()
    assert queue.stats().paused_since is None


def test_lateness_is_counted_from_the_due_time(queue: Queue, now: Now):
    queue.send_many([Outgoing("x", delay=1), Outgoing("y", delay=2)])
    now.later(3)
    queue.receive()
    stats = queue.stats()
    assert stats.lateness == {1024: 1, 2048: 1}
    assert stats.lateness_quantile(0.5) == 1.024
    assert stats.lateness_quantile(1) == 2.048


def test_doctor_finds_a_queue_healthy_until_it_is_damaged(queue: Queue, take: Take, client: redis.Redis):
    for state in PLACES:
        bring(queue, take, state, state)
    assert [finding for finding in examine(queue).findings if finding.kind != "persistence"] == []
    client.delete(queue._context.shard("pending").keys.message("pending"))
    client.zadd(queue._context.shard("dead").keys.pending, {"dead": 5})
    assert {(finding.kind, finding.id) for finding in examine(queue).errors} >= {
        ("payload-missing", "pending"),
        ("duplicate", "dead"),
    }
    assert examine(queue, repair=True).healthy
    assert examine(queue).errors == []


def test_client_with_shards_none_sees_all_shards(make: Make, now: Now):
    make("spread", shards=5).send_many([Outgoing(n) for n in range(50)])
    assert len(make("spread", shards=None).receive(50)) == 50
    assert make("spread", shards=None).stats().unack == 50
    assert now.ms
