"""Reads what metrics report: in bounded time, on a thread that simultaneous scrapes share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

from delayq.errors import DelayqError
from delayq.log import log
from delayq.model import health
from delayq.model.configuration import Usage
from delayq.model.consumer_info import ConsumerInfo
from delayq.model.queue_stats import QueueStats
from delayq.model.record import GroupReading

TOGETHER = 100
"""The most queues that are read at a time."""


class QueueReading(NamedTuple):
    """What was read of a queue; `consumers` are the live ones, and `stuck` the deliveries whose handlers are stuck."""

    stats: QueueStats
    consumers: int
    usage: Usage
    stuck: int = 0


class TopicReading(NamedTuple):
    """What was read of a topic."""

    groups: Sequence[GroupReading]


@runtime_checkable
class ReadQueue(Protocol):
    """What is read of a queue: `delayq.Queue` has it."""

    @property
    def name(self) -> str: ...
    def stats(self) -> QueueStats: ...
    def consumers(self) -> Sequence[ConsumerInfo]: ...
    def usage(self) -> Usage: ...


class ReadTopic(Protocol):
    """What is read of a topic: `delayq.Topic` has it."""

    @property
    def name(self) -> str: ...
    def group_readings(self) -> Sequence[GroupReading]: ...


ReadingsOf: TypeAlias = Callable[
    [Sequence[str]], Sequence[tuple[QueueStats, Sequence[ConsumerInfo], Usage] | DelayqError]
]


@runtime_checkable
class ReadsTogether(Protocol):
    """What reads queues by their names, in shared round trips; an error is in the place of its queue."""

    @property
    def readings_of(self) -> ReadingsOf: ...


Subject: TypeAlias = ReadQueue | ReadTopic
Reading: TypeAlias = QueueReading | TopicReading


def read(subject: Subject) -> Reading:
    """Read a queue, or a topic."""
    if isinstance(subject, ReadQueue):
        return _of_queue(subject.stats(), subject.consumers(), subject.usage())
    return TopicReading(subject.group_readings())


def _of_queue(stats: QueueStats, consumers: Sequence[ConsumerInfo], usage: Usage) -> QueueReading:
    alive, stuck = sum(each.is_alive for each in consumers), health.stuck(stats, consumers).total
    return QueueReading(stats, alive, usage, stuck)


class ScrapePass:
    """One pass over what is to be read. In `found`, what could not be read is None; what was not reached is missing."""

    def __init__(self) -> None:
        self.found: dict[Subject, Reading | None] = {}
        self.is_known = True  # whether it is known what to read
        self._done = threading.Event()

    @property
    def is_done(self) -> bool:
        return self._done.is_set()

    def run(self, subjects: Callable[[], Iterable[Subject]]) -> None:
        """Read one after the other, after the queues that can be read together."""
        try:
            known = list(subjects())
            if isinstance(subjects, ReadsTogether):
                self._read_together([each for each in known if isinstance(each, ReadQueue)], subjects.readings_of)
            for subject in known:
                if subject not in self.found:
                    self.found[subject] = _tried(subject)
        except DelayqError as error:
            self.is_known = False
            log.debug("metrics discovery failed", error=str(error))
        finally:
            self._done.set()

    def _read_together(self, queues: Sequence[ReadQueue], readings_of: ReadingsOf) -> None:
        for start in range(0, len(queues), TOGETHER):
            part = queues[start : start + TOGETHER]
            try:
                readings = readings_of([queue.name for queue in part])
            except Exception as error:  # noqa: BLE001  # each is read by itself: one may have a count that is not a number
                log.debug("queues not read together", error=str(error))
                return
            for queue, reading in zip(part, readings, strict=True):
                if isinstance(reading, DelayqError):
                    log.debug("metrics not read", name=queue.name, error=str(reading))
                self.found[queue] = None if isinstance(reading, DelayqError) else _of_queue(*reading)

    def wait(self, seconds: float) -> dict[Subject, Reading | None]:
        """Return what was read, once all is read or the time is over."""
        self._done.wait(seconds)
        return dict(self.found)


class ScrapeThread:
    """Reads on its own thread. A scrape that comes meanwhile waits for it and gets the same result.

    So only one thread waits for a server that does not answer, however many scrapes come.

    Args:
        subjects: returns what to read, in order.
    """

    def __init__(self, subjects: Callable[[], Iterable[Subject]]) -> None:
        self._subjects = subjects
        self._lock = threading.Lock()
        self._sweep: ScrapePass | None = None

    def begin(self) -> ScrapePass:
        """Return the pass that is running, or a new one."""
        with self._lock:
            if self._sweep is None or self._sweep.is_done:
                self._sweep = ScrapePass()
                arguments = (self._subjects,)
                threading.Thread(target=self._sweep.run, args=arguments, name="delayq-metrics", daemon=True).start()
            return self._sweep


def left(deadline: float) -> float:
    """Return the seconds until a deadline on the monotonic clock, 0 or more."""
    return max(0.0, deadline - time.monotonic())


def _tried(subject: Subject) -> Reading | None:
    try:
        return read(subject)
    except DelayqError as error:
        log.debug("metrics not read", name=subject.name, error=str(error))
        return None
    except Exception as error:  # noqa: BLE001  # such as a count that is not a number: the others are still read
        log.error("metrics not read", name=subject.name, exc_info=error)
        return None
