"""Appearing: a consumer notes in Redis that it lives, in a round trip that it makes anyway."""

from __future__ import annotations

from typing import Any, TypeVar

from delayq.calls import Call, Steps
from delayq.errors import DelayqError
from delayq.log import log
from delayq.operations.core import Core
from delayq.pace import Every

SECONDS = 10.0
"""How often a consumer appears, at the most."""

T = TypeVar("T")


class Presence:
    """When a consumer notes that it lives: every 10 s, while it is served. One whose claims are refused does not.

    The note goes to the first shard: a consumer serves them all. A queue that is not recorded is left without a trace.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._pace = Every(SECONDS)
        self._is_served = False  # as far as is known: by what it was answered first, and every 10 s

    def beside(self, operation: Steps[T], name: str) -> Steps[T]:
        """Return an operation; when it is time, one that takes along the note that the consumer `name` lives."""
        return operation if self._is_served and self._pace.left() else self._noting(operation, name)

    def _noting(self, operation: Steps[T], name: str) -> Steps[T]:
        """Run an operation that is not to notice: it is sent its own replies and errors, no more."""
        core, noted = self._core, False
        try:
            calls = next(operation)
            while True:
                note: list[Call[Any]] = []
                opened = core.is_open
                if self._is_served and opened and not noted:
                    note.append(core.shards[0].appear(name))
                try:
                    replies = yield [*calls, *note]
                except BaseException as error:  # noqa: BLE001  # it is the operation's to handle
                    calls = operation.throw(error)
                    continue
                own = replies[: len(calls)]
                if note:
                    noted = True
                    self._pace.due()
                    if isinstance(replies[-1], DelayqError):  # nobody misses a message for it
                        log.debug("consumer not noted", queue=core.name, consumer=name, error=str(replies[-1]))
                elif opened:
                    self._is_served = not any(isinstance(each, DelayqError) for each in own)
                calls = operation.send(own)
        except StopIteration as stop:
            self._is_served = core.is_open
            return stop.value  # type: ignore[no-any-return]  # what the generator returns
        except Exception:
            self._is_served = False
            raise
