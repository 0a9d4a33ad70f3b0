"""Looking at a server's queues again and again: once for all browsers, and only at those that somebody sees."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import Any, TypeAlias

import msgspec

from delayq.aio import Queue
from delayq.errors import DelayqError
from delayq.log import log
from delayq.model.health import Trouble
from delayq.model.totals import QueueFigures, Totals, totals
from delayq.web.health_sweep import LEAST_REST, HealthSweep, end, in_earnest
from delayq.web.live_part import LivePart
from delayq.web.queue_list import NamePage, QueueListView, SingleQueue
from delayq.web.servers import DashboardServer, patience
from delayq.web.snapshot import QueueSnapshot, QueueWatcher, glance, unreadable
from delayq.web.topic_snapshot import TopicSnapshot, TopicWatcher

FAILED = "The dashboard has failed here: its log tells more."

MOST_EYES = 500
"""Queues of which the last hour is remembered."""

MOST_TOLD = 5
"""Queues, or topics, in trouble that are called by their names."""

SHARE_OF_PATIENCE = 0.8
"""What looks and the rest before them may take of the time after which a page says that nothing answers."""

ROUND_WAIT = 0.06
"""Seconds that a page of queues in trouble may wait until all were looked at."""

Wanted: TypeAlias = "QueueListView | SingleQueue"


class ServerSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A server, as it was seen.

    Attributes:
        at: on the monotonic clock.
        page: the names that were wanted.
        queues: these, in the order that is asked for.
        total: how many queues there are.
        looked_at: of how many it is known whether they are in trouble.
        troubled: how many of them are.
        first: the names of the first of these, with the codes of their troubles.
        totals: of the queues that were looked at.
        troubled_topics: how many topics are in trouble, as far as they were looked at.
        first_topics: the names of the first of these, with the troubles of their groups.
        error: why it could not be read, or empty.
        parts: what was made of it, by the prefix under which it is seen, and whether who sees it may act.
    """

    at: float
    page: NamePage = NamePage()
    queues: tuple[QueueSnapshot, ...] = ()
    total: int = 0
    looked_at: int = 0
    troubled: int = 0
    first: dict[str, tuple[str, ...]] = {}
    totals: Totals = Totals()
    troubled_topics: int = 0
    first_topics: dict[str, dict[str, list[Trouble]]] = {}
    error: str = ""
    parts: dict[tuple[str, bool], LivePart] = {}


class ServerPoller:
    """The one who looks at a server for all browsers.

    Args:
        seconds: between two looks, at the least.

    Attributes:
        topics: who looks at the server's topics.
    """

    def __init__(self, server: DashboardServer, seconds: float) -> None:
        self.server = server
        self._seconds = seconds
        self._eyes: dict[str, QueueWatcher] = {}
        self.topics = TopicWatcher(server)
        self._round = HealthSweep[QueueFigures](server.queue_names, self._glance, server.answer)
        self._topic_round = HealthSweep[dict[str, list[Trouble]]](self.topics.names, self._glance_topic, server.answer)
        self._sights: dict[Wanted, ServerSnapshot] = {}
        self._looking = asyncio.Lock()
        self._news = asyncio.Event()
        self._followed = Counter[Wanted]()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    async def now(self, wanted: Wanted) -> ServerSnapshot:
        """Return what was seen last, if that was just now; else look."""
        return await self._bounded(self._now(wanted))

    async def _now(self, wanted: Wanted) -> ServerSnapshot:
        if wanted.needs_all:  # before the lock, for which a round steps aside
            self._round.ask()
            await self._round.whole(ROUND_WAIT)
        async with self._looking:  # who comes meanwhile takes what this look sees
            since = time.monotonic() - self._seconds
            if wanted not in self._sights or self._sights[wanted].at < since:
                kept = {each: sight for each, sight in self._sights.items() if sight.at >= since}
                self._sights = kept | {wanted: await self._look(wanted, since)}
            return self._sights[wanted]

    async def following(self, wanted: Wanted) -> AsyncGenerator[ServerSnapshot, None]:
        """Yield what is seen, until `close`; who is slow misses what came meanwhile, and holds up nobody."""
        self._followed[wanted] += 1
        if self._task is None:
            self._task = asyncio.create_task(self._watch())
        last: ServerSnapshot | None = None
        try:
            while not self._is_closed:
                news = self._news
                sight = self._sights.get(wanted)
                if sight is not None and sight is not last:
                    last = sight
                    yield last
                else:
                    await news.wait()
        finally:
            self._followed[wanted] -= 1
            self._followed += Counter()  # without those that nobody follows
            if not self._followed:
                await self._rest()

    async def close(self) -> None:
        """End all that follow."""
        self._is_closed = True
        self._news.set()
        await self._rest()
        await self._round.close()
        await self._topic_round.close()

    async def look_at(self, name: str, since: float = float("inf")) -> QueueSnapshot:
        """Look at one queue, unless that was done since then, on the monotonic clock."""

        async def look(queue: Queue) -> QueueSnapshot:
            self._eyes[name] = eye = self._eyes.pop(name, None) or QueueWatcher(queue)
            if len(self._eyes) > MOST_EYES:
                del self._eyes[next(iter(self._eyes))]
            return await eye.look(since)

        seen = await self.safely(name, look)
        if not seen.error:  # else it may be the server that is silent
            self._round.note(seen)
        return seen

    def outdate(self, name: str) -> None:
        """Look anew at a queue that an action has changed: the page that tells of that is to show it."""
        if name in self._eyes:
            self._eyes[name].outdate()
        self._sights.clear()

    async def safely(self, name: str, look: Callable[[Queue], Awaitable[QueueSnapshot]]) -> QueueSnapshot:
        """Look at one queue; what keeps one from being seen hides no other."""
        try:
            return await look(await self.server.queue(name))
        except DelayqError as error:
            return unreadable(name, str(error))
        except Exception as error:  # noqa: BLE001  # such as a count that is none
            log.error("queue unreadable", server=self.server.name, queue=name, exc_info=error)
            return unreadable(name, FAILED)

    async def _glance(self, name: str) -> QueueSnapshot:
        async with self._looking:  # what somebody waits for goes first
            pass
        return await self.safely(name, glance)

    async def _glance_topic(self, name: str) -> TopicSnapshot:
        async with self._looking:
            pass
        return await self.topics.glance(name)

    async def _rest(self) -> None:
        task, self._task = self._task, None
        await end(task, self._looking)
        self._sights.clear()  # what was seen would be old when the next one comes

    async def _watch(self) -> None:
        while True:
            began = time.monotonic()
            self._sights = {each: sight for each, sight in self._sights.items() if each in self._followed}
            for each in list(self._followed):
                async with self._looking:  # for each anew: who opens a page waits for one of them only
                    self._sights[each] = await self._bounded(self._look(each, began))
            news, self._news = self._news, asyncio.Event()
            news.set()
            is_away = all(sight.error for sight in self._sights.values())
            took = 0.0 if is_away else time.monotonic() - began
            await asyncio.sleep(rest(took, self._seconds))

    async def _bounded(self, looking: Coroutine[Any, Any, ServerSnapshot]) -> ServerSnapshot:
        try:
            return await self.server.while_it_answers(looking)
        except DelayqError as error:
            return ServerSnapshot(at=time.monotonic(), error=str(error))

    async def _look(self, wanted: Wanted, since: float) -> ServerSnapshot:
        names = await self.server.queue_names()
        self._round.ask()
        page = wanted.listed(names, self._round.troubled, self._round.figures)
        told = [name for name in self._first() if name in names and name not in page.names] if wanted.tells else []
        seen = await in_earnest([*page.names, *told], lambda name: self.look_at(name, since), self.server.answer)
        for each in seen:
            self._round.note(each)
        found = {each.name: each for each in seen}
        ranked = wanted.ranked(page.names, self._round.figures)  # by what was seen just now
        return ServerSnapshot(
            at=time.monotonic(),
            page=page,
            queues=tuple(found[name] for name in ranked),
            total=len(names),
            looked_at=min(len(names), self._round.looked_at),
            troubled=len(self._round.troubled),
            first=self._first(),
            **self._together() if isinstance(wanted, QueueListView) else {},
        )

    def _first(self) -> dict[str, tuple[str, ...]]:
        """Return the queues in trouble that are called by their names, with the codes of their troubles."""
        return dict(heapq.nsmallest(MOST_TOLD, self._round.troubled.items()))

    def _together(self) -> dict[str, Any]:
        """Return what an overview says of all queues and topics of the server."""
        self._topic_round.ask()
        in_trouble = self._topic_round.troubled
        first = heapq.nsmallest(MOST_TOLD, in_trouble)
        return {
            "totals": totals(self._round.figures.values()),
            "troubled_topics": len(in_trouble),
            "first_topics": {name: self._topic_round.figures.get(name, {}) for name in first},
        }


def rest(took: float, interval: float) -> float:
    """Return the seconds to wait after looks that took this long.

    It is four times as much rest as work, yet the next looks are over before a page loses its patience, if they take as
    long as these.
    """
    wanted = max(interval, LEAST_REST * took)
    return min(wanted, max(0.0, SHARE_OF_PATIENCE * patience(interval) - took))
