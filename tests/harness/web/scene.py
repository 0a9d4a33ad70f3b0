"""A scene: an hour of a shop's queues, two of them in trouble, simulated in a second and the same each time.

Each step is what producers and consumers do at a simulated time; only the library writes to Redis.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from delayq import Outgoing, Queue, Topic, __version__
from delayq.model.message import Message
from delayq.protocol.operation import execute

MINUTE_MS, MINUTES = 60_000, 60
SEED = 8


class Trade(NamedTuple):
    """The activity of a queue.

    Attributes:
        rate: messages per minute.
        late_ms, took_ms: the median lateness, and the median handler time.
        failing: the share of messages that fail; of these, twice that share is rejected.
        consumers: the number of consumers.
        until: the minute after which the queue has no consumer.
    """

    rate: int
    late_ms: int = 3
    took_ms: int = 90
    failing: float = 0.0
    consumers: int = 1
    until: int = MINUTES + 1


TRADES = {
    "emails": Trade(42, took_ms=180, consumers=3),
    "invoices": Trade(6, late_ms=8, took_ms=700, failing=0.2, consumers=1),
    "reminders": Trade(18, late_ms=2, took_ms=40, consumers=2),
    "thumbnails": Trade(26, late_ms=5, took_ms=420, consumers=4),
    "webhooks": Trade(30, late_ms=40, took_ms=300, failing=0.04, consumers=2, until=52),
}
ERRORS = ("HTTP 503: the shop does not answer", "HTTP 503: try again later", "KeyError: 'vat_id'")


class Scene:
    """Lets time pass.

    Args:
        url: the URL of an empty server.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._chance = random.Random(SEED)  # the same each time, and not a secret
        self._end_ms = time.time() * 1000 - 1000  # a second for its last minute
        self._now_ms = self._end_ms

    def play(self) -> None:
        """Simulate all queues and topics."""
        for name, trade in TRADES.items():
            with Queue(name, url=self._url, clock=lambda: f"{self._now_ms:.0f}", max_retries=1) as queue:
                self._live(queue, trade)
        with Topic("orders", url=self._url) as topic:
            self._publish(topic)

    def _live(self, queue: Queue, trade: Trade) -> None:
        self._now_ms = self._end_ms - MINUTES * MINUTE_MS
        if queue.name in {"emails", "invoices"}:
            queue.configure(events=True)
        if queue.name == "emails":
            queue.schedules.add("newsletter", "0 7 * * 1", {"list": "all"}, timezone="Europe/Berlin")
            queue.schedules.add("digest", "30 5 * * *", {"list": "staff"})
        queue.send_many(self._later(queue.name))
        for minute in range(MINUTES + 1):
            self._live_minute(queue, trade, minute)
        if trade.until > MINUTES:
            queue.send_many(self._orders(queue.name, MINUTES, 3))
            self._appear(queue, trade, {}, queue.receive(3))

    def _live_minute(self, queue: Queue, trade: Trade, minute: int) -> None:
        wave = 1 + 0.35 * math.sin(minute / 9) + self._chance.uniform(-0.15, 0.15)
        start_ms, many = self._end_ms + (minute - MINUTES) * MINUTE_MS, round(trade.rate * wave)
        self._now_ms = start_ms
        queue.send_many(self._orders(queue.name, minute, many))
        if minute < trade.until:
            for _ in range(3):
                self._now_ms += trade.late_ms * self._chance.lognormvariate(0, 0.6)
                self._handle(queue, trade, queue.receive(max(many // 3, 1)))
            self._handle(queue, trade, queue.receive(many + 9))
            took = Counter(self._took(trade) for _ in range(many))
            self._appear(queue, trade, took)
        if minute < MINUTES:
            queue.sample()

    def _took(self, trade: Trade) -> int:
        """The bucket of a handler's time."""
        return int(trade.took_ms * self._chance.lognormvariate(0, 0.7)).bit_length()

    def _handle(self, queue: Queue, trade: Trade, messages: list[Message]) -> None:
        well = [each for each in messages if self._chance.random() >= trade.failing]
        for message in set(messages) - set(well):
            error = self._chance.choice(ERRORS)
            if self._chance.random() < 2 * trade.failing:
                message.reject("the order cannot be billed", error=error)
            else:
                message.nack(delay=20 * 60 - 0.4, error=error)
        queue.ack(well)

    def _appear(self, queue: Queue, trade: Trade, took: Mapping[int, int], held: Sequence[Message] = ()) -> None:
        runs = {f"took:{bucket}": count for bucket, count in took.items()}
        for number in range(trade.consumers):
            fields = {"host": f"worker-{number + 1}", "pid": 4100 + 7 * number, "version": __version__}
            fields |= {"age": 9 * 3_600_000, "concurrency": 8, "handled": 9_812 + 60 * number, "failed": 14}
            mine = held[number :: trade.consumers]
            fields |= {"holds": [[each.id, int(self._now_ms), each.attempt] for each in mine], "count": len(mine)}
            note = queue._context.shards[0].heartbeat(
                f"worker-{number + 1}-a{number}", json.dumps(fields).encode(), runs
            )
            queue._executor.execute(execute(note))
            runs = {}

    def _orders(self, name: str, minute: int, many: int) -> Iterator[Outgoing]:
        for number in range(many):
            order = 48_000 + minute * 60 + number
            payload = {"order": order, "to": f"customer-{order % 977}@example.org", "template": "shipped"}
            yield Outgoing(payload, id=f"{name[:-1]}-{order}", headers={"tenant": ("acme", "globex")[order % 2]})

    def _later(self, name: str) -> Iterator[Outgoing]:
        """Send pending messages, due within minutes, hours and days."""
        for number in range({"reminders": 900, "emails": 240}.get(name, 12)):
            seconds = MINUTES * 60 + self._chance.expovariate(1 / 9000)
            payload = {"customer": 7000 + number, "text": "Your trial ends tomorrow"}
            yield Outgoing(payload, id=f"{name[:-1]}-later-{number}", delay=seconds, headers={"tenant": "acme"})

    def _publish(self, topic: Topic) -> None:
        billing, shipping = topic.group("billing", start="0"), topic.group("shipping", start="0")
        for order in range(48_000, 48_024):
            topic.publish({"order": order, "total": f"{order % 89}.90 EUR"}, headers={"tenant": "acme"})
        billing.ack(billing.poll("billing-1", 16))
        shipping.bury(shipping.poll("shipping-2", 5)[0], "shipping-2", "rejected", "KeyError: 'street'")
