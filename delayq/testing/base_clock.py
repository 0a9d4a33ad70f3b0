"""What the clocks of both kits have in common."""

from __future__ import annotations

import datetime as dt
import importlib
import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Protocol, TypedDict, Unpack

from delayq.errors import HandlerMissing, InvalidInput, InvalidTime
from delayq.model import server_guard
from delayq.model.extras import install
from delayq.model.units import MAX_TIME_MS, Seconds, from_ms, milliseconds, timestamp_ms
from delayq.testing.drain import Calls, Drain, Served
from delayq.testing.face import BLOCKING, Face, Handler
from delayq.testing.served_by import served_by

LIMIT = 1000


class Traveller(Protocol):
    """Moves `datetime.now()` in tests; time_machine.travel and freezegun.freeze_time give such an object."""

    def move_to(self, destination: dt.datetime, /) -> Any:
        """Move to another time."""


class TimeUnits(TypedDict, total=False):
    """A length of time, by its units."""

    days: float
    hours: float
    minutes: float
    seconds: float
    milliseconds: float


class BaseClock:
    """What the clocks of both kits have in common.

    Args:
        faces: the APIs whose queues and topics it moves into memory.
        called: turns a handler into the function that is called in its place.
        start, traveller: see `Clock`.
    """

    def __init__(
        self,
        faces: Sequence[Face],
        called: Callable[[Handler], Handler],
        start: dt.datetime | None,
        traveller: Traveller | None,
    ) -> None:
        self.ms: float = int(time.time() * 1000) if start is None else timestamp_ms(start)
        self.handled: list[Any] = []
        self._faces = faces
        self._called = called
        self._traveller = traveller
        self._queues: dict[Any, Face] = {}
        self._topics: list[Any] = []
        self._numbers = itertools.count(1)
        self._kept = ExitStack()
        self._server: FakeServer | None = None
        self._client: Any = None
        self._travel()

    def __call__(self) -> float:
        """Return the time in milliseconds, as a queue's `clock` does."""
        return self.ms

    def __repr__(self) -> str:
        return f"<Clock {self.now().isoformat()}>"

    def now(self) -> dt.datetime:
        """Return the time, in UTC."""
        return from_ms(self.ms)

    def close(self) -> None:
        """Discard what is in memory, and restore all queues and topics."""
        self._queues.clear()
        self._topics.clear()
        self._server = self._client = None
        self._kept.close()

    def forbid_servers(self, real: Iterable[Any] | bool) -> None:
        """Forbid real servers until `close`, except those of the queues and topics in `real`, or all if it is True."""
        if isinstance(real, bool):
            allowed = {server_guard.EVERYTHING} if real else set()
        else:
            allowed = {self._label_of(each) for each in real}
        self._kept.enter_context(server_guard.forbidding(allowed))

    def advance(self, by: Seconds = 0, **units: Unpack[TimeUnits]) -> None:
        """Let time pass without handling messages.

        Args:
            by: seconds (0 or more) or a timedelta.
            units: or days, hours, minutes, seconds, milliseconds.
        """
        self.move(self._after(by, units))

    def move(self, ms: float) -> None:
        """Set the time to `ms`, unless it is already later."""
        if ms > self.ms:
            self.ms = ms
            self._travel()

    def _add(self, subject: Any) -> None:
        face = self._face_of(subject)
        if subject in self._queues or subject in self._topics:
            raise InvalidInput(f"{subject.name} is already in memory: give it once")
        self._fake_server()  # it may not be installed: fail before anything is changed
        self._kept.enter_context(served_by(subject, partial(self._connect, face), self, self._number, face))
        if isinstance(subject, face.queue):
            self._queues[subject] = face
        else:
            self._topics.append(subject)

    def _label_of(self, subject: Any) -> str:
        face = self._face_of(subject)
        return f"{'queue' if isinstance(subject, face.queue) else 'topic'} {subject.name}"

    def _face_of(self, subject: Any) -> Face:
        for face in self._faces:
            if isinstance(subject, face.queue | face.topic) and not isinstance(subject, face.ledger):
                return face
        raise InvalidInput(
            f"expected a delayq.Queue or delayq.Topic, got {subject!r}: give those that the code under test uses; "
            "for those of delayq.aio, use delayq.testing.aio.in_memory"
        )

    def _connect(self, face: Face) -> Any:
        if face is not BLOCKING:  # a client belongs to one event loop, and a test may have several
            return self._fake_server().client(face.client)
        if self._client is None:
            self._client = self._kept.enter_context(self._fake_server().client(face.client))
        return self._client

    def _fake_server(self) -> FakeServer:
        if self._server is None:
            self._server = FakeServer()
        return self._server

    def _run(self, end: float, queues: Sequence[Any], limit: int, raise_errors: bool) -> Calls[list[Any]]:
        drain = Drain(self, self._serving(queues), limit)
        try:
            yield from drain.until(end)
        finally:
            self.handled += drain.handled
        if raise_errors:
            drain.raise_errors()
        return drain.handled

    def _serving(self, queues: Sequence[Any]) -> list[Served]:
        for queue in queues:
            if queue not in self._queues:
                raise InvalidInput(f"queue {queue.name} is not in memory: give it to in_memory, or to clock.add")
        if not self._queues:
            raise InvalidInput("no queue is in memory: give one to in_memory, or to clock.add")
        served, missing = [], None
        for queue in queues or self._queues:
            try:
                served.append(Served(self._queues[queue].consumer(queue), self._called))
            except HandlerMissing as error:
                missing = missing or error
        if missing is not None and (queues or not served):
            raise missing
        return served

    def _end_at(self, at: dt.datetime) -> float:
        end = timestamp_ms(at)
        if end < self.ms:
            raise InvalidTime(f"at={at.isoformat()} is in the past: the clock is at {self.now().isoformat()}")
        return end

    def _number(self) -> str:
        # Messages due at the same instant are handled in the order of their ids, and so in the order of their sends.
        return f"message-{next(self._numbers):06}"

    def _after(self, by: Seconds, units: TimeUnits) -> float:
        try:
            more = dt.timedelta(**units)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidTime(f"{units} is not a time: {error}; give numbers of days, hours, minutes, …") from error
        after = self.ms + milliseconds(by, "the time to pass") + milliseconds(more, "the time to pass")
        if after > MAX_TIME_MS:
            raise InvalidTime(f"the clock cannot move past the year 9999: it is at {self.now().isoformat()}")
        return after

    def _travel(self) -> None:
        if self._traveller is not None:
            self._traveller.move_to(self.now())


class FakeServer:
    """A server within this process: fakeredis, which runs the real scripts in its own Lua.

    Raises:
        ModuleNotFoundError: fakeredis, or lupa, is not installed.
    """

    def __init__(self) -> None:
        try:
            self._fakeredis = importlib.import_module("fakeredis")  # an extra
            importlib.import_module("lupa")  # without it, fakeredis runs no scripts
        except ModuleNotFoundError as missing:
            raise ModuleNotFoundError(
                f"delayq.testing needs {missing.name}, which is not installed: {install('testing')}",
                name=missing.name,
            ) from missing
        self._server = self._fakeredis.FakeServer()

    def client(self, kind: str) -> Any:
        """Return a new client, of the given class of fakeredis."""
        return getattr(self._fakeredis, kind)(server=self._server)
