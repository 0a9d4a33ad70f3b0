"""The servers of the dashboard, and their queues and topics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster

from delayq.aio import Queue, Topic
from delayq.aio.queue_names import NameSearch, Server
from delayq.errors import InvalidInput, ServerError, ServerUnreachable
from delayq.log import log
from delayq.model import server_url as url
from delayq.model.credentials import may_hold_password
from delayq.model.validation import KINDS, Kind, check_queue_name

SEARCH_SECONDS = 60.0
"""How long a list of names is valid: a search scans all keys of the server."""

AGAIN_SECONDS = 10.0
"""The same after a search that failed."""

STEP_SECONDS = 1.0
"""How long a page waits for the first search, and the time between two lists of the names found so far."""

SILENCE_SECONDS = 5.0
"""A server that has not answered for this long is shown as silent."""

LEAVE_SECONDS = 1.0
"""How long a call may take to end if its server is silent."""

RESERVED = {"api", "login", "logout", "metrics", "static"}
"""Path segments at the place of a server's name: no server can have them as its name."""

ASKED_AS = "server"
"""A queue name, which need not exist: the server that would hold its keys is asked."""

T = TypeVar("T")
Place: TypeAlias = "str | Redis | RedisCluster"
Places: TypeAlias = "Place | Sequence[Place] | Mapping[str, Place] | None"


def patience(interval: float) -> float:
    """Return after how many seconds a page says that a server does not answer, if it is read every `interval`."""
    return max(SILENCE_SECONDS, 2.5 * interval)


class DashboardServer(Server):
    """A Redis server, connected when first needed, and shared by all requests.

    Args:
        name: its name in the dashboard.
        place: its URL, or a client of redis.asyncio, which stays open; None for DELAYQ_URL or the embedded store.
        prefix: the prefix of all keys.
    """

    def __init__(self, name: str, place: Place | None, prefix: str) -> None:
        self.name = name
        if isinstance(place, str):
            url.check(place)  # a wrong URL fails at the start
        at, client = (place, None) if place is None or isinstance(place, str) else (None, place)
        super().__init__(at, client, prefix, "the dashboard")
        self._queues: dict[str, Queue] = {}
        self._names = KnownNames(self.search, self._forget)

    async def queue_names(self) -> list[str]:
        """Return the names of queues, in order, as of the last minute or two. See `is_partial`."""
        return await self._names.known("queue")

    async def topic_names(self) -> list[str]:
        """Return the names of topics, in order, as of the last minute or two. See `is_partial`."""
        return await self._names.known("topic")

    async def all_names(self, kind: Kind) -> list[str]:
        """Return the names of all queues or topics, in order, as of the last minute or two.

        Raises:
            ServerError: the server does not answer, or the search for names failed.
        """
        return (await self.while_it_answers(self._names.whole()))[kind]

    @property
    def is_partial(self) -> bool:
        """Whether there may be more names: no search has ended yet, or the last one failed."""
        return not self._names.is_whole

    @property
    def search_error(self) -> str:
        """Why the last search for names failed; empty if it did not."""
        return str(self._names.error or "")

    async def while_it_answers(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for the result, however long it takes, as long as the server answers pings meanwhile.

        Raises:
            ServerUnreachable: the server has not answered for five seconds.
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
        """Raise ServerUnreachable unless the server answers a ping within this time, by default five seconds."""
        try:
            async with asyncio.timeout(seconds or SILENCE_SECONDS):
                await self.ping()
        except TimeoutError as error:
            message = f"{self.name} has not answered for {SILENCE_SECONDS:g} s: check that the server runs"
            raise ServerUnreachable(message) from error

    async def queue(self, name: str) -> Queue:
        """Return a queue with its recorded number of shards."""
        if name not in self._queues:
            client = await self.client()
            self._queues[name] = Queue(check_queue_name(name), redis=client, prefix=self.prefix, shards=None)
        return self._queues[name]

    async def topic(self, name: str) -> Topic:
        """Return a topic with its recorded number of shards."""
        client = await self.client()
        return Topic(check_queue_name(name, "topic name"), redis=client, prefix=self.prefix, shards=None)

    async def close(self) -> None:
        """Close the connections."""
        await self._names.close()
        queues, self._queues = list(self._queues.values()), {}
        for queue in queues:
            await queue.close()
        await super().close()

    def _forget(self, names: Collection[str]) -> None:
        """Forget all other queues: names that come and go would pile up."""
        self._queues = {name: queue for name, queue in self._queues.items() if name in names}


class KnownNames:
    """The names of a server's queues and topics. Those in the registry are known while a search for others is running.

    Args:
        found: is called with the names of all queues, whenever they may have changed.

    Attributes:
        error: why the last search failed; None if it did not.
    """

    def __init__(self, search: NameSearch, found: Callable[[Collection[str]], None]) -> None:
        self.error: ServerError | None = None
        self._search = search
        self._found = found
        self._names: dict[Kind, list[str]] = {}
        self._are_known = {kind: asyncio.Event() for kind in KINDS}
        self._published_at = float("-inf")
        self._search_at = float("-inf")
        self._searching: asyncio.Task[None] | None = None
        self._waiting = 0

    @property
    def is_whole(self) -> bool:
        """Whether the last search that ended has found all names."""
        return self._search.is_whole and self.error is None

    async def known(self, kind: Kind) -> list[str]:
        """Return the names of a kind, sorted; only the first ones are waited for.

        Raises:
            ServerError: a search failed and found nothing; the next request starts another one.
        """
        if self._searching is None and time.monotonic() > self._search_at:
            self._start()
        searching = self._searching
        if searching is not None and (kind not in self._names or searching.done()):
            await self._first(kind, searching)
        return self._names[kind]

    async def whole(self) -> dict[Kind, list[str]]:
        """Return all names, sorted, after the first search has ended.

        Raises:
            ServerError: the search failed, even if it found some names; the next request starts another one.
        """
        if self.is_whole:
            await self.known("queue")  # starts a search if it is time
            return self._names
        searching = self._searching
        if searching is None or searching.done():
            searching = self._start()
        self._wait(+1)
        try:
            await asyncio.wait({searching})
        finally:
            self._wait(-1)
        self._end(searching)
        if self.error is not None:
            raise self.error
        return self._names

    async def close(self) -> None:
        """End the search."""
        if self._searching is not None:
            self._searching.cancel()
            await asyncio.gather(self._searching, return_exceptions=True)

    def _start(self) -> asyncio.Task[None]:
        self._searching = asyncio.create_task(self._run())
        self._searching.add_done_callback(lambda task: task.cancelled() or task.exception())  # `_end` may not be called
        return self._searching

    def _end(self, searching: asyncio.Task[None]) -> None:
        """Raise the error of a search that has ended."""
        if self._searching is searching:
            self._searching = None
        searching.result()

    def _wait(self, change: int) -> None:
        """Note how many requests wait for the whole; the search rests if nobody does, except for the first one."""
        self._waiting += change
        self._search.rests = not self._waiting and (self._search.is_whole or self.error is not None)

    async def _first(self, kind: Kind, searching: asyncio.Task[None]) -> None:
        """Wait until names are known; a request that is cancelled does not end the search for others."""
        if not searching.done():
            known = asyncio.create_task(self._are_known[kind].wait())
            try:
                await asyncio.wait({searching, known}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                known.cancel()
        if searching.done():
            self._end(searching)

    async def _run(self) -> None:
        """Search. A failed scan hides none of the known names, and leaves an `error`."""
        self._wait(0)
        self._published_at, steps, error = time.monotonic(), 0, None
        try:
            async for _ in self._search.steps():
                steps += 1
                self._publish_some(steps == 1)
        except ServerError as failure:
            self.error = error = failure
            if not (steps and any(self._search.names.values())):
                raise
            log.debug("keys not scanned", error=str(failure))
        self.error = error
        self._publish(KINDS)
        self._search_at = time.monotonic() + (SEARCH_SECONDS if error is None else AGAIN_SECONDS)

    def _publish_some(self, is_registry: bool) -> None:
        """Publish the kinds with names in the registry, then once a second those that have changed."""
        now, found = time.monotonic(), self._search.names
        if is_registry:
            self._publish([kind for kind in KINDS if found[kind]])
        elif now >= self._published_at + STEP_SECONDS:
            self._published_at = now
            self._publish(
                [kind for kind in KINDS if kind not in self._names or len(self._names[kind]) != len(found[kind])]
            )

    def _publish(self, kinds: Iterable[Kind]) -> None:
        for kind in kinds:
            self._names[kind] = sorted(self._search.names[kind])
            self._are_known[kind].set()
        if self._search.is_whole or self.error is not None:
            self._found(self._search.names["queue"])


def servers_of(places: Places, prefix: str) -> dict[str, DashboardServer]:
    """Return the servers by name: the given names, or else their addresses.

    Raises:
        InvalidInput: no server is given, or one is given twice, or a name or a URL is invalid.
    """
    named = dict(places) if isinstance(places, Mapping) else dict(_named(places))
    if any(may_hold_password(str(name)) for name in named):
        raise InvalidInput("the name of a server looks like a URL or a connection string: give {name: URL}")
    if not named:
        raise InvalidInput("no server given: give at least one URL")
    if taken := RESERVED & named.keys():
        raise InvalidInput(f"server name {min(taken)!r} is reserved for a page: choose another")
    return {
        check_queue_name(name, "server name"): DashboardServer(name, place, prefix) for name, place in named.items()
    }


def _named(places: Place | Sequence[Place] | None) -> Iterator[tuple[str, Place | None]]:
    several = places if isinstance(places, Sequence) and not isinstance(places, str) else [places]
    seen: set[str] = set()
    for place in several:
        name = address(place)
        if name in seen:
            raise InvalidInput(f"the server {name} is given twice: remove one, or name them, such as west={name}")
        seen.add(name)
        yield name, place


def address(place: Place | None) -> str:
    """Return the address of a server without credentials: its default name.

    Raises:
        InvalidURL: `place` is an invalid URL.
    """
    if place is None:
        return "default"
    if not isinstance(place, str):
        pool = getattr(place, "connection_pool", None)
        given = getattr(pool, "connection_kwargs", {})
        return str(given.get("path") or f"{given.get('host', 'cluster')}:{given.get('port', 6379)}")
    url.check(place)
    scheme, _, rest = url.redact(place).partition("://")
    if rest == url.HIDDEN:
        return scheme
    shown = rest.partition("?")[0].rpartition("@")[2].removesuffix("/0")
    return shown.strip("/") or "embedded"
