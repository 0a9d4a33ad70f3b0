"""All queues and topics of a server, found by their names."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NoReturn, Protocol, Self

from delayq.errors import DelayqError, InvalidInput
from delayq.log import log
from delayq.metrics.scrape import ReadQueue, ReadsTogether, ReadTopic, Subject
from delayq.model.validation import Kind

SEARCH_SECONDS = 60.0
"""Between two searches: each scans all keys of the server."""

TAKE_SECONDS = 1.0
"""Between two looks at what a running search has found."""

ANSWER_SECONDS = 5.0
"""The longest wait for the next step of a search; after that, the server counts as down."""

CLOSE_SECONDS = 5.0
"""The longest wait, at the end, for a search that is running."""

MOST_QUEUES = 1000


class SampledQueue(ReadQueue, Protocol):
    """A queue whose counts are recorded every minute."""

    def sample(self) -> bool: ...


class Search(Protocol):
    """Finds the names of a server's queues and topics, as `NameSearch` does."""

    rests: bool

    @property
    def names(self) -> Mapping[Kind, Collection[str]]: ...
    def steps(self) -> Iterator[None]: ...


class QueueServer(Protocol):
    """Finds the queues and topics of a server, and opens them."""

    @property
    def search(self) -> Search: ...
    def queue(self, name: str) -> SampledQueue: ...
    def topic(self, name: str) -> ReadTopic: ...


class MissingTopic:
    """A topic that was named, but is not on the server."""

    def __init__(self, name: str) -> None:
        self.name = name

    def group_readings(self) -> NoReturn:
        """Raise InvalidInput: there is nothing to read."""
        raise InvalidInput(f"there is no topic {self.name!r}: nothing was ever published to it")


class DiscoveredQueues:
    """The queues and topics of a server. A thread looks for new ones every minute, since a large server takes long.

    Those in the registry are known at once, even if the scan for others takes long.

    Args:
        server: lists and opens them.
        label: of the server in the samples, if there are several.
        most: how many queues, and how many topics, are read; if there are more, those whose names come first.
        topics: names of topics that should exist; a missing one is reported as down.
        clock: monotonic, in seconds.
        whole: whether the first call waits for the scan.
    """

    def __init__(
        self,
        server: QueueServer,
        label: str = "",
        most: int = MOST_QUEUES,
        topics: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
        whole: bool = False,
    ) -> None:
        self.label = label
        self.left_out: dict[Kind, int] = {"queue": 0, "topic": 0}
        self._server = server
        if isinstance(server, ReadsTogether):
            self.readings_of = server.readings_of
        self._most = most
        self._wanted = topics
        self._clock = clock
        self._needs_all = whole
        self._queues: dict[str, SampledQueue] = {}
        self._topics: dict[str, ReadTopic] = {}
        self._error: DelayqError | None = None
        self._taken: dict[Kind, int] = {}
        self._take_at = self._search_at = clock()
        self._search: threading.Thread | None = None
        self._is_found = threading.Event()
        self._answered_at = float("-inf")
        self._is_closed = False

    @property
    def is_searching(self) -> bool:
        """Whether the first search is running, and the server has answered it within the last five seconds."""
        return not self._is_found.is_set() and self._clock() <= self._answered_at + ANSWER_SECONDS

    @property
    def known(self) -> Sequence[Subject]:
        """The queues and topics of the last search."""
        return [*self._queues.values(), *self._topics.values()]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Wait for a running search, so that it does not use a closed connection."""
        self._is_closed = True
        if self._search is not None:
            self._search.join(CLOSE_SECONDS)

    def __call__(self) -> Sequence[Subject]:
        """Return the queues and topics, after waiting for the first ones.

        Raises:
            DelayqError: the last search failed, and no earlier one found any.
        """
        if self._clock() >= self._search_at and (self._search is None or not self._search.is_alive()):
            self._search_at = self._clock() + SEARCH_SECONDS
            self._search = threading.Thread(target=self._find, name="delayq-metrics-search", daemon=True)
            self._search.start()
        self._is_found.wait()
        if self._error is not None and not self.known:
            raise self._error
        return self.known

    def _find(self) -> None:
        try:
            search = self._server.search
            for number, _ in enumerate(search.steps()):
                self._answered_at = self._clock()
                if self._is_closed:
                    return
                is_enough = any(search.names.values()) and set(self._wanted).issubset(search.names["topic"])
                is_first = not number and is_enough and not self._needs_all
                if is_first or (self.known and self._has_news(search.names)):
                    self._take(search.names)
            self._needs_all = False
            self._take(search.names)
            search.rests = True
            self._sample()
        except DelayqError as error:
            log.debug("queues not found", server=self.label, error=str(error))
            self._error = error
            self._search_at = 0.0  # at the next scrape
        finally:
            self._is_found.set()

    def _take(self, found: Mapping[Kind, Collection[str]]) -> None:
        names = {kind: sorted(each) for kind, each in found.items()}
        missing = set(self._wanted).difference(names["topic"])
        topics = dict.fromkeys([*self._wanted, *names["topic"][: self._most]])
        self._queues = {name: self._queue(name) for name in names["queue"][: self._most]}
        self._topics = {name: MissingTopic(name) if name in missing else self._topic(name) for name in topics}
        for kind, each in names.items():
            self._note_left_out(kind, max(0, len(each) - self._most))
        self._taken = {kind: len(each) for kind, each in names.items()}
        self._take_at = self._clock() + TAKE_SECONDS
        self._error = None
        self._is_found.set()

    def _has_news(self, found: Mapping[Kind, Collection[str]]) -> bool:
        """Whether a running search has found other names, and the last ones were taken a second ago."""
        return self._clock() >= self._take_at and self._taken != {kind: len(each) for kind, each in found.items()}

    def _sample(self) -> None:
        """Record the counts of each queue for `Queue.samples`, since it may have no consumers that do so."""
        for queue in self._queues.values():
            if self._is_closed:
                return
            try:
                queue.sample()
            except DelayqError as error:  # such as a user who may only read
                log.debug("no sample kept", queue=queue.name, error=str(error))

    def _queue(self, name: str) -> SampledQueue:
        return self._queues.get(name) or self._server.queue(name)

    def _topic(self, name: str) -> ReadTopic:
        known = self._topics.get(name)
        return self._server.topic(name) if known is None or isinstance(known, MissingTopic) else known

    def _note_left_out(self, kind: Kind, count: int) -> None:
        if count and not self.left_out[kind]:
            log.warning(f"too many {kind}s for metrics", most=self._most, left_out=count)
        self.left_out[kind] = count
