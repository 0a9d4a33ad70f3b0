"""Ledger entries that hold several events: how `pack` in `lua/prelude.lua` writes them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from delayq.model.event import FIELDS
from delayq.model.positions import number_of, order

if TYPE_CHECKING:
    from delayq.model.record import Entry

MOST = 100
"""The most events in an entry."""

_NAMES = [b"ids", b"event", b"at", b"attempt", b"due", b"consumer", b"reason", b"events"]
_SINGLE = [name.encode() for name in FIELDS]
_LATE = (b"promoted", b"delivered")
_ENDLESS = 1 << 200
MAX_COUNTER = 2**64 - 1


def is_packed(fields: Sequence[bytes] | None) -> bool:
    """Whether an entry holds several events."""
    return fields is not None and len(fields) == 16 and fields[0] == b"ids" and list(fields[::2]) == _NAMES


def count(fields: Sequence[bytes] | None) -> int:
    """Count the events of an entry; one that delayq did not write counts as one."""
    number = bytes(fields[15]).split(b" ", 1)[0] if fields is not None and is_packed(fields) else b"1"
    return int(number) if number.isdigit() and len(number) < 4 else 1


def parts(entry: str, fields: Sequence[bytes] | None) -> list[Entry]:
    """Return the events of an entry, oldest first, each as an entry of its own.

    The last event has the id of the entry, and the others the ids right before it. An entry that holds one event, or
    that delayq did not write, is returned as it is.
    """
    if fields is None or not is_packed(fields):
        return [(entry, fields)]
    ids, events = _ids(fields[1]), count(fields)
    attempts, dues = fields[7].split(b"\n"), fields[9].split(b"\n")
    if len(ids) != events or not {len(attempts), len(dues)} <= {1, events}:
        return [(entry, fields)]
    attempts, dues = (each * events if len(each) == 1 else each for each in (attempts, dues))
    lates = [b""] * events if fields[3] not in _LATE else [_late(fields[5], due) for due in dues]
    ms, last = order(entry)
    found: list[Entry] = []
    for place, row in enumerate(zip(ids, attempts, dues, lates, strict=True)):
        message_id, attempt, due, late = row
        values = (message_id, fields[3], fields[5], attempt, due, late, fields[11], fields[13])
        single = [word for pair in zip(_SINGLE, values, strict=True) for word in pair]
        found.append((f"{ms}-{last - events + 1 + place}", single))
    return found


def events(entries: Iterable[Entry], low: str = "-", high: str = "+", reverse: bool = False) -> list[Entry]:
    """Return the events of entries between two bounds in the form of `positions.bound`.

    Args:
        reverse: whether the entries are in reverse order, as the events will be.
    """
    first, last = _first(low), _last(high)
    found: list[Entry] = []
    for entry, fields in entries:
        number, several = number_of(entry), parts(entry, fields)
        if number > last or number - len(several) < first:
            several = [each for each in several if first <= number_of(each[0]) <= last]
        found += several[::-1] if reverse else several
    return found


def reach(high: str) -> str:
    """Return the bound up to which entries may hold events up to `high`."""
    ms, _, number = high.removeprefix("(").partition("-")
    return f"{ms}-{min(int(number) + MOST, MAX_COUNTER)}" if number else high


def _first(low: str) -> int:
    return 0 if low == "-" else number_of(low.removeprefix("(")) + low.startswith("(")


def _last(high: str) -> int:
    if high == "+":
        return _ENDLESS
    if "-" not in high:  # a whole millisecond
        return number_of(f"{high[1:]}-0") - 1 if high[0] == "(" else number_of(f"{int(high) + 1}-0") - 1
    return number_of(high.removeprefix("(")) - high.startswith("(")


def _ids(stored: bytes) -> list[bytes]:
    try:
        ids: Any = json.loads(bytes(stored).decode("utf-8", "surrogateescape"))
        return [each.encode("utf-8", "surrogateescape") for each in ids]
    except (ValueError, TypeError, AttributeError, RecursionError):
        return []


def _late(at: bytes, due: bytes) -> bytes:
    try:
        late = float(at) - float(due)
        return b"%d" % late if late == int(late) else repr(late).encode()
    except (ValueError, OverflowError):
        return b""
