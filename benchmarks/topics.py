"""Topics, compared with raw redis-py pipelines on the same streams, records and batches."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import redis

from benchmarks.paired.samples import PairedRates, alternate
from benchmarks.server import BenchServer
from delayq import NewRecord, Topic
from delayq.topic_group import Group

BATCH = 500
GROUP, CONSUMER = "group", "consumer"
FIELD = b"e"

TITLES = {
    "publish": f"publish_many, compared with pipelines of {BATCH} XADD",
    "poll": f"poll by {BATCH}, compared with XREADGROUP COUNT {BATCH}",
    "ack": f"ack by {BATCH}, compared with XACK of {BATCH} ids",
    "all": "the three, one after another",
}

Times = dict[str, float]


@dataclass(frozen=True)
class Streams:
    """The targets: a topic, and a stream for redis-py.

    Attributes:
        payload: of every record.
        count: records per run.
    """

    topic: Topic
    client: Any
    payload: bytes
    count: int

    def by_topic(self) -> Times:
        """Publish, poll and ack with `Topic`, and read every payload; return the seconds of each."""
        group = self.topic.group(GROUP, start="0")
        publish, poll, ack = self._timed(
            lambda: self.topic.publish_many([NewRecord(self.payload) for _ in range(self.count)]),
            lambda: self._polled(group),
            lambda polled: [group.ack(batch) for batch in polled],
        )
        group.destroy()
        self.topic.trim(max_length=0, approximate=False)
        return {"publish": publish, "poll": poll, "ack": ack, "all": publish + poll + ack}

    def by_hand(self) -> Times:
        """Do the same with plain commands."""
        stream = f"raw-{secrets.token_hex(4)}"
        self.client.xgroup_create(stream, GROUP, "0", mkstream=True)
        publish, poll, ack = self._timed(
            lambda: self._added(stream),
            lambda: self._read(stream),
            lambda polled: [self.client.xack(stream, GROUP, *(each for each, _ in batch)) for batch in polled],
        )
        self.client.unlink(stream)
        return {"publish": publish, "poll": poll, "ack": ack, "all": publish + poll + ack}

    def _timed(
        self, publish: Callable[[], Any], poll: Callable[[], list[Any]], ack: Callable[[list[Any]], list[int]]
    ) -> tuple[float, float, float]:
        began = perf_counter()
        publish()
        published = perf_counter()
        polled = poll()
        read = perf_counter()
        acked = sum(ack(polled))
        end = perf_counter()
        if acked != self.count:
            raise RuntimeError(f"{self.count} records were published, {acked} acked: the figures are void")
        return published - began, read - published, end - read

    def _polled(self, group: Group) -> list[Any]:
        found = []
        while records := group.poll(CONSUMER, BATCH):
            for record in records:
                _ = record.payload
            found.append(records)
        return found

    def _added(self, stream: str) -> None:
        fields = {FIELD: self.payload}
        for start in range(0, self.count, BATCH):
            with self.client.pipeline(transaction=False) as pipeline:
                for _ in range(min(BATCH, self.count - start)):
                    pipeline.xadd(stream, fields)
                pipeline.execute()

    def _read(self, stream: str) -> list[Any]:
        found = []
        while reply := self.client.xreadgroup(GROUP, CONSUMER, {stream: ">"}, count=BATCH):
            ((_, entries),) = reply
            for _, fields in entries:
                _ = fields[FIELD]
            found.append(entries)
        return found


def rates(server: BenchServer, size: int, runs: int, records: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Return the rates of topics and of plain commands, measured in turn."""
    server.flush()
    with Topic("bench", url=server.url) as topic, redis.Redis.from_url(server.url) as client:
        streams = Streams(topic, client, b"x" * size, records)
        streams.by_topic()  # connects, and loads the scripts
        own: list[Times] = []
        raw: list[Times] = []
        alternate(lambda: _kept(own, streams.by_topic()), lambda: _kept(raw, streams.by_hand()), runs)
    found = {}
    for name, title in TITLES.items():
        paired = PairedRates([records / each[name] for each in own], [records / each[name] for each in raw])
        found[name] = paired.as_record()
        say(f"{title}: {paired.median:,.0f}/s, {paired.ratio:.2f} of plain commands")
    return found


def _kept(samples: list[Times], times: Times) -> float:
    samples.append(times)
    return times["all"]
