"""Read the envelopes of several messages in round trips of a bounded size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from delayq.errors import ServerUnreachable
from delayq.operations.byte_budget import DOWN_BYTES
from delayq.protocol.command import Command
from delayq.protocol.operation import Operation, execute, unwrap
from delayq.protocol.queue_commands import MAX_IDS, QueueCommands
from delayq.protocol.replies import StoredMessage

T = TypeVar("T")

FIND_AT_ONCE = 50  # calls in a round trip


def fetch(scripts: QueueCommands, ids: Sequence[str], largest: int | None = None) -> Operation[list[bytes | None]]:
    """Return the stored envelopes of the first of these messages, at least one: as many as one round trip may bring.

    An envelope is None if it is gone. If the connection breaks off, because the server allows its clients only small
    buffers, fewer are tried.

    Args:
        largest: the most bytes of each, if they are known; if not, the server is asked what fits.

    Raises:
        ServerUnreachable: the server is away, or the first envelope is too large for it.
    """
    if not ids:
        return []
    (found,) = yield from _bounded(scripts, ids[:MAX_IDS], lambda few: [scripts.envelopes(few)], largest)
    return list(found)


def find(scripts: QueueCommands, ids: Sequence[str]) -> Operation[list[StoredMessage]]:
    """Return everything stored about messages, in round trips like those of `fetch`."""
    found: list[StoredMessage] = []
    while left := ids[len(found) : len(found) + FIND_AT_ONCE]:
        found += yield from _bounded(scripts, left, lambda few: list(map(scripts.get, few)))
    return found


def _bounded(
    scripts: QueueCommands,
    ids: Sequence[str],
    calls: Callable[[Sequence[str]], list[Command[Any]]],
    largest: int | None = None,
) -> Operation[list[Any]]:
    """Return the results of the calls for the first messages, whose envelopes fit into a round trip."""
    most = DOWN_BYTES
    while True:
        if largest is not None:
            count = min(len(ids), max(1, most // largest))
        else:
            count = (yield from execute(scripts.fitting(ids, most))) if len(ids) > 1 else 1
        try:
            return list(map(unwrap, (yield [replace(call, repeats=False) for call in calls(ids[:count])])))
        except ServerUnreachable:
            if count == 1:
                raise
            ids, most = ids[: (count + 1) // 2], most // 2
