"""The waits for results of tasks: all those of a process share one blocked connection per shard."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterable

from delayq.errors import InvalidInput, LoginRefused, ServerError, ServerTooOld, ServerUnreachable
from delayq.model.delivery import Delivery, running
from delayq.operations import results
from delayq.operations.message_store import MessageStore
from delayq.operations.queue_context import QueueContext
from delayq.operations.results import Found, Status
from delayq.runtime.bells_async import Bells
from delayq.runtime.notice_async import Notice, belongs
from delayq.transport import listener_async
from delayq.transport.bell_source import ResultSource
from delayq.transport.executor_async import Executor

LOOK_SECONDS = 1.0  # between two looks at all that is waited for, as the stream of ended messages is capped
PAUSE_SECONDS = 0.1  # between two tries while the server is away
DEFERRED = Found("live")  # beyond the queue's horizon, in its lake
CLOSE_SECONDS = 1.0  # for waiting calls to return when the queue is closed


class _Waiting:
    """A call that waits for a message."""

    def __init__(self, message_id: str, token: str) -> None:
        self.waited = message_id, token
        self.status: Status = "live"
        self.error: ServerError | None = None
        self.notice = Notice()


class ResultWaits:
    """Waits for the end of messages. One of the waiting calls watches for all of them."""

    def __init__(self, context: QueueContext, executor: Executor, store: MessageStore) -> None:
        self._context = context
        self._executor = executor
        self._store = store
        self._closings = 0
        self._forget()
        belongs(executor, self._forget)

    def _forget(self) -> None:
        self._process = os.getpid()
        self._bells = Bells(self._executor)
        self._watching = threading.Lock()  # held by the call that watches
        self._waiting: dict[_Waiting, None] = {}

    async def found(self, message_id: str, token: str, seconds: float) -> Found:
        """Return what has become of a message once it has ended, or after `seconds`.

        While the server is away, this tries again until the time is over.

        Args:
            token: of the message; "" for the latest with this id.

        Raises:
            InvalidInput: it would wait, and the message's queue is that of the handler which calls this.
            ServerError: of the last try; ServerUnreachable, if the queue was closed meanwhile.
        """
        until = time.monotonic() + seconds if self._context.clock() == "" else 0.0  # a test moves its clock itself
        while True:
            try:
                found = await self._executor.execute(results.find(self._context, message_id, token))
                if found.status == "gone" and self._store.defers:
                    info = await self._executor.execute(self._store.get(message_id))
                    found = found if info is None or info.state != "deferred" else DEFERRED
            except (LoginRefused, ServerTooOld):
                raise
            except ServerError:
                if time.monotonic() >= until:
                    raise
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            left = until - time.monotonic()
            if found.status != "live" or left <= 0:
                return found
            self._refuse_handler(message_id)
            if found is DEFERRED:
                await asyncio.sleep(min(left, LOOK_SECONDS))
            else:
                await self.wait(message_id, token, left)

    def _refuse_handler(self, message_id: str) -> None:
        message = running.get()
        if isinstance(message, Delivery) and message.queue == self._context.name:
            raise InvalidInput(
                f"a handler of queue {self._context.name} waits for message {message_id!r} of the same queue, which "
                "may need its worker: use result(timeout=0), or send what follows with Ack(then=…)"
            )

    async def wait(self, message_id: str, token: str, seconds: float) -> Status:
        """Return what has become of a message once it has ended, or after `seconds`.

        Raises:
            ServerError: as `found`.
        """
        if self._process != os.getpid():  # the parent waits for the others
            self._forget()
        mine, until, closings = _Waiting(message_id, token), time.monotonic() + seconds, self._closings
        self._waiting[mine] = None
        try:
            while mine.status == "live" and (left := until - time.monotonic()) > 0:
                if closings != self._closings:
                    raise ServerUnreachable(f"queue {self._context.name} was closed while this waited for a result")
                if self._watching.acquire(blocking=False):
                    try:
                        await self._watch(mine, until, closings)
                    finally:
                        self._watching.release()
                else:
                    await mine.notice.wait(min(left, LOOK_SECONDS))
        finally:
            del self._waiting[mine]
            for other in tuple(self._waiting)[:1]:  # which may have to watch now
                other.notice.give()
        if mine.status == "live" and mine.error is not None:
            raise mine.error
        return mine.status

    async def close(self) -> None:
        """End the waits, and close the blocked connections."""
        self._closings += 1
        for each in tuple(self._waiting):
            each.notice.give()
        self._bells.interrupt()
        until = time.monotonic() + CLOSE_SECONDS
        ended = Notice()
        while self._waiting and time.monotonic() < until:
            await ended.wait(0.01)
        await self._bells.close()

    async def _watch(self, mine: _Waiting, until: float, closings: int) -> None:
        """Look at what the calls wait for, until `mine` need not wait longer."""
        seen: list[str] = []
        look_at = 0.0
        while mine.status == "live" and closings == self._closings and time.monotonic() < until:
            try:
                if not seen:
                    await self._executor.execute(self._context.opened())
                    seen = await self._executor.execute(results.last_finished(self._context))
                await self._listen(seen)
                if time.monotonic() >= look_at:
                    look_at = time.monotonic() + LOOK_SECONDS
                    await self._look(tuple(self._waiting))
                else:
                    seen, ids = await self._executor.execute(results.finished(self._context, seen))
                    await self._look(each for each in tuple(self._waiting) if each.waited[0] in ids)
                if mine.status != "live":
                    return
                await listener_async.wait(self._bells.listeners, min(look_at, until) - time.monotonic())
                await self._bells.take_tokens()
            except (LoginRefused, ServerTooOld):
                raise
            except ServerError as error:
                for each in tuple(self._waiting):
                    each.error = error
                seen = []
                await mine.notice.wait(min(PAUSE_SECONDS, max(0.0, until - time.monotonic())))

    async def _listen(self, seen: list[str]) -> None:
        shards = self._context.shards
        sources = [ResultSource(shard.keys.finished, last) for shard, last in zip(shards, seen, strict=True)]
        await self._bells.listen(sources)

    async def _look(self, chosen: Iterable[_Waiting]) -> None:
        waiting = [each for each in chosen if each.status == "live"]
        if not waiting:
            return
        statuses = await self._executor.execute(results.look(self._context, [each.waited for each in waiting]))
        for each, status in zip(waiting, statuses, strict=True):
            each.error = None
            if status != "live":
                each.status = status
                each.notice.give()
