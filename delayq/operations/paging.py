"""Pages of a state before or after a place, in time that does not grow with the state."""

from __future__ import annotations

import datetime as dt
import heapq
from typing import Any

import msgspec

from delayq.errors import InvalidInput
from delayq.model.message_info import MessageInfo
from delayq.model.placement import Row, State, check_state
from delayq.model.text import decode_text, encode_id
from delayq.model.units import timestamp_ms
from delayq.model.validation import check_limit
from delayq.operations import scan
from delayq.operations.inspect import describe
from delayq.operations.queue_context import QueueContext
from delayq.operations.walk import BEGINNING, Place, place
from delayq.protocol.command import Command
from delayq.protocol.operation import Operation, execute, gather, unwrap
from delayq.protocol.queue_commands import MAX_IDS, QueueCommands
from delayq.protocol.replies import StoredMessage

END = "+"
"""The cursor after all messages."""

LAST = "\U0010ffff".encode()  # sorts after all ids

PROBES = 16  # in one round trip: five trips find a place among a million messages of one instant
TRIES = 5  # to read rows that have not moved since they were found


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Some messages of a state, lowest score first.

    Attributes:
        messages: those that still existed when they were described.
        sizes: the stored bytes of each payload, including headers, by id; 0 if it is gone.
        total: how many messages the state holds.
        rank: how many of them come before this page, at about the same instant as `total`.
        before: the `before` argument for the page before this one; None if there is none.
        after: the `after` argument for the page after this one; None if there is none.
    """

    messages: list[MessageInfo]
    sizes: dict[str, int]
    total: int
    rank: int
    before: str | None = None
    after: str | None = None


def page(
    context: QueueContext, state: State, after: str | None, before: str | None, limit: int, largest: int | None = None
) -> Operation[Page]:
    """Return up to `limit` messages of a state, after `after` or before `before`.

    Args:
        after: a cursor; None for the beginning.
        before: a cursor instead, or "+" for the end.
        largest: bytes; larger envelopes are not read, and their messages seem to have none.
    """
    check_state(state)
    check_limit(limit, most=MAX_IDS)
    if after is not None and before is not None:
        raise InvalidInput(f"after={after!r} and before={before!r} were given: give one of them")
    at = BEGINNING if after is None else read_cursor(after)
    if before not in (None, END):
        at = read_cursor(before)
    shards = yield from context.opened()
    if before is None:
        slices = yield from gather(*(_behind(scripts, state, at, limit) for scripts in shards))
    else:
        end = None if before == END else at
        slices = yield from gather(*(rows_in_front(scripts, state, end, limit) for scripts in shards))
    found: list[tuple[int, int, list[Row]]] = [unwrap(each) for each in slices]
    total = sum(count for count, _, _ in found)
    rows = list(heapq.merge(*(rows for _, _, rows in found), key=place))
    rank = sum(rank for _, rank, _ in found)
    if before is not None:
        rank += max(0, len(rows) - limit)  # rows on other pages, from several shards
        rows = rows[-limit:]
    rows = rows[:limit]
    messages, sizes = yield from described(context, state, rows, largest)
    return Page(
        messages=messages,
        sizes=sizes,
        total=total,
        rank=rank,
        before=cursor(place(rows[0])) if rows and rank > 0 else None,
        after=cursor(place(rows[-1])) if rows and rank + len(rows) < total else None,
    )


def cursor(at: Place) -> str:
    """Return a place as text for `read_cursor`."""
    score, member = at
    return f"{score:.17g} {member.decode('utf-8', 'surrogateescape')}"


def behind(moment: dt.datetime) -> str:
    """Return the cursor after all messages with the score of a moment."""
    return cursor((timestamp_ms(moment), LAST))


def read_cursor(given: str) -> Place:
    """Read the place in a cursor; raises InvalidInput."""
    score, space, message_id = given.partition(" ") if isinstance(given, str) else ("", "", "")
    try:
        at = float(score)
    except ValueError:
        at = float("nan")
    if not space or at != at:
        raise InvalidInput(f"{given!r} is not a cursor: give `before` or `after` of another page unchanged")
    return at, message_id.encode("utf-8", "surrogateescape")


def rank_of(scripts: QueueCommands, state: State, at: Place, behind: bool = True) -> Operation[int]:
    """Return how many rows of a state are at or before `at`; without `behind`, only before it.

    Redis counts only by score, so the place among rows with the same score has to be searched.
    """
    key = scripts.keys.state(state)
    score = f"{at[0]:.17g}"
    low: int
    high: int
    low, high = map(
        unwrap, (yield [Command(key, ("ZCOUNT", key, "-inf", bound), int) for bound in (f"({score}", score)])
    )
    while low < high:
        ranks = sorted({low + (high - low) * number // PROBES for number in range(PROBES)})
        probes = yield [scripts.ranked_page(state, 1, rank) for rank in ranks]
        for rank, rows in zip(ranks, map(unwrap, probes), strict=True):
            if rows and (place(rows[0]) < at or (behind and place(rows[0]) == at)):
                low = rank + 1
            else:
                high = rank
                break
    return low


def _behind(scripts: QueueCommands, state: State, at: Place, limit: int) -> Operation[tuple[int, int, list[Row]]]:
    """Return the number of rows, the number up to a place, and the next rows."""
    rank, rows = 0, []
    for _ in range(TRIES):
        rank = 0 if at == BEGINNING else (yield from rank_of(scripts, state, at))
        # Read the row before it too: if that has changed, rows have gone, and some would be left out.
        first = max(0, rank - 1)
        rows = yield from execute(scripts.ranked_page(state, limit + rank - first, first))
        if not rank or (rows and place(rows[0]) <= at):
            break
    total = yield from _count(scripts, state)
    return total, rank, [row for row in rows if place(row) > at][:limit]


def rows_in_front(
    scripts: QueueCommands, state: State, at: Place | None, limit: int
) -> Operation[tuple[int, int, list[Row]]]:
    """Return the number of rows, the number before the page, and the page before a place, or the last page."""
    rank, rows = 0, []
    for _ in range(TRIES):
        if at is None:
            rank = yield from _count(scripts, state)
        else:
            rank = yield from rank_of(scripts, state, at, behind=False)
        first = max(0, rank - limit)
        rows = yield from execute(scripts.ranked_page(state, rank - first + 1, first))  # and the row after them
        if at is None or len(rows) <= rank - first or place(rows[-1]) >= at:
            break
    total = yield from _count(scripts, state)
    rows = [row for row in rows if at is None or place(row) < at][-limit:]
    return total, max(0, rank - len(rows)), rows


def _count(scripts: QueueCommands, state: State) -> Operation[int]:
    key = scripts.keys.state(state)
    return (yield from execute(Command(key, ("ZCARD", key), int)))


def described(
    context: QueueContext, state: State, rows: list[Row], largest: int | None
) -> Operation[tuple[list[MessageInfo], dict[str, int]]]:
    """Describe rows as they were seen in a state, and return the sizes of their envelopes."""
    ids = [message_id for message_id, _ in rows]
    known: dict[str, MessageInfo] = {}
    sizes: dict[str, int] = {}
    for scripts, positions in context.by_shard(range(len(rows)), lambda position: ids[position]):
        of_shard = [ids[position] for position in positions]
        sizes |= yield from scan.sizes(scripts, of_shard)
        left = {each: sizes[each] for each in of_shard if largest is None or sizes[each] <= largest}
        stored: dict[str, bytes] = {}
        while left:
            stored |= yield from scan.envelopes(scripts, left)
        details = yield from _message_details(scripts, state, of_shard)
        for position, fields in zip(positions, details, strict=True):
            message_id, score = rows[position]
            found = StoredMessage({state: float(score)}, *fields, stored.get(message_id))
            info = describe(context, message_id, found)
            assert info is not None, "it was found in a state"
            known[message_id] = info
    return [known[message_id] for message_id in ids], sizes


def _message_details(
    scripts: QueueCommands, state: State, ids: list[str]
) -> Operation[list[tuple[str | None, str | None, str | None, bool]]]:
    """Return the deliveries of each message, its last error, its reason of death, and whether it was cancelled."""
    if not ids:
        return []
    keys, words = scripts.keys, list(map(encode_id, ids))
    hashes = [Command(key, ("HMGET", key, *words), list) for key in (keys.attempts, keys.errors, keys.reasons)]
    running = words if state == "unack" else []
    flags: list[Command[Any]] = [Command(keys.cancelled, ("SISMEMBER", keys.cancelled, each), bool) for each in running]
    replies = [unwrap(each) for each in (yield [*hashes, *flags])]
    cancelled = replies[3:] or [False] * len(ids)
    return [
        (decode_text(a), decode_text(b), decode_text(c), flag)
        for a, b, c, flag in zip(*replies[:3], cancelled, strict=True)
    ]
