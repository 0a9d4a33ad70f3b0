"""The collector: one read of each queue a scrape."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from delayq.errors import InvalidInput
from delayq.metrics import families
from delayq.metrics.discovery import DiscoveredQueues, MissingTopic
from delayq.metrics.scrape import QueueReading, Reading, ReadQueue, ReadTopic, ScrapeThread, Subject, TopicReading, left

SECONDS = 5.0
"""How long a scrape waits for servers; Prometheus itself waits 10 s by default."""


class Exposition(NamedTuple):
    """A page for a scrape."""

    body: bytes
    content_type: str


class Metrics(Collector):
    """Collects metrics of queues and topics; register it with a registry, or serve its `exposition`.

    Each scrape reads each of them once; simultaneous scrapes share that. A queue that cannot be read within `seconds`
    has a `delayq_up` of 0, and no other sample.

    Args:
        queues: with distinct names.
        topics: with distinct names.
        servers: their queues are found by name; if there are several, each needs its own label.
        seconds: how long a scrape waits for all of them together, more than 0.

    Raises:
        InvalidInput: names or labels are not distinct.
    """

    def __init__(
        self,
        queues: Sequence[ReadQueue] = (),
        topics: Sequence[ReadTopic] = (),
        servers: Sequence[DiscoveredQueues] = (),
        seconds: float = SECONDS,
    ) -> None:
        for what, names in (
            ("queue", [queue.name for queue in queues]),
            ("topic", [topic.name for topic in topics]),
            ("server", [server.label for server in servers]),
        ):
            check_distinct(what, names)
        self._seconds = seconds
        self._servers = servers
        single: list[Subject] = [*queues, *topics]
        self._sources = [_Source("", ScrapeThread(_always(each)), _always(each)) for each in single]
        self._found = [_Source(each.label, ScrapeThread(each), lambda each=each: each.known, each) for each in servers]  # type: ignore[misc]
        self._labels = ["server"] if any(each.label for each in servers) else []

    def describe(self) -> list[Metric]:
        """Return nothing, so that registering does not read the servers."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Read, and yield what was read."""
        yield from self._families(self._read(self._seconds))

    def silent(self, seconds: float) -> list[str]:
        """Read, and return what has not answered within `seconds`; a server has if one of its queues has."""
        scraped = self._read(seconds)
        return _down(scraped.servers if self._servers else (*scraped.queues_up, *scraped.topics_up))

    def exposition(self, accept: str = "", beside: Collector | None = None) -> Exposition:
        """Return the response to a scrape.

        Args:
            accept: the request's Accept header, which decides the format.
            beside: another collector to include, such as `prometheus_client.REGISTRY`.
        """
        return self.judged(accept, beside)[0]

    def judged(self, accept: str = "", beside: Collector | None = None) -> tuple[Exposition, list[str]]:
        """Return the same, and the names of the queues, topics and servers that it reports as down."""
        scraped = self._read(self._seconds)
        registry = CollectorRegistry()
        registry.register(_Once(self._families(scraped)))
        if beside is not None:
            registry.register(beside)
        encode, content_type = choose_encoder(accept)
        down = _down((*scraped.queues_up, *scraped.topics_up, *scraped.servers))
        return Exposition(encode(registry), content_type), down

    def _read(self, seconds: float) -> _Scraped:
        scraped = _Scraped()
        deadline = time.monotonic() + seconds
        for source, sweep in [(source, source.reader.begin()) for source in (*self._sources, *self._found)]:
            found = sweep.wait(left(deadline))
            scraped.note(source, found)
            if source.server is not None:
                is_up = source.server.is_searching or (sweep.is_known and _answers(found, sweep.is_done))
                scraped.servers.append(({"server": source.label}, is_up))
        return scraped

    def _families(self, scraped: _Scraped) -> Iterator[Metric]:
        queue, topic = [*self._labels, "queue"], [*self._labels, "topic"]
        yield families.up(queue, scraped.queues_up, "queue")
        yield from families.of_queues(scraped.queues, queue)
        if scraped.topics_up:
            yield families.up(topic, scraped.topics_up, "topic")
            yield from families.of_topics(scraped.topics, topic)
        if self._servers:
            yield families.up(["server"], scraped.servers, "server")
            for kind in ("queue", "topic"):
                yield families.left_out(kind, {server.label: server.left_out[kind] for server in self._servers})


class _Source(NamedTuple):
    """A place to read from: `known` returns what to read there, as far as it is known."""

    label: str
    reader: ScrapeThread
    known: Callable[[], Sequence[Subject]]
    server: DiscoveredQueues | None = None


class _Once(Collector):
    """What one scrape has read."""

    def __init__(self, families: Iterator[Metric]) -> None:
        self._families = families

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        yield from self._families


class _Scraped:
    """What one scrape has read."""

    def __init__(self) -> None:
        self.queues: list[tuple[families.Labels, QueueReading]] = []
        self.topics: list[tuple[families.Labels, TopicReading]] = []
        self.queues_up: list[tuple[families.Labels, bool]] = []
        self.topics_up: list[tuple[families.Labels, bool]] = []
        self.servers: list[tuple[families.Labels, bool]] = []

    def note(self, source: _Source, found: Mapping[Subject, Reading | None]) -> None:
        """Note what was read, and what was not."""
        for subject in {**dict.fromkeys(source.known()), **found}:
            reading = found.get(subject)
            if isinstance(reading, QueueReading):
                self.queues.append(({"server": source.label, "queue": subject.name}, reading))
            elif isinstance(reading, TopicReading):
                self.topics.append(({"server": source.label, "topic": subject.name}, reading))
            is_queue = isinstance(subject, ReadQueue)
            ups, named = (self.queues_up, "queue") if is_queue else (self.topics_up, "topic")
            ups.append(({"server": source.label, named: subject.name}, reading is not None))


def _down(ups: Iterable[tuple[families.Labels, bool]]) -> list[str]:
    names = (labels.get("queue") or labels.get("topic") or labels["server"] for labels, is_up in ups if not is_up)
    return [name or "the server" for name in names]


def _answers(found: Mapping[Subject, Reading | None], is_all: bool) -> bool:
    """Whether a server answers; reading all of many queues may take longer than a scrape waits."""
    there = [reading for subject, reading in found.items() if not isinstance(subject, MissingTopic)]
    return any(reading is not None for reading in there) or (is_all and not there)


def _always(subject: Subject) -> Callable[[], Sequence[Subject]]:
    return lambda: [subject]


def check_distinct(what: str, names: Sequence[str]) -> None:
    """Raise InvalidInput if a name occurs twice: Prometheus could not tell the samples of the two apart."""
    for name in names:
        if names.count(name) > 1:
            raise InvalidInput(f"two {what}s for metrics are called {name!r}: export their metrics separately")
