"""Say in words what is wrong with a queue, or with a group of a topic, from its counts."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args

import msgspec

from delayq.model.configuration import Usage
from delayq.model.consumer_info import ConsumerInfo, Held
from delayq.model.queue_stats import QueueStats
from delayq.model.rates import Rates, between
from delayq.model.show import plural, show_duration, show_moment
from delayq.model.text import printable_id

if TYPE_CHECKING:
    from delayq.model.record import GroupConsumer, GroupInfo

LATE_SECONDS = 1.024  # the end of a bucket of lateness
WINDOW = dt.timedelta(minutes=5)  # earlier events are not current trouble
OVERDUE_SECONDS = 5.0  # a consumer takes due messages within a second, even if it missed the bell
STALLED_SECONDS = 60.0  # a topic's consumer asks for records, or renews those it holds, more often than this
BEHIND_RECORDS = 1000  # a smaller lag may be a single burst
NEARLY_USED_UP = 0.9  # a rate limit used to this share holds messages back at times, but also lets some go
STUCK_SECONDS = 600.0  # a handler is stuck if its message has been held for longer than this, than …
STUCK_TIMES = 10  # … this many times the 99th percentile of its queue, and than its time limit

Code: TypeAlias = Literal[
    "no-consumer", "unaccounted", "stuck", "late", "behind", "schedule-late", "dead-growing", "dead-letters", "limited",
    "paused",
]  # fmt: skip
"""The troubles, worst first."""

CODES: tuple[str, ...] = ("unreadable", *get_args(Code))
"""All that is said of a queue or topic in trouble, worst first."""


class Trouble(msgspec.Struct, frozen=True):
    """Something that is wrong with a queue, or with a group of a topic.

    Attributes:
        code: which trouble it is.
        text: one sentence, with the numbers.
    """

    code: Code
    text: str


def troubles(
    stats: QueueStats, rates: Rates | None, consumers: Iterable[ConsumerInfo], usage: Usage | None = None
) -> list[Trouble]:
    """Return what is wrong with a queue, worst first; an empty list if nothing is.

    Args:
        rates: what happened recently; None if there is no earlier count.
        consumers: of the queue, including those that are gone.
        usage: of its limits and schedules. Without it, a late schedule is not reported, and messages that a limit of
            the queue holds back count as late.
    """
    return sorted(_troubles(stats, rates, list(consumers), usage or Usage()), key=lambda each: badness([each.code]))


def badness(codes: Iterable[str]) -> tuple[int, ...]:
    """Return the key that sorts what is in trouble by its worst code, worst first, and then by the next worst."""
    return (*sorted(map(CODES.index, codes)), len(CODES))


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


def is_held_back(stats: QueueStats, usage: Usage) -> bool:
    """Whether a pause, or a limit that is used up, holds back all due messages of a queue."""
    rate_is_used_up = usage.rate is not None and usage.handed_out >= usage.rate
    return stats.paused_since is not None or rate_is_used_up or _is_full(usage)


class Stuck(NamedTuple):
    """The deliveries of a queue whose handlers are stuck.

    Attributes:
        total: how many there are.
        first: the one that was handed out first, as far as it is known.
        holder: the consumer that holds it, or that runs a handler beyond its time limit.
        seconds: how long it had been held when its consumer reported.
    """

    total: int = 0
    first: Held | None = None
    holder: str = ""
    seconds: float = 0.0


def stuck_after(stats: QueueStats) -> float:
    """Return the seconds after which a handler without a time limit is stuck; infinity while no handler has ended."""
    usual = stats.handler_time_quantile(0.99)
    return math.inf if usual is None else max(STUCK_SECONDS, STUCK_TIMES * usual)


def stuck(stats: QueueStats, consumers: Iterable[ConsumerInfo]) -> Stuck:
    """Return the deliveries that live consumers have held for too long, or beyond the time limit of their handlers.

    A consumer runs those first that it was handed first, so later ones than its handlers have room for only wait.
    """
    found, limit = Stuck(), stuck_after(stats)
    for each in consumers:
        if not each.is_alive:
            continue
        ages = [((each.seen_at - held.since).total_seconds(), held) for held in each.holds[: each.concurrency]]
        long = [(age, held) for age, held in ages if age > max(limit, held.timeout or 0)]
        total = found.total + max(len(long), each.over_limit)
        found = found._replace(total=total, holder=found.holder or each.name if total else "")
        for age, held in long:
            if age > found.seconds:
                found = Stuck(total, held, each.name, age)
    return found


def overlong(seconds: float, stats: QueueStats, limit: float | None) -> str:
    """Say why a delivery that has been held for this long may be stuck; "" if it need not be.

    Args:
        limit: the time limit of its handler in seconds; None if it has none, or if that is unknown.
    """
    if limit is not None:
        return f"longer than its time limit of {show_duration(limit)}" if seconds > limit else ""
    return f"far longer than usual: {_usual(stats)}" if seconds > stuck_after(stats) else ""


def _usual(stats: QueueStats) -> str:
    return f"99 % of handlers took less than {show_duration(stats.handler_time_quantile(0.99) or 0)}"


def _troubles(
    stats: QueueStats, rates: Rates | None, consumers: Sequence[ConsumerInfo], usage: Usage
) -> Iterator[Trouble]:
    due = None  # messages held back by a pause are not trouble
    if stats.oldest_due_at is not None and stats.paused_since is None:
        due = (stats.at - stats.oldest_due_at).total_seconds()
    if due is not None and not any(each.is_alive for each in consumers):
        yield Trouble("no-consumer", f"A message has been due for {show_duration(due)}, and {_absent(consumers)}.")
    if (found := stuck(stats, consumers)).total:
        yield Trouble("stuck", _stuck(found, stats))
    is_held = is_held_back(stats, usage)
    yield from _lateness(due, rates, usage, is_held)
    if usage.late_schedules and not is_held:
        are, slot = ("is", "its slot") if usage.late_schedules == 1 else ("are", "the first of their slots")
        which, ago = plural(usage.late_schedules, "schedule"), show_duration(usage.latest_ms / 1000)
        yield Trouble("schedule-late", f"{which} {are} late: {slot} was {ago} ago, and no consumer has taken it.")
    if rates and rates.died > rates.requeued and stats.dead:
        more, span = plural(rates.died, "message"), show_duration(rates.seconds)
        yield Trouble("dead-growing", f"{more} died within the last {span}; {stats.dead:,} are dead now.")
    if stats.paused_since is not None:
        until = "" if stats.paused_until is None else f" until {show_moment(stats.paused_until, stats.at)}"
        yield Trouble("paused", f"The queue has been paused since {show_moment(stats.paused_since, stats.at)}{until}.")
    if stats.missing:
        yield Trouble("unaccounted", f"{_unaccounted(stats.missing)}: run delayq doctor for details.")


def _lateness(due: float | None, rates: Rates | None, usage: Usage, is_held: bool) -> Iterator[Trouble]:
    """Yield the trouble that a message has been due for `due` seconds, or that messages were handed out late."""
    if due is not None and due > OVERDUE_SECONDS:
        waits = f"A message has been due for {show_duration(due)}"
        if not is_held:
            yield Trouble("late", f"{waits}, and no consumer has taken it.")
        if limit := _limit_in_use(usage):
            yield Trouble("limited", f"{waits}: {limit}.")
    elif rates and (late := rates.lateness_p99) and late > LATE_SECONDS:
        span, least = show_duration(rates.seconds), show_duration(late / 2)
        yield Trouble("late", f"At least 1 % of the deliveries in the last {span} were more than {least} late.")


def lag_text(groups: Sequence[GroupInfo]) -> str:
    """Return the longest lag of the groups: "1,200", or "at least 10,000" if it may be larger; "0" without groups."""
    longest = max((each.lag for each in groups), default=0)
    return f"{'at least ' * any(each.at_least for each in groups)}{longest:,}"


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


def _stuck(found: Stuck, stats: QueueStats) -> str:
    if found.first is None:
        handlers = "1 handler runs" if found.total == 1 else f"{found.total:,} handlers run"
        return f"{handlers} beyond the time limit, on consumer {printable_id(found.holder)}."
    others = f", and {found.total - 1:,} more are stuck" if found.total > 1 else ""
    held = f"has been held for {show_duration(found.seconds)} by consumer {printable_id(found.holder)}"
    return f"Attempt {found.first.attempt} of message {found.first.id} {held}; {_usual(stats)}{others}."


def _is_full(usage: Usage) -> bool:
    return usage.concurrency is not None and usage.running >= usage.concurrency


def _limit_in_use(usage: Usage) -> str:
    """Say which limit of the queue is used up, or nearly; "" if none is."""
    if _is_full(usage):
        return f"the limit of {plural(usage.concurrency or 0, 'message')} at once is used up"
    # With a backlog, a read may come between the end of a delivery's period and the next delivery.
    if usage.rate is None or usage.handed_out < NEARLY_USED_UP * usage.rate:
        return ""
    limit = f"the rate limit of {plural(usage.rate, 'message')} in {show_duration((usage.period_ms or 0) / 1000)}"
    is_used_up = usage.handed_out >= usage.rate
    return f"{limit} is used up" if is_used_up else f"{limit} is nearly used up, with {usage.handed_out:,}"


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
