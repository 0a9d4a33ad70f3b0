"""Polls a server's queues: once for all browsers, and only those that somebody watches."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import Any, TypeAlias

import msgspec
from starlette.requests import Request

from delayq.aio import Queue
from delayq.errors import DelayqError
from delayq.log import log
from delayq.model.health import Trouble, badness
from delayq.model.totals import QueueFigures, Totals, totals
from delayq.web import path_params
from delayq.web.health_sweep import LEAST_REST, HealthSweep, end, in_earnest
from delayq.web.live_part import LivePart
from delayq.web.queue_list import NamePage, QueueListView, SingleQueue
from delayq.web.servers import DashboardServer, patience
from delayq.web.snapshot import QueueSnapshot, QueueWatcher, glance, unreadable
from delayq.web.topic_snapshot import TopicSnapshot, TopicWatcher

FAILED = "Internal error: see the dashboard’s log."

MOST_WATCHERS = 500
"""The number of queues whose last hour is remembered."""

MOST_NAMED = 5
"""The number of queues, and of topics, in trouble that are named."""

SHARE_OF_PATIENCE = 0.8
"""The share of a page's patience that a look and the rest before it may take."""

ROUND_WAIT = 0.06
"""Seconds that a page of queues in trouble may wait until all are checked."""

Wanted: TypeAlias = "QueueListView | SingleQueue"


class ServerSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A server, as it was seen.

    Attributes:
        at: the time on the monotonic clock.
        page: the names on the page.
        queues: their queues, in the requested order.
        total: the number of queues.
        is_partial: whether there may be more queues: the first search for names has not ended, or the last one failed.
        search_error: why it failed, or empty.
        is_awaited: whether the server has not answered yet, so that nothing is known.
        topics: the number of topics; counted only if there are no queues.
        looked_at: the number of queues that were checked for trouble.
        troubled: the number of these that are in trouble.
        first: the names of the queues in the worst trouble, with the codes of their troubles.
        totals: the totals of the queues that were checked.
        troubled_topics: the number of topics in trouble, as far as they were checked.
        first_topics: the names of the topics in the worst trouble, with the troubles of their groups.
        error: why it could not be read, or empty.
        parts: the rendered parts, by the dashboard's prefix and whether the user may act.
    """

    at: float
    page: NamePage = NamePage()
    queues: tuple[QueueSnapshot, ...] = ()
    total: int = 0
    is_partial: bool = False
    search_error: str = ""
    is_awaited: bool = False
    topics: int = 0
    looked_at: int = 0
    troubled: int = 0
    first: dict[str, tuple[str, ...]] = {}
    totals: Totals = Totals()
    troubled_topics: int = 0
    first_topics: dict[str, dict[str, list[Trouble]]] = {}
    error: str = ""
    parts: dict[tuple[str, bool], LivePart] = {}


class ServerPoller:
    """Polls a server for all browsers.

    Args:
        seconds: the minimum between two looks.

    Attributes:
        topics: the watcher of the server's topics.
        error: why it could not be read when this was last tried, or empty.
    """

    def __init__(self, server: DashboardServer, seconds: float) -> None:
        self.server = server
        self._seconds = seconds
        self._watchers: dict[str, QueueWatcher] = {}
        self.topics = TopicWatcher(server)
        self._round = HealthSweep[QueueFigures](server.queue_names, self._glance, server.ping)
        self._topic_round = HealthSweep[dict[str, list[Trouble]]](self.topics.names, self._glance_topic, server.ping)
        self._snapshots: dict[Wanted, ServerSnapshot] = {}
        self._looking = asyncio.Lock()
        self._news = asyncio.Event()
        self._followed = Counter[Wanted]()
        self._task: asyncio.Task[None] | None = None
        self._looks: set[asyncio.Task[ServerSnapshot]] = set()
        self._is_closed = False
        self.error = ""

    def begin(self, wanted: Wanted) -> asyncio.Task[ServerSnapshot]:
        """Begin `now`, which continues if the caller stops waiting for it."""
        look = asyncio.create_task(self.now(wanted))
        self._looks.add(look)
        look.add_done_callback(self._looks.discard)
        return look

    async def now(self, wanted: Wanted) -> ServerSnapshot:
        """Return the last snapshot if it is fresh; otherwise look."""
        return await self._bounded(self._now(wanted))

    async def _now(self, wanted: Wanted) -> ServerSnapshot:
        if wanted.needs_all:  # before taking the lock, which a round gives up in between
            self._round.ask()
            await self._round.whole(ROUND_WAIT)
        async with self._looking:  # requests that come meanwhile share this look
            since = time.monotonic() - self._seconds
            seen = self._snapshots.get(wanted)
            if seen is None or seen.at < since or (seen.is_partial and not self.server.is_partial):
                kept = {each: snapshot for each, snapshot in self._snapshots.items() if snapshot.at >= since}
                self._snapshots = kept | {wanted: await self._look(wanted, since)}
            return self._snapshots[wanted]

    async def following(self, wanted: Wanted) -> AsyncGenerator[ServerSnapshot, None]:
        """Yield snapshots until `close`. A slow reader misses some, and holds up nobody."""
        self._followed[wanted] += 1
        if self._task is None:
            self._task = asyncio.create_task(self._watch())
        last: ServerSnapshot | None = None
        try:
            while not self._is_closed:
                news = self._news
                snapshot = self._snapshots.get(wanted)
                if snapshot is not None and snapshot is not last:
                    last = snapshot
                    yield last
                else:
                    await news.wait()
        finally:
            self._followed[wanted] -= 1
            self._followed += Counter()  # drops those that nobody follows
            if not self._followed:
                await self._rest()

    async def close(self) -> None:
        """End all streams."""
        self._is_closed = True
        self._news.set()
        await self._rest()
        looks = list(self._looks)
        for look in looks:
            look.cancel()
        await asyncio.gather(*looks, return_exceptions=True)
        await self._round.close()
        await self._topic_round.close()

    async def look_at(self, name: str, since: float = float("inf")) -> QueueSnapshot:
        """Look at one queue, unless it was looked at after `since`, on the monotonic clock."""

        async def look(queue: Queue) -> QueueSnapshot:
            self._watchers[name] = watcher = self._watchers.pop(name, None) or QueueWatcher(queue)
            if len(self._watchers) > MOST_WATCHERS:
                del self._watchers[next(iter(self._watchers))]
            return await watcher.look(since)

        seen = await self.safely(name, look)
        if not seen.error:  # otherwise the server itself may be silent
            self._round.note(seen)
        return seen

    def outdate(self, name: str) -> None:
        """Look at a queue again after an action, so that the next page shows the change."""
        if name in self._watchers:
            self._watchers[name].outdate()
        self._snapshots.clear()

    async def safely(self, name: str, look: Callable[[Queue], Awaitable[QueueSnapshot]]) -> QueueSnapshot:
        """Look at one queue; a queue that cannot be read does not hide the others."""
        try:
            return await look(await self.server.queue(name))
        except DelayqError as error:
            return unreadable(name, str(error))
        except Exception as error:  # noqa: BLE001  # such as a count that is not a number
            log.error("queue unreadable", server=self.server.name, queue=name, exc_info=error)
            return unreadable(name, FAILED)

    async def _glance(self, name: str) -> QueueSnapshot:
        async with self._looking:  # requests go first
            pass
        return await self.safely(name, glance)

    async def _glance_topic(self, name: str) -> TopicSnapshot:
        async with self._looking:
            pass
        return await self.topics.glance(name)

    async def _rest(self) -> None:
        task, self._task = self._task, None
        await end(task, self._looking)
        self._snapshots.clear()  # they would be out of date for the next reader

    async def _watch(self) -> None:
        while True:
            began = time.monotonic()
            self._snapshots = {each: snapshot for each, snapshot in self._snapshots.items() if each in self._followed}
            for each in list(self._followed):
                async with self._looking:  # taken for each: a new page waits for one look only
                    self._snapshots[each] = await self._bounded(self._look(each, began))
            news, self._news = self._news, asyncio.Event()
            news.set()
            is_away = all(snapshot.error for snapshot in self._snapshots.values())
            took = 0.0 if is_away else time.monotonic() - began
            await asyncio.sleep(rest(took, self._seconds))

    async def _bounded(self, looking: Coroutine[Any, Any, ServerSnapshot]) -> ServerSnapshot:
        try:
            seen = await self.server.while_it_answers(looking)
        except DelayqError as error:
            seen = ServerSnapshot(at=time.monotonic(), error=str(error))
        self.error = seen.error
        return seen

    async def _look(self, wanted: Wanted, since: float) -> ServerSnapshot:
        names = await self.server.queue_names()
        self._round.ask()
        page = wanted.listed(names, self._round.troubled, self._round.figures)
        troubled = [name for name in self._first() if name in names and name not in page.names] if wanted.tells else []
        seen = await in_earnest([*page.names, *troubled], lambda name: self.look_at(name, since), self.server.ping)
        for each in seen:
            self._round.note(each)
        found = {each.name: each for each in seen}
        ranked = wanted.ranked(page.names, self._round.figures)  # sorted by the new figures
        return ServerSnapshot(
            at=time.monotonic(),
            page=page,
            queues=tuple(found[name] for name in ranked),
            total=len(names),
            is_partial=self.server.is_partial or names != await self.server.queue_names(),
            search_error=self.server.search_error,
            topics=0 if names else len(await self.server.topic_names()),
            looked_at=min(len(names), self._round.looked_at),
            troubled=len(self._round.troubled),
            first=self._first(),
            **self._together() if isinstance(wanted, QueueListView) else {},
        )

    def _first(self) -> dict[str, tuple[str, ...]]:
        """Return the queues in trouble that are named, worst first, with the codes of their troubles."""
        figures = self._round.figures

        def key(item: tuple[str, tuple[str, ...]]) -> tuple[tuple[int, ...], float, str]:
            known = figures.get(item[0])
            return badness(item[1]), -(known.overdue or 0) if known else 0, item[0]

        return dict(heapq.nsmallest(MOST_NAMED, self._round.troubled.items(), key))

    def _together(self) -> dict[str, Any]:
        """Return the overview's data about all queues and topics of the server."""
        self._topic_round.ask()
        in_trouble = self._topic_round.troubled
        first = heapq.nsmallest(MOST_NAMED, in_trouble, lambda name: (badness(in_trouble[name]), name))
        return {
            "totals": totals(self._round.figures.values()),
            "troubled_topics": len(in_trouble),
            "first_topics": {name: self._topic_round.figures.get(name, {}) for name in first},
        }


def watch_of(request: Request) -> ServerPoller:
    """Return the poller of the server in the path; raises a 404 if there is none."""
    watches: dict[str, ServerPoller] = request.app.state.watches
    return watches[path_params.server_of(request).name]


def rest(took: float, interval: float) -> float:
    """Return the seconds to rest after looks that took this long.

    The rest is four times as long as the work, but short enough that the next looks end within a page's patience if
    they take as long as these.
    """
    wanted = max(interval, LEAST_REST * took)
    return min(wanted, max(0.0, SHARE_OF_PATIENCE * patience(interval) - took))
