"""All queues of a server, found by their names."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol, Self

from delayq.errors import DelayqError
from delayq.log import log
from delayq.metrics.scrape import ReadQueue

SEARCH_SECONDS = 60.0
"""Between two searches: each goes over all keys of the server."""

CLOSE_SECONDS = 5.0
"""The longest wait for a search that is running at the end."""

MOST_QUEUES = 1000


class SampledQueue(ReadQueue, Protocol):
    """A queue whose counts are kept minute by minute, whoever looks at it."""

    def sample(self) -> bool: ...


class QueueServer(Protocol):
    """What lists the names of a server's queues, and makes queues of them."""

    def queue_names(self) -> Sequence[str]: ...
    def queue(self, name: str) -> SampledQueue: ...


class DiscoveredQueues:
    """The queues of a server, looked for again every minute, on a thread of its own: a large server takes its time.

    Args:
        server: that lists them.
        label: what the samples call the server, when there are several.
        most: queues that are read; of more, those whose names come first.
        clock: monotonic, in seconds.
    """

    def __init__(
        self,
        server: QueueServer,
        label: str = "",
        most: int = MOST_QUEUES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.label = label
        self.left_out = 0
        self._server = server
        self._most = most
        self._clock = clock
        self._queues: dict[str, SampledQueue] = {}
        self._error: DelayqError | None = None
        self._search_at = clock()
        self._search: threading.Thread | None = None
        self._is_found = threading.Event()
        self._is_closed = False

    @property
    def known(self) -> Sequence[ReadQueue]:
        """Those of the last search."""
        return list(self._queues.values())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Wait for the search that is running, so that it does not meet a server that is closed."""
        self._is_closed = True
        if self._search is not None:
            self._search.join(CLOSE_SECONDS)

    def __call__(self) -> Sequence[ReadQueue]:
        """Return the queues; the first search is waited for.

        Raises:
            DelayqError: what the last search has met, when no earlier one has found any.
        """
        if self._clock() >= self._search_at and (self._search is None or not self._search.is_alive()):
            self._search_at = self._clock() + SEARCH_SECONDS
            self._search = threading.Thread(target=self._find, name="delayq-metrics-search", daemon=True)
            self._search.start()
        self._is_found.wait()
        if self._error is not None and not self._queues:
            raise self._error
        return self.known

    def _find(self) -> None:
        try:
            names = self._server.queue_names()
            self._queues = {name: self._queue(name) for name in names[: self._most]}
            self._tell(len(names))
            self._error = None
            self._is_found.set()
            self._sample()
        except DelayqError as error:
            log.debug("queues not found", server=self.label, error=str(error))
            self._error = error
            self._search_at = 0.0  # at the next scrape
        finally:
            self._is_found.set()

    def _sample(self) -> None:
        """Keep the counts of each queue for `Queue.samples`, in place of consumers that it may not have."""
        for queue in self._queues.values():
            if self._is_closed:
                return
            try:
                queue.sample()
            except DelayqError as error:  # such as a user who may only read
                log.debug("no sample kept", queue=queue.name, error=str(error))

    def _queue(self, name: str) -> SampledQueue:
        return self._queues.get(name) or self._server.queue(name)

    def _tell(self, count: int) -> None:
        left_out = max(0, count - self._most)
        if left_out and not self.left_out:
            log.warning("more queues than metrics tell of", most=self._most, left_out=left_out)
        self.left_out = left_out
