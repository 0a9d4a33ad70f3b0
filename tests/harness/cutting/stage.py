"""A queue whose operations are called while their connection is cut, and its state, read by another connection."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import redis

from delayq import Queue, doctor
from delayq.errors import DuplicateMessage, NotReplicated, ServerError, StaleReceipt
from delayq.model.placement import STATES
from delayq.protocol.queue_keys import QueueKeys
from tests.harness.chaos.world import LASTING
from tests.harness.cutting.operations import HOUR, STALE, Operation, Stock, named, sent
from tests.harness.proxy import Cut, Decide, Proxy
from tests.harness.servers import PATIENT, RedisServer

SHARDS = 2  # the maximum in these tests
LATER_HOURS = 5  # by then, all leases have ended and all messages are due

Road = Callable[[str], contextlib.AbstractContextManager[Queue]]
"""Makes a queue whose server is at a URL."""


@dataclass(frozen=True)
class Seen:
    """The contents of a queue: where each message is, and its number of attempts before the running one."""

    places: dict[str, str]
    past: dict[str, int]

    def numbered(self) -> dict[str, str]:
        """The places, with random ids replaced by numbers."""
        chosen = {id: place for id, place in self.places.items() if named(id) == id or id == "paused"}
        others = sorted(place for id, place in self.places.items() if id not in chosen)
        return chosen | {f"*{number}": place for number, place in enumerate(others)}


@dataclass(frozen=True)
class Played:
    """A called operation: its result or error, and the contents of the queue before and after."""

    queue: Queue
    stock: Stock
    result: Any
    error: ServerError | None
    before: Seen
    after: Seen


class At:
    """Cuts at one command: the `number`th of its name."""

    def __init__(self, name: str, number: int, cut: Cut) -> None:
        self.name = name
        self.number = number
        self.cut = cut
        self._left = number

    def __call__(self, name: str) -> Cut | None:
        self._left -= name == self.name
        return self.cut if name == self.name and self._left == 0 else None

    def __str__(self) -> str:
        return f"{self.cut.way} {self.name} {self.number}{', for good' if self.cut.for_good else ''}"


class Stage:
    """A server, emptied for each call, a proxy in front of it, and a direct connection.

    Args:
        road: makes the queues that go through the proxy.
    """

    def __init__(self, server: RedisServer, proxy: Proxy, road: Road) -> None:
        self.proxy = proxy
        self.raw: Any = server.client()
        self._road = road
        self.direct = Queue("jobs", redis=self.raw, shards=None)
        later = Queue("jobs", redis=self.raw, shards=None, clock=lambda: (time.time() + LATER_HOURS * HOUR) * 1000)
        self._later = later

    def begin_anew(self) -> None:
        """Delete everything."""
        self.raw.flushall()
        for queue in (self.direct, self._later):
            queue._context.is_recorded = False  # otherwise they would report that their data are lost

    @contextlib.contextmanager
    def played(self, operation: Operation, decide: Decide) -> Iterator[Played]:
        """Call an operation on a new queue; the connection is intact again when this returns."""
        self.proxy.decide = lambda _: None
        self.begin_anew()
        with contextlib.ExitStack() as opened:

            def fresh() -> Queue:
                return opened.enter_context(self._road(self.proxy.url))

            queue = fresh()
            stock = operation.fill(queue, fresh)
            operation.first(queue)
            before = self.seen()
            result: Any = None
            error = None
            self.proxy.passed.clear()
            self.proxy.cuts, self.proxy.decide = 0, decide
            try:
                result = say(lambda: operation.run(queue, stock))
            except ServerError as failure:
                error = failure
            finally:
                self.proxy.decide = lambda _: None
                self.proxy.mend()
            yield Played(queue, stock, result, error, before, self.seen())

    def seen(self) -> Seen:
        """Read everything, bypassing the proxy."""
        now = time.time() * 1000
        places: dict[str, str] = {}
        past: dict[str, int] = {}
        for keys in (QueueKeys("delayq", "jobs", number) for number in range(SHARDS)):
            pipe = self.raw.pipeline(transaction=False)
            for state in STATES:
                pipe.zrange(keys.state(state), 0, -1, withscores=True)
            pipe.hgetall(keys.attempts)
            pipe.smembers(keys.cancelled)
            pipe.hget(keys.meta, "paused")
            *held, attempts, cancelled, paused = pipe.execute()
            for state, members in zip(STATES, held, strict=True):
                for raw, score in members:
                    hours = max(0, round((score - now) / 1000 / HOUR))
                    place = f"{state}+{hours}h{' cancelled' if raw in cancelled else ''}"
                    places[raw.decode()] = f"{places.get(raw.decode(), '')}{place}"
            past |= {raw.decode(): int(value.split(b".")[0]) for raw, value in attempts.items()}
            if paused:
                places["paused"] = "paused"
        return Seen(places, past)

    def assert_in_order(self) -> None:
        """Check that the doctor finds nothing and the counters add up."""
        report = doctor.examine(self.direct)
        assert report.healthy, [str(finding) for finding in report.errors]
        assert self.direct.stats().missing == 0

    def assert_all_comes(self, seen: Seen) -> None:
        """Check that every message is delivered once more when due, with its attempts counted, and nothing is left."""
        inside = {id: place for id, place in seen.places.items() if not place.startswith(("garbage", "paused"))}
        due = {id: 1 + seen.past.get(id, 0) + place.startswith("unack") for id, place in inside.items()}
        due = {id: attempt for id, attempt in due.items() if not inside[id].endswith("cancelled")}
        self._later.resume()
        came: Counter[str] = Counter()
        attempts: dict[str, int] = {}
        while self._later.dead.requeue() + len(messages := self._later.receive(500)):
            came.update(message.id for message in messages)
            attempts |= {message.id: message.attempt for message in messages}
            assert all(self._later.ack(messages))
        assert came == dict.fromkeys(due, 1)
        assert {id: attempt for id, attempt in attempts.items() if due[id] != attempt} == {}
        self._later.collect_garbage()
        assert self._later.stats().missing == 0
        left = [key for key in self.raw.keys("delayq:*") if not key.endswith(LASTING)]
        ending = {key for key in left if (b":unique:" in key or b":claim:" in key) and self.raw.pttl(key) != -1}
        assert set(left) - ending == set()

    def close(self) -> None:
        self._later.close()
        self.direct.close()
        self.raw.close()


def say(call: Callable[[], Any]) -> Any:
    """Return the result of a call, including errors that are answers."""
    try:
        return call()
    except StaleReceipt:
        return STALE
    except (DuplicateMessage, NotReplicated) as error:
        return [(type(error).__name__, False), *sent(*error.sent)]


def by_url(url: str) -> Queue:
    return Queue("jobs", url=url)


@contextlib.contextmanager
def by_client(url: str) -> Iterator[Queue]:
    with redis.Redis.from_url(url, **PATIENT) as client, Queue("jobs", redis=client) as queue:
        yield queue


def by_url_with_shards(url: str) -> Queue:
    return Queue("jobs", url=url, shards=SHARDS)


def by_cluster(url: str) -> Queue:
    return Queue("jobs", url=url.replace("redis://", "redis+cluster://"))
