"""Group commit: messages that several tasks send at the same time share a call."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Sequence

from delayq.errors import DelayqError
from delayq.model.delivery import SentMessage
from delayq.operations.encode import EncodedMessage
from delayq.protocol.operation import unwrap

Results = Sequence[SentMessage | DelayqError]


class SendCoalescer:
    """Sends messages of many tasks, one batch at a time.

    A task that finds no other sending sends at once. The others wait and are sent together, from a separate task, so
    that a waiting task can be cancelled without affecting the others. All tasks are of one event loop. One that was
    closed in the middle is forgotten; a task of another one sends by itself, and is refused if the queue is in use.

    Args:
        send: sends messages that may be sent twice; for each, returns its result or the error with which the server
            refused it. Its exceptions are raised for all of them.
    """

    def __init__(self, send: Callable[[Sequence[EncodedMessage]], Awaitable[Results]]) -> None:
        self._send = send
        self._loop: asyncio.AbstractEventLoop | None = None
        self._forget()

    def _forget(self) -> None:
        self._is_busy = False
        self._waiting: list[tuple[EncodedMessage, asyncio.Future[SentMessage]]] = []
        self._task: asyncio.Task[None] | None = None

    async def send(self, encoded: EncodedMessage) -> SentMessage:
        """Send one message, with those that others send now; raise the error with which the server refused it."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None and not self._loop.is_closed():
                return unwrap((await self._send([encoded]))[0])
            self._forget()
            self._loop = loop
        if self._is_busy:
            future: asyncio.Future[SentMessage] = loop.create_future()
            self._waiting.append((encoded, future))
            return await future
        self._is_busy = True
        try:
            return unwrap((await self._send([encoded]))[0])
        finally:
            self._pass_on()

    async def close(self) -> None:
        """Wait until all given messages are sent."""
        if self._task is not None and self._loop is asyncio.get_running_loop():
            await asyncio.wait({self._task})
        self._loop = None

    def _pass_on(self) -> None:
        self._is_busy = bool(self._waiting)
        self._task = asyncio.create_task(self._send_all(), name="delayq-outbox") if self._is_busy else None

    async def _send_all(self) -> None:
        batch, self._waiting = [each for each in self._waiting if not each[1].done()], []
        try:
            results = await self._send([encoded for encoded, _ in batch]) if batch else []
            for (_, future), result in zip(batch, results, strict=True):
                _settle(future, result)
        except DelayqError as error:
            for _, future in batch:
                again = copy.copy(error)  # each task raises its own copy
                again.__cause__ = error.__cause__
                _settle(future, again)
        except Exception as error:  # noqa: BLE001  # the senders raise it
            for _, future in batch:
                _settle(future, error)
        finally:
            for _, future in batch:
                future.cancel()  # no effect unless this task was cancelled
            self._pass_on()


def _settle(future: asyncio.Future[SentMessage], result: SentMessage | Exception) -> None:
    if future.done():  # cancelled
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
