"""Say in words what is wrong with a queue, or with a group of a topic, from its counts."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from delayq.model.consumer_info import ConsumerInfo
from delayq.model.queue_stats import QueueStats
from delayq.model.rates import Rates, between
from delayq.model.record import GroupConsumer, GroupInfo, lag_text
from delayq.model.text import plural, printable_id
from delayq.model.units import show_duration, show_moment

LATE_SECONDS = 1.024  # the end of a bucket of lateness
WINDOW = dt.timedelta(minutes=5)  # earlier events are not current trouble
OVERDUE_SECONDS = 5.0  # a consumer takes due messages within a second, even if it missed the bell
STALLED_SECONDS = 60.0  # a topic's consumer asks for records, or renews those it holds, more often than this
BEHIND_RECORDS = 1000  # a smaller lag may be a single burst


class Trouble(msgspec.Struct, frozen=True):
    """Something that is wrong with a queue, or with a group of a topic.

    Attributes:
        code: which trouble it is.
        text: one sentence, with the numbers.
    """

    code: Literal["no-consumer", "late", "dead-growing", "paused", "unaccounted", "behind", "dead-letters"]
    text: str


def troubles(stats: QueueStats, rates: Rates | None, consumers: Iterable[ConsumerInfo]) -> list[Trouble]:
    """Return what is wrong with a queue; an empty list if nothing is.

    Args:
        rates: what happened recently; None if there is no earlier count.
        consumers: of the queue, including those that are gone.
    """
    return list(_troubles(stats, rates, list(consumers)))


def group_troubles(
    group: GroupInfo, consumers: Iterable[GroupConsumer] | None, earlier: GroupInfo | None = None
) -> list[Trouble]:
    """Return what is wrong with a group of a topic; an empty list if nothing is.

    Args:
        consumers: of the group, including silent ones; None if they were not read, as with nothing to handle.
        earlier: the group as it was some minutes ago; without it, a growing lag cannot be seen.
    """
    return list(_group_troubles(group, None if consumers is None else list(consumers), earlier))


def lately(now: QueueStats, earlier: Iterable[QueueStats]) -> Rates | None:
    """Return what happened since the first count of the last five minutes.

    Args:
        earlier: counts of the same queue, in any order. If none is from the last five minutes, the latest is used.

    Returns:
        The `rates` for `troubles`; None without an earlier count.
    """
    before = sorted((each for each in earlier if each.at < now.at), key=lambda each: each.at)
    base = next((each for each in before if each.at >= now.at - WINDOW), before[-1] if before else None)
    return None if base is None else between(base, now)


def _troubles(stats: QueueStats, rates: Rates | None, consumers: Sequence[ConsumerInfo]) -> Iterator[Trouble]:
    due = None  # messages held back by a pause are not trouble
    if stats.oldest_due_at is not None and stats.paused_since is None:
        due = (stats.at - stats.oldest_due_at).total_seconds()
    if due is not None and not any(each.is_alive for each in consumers):
        yield Trouble("no-consumer", f"A message has been due for {show_duration(due)}, and {_absent(consumers)}.")
    if due is not None and due > OVERDUE_SECONDS:
        yield Trouble("late", f"A message has been due for {show_duration(due)}, and no consumer has taken it.")
    elif rates and (late := rates.lateness_p99) and late > LATE_SECONDS:
        span, least = show_duration(rates.seconds), show_duration(late / 2)
        yield Trouble("late", f"At least 1 % of the hand-outs in the last {span} were more than {least} late.")
    if rates and rates.died:
        more, span = plural(rates.died, "message"), show_duration(rates.seconds)
        yield Trouble("dead-growing", f"{more} died within the last {span}; {stats.dead:,} are dead now.")
    if stats.paused_since is not None:
        until = "" if stats.paused_until is None else f" until {show_moment(stats.paused_until, stats.at)}"
        yield Trouble("paused", f"The queue has been paused since {show_moment(stats.paused_since, stats.at)}{until}.")
    if stats.missing:
        yield Trouble("unaccounted", f"{_unaccounted(stats.missing)}: run delayq doctor for details.")


def _group_troubles(
    group: GroupInfo, consumers: Sequence[GroupConsumer] | None, earlier: GroupInfo | None
) -> Iterator[Trouble]:
    behind = f"The group is {lag_text([group])} {'record' if group.lag == 1 else 'records'} behind"
    if not group.lag:
        behind = f"The group has {plural(group.unacked, 'unacked record')}"
    waits = group.lag or group.unacked
    if waits and consumers is not None and all(each.idle > STALLED_SECONDS for each in consumers):
        yield Trouble("no-consumer", f"{behind}, and {_silent(consumers)}.")
    if earlier is not None and group.lag > BEHIND_RECORDS and group.lag > earlier.lag:
        yield Trouble("behind", f"{behind}; a few minutes ago it was {lag_text([earlier])}.")
    if group.dead:
        yield Trouble("dead-letters", f"The group has {plural(group.dead, 'dead letter')}.")


def _silent(consumers: Sequence[GroupConsumer]) -> str:
    if not consumers:
        return "it has no consumer"
    last = min(consumers, key=lambda each: each.idle)
    return f"no consumer has been seen for {show_duration(last.idle)} (the last was {printable_id(last.name)})"


def _absent(consumers: Sequence[ConsumerInfo]) -> str:
    if not consumers:
        return "there is no consumer"
    last = max(consumers, key=lambda each: each.seen_at)
    ago = show_duration((last.at - last.seen_at).total_seconds())
    return f"no consumer has been seen for {ago} (the last was {printable_id(last.name)})"


def _unaccounted(missing: int) -> str:
    is_one = abs(missing) == 1
    if missing > 0:
        return f"{plural(missing, 'sent message')} {'is' if is_one else 'are'} unaccounted for"
    return f"{plural(-missing, 'message')} {'exists that was' if is_one else 'exist that were'} never counted"
