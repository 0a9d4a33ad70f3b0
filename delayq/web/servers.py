"""The servers that the dashboard looks at, and the queues and topics on them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from redis.exceptions import NoPermissionError, RedisClusterException, RedisError

from delayq.aio import Queue, Topic
from delayq.errors import InvalidInput, ServerUnreachable
from delayq.model.validation import check_prefix, check_queue_name
from delayq.protocol.discovery import Kind, name_in, pattern, record_key
from delayq.transport import url
from delayq.transport.executor_async import Client, Executor
from delayq.transport.open_client_async import connect
from delayq.transport.server_check import translate

SEARCH_SECONDS = 60.0
"""How long a list of names holds: a search goes over all keys of the server."""

SILENCE_SECONDS = 5.0
"""A server that has not answered for this long is shown as silent."""

LEAVE_SECONDS = 1.0
"""That a call may take to end when its server is silent."""

RESERVED = {"api", "login", "logout", "metrics", "static"}
"""What stands in a path where the name of a server does."""

ASKED_AS = "server"
"""A queue of this name need not be there: where its keys would be is who is asked."""

T = TypeVar("T")
Place: TypeAlias = "str | Client"
Places: TypeAlias = "Place | Sequence[Place] | Mapping[str, Place] | None"


def patience(interval: float) -> float:
    """Return after how many seconds a page says that nothing answers, where a server is looked at every `interval`."""
    return max(SILENCE_SECONDS, 2.5 * interval)


class DashboardServer:
    """A Redis server, connected when first needed, and shared by all who look at it.

    Args:
        name: what it is called in the dashboard.
        place: its URL, or a client of redis.asyncio, which stays open; None for DELAYQ_URL or the embedded store.
        prefix: what all keys begin with.
    """

    def __init__(self, name: str, place: Place | None, prefix: str) -> None:
        self.name = name
        self.prefix = check_prefix(prefix)
        is_url = place is None or isinstance(place, str)
        if isinstance(place, str):
            url.make(place, _CHECKING)
        self._connection = Executor(lambda: connect(place) if is_url else place, shared=not is_url)  # type: ignore[arg-type, return-value]
        self._queues: dict[str, Queue] = {}
        self._names = KnownNames[dict[Kind, list[str]]]()

    async def client(self) -> Client:
        """Return the client, connected and its server checked."""
        return await self._connection.connected()

    async def queue_names(self) -> list[str]:
        """Return the names of all queues that were recorded a minute or two ago, in order."""
        return await self._found("queue")

    async def topic_names(self) -> list[str]:
        """Return the names of all topics that were recorded a minute or two ago, in order."""
        return await self._found("topic")

    async def has(self, kind: Kind, name: str) -> bool:
        """Whether there is such a queue or topic: one key tells, however many there are beside it."""
        key = record_key(name, self.prefix, kind)
        client: Any = await self.client()
        with _translated():
            return key is not None and await client.hget(key, "format") is not None  # as rights to look allow

    async def answer(self) -> None:
        """Raise ServerError, unless the server answers."""
        client: Any = await self.client()
        with _translated(), contextlib.suppress(NoPermissionError):  # which is an answer
            await client.ping()

    async def while_it_answers(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what the server is asked for, however long that takes, as long as it answers a ping beside it.

        Raises:
            ServerUnreachable: it has answered nothing for five seconds.
        """
        working = asyncio.create_task(work)
        try:
            while not (await asyncio.wait({working}, timeout=SILENCE_SECONDS / 2))[0]:
                await self.check_answers(SILENCE_SECONDS / 2)
            return working.result()
        finally:
            working.cancel()
            await asyncio.wait({working}, timeout=LEAVE_SECONDS)

    async def check_answers(self, seconds: float | None = None) -> None:
        """Raise ServerUnreachable, unless the server answers a ping within so long, or within five seconds."""
        try:
            async with asyncio.timeout(seconds or SILENCE_SECONDS):
                await self.answer()
        except TimeoutError as error:
            told = f"{self.name} has not answered for {SILENCE_SECONDS:g} s: check that the server runs"
            raise ServerUnreachable(told) from error

    async def queue(self, name: str) -> Queue:
        """Return a queue, with the number of shards that is recorded."""
        if name not in self._queues:
            client = await self.client()
            self._queues[name] = Queue(check_queue_name(name), redis=client, prefix=self.prefix, shards=None)
        return self._queues[name]

    async def topic(self, name: str) -> Topic:
        """Return a topic, with the number of shards that is recorded."""
        client = await self.client()
        return Topic(check_queue_name(name, "topic name"), redis=client, prefix=self.prefix, shards=None)

    async def close(self) -> None:
        """Close the connections."""
        await self._names.close()
        queues, self._queues = list(self._queues.values()), {}
        for queue in queues:
            await queue.close()
        await self._connection.close()

    async def _found(self, kind: Kind) -> list[str]:
        return (await self._names.known(self._search))[kind]

    async def _search(self) -> dict[Kind, list[str]]:
        """Find queues and topics together: it goes over all keys of the server."""
        client = await self.client()
        found: dict[Kind, set[str]] = {"queue": set(), "topic": set()}
        with _translated():
            async for key in client.scan_iter(match=pattern(self.prefix), count=1000):
                for kind, names in found.items():
                    if (name := name_in(key, self.prefix, kind)) is not None:
                        names.add(name)
        # Of names that come and go, those that are gone would pile up.
        self._queues = {name: queue for name, queue in self._queues.items() if name in found["queue"]}
        return {kind: sorted(names) for kind, names in found.items()}


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Tell of what the client itself has met as everywhere else."""
    try:
        yield
    except (RedisError, RedisClusterException) as error:
        raise translate(error) from error


def _checked(*_: Any, **__: Any) -> None:
    """Stand for a client: a URL that is wrong is told at the start, and connects to nothing yet."""


_CHECKING = url.Makers(*[_checked] * 5)


class KnownNames(Generic[T]):
    """What a search has found; while the next one goes on, which may take long, that is still what is known."""

    def __init__(self) -> None:
        self._found: T | None = None
        self._searched_at = float("-inf")
        self._searching: asyncio.Task[T] | None = None

    async def known(self, search: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return what was found; only the first search is waited for.

        Raises:
            ServerError: what a search has met; the next one begins when somebody asks again.
        """
        if self._searching is None and time.monotonic() - self._searched_at > SEARCH_SECONDS:
            self._searching = asyncio.create_task(search())
        if self._searching is not None and (self._found is None or self._searching.done()):
            await self._end(self._searching)
        assert self._found is not None, "a search has ended"
        return self._found

    async def close(self) -> None:
        """End the search."""
        if self._searching is not None:
            self._searching.cancel()
            await asyncio.gather(self._searching, return_exceptions=True)

    async def _end(self, searching: asyncio.Task[T]) -> None:
        try:
            self._found = await asyncio.shield(searching)  # whoever leaves takes it from nobody else
            self._searched_at = time.monotonic()
        finally:
            if searching.done() and self._searching is searching:
                self._searching = None


def servers_of(places: Places, prefix: str) -> dict[str, DashboardServer]:
    """Return the servers by their names: those given, or else their addresses.

    Raises:
        InvalidInput: no server is given, or one of them twice; or a name or a URL is none.
    """
    named = dict(places) if isinstance(places, Mapping) else dict(_named(places))
    if not named:
        raise InvalidInput("no server was given: give one URL, at the least")
    if taken := RESERVED & named.keys():
        raise InvalidInput(f"server name {min(taken)!r} is that of a page: choose another")
    return {
        check_queue_name(name, "server name"): DashboardServer(name, place, prefix) for name, place in named.items()
    }


def _named(places: Place | Sequence[Place] | None) -> Iterator[tuple[str, Place | None]]:
    several = places if isinstance(places, Sequence) and not isinstance(places, str) else [places]
    seen: set[str] = set()
    for place in several:
        name = address(place)
        if name in seen:
            raise InvalidInput(f"the server {name} was given twice: leave one out, or name them, as in west={name}")
        seen.add(name)
        yield name, place


def address(place: Place | None) -> str:
    """Return where a server is, without what logs in to it: what it is called when nobody says."""
    if place is None:
        return "default"
    if not isinstance(place, str):
        pool = getattr(place, "connection_pool", None)
        given = getattr(pool, "connection_kwargs", {})
        return str(given.get("path") or f"{given.get('host', 'cluster')}:{given.get('port', 6379)}")
    _, _, rest = url.redact(place).partition("://")
    shown = rest.partition("?")[0].rpartition("@")[2].removesuffix("/0")
    return shown.strip("/") or "embedded"
