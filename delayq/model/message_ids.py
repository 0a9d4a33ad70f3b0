"""New ids, and ids made from payloads.

New ids rise within a process and with time, so that messages due at the same time keep their order.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from hashlib import sha256
from itertools import count, islice
from typing import Any

from delayq.model.envelope import RAW, canonical_body

# Only letters and digits, so that shells, URLs and double clicks take an id as a whole. Redis sorts them in this order.
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_PAIRS = [high + low for high in _DIGITS for low in _DIGITS]
_TICKS_PER_SECOND = 10  # 6 digits last until the year 2150
_KNOWN_TICKS = 1000


class _RisingIds:
    """Ids of 14 digits: 6 for the tenth of a second, and 8 for a number.

    Two more characters would cost 16 bytes a message: an allocator with steps of 16 bytes has room for 14 characters
    and their length.

    In each tick the numbers start from the same one, which each process draws at random from 10^14. Two processes make
    the same id only if their starting numbers are closer together than the count they send in a tick. Among 1,000
    processes that together send 100,000 messages a second, the chance of that is 10^-7, however long they run.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Start from a new random number."""
        self._process = os.getpid()
        self._start = secrets.randbelow(62**8 // 2)
        self._tick = 0
        self._numbers: dict[int, Iterator[int]] = {}
        self._lead: tuple[tuple[int, int], str] = (0, 0), ""  # the start of the last ids

    def take(self, amount: int) -> list[str]:
        """Return the next ids. Threads share the numbers without a lock, as a signal handler could deadlock on one."""
        if self._process != os.getpid():  # servers such as uWSGI fork without telling Python
            self.begin()
        tick = self._tick = max(self._tick, int(time.time() * _TICKS_PER_SECOND))  # the clock may be set back
        numbers = self._numbers.get(tick)
        if numbers is None:
            numbers = self._numbers.setdefault(tick, count(self._start))
            while len(self._numbers) > _KNOWN_TICKS:
                self._numbers.pop(min(self._numbers), None)
        ids, known, lead = [], *self._lead
        for number in islice(numbers, amount):
            high, low = divmod(number, 62**2)
            if (tick, high) != known:
                self._lead = known, lead = (tick, high), _text(tick) + _text(high)
            ids.append(lead + _PAIRS[low])
        return ids


def _text(number: int) -> str:
    """Return a number as six digits of base 62."""
    number, low = divmod(number, 62**2)
    high, middle = divmod(number, 62**2)
    return _PAIRS[high] + _PAIRS[middle] + _PAIRS[low]


_ids = _RisingIds()
os.register_at_fork(after_in_child=_ids.begin)  # or parent and child would make the same ids


def new_id() -> str:
    """Return an id that is greater than all earlier ones of this process, and unique among processes."""
    return _ids.take(1)[0]


def new_ids(amount: int) -> list[str]:
    """Return `amount` new ids, in their order."""
    return _ids.take(amount)


class _RisingUuids:
    """UUIDs of version 7: 48 bits for the millisecond, then 74 for a number that begins at random in each process."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Start from a new random number."""
        self._process = os.getpid()
        self._numbers = count(secrets.randbits(73))
        self._ms = 0

    def take(self, amount: int) -> list[str]:
        """Return the next UUIDs. As in `_RisingIds`, threads share the numbers without a lock."""
        if self._process != os.getpid():
            self.begin()
        ms = self._ms = max(self._ms, time.time_ns() // 1_000_000)
        return [_uuid(ms << 74 | number) for number in islice(self._numbers, amount)]


def _uuid(number: int) -> str:
    """Return a number of 122 bits as a UUID of version 7."""
    high, low = number >> 62, number & (1 << 62) - 1
    digits = f"{(high >> 12 << 16 | 7 << 12 | high & 0xFFF) << 64 | 2 << 62 | low:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


_uuids = _RisingUuids()
os.register_at_fork(after_in_child=_uuids.begin)


def new_uuids(amount: int) -> list[str]:
    """Return UUIDs that rise within a process and with time, also as texts."""
    return _uuids.take(amount)


def content_id(payload: Any) -> str:
    """Return an id made from a payload. Equal payloads have the same id, in every process and version.

    `queue.send(payload, id=content_id(payload))` sends nothing while the queue holds a message with the same payload.
    The order of keys and of sets does not matter. Payloads are equal if they are stored as the same JSON: ``(1,)`` and
    ``[1]`` are equal, 1 and 1.0 are not.

    Returns:
        32 hexadecimal digits, the first half of a SHA-256. It is computed from ``raw:`` and the payload if that is
        bytes, else from ``json:`` and its JSON in UTF-8, without spaces and with sorted keys.

    Raises:
        PayloadNotSerializable: the payload is not bytes and cannot be written as JSON, or a set has values of several
            types, which have no order.
    """
    kind, body = canonical_body(payload)
    return sha256((b"raw:" if kind == RAW else b"json:") + body).hexdigest()[:32]
