"""A queue with a horizon: messages due later are kept in the lake, and are found, changed and cancelled there."""

from __future__ import annotations

import asyncio
import datetime as dt
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from delayq import DuplicateMessage, InvalidInput, Outgoing, Queue, QueueFull
from delayq.aio import Queue as AioQueue
from delayq.errors import NotReplicated
from delayq.lake.layout import DeferredRow, hour_of
from delayq.lake.queue_folder import QueueFolder
from delayq.model.envelope import encode_envelope
from delayq.model.extras import install
from delayq.model.units import from_ms, timestamp_ms
from delayq.operations import send
from tests.harness.foreign_headers import NAME, PLAN, SLOT, plan
from tests.harness.lake.lakes import DAY, HORIZON, HOUR, Clock, counted, delivered, far_queue, files, load
from tests.harness.servers import RedisServer


@pytest.fixture
def queue(redis_server: RedisServer, lake: Path, clock: Clock) -> Iterator[Queue]:
    with far_queue(redis_server.url, lake, clock) as opened:
        yield opened


def test_message_beyond_the_horizon_is_kept_in_the_lake_with_everything_known_about_it(
    queue: Queue, lake: Path, clock: Clock
):
    sent = queue.send({"to": "a"}, delay=DAY, headers={"k": "v"}, max_retries=7, expires_in=2 * DAY, timeout=90)
    assert (sent.created, sent.due_at) == (True, clock.now + dt.timedelta(days=1))
    info = queue.get(sent.id)
    assert info is not None
    assert (info.state, info.due_at, info.created_at) == ("deferred", sent.due_at, clock.now)
    assert (info.payload, info.headers, info.max_retries, info.timeout) == ({"to": "a"}, {"k": "v"}, 7, 90)
    assert info.expires_at == clock.now + dt.timedelta(days=2)
    assert (queue.stats().pending, len(files(lake))) == (0, 1)
    assert queue.why(sent.id).endswith(f"(in 1d), and waits in {lake}/queue=jobs until a load moves it into Redis")
    assert "was never sent" in queue.why("nobody")


def test_occurrence_of_a_schedule_still_is_one_after_its_time_in_the_lake(queue: Queue, lake: Path, clock: Clock):
    slot = clock.now + dt.timedelta(days=1)
    message_id, slot_ms = f"nightly@{timestamp_ms(slot)}", timestamp_ms(slot)
    own: dict[str, Any] = {NAME: "nightly", SLOT: slot_ms, PLAN: plan("0 12 * * *")}
    envelope = encode_envelope({"a": 1}, 3, None, {"tenant": "acme"}, own=own)
    row = DeferredRow(message_id, slot_ms, clock.ms, envelope)
    QueueFolder(str(lake), "jobs").write(hour_of(slot_ms), "w", [row])
    info = queue.get(message_id)
    assert info is not None
    assert (info.state, info.schedule, info.slot, info.headers) == ("deferred", "nightly", slot, {"tenant": "acme"})
    assert queue.reschedule(message_id, delay=DAY + HOUR)
    clock.later(DAY)
    load(queue, lake)
    clock.later(HOUR)
    (message,) = delivered(queue)
    assert (message.schedule, message.slot, message.headers) == ("nightly", slot, {"tenant": "acme"})


@pytest.mark.parametrize("delay", [1, DAY])
def test_headers_of_delayq_are_refused_on_both_sides_of_the_horizon(queue: Queue, lake: Path, delay: float):
    for headers in ({SLOT: 1}, {"tenant": "acme", "DELAYQ-x": None}):
        with pytest.raises(InvalidInput, match="rename it or leave it out"):
            queue.send_many([Outgoing("x", delay=delay), Outgoing("x", delay=delay, headers=headers)])
    assert (queue.stats().sent, files(lake)) == (0, [])


@pytest.mark.parametrize(("seconds", "state"), [(HORIZON, "pending"), (HORIZON + 0.001, "deferred")])
def test_horizon_is_the_last_moment_that_is_kept_in_redis(queue: Queue, clock: Clock, seconds: float, state: str):
    for options in ({"delay": seconds}, {"at": clock.now + dt.timedelta(seconds=seconds)}):
        info = queue.get(queue.send("x", **options).id)
        assert info is not None
        assert info.state == state


def test_many_messages_are_stored_by_hour_and_reported_in_order(queue: Queue, lake: Path):
    sent = queue.send_many([Outgoing(n, delay=n * HOUR / 2, id=f"m{n}") for n in range(12)])
    assert [each.id for each in sent] == [f"m{n}" for n in range(12)]
    assert queue.stats().pending == 5
    assert len(files(lake)) == 4
    assert all(each.created for each in sent)


def test_loaded_message_is_delivered_at_its_time(queue: Queue, lake: Path, clock: Clock):
    sent = queue.send_many([Outgoing(n, delay=DAY + n) for n in range(3)])
    clock.later(DAY - HOUR)
    assert counted(load(queue, lake), "rows", "sent") == (3, 3)
    assert delivered(queue) == []
    clock.later(HOUR + 1)
    assert [(each.id, each.payload, each.due_at) for each in delivered(queue)] == [
        (each.id, n, each.due_at) for n, each in enumerate(sent[:2])
    ]
    assert queue.get(sent[0].id) is None
    assert (queue.stats().missing, load(queue, lake)) == (0, [])


def test_expiry_counts_from_the_send_and_not_from_the_load(queue: Queue, lake: Path, clock: Clock):
    queue.send("x", delay=DAY, id="a", expires_in=DAY + 60)
    queue.send("x", delay=DAY, id="b", expires_in=DAY + 180)
    clock.later(DAY - HOUR)
    load(queue, lake)
    clock.later(HOUR + 120)
    assert [each.id for each in delivered(queue)] == ["b"]
    assert queue.stats().expired == 1


@pytest.mark.parametrize("home", ["lake", "redis"])
def test_existing_id_is_kept_replaced_or_refused_wherever_it_is(queue: Queue, lake: Path, clock: Clock, home: str):
    first = queue.send("old", delay=DAY if home == "lake" else HOUR, id="a")
    left = queue.send("new", delay=2 * DAY, id="a")
    assert (left.created, left.due_at) == (False, first.due_at)
    with pytest.raises(DuplicateMessage, match="'a'"):
        queue.send("new", delay=2 * DAY, id="a", on_conflict="error")
    replaced = queue.send("new", delay=2 * DAY, id="a", on_conflict="replace")
    assert (replaced.created, replaced.due_at) == (False, clock.now + dt.timedelta(days=2))
    info = queue.get("a")
    assert info is not None
    assert (info.payload, info.due_at) == ("new", replaced.due_at)
    clock.later(2 * DAY)
    load(queue, lake)
    assert [each.payload for each in delivered(queue)] == ["new"]


def test_id_can_be_used_again_after_a_cancel(queue: Queue, lake: Path, clock: Clock):
    queue.send("first", delay=DAY, id="a")
    assert queue.cancel("a") == "cancelled"
    assert queue.send("second", delay=DAY, id="a").created
    clock.later(DAY)
    assert counted(load(queue, lake), "sent", "cancelled") == (1, 1)
    assert [each.payload for each in delivered(queue)] == ["second"]


def test_shards_are_recorded_before_anything_is_stored(redis_server: RedisServer, lake: Path, clock: Clock):
    with far_queue(redis_server.url, lake, clock, shards=4) as queue:
        queue.send("x", delay=DAY)
        clock.later(DAY - HOUR)
        with Queue("jobs", url=redis_server.url, clock=clock, shards=None) as other:
            assert counted(load(other, lake), "sent") == (1,)
            assert len(other._context.shards) == 4
        assert queue.send("y").created


def test_cancelled_message_is_gone_and_is_not_loaded(queue: Queue, lake: Path, clock: Clock):
    sent = queue.send_many([Outgoing(n, delay=DAY) for n in range(3)])
    assert queue.cancel(sent[1].id) == "cancelled"
    assert (queue.cancel(sent[1].id), queue.get(sent[1].id), queue.cancel("nobody")) == ("unknown", None, "unknown")
    clock.later(DAY)
    assert counted(load(queue, lake), "rows", "sent", "cancelled") == (3, 2, 1)
    assert {each.payload for each in delivered(queue)} == {0, 2}


@pytest.mark.parametrize("days", [2, 0.5, 1.001])
def test_message_moved_in_the_lake_comes_once_at_its_new_time(queue: Queue, lake: Path, clock: Clock, days: float):
    queue.send("x", delay=DAY, id="a", max_retries=1)
    assert queue.reschedule("a", delay=3 * DAY) == "rescheduled"
    assert queue.reschedule("a", delay=days * DAY) == "rescheduled"
    due = clock.now + dt.timedelta(days=days)
    info = queue.get("a")
    assert info is not None
    assert (info.state, info.due_at, info.max_retries) == ("deferred", due, 1)
    came: list[tuple[dt.datetime, dt.datetime]] = []
    for _ in range(8):
        clock.later(DAY / 2)
        load(queue, lake)
        came += [(each.due_at, clock.now) for each in delivered(queue)]
    assert [due_at for due_at, _ in came] == [due]
    assert came[0][1] - due < dt.timedelta(days=0.5)


def test_message_moved_within_the_horizon_is_in_redis_and_is_not_loaded_again(queue: Queue, lake: Path, clock: Clock):
    queue.send("x", delay=DAY, id="a")
    assert queue.reschedule("a", delay=60) == "rescheduled"
    info = queue.get("a")
    assert info is not None
    assert (info.state, info.due_at) == ("pending", clock.now + dt.timedelta(minutes=1))
    clock.later(60)
    assert [each.id for each in delivered(queue)] == ["a"]
    clock.later(DAY)
    assert counted(load(queue, lake), "sent", "cancelled") == (0, 1)


def test_message_in_the_lake_becomes_due_now(queue: Queue, lake: Path, clock: Clock):
    queue.send_many([Outgoing("x", id="far", delay=DAY), Outgoing("x", id="near", delay=60)])
    assert queue.now(["none", "far", "near"]) == {"none": "unknown", "far": "rescheduled", "near": "rescheduled"}
    assert sorted(each.id for each in delivered(queue)) == ["far", "near"]
    clock.later(DAY)
    assert counted(load(queue, lake), "sent", "cancelled") == (0, 1)


def test_message_with_unique_for_stays_in_redis_however_late_it_is_due(queue: Queue, lake: Path):
    queue.send("x", delay=DAY, id="a", unique_for=DAY)
    assert queue.stats().pending == 1
    assert files(lake) == []


def test_message_that_waits_for_replicas_goes_to_redis(queue: Queue, lake: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(send, "REPLICA_TIMEOUT_MS", 1)
    with pytest.raises(NotReplicated):
        queue.send("x", delay=DAY, wait_replicas=1)
    assert (queue.stats().pending, files(lake)) == (1, [])


def test_loaded_message_is_not_found_in_the_lake_after_redis_has_forgotten_it(
    queue: Queue, redis_client: Any, lake: Path, clock: Clock
):
    queue.send("x", delay=DAY, id="a")
    clock.later(DAY)
    load(queue, lake)
    assert len(delivered(queue)) == 1
    redis_client.delete(*redis_client.keys("delayq:{jobs}:unique:*"))
    assert (queue.get("a"), queue.cancel("a"), queue.reschedule("a", delay=1)) == (None, "unknown", "unknown")


def test_middleware_sees_and_changes_deferred_messages(queue: Queue):
    seen: list[Any] = []

    @queue.middleware.before_send
    def note(outgoing: Outgoing) -> Outgoing:
        seen.append(outgoing.payload)
        return replace(outgoing, payload=outgoing.payload.upper())

    sent = queue.send("x", delay=DAY)
    queue.send_many([Outgoing("y", delay=DAY)])
    info = queue.get(sent.id)
    assert info is not None
    assert (seen, info.payload) == (["x", "y"], "X")


def test_message_that_cannot_be_sent_is_refused_and_nothing_is_written(queue: Queue, lake: Path):
    with pytest.raises(InvalidInput, match="NaN"):
        queue.send_many([Outgoing(1, delay=DAY), Outgoing(float("nan"), delay=DAY)])
    assert files(lake) == []


def test_every_queue_has_its_own_folder_whatever_its_name(redis_server: RedisServer, lake: Path, clock: Clock):
    for name in ("a/b", "..", "ümlaut %"):
        with Queue(name, url=redis_server.url, horizon=0, lake=lake, clock=clock) as queue:
            queue.send(name, delay=DAY, id="x")
            info = queue.get("x")
            assert info is not None
            assert info.payload == name
    assert len(files(lake)) == 3
    assert {path.parent.parent.parent for path in files(lake)} == {lake}


@pytest.mark.parametrize("options", [{"horizon": 60}, {"lake": "lake"}, {"horizon": -1, "lake": "lake"}])
def test_half_of_the_settings_are_refused(options: dict[str, Any]):
    with pytest.raises(InvalidInput, match="horizon"):
        Queue("jobs", **options)


def test_invalid_path_is_refused():
    with pytest.raises(InvalidInput, match="nowhere://lake"):
        Queue("jobs", horizon=60, lake="nowhere://lake")


def test_without_pyarrow_a_lake_is_refused_but_a_queue_works(redis_server: RedisServer):
    program = f"""
import sys
sys.modules["pyarrow"] = None
import delayq, delayq.aio
with delayq.Queue("jobs", url={redis_server.url!r}) as queue:
    print(queue.send("x", delay=10**6).created)
for kind in (delayq.Queue, delayq.aio.Queue):
    try:
        kind("jobs", horizon=60, lake="lake")
    except delayq.InvalidInput as error:
        print(error)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=250)
    refused = f"lake= needs pyarrow: {install('lake')}"
    assert result.stdout.splitlines() == ["True", refused, refused]


def test_async_api_does_the_same(redis_server: RedisServer, lake: Path, clock: Clock):
    async def run() -> None:
        async with AioQueue("jobs", url=redis_server.url, horizon=HORIZON, lake=lake, clock=clock) as queue:
            one = await queue.send("x", delay=DAY)
            two, near = await queue.send_many([Outgoing("y", delay=DAY, id="two"), Outgoing("z", delay=1)])
            states = [info.state for each in (one, two, near) if (info := await queue.get(each.id))]
            assert states == ["deferred", "deferred", "pending"]
            assert "waits in" in await queue.why(one.id)
            assert await queue.cancel(one.id) == "cancelled"
            assert await queue.reschedule("two", delay=2 * DAY) == "rescheduled"
            moved = await queue.get("two")
            assert moved is not None
            assert moved.due_at == from_ms(clock.ms + 2 * DAY * 1000)
            with pytest.raises(InvalidInput):
                await queue.reschedule("two")

    asyncio.run(run())


def test_full_queue_refuses_near_messages_and_the_lake_takes_far_ones(queue: Queue):
    queue.configure(max_length=1)
    messages = [Outgoing(n, id=f"{n}", delay=DAY if n % 2 else 0) for n in range(5)]
    with pytest.raises(QueueFull) as caught:
        queue.send_many(messages)
    assert (caught.value.unsent, caught.value.ids) == ([2, 4], ["2", "4"])
    assert [each.id for each in caught.value.sent] == ["0", "1", "3"]
    infos = [queue.get(each) for each in "01234"]
    assert [info and info.state for info in infos] == ["pending", "deferred", None, "deferred", None]
    with pytest.raises(QueueFull):
        queue.reschedule("1", delay=0)
    info = queue.get("1")
    assert info is not None
    assert info.state == "deferred"
