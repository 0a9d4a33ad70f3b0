"""Every queue operation for the tests that cut its connection: on what it is called, and what it may return."""

from __future__ import annotations

import datetime as dt
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from delayq import Message, Outgoing, Queue, SentMessage, doctor
from delayq.types import MessageInfo

HOUR = 3600.0
NEAR = "new-4"  # on the shard of held-0
_CHOSEN = re.compile(r"(held|dead|due|new)-\d|last|failed|later|gone")


@dataclass(frozen=True)
class Stock:
    """The contents of a queue before an operation is called.

    Attributes:
        held: deliveries that the queue itself has received, by id: held-0, held-1, and last (its last attempt).
        fresh: makes another queue of the same name, which has not connected yet.
    """

    held: dict[str, Message]
    fresh: Callable[[], Queue]


def fill(queue: Queue, fresh: Callable[[], Queue]) -> Stock:
    """Put messages in every state into a queue; running ones have an hour left."""
    first = [Outgoing(id, id=id) for id in ("held-0", "held-1", "dead-0", "dead-1", "failed")]
    queue.send_many([*first, Outgoing("last", id="last", max_retries=0)])
    held = {message.id: message for message in queue.receive(10, lease=HOUR)}
    held.pop("dead-0").reject()
    held.pop("dead-1").reject()
    held.pop("failed").nack(HOUR)
    due = [Outgoing(id, id=id) for id in ("due-0", "due-1", "due-2")]
    queue.send_many([*due, Outgoing("later", id="later", delay=HOUR), Outgoing("gone", id="gone", delay=HOUR)])
    queue.cancel("gone")
    return Stock(held, fresh)


def fill_a_little(queue: Queue, fresh: Callable[[], Queue]) -> Stock:
    """One message runs, one has failed, one waits, so that an examination is short."""
    queue.send_many([Outgoing(id, id=id) for id in ("held-0", "failed")])
    held = {message.id: message for message in queue.receive(10, lease=HOUR)}
    held.pop("failed").nack(HOUR)
    queue.send("later", id="later", delay=HOUR)
    return Stock(held, fresh)


@dataclass(frozen=True)
class Operation:
    """An operation that a program calls.

    Attributes:
        run: calls it; returns the part of its result that is the same each time.
        covers: the public methods that it covers.
        instead: whether it may return the first where the second is the truth: after a lost reply, a call is repeated
            automatically and finds its work done.
        between: where it may leave a message when it fails, beside the old and the new place.
        again: whether it can be called again after a failure, with the same effect as an undisturbed call.
        fill: fills the queue before.
        first: is called after that, with an intact connection.
        whole: whether the queue is healthy before.
        timed: whether the commands it sends depend on the time.
    """

    run: Callable[[Queue, Stock], Any]
    covers: tuple[str, ...]
    instead: Callable[[Any, Any], bool] = operator.eq
    between: frozenset[str] = field(default_factory=frozenset)
    again: bool = True
    fill: Callable[[Queue, Callable[[], Queue]], Stock] = fill
    first: Callable[[Queue], object] = lambda _: None
    whole: bool = True
    timed: bool = False


def named(id: str) -> str:
    """Return an id, or "*" for a random one."""
    return id if _CHOSEN.fullmatch(id) else "*"


def sent(*results: SentMessage) -> list[tuple[str, bool]]:
    return [(named(result.id), result.created) for result in results]


def known(info: MessageInfo | None) -> Any:
    return None if info is None else (info.id, info.state, info.attempts, info.reason, info.payload)


def counts(queue: Queue) -> Any:
    stats = queue.stats()
    states = (stats.pending, stats.ready, stats.unack, stats.retry, stats.dead, stats.garbage)
    return states, stats.sent, stats.delivered, stats.acked, stats.nacked, stats.died, stats.cancelled


def settle(how: Callable[[Message], None], id: str = "held-0") -> Callable[[Queue, Stock], None]:
    return lambda _, stock: how(stock.held[id])


def send(**options: Any) -> Callable[[Queue, Stock], Any]:
    return lambda queue, _: sent(queue.send("x", **options))


def send_several(queue: Queue, _: Stock) -> Any:
    """Calls of all kinds, more than fit into a round trip: see `small` in the test."""
    several = [Outgoing(n, id=f"new-{n}", delay=HOUR) for n in range(5)]
    several += [Outgoing("x", id="dead-0"), Outgoing("x", id="failed", on_conflict="replace", delay=2 * HOUR)]
    return sent(*queue.send_many(several))


def send_team(queue: Queue, _: Stock) -> Any:
    """A group, on the shard of its first member: a repeated call finds it."""
    return sent(*queue.send_group([Outgoing("x", id="new-0", delay=HOUR)], Outgoing("y"), dead="continue").sents)


def only_one_soon(queue: Queue) -> None:
    queue.purge("pending")
    queue.send("x", id="new-0", delay=0.015)


def brought(messages: list[Message]) -> list[Any]:
    return [(message.id, message.attempt, message.payload) for message in messages]


def at(hours: float) -> dt.datetime:
    return dt.datetime.now(dt.UTC) + dt.timedelta(hours=hours)


def forget_scripts(queue: Queue) -> None:
    """As after a server restart: scripts called by digest have to be sent again in full."""
    client: Any = queue._executor.client
    client.script_flush()


def forget_samples(queue: Queue) -> None:
    """Delete the sample that a receive has taken, because a test cannot choose when the next minute starts."""
    client: Any = queue._executor.client
    for scripts in queue._context.shards:
        client.delete(scripts.keys.samples_minute)
        client.delete(scripts.keys.samples_ten)


def sample_once(queue: Queue) -> None:
    forget_samples(queue)
    assert queue.sample()


def wound(queue: Queue) -> None:
    """Put a message into two structures, remove another from its structure, and change a counter."""
    client: Any = queue._executor.client
    keys = queue._context.shard("later").keys
    client.zadd(keys.ready, {"later": 1})
    client.hincrby(keys.stats, "acked", 2)
    client.zrem(queue._context.shard("failed").keys.retry, "failed")


STALE = "stale"


def stale(given: Any, wanted: Any) -> bool:
    """An ack or another outcome was refused, perhaps in part, because it was already done."""
    return given == STALE or (isinstance(given, list) and len(given) == len(wanted))


def found(given: Any, wanted: Any) -> bool:
    """A send has found its own message, and says that it did not create it."""
    return [id for id, _ in given] == [id for id, _ in wanted] and all(
        created <= it for (_, created), (_, it) in zip(given, wanted, strict=True)
    )


PROMOTED = frozenset({"ready+0h"})
DISCARDED = frozenset({"garbage+0h"})


def _configured(queue: Queue, _: Stock) -> str:
    queue.configure(rate="1000/s")
    return str(queue.configuration().rate)


OPERATIONS: dict[str, Operation] = {
    "first call": Operation(lambda _, stock: send(id="new-0")(stock.fresh(), stock), ("Queue.send",), found),
    "send": Operation(send(delay=HOUR), ("Queue.send",), again=False),
    "send with an id": Operation(send(id="new-0", delay=HOUR), ("Queue.send",), found),
    "send, scripts flushed": Operation(send(id="new-0", delay=HOUR), ("Queue.send",), found, first=forget_scripts),
    "send, ignore": Operation(send(id="later", on_conflict="ignore"), ("Queue.send",)),
    "send, replace": Operation(send(id="later", on_conflict="replace", delay=2 * HOUR), ("Queue.send",)),
    "send, replace what is new": Operation(send(id="new-0", on_conflict="replace"), ("Queue.send",), found),
    "send, replace what runs": Operation(send(id="held-0", on_conflict="replace"), ("Queue.send",)),
    "send, unique": Operation(send(id="new-0", unique_for=HOUR), ("Queue.send",), found),
    "send, unique or an error": Operation(send(id="new-0", unique_for=HOUR, on_conflict="error"), ("Queue.send",)),
    "send, error": Operation(send(id="new-0", on_conflict="error"), ("Queue.send",)),
    "send, error where it exists": Operation(send(id="later", on_conflict="error"), ("Queue.send",)),
    "send, confirmed": Operation(send(id="new-0", wait_replicas=1), ("Queue.send",), found),
    "send_group": Operation(send_team, ("Queue.send_group",), found),
    "group": Operation(lambda q, _: q.group("team"), ("Queue.group",)),
    "cancel_group": Operation(lambda q, _: q.cancel_group("nobody"), ("Queue.cancel_group",)),
    "send_many": Operation(send_several, ("Queue.send_many",), found),
    "send_delay_msg": Operation(lambda q, _: sent(q.send_delay_msg("x", HOUR)), ("Queue.send_delay_msg",), again=False),
    "send_schedule_msg": Operation(
        lambda q, _: sent(q.send_schedule_msg("x", at(1), id="new-0")), ("Queue.send_schedule_msg",), found
    ),
    "receive": Operation(lambda q, _: brought(q.receive(2)), ("Queue.receive",), between=PROMOTED, again=False),
    "receive, scripts flushed": Operation(
        lambda q, _: brought(q.receive(2)),
        ("Queue.receive",),
        between=PROMOTED,
        again=False,
        first=forget_scripts,
    ),
    "receive, in vain": Operation(
        lambda q, _: brought(q.receive(2, wait=0.01)),
        ("Queue.receive",),
        between=PROMOTED,
        first=Queue.pause,
        timed=True,
    ),
    "receive, waiting": Operation(
        lambda q, _: brought(q.receive(1, wait=20)),
        ("Queue.receive",),
        between=PROMOTED,
        again=False,
        first=only_one_soon,
        timed=True,
    ),
    "ack": Operation(settle(lambda m: m.ack()), ("Message.ack",), stale),
    "ack of one": Operation(lambda q, s: q.ack(s.held["held-0"]), ("Queue.ack",), stale),
    "ack of many": Operation(lambda q, s: q.ack(list(s.held.values())), ("Queue.ack",), stale),
    "ack, then": Operation(settle(lambda m: m.ack(then=[Outgoing("x", delay=HOUR)])), ("Message.ack",)),
    "ack, then by an id": Operation(
        settle(lambda m: m.ack(then=[Outgoing("x", id=NEAR, delay=HOUR)])), ("Message.ack",), stale
    ),
    "ack, then anew": Operation(
        settle(lambda m: m.ack(then=[Outgoing("x", id=m.id, delay=HOUR)])), ("Message.ack",), stale
    ),
    "ack, then replace": Operation(
        settle(lambda m: m.ack(then=[Outgoing("x", id="later", delay=2 * HOUR, on_conflict="replace")])),
        ("Message.ack",),
        stale,
    ),
    "ack, then error": Operation(
        settle(lambda m: m.ack(then=[Outgoing("x", id=NEAR, on_conflict="error")])), ("Message.ack",), stale
    ),
    "nack": Operation(settle(lambda m: m.nack(HOUR)), ("Message.nack",), stale),
    "nack of the last attempt": Operation(settle(lambda m: m.nack(), "last"), ("Message.nack",), stale),
    "extend": Operation(settle(lambda m: m.extend(2 * HOUR)), ("Message.extend", "Queue.extend")),
    "progress": Operation(settle(lambda m: m.progress(1)), ("Message.progress", "Queue.report")),
    "release": Operation(settle(lambda m: m.release()), ("Message.release",), stale),
    "reject": Operation(settle(lambda m: m.reject("why")), ("Message.reject",), stale),
    "cancel": Operation(lambda q, _: q.cancel("later"), ("Queue.cancel",)),
    "cancel of what runs": Operation(lambda q, _: q.cancel("held-0"), ("Queue.cancel",)),
    "cancel of what runs, to stop it": Operation(lambda q, _: q.cancel("held-0", running=True), ("Queue.cancel",)),
    "cancel of nothing": Operation(lambda q, _: q.cancel("nobody"), ("Queue.cancel",)),
    "bury": Operation(lambda q, _: q.dead.bury("later"), ("DeadLetters.bury",)),
    "reschedule": Operation(lambda q, _: q.reschedule("failed", delay=2 * HOUR), ("Queue.reschedule",)),
    "reschedule at": Operation(lambda q, _: q.reschedule("later", at=at(2)), ("Queue.reschedule",)),
    "now": Operation(lambda q, _: q.now(["failed", "later", "held-0", "nobody"]), ("Queue.now",)),
    "get": Operation(lambda q, _: known(q.get("later")), ("Queue.get",)),
    "history": Operation(lambda q, _: q.history("later"), ("Queue.history",)),
    "result": Operation(lambda q, _: q.result("later"), ("Queue.result",)),
    "why": Operation(lambda q, _: q.why("later").partition(" until ")[0], ("Queue.why",)),
    "peek": Operation(lambda q, _: sorted(map(known, q.peek("unack"))), ("Queue.peek",)),
    "page": Operation(lambda q, _: [known(info) for info in q.page("dead", limit=2).messages], ("Queue.page",)),
    "stats": Operation(lambda q, _: counts(q), ("Queue.stats",)),
    "usage": Operation(lambda q, _: q.usage().running, ("Queue.usage",)),
    "upcoming": Operation(
        lambda q, _: [bucket.count for bucket in q.upcoming(2 * HOUR, 2 * HOUR)], ("Queue.upcoming",)
    ),
    "consumers": Operation(lambda q, _: [each.pid for each in q.consumers()], ("Queue.consumers",)),
    "sample": Operation(lambda q, _: q.sample(), ("Queue.sample",), lambda given, _: not given, first=forget_samples),
    "samples": Operation(
        lambda q, _: [(each.stats.pending, each.stats.unack) for each in q.samples()],
        ("Queue.samples",),
        first=sample_once,
    ),
    "configure": Operation(_configured, ("Queue.configure",)),
    "configuration": Operation(lambda q, _: q.configuration(), ("Queue.configuration",)),
    "pause": Operation(lambda q, _: q.pause(), ("Queue.pause",)),
    "resume": Operation(lambda q, _: q.resume(), ("Queue.resume",), first=Queue.pause),
    "purge": Operation(lambda q, _: q.purge(), ("Queue.purge",), between=DISCARDED),
    "purge of one state": Operation(lambda q, _: q.purge("pending"), ("Queue.purge",), between=DISCARDED),
    "collect_garbage": Operation(lambda q, _: q.collect_garbage(), ("Queue.collect_garbage",)),
    "dead.list": Operation(lambda q, _: sorted(map(known, q.dead.list())), ("DeadLetters.list",)),
    "dead.causes": Operation(
        lambda q, _: {cause.reason: cause.count for cause in q.dead.causes().causes}, ("DeadLetters.causes",)
    ),
    "dead.requeue of all": Operation(lambda q, _: q.dead.requeue(), ("DeadLetters.requeue",)),
    "dead.requeue": Operation(lambda q, _: q.dead.requeue(["dead-0", "later"]), ("DeadLetters.requeue",)),
    "dead.redrive": Operation(
        lambda q, _: q.dead.redrive(reason="rejected", newer_than=HOUR).moved, ("DeadLetters.redrive",)
    ),
    "dead.edit": Operation(lambda q, _: q.dead.edit("dead-0", "x", delay=HOUR), ("DeadLetters.edit",)),
    "dead.purge": Operation(lambda q, _: q.dead.purge(), ("DeadLetters.purge",), between=DISCARDED),
    "dead.purge of old ones": Operation(
        lambda q, _: q.dead.purge(older_than=0), ("DeadLetters.purge",), between=DISCARDED
    ),
    "doctor": Operation(lambda q, _: doctor.examine(q).healthy, ("doctor.examine",), fill=fill_a_little),
    "doctor, repairing": Operation(
        lambda q, _: doctor.examine(q, repair=True).healthy,
        ("doctor.examine",),
        fill=fill_a_little,
        first=wound,
        whole=False,
    ),
}
