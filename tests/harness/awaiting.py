"""The async API, awaited for tests that are written for the sync API."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import redis
from redis import asyncio as async_redis

from delayq import aio
from delayq.aio import doctor as aio_doctor
from delayq.aio.dead_letters import DeadLetters
from delayq.aio.ledger import Ledger
from delayq.aio.message_group import MessageGroup
from delayq.aio.schedules import Schedules
from delayq.aio.topic_group import Group
from delayq.transport.executor_async import Executor


class Awaiting:
    """Queues of the async API, with their own event loop and client.

    Args:
        client: the client of a sync queue.
        url: the URL of its server.
        options: the options of the client.
    """

    def __init__(self, client: redis.Redis, url: str, **options: Any) -> None:
        self._runner = asyncio.Runner()
        self._sync = client
        self._client = async_redis.from_url(url, **options)

    def queue(self, name: str, options: dict[str, Any]) -> Any:
        if options.get("redis") is self._sync:
            options["redis"] = self._client
        return Awaited(aio.Queue(name, **options), self._runner)

    def close(self) -> None:
        self._runner.run(self._client.aclose())
        tasks = asyncio.all_tasks(self._runner.get_loop())
        self._runner.close()
        assert tasks == set()


class Awaited:
    """An object of the async API; each of its methods is awaited when it is called."""

    def __init__(self, target: Any, runner: asyncio.Runner) -> None:
        self.target = target
        self._runner = runner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.target, name)
        if inspect.iscoroutinefunction(value):
            return lambda *args, **options: self._of(self._runner.run(value(*map(_target, args), **options)))
        if inspect.isasyncgenfunction(value):
            return lambda *args, **options: iter(self._runner.run(_listed(value(*args, **options))))
        parts = DeadLetters | Schedules | Executor | Ledger
        return Awaited(value, self._runner) if isinstance(value, parts) else value

    def drain(self, handler: Callable[[Any], Any] | None, **options: Any) -> int:
        """Let an async consumer handle everything that is due."""
        return self._runner.run(aio.Consumer(self.target, handler, **options).drain())

    def at_once(self, call: Callable[[Any, Any], Any], arguments: Iterable[Any]) -> list[Any]:
        """Await calls, each in its own task."""

        async def gathered() -> list[Any]:
            return await asyncio.gather(*(call(self.target, each) for each in arguments))

        return self._runner.run(gathered())

    def run(self, coroutine: Any) -> Any:
        """Await something on its event loop."""
        return self._runner.run(coroutine)

    def examine(self, **options: Any) -> Any:
        """Let the async doctor examine it."""
        return self._runner.run(aio_doctor.examine(self.target, **options))

    def _of(self, result: Any) -> Any:
        if isinstance(result, list):
            return [self._of(each) for each in result]
        return Awaited(result, self._runner) if isinstance(result, aio.Message | Group | MessageGroup) else result

    def __repr__(self) -> str:
        return repr(self.target)


async def _listed(records: AsyncIterator[Any]) -> list[Any]:
    return [record async for record in records]


def _target(value: Any) -> Any:
    if isinstance(value, list):
        return [_target(each) for each in value]
    return value.target if isinstance(value, Awaited) else value
