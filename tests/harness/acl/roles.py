"""What a producer, a consumer, an observer and an administrator must be able to do, as stories.

A story gets a queue as the user sees it (`mine`), and one with all rights (`root`), which prepares or checks what is
not part of the user's role. Any exception makes it fail.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias
from unittest.mock import patch

from delayq.cli.send.file import send_file
from msgspec.structs import replace

from delayq import Outgoing, Queue, doctor
from delayq.errors import DuplicateMessage, NotReplicated, QueueFull
from delayq.operations import garbage, key_slots, outbox, schedule_chain
from delayq.transport import fast_socket
from delayq.transport.bell_source import BellSource
from delayq.transport.listener import BellListener
from tests.harness.acl.telling import act, assert_whole, forget_scripts, ring, scar, shards

Story: TypeAlias = Callable[[Queue, Queue], None]


def sends(mine: Queue, root: Queue) -> None:
    """Everything that `send` and `send_many` can do; an id may be free, taken in any state, or garbage."""
    forget_scripts(root)
    mine.send("x")
    ring(root)
    forget_scripts(root)
    mine.send("x", id="a", delay=60)
    mine.send_many([Outgoing(n, id=f"n{n}", delay=60) for n in range(3)])
    assert not mine.send("x", id="a").created
    with contextlib.suppress(DuplicateMessage):
        mine.send("x", id="a", on_conflict="error")
    mine.send("x", id="u", delay=60, unique_for=60)
    mine.send("y", id="a", on_conflict="replace")
    scar(root, "a")
    mine.send("z", id="a", on_conflict="replace")
    assert_whole(root)
    root.cancel("a")
    assert mine.send("x", id="a").created
    assert_whole(root)
    sends_within_a_limit(mine, root)


def sends_within_a_limit(mine: Queue, root: Queue) -> None:
    """Send to a queue with a `max_length`, and be refused."""
    if len(root._context.shards) > 1:
        return
    root.purge()
    root.configure(max_length=3)
    mine.send("x", delay=60)
    mine.send("x", id="v", delay=60, unique_for=60)
    mine.send("y", id="r", delay=60, on_conflict="replace")
    for on_conflict in ("ignore", "replace"):
        with contextlib.suppress(QueueFull):
            mine.send("x", id="b", on_conflict=on_conflict)
    assert root.get("b") is None
    root.configure(max_length=None)
    assert_whole(root)


def corrects(mine: Queue, root: Queue) -> None:
    """Cancel and reschedule messages in every state."""
    root.send("x", id="a", delay=60)
    root.receive()
    assert mine.reschedule("a", delay=1) == "rescheduled"
    assert mine.now("a") == {"a": "rescheduled"}
    ring(root)
    assert mine.cancel("a") == "cancelled"
    root.send("x", id="b")
    assert [message.id for message in root.receive()] == ["b"]
    assert mine.cancel("b") == "in_flight"
    root.send("x", id="c")
    for scripts in root._context.shards:
        act(root, scripts.pending_to_ready(), scripts.ready_to_unack(1, 60_000, "c", "a" * 32))  # as a consumer does
    assert mine.cancel("c", running=True) == "stopping"
    moved = root.schedules.add("tick", "@daily").next_id or ""
    forget_scripts(root)
    assert mine.reschedule(moved, delay=10**8) == "rescheduled"
    following = root.schedules.get("tick")
    assert following is not None
    assert following.next_id != moved
    assert_whole(root)


def confirms(mine: Queue, root: Queue) -> None:
    """A send that waits for replicas, here for a missing one."""
    del root
    with contextlib.suppress(NotReplicated):
        mine.send("x", wait_replicas=1)


def receives(mine: Queue, root: Queue) -> None:
    """Receive messages, and settle them in every way."""
    forget_scripts(root)
    ends = ("acked", "cancelled", "extended", "gone", "nacked", "rejected", "released")
    root.send_many([Outgoing("x", id=name) for name in ends])
    root.send("x", id="late", expires_in=0.001)
    time.sleep(0.002)  # until it has expired
    forget_scripts(root)
    messages = {message.id: message for message in mine.receive(20)}
    assert sorted(messages) == sorted(ends)
    act(mine, mine._context.shards[0].fitting(ends, 1))  # as before a fetch of large ones
    for name in ("cancelled", "gone"):
        root.cancel(name)
    messages["acked"].ack()
    messages["cancelled"].nack()
    messages["gone"].ack()
    messages["extended"].extend(60)
    messages["rejected"].reject("unwanted", error="broken")
    messages["released"].release()
    messages["nacked"].nack(delay=0, error="broken")
    redis, keys = shards(root), root._context.shards[0].keys
    root.send("x", id="bare")
    redis.delete(keys.message("bare"))
    again = mine.receive(20)
    assert sorted(message.id for message in again) == ["nacked", "released"]
    assert mine.ack(again) == [True, True]
    messages["extended"].ack()
    assert (root.stats().dead, root.stats().expired) == (2, 1)
    assert_whole(root)


def shares(mine: Queue, root: Queue) -> None:
    """Receive messages with limited keys, settle them, receive the held back ones, and recover lost slots."""
    mine._context.settings = replace(mine._context.settings, concurrency_key=lambda _: "k")
    forget_scripts(root)
    root.stats()
    shards(root).hset(root._context.shards[0].keys.meta, "per_key", 1)
    root.send_many([Outgoing("x", id=name) for name in ("a", "b", "c")])
    (message,) = mine.receive()
    root.cancel("b")
    message.ack()
    (message,) = mine.receive()
    assert message.id == "c"
    shards(root).delete(mine._context.shards[0].keys.unack)
    mine.execute(key_slots.look_through)
    assert not shards(root).exists(mine._context.shards[0].keys.slots)


def chains(mine: Queue, root: Queue) -> None:
    """Send follow-ups with an ack: new ones, and ids that exist in any state."""
    forget_scripts(root)
    root.send_many([Outgoing("x", id=name) for name in ("a", "b", "c")])
    messages = {message.id: message for message in mine.receive()}
    messages["b"].reject("unwanted", error="broken")
    forget_scripts(root)
    root.cancel("a")
    again = Outgoing("y", id="b", on_conflict="replace")
    messages["a"].ack(then=[again, Outgoing("z"), Outgoing("z", id="c", on_conflict="replace")])
    ring(root)
    assert root.stats().pending == 3
    assert_whole(root)


def recovers(mine: Queue, root: Queue) -> None:
    """Reclaim messages of lost consumers, discard expired ones, collect garbage."""
    root.send_many([Outgoing("x", id="a"), Outgoing("x", id="b"), Outgoing("x", id="c", delay=60)])
    root.receive(lease=0.001)
    root.cancel("b")
    root.cancel("c")
    time.sleep(0.002)  # until the leases have ended
    act(mine, *(scripts.unack_to_retry() for scripts in mine._context.shards))
    assert mine.execute(garbage.collect) == 2
    (message,) = mine.receive()
    message.reject("unwanted")
    act(mine, mine._context.shards[0].purge("dead"))
    mine.execute(garbage.purge_old)
    mine.execute(garbage.collect)
    assert root.stats().garbage == 0
    assert_whole(root)


def idles(mine: Queue, root: Queue) -> None:
    """Wait: plan the sleep, hold the timer, listen to the bell, and stop listening."""
    root.send("x", delay=60)
    keys = mine._context.shards[0].keys
    act(mine, mine._context.shards[0].plan_sleep("me", 60_000), mine._context.shards[0].poll_idle("me", 60_000))
    shards(root).zadd(keys.consumers, {"long ago": 1})
    runs = {"took:0": 1, "task:acked:welcome": 1}
    assert mine._executor.run([mine._context.shards[0].heartbeat("me", "{}", runs)]) == [1]
    act(mine, mine._context.shards[0].deregister("me", {"took:0": 1}))
    samples(mine, root)
    assert shards(root).exists(keys.timer)
    shards(root).delete(keys.bell, keys.timer)
    act(mine, mine._context.shards[0].ring())
    ring(root)
    bell = BellListener(mine._executor.client, BellSource(keys.bell))
    bell.listen()
    bell.stop_listening()
    assert bell.fileno() != -1
    bell.close()
    assert mine.receive(wait=0.01) == []


def samples(mine: Queue, root: Queue) -> None:
    """Take samples, and delete those taken before the server's clock was set back."""
    root.send("x", delay=60)
    far = {"s": "of a time that the server's clock has not reached"}
    shards(root).xadd(root._context.shards[0].keys.samples_minute, far, "9999999999999-0")
    forget_scripts(root)
    assert mine.sample()
    assert [sample.stats.pending for sample in root.samples()] == [root.stats().pending]


def keeps_limits(mine: Queue, root: Queue) -> None:
    """Use a queue with limits given to the constructor: receive what is allowed, release, wait for the next."""
    forget_scripts(root)
    mine.configure(rate="2/d", concurrency=3)
    ring(root)
    root.send_many([Outgoing(n) for n in range(4)])
    first, second = mine.receive()
    first.release()
    shards(root).zadd(mine._context.shards[0].keys.rate, {"long ago": 1})
    assert len(mine.receive(wait=0.01)) == 1
    second.ack()
    assert mine.receive(wait=0.01) == []
    assert_whole(root)


def observes(mine: Queue, root: Queue) -> None:
    """Inspect everything."""
    root.send_many([Outgoing("x", id="a"), Outgoing("x", id="b", max_retries=0), Outgoing("x", id="c", delay=60)])
    first, second = root.receive()
    first.nack(delay=60, error="broken")
    second.reject("unwanted")
    root.send("x", id="d")
    root.receive(lease=60)
    root.cancel("d")
    forget_scripts(root)
    assert mine.stats().dead == 1
    forget_scripts(root)
    info = mine.get("a")
    assert info is not None
    assert (info.state, info.error, info.payload) == ("retry", "broken", "x")
    assert [each.reason for each in mine.dead.list()] == ["unwanted"]
    assert [each.id for each in mine.peek("pending")] == ["c"]
    assert [each.count for each in mine.upcoming(120, 120)] == [2]
    root.sample()
    assert mine.samples()
    assert [consumer.concurrency for consumer in mine.consumers()] == [0]
    assert mine.why("c").startswith("c is not due until")


def examines(mine: Queue, root: Queue) -> None:
    """Run the doctor on a queue."""
    observes(mine, root)
    report = doctor.examine(mine)
    assert report.healthy, report.findings
    assert report.messages == 4


def manages(mine: Queue, root: Queue) -> None:
    """Set limits, pause and resume, purge, bury, and requeue dead letters, unchanged or edited."""
    forget_scripts(root)
    mine.configure(rate="100/s", concurrency=100)
    mine.configure(rate=None)
    assert mine.configuration().concurrency == 100
    forget_scripts(root)
    mine.pause()
    forget_scripts(root)
    mine.resume()
    root.send_many([Outgoing("x", id=f"m{n}") for n in range(4)])
    for message in root.receive():
        message.reject("unwanted")
    assert mine.dead.requeue("m0") == 1
    ring(root)
    assert mine.dead.redrive(newer_than=60, reason="unwanted", error="b", headers={"a": "b"}).moved == 0
    assert mine.dead.edit("m1", "y")
    forget_scripts(root)
    assert mine.dead.bury("m1", "unwanted") == "buried"
    assert mine.dead.requeue("m1") == 1
    assert mine.dead.requeue() == 2
    for message in root.receive():
        message.nack(delay=60, error="broken")
    assert mine.purge() == 4
    assert mine.stats().garbage == 0
    assert_whole(root)


def repairs(mine: Queue, root: Queue) -> None:
    """Repair a queue in every way that the doctor knows."""
    redis, keys = shards(root), root._context.shards[0].keys
    root.send_many([Outgoing("x", id=name, delay=60) for name in ("twice", "bare", "far", "well")])
    root.send("x", id="lost")
    root.receive()
    redis.zadd(keys.unack, {"lost": 1000})  # its lease ended long ago
    redis.zadd(keys.dead, {"twice": 1})
    redis.delete(keys.message("bare"))
    redis.zadd(keys.pending, {"far": 1e18})
    redis.set(keys.message("stray"), "x")
    redis.hset(keys.attempts, "nobody", "1.0.0.0")
    redis.hset(keys.errors, "nobody", "x")
    redis.hset(keys.reasons, "nobody", "x")
    redis.sadd(keys.cancelled, "nobody")
    redis.hdel(keys.meta, "shards")
    redis.hincrby(keys.stats, "sent", 5)
    assert doctor.examine(mine, repair=True).healthy
    assert doctor.examine(root).healthy


def schedules(mine: Queue, root: Queue) -> None:
    """Manage schedules: add, change, pause, resume, list, run and remove them."""
    forget_scripts(root)
    root.send("x", delay=10**8)
    ring(root)
    mine.schedules.add("tick", "@hourly")
    mine.schedules.add("tick", "@daily")
    ring(root)
    assert mine.schedules.pause("tick")
    assert mine.schedules.resume("tick")
    assert [each.name for each in mine.schedules.list()] == ["tick"]
    assert len(mine.schedules.next(2)) == 2
    if len(root._context.shards) == 1:
        root.configure(max_length=1000)
    mine.schedules.run_now("tick")
    mine.send("x", id="named")  # looks like a run_now that is repeated after its reply was lost
    assert mine.schedules.remove("tick")
    assert mine.schedules.get("tick") is None
    first = mine.schedules.add("tock", "@hourly").next_id or ""
    mine.schedules.remove("tock")
    root.send("x", id=first, delay=10**8)
    assert mine.schedules.add("tock", "@hourly").next_id != first
    assert_whole(root)


def recurs(mine: Queue, root: Queue) -> None:
    """Continue schedules, including one whose occurrence is gone."""
    root.schedules.add("tick", "every 1d")
    redis, keys = shards(root), root._context.shards[0].keys
    root.purge("pending")
    redis.zadd(keys.armed, {"tick": 1000})
    assert mine.execute(schedule_chain.revive) == 1
    (waiting,) = root.peek("pending")
    redis.zadd(keys.pending, {waiting.id: 1000})
    (message,) = mine.receive()
    assert len(root.peek("pending")) == 1
    message.ack()
    assert_whole(root)


def lasts(mine: Queue, root: Queue) -> None:
    """Reuse a connection that was idle for half a minute: a PING checks whether it is still open."""
    del root
    with patch.object(fast_socket, "_CHECK_AFTER_SECONDS", -1.0):
        for _ in range(2):
            act(mine, mine._context.shards[0].open_queue(1, create=False))


def sends_a_file(mine: Queue, root: Queue) -> None:
    """What ``delayq send --file`` does."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "messages.jsonl")
        path.write_text('{"payload": 1, "delay": 60}\n{"payload": 2}\n')
        for _ in range(2):
            send_file(mine, path, resume=False, as_json=True)
        with path.open("a") as file:
            file.write('{"payload": 3}\n')
        send_file(mine, path, resume=True, as_json=True)
    assert root.stats().sent == 5
    assert_whole(root)


def relays(mine: Queue, root: Queue) -> None:
    """Send rows of an outbox, some of whose messages exist already, and let their reservations end."""
    forget_scripts(root)
    mine.execute(outbox.send_rows, due_rows(mine, [Outgoing("x")]))
    ring(root)
    root.send("x", id="taken", delay=60)
    new = [Outgoing("x", delay=60), Outgoing("x", id="a", delay=60, headers={"k": "v"}), Outgoing("x", id="taken")]
    rows = due_rows(mine, new)
    for _ in range(2):  # again as after a failure of the database
        mine.execute(outbox.send_rows, rows)
    assert root.stats().sent == 4
    ids = [row.options.id or row.id for row in rows]
    mine.execute(outbox.ping, ids)
    mine.execute(outbox.release, [(each, row.id) for each, row in zip(ids, rows, strict=True)])
    assert_whole(root)
    if len(root._context.shards) == 1:
        root.configure(max_length=1)
        [(full, _)] = mine.execute(outbox.send_rows, due_rows(mine, [Outgoing("x")]))
        assert full == 1
        root.configure(max_length=None)
    assert_whole(root)


def due_rows(queue: Queue, messages: list[Outgoing]) -> list[outbox.DueRow]:
    """Return messages as rows that a relay has read."""
    made = queue.execute(outbox.rows_of, messages, True)
    return [outbox.DueRow(each.id, each.message, outbox.RowOptions.read(each.options), 0) for each in made]


def notices_losses(mine: Queue, root: Queue) -> None:
    """Ask whether messages are on the disk, and notice a restart."""
    del root
    mine.execute(outbox.send_rows, due_rows(mine, [Outgoing("x", delay=60)]))
    [server] = mine.execute(outbox.synced, {})
    assert server.is_safe
    assert not server.identity.startswith(outbox.UNKNOWN)
    [(_, before)] = mine.execute(outbox.send_rows, due_rows(mine, [Outgoing("x", delay=60)]))
    assert before.is_safe


STORIES: dict[str, Story] = {
    "relays": relays,
    "notices_losses": notices_losses,
    "sends": sends,
    "sends_a_file": sends_a_file,
    "confirms": confirms,
    "corrects": corrects,
    "receives": receives,
    "keeps_limits": keeps_limits,
    "shares": shares,
    "chains": chains,
    "recovers": recovers,
    "idles": idles,
    "observes": observes,
    "examines": examines,
    "manages": manages,
    "repairs": repairs,
    "samples": samples,
    "schedules": schedules,
    "recurs": recurs,
    "lasts": lasts,
}
