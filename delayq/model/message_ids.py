"""New ids: they rise within a process, and with time, so that messages due at the same time keep their order.

And ids that are made of payloads.
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

# Letters and digits only: a shell, a URL and a double click take such an id whole. Redis keeps their order.
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_PAIRS = [high + low for high in _DIGITS for low in _DIGITS]
_TICKS_PER_SECOND = 10  # 6 digits last until the year 2150
_KNOWN_TICKS = 1000


class _RisingIds:
    """Ids of 14 digits: 6 for the tenth of a second, and 8 for a number.

    With two characters more, a message would take 16 bytes more: an allocator that counts in sixteens has room for 14
    and their length.

    In each tick the numbers begin with the same one, which each process draws at random out of 10^14. Two processes
    make ids alike only if theirs lie closer together than what they send in a tick: among 1,000 processes that send
    100,000 messages a second between them, the chance that any two do is 10^-7, however long they run.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin with other numbers than before."""
        self._process = os.getpid()
        self._start = secrets.randbelow(62**8 // 2)
        self._tick = 0
        self._numbers: dict[int, Iterator[int]] = {}
        self._lead: tuple[tuple[int, int], str] = (0, 0), ""  # what the last ones began with

    def take(self, amount: int) -> list[str]:
        """Return the next ids. Threads share the numbers of a tick: no lock, which a signal handler could wait for."""
        if self._process != os.getpid():  # a server such as uWSGI forks without a word to Python
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
    """Return a number in six digits."""
    number, low = divmod(number, 62**2)
    high, middle = divmod(number, 62**2)
    return _PAIRS[high] + _PAIRS[middle] + _PAIRS[low]


_ids = _RisingIds()
os.register_at_fork(after_in_child=_ids.begin)  # else parent and child would give out the same ids


def new_id() -> str:
    """Return an id that is above all that this process has made, and unlike those of any other."""
    return _ids.take(1)[0]


def new_ids(amount: int) -> list[str]:
    """Return `amount` new ids, in their order."""
    return _ids.take(amount)


def content_id(payload: Any) -> str:
    """Return an id made of a payload: equal payloads have the same one, in each process and version.

    `queue.send(payload, id=content_id(payload))` sends nothing while the queue holds a message with the same payload.
    The order of keys, and of a set, does not matter. Payloads are equal if what is stored of them is: ``(1,)`` and
    ``[1]`` are, 1 and 1.0 are not.

    Returns:
        32 hexadecimal digits: the first half of the SHA-256 of ``raw:`` and the bytes of a payload that is bytes; else
        of ``json:`` and its JSON in UTF-8, without spaces and with sorted keys.

    Raises:
        PayloadNotSerializable: neither bytes nor JSON, or a set has values of several types, which have no order.
    """
    kind, body = canonical_body(payload)
    return sha256((b"raw:" if kind == RAW else b"json:") + body).hexdigest()[:32]
