"""Checks all queues or topics of a server in turn, however many there are, to find those in trouble."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Protocol, TypeVar

from delayq.errors import DelayqError

AT_ONCE = 16
"""The number of queues that are checked at once."""

LEAST_REST = 4
"""The rest after a check, as a multiple of its time: the dashboard and its server have other things to do."""

ROUND_SECONDS = 10.0
"""The minimum time between the starts of two rounds; a queue that was seen within it is not checked again."""

AGAIN_SECONDS = 1.0
"""The wait before a silent server is asked again. Nothing is known of queues that were not seen meanwhile."""

LINGER = 60.0
"""Seconds for which rounds continue after the last request: pages without scripts are only reloaded now and then."""

PATIENCE = 1.0
"""Seconds that a running check may take to end."""

T = TypeVar("T")
F_co = TypeVar("F_co", covariant=True)
F = TypeVar("F")


class Seen(Protocol[F_co]):
    """A queue or a topic, as it was seen.

    Attributes:
        codes: the codes of its troubles.
        figures: what is kept until the next check.
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
    """Check queues, a few at a time."""
    seen: list[T] = []
    for start in range(0, len(names), AT_ONCE):
        seen += await asyncio.gather(*map(look, names[start : start + AT_ONCE]))
    return seen


async def in_earnest(
    names: Sequence[str], look: Callable[[str], Awaitable[S]], answer: Callable[[], Awaitable[None]]
) -> list[S]:
    """Check queues; if the server was silent, check those again that could not be read.

    Args:
        answer: raises ServerError unless the server answers.

    Raises:
        ServerError: the server is still silent, so the queues are not to blame.
    """
    seen: list[S] = []
    for start in range(0, len(names), AT_ONCE):
        turn = await in_turns(names[start : start + AT_ONCE], look)
        failed = [each.name for each in turn if each.error]
        if failed:
            await answer()  # before more checks wait in vain
            again = {each.name: each for each in await in_turns(failed, look)}
            if any(each.error for each in again.values()):
                await answer()  # it may have just fallen silent
            turn = [again.get(each.name, each) for each in turn]
        seen += turn
    return seen


async def end(task: asyncio.Task[None] | None, looking: asyncio.Lock) -> None:
    """Cancel a task, but wait up to a second for a running check: it may be about to connect."""
    if task is None:
        return
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE), looking:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


class HealthSweep(Generic[F]):
    """Checks one queue or topic after the other, as long as anybody watches.

    Args:
        names: returns the names of all queues, in order.
        glance: checks one.
        answer: raises ServerError unless the server answers.

    Attributes:
        troubled: the queues in trouble, as far as they were checked, with the codes of their troubles.
        figures: what is kept of each queue that could be read, by name.
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
        """The number of queues checked since somebody started to watch."""
        return len(self._looked_at)

    def note(self, seen: Seen[F]) -> None:
        """Remember a queue that was seen outside of a round."""
        self._forget(seen.name)
        self._looked_at[seen.name] = time.monotonic()
        if seen.codes:
            self.troubled[seen.name] = seen.codes
        if not seen.error:
            self.figures[seen.name] = seen.figures

    def ask(self) -> None:
        """Keep checking for another minute."""
        self._until = time.monotonic() + LINGER
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._go_on())

    async def whole(self, seconds: float) -> None:
        """Wait until all queues are checked, at most this long."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._is_whole.wait(), seconds)

    async def close(self) -> None:
        """Stop checking."""
        task, self._task = self._task, None
        await end(task, self._looking)

    async def _go_on(self) -> None:
        while time.monotonic() < self._until:
            began = time.monotonic()
            try:
                await self._once(began - ROUND_SECONDS)
            except DelayqError:  # pages show the error; the round continues from here
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                await asyncio.sleep(max(ROUND_SECONDS / 10, began + ROUND_SECONDS - time.monotonic()))
        self._looked_at.clear()  # it would be out of date at the next request
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
