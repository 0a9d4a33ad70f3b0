"""Redrive dead letters by what they have in common, and edit a single one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import redis

from delayq import Outgoing, Queue
from delayq.model.choice import Choice
from delayq.model.units import from_ms
from delayq.operations.bulk.redrive import Redrive
from delayq.types import Redriven
from tests.contract.conftest import Calls, Make, Now, Take, intercept

MAX_MOVED = 20  # per page and per call, here
MANY = 2 * MAX_MOVED + 7


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use small pages, so that a few messages take several."""
    monkeypatch.setattr("delayq.operations.bulk.redrive.MAX_MOVED", MAX_MOVED)


def die(queue: Queue, id: str, reason: str = "no", error: str | None = None, **options: Any) -> None:
    queue.send("x", id=id, **options)
    (message,) = queue.receive(1)
    message.reject(reason, error=error)


def die_many(queue: Queue, ids: list[str], error: Callable[[int], str | None] = lambda _: None) -> None:
    queue.send_many([Outgoing(id, id=id) for id in ids])
    number = 0
    while messages := queue.receive(250):
        for message in messages:
            message.reject("no", error=error(int(message.id)))
            number += 1
    assert number == len(ids)


def ids(queue: Queue, state: Any = "pending") -> list[str]:
    return sorted(info.id for info in queue.peek(state, 10_000))


@pytest.fixture
def stocked(queue: Queue, now: Now) -> Queue:
    """Four dead letters, one a minute."""
    die(queue, "a", "exhausted", "TimeoutError: timed out", headers={"tenant": "a", "n": 3, "on": True, "raw": b"r"})
    now.later(60)
    die(queue, "b", "unwanted", "HTTP 503: try later", headers={"tenant": "b"})
    now.later(60)
    die(queue, "c", "exhausted", "HTTP 404: gone", headers={"tenant": "a", "n": 4})
    now.later(60)
    die(queue, "d", "exhausted")
    return queue


CHOICES: dict[str, tuple[dict[str, Any], str]] = {
    "all": ({}, "abcd"),
    "old": ({"older_than": 120}, "ab"),
    "hardly-old-enough": ({"older_than": 60.001}, "ab"),
    "young": ({"newer_than": 120}, "cd"),
    "between": ({"older_than": 60, "newer_than": 180}, "bc"),
    "none-between": ({"older_than": 170, "newer_than": 130}, ""),
    "error": ({"error": "HTTP"}, "bc"),
    "error-in-other-letters": ({"error": "http"}, ""),
    "error-that-is-a-dot": ({"error": "."}, ""),
    "pattern": ({"error": re.compile(r"timeout|http 5\d\d", re.IGNORECASE)}, "ab"),
    "pattern-of-anything": ({"error": re.compile(".")}, "abc"),
    "reason": ({"reason": "exhausted"}, "acd"),
    "part-of-a-reason": ({"reason": "exhaust"}, ""),
    "header": ({"headers": {"tenant": "a"}}, "ac"),
    "headers": ({"headers": {"tenant": "a", "n": 3}}, "a"),
    "header-as-text": ({"headers": {"n": "3", "on": "true", "raw": "r"}}, "a"),
    "header-of-another-type": ({"headers": {"on": 1}}, ""),
    "no-such-header": ({"headers": {"tenants": "a"}}, ""),
    "no-headers": ({"headers": {}}, "abcd"),
    "all-at-once": ({"older_than": 60, "error": "HTTP", "reason": "exhausted", "headers": {"tenant": "a"}}, "c"),
}


def test_dry_run_counts_the_dead_letters_that_match_all_conditions(stocked: Queue, subtests: pytest.Subtests):
    for name, (given, meant) in CHOICES.items():
        with subtests.test(name):
            counted = stocked.dead.redrive(**given, dry_run=True)
            assert (counted.matched, counted.moved, counted.total, ids(stocked)) == (len(meant), 0, 4, [])


@pytest.mark.same_on_all_clients
@pytest.mark.parametrize("name", CHOICES)
def test_redrive_requeues_the_dead_letters_that_match_all_conditions(stocked: Queue, name: str, now: Now):
    given, meant = CHOICES[name]
    counted = stocked.dead.redrive(**given, dry_run=True)
    assert (counted.matched, counted.moved, ids(stocked)) == (len(meant), 0, [])
    progress = stocked.dead.redrive(**given)
    assert (progress.matched, progress.moved, progress.total) == (len(meant), len(meant), 4)
    assert (counted.looked_at, counted.total) == (progress.looked_at, 4)
    age, youth = given.get("older_than", 0), given.get("newer_than")
    assert progress.up_to == from_ms(now.ms - age * 1000)
    assert progress.after == (None if youth is None else from_ms(now.ms - youth * 1000))
    assert ids(stocked) == list(meant)
    assert ids(stocked, "dead") == sorted({*"abcd"} - {*meant})
    assert stocked.stats().missing == 0


def test_ages_can_be_given_as_datetimes(stocked: Queue, now: Now):
    assert stocked.dead.redrive(older_than=from_ms(now.ms - 60_001), dry_run=True).matched == 2
    assert stocked.dead.redrive(older_than=from_ms(now.ms - 60_000), dry_run=True).matched == 3
    assert stocked.dead.redrive(newer_than=from_ms(now.ms - 60_000), dry_run=True).matched == 1
    assert stocked.dead.redrive(older_than=from_ms(now.ms + 60_000), dry_run=True).matched == 4


def test_redriven_message_has_its_retries_and_is_due_after_the_delay(stocked: Queue, now: Now):
    stocked.dead.redrive(error="timed out", delay=5)
    assert stocked.receive() == []
    now.later(5)
    (message,) = stocked.receive()
    assert (message.id, message.attempt, message.retries_used) == ("a", 2, 0)


@pytest.mark.same_on_all_clients
@pytest.mark.parametrize("share", [1, 2, MAX_MOVED, MANY])
def test_each_dead_letter_is_read_once_and_the_chosen_ones_are_redriven(queue: Queue, share: int):
    """Redriven messages make the others move up, within a page and behind it; nearly all died at the same time."""
    names = [str(number) for number in range(MANY)]
    die_many(queue, names, lambda number: "meant" if number % share == 0 else "not")
    meant = [name for name in names if int(name) % share == 0]
    progress = queue.dead.redrive(error="meant")
    assert (progress.looked_at, progress.matched, progress.moved) == (MANY, len(meant), len(meant))
    assert ids(queue) == sorted(meant)
    assert queue.stats().dead == MANY - len(meant)


def test_new_dead_letters_are_found_behind_many_old_ones(queue: Queue, now: Now):
    names = [str(number) for number in range(MANY)]
    die_many(queue, names)
    now.later(0.001)
    die(queue, "young")
    now.later(0.999)
    progress = queue.dead.redrive(newer_than=1)
    assert (progress.moved, ids(queue)) == (1, ["young"])
    assert progress.looked_at == 1


def test_dead_letter_that_dies_again_meanwhile_is_left_alone(stocked: Queue, now: Now):
    redrive = Redrive(Choice(), rate=1)  # one a step
    rounds = 0
    while not redrive.done:
        stocked.execute(redrive.step)
        now.later(1)
        for message in stocked.receive():
            message.reject("again")
            rounds += 1
    assert (rounds, redrive.progress.moved) == (4, 4)
    assert ids(stocked, "dead") == ["a", "b", "c", "d"]


def test_dead_letter_that_dies_again_after_it_was_read_is_left_alone(stocked: Queue, now: Now):
    """Another client was faster: it is not the same dead letter any more."""
    redrive = Redrive(Choice(), rate=1)
    left = {"a", "b", "c", "d"}
    while "d" in left and len(left) > 1:
        stocked.execute(redrive.step)
        left -= {*ids(stocked)}
    other = min(left)
    stocked.dead.requeue(other)
    now.later(1)
    for message in stocked.receive(10):
        if message.id == other:
            message.reject("again")
    while not redrive.done:
        stocked.execute(redrive.step)
    info = stocked.get(other)
    assert info is not None
    assert (info.state, info.reason) == ("dead", "again")


def test_interrupted_redrive_can_be_resumed(stocked: Queue, now: Now):
    redrive = Redrive(Choice(error="HTTP"), rate=1)
    while not redrive.progress.moved:
        stocked.execute(redrive.step)
    now.later(10)
    for message in stocked.receive():
        message.reject("again", error="HTTP 500")
    progress = stocked.dead.redrive(error="HTTP", older_than=redrive.progress.up_to)
    assert (progress.moved, redrive.progress.moved) == (1, 1)
    assert sorted(info.reason or "" for info in stocked.dead.list()) == ["again", "exhausted", "exhausted"]


@pytest.mark.same_on_all_clients
@pytest.mark.parametrize(("rate", "burst"), [(1, 1), ("9/s", 1), ("20/s", 2), ("60/m", 1), (100, 10), (1e9, MAX_MOVED)])
def test_rate_is_kept_in_bursts_of_a_tenth_of_a_second(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, rate: Any, burst: int
):
    die_many(queue, [str(number) for number in range(MANY if burst > 1 else 7)])
    clock = 100.0
    monkeypatch.setattr("delayq.operations.bulk.redrive.time.monotonic", lambda: clock)
    a_second = 1 if rate == "60/m" else float(str(rate).removesuffix("/s"))
    redrive = Redrive(Choice(), rate=rate)
    while not redrive.done:
        before = redrive.progress.moved
        progress = queue.execute(redrive.step)
        assert progress.moved - before <= burst
        assert progress.moved <= (clock - 100) * a_second + burst + 1e-6
        clock += redrive.pause
    assert redrive.progress.moved == redrive.progress.total
    assert clock - 100 >= (redrive.progress.total - burst) / a_second - 1e-6


def test_delay_over_a_tenth_of_a_second_is_not_made_up_for(queue: Queue, monkeypatch: pytest.MonkeyPatch):
    die_many(queue, [str(number) for number in range(9)])
    clock = 100.0
    monkeypatch.setattr("delayq.operations.bulk.redrive.time.monotonic", lambda: clock)
    redrive = Redrive(Choice(), rate=1)
    pauses = []
    while not redrive.done:
        queue.execute(redrive.step)
        pauses.append(redrive.pause)
        clock += 1000
    assert pauses == pytest.approx([0.0, 1.0] + [0.9] * 7 + [0.0])  # the first step only finds the bounds


def test_time_spent_reading_is_made_up_for(queue: Queue, monkeypatch: pytest.MonkeyPatch):
    die_many(queue, [str(number) for number in range(9)])
    clock = 100.0
    monkeypatch.setattr("delayq.operations.bulk.redrive.time.monotonic", lambda: clock)
    redrive = Redrive(Choice(), rate=10)
    while redrive.progress.moved < 9:
        queue.execute(redrive.step)
        clock += redrive.pause + 0.05
    assert clock - 100 == pytest.approx(0.9, abs=0.11)


def test_progress_is_reported(queue: Queue):
    die_many(queue, [str(number) for number in range(MANY)])
    calls: list[Redriven] = []
    result = queue.dead.redrive(progress=calls.append)
    assert [each.moved for each in calls] == sorted({each.moved for each in calls})
    assert len(calls) >= 3
    assert calls[-1] == result
    assert {each.total for each in calls} == {MANY}


def test_interrupted_redrive_loses_nothing(queue: Queue):
    die_many(queue, [str(number) for number in range(MANY)])

    def interrupt(progress: Redriven) -> None:
        if progress.moved >= MAX_MOVED / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        queue.dead.redrive(progress=interrupt)
    stats = queue.stats()
    assert stats.pending + stats.dead == MANY
    assert 0 < stats.pending < MANY
    assert queue.dead.redrive().moved == stats.dead
    assert queue.stats().pending == MANY


def test_dead_letters_without_a_payload_are_skipped_and_counted(queue: Queue, client: redis.Redis):
    die_many(queue, [str(number) for number in range(MANY)])
    for number in range(0, MANY, 2):
        client.delete(queue._context.shard(str(number)).keys.message(str(number)))
    progress = queue.dead.redrive()
    assert (progress.matched, progress.moved) == (MANY, MANY // 2)
    assert queue.stats().dead == MANY - MANY // 2


def test_headers_never_match_an_unreadable_envelope(stocked: Queue, client: redis.Redis):
    client.delete(stocked._context.shard("a").keys.message("a"))
    client.set(stocked._context.shard("c").keys.message("c"), "rubbish")
    assert stocked.dead.redrive(headers={"tenant": "a"}).matched == 0


def test_redrive_without_dead_letters_returns_at_once(queue: Queue):
    progress = queue.dead.redrive(rate="1/h")
    assert (progress.total, progress.looked_at, progress.matched, progress.moved) == (0, 0, 0, 0)


# Edit one of them


def test_edited_dead_letter_is_pending_with_its_new_content(queue: Queue, take: Take, now: Now):
    queue.send({"to": "nobody"}, id="a", headers={"tenant": "a"}, max_retries=7)
    sent = now.ms
    take().reject("no such address")
    now.later(60)
    assert queue.dead.edit("a", {"to": "somebody"}, delay=5) is True
    info = queue.get("a")
    assert info is not None
    assert (info.state, info.payload, info.headers, info.max_retries) == (
        "pending",
        {"to": "somebody"},
        {"tenant": "a"},
        7,
    )
    assert (info.due_at, info.created_at, info.reason) == (from_ms(now.ms + 5000), from_ms(sent), None)
    assert queue.receive() == []
    now.later(5)
    message = take()
    assert (message.payload, message.attempt, message.retries_used) == ({"to": "somebody"}, 2, 0)
    message.ack()
    stats = queue.stats()
    assert (stats.requeued, stats.acked, stats.missing) == (1, 1, 0)


def test_editing_only_headers_keeps_the_payload(queue: Queue, take: Take, subtests: pytest.Subtests):
    payloads: list[Any] = [None, b"\xff\x00", "text", 10**30, {"a": [1.5]}]
    for payload in payloads:
        with subtests.test(payload=payload):
            queue.send(payload, id="a", headers={"old": 1}, on_conflict="replace")
            first = take()
            first.reject()
            assert queue.dead.edit("a", headers={"new": 2})
            second = take()
            assert (second.body, second.payload, second.headers) == (first.body, first.payload, {"new": 2})
            second.reject()
            assert queue.dead.edit("a", headers={})
            assert take().headers == {}


def test_payload_can_be_edited_to_null_or_bytes(queue: Queue, take: Take):
    for payload in (None, b"\xff\x00"):
        queue.send("x", id="a", on_conflict="replace")
        take().reject()
        assert queue.dead.edit("a", payload)
        assert take().payload == payload


def test_message_that_is_not_dead_cannot_be_edited(queue: Queue, take: Take):
    assert queue.dead.edit("a", "new") is False
    queue.send("x", id="a")
    assert queue.dead.edit("a", "new") is False
    message = take()
    assert queue.dead.edit("a", "new") is False
    message.reject()
    queue.dead.requeue("a")
    assert queue.dead.edit("a", "new") is False
    assert take().payload == "x"


def test_dead_letter_that_died_again_is_not_edited_by_an_outdated_caller(queue: Queue, take: Take, now: Now):
    queue.send("x", id="a")
    take().reject()
    seen = queue.dead.list()[0].died_at
    queue.dead.requeue("a")
    now.later(1)
    take().reject()
    assert queue.dead.edit("a", "new", died_at=seen) is False
    again = queue.dead.list()[0].died_at
    assert queue.dead.edit("a", "new", died_at=again) is True


def test_edit_restarts_the_expiry(queue: Queue, take: Take, now: Now):
    queue.send("x", id="a", expires_in=10)
    take().reject()
    now.later(60)
    queue.dead.edit("a", "new")
    now.later(9)
    assert take().payload == "new"


def test_dead_letter_without_a_payload_can_only_be_edited_with_a_payload(queue: Queue, client: redis.Redis, take: Take):
    queue.send("x", id="a", max_retries=7)
    take().reject()
    client.delete(queue._context.shard("a").keys.message("a"))
    with pytest.raises(ValueError, match="is gone or unreadable: give payload="):
        queue.dead.edit("a", headers={"tenant": "a"})
    assert queue.dead.requeue() == 0
    assert queue.dead.edit("a", "new", {"tenant": "a"}) is True
    message = take()
    assert (message.payload, message.headers, message.max_retries) == ("new", {"tenant": "a"}, 2)


def test_payload_over_our_limit_can_keep_its_size_with_new_headers(make: Make, queue: Queue, take: Take):
    queue.send("x" * 1000, id="a")
    take().reject()
    small = make(max_payload=10)
    assert small.dead.edit("a", headers={"tenant": "a"}) is True
    with pytest.raises(ValueError, match="max_payload"):
        small.dead.edit("a", "x" * 1000)


@pytest.mark.parametrize("share", [1, 2, 7, MANY])
def test_each_page_is_read_once(queue: Queue, monkeypatch: pytest.MonkeyPatch, share: int):
    die_many(queue, [str(number) for number in range(MANY)], lambda number: "meant" if number % share == 0 else "not")
    pages = 0

    def count(calls: Calls) -> None:
        nonlocal pages
        pages += sum(call.args[0] == "ZRANGE" for call in calls)

    with monkeypatch.context() as patch:
        intercept(queue, patch, before=count)
        queue.dead.redrive(error="meant")
    assert pages > 0
    shards = len(queue._context.shards)
    assert pages <= shards + MANY // (MAX_MOVED - 1)
