"""The queues and topics on a server of the async API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from redis.exceptions import NoPermissionError, RedisClusterException, RedisError

from delayq.errors import DelayqError, ServerError
from delayq.late_import import late_import
from delayq.model import server_url
from delayq.model.configuration import Usage
from delayq.model.consumer_info import ConsumerInfo
from delayq.model.queue_stats import QueueStats, Upcoming
from delayq.model.schedule import Schedule
from delayq.model.server_guard import labelled
from delayq.model.units import Seconds
from delayq.model.validation import KINDS, Kind, check_prefix, check_queue_name
from delayq.operations import counts, inspect, registry, schedules
from delayq.operations.queue_context import QueueContext, Settings
from delayq.operations.registry import Entries
from delayq.protocol.discovery import name_in, pattern
from delayq.protocol.operation import Operation, gather, unwrap
from delayq.transport.executor_async import Client, Executor
from delayq.transport.open_client_async import check_client, connect
from delayq.transport.server_check import translate

if TYPE_CHECKING:
    from delayq.operations.doctor.finding import Step
    from delayq.operations.doctor.report import Report

T = TypeVar("T")

SCANNED = 1000
"""The number of keys in a step of a scan, which holds the server for about a millisecond."""

REST_SECONDS = 0.01
"""Between two steps of a scan that nobody waits for."""

TOGETHER = 100
"""The number of queues that share a round trip."""

LOOK_SECONDS = 60.0
"""Between two looks at the registry during a scan."""


async def queues(*, url: str | None = None, redis: Client | None = None, prefix: str = "delayq") -> list[str]:
    """Return the names of the queues on a server, in order: those ever sent to, consumed, configured or paused.

    Each call scans the names of all keys, 1,000 in a round trip: keep the result if there are many.

    Args:
        url: of the server. Without `url` and `redis`: DELAYQ_URL, or else the embedded store.
        redis: a client to use instead; it stays open.
        prefix: of the queues' keys.

    Raises:
        InvalidInput: a bad URL or prefix.
        ServerError: the server does not answer, or this user may not list keys.
    """
    check_client(url, redis)
    server = Server(url, redis, prefix, "delayq.queues()")
    try:
        await server.search.find_all()
    finally:
        await server.close()
    return sorted(server.search.names["queue"])


class Server:
    """A Redis server, connected when first needed; calls raise ServerError if it fails.

    Args:
        url, redis, prefix: as in `queues`.
        label: what it is for, as the errors of tests without real servers name it.

    Attributes:
        search: for the names of its queues and topics.
    """

    def __init__(self, url: str | None, redis: Client | None, prefix: str, label: str) -> None:
        if url:
            server_url.check(url)  # a wrong URL fails at the start
        self.url = url
        self.prefix = check_prefix(prefix)
        self._redis = redis
        self._executor = Executor(self._connect, redis is not None, labelled(label, redis))
        self.search = NameSearch(self._executor, prefix)

    def _connect(self) -> Client:
        return connect(self.url) if self._redis is None else self._redis

    async def client(self) -> Client:
        """Return the client, connected and its server checked."""
        return await self._executor.connected()

    async def ping(self) -> None:
        """Raise ServerError unless the server answers."""
        client: Any = await self.client()
        with _translated(), suppress(NoPermissionError):  # also an answer
            await client.ping()

    async def has(self, kind: Kind, name: str) -> bool:
        """Whether the queue or topic exists; this reads one key, however many there are, as any reader may."""
        return await self._executor.execute(registry.exists(self.prefix, kind, name))

    async def stats_of(self, names: Sequence[str]) -> list[QueueStats | DelayqError]:
        """Return the counts of queues, as `Queue.stats` does, or the error in their place; they share round trips."""
        return await self._of_queues(names, inspect.stats)

    async def upcoming_of(
        self, names: Sequence[str], window: Seconds, bucket: Seconds
    ) -> list[list[Upcoming] | DelayqError]:
        """Return the same of `Queue.upcoming`."""
        return await self._of_queues(names, lambda context: counts.upcoming(context, window, bucket))

    async def schedules_of(self, names: Sequence[str]) -> list[list[Schedule]]:
        """Return the schedules of queues, as `Queue.schedules.list` does; they share round trips."""
        return list(map(unwrap, await self._of_queues(names, schedules.list_all)))

    async def readings_of(
        self, names: Sequence[str]
    ) -> list[tuple[QueueStats, list[ConsumerInfo], Usage] | DelayqError]:
        """Return what `Queue.stats`, `consumers` and `usage` return for queues; they share round trips."""
        return await self._of_queues(names, inspect.reading)

    async def examine(self, names: Sequence[str], repair: bool, on_step: Callable[[str, Step], None]) -> list[Report]:
        """Examine queues, as `doctor.examine` does; the server's keys are scanned once for all of them.

        Args:
            on_step: called with the name of the queue and the step.
        """
        with late_import:
            from delayq.operations.doctor import examine  # noqa: PLC0415
        await self._executor.connected()
        contexts = map(self._context_of, names)
        return await self._executor.execute(examine.examine_all(contexts, repair, on_step))

    async def _of_queues(
        self, names: Sequence[str], operation: Callable[[QueueContext], Operation[T]]
    ) -> list[T | DelayqError]:
        await self._executor.connected()
        found: list[T | DelayqError] = []
        for start in range(0, len(names), TOGETHER):
            contexts = [self._context_of(name) for name in names[start : start + TOGETHER]]
            found += await self._executor.execute(gather(*map(operation, contexts)))
        return found

    def _context_of(self, name: str) -> QueueContext:
        context = QueueContext(check_queue_name(name), self.prefix, None, Settings())
        context.spans_nodes, context.is_away = self._executor.spans_nodes, self._executor.is_away
        return context

    async def close(self) -> None:
        """Close the connections; a client that was passed in stays open."""
        await self._executor.close()


@contextmanager
def _translated() -> Iterator[None]:
    """Translate errors of the client into those of delayq."""
    try:
        yield
    except (RedisError, RedisClusterException) as error:
        raise translate(error) from error


class NameSearch:
    """Finds the queues and topics on a server: those in the registry at once, all others in a scan of all keys.

    Attributes:
        names: those found so far.
        is_whole: whether the last scan that ended has found all names; False if it failed.
        rests: whether nobody waits for the scan, so that it pauses between two steps.
    """

    def __init__(self, executor: Executor, prefix: str) -> None:
        self.names: dict[Kind, set[str]] = {kind: set() for kind in KINDS}
        self.is_whole = self.rests = False
        self._executor = executor
        self._prefix = prefix
        self._may_write = True
        self._look_at = 0.0

    async def find_all(self) -> None:
        """Find all names; raises what `steps` does."""
        async for _ in self.steps():
            pass

    async def steps(self) -> AsyncIterator[None]:
        """Search: yield when the registry was read, which takes few round trips, then after each step of the scan.

        At the end, `names` is whole, and so is the registry if this user may write to it.

        Raises:
            ServerError: the server does not answer, or this user may not list keys.
        """
        try:
            async for _ in self._steps():
                yield
        except ServerError:
            self.is_whole = False
            raise

    async def _steps(self) -> AsyncIterator[None]:
        registered = await self._look_up()
        yield
        scanned: dict[Kind, set[str]] = {kind: set() for kind in KINDS}
        async for keys in self._pages():
            for kind in KINDS:
                new = {name for key in keys if (name := name_in(key, self._prefix, kind)) is not None}
                scanned[kind] |= new
                self.names[kind] |= new
            yield
            if monotonic() >= self._look_at:  # a scan may take minutes
                registered = await self._look_up()
            if self.rests:
                await asyncio.sleep(REST_SECONDS)
        for kind, (names, existing, unsure) in registered.items():
            self.names[kind] -= unsure - scanned[kind]
            if names is not None:
                await self._complete(kind, scanned[kind] - names, names - existing - unsure - scanned[kind])
        self.is_whole = True

    async def _look_up(self) -> dict[Kind, Entries]:
        """Read the registry, and forget names whose record is gone."""
        found = await self._executor.execute(registry.look_up(self._prefix, self.names))
        self.names = {kind: each.existing | each.unsure for kind, each in found.items()}
        self._look_at = monotonic() + LOOK_SECONDS
        return found

    async def _pages(self) -> AsyncIterator[list[bytes | str]]:
        client: Any = await self._executor.connected()
        for node in client.get_primaries() if self._executor.spans_nodes() else [None]:
            of_node = {} if node is None else {"target_nodes": node}
            cursor: Any = 0
            while True:
                with _translated():
                    cursor, keys = await client.scan(cursor, pattern(self._prefix), SCANNED, **of_node)
                yield keys
                if node is not None:
                    (cursor,) = cursor.values()
                if not cursor:
                    break

    async def _complete(self, kind: Kind, missing: set[str], gone: set[str]) -> None:
        """Add missing names to the registry, and remove those of deleted keys, unless this user may not."""
        for change, names in ((registry.add, missing), (registry.remove_gone, gone)):
            if names and self._may_write:
                self._may_write = await self._executor.execute(change(self._prefix, kind, sorted(names)))
