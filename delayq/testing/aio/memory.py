"""Queues of the async API in memory for the time of a test."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType

from delayq.testing.aio.clock import Clock
from delayq.testing.base_clock import Traveller
from delayq.testing.face_async import AnyQueue, AnyTopic


def in_memory(
    *subjects: AnyQueue | AnyTopic,
    start: dt.datetime | None = None,
    traveller: Traveller | None = None,
    real: Iterable[AnyQueue | AnyTopic] | bool = (),
) -> Block:
    """Move queues and topics into memory until the block ends: `delayq.testing.in_memory`, for those of delayq.aio.

    ``async with`` and ``with`` do the same: a fixture that is not a coroutine may use the latter. Blocking queues and
    topics are also accepted: they share the same server, and `Clock.run_due` serves them too.
    """
    return Block(subjects, start, traveller, real)


class Block(AbstractContextManager[Clock], AbstractAsyncContextManager[Clock]):
    """What `in_memory` returns."""

    def __init__(
        self,
        subjects: tuple[AnyQueue | AnyTopic, ...],
        start: dt.datetime | None,
        traveller: Traveller | None,
        real: Iterable[AnyQueue | AnyTopic] | bool,
    ) -> None:
        self._subjects = subjects
        self._real = real
        self._clock = Clock(start, traveller)

    def __enter__(self) -> Clock:
        try:
            self._clock.forbid_servers(self._real)
            self._clock.add(*self._subjects)
        except BaseException:
            self._clock.close()
            raise
        return self._clock

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clock.close()

    async def __aenter__(self) -> Clock:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clock.close()
