"""JSON Lines files for the tests of ``send --file``, and the messages sent from them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from delayq import Queue

Write = Callable[[list[Any]], Path]


def numbers(queue: Queue) -> list[int]:
    """The payloads in the queue, in the order they were sent."""
    return sorted(info.payload for info in queue.peek("pending", limit=100_000))


def numbered(count: int, first: int = 0, **options: Any) -> list[Any]:
    return [{"payload": number, **options} for number in range(first, first + count)]
