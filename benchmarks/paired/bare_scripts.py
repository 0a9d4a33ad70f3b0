"""The bare scripts: delayq's own scripts, driven by a minimal client. No other use of them can be much faster.

One thread, one connection, one call after another. Envelopes and ids are prepared beforehand; packing the commands
is timed. Only the ids in the replies are decoded.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from delayq.cli.bench import home

from benchmarks.paired.plain_socket import PlainSocket
from delayq.model.envelope import encode_envelope
from delayq.model.message_ids import new_ids
from delayq.operations.queue_context import QueueContext
from delayq.operations.send import MAX_SENT
from delayq.protocol.queue_commands import MAX_IDS
from delayq.protocol.script import script
from delayq.queue import Queue

HOUR = "+3600000"  # ms: not due during the measurement
LEASE_MS = 60_000
FIRST = "0.0.0.0"  # what receipts of first deliveries begin with
USED = ("send", "send_one", "pending_to_ready", "ready_to_unack", "ack")


class BareScripts:
    """The scripts of one queue, which nothing else consumes meanwhile.

    Args:
        payload: of every message.
    """

    def __init__(self, queue: Queue, payload: bytes) -> None:
        self._scripts = queue.execute(QueueContext.opened, create=True)[0]
        self._envelope = encode_envelope(payload, max_retries=3)
        self._socket = PlainSocket(home(queue))
        self._socket.trip([("SCRIPT", "LOAD", script(name).text) for name in USED])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def send_one(self, count: int) -> float:
        """Send messages one by one; return the seconds it took."""

        def calls() -> None:
            for each in new_ids(count):
                self._socket.run(self._scripts.send_one(each, HOUR, self._envelope))

        return _timed(calls)

    def send_bulk(self, count: int, due: str = HOUR) -> float:
        """Send messages in calls of MAX_SENT; return the seconds it took.

        Args:
            due: as the scripts take it, '+delay_ms'.
        """
        ids = new_ids(count)

        def calls() -> None:
            for start in range(0, count, MAX_SENT):
                messages = [(each, due, self._envelope) for each in ids[start : start + MAX_SENT]]
                self._socket.run(self._scripts.send(messages, named=False))

        return _timed(calls)

    def drain(self, count: int) -> float:
        """Take and ack `count` due messages; return the seconds it took.

        Two round trips per batch: the ack of the previous batch travels with the claim.
        """

        def batches() -> None:
            acks: list[Any] = []
            left = count
            while left:
                *acked, _, claimed = self._socket.run(*acks, *self._claim(left))
                self._check(acked)
                receipts = self._fetch(claimed)
                left -= len(receipts)
                acks = [self._scripts.ack(receipts)]
            self._check(self._socket.run(*acks))

        return _timed(batches)

    def pull(self, count: int) -> float:
        """Take and ack `count` due messages as `receive` and `ack` do; return the seconds it took.

        Three round trips per batch: a claim, a fetch and an ack.
        """

        def batches() -> None:
            left = count
            while left:
                _, claimed = self._socket.run(*self._claim(left))
                receipts = self._fetch(claimed)
                left -= len(receipts)
                self._check(self._socket.run(self._scripts.ack(receipts)))

        return _timed(batches)

    def _claim(self, left: int) -> list[Any]:
        return [
            self._scripts.pending_to_ready(),
            self._scripts.ready_to_unack(min(left, MAX_IDS), LEASE_MS),
        ]

    def _fetch(self, claimed: list[Any]) -> list[tuple[str, str]]:
        """Fetch the envelopes of the claimed messages; return ids and receipts."""
        _, micros, flat, *_ = claimed
        ids = [each.decode() for each in flat[::2]]
        if not ids:
            raise RuntimeError("fewer messages are due than expected: something else consumes the queue")
        self._socket.trip([("MGET", *(self._scripts.keys.message(each) for each in ids))])
        receipt = f"{FIRST}-{micros}"
        return [(each, receipt) for each in ids]

    def _check(self, acked: list[list[int]]) -> None:
        if not all(all(reply) for reply in acked):
            raise RuntimeError(
                "an ack of the bare scripts was refused: its receipt is not the one that the scripts compute"
            )


def _timed(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
