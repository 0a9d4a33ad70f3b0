"""The base classes of a peer's program."""

from __future__ import annotations

import argparse
import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar

from messages import Message, batched
from tally import Tally

SENDERS = 32  # concurrent senders for fill, if calls are async and there is no bulk call

T = TypeVar("T")
Verb: TypeAlias = Callable[[argparse.Namespace], dict[str, Any]]


class Run(NamedTuple):
    """The options of a program.

    Attributes:
        url: of the server.
        setting: "throughput" or "latency".
        results: for how many seconds what a handler returns is kept; 0 to keep nothing.
        tally: counts what is consumed.
    """

    url: str
    setting: str
    results: int
    tally: Tally


class Peer(ABC):
    """A queue to measure.

    Attributes:
        name: for people.
        version: of the peer.
        throughput: the settings for throughput, and where they come from; one line.
        latency: the same for latency.
        note: what else you need to know to read the figures; one line.
        keeps: how it keeps what handlers return; one line; empty if this is not compared.
        no_bulk: why there is no bulk call; empty if there is one.
        bulk_size: messages per bulk call.
        options: integer options of the verbs that only this peer has, with their defaults.
    """

    name: ClassVar[str]
    version: ClassVar[str]
    throughput: ClassVar[str]
    latency: ClassVar[str]
    note: ClassVar[str] = ""
    keeps: ClassVar[str] = ""
    no_bulk: ClassVar[str] = ""
    bulk_size: ClassVar[int] = 500
    options: ClassVar[dict[str, int]] = {}

    def __init__(self, run: Run) -> None:
        self.url = run.url
        self.setting = run.setting
        self.results = run.results
        self.tally = run.tally

    @abstractmethod
    def send_each(self, messages: Iterable[Message]) -> None:
        """Send one after another: take the next message once the server has confirmed the previous one."""

    def send_bulk(self, batches: Iterable[list[Message]]) -> None:
        """Send each batch in one call: take the next batch once the server has confirmed the previous one."""
        raise NotImplementedError(self.no_bulk)

    def fill(self, messages: Iterable[Message]) -> None:
        """Send in the fastest way."""
        if self.no_bulk:
            self.send_each(messages)
        else:
            self.send_bulk(batched(messages, self.bulk_size))

    @abstractmethod
    def consume(self) -> None:
        """Call `tally.ready`, then `tally.note` with each payload; never return, since the tally ends the process."""

    def verbs(self) -> dict[str, Verb]:
        """Return the verbs that only this peer has."""
        return {}


class AsyncPeer(Peer):
    """A queue with async calls.

    Attributes:
        loop_factory: creates its fastest event loop; None for asyncio's own.
    """

    loop_factory: ClassVar[Callable[[], asyncio.AbstractEventLoop] | None] = None

    @abstractmethod
    async def send(self, message: Message) -> None:
        """Send a message, and wait until the server has confirmed it."""

    async def send_batch(self, batch: list[Message]) -> None:
        """Send a batch in one call, and wait until the server has confirmed it."""
        raise NotImplementedError(self.no_bulk)

    async def connected(self, work: Coroutine[Any, Any, None]) -> None:
        """Connect, await `work`, and close."""
        await work

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine on that event loop."""
        with asyncio.Runner(loop_factory=type(self).loop_factory) as runner:
            runner.run(work)

    def send_each(self, messages: Iterable[Message]) -> None:
        self.run(self.connected(_send(self.send, messages)))

    def send_bulk(self, batches: Iterable[list[Message]]) -> None:
        self.run(self.connected(_send(self.send_batch, batches)))

    def fill(self, messages: Iterable[Message]) -> None:
        if self.no_bulk:
            self.run(self.connected(_send(self.send, messages, SENDERS)))
        else:
            super().fill(messages)


async def _send(send: Callable[[T], Awaitable[None]], items: Iterable[T], senders: int = 1) -> None:
    shared = iter(items)

    async def sender() -> None:
        for item in shared:
            await send(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(senders):
            group.create_task(sender())
