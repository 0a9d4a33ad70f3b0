"""Going over all queues of a server, or all topics, however many there are, to know which of them are in trouble."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Protocol, TypeVar

from delayq.errors import DelayqError

AT_ONCE = 16
"""Queues that are looked at together."""

LEAST_REST = 4
"""Times as long as a look took, the next one waits: the dashboard and its server have other things to do."""

ROUND_SECONDS = 10.0
"""From the beginning of a round to that of the next one, at the least; what was seen within one is not looked at."""

AGAIN_SECONDS = 1.0
"""Until a server that was silent is asked again: of what was not seen meanwhile, nothing is known."""

LINGER = 60.0
"""Seconds for which rounds go on when nobody asks any more: pages without scripts are asked for now and then."""

PATIENCE = 1.0
"""Seconds that what looks at a server just now may take to end."""

T = TypeVar("T")
F_co = TypeVar("F_co", covariant=True)
F = TypeVar("F")


class Seen(Protocol[F_co]):
    """A queue or a topic, as it was seen.

    Attributes:
        codes: those of its troubles.
        figures: what is kept of it until the next look.
        error: why it could not be read, or empty.
    """

    @property
    def name(self) -> str: ...
    @property
    def codes(self) -> tuple[str, ...]: ...
    @property
    def figures(self) -> F_co: ...
    @property
    def error(self) -> str: ...


S = TypeVar("S", bound=Seen[object])


async def in_turns(names: Sequence[str], look: Callable[[str], Awaitable[T]]) -> list[T]:
    """Look at some queues, a few together."""
    seen: list[T] = []
    for start in range(0, len(names), AT_ONCE):
        seen += await asyncio.gather(*map(look, names[start : start + AT_ONCE]))
    return seen


async def in_earnest(
    names: Sequence[str], look: Callable[[str], Awaitable[S]], answer: Callable[[], Awaitable[None]]
) -> list[S]:
    """Look at some queues; once more at those that could not be read, if it was the server that was silent.

    Args:
        answer: raises ServerError, unless the server answers.

    Raises:
        ServerError: it is silent still, so that no queue is to be blamed.
    """
    seen: list[S] = []
    for start in range(0, len(names), AT_ONCE):
        turn = await in_turns(names[start : start + AT_ONCE], look)
        failed = [each.name for each in turn if each.error]
        if failed:
            await answer()  # before more of them wait for nothing
            again = {each.name: each for each in await in_turns(failed, look)}
            if any(each.error for each in again.values()):
                await answer()  # it may have fallen silent only now
            turn = [again.get(each.name, each) for each in turn]
        seen += turn
    return seen


async def end(task: asyncio.Task[None] | None, looking: asyncio.Lock) -> None:
    """Cancel a task; not while it looks, if that takes no longer than a second: it may be about to connect."""
    if task is None:
        return
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE), looking:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


class HealthSweep(Generic[F]):
    """Looks at one queue, or topic, after the other, for as long as anybody wants to know.

    Args:
        names: returns those of all queues, in order.
        glance: looks at one.
        answer: raises ServerError, unless the server answers.

    Attributes:
        troubled: the queues in trouble, as far as they were looked at, with the codes of their troubles.
        figures: what is kept of each that could be read, by its name.
    """

    def __init__(
        self,
        names: Callable[[], Awaitable[Sequence[str]]],
        glance: Callable[[str], Awaitable[Seen[F]]],
        answer: Callable[[], Awaitable[None]],
    ) -> None:
        self.troubled: dict[str, tuple[str, ...]] = {}
        self.figures: dict[str, F] = {}
        self._names = names
        self._glance = glance
        self._answer = answer
        self._looked_at: dict[str, float] = {}
        self._until = 0.0
        self._is_whole = asyncio.Event()
        self._looking = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    @property
    def looked_at(self) -> int:
        """How many queues were looked at since somebody has asked."""
        return len(self._looked_at)

    def note(self, seen: Seen[F]) -> None:
        """Remember what was seen of a queue, which somebody has looked at."""
        self._forget(seen.name)
        self._looked_at[seen.name] = time.monotonic()
        if seen.codes:
            self.troubled[seen.name] = seen.codes
        if not seen.error:
            self.figures[seen.name] = seen.figures

    def ask(self) -> None:
        """Go on for a minute."""
        self._until = time.monotonic() + LINGER
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._go_on())

    async def whole(self, seconds: float) -> None:
        """Wait until all queues were looked at, or so long."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._is_whole.wait(), seconds)

    async def close(self) -> None:
        """End it."""
        task, self._task = self._task, None
        await end(task, self._looking)

    async def _go_on(self) -> None:
        while time.monotonic() < self._until:
            began = time.monotonic()
            try:
                await self._once(began - ROUND_SECONDS)
            except DelayqError:  # who looks at a page is told; the round goes on where it was
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                await asyncio.sleep(max(ROUND_SECONDS / 10, began + ROUND_SECONDS - time.monotonic()))
        self._looked_at.clear()  # it would be old when somebody asks again
        self.troubled.clear()
        self.figures.clear()
        self._is_whole.clear()

    async def _once(self, since: float) -> None:
        names = await self._names()
        old = [name for name in names if self._looked_at.get(name, since) <= since]
        for start in range(0, len(old), AT_ONCE):
            began = time.monotonic()
            async with self._looking:
                for seen in await in_earnest(old[start : start + AT_ONCE], self._glance, self._answer):
                    self.note(seen)
            await asyncio.sleep(LEAST_REST * (time.monotonic() - began))
        for gone in self._looked_at.keys() - set(names):
            self._forget(gone)
        self._is_whole.set()

    def _forget(self, name: str) -> None:
        for kept in (self._looked_at, self.troubled, self.figures):
            kept.pop(name, None)
